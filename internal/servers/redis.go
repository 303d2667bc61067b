package servers

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// RedisOptions are the options of StartRedis.
type RedisOptions struct {
	// Bin is the directory of the program; empty means to look for it.
	Bin string
	// Program is its name; empty means redis-server.
	Program string
	// Port is the port to use; zero means a free one.
	Port int
	// Dir is a directory to use and to leave behind; empty means a fresh one.
	Dir string
	// Args are appended to the command line.
	Args []string
}

// FindRedis returns the path of a redis-server, or ErrNotInstalled.
func FindRedis() (string, error) { return lookup("", "redis-server") }

// StartRedis starts a Redis or Valkey server without persistence.
func StartRedis(ctx context.Context, o RedisOptions) (*Process, error) {
	if o.Program == "" {
		o.Program = "redis-server"
	}
	bin, err := lookup(o.Bin, o.Program)
	if err != nil {
		return nil, fmt.Errorf("%w (apt-get install redis-server; or make deps)", err)
	}
	p := &Process{Name: o.Program, log: new(tail), stop: syscall.SIGTERM, Dir: o.Dir, keep: o.Dir != ""}
	if out, err := exec.CommandContext(ctx, bin, "--version").Output(); err == nil {
		p.Version = strings.TrimSpace(string(out))
	}
	if p.Dir == "" {
		if p.Dir, err = NewDir("redis"); err != nil {
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
		args := append([]string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", p.Dir,
			"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "notice",
		}, o.Args...)
		err = p.start(ctx, bin, args, func(ctx context.Context) error { return redisAnswers(ctx, p.Addr) })
		if err == nil {
			return p, nil
		}
		if o.Port != 0 || try == 4 {
			return nil, err
		}
	}
}

// redisAnswers reports whether the server answers PING in any way but LOADING.
func redisAnswers(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(line, "-LOADING") {
		return fmt.Errorf("loading")
	}
	return nil
}
