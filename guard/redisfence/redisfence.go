// Package redisfence keeps the fence inside a Redis or Valkey server.
package redisfence

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// Options tune a Fence. The zero value is a working default.
type Options struct {
	// Nodes are host:port of every node whose connections a takeover sweeps, the
	// primary among them or not; empty means the primary and the replicas it lists.
	Nodes []string
}

// A Fence is the fence of one Redis or Valkey. It implements guard.Fence.
type Fence struct{}

var _ guard.Fence = (*Fence)(nil)

// Open makes a control client for a redis:// or rediss:// URL; it does not wait for
// the server.
func Open(ctx context.Context, url string, o Options) (*Fence, error) { return &Fence{}, nil }

// New makes a control client for go-redis options.
func New(r *redis.Options, o Options) *Fence { return &Fence{} }

// Close closes the control connections.
func (f *Fence) Close() error { return nil }

// DB is the database that holds the fence; a bind must look there.
func (f *Fence) DB() int { return 0 }

// Read implements guard.Fence.
func (f *Fence) Read(ctx context.Context, electionID string) (guard.Record, error) {
	return guard.Record{}, errors.ErrUnsupported
}

// Swap implements guard.Fence.
func (f *Fence) Swap(ctx context.Context, electionID string, old, new guard.Record) error {
	return errors.ErrUnsupported
}

// Sever implements guard.Fence.
func (f *Fence) Sever(ctx context.Context, t guard.Term) error { return errors.ErrUnsupported }

// Check says what would keep fencing from working. It changes nothing.
func (f *Fence) Check(ctx context.Context) []guard.Problem { return nil }

// Prefix begins the names of bound connections and of fence keys. A session must not
// give itself a connection name that begins with it.
const Prefix = "fenceproxy:"

// Key is the key of an election's fence.
func Key(electionID string) string { return "" }

// Encode is the value of a fence's key, ASCII without spaces.
func Encode(r guard.Record) string { return "" }

// Decode reads what Encode wrote.
func Decode(value string) (guard.Record, error) { return guard.Record{}, nil }

// ConnName is the name of a connection that is bound to the term.
func ConnName(t guard.Term) string { return "" }

// A Name is what ConnName wrote.
type Name struct {
	Election string
	Number   int64
	// Holder is the first 8 bytes of the holder's digest.
	Holder [8]byte
}

// Of reports whether the name is the term's.
func (n Name) Of(t guard.Term) bool { return false }

// ParseConnName reads a connection's name; false if it is not of a bound connection.
func ParseConnName(name string) (Name, bool) { return Name{}, false }

var _ election.Digest
