// Package redis keeps elections in Redis 7 or later, or in Valkey.
//
// It promises that each call is one script, which the server runs atomically, by
// the server's clock and with the server's expiry; that a replica never answers; and
// that the release and its hold-off are one step. It does not promise that an
// asynchronous failover keeps the last grant: the promoted replica may not have
// seen it. Two holders may then think that they lead, each with a number of its
// own, and the fence in the guarded resource is what decides between them.
//
// Keys of an election, all in one hash slot:
//
//	fenceproxy:{<id>}:lease    "digest number ttl owner"; expires with the lease
//	fenceproxy:{<id>}:number   the last number granted; never expires
//	fenceproxy:{<id>}:holdoff  exists during a hold-off
//
// A release is published on the channel fenceproxy:{<id>}:released, as far as the user may.
package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
)

// A Backend keeps elections in a Redis or Valkey server.
type Backend struct {
	server  runner
	scripts scripts
}

// A runner makes calls to the server. Its error is election.ErrClosed, or
// goredis.ErrClosed, once it is closed.
type runner interface {
	run(ctx context.Context, c call) ([]any, error)
	// subscription returns one to nothing yet, without a connection. It is to be closed
	// when ended is, and then end is to be called.
	subscription(ctx context.Context) (s *goredis.PubSub, ended <-chan struct{}, end func(), err error)
	close() error
}

var _ election.Hinter = (*Backend)(nil)

// Options tune a Backend. The zero value is a working default.
type Options struct {
	// PlainScripts leaves the flags out of the scripts, for servers that do not know
	// them: Redis before 7 and embedded ones. Such a server refuses no Validate and
	// no Status when it is a replica, and so may answer what was true a while ago.
	PlainScripts bool
	// TLS is the configuration for rediss URLs; nil means go-redis's default.
	TLS *tls.Config
}

// New returns a backend on a client of the caller's, which Close leaves open. The
// client may be one of a cluster or of Sentinel; one that prefers replicas is asked for
// scripts, which it sends to primaries. Where it retries by itself, a Resign whose reply
// was lost reports NotOwner although it released.
func New(client goredis.UniversalClient, o Options) *Backend {
	return &Backend{server: newSharedClient(client, false), scripts: newScripts(o)}
}

// Open returns a backend on connections of its own, which Close closes. It asks the
// server nothing. Retries are off: the caller knows best what to do about an error.
// The options are copied. A call has a connection to itself, of which there are never
// more than PoolSize; none is made before it is needed, MinIdleConns notwithstanding.
// A Dialer must heed its context.
func Open(server *goredis.Options, o Options) *Backend {
	s := *server
	s.MaxRetries = -1
	s.ContextTimeoutEnabled = true
	if s.DialerRetries == 0 {
		s.DialerRetries = 1
	}
	if s.MaintNotificationsConfig == nil {
		s.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	if o.TLS != nil && s.TLSConfig != nil {
		c := o.TLS.Clone()
		if c.ServerName == "" {
			c.ServerName = s.TLSConfig.ServerName
		}
		s.TLSConfig = c
	}
	if s.StreamingCredentialsProvider != nil {
		// go-redis logs in anew on connections that are back in its pool; a lane's never is.
		return newShared(goredis.NewClient(&s), o)
	}
	s.Dialer = dialer(&s)
	return &Backend{server: newLanes(&s), scripts: newScripts(o)}
}

// OpenURL is Open with a URL: redis://user:password@host:port/db, rediss for TLS,
// unix for a socket, with go-redis's parameters; valkey and valkeys are the same as
// redis and rediss. Several hosts go by redis+cluster://host1,host2 and by
// redis+sentinel://host1,host2/db?master_name=name, and likewise with the other
// schemes. The error never holds the password.
func OpenURL(rawURL string, o Options) (*Backend, error) {
	if b, ok, err := openGroup(rawURL, o); ok {
		return b, err
	}
	s, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("redis election backend: %w", connurl.Explain(rawURL, err))
	}
	return Open(s, o), nil
}

func parseURL(rawURL string) (*goredis.Options, error) {
	if err := connurl.Check(rawURL); err != nil {
		return nil, err
	}
	if scheme, rest, ok := strings.Cut(rawURL, ":"); ok {
		switch strings.ToLower(scheme) {
		case "valkey":
			rawURL = "redis:" + rest
		case "valkeys":
			rawURL = "rediss:" + rest
		}
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	// go-redis takes localhost for a missing host; a mistyped URL must not lead there.
	if u.Scheme != "unix" && u.Hostname() == "" {
		return nil, errors.New("the host is missing")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errors.New("the port is not 1 to 65535")
		}
	}
	return goredis.ParseURL(rawURL)
}

// Close ends the calls under way, waits for them, and closes the client if it was
// made here. On a client of the caller's, calls end with that client's own time-outs.
func (b *Backend) Close() error { return b.server.close() }
