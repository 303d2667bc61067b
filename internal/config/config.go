// Package config reads fenceproxy.yaml.
//
// It promises that every mistake in the file is reported, all of them at once,
// each with file, line, column and key; that nothing unknown is skipped in
// silence; and that no printing of a Config shows a password. It does not ask any
// server anything: whether an address answers is for fenceproxy check to find out.
package config

import (
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A Config is a configuration without mistakes, defaults filled in.
type Config struct {
	// File is where it was read from, for messages.
	File      string
	Elections Elections
	Guard     Guard
	Listeners []Listener
	// Admin is the listener for health answers and the API.
	Admin Admin
	// Gates bind partitions to consumers.
	Gates []Gate
	Log   Log
	// Drain is how long sessions may take to end after SIGTERM.
	Drain time.Duration
	// Loops are how many loops carry the sessions whose connections are sockets without TLS:
	// zero means as many as there are processors, at most eight, for Redis and half as many for
	// Postgres; below zero, that each session has goroutines of its own. Only Linux has loops.
	Loops int
}

// Elections says who keeps the elections.
type Elections struct {
	// Backend is the election backend's URL: any that package election/open takes
	// but memory:.
	Backend Secret
	// Pos is where the file says so.
	Pos Pos
}

// Guard tunes how permits are kept; guard.Config has the meaning of each.
type Guard struct {
	ValidateEvery, Permit, Timeout, AdvanceTimeout time.Duration
}

// Config is g in the guard's own words.
func (g Guard) Config() guard.Config {
	return guard.Config{
		ValidateEvery:  g.ValidateEvery,
		PermitFor:      g.Permit,
		Timeout:        g.Timeout,
		AdvanceTimeout: g.AdvanceTimeout,
	}
}

// A Protocol is a wire protocol that a listener speaks.
type Protocol string

// The protocols. Valkey is spoken as Redis; the name is for messages.
const (
	Postgres Protocol = "postgres"
	Redis    Protocol = "redis"
	Valkey   Protocol = "valkey"
)

// A Listener is one address that clients connect to and the server behind it.
type Listener struct {
	// Name is for logs and messages; unique.
	Name     string
	Protocol Protocol
	// Listen and Upstream are host:port or a Unix socket, as Protocol.SocketPath reads it.
	Listen, Upstream string
	// Group is how several Redis or Valkey servers belong together. Upstream is then a
	// URL without user and password.
	Group Group
	// Cluster says where clients find the nodes of a cluster (Group Cluster only).
	Cluster ClusterOptions
	// Upstreams are the servers that sessions choose among, in the order in which they
	// are tried (Postgres only); Upstream is then all of them, with commas between.
	Upstreams []string
	// TargetSessionAttrs is the kind of server that sessions go to, LoadBalanceHosts says to
	// try them in random order (Postgres only).
	TargetSessionAttrs pg.SessionAttrs
	LoadBalanceHosts   bool
	Limits             Limits
	Timeouts           Timeouts
	// KeepAlive is how peers that are out of reach are found out.
	KeepAlive net.KeepAliveConfig
	// ProxyProtocol says which load balancers connect on their clients' behalf; nil means
	// none.
	ProxyProtocol *protocols.ProxyProtocol
	// SocketMode is who may connect to a Unix socket that is listened on.
	SocketMode fs.FileMode
	// TLS is what clients are offered; nil offers none. UpstreamTLS is how the server
	// is connected to; that of Redis is Disable where the file says nothing.
	TLS         *tlsconf.ServerOptions
	UpstreamTLS *tlsconf.ClientOptions
	// ScramVerifiers lets the control connection look up the SCRAM verifiers of roles, and
	// ScramUserlist names a file of them that is asked first (Postgres only).
	ScramVerifiers bool
	ScramUserlist  string
	// Control is the URL of the control connection: the server behind Upstream,
	// with the role that may raise the fence and end connections.
	Control Secret
	// Election is the election of sessions that present a token alone; empty means
	// that they must name theirs.
	Election string
	// Elect says that the listener campaigns itself, in Election; nil that it does not.
	Elect *Elect
	// Elections are the elections that this listener serves: exact names, or
	// prefixes that end with *. Empty means Election alone where that is set and there are
	// no rules, else all.
	Elections []string
	// Rules say which election rules what; nil means that a session of any writes everything.
	Rules *policy.Rules
	// MaxConns bounds the client connections served at once.
	MaxConns int
	// Nodes are the other servers (host:port) on which a takeover ends connections:
	// the replicas of a Redis or Valkey. They are asked with Control's user.
	Nodes []string
	// ElectionCommands says who may send ELECTION commands (Redis and Valkey only).
	ElectionCommands ElectionCommands
	// BindRequired turns away who does not present a live token.
	BindRequired bool
	// Exclusive says who may be bound to one election at a time, over all proxies.
	Exclusive Exclusive
	// GateCommands are the gates that clients use by FENCE GATE (Redis and Valkey only).
	GateCommands []string
	// OpenPublish lets readers publish messages (Redis and Valkey only).
	OpenPublish bool
	// PreparedTransactions lets leaders PREPARE TRANSACTION (Postgres only). A prepared
	// transaction outlives its session, and no takeover ends it.
	PreparedTransactions bool
	// Replication lets replication connections in, for reading (Postgres only).
	Replication bool
	// Pos is where the file says so.
	Pos Pos
}

// Serves reports whether the listener serves the election.
func (l *Listener) Serves(id string) bool {
	if len(l.Elections) == 0 {
		return l.Election == "" || l.Election == id || l.Rules != nil
	}
	for _, p := range l.Elections {
		if prefix, ok := strings.CutSuffix(p, "*"); p == id || ok && strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// A Log says how much is logged and in what form.
type Log struct {
	// Level is debug, info, warn or error; Format is text or json.
	Level, Format string
}

// Defaults of keys that the file leaves out. Those of guard are the guard's own.
const (
	DefaultLogLevel  = "info"
	DefaultLogFormat = "text"
	DefaultMaxConns  = 10000
	DefaultDrain     = 10 * time.Second
)

// A Pos is a place in a configuration file.
type Pos struct {
	File         string
	Line, Column int
}

// String is file:line:column.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// A Mistake is one thing wrong in a configuration file.
type Mistake struct {
	Pos Pos
	// Key is the path of the key, for instance listeners[0].upstream; empty for the
	// file as a whole.
	Key string
	// Text says what is wrong. It never holds a value that may be secret.
	Text string
}

// Error is file:line:column: key: text.
func (m *Mistake) Error() string {
	if m.Key == "" {
		return m.Pos.String() + ": " + m.Text
	}
	return m.Pos.String() + ": " + m.Key + ": " + m.Text
}

// Mistakes is the error of a file with mistakes, in the order of the file.
type Mistakes []*Mistake

// Error has one line for each mistake.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, mistake := range m {
		lines[i] = mistake.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the mistakes.
func (m Mistakes) Unwrap() []error {
	errs := make([]error, len(m))
	for i, mistake := range m {
		errs[i] = mistake
	}
	return errs
}
