package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// StartStandby starts a streaming standby of a primary that StartPostgres started. The
// options should be the primary's: a standby needs settings at least as large.
func StartStandby(ctx context.Context, primary *Process, o PostgresOptions) (*Process, error) {
	bin, err := lookup(o.Bin, "pg_basebackup", "/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
	if err != nil {
		return nil, err
	}
	dir, err := NewDir("standby")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "-h", primary.Host(), "-p", strconv.Itoa(primary.Port()), "-U", Superuser,
		"-D", filepath.Join(dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential()}
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	o.Dir = dir
	p, err := StartPostgres(ctx, o)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	p.keep = false
	return p, nil
}
