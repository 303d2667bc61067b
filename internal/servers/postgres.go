package servers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Superuser is the name of the superuser of clusters made here; it needs no
// password.
const Superuser = "postgres"

// PostgresOptions are the options of StartPostgres.
type PostgresOptions struct {
	// Bin is the directory of the programs; empty means to look for the newest.
	Bin string
	// Port is the port to use; zero means a free one.
	Port int
	// Dir is a directory with a cluster made by InitPostgres, to be used and left
	// behind; empty means a fresh cluster.
	Dir string
	// Templates is a directory in which a fresh cluster of each version is kept, to be copied
	// in the place of making one; empty makes one.
	Templates string
	// HBA replaces pg_hba.conf; empty trusts everybody on loopback.
	HBA string
	// Settings are appended to the server's settings as name=value.
	Settings []string
}

// FindPostgres returns the path of a postgres program, or ErrNotInstalled.
func FindPostgres() (string, error) {
	return lookup(os.Getenv("FENCEPROXY_POSTGRES_BIN"), "postgres", "/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
}

// InitPostgres makes a cluster below a fresh directory and returns that directory.
func InitPostgres(ctx context.Context, bin string) (string, error) {
	if bin == "" {
		pg, err := FindPostgres()
		if err != nil {
			return "", fmt.Errorf("%w (apt-get install postgresql; or make deps)", err)
		}
		bin = filepath.Dir(pg)
	}
	dir, err := NewDir("postgres")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"),
		"-U", Superuser, "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential()}
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	return dir, nil
}

// fresh is InitPostgres, by a copy where there are templates: that takes a tenth of the time.
// All copies of one template have one system identifier.
func fresh(ctx context.Context, o PostgresOptions, version string) (string, error) {
	if o.Templates == "" {
		return InitPostgres(ctx, o.Bin)
	}
	if err := os.MkdirAll(o.Templates, 0o755); err != nil {
		return "", err
	}
	template := filepath.Join(o.Templates, fmt.Sprintf("%x", sha256.Sum256([]byte(o.Bin+"\x00"+version)))[:16])
	if _, err := os.Stat(template); err != nil {
		made, err := InitPostgres(ctx, o.Bin)
		if err != nil {
			return "", err
		}
		// Another process may have been quicker, and its template is as good.
		if err := copyTree(ctx, filepath.Join(made, "data"), made+".template"); err == nil {
			if err := os.Rename(made+".template", template); err != nil {
				_ = os.RemoveAll(made + ".template")
			}
		}
		return made, nil
	}
	dir, err := NewDir("postgres")
	if err != nil {
		return "", err
	}
	if err := copyTree(ctx, template, filepath.Join(dir, "data")); err != nil {
		_ = os.RemoveAll(dir)
		return "", err
	}
	return dir, nil
}

// copyTree copies a directory with its owners and modes.
func copyTree(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp -a: %w: %s", err, out)
	}
	return nil
}

// StartPostgres starts a Postgres server.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Process, error) {
	if o.Bin == "" {
		pg, err := FindPostgres()
		if err != nil {
			return nil, fmt.Errorf("%w (apt-get install postgresql; or make deps)", err)
		}
		o.Bin = filepath.Dir(pg)
	}
	// SIGQUIT is Postgres's immediate shutdown: it waits for no client.
	p := &Process{Name: "postgres", log: new(tail), stop: syscall.SIGQUIT, Dir: o.Dir, keep: o.Dir != ""}
	bin := filepath.Join(o.Bin, "postgres")
	out, err := exec.CommandContext(ctx, bin, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("postgres --version: %w", err)
	}
	p.Version = strings.TrimSpace(string(out))
	if p.Dir == "" {
		if p.Dir, err = fresh(ctx, o, p.Version); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(p.Dir, "data")
	if o.HBA != "" {
		if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(o.HBA), 0o644); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		port := o.Port
		if port == 0 {
			if port, err = FreePort(); err != nil {
				return nil, err
			}
		}
		p.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		args := []string{"-D", data, "-p", strconv.Itoa(port), "-k", p.Dir, "-h", "127.0.0.1",
			"-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "max_connections=200", "-c", "autovacuum_naptime=60"}
		for _, s := range o.Settings {
			args = append(args, "-c", s)
		}
		err = p.start(ctx, bin, args, func(ctx context.Context) error {
			c, err := pgx.Connect(ctx, p.DSN(Superuser, "postgres"))
			if err != nil {
				return err
			}
			return c.Close(ctx)
		})
		if err == nil {
			return p, nil
		}
		if o.Port != 0 || try == 4 {
			return nil, err
		}
	}
}

// DSN is the connection URL of the Postgres server for a user and a database.
func (p *Process) DSN(user, database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", user, p.Addr, database)
}
