package resp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/loops"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// An Admitter turns credentials into permits; *guard.Guard is one. The error is a
// *guard.Refusal.
type Admitter interface {
	Admit(ctx context.Context, c guard.Credential) (*guard.Permit, error)
}

// A Control runs a command on a control connection to the upstream server;
// *redis.Client is one. It needs the rights to COMMAND and, where the server is reached by
// a Unix socket, INFO.
type Control interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// Config says what a Server serves.
type Config struct {
	// Upstream is the server's host:port, or its Unix socket (/path or unix:/path). Each
	// client has a connection of its own to it.
	Upstream string
	// Dial connects to the server that a session begins on, within DialTimeout, best by a
	// Dialer. It may be called concurrently. Nil means a Dialer with UpstreamTLS and
	// KeepAlive to Upstream, which otherwise only names the server in the log.
	Dial func(ctx context.Context) (net.Conn, error)
	// TLS is what clients begin with; nil means that they do not. There is none on Unix
	// sockets.
	TLS *tlsconf.Server
	// UpstreamTLS is how the server is connected to; nil means without TLS. The modes that
	// negotiate (allow, prefer) are none: Redis does not.
	UpstreamTLS *tlsconf.Client
	// ProxyProtocol, if not nil, says which load balancers connect on their clients' behalf.
	// Only they can connect then.
	ProxyProtocol *protocols.ProxyProtocol
	// KeepAlive is how clients and servers that are out of reach are found out; what is zero
	// of it is that of protocols.DefaultKeepAlive.
	KeepAlive net.KeepAliveConfig
	// Guard admits sessions.
	Guard Admitter
	// Exclusive lets one session, or the sessions of one client address, be bound to an
	// election at a time; nil lets all that present its live token.
	Exclusive *guard.Exclusive
	// RequireBound refuses everything to a session that is not bound but what may bind it
	// (AUTH, HELLO, FENCE), PING, RESET and QUIT. A refused credential ends it.
	RequireBound bool
	// Control reads the command table of the same server.
	Control Control
	// Election is the election of a credential that names none; empty means that it
	// must name one.
	Election string
	// Elections are served besides Election: names, or prefixes that end with *. Both
	// empty serves every election.
	Elections []string
	// Lead is the proxy's own leadership (a sidecar listener): sessions that present no
	// credential are bound to its term while it leads. Nil means none. Election must be its.
	Lead protocols.Leadership
	// Rules say which election rules which keys; nil means that a session of any election
	// writes all.
	Rules *policy.Rules
	// OpenPublish lets readers publish messages (PUBLISH, SPUBLISH). Takeovers do not end
	// that; scripts of readers still cannot publish.
	OpenPublish bool
	// FenceDB is the database that holds the fence; zero is the usual one.
	FenceDB int
	// MaxConns bounds the clients served at once; zero means
	// protocols.DefaultMaxConns. MaxPending bounds those of them whose TLS or PROXY protocol
	// header is under way; zero means half of MaxConns. MaxPerAddress bounds the connections of one client
	// address; zero means no bound.
	MaxConns, MaxPending, MaxPerAddress int
	// Buffer is how many bytes a session reads at once from either side, or four times
	// that where as much comes; zero means DefaultBuffer.
	Buffer int
	// Drain is how long sessions may take to end when the server stops; zero means
	// protocols.DefaultDrain.
	Drain time.Duration
	// Loops carry the sessions whose two connections are sockets without TLS; nil leaves all
	// to goroutines. Several servers may share them. They must run until Serve has returned.
	Loops *loops.Loops
	// StartupTimeout bounds what comes before a session: the PROXY protocol's header and
	// the TLS handshake; zero means DefaultStartupTimeout.
	StartupTimeout time.Duration
	// DialTimeout bounds connecting upstream, and each question to the control
	// connection; zero means DefaultDialTimeout.
	DialTimeout time.Duration
	// AdmitTimeout bounds waiting for a permit, a takeover included; zero means
	// DefaultAdmitTimeout.
	AdmitTimeout time.Duration
	// BindTimeout bounds each exchange with the server while a session is bound; zero
	// means DefaultBindTimeout.
	BindTimeout time.Duration
	// IdleTimeout ends sessions that the server says are idle for so long: whose client has
	// sent nothing, is not subscribed, does not monitor and is not blocked. It is for servers
	// reached by TCP, and needs the right to CLIENT LIST on the control connection. Zero
	// means never.
	IdleTimeout time.Duration
	// Own are the commands that the proxy answers in the server's place, by their names
	// (OwnElection, OwnFenceGate). Nil means none.
	Own map[string]Commands
	// Log receives what an operator should know; nil means no log. Tokens and
	// arguments never reach it.
	Log *slog.Logger
}

// Defaults of Config.
const (
	DefaultBuffer         = 16 << 10
	DefaultStartupTimeout = 10 * time.Second
	DefaultDialTimeout    = 10 * time.Second
	DefaultAdmitTimeout   = 40 * time.Second
	DefaultBindTimeout    = 10 * time.Second
)

// ErrConfig means that a Config is not usable.
var ErrConfig = errors.New("resp configuration")

func (c Config) check() (Config, error) {
	if c.Dial == nil {
		addr, by := c.Upstream, Dialer{TLS: c.UpstreamTLS, KeepAlive: c.KeepAlive}
		if err := checkAddr(addr); err != nil {
			return c, fmt.Errorf("%w: upstream: %w", ErrConfig, err)
		}
		c.Dial = func(ctx context.Context) (net.Conn, error) { return by.Dial(ctx, addr) }
	}
	if m := c.UpstreamTLS.Mode(); m == tlsconf.Allow || m == tlsconf.Prefer {
		return c, fmt.Errorf("%w: upstream TLS: Redis negotiates none, so that mode %s means nothing", ErrConfig, m)
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
	for name, commands := range c.Own {
		if commands == nil {
			return c, fmt.Errorf("%w: no commands for %s", ErrConfig, name)
		}
	}
	if min(c.MaxConns, c.MaxPending, c.MaxPerAddress, c.Buffer, c.FenceDB) < 0 ||
		min(c.Drain, c.IdleTimeout, c.StartupTimeout, c.DialTimeout, c.AdmitTimeout, c.BindTimeout) < 0 {
		return c, fmt.Errorf("%w: a limit is negative", ErrConfig)
	}
	c.MaxConns = cmp.Or(c.MaxConns, protocols.DefaultMaxConns)
	c.MaxPending = cmp.Or(c.MaxPending, (c.MaxConns+1)/2)
	c.Buffer = max(cmp.Or(c.Buffer, DefaultBuffer), 512)
	c.KeepAlive = protocols.FillKeepAlive(c.KeepAlive)
	c.StartupTimeout = cmp.Or(c.StartupTimeout, DefaultStartupTimeout)
	c.DialTimeout = cmp.Or(c.DialTimeout, DefaultDialTimeout)
	c.AdmitTimeout = cmp.Or(c.AdmitTimeout, DefaultAdmitTimeout)
	c.BindTimeout = cmp.Or(c.BindTimeout, DefaultBindTimeout)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// serves reports whether credentials for the election are taken.
func (c *Config) serves(id string) bool {
	if (c.Election == "" || c.Rules != nil) && len(c.Elections) == 0 || id == c.Election {
		return true
	}
	for _, e := range c.Elections {
		if prefix, ok := strings.CutSuffix(e, "*"); e == id || ok && strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// names reports whether the configuration speaks of the election, by its name or by a prefix.
func (c *Config) names(id string) bool {
	return id == c.Election || c.Rules.MayName(id) || slices.ContainsFunc(c.Elections, func(e string) bool {
		prefix, ok := strings.CutSuffix(e, "*")
		return e == id || ok && prefix != "" && strings.HasPrefix(id, prefix)
	})
}
