// Package zookeeper keeps elections in ZooKeeper 3.5 or later.
//
// It promises that a grant and its fencing number are one transaction of the
// ensemble; that every answer is read behind a sync, so that a server which lags
// behind the leader does not answer from the past; that a leadership lives through an
// ephemeral node of a live session and ends with that session at the latest; and
// that no wall clock of a candidate counts: a lease has run out for somebody who has
// seen its record unchanged, in monotonic time, for as long as the lease lasts.
//
// It does not promise that somebody who looks for the first time knows how old a
// lease is: to them it is as good as new. Nor does it promise that a leader of the
// ensemble that was deposed and does not know it yet, which takes a few ticks, answers
// what its successor knows; the fence in the guarded resource decides then.
//
// Nodes of an election, below the chroot:
//
//	/fenceproxy               its modification time tells the servers' clock
//	/fenceproxy/<id>          persistent; the record: number, state, owner, digest, ...
//	/fenceproxy/<id>/lease    ephemeral, of the holder's session; there while it leads
//
// The record outlives the lease. When the session of a holder ends without a
// resignation, its token is no longer current, but nobody else is let in before the
// lease has run out: until then the holder may still think that it leads. Acquire
// then answers busy with the reason hold-off.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// Defaults of Options.
const (
	DefaultSessionTimeout = 30 * time.Second
	DefaultAnswerTimeout  = 3 * time.Second
)

// ErrInvalidOptions: the servers or the options of a backend cannot be used.
var ErrInvalidOptions = errors.New("invalid zookeeper options")

// Options tune a Backend. The zero value is a working default.
type Options struct {
	// Chroot is the path below which everything is kept; it is created when it is
	// missing. Empty means the root.
	Chroot string
	// User and Password are for digest authentication; an empty User means none.
	User, Password string
	// ACL is the permissions of nodes that are created. Nil means all to User alone
	// or, without a User, to everybody. Others who are to validate tokens need
	// zk.PermRead.
	ACL []zk.ACL
	// SessionTimeout is how long the session, and every leadership in it, outlives
	// the process or its connection. Zero means DefaultSessionTimeout. The servers
	// bound it, by default to 2 to 20 of their ticks. It should be longer than the
	// leases.
	SessionTimeout time.Duration
	// AnswerTimeout is how long a server may be silent to a request before another
	// is tried. Zero means DefaultAnswerTimeout, or a third of a short session timeout.
	AnswerTimeout time.Duration
	// Dial connects to a server; nil means TCP. For TLS it is the DialContext of
	// a tls.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// A Backend keeps elections in a ZooKeeper ensemble, through one session of its own.
// A session that has expired is replaced by another, and whatever was acquired
// through it is lost.
type Backend struct {
	servers []string
	o       Options
	base    string // the path of our node
	sights  sights

	mu       sync.Mutex // guards what follows, and that no session begins after Close
	closed   bool
	current  *session
	sessions sync.WaitGroup
}

var _ election.Hinter = (*Backend)(nil)

// Open returns a backend on the servers of one ensemble, each a host:port. It asks
// them nothing.
func Open(servers []string, o Options) (*Backend, error) {
	if o.SessionTimeout == 0 {
		o.SessionTimeout = DefaultSessionTimeout
	}
	if o.AnswerTimeout == 0 {
		o.AnswerTimeout = min(DefaultAnswerTimeout, o.SessionTimeout/3)
	}
	switch {
	case len(servers) == 0:
		return nil, fmt.Errorf("%w: no server", ErrInvalidOptions)
	case o.SessionTimeout < time.Second || o.SessionTimeout > election.MaxTTL:
		return nil, fmt.Errorf("%w: session timeout %v, must be 1s to %v", ErrInvalidOptions, o.SessionTimeout, election.MaxTTL)
	case o.AnswerTimeout < 10*time.Millisecond || o.AnswerTimeout > o.SessionTimeout:
		return nil, fmt.Errorf("%w: answer timeout %v, must be 10ms to the session timeout", ErrInvalidOptions, o.AnswerTimeout)
	case strings.Contains(o.User, ":") || o.User == "" && o.Password != "":
		return nil, fmt.Errorf("%w: a user's name is needed for a password, without a colon", ErrInvalidOptions)
	}
	if err := checkChroot(o.Chroot); err != nil {
		return nil, err
	}
	switch {
	case o.ACL != nil:
	case o.User != "":
		o.ACL = zk.AuthACL(zk.PermAll)
	default:
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	return &Backend{
		servers: append([]string(nil), servers...), o: o,
		base: strings.TrimSuffix(o.Chroot, "/") + "/fenceproxy",
	}, nil
}

// checkChroot reports whether path may be a chroot.
func checkChroot(path string) error {
	if path == "" || path == "/" {
		return nil
	}
	parts := strings.Split(path, "/")
	ok := parts[0] == "" && len(path) <= 1024
	for _, p := range parts[1:] {
		ok = ok && p != "" && p != "." && p != ".."
	}
	for _, c := range path {
		ok = ok && c > ' ' && c < 0x7f
	}
	if !ok {
		return fmt.Errorf("%w: the chroot must be a path of printable ASCII such as /apps/fence", ErrInvalidOptions)
	}
	return nil
}

// Close drops the connection and waits for everything that goes on. It leaves the
// session to expire by itself, after the session timeout: leases go on until then.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	s := b.current
	b.mu.Unlock()
	if s != nil {
		s.end()
	}
	b.sessions.Wait()
	return nil
}

// session returns the present session, ready for requests. It waits for a
// connection until the context ends, or every server was tried in vain.
func (b *Backend) session(ctx context.Context) (*session, error) {
	if err := fault.Ended(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, election.ErrClosed
	}
	if b.current == nil || b.current.over() || b.current.abandoned() {
		s, err := open(b.servers, b.o)
		if err != nil {
			b.mu.Unlock()
			return nil, err
		}
		b.current = s
		b.sessions.Go(s.run)
	}
	s := b.current
	b.mu.Unlock()
	return s, s.ready(ctx)
}
