package pgfence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrUnprotected: Unprotect was asked to remove a protection that is not there.
var ErrUnprotected = errors.New("not protected")

// A Protector makes tables refuse the writes of sessions that are not bound to an election,
// also of those that come without a proxy. It promises nothing of who owns the tables, the
// schema fenceproxy or the server: they can take the triggers away. Nor of statements that
// fire no trigger: DDL, large objects, sequences; nor, without Always, of logical replication.
type Protector struct {
	// Control is connected to the control database, Tables to the one of the tables, in the
	// same cluster; they may be one. Both are of a superuser, or of who may do it.
	Control, Tables *pgx.Conn
	// Role is the control role; empty means DefaultRole.
	Role string
	// NewTables also makes an event trigger that protects tables as they are made. It takes
	// a superuser.
	NewTables bool
}

// A ProtectedTable is what was protected.
type ProtectedTable struct {
	Name, Election string
}

// Protect protects tables, in addition to those that are protected. Sessions that were bound
// before the first time have no proof: rebind reports that they have to connect again.
func (p Protector) Protect(ctx context.Context, add []Protection) (tables []ProtectedTable, rebind bool, err error) {
	for _, a := range add {
		if err := a.check(); err != nil {
			return nil, false, err
		}
	}
	sql, err := ProtectSQL(p.Role)
	if err != nil {
		return nil, false, err
	}
	name, one, err := p.where(ctx)
	if err != nil {
		return nil, false, err
	}
	key, rebind, err := p.key(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("the control database: %w", explain(err))
	}
	err = p.transact(ctx, sql, func(tx pgx.Tx) error {
		if !one {
			if err := setKey(ctx, tx, key); err != nil {
				return err
			}
		}
		for _, a := range add {
			match, becomes := a.expression()
			if _, err := tx.Exec(ctx, `INSERT INTO fenceproxy.protection (pattern, election, always, match, becomes) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (pattern) DO UPDATE SET election = EXCLUDED.election, always = EXCLUDED.always, match = EXCLUDED.match, becomes = EXCLUDED.becomes`,
				a.Pattern, a.Election, a.Always, match, becomes); err != nil {
				return err
			}
		}
		if p.NewTables {
			if _, err := tx.Conn().PgConn().Exec(ctx, newTablesSQL).ReadAll(); err != nil {
				return err
			}
		}
		tables, err = apply(ctx, tx)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	// For Check, which looks into all of them.
	if _, err := p.Control.Exec(ctx, `INSERT INTO fenceproxy.protected_database (name) VALUES ($1) ON CONFLICT DO NOTHING`, name); err != nil {
		return nil, false, fmt.Errorf("the control database: %w", explain(err))
	}
	return tables, rebind, nil
}

const newTablesSQL = `DROP EVENT TRIGGER IF EXISTS fenceproxy_protect;
	CREATE EVENT TRIGGER fenceproxy_protect ON ddl_command_end
	WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TABLE', 'CREATE SCHEMA', 'ALTER SCHEMA')
	EXECUTE FUNCTION fenceproxy.protect_new_tables()`

// Unprotect takes the protection of patterns away, or all of it where there are none, and
// returns what is protected still. Where a pattern is not, it changes nothing: ErrUnprotected.
func (p Protector) Unprotect(ctx context.Context, patterns []string) (tables []ProtectedTable, err error) {
	name, _, err := p.where(ctx)
	if err != nil {
		return nil, err
	}
	var there bool
	if err := p.Tables.QueryRow(ctx, `SELECT pg_catalog.to_regclass('fenceproxy.protection') IS NOT NULL`).Scan(&there); err != nil {
		return nil, err
	}
	switch {
	case !there && len(patterns) > 0:
		return nil, fmt.Errorf("%w: nothing is, in database %s", ErrUnprotected, name)
	case len(patterns) > 0:
		sql, err := ProtectSQL(p.Role)
		if err != nil {
			return nil, err
		}
		err = p.transact(ctx, sql, func(tx pgx.Tx) error {
			for _, s := range patterns {
				tag, err := tx.Exec(ctx, `DELETE FROM fenceproxy.protection WHERE pattern = $1`, s)
				if err != nil {
					return err
				}
				if tag.RowsAffected() == 0 {
					return fmt.Errorf("%w: %s", ErrUnprotected, s)
				}
			}
			tables, err = apply(ctx, tx)
			return err
		})
		return tables, err
	case there:
		if err := p.transact(ctx, unprotectSQL, func(pgx.Tx) error { return nil }); err != nil {
			return nil, err
		}
	}
	_, err = p.Control.Exec(ctx, `WITH gone AS (DELETE FROM fenceproxy.protected_database WHERE name = $1)
		DELETE FROM fenceproxy.proof_key WHERE NOT EXISTS (SELECT FROM fenceproxy.protected_database WHERE name <> $1)`, name)
	if err != nil {
		return nil, fmt.Errorf("the control database: %w", explain(err))
	}
	return nil, nil
}

// The key goes with the schema, but where it is the control database's.
const unprotectSQL = `SET LOCAL lock_timeout = '3s';
SET LOCAL client_min_messages = 'warning';
DROP EVENT TRIGGER IF EXISTS fenceproxy_protect;
DROP FUNCTION IF EXISTS fenceproxy.protect() CASCADE;
DROP FUNCTION IF EXISTS fenceproxy.protect_row() CASCADE;
DROP FUNCTION IF EXISTS fenceproxy.protect_new_tables();
DROP FUNCTION IF EXISTS fenceproxy.apply_protection(oid[]);
DROP FUNCTION IF EXISTS fenceproxy.prove(text, text, oid);
DROP VIEW IF EXISTS fenceproxy.protected_table;
DROP TABLE IF EXISTS fenceproxy.protection;
DO $fenceproxy_install$
DECLARE
	name text;
BEGIN
	FOR name IN SELECT c.relname FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'fenceproxy'::pg_catalog.regnamespace AND c.relkind = 'S' AND pg_catalog.starts_with(c.relname, 'proven_')
	LOOP
		EXECUTE pg_catalog.format('DROP SEQUENCE fenceproxy.%I', name);
	END LOOP;
	IF pg_catalog.to_regclass('fenceproxy.fence') IS NULL THEN
		DROP TABLE IF EXISTS fenceproxy.proof_key;
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = 'fenceproxy'::pg_catalog.regnamespace) THEN
			DROP SCHEMA fenceproxy;
		END IF;
	END IF;
END
$fenceproxy_install$`

// where is the name of the database of the tables, and whether it is the control database.
func (p Protector) where(ctx context.Context) (name string, one bool, err error) {
	var at, control, controlAt string
	ask := func(c *pgx.Conn, name, at *string) error {
		return c.QueryRow(ctx, `SELECT pg_catalog.current_database()::text, `+started).Scan(name, at)
	}
	if err := errors.Join(ask(p.Tables, &name, &at), ask(p.Control, &control, &controlAt)); err != nil {
		return "", false, err
	}
	if at != controlAt {
		return "", false, fmt.Errorf("the control database is in another cluster than database %s: its processes are others", name)
	}
	return name, name == control, nil
}

// key returns the key of the control database, which it makes where there is none. It is
// fresh where nothing was protected by it yet: sessions may have been bound before it was there.
func (p Protector) key(ctx context.Context) (key []byte, fresh bool, err error) {
	// INVARIANT: the key is never the text or a parameter of a statement, which servers log.
	var none bool
	if err := p.Control.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM fenceproxy.proof_key), NOT EXISTS (SELECT FROM fenceproxy.protected_database)`).
		Scan(&none, &fresh); err != nil {
		return nil, false, err
	}
	if none {
		random := make([]byte, 32)
		rand.Read(random)
		if _, err := p.Control.CopyFrom(ctx, pgx.Identifier{"fenceproxy", "proof_key"}, []string{"key"}, pgx.CopyFromRows([][]any{{random}})); err != nil {
			var exists *pgconn.PgError
			if !errors.As(err, &exists) || exists.Code != "23505" {
				return nil, false, err
			}
		}
	}
	err = p.Control.QueryRow(ctx, `SELECT key FROM fenceproxy.proof_key`).Scan(&key)
	return key, fresh, err
}

func setKey(ctx context.Context, tx pgx.Tx, key []byte) error {
	if _, err := tx.Exec(ctx, `DELETE FROM fenceproxy.proof_key`); err != nil {
		return err
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"fenceproxy", "proof_key"}, []string{"key"}, pgx.CopyFromRows([][]any{{key}}))
	return err
}

func (p Protector) transact(ctx context.Context, sql string, more func(pgx.Tx) error) error {
	tx, err := p.Tables.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return err
	}
	if err := more(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// apply makes the triggers, and returns what they protect.
func apply(ctx context.Context, tx pgx.Tx) ([]ProtectedTable, error) {
	if _, err := tx.Exec(ctx, `SELECT fenceproxy.apply_protection(NULL)`); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT name, election FROM fenceproxy.protected_table ORDER BY name`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[ProtectedTable])
}
