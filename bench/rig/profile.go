package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// A directory is removed when it is stopped.
type directory string

// Stop removes it.
func (d directory) Stop() { _ = os.RemoveAll(string(d)) }

// adminSocket makes a place for the admin listener of the proxy that is profiled.
func (r *Rig) adminSocket() (string, error) {
	dir, err := servers.NewDir("admin")
	if err != nil {
		return "", err
	}
	r.all = append(r.all, directory(dir))
	return filepath.Join(dir, "admin.sock"), nil
}

// maxProfile bounds what is read of one.
const maxProfile = 64 << 20

// Profile takes a CPU profile of the proxy of bound sessions, for so many seconds.
func (r *Rig) Profile(ctx context.Context, seconds int) ([]byte, error) {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.admin)
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://localhost/debug/pprof/profile?seconds=%d", seconds), nil)
	if err != nil {
		return nil, err
	}
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for a profile: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxProfile))
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.New("asking for a profile: the proxy answered " + res.Status)
	}
	return b, nil
}
