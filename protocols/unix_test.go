package protocols_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/protocols"
)

func TestSocketPath(t *testing.T) {
	for addr, want := range map[string]string{
		"unix:/run/x": "/run/x", "/run/x": "/run/x", "/run//x/": "/run/x", "127.0.0.1:5432": "", "host:5432": "", "unix:x": "", ":5432": "", "[::1]:5432": "",
	} {
		if got, ok := protocols.SocketPath(addr); got != want || ok != (want != "") {
			t.Errorf("%s: %q", addr, got)
		}
	}
}

// A socket that is left behind is taken over, one that somebody listens on is not, nor
// anything else that is there.
func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	listen := func(mode fs.FileMode) (net.Listener, error) { return protocols.ListenUnix(t.Context(), path, mode) }
	l, err := listen(0)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != protocols.DefaultSocketMode {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if _, err := listen(0); !errors.Is(err, protocols.ErrSocketInUse) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listened on by two: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}

	// A dead process's.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if l, err = listen(0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	l.Close()

	// Another program's, which knows no lock of ours.
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(0); !errors.Is(err, protocols.ErrSocketInUse) {
		t.Errorf("taken from another program: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the other program's socket is gone: %v", err)
	} else {
		c.Close()
	}
	other.Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(0); err == nil {
		t.Error("listens on a file")
	}
	if b, err := os.ReadFile(path); string(b) != "precious" {
		t.Errorf("the file: %q %v", b, err)
	}
}
