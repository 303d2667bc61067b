package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// An Admitter turns credentials into permits; *guard.Guard is one. The error is a
// *guard.Refusal.
type Admitter interface {
	Admit(ctx context.Context, c guard.Credential) (*guard.Permit, error)
}

// A Control runs a command on a control connection to the upstream server;
// *redis.Client is one. It needs the right to COMMAND only.
type Control interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// Config says what a Server serves.
type Config struct {
	// Upstream is the server's host:port. Each client has a connection of its own to it.
	Upstream string
	// Dial connects to the server that a session begins on, within DialTimeout. It may be
	// called concurrently. Nil means TCP to Upstream, which otherwise only names the
	// server in the log.
	Dial func(ctx context.Context) (net.Conn, error)
	// Guard admits sessions.
	Guard Admitter
	// Control reads the command table of the same server.
	Control Control
	// Election is the election of a credential that names none; empty means that it
	// must name one.
	Election string
	// Elections are served besides Election: names, or prefixes that end with *. Both
	// empty serves every election.
	Elections []string
	// FenceDB is the database that holds the fence; zero is the usual one.
	FenceDB int
	// MaxConns bounds the clients served at once; zero means
	// protocols.DefaultMaxConns.
	MaxConns int
	// Drain is how long sessions may take to end when the server stops; zero means
	// protocols.DefaultDrain.
	Drain time.Duration
	// DialTimeout bounds connecting upstream, and each question to the control
	// connection; zero means DefaultDialTimeout.
	DialTimeout time.Duration
	// AdmitTimeout bounds waiting for a permit, a takeover included; zero means
	// DefaultAdmitTimeout.
	AdmitTimeout time.Duration
	// BindTimeout bounds each exchange with the server while a session is bound; zero
	// means DefaultBindTimeout.
	BindTimeout time.Duration
	// Log receives what an operator should know; nil means no log. Tokens and
	// arguments never reach it.
	Log *slog.Logger
}

// Defaults of Config.
const (
	DefaultDialTimeout  = 5 * time.Second
	DefaultAdmitTimeout = 35 * time.Second
	DefaultBindTimeout  = 10 * time.Second
)

// ErrConfig means that a Config is not usable.
var ErrConfig = errors.New("resp configuration")

func (c Config) check() (Config, error) {
	if c.Dial == nil {
		addr := c.Upstream
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return c, fmt.Errorf("%w: upstream: %w", ErrConfig, err)
		}
		c.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	if c.Guard == nil || c.Control == nil {
		return c, fmt.Errorf("%w: a guard and a control connection are needed", ErrConfig)
	}
	for _, id := range append([]string{c.Election}, c.Elections...) {
		if id == "" && c.Election == "" {
			continue
		}
		if id == "*" {
			continue
		}
		if err := election.CheckID(strings.TrimSuffix(id, "*")); err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if c.MaxConns < 0 || c.Drain < 0 || c.DialTimeout < 0 || c.AdmitTimeout < 0 || c.BindTimeout < 0 || c.FenceDB < 0 {
		return c, fmt.Errorf("%w: a limit is negative", ErrConfig)
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.AdmitTimeout == 0 {
		c.AdmitTimeout = DefaultAdmitTimeout
	}
	if c.BindTimeout == 0 {
		c.BindTimeout = DefaultBindTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// serves reports whether credentials for the election are taken.
func (c *Config) serves(id string) bool {
	if c.Election == "" && len(c.Elections) == 0 || id == c.Election {
		return true
	}
	for _, e := range c.Elections {
		if prefix, ok := strings.CutSuffix(e, "*"); e == id || ok && strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}
