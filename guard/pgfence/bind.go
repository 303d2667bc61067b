package pgfence

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// A Backend is a session's server process as its proxy knows it.
type Backend struct {
	// PID is from BackendKeyData.
	PID uint32
	// Addr is the local address of the proxy's upstream connection; the zero value
	// means a Unix socket.
	Addr netip.AddrPort
	// Listener is, for a Unix socket, the process id of who listens on it. Zero means
	// that it is not known: the process cannot be bound then.
	Listener int
	// Started is Kind.Started of the session's server, where that is known: a bind on
	// another server is then refused, whatever its processes are called.
	Started string
}

// A Bound is a bound session.
type Bound struct {
	PID      uint32
	Election string
	// Start is when the server process started: process ids are used again.
	Start time.Time
	// Proof shows the triggers of Protect that the process is bound to this term. It serves
	// no other process. Empty where the control database has no key, as nothing is protected.
	Proof string
	// PreparedTransactions says that the server allows them (max_prepared_transactions).
	PreparedTransactions bool
}

// rights is the SQL condition that the control role may see and end the sessions of
// others. INVARIANT: without pg_read_all_stats the server hides when a process
// started, and every process would look as if it had ended.
const rights = `(pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
	AND pg_catalog.pg_has_role(current_user, 'pg_signal_backend', 'USAGE'))`

const rightsFix = "the control role must be a member of pg_read_all_stats and of pg_signal_backend"

// Bind ties the backend to the term, if the fence is exactly r, which must be severed.
// Its error is always a *guard.Refusal that wraps one of the errors of this package,
// guard.ErrConflict (the fence is another: Invalidate the permit and Admit again), or
// a failure. After a failure the backend may be bound or not: end the session.
func (f *Fence) Bind(ctx context.Context, b Backend, t guard.Term, r guard.Record) (Bound, error) {
	refuse := func(why guard.Reason, detail string, err error) (Bound, error) {
		return Bound{}, &guard.Refusal{Reason: why, Election: t.Election, Held: t.Number, Detail: detail,
			Err: fmt.Errorf("binding: %w", err)}
	}
	if err := election.CheckID(t.Election); err != nil {
		return refuse(guard.FenceUnavailable, "", err)
	}
	if r.State != guard.Severed || r.Highest != t.Number || r.Holder != t.Digest {
		return refuse(guard.FenceUnavailable, "the record is not the term's, severed", guard.ErrConflict)
	}
	mine, err := b.isMine()
	if err != nil {
		return refuse(guard.Unseverable, "", err)
	}
	// INVARIANT: the gate is taken by a statement of its own, so that the next one's
	// snapshot sees every raise that committed before, and no raise commits until the
	// bind can be seen.
	results, err := f.transact(ctx, `SET LOCAL synchronous_commit = off`,
		`LOCK TABLE fenceproxy.gate IN ROW SHARE MODE`, bindSQL(b, mine, t, r))
	if err != nil {
		return refuse(guard.FenceUnavailable, "", err)
	}
	res := results[len(results)-1]
	if len(res.Rows) != 1 || len(res.Rows[0]) != 13 {
		return refuse(guard.FenceUnavailable, "", fmt.Errorf("unexpected answer of %d rows", len(res.Rows)))
	}
	row := res.Rows[0]
	is := func(i int) bool { return string(row[i]) == "t" }
	bound, fence, mayAll, present, visible, client, own, super, prepared :=
		is(0), is(1), is(2), is(3), is(4), is(5), is(6), is(7), is(8)
	switch {
	case !mayAll || present && !visible:
		return refuse(guard.FenceUnavailable, rightsFix, ErrRights)
	case !is(11):
		return refuse(guard.Unseverable, "", ErrOther)
	case !fence:
		return refuse(guard.FenceUnavailable, "", guard.ErrConflict)
	case !present || !client:
		return refuse(guard.Unseverable, fmt.Sprintf("server process %d", b.PID), ErrGone)
	case !own:
		return refuse(guard.Unseverable, fmt.Sprintf("server process %d is connected to %s, the proxy's socket is %s",
			b.PID, row[9], b.socket()), ErrPooler)
	case super:
		return refuse(guard.Unseverable, "its role is a superuser, which the control role may not end", ErrSuperuser)
	case !bound:
		return refuse(guard.FenceUnavailable, "", fmt.Errorf("nothing was inserted"))
	}
	start, err := time.Parse(startLayout, string(row[10]))
	if err != nil {
		return refuse(guard.FenceUnavailable, "", fmt.Errorf("unexpected time: %w", err))
	}
	return Bound{PID: b.PID, Election: t.Election, Start: start, Proof: proofOf(t, row[12]), PreparedTransactions: prepared}, nil
}

const startLayout = "2006-01-02 15:04:05.999999"

// bindSQL is one statement that looks at everything and binds only if all is well.
//
// The role is that of the login: SET ROLE and SET SESSION AUTHORIZATION do not hide
// a superuser. A row of the same process is of an older term that this process had,
// whose connections a sever has ended, or of an earlier process with that number.
func bindSQL(b Backend, mine string, t guard.Term, r guard.Record) string {
	return fmt.Sprintf(`WITH v AS MATERIALIZED (
		SELECT EXISTS (SELECT FROM fenceproxy.fence WHERE %[1]s) AS fence,
			%[2]s AS rights,
			%[8]s AS here,
			a.pid IS NOT NULL AS present,
			a.backend_start,
			a.backend_type IS NOT DISTINCT FROM 'client backend' AS client,
			%[3]s AS mine,
			r.rolsuper IS DISTINCT FROM false AS super,
			coalesce(pg_catalog.host(a.client_addr), 'a Unix socket') || ':' || coalesce(a.client_port, 0) AS peer
		FROM (SELECT) one
		LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = %[4]d
		LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
	), b AS (
		INSERT INTO fenceproxy.session (pid, backend_start, election, number, holder)
		SELECT %[4]d, backend_start, %[5]s, %[6]d, %[7]s FROM v
		WHERE fence AND rights AND here AND present AND backend_start IS NOT NULL AND client AND mine AND NOT super
		ON CONFLICT (pid, election) DO UPDATE
		SET backend_start = EXCLUDED.backend_start, number = EXCLUDED.number, holder = EXCLUDED.holder
		RETURNING 1
	)
	SELECT EXISTS (SELECT FROM b), fence, rights, present, backend_start IS NOT NULL, client, mine, super,
		pg_catalog.current_setting('max_prepared_transactions')::int > 0, peer,
		pg_catalog.to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), here,
		(SELECT %[9]s FROM fenceproxy.proof_key k WHERE EXISTS (SELECT FROM b))
	FROM v`, isRecord(t.Election, r), rights, mine, b.PID, quote(t.Election), t.Number, bytea(t.Digest[:]), b.isHere(),
		macSQL(strconv.FormatUint(uint64(b.PID), 10), "v.backend_start", quote(strconv.FormatInt(t.Number, 10)), quote(t.Election)))
}

// isMine is the SQL condition that the process is connected to the proxy's own socket.
// A pooler's connection to the server is another one.
func (b Backend) isMine() (string, error) {
	if !b.Addr.IsValid() {
		started, err := b.prove()
		return "coalesce(a.client_addr IS NULL AND a.client_port = -1 AND " + started + ", false)", err
	}
	return fmt.Sprintf("coalesce(a.client_addr = '%s'::pg_catalog.inet AND a.client_port = %d, false)",
		b.Addr.Addr().Unmap().WithZone(""), b.Addr.Port()), nil
}

// isHere is the SQL condition that the process is on this very server.
//
// INVARIANT: a process of another server that has the same number and the same client
// port as one here is not bound in its place: no takeover here would end it.
func (b Backend) isHere() string {
	if b.Started == "" {
		return "true"
	}
	return started + " = " + quote(b.Started)
}

func (b Backend) socket() string {
	if !b.Addr.IsValid() {
		return "a Unix socket"
	}
	return b.Addr.String()
}

// Unbind forgets a bound session whose server process has ended; while it has not,
// nothing is done. It only tidies up: Sever does so too.
func (f *Fence) Unbind(ctx context.Context, b Bound) error {
	// A process that runs on after its client has left may still commit. Once
	// (pid, start) is gone it never comes back, so that this needs no gate.
	_, err := f.pool.Exec(ctx, `DELETE FROM fenceproxy.session s
		WHERE s.pid = $1 AND s.election = $2 AND s.backend_start = $3 AND `+rights+`
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
			WHERE a.pid = s.pid AND (a.backend_start IS NULL OR a.backend_start = s.backend_start))`,
		pgx.QueryExecModeExec, int32(b.PID), b.Election, b.Start)
	if err != nil {
		return fmt.Errorf("unbinding: %w", explain(err))
	}
	return nil
}
