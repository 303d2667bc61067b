package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sbin is where Debian has programs that are not for everybody.
const sbin = "/usr/sbin"

// A program is one that listens on a port and is told all else by a file.
type program struct {
	name, install string
	// bin is its path where it is known; empty means to look for name.
	bin string
	// file is the name of its configuration, and text what it holds for a listener on port.
	file string
	text func(port int) (string, error)
	args func(file string, port int) []string
	// self runs it as whoever we are, root too.
	self bool
	// version is what it is asked for its version with.
	version []string
}

// StartProgram runs a program of the caller's own that listens on a free port and reads a
// configuration file, as whoever we are. Text and args are given the port.
func StartProgram(ctx context.Context, bin, file string, text func(addr string) string, args ...string) (*Process, error) {
	return startProgram(ctx, program{
		name: filepath.Base(bin), bin: bin, file: file, self: true,
		text: func(port int) (string, error) { return text(loopback(port)), nil },
		args: func(f string, _ int) []string { return append(args, f) },
	})
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func startProgram(ctx context.Context, pr program) (*Process, error) {
	bin := pr.bin
	if bin == "" {
		var err error
		if bin, err = lookup("", pr.name, sbin); err != nil {
			return nil, fmt.Errorf("%w (apt-get install %s; or .ci/deps bench)", err, pr.install)
		}
	}
	p := &Process{Name: pr.name, log: new(tail), stop: syscall.SIGTERM, self: pr.self}
	if pr.version != nil {
		// Some say it on standard error.
		out, err := exec.CommandContext(ctx, bin, pr.version...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(append([]string{bin}, pr.version...), " "), err)
		}
		first, _, _ := strings.Cut(string(out), "\n")
		p.Version = strings.TrimPrefix(strings.TrimSpace(first), "This is ")
	}
	dir, err := NewDir(pr.name)
	if err != nil {
		return nil, err
	}
	p.Dir = dir
	for try := 0; ; try++ {
		if err = p.serveOn(ctx, pr, bin); err == nil {
			return p, nil
		}
		if try == 4 || ctx.Err() != nil {
			_ = os.RemoveAll(dir)
			return nil, err
		}
	}
}

// serveOn starts the program on a free port.
func (p *Process) serveOn(ctx context.Context, pr program, bin string) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	text, err := pr.text(port)
	if err != nil {
		return err
	}
	file := filepath.Join(p.Dir, pr.file)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if os.Geteuid() == 0 && !pr.self {
		if err := os.Chown(file, nobody, nobody); err != nil {
			return err
		}
	}
	p.Addr = loopback(port)
	return p.start(ctx, bin, pr.args(file, port), func(ctx context.Context) error {
		d := net.Dialer{Timeout: time.Second}
		c, err := d.DialContext(ctx, "tcp", p.Addr)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// StartPgBouncer runs PgBouncer in front of a Postgres server for one user, who is
// trusted, in a pool mode: session or transaction. It has so many connections to the
// server at most.
func StartPgBouncer(ctx context.Context, upstream *Process, user, mode string, connections int) (*Process, error) {
	return startProgram(ctx, program{
		name: "pgbouncer", install: "pgbouncer", file: "pgbouncer.ini", version: []string{"--version"},
		text: func(port int) (string, error) {
			return fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
max_client_conn = 9000
default_pool_size = %d
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
`, upstream.Host(), upstream.Port(), user, port, mode, connections), nil
		},
		args: func(file string, _ int) []string { return []string{"-q", file} },
	})
}

// StartHAProxy runs HAProxy in front of a server, passing TCP on, as it is set by default.
func StartHAProxy(ctx context.Context, upstream *Process) (*Process, error) {
	return startProgram(ctx, program{
		name: "haproxy", install: "haproxy", file: "haproxy.cfg", version: []string{"-v"},
		text: func(port int) (string, error) {
			return fmt.Sprintf(`global
	maxconn 9000
defaults
	mode tcp
	timeout connect 10s
	timeout client 1h
	timeout server 1h
listen bench
	bind 127.0.0.1:%d
	server upstream %s
`, port, upstream.Addr), nil
		},
		args: func(file string, _ int) []string { return []string{"-db", "-q", "-f", file} },
	})
}

// StartTwemproxy runs twemproxy, whose program is nutcracker, in front of a Redis server.
func StartTwemproxy(ctx context.Context, upstream *Process) (*Process, error) {
	return startProgram(ctx, program{
		name: "nutcracker", install: "nutcracker", file: "nutcracker.yml", version: []string{"--version"},
		text: func(port int) (string, error) {
			return fmt.Sprintf("bench:\n  listen: 127.0.0.1:%d\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n  servers:\n   - %s:1\n", port, upstream.Addr), nil
		},
		args: func(file string, _ int) []string {
			stats, err := FreePort()
			if err != nil {
				stats = 0 // its own default
			}
			args := []string{"-c", file, "-o", filepath.Join(filepath.Dir(file), "log"), "-v", "2", "-a", "127.0.0.1"}
			if stats != 0 {
				args = append(args, "-s", strconv.Itoa(stats))
			}
			return args
		},
	})
}
