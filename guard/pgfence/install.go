package pgfence

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// InstallOptions are the options of InstallSQL.
type InstallOptions struct {
	// Role is the control role; empty means DefaultRole. It is created if missing.
	Role string
	// Login makes a role that is created able to log in, without a password.
	Login bool
	// SCRAM also makes the function by which the control role finds the SCRAM verifiers
	// of roles; it takes a superuser to run that.
	SCRAM bool
}

// DefaultRole is the control role's name.
const DefaultRole = "fenceproxy"

// InstallSQL is the SQL that installs the fence in the control database and gives the
// control role its rights. It may be run again. Run it as a superuser, or as whoever
// may create roles and grant pg_signal_backend and pg_read_all_stats.
func InstallSQL(o InstallOptions) (string, error) {
	if o.Role == "" {
		o.Role = DefaultRole
	}
	if err := checkRole(o.Role); err != nil {
		return "", err
	}
	login := "NOLOGIN"
	if o.Login {
		login = "LOGIN"
	}
	sql := installSQL
	if o.SCRAM {
		sql += scramSQL
	}
	return strings.NewReplacer(
		":role:", pgx.Identifier{o.Role}.Sanitize(),
		":name:", quote(o.Role),
		":login:", login,
	).Replace(sql), nil
}

func checkRole(role string) error {
	switch {
	case len(role) > 63:
		return errors.New("control role: its name is longer than 63 bytes")
	case strings.ContainsAny(role, "\x00\\\n\r"):
		return errors.New("control role: its name holds a NUL, a backslash or a line break")
	case strings.Contains(role, "$fenceproxy_"):
		return errors.New("control role: its name holds the script's own quote")
	case strings.HasPrefix(role, "pg_"), role == "public", role == "none":
		return fmt.Errorf("control role: %s is a name of the server's own", role)
	}
	return nil
}

const installSQL = `-- fenceproxy: the fence of this cluster. Run it in the control database.
BEGIN;

DO $fenceproxy_install$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = :name:) THEN
		CREATE ROLE :role: :login: NOSUPERUSER NOCREATEDB NOCREATEROLE;
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles o ON o.oid = n.nspowner
		WHERE n.nspname = 'fenceproxy' AND NOT o.rolsuper AND o.rolname <> current_user) THEN
		RAISE EXCEPTION 'a schema fenceproxy exists already and belongs to another role, who could change the fence';
	END IF;
	EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO %I', pg_catalog.current_database(), :name:);
END
$fenceproxy_install$;

-- To end connections of older terms, and to see that they have ended.
GRANT pg_signal_backend TO :role:;
GRANT pg_read_all_stats TO :role:;

CREATE SCHEMA IF NOT EXISTS fenceproxy;
REVOKE ALL ON SCHEMA fenceproxy FROM PUBLIC;
GRANT USAGE ON SCHEMA fenceproxy TO :role:;

-- One row an election: the highest number seen, its holder, and how far its raise has come.
CREATE TABLE IF NOT EXISTS fenceproxy.fence (
	election   text COLLATE "C" PRIMARY KEY,
	highest    bigint NOT NULL CHECK (highest > 0),
	holder     bytea NOT NULL CHECK (octet_length(holder) = 32),
	state      text NOT NULL CHECK (state IN ('raised', 'severed')),
	raise_id   bytea NOT NULL CHECK (octet_length(raise_id) = 8),
	updated_at timestamptz NOT NULL DEFAULT now()
);

-- The server processes that are bound to a term. Unlogged: a crash ends them all.
CREATE UNLOGGED TABLE IF NOT EXISTS fenceproxy.session (
	pid           integer NOT NULL,
	backend_start timestamptz NOT NULL,
	election      text COLLATE "C" NOT NULL,
	number        bigint NOT NULL,
	holder        bytea NOT NULL,
	PRIMARY KEY (pid, election)
);
CREATE INDEX IF NOT EXISTS session_election ON fenceproxy.session (election);

-- Where tables are protected (fenceproxy install --protect): the key of the proofs, and in
-- which databases.
CREATE TABLE IF NOT EXISTS fenceproxy.proof_key (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	key bytea NOT NULL CHECK (octet_length(key) = 32)
);
CREATE TABLE IF NOT EXISTS fenceproxy.protected_database (name text COLLATE "C" PRIMARY KEY);

-- Binds lock it in ROW SHARE mode, raises in EXCLUSIVE mode. It stays empty.
CREATE TABLE IF NOT EXISTS fenceproxy.gate ();

REVOKE ALL ON fenceproxy.fence, fenceproxy.session, fenceproxy.gate, fenceproxy.proof_key, fenceproxy.protected_database FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON fenceproxy.fence, fenceproxy.session, fenceproxy.gate TO :role:;
GRANT SELECT ON fenceproxy.proof_key, fenceproxy.protected_database TO :role:;
` + privateSQL + `
COMMIT;
`

// privateSQL refuses things of the schema's that another role owns, as one who could once
// create there may have left: CREATE OR REPLACE and IF NOT EXISTS keep the owner, who can
// change them. And it takes from everybody but the owner and the control roles (there may be several)
// what default privileges gave them of the schema's own things. Others may use the schema for
// the table of elections.
const privateSQL = `
DO $fenceproxy_install$
DECLARE
	t record;
BEGIN
	FOR t IN SELECT o.name, r.rolname FROM (
			SELECT c.relname::text AS name, c.relowner AS owner FROM pg_catalog.pg_class c
				WHERE c.relnamespace = 'fenceproxy'::pg_catalog.regnamespace AND c.relkind IN ('r', 'v', 'S')
				AND (c.relname IN ('fence', 'session', 'gate', 'proof_key', 'protected_database', 'protection', 'protected_table') OR pg_catalog.starts_with(c.relname, 'proven_'))
			UNION ALL SELECT p.proname || '()', p.proowner FROM pg_catalog.pg_proc p
				WHERE p.pronamespace = 'fenceproxy'::pg_catalog.regnamespace
				AND p.proname IN ('prove', 'protect', 'protect_row', 'apply_protection', 'protect_new_tables')
		) o JOIN pg_catalog.pg_roles r ON r.oid = o.owner WHERE NOT r.rolsuper AND r.rolname <> current_user
	LOOP
		RAISE EXCEPTION 'fenceproxy.% exists already and belongs to role %, who could change it: drop it first', t.name, t.rolname;
	END LOOP;
	FOR t IN SELECT 'CREATE ON SCHEMA fenceproxy' AS what, a.grantee
			FROM pg_catalog.pg_namespace n, pg_catalog.aclexplode(n.nspacl) a
			WHERE n.nspname = 'fenceproxy' AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
		UNION ALL SELECT DISTINCT 'ALL ON fenceproxy.' || c.relname, a.grantee
			FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
			WHERE c.relnamespace = 'fenceproxy'::pg_catalog.regnamespace AND a.grantee <> c.relowner
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.member = a.grantee AND m.roleid = 'pg_signal_backend'::pg_catalog.regrole)
			AND c.relname IN ('fence', 'session', 'gate', 'proof_key', 'protected_database', 'protection', 'protected_table')
		UNION ALL SELECT 'ALL ON FUNCTION ' || p.oid::pg_catalog.regprocedure, a.grantee
			FROM pg_catalog.pg_proc p, pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
			WHERE p.pronamespace = 'fenceproxy'::pg_catalog.regnamespace AND a.grantee <> p.proowner
			AND p.proname IN ('prove', 'protect', 'protect_row', 'apply_protection', 'protect_new_tables')
	LOOP
		EXECUTE pg_catalog.format('REVOKE %s FROM %s', t.what, CASE t.grantee WHEN 0 THEN 'PUBLIC' ELSE t.grantee::pg_catalog.regrole::text END);
	END LOOP;
END
$fenceproxy_install$;
`
