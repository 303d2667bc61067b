// Package electionapi serves the calls of an election backend to programs in any language: as
// ELECTION commands in the protocol of Redis, and over HTTP. Both faces ask the same questions,
// give the same answers and refuse with the same codes.
//
// It promises that each request is one call of the backend's, that a code means the same on
// both faces for ever, that what callers may make it hold is bounded, and that a token is in
// answers to Acquire only, never in an error or a log. It does not promise that a request
// whose answer is the code unavailable was not done: as election.Backend says, ask again with
// the same token. It renews for nobody: a caller that stops asking loses its lease.
package electionapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// Config says how a Service asks, and what callers may take. What is zero is the default.
type Config struct {
	// Timeout bounds each call of the backend's; zero means DefaultTimeout.
	Timeout time.Duration
	// MaxWatchers bounds the requests that wait for a change; zero means DefaultMaxWatchers.
	MaxWatchers int
	// WatchEvery is the time between two questions to the backend about an election that is
	// watched, by however many; zero means DefaultWatchEvery.
	WatchEvery time.Duration
	// Log receives what an operator should know; nil means no log.
	Log *slog.Logger
}

// Defaults and bounds.
const (
	DefaultTimeout     = 5 * time.Second
	DefaultMaxWatchers = 1000
	DefaultWatchEvery  = 500 * time.Millisecond
	// DefaultWatch is how long a watch waits at most where the caller does not say,
	// MaxWatch what a caller may say.
	DefaultWatch = 30 * time.Second
	MaxWatch     = 5 * time.Minute
)

// A Service answers for one election backend.
type Service struct {
	backend election.Backend
	c       Config
	failed  seldom // calls that the backend did not answer

	mu       sync.Mutex
	watches  map[string]*watch
	watchers int
}

// New makes a Service. It starts nothing.
func New(b election.Backend, c Config) *Service {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxWatchers = cmp.Or(c.MaxWatchers, DefaultMaxWatchers)
	c.WatchEvery = cmp.Or(c.WatchEvery, DefaultWatchEvery)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{backend: b, c: c, watches: make(map[string]*watch)}
}

// An acquisition is what a caller may say to Acquire, as it came: zero means that it did not.
type acquisition struct {
	owner, token string
	ttl, fencing int64 // the TTL in milliseconds
}

// acquire asks for the leadership, for a caller at that address.
func (s *Service) acquire(ctx context.Context, id string, a acquisition, from net.Addr) (answer, *Problem) {
	o := election.AcquireOptions{Owner: a.owner, MinFencing: a.fencing}
	var p *Problem
	if o.TTL, p = milliseconds(a.ttl, election.MaxTTL); p != nil {
		return nil, p
	}
	if o.Owner == "" {
		o.Owner = ownerAt(from) // the backend's default would name the proxy's host
	}
	if a.token != "" {
		if o.Token, p = parseToken(a.token); p != nil {
			return nil, p
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	r, err := s.backend.Acquire(ctx, id, o)
	if err != nil {
		return nil, s.problem(election.OpAcquire, err)
	}
	w := answer{{"election", id}, {"outcome", r.Status.String()}}
	switch {
	case r.Status == election.Acquired:
		w = append(w, field{"token", r.Token}, field{"number", r.Number}, field{"owner", r.Owner})
	case r.Reason == election.BusyHoldOff:
		return append(w, field{"reason", r.Reason.String()}, field{"remaining_ms", r.Remaining.Milliseconds()}), nil
	default:
		w = append(w, field{"reason", r.Reason.String()}, field{"number", r.Number}, field{"owner", r.Owner})
	}
	return append(w, field{"remaining_ms", r.Remaining.Milliseconds()}), nil
}

// renew extends the lease of the token's holder.
func (s *Service) renew(ctx context.Context, id, token string) (answer, *Problem) {
	t, p := parseToken(token)
	if p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	r, err := s.backend.Renew(ctx, id, t)
	if err != nil {
		return nil, s.problem(election.OpRenew, err)
	}
	w := answer{{"election", id}, {"outcome", r.Status.String()}}
	if r.Status == election.Renewed {
		w = append(w, field{"number", r.Number}, field{"remaining_ms", r.Remaining.Milliseconds()})
	}
	return w, nil
}

// resign gives the leadership up; holdOff is in milliseconds.
func (s *Service) resign(ctx context.Context, id, token string, holdOff int64) (answer, *Problem) {
	t, p := parseToken(token)
	if p != nil {
		return nil, p
	}
	var o election.ResignOptions
	if o.HoldOff, p = milliseconds(holdOff, election.MaxTTL); p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	r, err := s.backend.Resign(ctx, id, t, o)
	if err != nil {
		return nil, s.problem(election.OpResign, err)
	}
	return answer{{"election", id}, {"outcome", r.Status.String()}}, nil
}

// validate asks whether the token is the live holder's.
func (s *Service) validate(ctx context.Context, id, token string) (answer, *Problem) {
	t, p := parseToken(token)
	if p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	r, err := s.backend.Validate(ctx, id, t)
	if err != nil {
		return nil, s.problem(election.OpValidate, err)
	}
	w := answer{{"election", id}, {"outcome", r.Standing.String()}}
	if r.Standing != election.StandingVacant {
		w = append(w, field{"number", r.Number}, field{"owner", r.Owner}, field{"remaining_ms", r.Remaining.Milliseconds()})
	}
	return w, nil
}

// status says who leads.
func (s *Service) status(ctx context.Context, id string) (answer, *Problem) {
	r, err := s.ask(ctx, id)
	if err != nil {
		return nil, s.problem(election.OpStatus, err)
	}
	return statusAnswer(id, r), nil
}

func (s *Service) ask(ctx context.Context, id string) (election.StatusResult, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	return s.backend.Status(ctx, id)
}

func statusAnswer(id string, r election.StatusResult) answer {
	w := answer{{"election", id}, {"outcome", r.Status.String()}, {"number", r.Number}}
	if r.Status == election.Held {
		return append(w, field{"owner", r.Owner}, field{"remaining_ms", r.Remaining.Milliseconds()})
	}
	return append(w, field{"hold_off_ms", r.HoldOff.Milliseconds()})
}

// milliseconds reads a length of time. It is checked here before it is one: more would
// overflow.
func milliseconds(n int64, most time.Duration) (time.Duration, *Problem) {
	if n < 0 || n > most.Milliseconds() {
		return 0, problem(InvalidTTL)
	}
	return time.Duration(n) * time.Millisecond, nil
}

func parseToken(s string) (election.Token, *Problem) {
	t, err := election.ParseToken(s)
	if err != nil {
		return t, problem(InvalidToken)
	}
	return t, nil
}

// ownerAt is the owner of a caller that names none: its address and a random part.
func ownerAt(from net.Addr) string {
	host := "local"
	if t, ok := from.(*net.TCPAddr); ok {
		host = t.AddrPort().Addr().Unmap().WithZone("").String()
	}
	var b [4]byte
	_, _ = rand.Read(b[:])
	return host + "-" + hex.EncodeToString(b[:])
}
