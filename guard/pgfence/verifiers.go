package pgfence

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/guard"
)

// ErrVerifiers: the control role cannot look up SCRAM verifiers.
var ErrVerifiers = errors.New("SCRAM verifiers cannot be looked up (fenceproxy install --scram)")

// Verifiers finds the SCRAM verifiers of roles on a Fence's control connections, by the
// function that InstallSQL makes. It keeps nothing.
type Verifiers struct {
	f *Fence
	// turn bounds how many look-ups are under way: anybody who can connect can cause
	// one, and binds need control connections, too.
	turn chan struct{}
}

// Verifiers uses the fence's pool, at most half of it at once.
func (f *Fence) Verifiers() *Verifiers {
	return &Verifiers{f: f, turn: make(chan struct{}, max(1, f.pool.Config().MaxConns/2))}
}

// Verifier returns a role's SCRAM verifier as pg_authid has it, or "" where the function
// gives none: no such role, no LOGIN, no such password, expired, or a superuser.
func (v *Verifiers) Verifier(ctx context.Context, role string) (string, error) {
	if !utf8.ValidString(role) {
		return "", nil // a name that the control connection cannot even spell
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("looking up a verifier: %w", ctx.Err())
	}
	var found *string
	err := v.f.pool.QueryRow(ctx, "SELECT fenceproxy.scram_verifier($1)", pgx.QueryExecModeExec, role).Scan(&found)
	if err != nil {
		return "", fmt.Errorf("looking up a verifier: %w", explainVerifier(err))
	}
	if found == nil {
		return "", nil
	}
	return *found, nil
}

// Check says what would keep Verifier from working. It looks up nobody's verifier.
func (v *Verifiers) Check(ctx context.Context) []guard.Problem {
	var there, may, definer, super bool
	var others []string
	err := v.f.pool.QueryRow(ctx, `SELECT p.oid IS NOT NULL,
			coalesce(pg_catalog.has_function_privilege(p.oid, 'EXECUTE'), false),
			coalesce(p.prosecdef, false),
			coalesce((SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = p.proowner), false),
			ARRAY(SELECT coalesce(r.rolname, 'PUBLIC')::text
				FROM pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
				WHERE p.oid IS NOT NULL AND a.grantee <> p.proowner AND r.rolname IS DISTINCT FROM current_user)
		FROM (SELECT) one LEFT JOIN pg_catalog.pg_proc p
			ON p.oid = pg_catalog.to_regprocedure('fenceproxy.scram_verifier(text)')`, pgx.QueryExecModeExec).Scan(&there, &may, &definer, &super, &others)
	const install = "run: fenceproxy install --scram"
	switch {
	case err != nil:
		return []guard.Problem{{Fatal: true, What: "SCRAM verifiers: the control connection cannot be examined: " + err.Error()}}
	case !there:
		return []guard.Problem{{Fatal: true, What: ErrVerifiers.Error() + ": there is no function fenceproxy.scram_verifier", Fix: install}}
	case !definer || !super:
		return []guard.Problem{{Fatal: true, What: "the function fenceproxy.scram_verifier does not run as a superuser, who alone can read verifiers", Fix: install}}
	case !may:
		return []guard.Problem{{Fatal: true, What: "the control role may not call fenceproxy.scram_verifier", Fix: install}}
	case len(others) > 0:
		return []guard.Problem{{What: fmt.Sprintf("%v may call fenceproxy.scram_verifier, too", others), Fix: install}}
	}
	return nil
}

func explainVerifier(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "42883", "42501", "3F000": // undefined function, insufficient privilege, no schema
			return fmt.Errorf("%w: %w", ErrVerifiers, err)
		}
	}
	return err
}

// A verifier is no password: it cannot log in. It lets whoever has it try passwords, and
// pass for the server. So the function gives none of a superuser's, nor of a role that can
// become one.
const scramSQL = `
-- The SCRAM verifiers of roles, for logins that are bound to the proxy's certificate.
BEGIN;

DO $fenceproxy_install$
BEGIN
	IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
		RAISE EXCEPTION 'only a superuser can let the control role look up SCRAM verifiers';
	END IF;
END
$fenceproxy_install$;

-- Made anew, so that it belongs to who runs this and nobody keeps a right to it.
DROP FUNCTION IF EXISTS fenceproxy.scram_verifier(text);

CREATE FUNCTION fenceproxy.scram_verifier(role text) RETURNS text
LANGUAGE sql STABLE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $fenceproxy_function$
	SELECT a.rolpassword FROM pg_catalog.pg_authid a
	WHERE a.rolname = $1::pg_catalog.name
	AND a.rolcanlogin
	AND a.rolpassword LIKE 'SCRAM-SHA-256$%'
	AND (a.rolvaliduntil IS NULL OR a.rolvaliduntil > pg_catalog.now())
	AND NOT EXISTS (SELECT FROM pg_catalog.pg_authid s WHERE s.rolsuper AND pg_catalog.pg_has_role(a.oid, s.oid, 'MEMBER'))
$fenceproxy_function$;

DO $fenceproxy_install$
DECLARE
	holder oid;
BEGIN
	-- Default privileges may have given it to others.
	FOR holder IN SELECT a.grantee FROM pg_catalog.pg_proc p, pg_catalog.aclexplode(p.proacl) a
		WHERE p.oid = 'fenceproxy.scram_verifier(text)'::pg_catalog.regprocedure AND a.grantee NOT IN (0, p.proowner)
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION fenceproxy.scram_verifier(text) FROM %s', holder::pg_catalog.regrole);
	END LOOP;
END
$fenceproxy_install$;
REVOKE ALL ON FUNCTION fenceproxy.scram_verifier(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fenceproxy.scram_verifier(text) TO :role:;

COMMIT;
`
