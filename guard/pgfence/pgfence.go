// Package pgfence keeps the fence inside a Postgres cluster.
package pgfence

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/guard"
)

// Errors of Bind, for errors.Is; guard.ErrConflict means that the fence is not, or no
// longer, what the permit says.
var (
	// ErrPooler: the backend is not connected to the proxy's own socket.
	ErrPooler = errors.New("a pooler or address translation stands between the proxy and the server")
	// ErrSuperuser: the session's role is a superuser, which the control role may not end.
	ErrSuperuser = errors.New("the session's role is a superuser")
	// ErrRights: the control role lacks a right that fencing relies on.
	ErrRights = errors.New("the control role lacks rights")
	// ErrGone: there is no such backend.
	ErrGone = errors.New("no such server process")
	// ErrSchema: the schema fenceproxy is missing or of another version.
	ErrSchema = errors.New("the schema fenceproxy is not installed")
)

// Options tune a Fence. The zero value is a working default.
type Options struct {
	// MaxConns bounds the control connections that Open makes; zero means 4.
	MaxConns int32
	// LockTimeout bounds the wait for the gate of one bind or raise; zero means 5 s.
	LockTimeout time.Duration
}

// A Fence is the fence of one Postgres cluster. It implements guard.Fence.
type Fence struct{}

var _ guard.Fence = (*Fence)(nil)

// Open makes a control pool for the DSN; it does not wait for the server.
func Open(ctx context.Context, dsn string, o Options) (*Fence, error) { return &Fence{}, nil }

// New uses a pool that the caller closes.
func New(pool *pgxpool.Pool, o Options) *Fence { return &Fence{} }

// Close closes the pool if Open made it.
func (f *Fence) Close() {}

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

// A Backend is a session's server process as its proxy knows it.
type Backend struct {
	// PID is from BackendKeyData.
	PID uint32
	// Addr is the local address of the proxy's upstream connection; the zero value
	// means a Unix socket.
	Addr netip.AddrPort
}

// A Bound is a bound session.
type Bound struct {
	PID      uint32
	Election string
	// Start is when the server process started.
	Start time.Time
	// PreparedTransactions says that the server allows them.
	PreparedTransactions bool
}

// Bind ties the backend to the term, if the fence is exactly r. Its error is always a
// *guard.Refusal that wraps one of the errors above, guard.ErrConflict, or a failure.
func (f *Fence) Bind(ctx context.Context, b Backend, t guard.Term, r guard.Record) (Bound, error) {
	return Bound{}, &guard.Refusal{Reason: guard.FenceUnavailable, Election: t.Election, Err: errors.ErrUnsupported}
}

// Unbind forgets a bound session whose server process has ended.
func (f *Fence) Unbind(ctx context.Context, b Bound) error { return nil }

// Check says what would keep fencing from working. It changes nothing.
func (f *Fence) Check(ctx context.Context) []guard.Problem { return nil }

// InstallOptions are the options of InstallSQL.
type InstallOptions struct {
	// Role is the control role; empty means DefaultRole. It is created if missing.
	Role string
	// Login makes a role that is created able to log in (without a password).
	Login bool
}

// DefaultRole is the control role's name.
const DefaultRole = "fenceproxy"

// InstallSQL is the SQL that installs the schema, idempotently; run it as a superuser.
func InstallSQL(o InstallOptions) (string, error) { return "", nil }
