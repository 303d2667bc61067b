package protocols

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// DefaultSocketMode is who may connect to a Unix socket when nothing else is said:
// everybody, as to the servers' own. Who may log in is the server's to say.
const DefaultSocketMode fs.FileMode = 0o777

// SocketPath is the path of the Unix socket that an address names as unix:/path or
// /path; it reports false for any other address.
func SocketPath(addr string) (path string, ok bool) {
	path = strings.TrimPrefix(addr, "unix:")
	if !filepath.IsAbs(path) {
		return "", false
	}
	return filepath.Clean(path), true
}

// ErrSocketInUse: somebody listens on the socket.
var ErrSocketInUse = fmt.Errorf("somebody listens on the socket: %w", syscall.EADDRINUSE)

// ListenUnix listens on a Unix socket; zero mode means DefaultSocketMode. A socket that an
// earlier process left behind is removed, one that somebody listens on is not, nor is
// anything that is no socket. Closing the listener removes the socket; the empty file
// path.lock, by which two processes that start at once tell, stays.
func ListenUnix(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if mode == 0 {
		mode = DefaultSocketMode
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the socket's lock: %w", err)
	}
	// The lock goes with the listener, and with the process at the latest.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrSocketInUse
		}
		return nil, fmt.Errorf("the socket's lock: %w", err)
	}
	l, err := listenUnix(ctx, path, mode)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return &unixListener{l, lock}, nil
}

type unixListener struct {
	net.Listener
	lock *os.File
}

// Close stops listening and removes the socket.
func (l *unixListener) Close() error {
	err := l.Listener.Close()
	_ = l.lock.Close()
	return err
}

func listenUnix(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("the socket's mode: %w", err)
	}
	return l, nil
}

// removeStale removes a socket that nobody listens on.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket", path)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
		return ErrSocketInUse
	}
	// Refused is what the kernel says of a socket that nobody has open. Anything else
	// may be somebody's: full, or not ours to connect to.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("finding out whether somebody listens on the socket: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the socket that nobody listens on: %w", err)
	}
	return nil
}
