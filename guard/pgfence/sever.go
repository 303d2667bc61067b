package pgfence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fenceproxy/fenceproxy/guard"
)

const (
	// The pause between two looks at who is left is a share of the time that it has taken so
	// far, so that the end of the last one is seen late by no more than that share, and between
	// these two.
	pollShare = 4
	pollMin   = 2 * time.Millisecond
	pollMax   = 20 * time.Millisecond
	// signalAgain is when a process that has not ended is signalled once more.
	signalAgain = time.Second
)

// A SeverError is Sever's when server processes that are bound to an older term did not
// end: the takeover waits for them.
type SeverError struct {
	Election string
	Left     []Left
	// Err is why Sever stopped waiting.
	Err error
}

// A Left is a server process that holds a takeover up.
type Left struct {
	PID  int32
	Role string
	// Err is why it could not be signalled, or nil.
	Err error
}

// Unwrap returns why Sever stopped waiting.
func (e *SeverError) Unwrap() error { return e.Err }

// Error names the processes, at most ten of them.
func (e *SeverError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d server processes that are bound to an older term of %q have not ended:", len(e.Left), e.Election)
	for i, l := range e.Left {
		if i == 10 {
			s.WriteString(" ...")
			break
		}
		fmt.Fprintf(&s, " pid %d (role %s", l.PID, l.Role)
		if l.Err != nil {
			fmt.Fprintf(&s, ", cannot be ended: %v", l.Err)
		}
		s.WriteString(")")
	}
	fmt.Fprintf(&s, ": %v", e.Err)
	return s.String()
}

// process names a server process for good.
type process struct {
	pid   int32
	start time.Time
}

// Sever implements guard.Fence. No process is bound to an older term while it looks: a
// bind takes the gate and compares the whole record, and that stands raised.
func (f *Fence) Sever(ctx context.Context, t guard.Term) error {
	if err := f.checkRights(ctx); err != nil {
		return err
	}
	var old map[process]string
	signalled := make(map[process]time.Time)
	refused := make(map[process]error)
	for began := time.Now(); ; {
		// INVARIANT: a signal is no end; only a look that finds nobody is. One
		// transaction a look: within one the server shows the same statistics again.
		now, gone, at, err := f.look(ctx, t)
		if ctx.Err() != nil && len(old) > 0 {
			return stopped(ctx, t, old, refused)
		}
		if err != nil {
			return err
		}
		if len(now) == 0 {
			f.forget(ctx, t.Election, gone)
			f.mu.Lock()
			f.severed[severing{t.Election, t.Number, t.Digest}] = at
			f.mu.Unlock()
			return nil
		}
		old = now
		for p, err := range f.signal(ctx, old, signalled) {
			refused[p] = err
		}
		timer := time.NewTimer(min(max(time.Since(began)/pollShare, pollMin), pollMax))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return stopped(ctx, t, old, refused)
		}
	}
}

func stopped(ctx context.Context, t guard.Term, old map[process]string, refused map[process]error) error {
	e := &SeverError{Election: t.Election, Err: context.Cause(ctx)}
	for p, role := range old {
		e.Left = append(e.Left, Left{PID: p.pid, Role: role, Err: refused[p]})
	}
	slices.SortFunc(e.Left, func(a, b Left) int { return cmp.Compare(a.PID, b.PID) })
	return e
}

func (f *Fence) checkRights(ctx context.Context) error {
	var ok, standby bool
	err := f.pool.QueryRow(ctx, "SELECT "+rights+", pg_catalog.pg_is_in_recovery()", pgx.QueryExecModeExec).Scan(&ok, &standby)
	switch {
	case err != nil:
		return fmt.Errorf("checking the control role: %w", explain(err))
	case standby:
		return ErrStandby
	case !ok:
		return fmt.Errorf("%w: %s", ErrRights, rightsFix)
	}
	return nil
}

// look returns the processes that are bound to an older term and live, with their
// roles, those that have ended, and on which run of which server it looked.
func (f *Fence) look(ctx context.Context, t guard.Term) (old map[process]string, gone []process, at string, err error) {
	rows, err := f.pool.Query(ctx, `SELECT `+started+`, s.pid IS NOT NULL, coalesce(s.pid, 0), coalesce(s.backend_start, '-infinity'),
			coalesce(s.number, 0), s.holder, a.pid IS NOT NULL, a.backend_start, coalesce(a.usename, '?')
		FROM (SELECT) one LEFT JOIN fenceproxy.session s ON s.election = $1
		LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.pid`, pgx.QueryExecModeExec, t.Election)
	if err != nil {
		return nil, nil, "", fmt.Errorf("looking for bound processes: %w", explain(err))
	}
	defer rows.Close()
	old = make(map[process]string)
	above := int64(0)
	for rows.Next() {
		var (
			p            process
			number       int64
			holder       []byte
			row, present bool
			start        pgtype.Timestamptz
			seen         *time.Time
			role         string
		)
		if err := rows.Scan(&at, &row, &p.pid, &start, &number, &holder, &present, &seen, &role); err != nil {
			return nil, nil, "", fmt.Errorf("looking for bound processes: %w", err)
		}
		p.start = start.Time.UTC() // so that two looks give the same key
		switch {
		case !row: // nobody at all
		case present && seen == nil:
			// INVARIANT: what cannot be seen has not ended.
			return nil, nil, "", fmt.Errorf("%w: the server hides when process %d started: %s", ErrRights, p.pid, rightsFix)
		case !present || !seen.Equal(p.start):
			gone = append(gone, p)
		case number > t.Number:
			above = max(above, number)
		case number == t.Number && bytes.Equal(holder, t.Digest[:]):
			// the term's own
		default:
			old[p] = role
		}
	}
	if err := rows.Err(); err != nil {
		return nil, nil, "", fmt.Errorf("looking for bound processes: %w", explain(err))
	}
	if at == "" {
		return nil, nil, "", errors.New("looking for bound processes: no answer")
	}
	if above > 0 {
		return nil, nil, "", &guard.BoundAboveError{Election: t.Election, Number: above}
	}
	return old, gone, at, nil
}

// signal asks the processes to end that were not asked of late, and returns which could
// not be asked, and why.
func (f *Fence) signal(ctx context.Context, old map[process]string, signalled map[process]time.Time) map[process]error {
	var ps []process
	for p := range old {
		if at, ok := signalled[p]; !ok || time.Since(at) >= signalAgain {
			ps = append(ps, p)
			signalled[p] = time.Now()
		}
	}
	if len(ps) == 0 {
		return nil
	}
	err := f.terminate(ctx, ps)
	if err == nil || len(ps) == 1 || ctx.Err() != nil {
		return map[process]error{ps[0]: err}
	}
	// One that may not be ended fails the statement, and with it those that come after.
	refused := make(map[process]error)
	for _, p := range ps {
		refused[p] = f.terminate(ctx, []process{p})
	}
	return refused
}

func (f *Fence) terminate(ctx context.Context, ps []process) error {
	pids, starts := columns(ps)
	_, err := f.pool.Exec(ctx, `SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a
		JOIN unnest($1::int[], $2::timestamptz[]) p (pid, start) ON a.pid = p.pid AND a.backend_start = p.start`,
		pgx.QueryExecModeExec, pids, starts)
	if err != nil {
		return explain(err)
	}
	return nil
}

func columns(ps []process) (pids []int32, starts []time.Time) {
	for _, p := range ps {
		pids, starts = append(pids, p.pid), append(starts, p.start)
	}
	return pids, starts
}

// forget removes the rows of processes that have ended. It only tidies up.
func (f *Fence) forget(ctx context.Context, electionID string, gone []process) {
	if len(gone) == 0 {
		return
	}
	pids, starts := columns(gone)
	_, _ = f.pool.Exec(ctx, `DELETE FROM fenceproxy.session s USING unnest($2::int[], $3::timestamptz[]) g (pid, start)
		WHERE s.election = $1 AND s.pid = g.pid AND s.backend_start = g.start`,
		pgx.QueryExecModeExec, electionID, pids, starts)
}
