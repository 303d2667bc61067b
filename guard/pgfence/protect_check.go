package pgfence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// checkProtection says which tables are not protected that should be, in all databases that
// were protected by this control database, and what would keep leaders from writing there.
func (f *Fence) checkProtection(ctx context.Context, conn *pgxpool.Conn) []guard.Problem {
	rows, err := conn.Query(ctx, `SELECT d.name, k.key FROM fenceproxy.protected_database d LEFT JOIN fenceproxy.proof_key k ON true ORDER BY d.name`, pgx.QueryExecModeExec)
	type database struct {
		Name string
		Key  []byte
	}
	var all []database
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[database])
	}
	if err != nil {
		return []guard.Problem{{What: "the protected databases cannot be listed: " + err.Error()}}
	}
	var ps []guard.Problem
	for _, d := range all {
		cfg := f.pool.Config().ConnConfig.Copy()
		fix := "--dsn '" + adminURL(cfg, d.Name) + "'"
		if d.Name != cfg.Database {
			fix += " --control-dsn '" + adminURL(cfg, cfg.Database) + "'"
		}
		if cfg.User != DefaultRole {
			fix += " --role '" + cfg.User + "'"
		}
		cfg.Database = d.Name
		ps = append(ps, inDatabase(ctx, cfg, d.Key, fix)...)
	}
	return ps
}

// adminURL names a database to whoever installs. It holds no secret.
func adminURL(c *pgx.ConnConfig, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), Path: "/" + database}
	if strings.HasPrefix(c.Host, "/") {
		u.Host, u.RawQuery = "", url.Values{"host": {c.Host}, "port": {strconv.Itoa(int(c.Port))}}.Encode()
	}
	return u.String()
}

// inDatabase looks into one protected database, to which fix leads fenceproxy install.
func inDatabase(ctx context.Context, cfg *pgx.ConnConfig, key []byte, fix string) []guard.Problem {
	in := fmt.Sprintf("database %q, whose tables are protected", cfg.Database)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == "3D000" {
			return []guard.Problem{{What: in + ", is gone",
				Fix: "in the control database: DELETE FROM fenceproxy.protected_database WHERE name = " + quote(cfg.Database)}}
		}
		if e != nil {
			err = e // the driver's own error is long
		}
		return []guard.Problem{{What: fmt.Sprintf("%s, cannot be looked into: %v", in, err), Fix: "let the control role connect to it"}}
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var (
		theirs                    []byte
		pattern                   string
		missing, disabled, others []string
		unused, invalid           []string
		mayRead                   bool
	)
	err = conn.QueryRow(ctx, `SELECT (SELECT key FROM fenceproxy.proof_key),
			coalesce((SELECT pattern || '=' || election FROM fenceproxy.protection ORDER BY id LIMIT 1), ''),
			ARRAY(SELECT name FROM fenceproxy.protected_table WHERE statement_trigger = 'missing' OR by_row AND row_trigger = 'missing' ORDER BY name),
			ARRAY(SELECT name FROM fenceproxy.protected_table WHERE statement_trigger = 'disabled' OR by_row AND row_trigger = 'disabled' ORDER BY name),
			ARRAY(SELECT DISTINCT coalesce(r.rolname, 'PUBLIC')::text
				FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
				WHERE c.relnamespace = 'fenceproxy'::pg_catalog.regnamespace AND a.grantee <> c.relowner
				AND (c.relkind = 'S' AND pg_catalog.starts_with(c.relname, 'proven_')
					OR c.relname = 'proof_key' AND NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members m
						WHERE m.member = a.grantee AND m.roleid = 'pg_signal_backend'::pg_catalog.regrole))),
			ARRAY(SELECT pattern FROM fenceproxy.protection p WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c
				JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
				WHERE c.relkind IN ('r', 'p') AND n.nspname || pg_catalog.chr(1) || c.relname ~ p.match)),
			ARRAY(SELECT name || ': ' || election FROM fenceproxy.protected_table
				WHERE election !~ '^[A-Za-z0-9][-A-Za-z0-9._:/]*$' OR pg_catalog.length(election) > $1),
			coalesce((SELECT pg_catalog.pg_has_role(p.proowner, 'pg_read_all_stats', 'USAGE') FROM pg_catalog.pg_proc p
				WHERE p.oid = pg_catalog.to_regprocedure('fenceproxy.protect()')), true)`, pgx.QueryExecModeExec, maxElection).
		Scan(&theirs, &pattern, &missing, &disabled, &others, &unused, &invalid, &mayRead)
	if err != nil {
		return []guard.Problem{{What: fmt.Sprintf("%s, cannot be looked into: %v", in, explain(err)), Fix: "run: fenceproxy install --protect PATTERN=ELECTION " + fix}}
	}
	again := fmt.Sprintf("run: fenceproxy install --protect %s %s", quote(pattern), fix)
	var ps []guard.Problem
	say := func(is, fatal bool, what, fix string) {
		if is {
			ps = append(ps, guard.Problem{Fatal: fatal, What: in + ": " + what, Fix: fix})
		}
	}
	say(!bytes.Equal(theirs, key), true, "its key is not that of the control database, so that it refuses every leader's write", again+"; leaders that are connected must connect again")
	say(!mayRead, true, "the owner of fenceproxy.protect() is no member of pg_read_all_stats, so that it refuses every leader's write", "GRANT pg_read_all_stats to it")
	say(len(missing) > 0, false, some("without the trigger, so that anybody with the right may write them", missing), again)
	say(len(disabled) > 0, false, some("with the trigger disabled, so that anybody with the right may write them", disabled), again)
	say(len(others) > 0, false, fmt.Sprintf("%v may forge proofs, by the rights on fenceproxy.proof_key or a sequence of that schema", others), again)
	say(len(unused) > 0, false, some("patterns that match no table", unused), "correct them, or take them away: fenceproxy install --remove --protect PATTERN "+fix)
	say(len(invalid) > 0, false, some("tables that nobody can write: what their patterns make of their names is no election", invalid), "name an election for them")
	return ps
}

// some is a list of at most five.
func some(what string, all []string) string {
	const most = 5
	s := fmt.Sprintf("%s: %s", what, strings.Join(all[:min(most, len(all))], ", "))
	if len(all) > most {
		s += fmt.Sprintf(" and %d more", len(all)-most)
	}
	return s
}

// maxElection is the longest name of an election, in bytes.
const maxElection = election.MaxIDLen
