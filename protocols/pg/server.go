package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/loops"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// Defaults of Config.
const (
	DefaultMaxInspect     = policy.MaxSQLText
	DefaultBuffer         = 16 << 10
	DefaultStartupTimeout = 10 * time.Second
	DefaultLoginTimeout   = time.Minute
	DefaultDialTimeout    = 10 * time.Second
	DefaultAdmitTimeout   = 40 * time.Second
)

// Config says what a Server serves.
type Config struct {
	// Upstream is the server's host:port, or its Unix socket (SocketPath says how those
	// are named). Several, with commas between, are tried in this order, and every
	// address of a name in turn.
	Upstream string
	// TargetSessionAttrs is the kind of server that sessions go to; the zero value means
	// any. A Prober tells which is which; with several servers and none of it, the first
	// that accepts a connection is taken.
	TargetSessionAttrs SessionAttrs
	Prober             Prober
	// LoadBalanceHosts tries the servers, and the addresses of a name, in random order.
	LoadBalanceHosts bool
	// TLS is what clients are offered, with ALPN for its protocols; nil offers none.
	TLS *tlsconf.Server
	// UpstreamTLS is how the server is connected to, with ALPN too; nil means without TLS.
	UpstreamTLS *tlsconf.Client
	// Guard admits credentials, and Binder binds sessions.
	Guard  Admitter
	Binder Binder
	// Exclusive lets one session, or the sessions of one client address, be bound to an
	// election at a time; nil lets all that present its live token.
	Exclusive Holder
	// RequireBound turns a client away after its login that is not bound then.
	RequireBound bool
	// Elections are the elections that clients may present tokens of; empty means
	// all.
	Elections []string
	// DefaultElection is the election of a client that names none; empty means that
	// it must name one.
	DefaultElection string
	// Lead is the proxy's own leadership (a sidecar listener): sessions that present no
	// credential are bound to its term while it leads. Nil means none. Where clients name no
	// election, DefaultElection must be its.
	Lead protocols.Leadership
	// Rules say under which election a session may write what; nil means that any election
	// is enough to write anything.
	Rules *policy.Rules
	// AllowPreparedTransactions lets bound sessions PREPARE TRANSACTION. A prepared
	// transaction outlives its session: a stale leader can commit it.
	AllowPreparedTransactions bool
	// MaxInspect is the longest message, in bytes, whose statement is looked into;
	// zero means DefaultMaxInspect, which is also the most.
	MaxInspect int
	// Buffer is the size in bytes of a session's two read buffers; zero means
	// DefaultBuffer.
	Buffer int
	// StartupTimeout bounds the wait for a client's start-up packet; zero means
	// DefaultStartupTimeout.
	StartupTimeout time.Duration
	// LoginTimeout bounds authentication and the settling of the credential; zero
	// means DefaultLoginTimeout.
	LoginTimeout time.Duration
	// DialTimeout bounds connecting to the server; zero means DefaultDialTimeout.
	DialTimeout time.Duration
	// AdmitTimeout bounds one admission and bind; zero means DefaultAdmitTimeout.
	AdmitTimeout time.Duration
	// AllowReplication lets replication connections in, to read: they are never bound.
	AllowReplication bool
	// Verifiers finds the SCRAM verifiers of roles, for clients that bind their login to
	// the proxy's certificate where the server has another; nil means to refuse those.
	Verifiers Verifiers
	// IdleTimeout ends a session that is idle outside a transaction for so long,
	// IdleInTransactionTimeout one that is inside; zero means never.
	IdleTimeout              time.Duration
	IdleInTransactionTimeout time.Duration
	// MaxConns bounds the sessions at once; zero means protocols.DefaultMaxConns.
	// MaxPending bounds the connections that have not logged in, cancel requests among
	// them; zero means half of MaxConns. MaxPerAddress bounds the connections of one client
	// address; zero means no bound.
	MaxConns, MaxPending, MaxPerAddress int
	// Drain is that of protocols.Serving.
	Drain time.Duration
	// Loops carry the sessions whose two connections are sockets without TLS; nil leaves all
	// to goroutines. Several servers may share them. They must run until Serve has returned.
	Loops *loops.Loops
	// ProxyProtocol, if not nil, says which load balancers connect on their clients' behalf.
	// Only they can connect then.
	ProxyProtocol *protocols.ProxyProtocol
	// KeepAlive is how clients and servers that are out of reach are found out; what is zero
	// of it is that of protocols.DefaultKeepAlive.
	KeepAlive net.KeepAliveConfig
	// SQL classifies statements; nil means one of the server's own. Servers may
	// share one, and its cache.
	SQL *policy.SQL
	// Logger gets what happens to sessions; nil means to log nothing. No statement
	// and no token is logged.
	Logger *slog.Logger
}

// A Server is the proxy in front of one Postgres server.
type Server struct {
	cfg     Config
	hosts   *hosts
	servers serverOf
	buffers protocols.Chunks
	sweeper sweeper
	pending protocols.Count // connections that have not logged in
	counts  protocols.Count // sessions, and connections by address
}

// New checks the configuration and fills in its defaults.
func New(c Config) (*Server, error) {
	h, err := newHosts(c)
	if err != nil {
		return nil, err
	}
	if c.Guard == nil || c.Binder == nil {
		return nil, errors.New("a guard and a binder are needed")
	}
	for _, id := range append(slices.Clone(c.Elections), c.DefaultElection) {
		if id == "" && c.DefaultElection == "" {
			continue
		}
		if err := election.CheckID(id); err != nil {
			return nil, err
		}
	}
	if c.DefaultElection != "" && len(c.Elections) > 0 && !slices.Contains(c.Elections, c.DefaultElection) {
		return nil, fmt.Errorf("default election %q is not one of the elections", c.DefaultElection)
	}
	if c.MaxInspect < 0 || c.MaxInspect > DefaultMaxInspect {
		return nil, fmt.Errorf("max inspect: %d is not within 0 and %d", c.MaxInspect, DefaultMaxInspect)
	}
	if c.MaxInspect == 0 {
		c.MaxInspect = DefaultMaxInspect
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	c.Buffer = max(c.Buffer, 512)
	for d, def := range map[*time.Duration]time.Duration{
		&c.StartupTimeout: DefaultStartupTimeout, &c.LoginTimeout: DefaultLoginTimeout,
		&c.DialTimeout: DefaultDialTimeout, &c.AdmitTimeout: DefaultAdmitTimeout, &c.Drain: protocols.DefaultDrain,
		&c.IdleTimeout: 0, &c.IdleInTransactionTimeout: 0,
	} {
		if *d == 0 {
			*d = def
		}
		if *d < 0 {
			return nil, errors.New("a timeout is negative")
		}
	}
	c.KeepAlive = protocols.FillKeepAlive(c.KeepAlive)
	if c.MaxConns == 0 {
		c.MaxConns = protocols.DefaultMaxConns
	}
	if c.MaxPending == 0 {
		c.MaxPending = (c.MaxConns + 1) / 2
	}
	if c.MaxConns < 0 || c.MaxPending < 0 || c.MaxPerAddress < 0 {
		return nil, errors.New("a bound on connections is negative")
	}
	if c.SQL == nil {
		c.SQL = policy.NewSQL(0)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: c, hosts: h, buffers: protocols.Chunks{Size: c.Buffer}}, nil
}

// Serve serves the listener's clients until ctx is done or the listener fails, and
// returns when every session has ended. It returns nil when ctx ended it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	sweeping, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { s.sweeper.Run(sweeping, sweepEvery(&s.cfg), sweep) })
	return protocols.Serve(ctx, l, protocols.Serving{
		Session: s.connection,
		Refuse:  func(c net.Conn) { s.full(c, tooMany) },
		// A cancel request is taken where no session is any more.
		MaxConns:  s.cfg.MaxConns + s.cfg.MaxPending,
		Drain:     s.cfg.Drain,
		Loops:     s.cfg.Loops,
		KeepAlive: s.cfg.KeepAlive,
	})
}

const tooMany = "sorry, the proxy has too many clients already"

// session serves one client: read its start-up packet, and connect. Nil means that it has none.
func (s *Server) session(ctx context.Context, client net.Conn, p *place) *session {
	raw := client
	_ = raw.SetDeadline(p.until)
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	client, packet, err := s.begin(client)
	if !stop() {
		return nil // the proxy is shutting down
	}
	if err != nil {
		s.notBegun(client, err)
		return nil
	}
	_ = client.SetDeadline(time.Time{})
	if isCancel(packet) {
		s.cancel(ctx, client, packet)
		return nil
	}
	err = s.mayLogin(client, packet)
	var start *startup
	if err == nil {
		start, err = readStartup(packet)
	}
	if err != nil {
		s.notStarted(ctx, client, err)
		return nil
	}
	if start.replication && !s.cfg.AllowReplication {
		s.turnAway(client, report{severity: "FATAL", code: "0A000", message: "replication connections are refused through this proxy",
			hint: "Where reading by replication is wanted, set replication: read in the listener's configuration; or connect to the server itself."})
		return nil
	}
	if !p.mayEnter() {
		s.turnAway(client, report{severity: "FATAL", code: "53300", message: tooMany})
		return nil
	}
	upstream, to, greeting, err := s.open(ctx, start.packet)
	if err != nil {
		s.cfg.Logger.Warn("connecting to the server", "upstream", s.cfg.Upstream, "err", err)
		s.reject(client, s.hosts.unreachable())
		return nil
	}
	session := newSession(s, client, upstream, start)
	session.carry()
	session.to, session.greeting, session.place = to, greeting, p
	return session
}

// notStarted ends with a client whose start-up packet is wrong.
func (s *Server) notStarted(ctx context.Context, client net.Conn, err error) {
	if e := new(serversError); errors.As(err, &e) {
		upstream, _, err := s.dial(ctx)
		if err != nil {
			s.cfg.Logger.Warn("connecting to the server", "upstream", s.cfg.Upstream, "err", err)
			s.reject(client, s.hosts.unreachable())
			return
		}
		s.ask(ctx, upstream, e.packet, client)
		lingerClose(client)
		return
	}
	if e := new(startupError); errors.As(err, &e) {
		s.reject(client, e)
	}
}

// reject answers a start-up packet with an error.
func (s *Server) reject(client net.Conn, e *startupError) {
	s.turnAway(client, report{severity: "FATAL", code: e.code, message: e.message, hint: e.hint()})
}

// turnAway says one last thing to a client that has no session.
func (s *Server) turnAway(client net.Conn, r report) {
	_ = client.SetWriteDeadline(time.Now().Add(linger))
	_, _ = client.Write(r.append(nil))
	lingerClose(client)
}
