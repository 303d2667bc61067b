//go:build !linux

package suite

import "syscall"

func dieWithUs() *syscall.SysProcAttr { return nil }
