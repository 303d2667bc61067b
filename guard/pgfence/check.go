package pgfence

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/guard"
)

// Check says what would keep fencing from working. It changes nothing.
func (f *Fence) Check(ctx context.Context) []guard.Problem {
	conn, err := f.pool.Acquire(ctx)
	if err != nil {
		return []guard.Problem{{Kind: guard.NoConnection, Fatal: true, What: "the control connection does not work: " + err.Error(),
			Fix: "check the address, the role and the password of the control connection"}}
	}
	defer conn.Release()
	var (
		role                            string
		pid                             uint32
		version, prepared               int
		standby, super, mayRead, mayEnd bool
		schema, usage                   bool
		missing, denied                 []string
	)
	err = conn.QueryRow(ctx, `SELECT current_user::text, pg_catalog.pg_backend_pid(),
			pg_catalog.current_setting('server_version_num')::int,
			pg_catalog.current_setting('max_prepared_transactions')::int,
			pg_catalog.pg_is_in_recovery(),
			(SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user),
			pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
			pg_catalog.pg_has_role(current_user, 'pg_signal_backend', 'USAGE'),
			n.oid IS NOT NULL,
			coalesce(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false),
			ARRAY(SELECT want.t || '.' || want.c FROM (VALUES `+wantedColumns+`) want (t, c)
				WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
					WHERE c.relnamespace = n.oid AND c.relname = want.t AND a.attname = want.c)),
			ARRAY(SELECT p.p || ' on ' || c.relname FROM pg_catalog.pg_class c,
				(VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) p (p)
				WHERE c.relnamespace = n.oid AND c.relname IN ('fence', 'session', 'gate')
				AND NOT pg_catalog.has_table_privilege(c.oid, p.p)
				OR c.relnamespace = n.oid AND c.relname IN ('proof_key', 'protected_database') AND p.p = 'SELECT'
				AND NOT pg_catalog.has_table_privilege(c.oid, p.p))
		FROM (SELECT) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'fenceproxy'`, pgx.QueryExecModeExec).
		Scan(&role, &pid, &version, &prepared, &standby, &super, &mayRead, &mayEnd, &schema, &usage, &missing, &denied)
	if err != nil {
		return []guard.Problem{{Fatal: true, What: "the control connection cannot be examined: " + err.Error()}}
	}
	var ps []guard.Problem
	sayKind := func(is bool, kind guard.ProblemKind, fatal bool, what, fix string) {
		if is {
			ps = append(ps, guard.Problem{Kind: kind, Fatal: fatal, What: what, Fix: fix})
		}
	}
	say := func(is, fatal bool, what, fix string) { sayKind(is, guard.OtherProblem, fatal, what, fix) }
	const install = "run: fenceproxy install"
	say(standby, true, ErrStandby.Error(), "connect to the primary, for instance with target_session_attrs=read-write")
	sayKind(!schema, guard.NotInstalled, true, ErrSchema.Error(), install)
	sayKind(schema && len(missing) > 0, guard.NotInstalled, true, fmt.Sprintf("the schema fenceproxy lacks %v", missing), install)
	sayKind(schema && !usage, guard.NotInstalled, true, fmt.Sprintf("the control role %q may not use the schema fenceproxy", role), install)
	sayKind(schema && len(denied) > 0, guard.NotInstalled, true, fmt.Sprintf("the control role %q lacks %v", role, denied), install)
	sayKind(!mayRead, guard.LacksRights, true, fmt.Sprintf("the control role %q is not a member of pg_read_all_stats and would not see whether a session has ended", role),
		"GRANT pg_read_all_stats TO "+pgx.Identifier{role}.Sanitize())
	sayKind(!mayEnd, guard.LacksRights, true, fmt.Sprintf("the control role %q is not a member of pg_signal_backend and may not end sessions", role),
		"GRANT pg_signal_backend TO "+pgx.Identifier{role}.Sanitize())
	sayKind(super, guard.NeedlessRights, false, fmt.Sprintf("the control role %q is a superuser, which it need not be", role), install)
	say(pid != conn.Conn().PgConn().PID(), false, "a pooler stands between the proxy and the control database",
		"connect directly: a takeover should not have to wait for a pool")
	say(version < 140000, false, fmt.Sprintf("the server's version %d is older than 14, with which this was not tried", version/10000), "")
	say(prepared > 0, false, fmt.Sprintf("max_prepared_transactions is %d: a prepared transaction outlives its session, and a takeover does not end it", prepared),
		"set it to 0, or leave PREPARE TRANSACTION refused, as it is by default")
	if schema && len(missing) == 0 {
		ps = append(ps, f.checkProtection(ctx, conn)...)
	}
	return ps
}

const wantedColumns = `('fence', 'election'), ('fence', 'highest'), ('fence', 'holder'), ('fence', 'state'), ('fence', 'raise_id'),
	('fence', 'updated_at'), ('session', 'pid'), ('session', 'backend_start'), ('session', 'election'), ('session', 'number'),
	('session', 'holder'), ('gate', 'ctid'), ('proof_key', 'key'), ('protected_database', 'name')`
