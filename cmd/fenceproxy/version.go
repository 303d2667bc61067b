package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker.
var version = ""

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(s *streams) error {
	_, err := fmt.Fprintf(s.out, "fenceproxy %s (%s, %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
