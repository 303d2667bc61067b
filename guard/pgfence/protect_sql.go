package pgfence

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// ProtectSQL is the SQL that Protect runs in the database of the tables, without the key
// and the patterns. role is the control role; empty means DefaultRole.
func ProtectSQL(role string) (string, error) {
	if role == "" {
		role = DefaultRole
	}
	if err := checkRole(role); err != nil {
		return "", err
	}
	return strings.NewReplacer(
		":role:", pgx.Identifier{role}.Sanitize(),
		":name:", quote(role),
		":mac:", macSQL("a.pid", "a.backend_start", "pg_catalog.split_part(proof, ':', 1)", "election"),
		":separator:", "pg_catalog.chr(1)",
		":proven:", provenSQL,
	).Replace(protectSQL), nil
}

// provenSQL begins both functions of triggers: it fails where the process has proven nothing.
const provenSQL = `DECLARE
	proven pg_catalog.int8;
BEGIN
	BEGIN
		proven := pg_catalog.currval(TG_ARGV[1]::pg_catalog.regclass);
	EXCEPTION WHEN object_not_in_prerequisite_state THEN
		PERFORM fenceproxy.prove(TG_ARGV[0], TG_ARGV[1], TG_RELID);
	END;`

// protectSQL is run as one transaction.
//
// The function of the trigger runs with the rights of its owner, who alone reads the key. It
// and what it calls hold no backslash, which a session's settings could give another meaning,
// and search nothing but pg_catalog.
//
// INVARIANT: what a process has proven stands in its own memory: setval of a sequence, which
// the owner alone may call, gives the process that calls it a currval, and no other process.
// DISCARD takes it away; then the proof is asked for again. It saves digest and statistics,
// which cost more than the write.
const protectSQL = `-- fenceproxy: the fence without the proxy. Run it in the database of the tables.
SET LOCAL lock_timeout = '3s';
SET LOCAL search_path = pg_catalog, pg_temp;

DO $fenceproxy_install$
BEGIN
	IF EXISTS (SELECT FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner
		WHERE n.nspname = 'fenceproxy' AND NOT o.rolsuper AND o.rolname <> current_user) THEN
		RAISE EXCEPTION 'a schema fenceproxy exists already and belongs to another role, who could change the fence';
	END IF;
	IF NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN
		RAISE EXCEPTION 'role % must be a member of pg_read_all_stats, to see when the process of a session started', current_user;
	END IF;
	EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), :name:);
END
$fenceproxy_install$;

CREATE SCHEMA IF NOT EXISTS fenceproxy;
REVOKE ALL ON SCHEMA fenceproxy FROM PUBLIC;
GRANT USAGE ON SCHEMA fenceproxy TO :role:;

-- The key of the proofs, the same as in the control database.
CREATE TABLE IF NOT EXISTS fenceproxy.proof_key (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	key bytea NOT NULL CHECK (octet_length(key) = 32)
);

-- Which tables are protected, and by which election; the first that matches counts.
CREATE TABLE IF NOT EXISTS fenceproxy.protection (
	id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	pattern  text COLLATE "C" NOT NULL UNIQUE,
	election text COLLATE "C" NOT NULL,
	always   boolean NOT NULL,
	match    text COLLATE "C" NOT NULL,
	becomes  text COLLATE "C" NOT NULL
);

-- Looks for the proof of this very process, and remembers it.
CREATE OR REPLACE FUNCTION fenceproxy.prove(election text, memory text, relation oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $fenceproxy_function$
DECLARE
	given text := coalesce(current_setting('fence.proof', true), '');
	proof text;
BEGIN
	FOREACH proof IN ARRAY string_to_array(given, ',') LOOP
		-- Of digests, so that the time that it takes tells nothing.
		IF EXISTS (SELECT FROM fenceproxy.proof_key k, pg_stat_get_activity(pg_backend_pid()) a
			WHERE sha256(convert_to(:mac:, 'UTF8')) = sha256(convert_to(split_part(proof, ':', 2), 'UTF8'))) THEN
			PERFORM setval(memory::regclass, 1);
			RETURN;
		END IF;
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = 'FP020',
		MESSAGE = format('write refused: this session is not bound to election "%s", which protects table %s', election, relation::regclass),
		DETAIL = CASE given WHEN '' THEN 'It did not come through a fenceproxy, or presented no live token there.'
			ELSE 'Its proof is of another election, of another process, or made with another key.' END,
		HINT = 'Connect through fenceproxy and present the live token of this election.',
		SCHEMA = (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation),
		TABLE = (SELECT c.relname FROM pg_class c WHERE c.oid = relation);
END
$fenceproxy_function$;

-- No operator, no function and no type is named without its schema: this one sets no
-- search_path, for that would cost as much as all the rest.
CREATE OR REPLACE FUNCTION fenceproxy.protect() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
AS $fenceproxy_function$
:proven:
	RETURN NULL;
END
$fenceproxy_function$;

CREATE OR REPLACE FUNCTION fenceproxy.protect_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
AS $fenceproxy_function$
:proven:
	IF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
		RETURN OLD;
	END IF;
	RETURN NEW;
END
$fenceproxy_function$;

-- The tables that match, or descend from one that does, and how far their triggers are there.
-- A trigger for each row is needed where rows can come by way of a table that another
-- election protects, or none: there the statement is that table's.
DROP VIEW IF EXISTS fenceproxy.protected_table;
CREATE VIEW fenceproxy.protected_table AS
WITH RECURSIVE named AS (
	SELECT c.oid, c.relkind, c.relnamespace, n.nspname, c.relname, p.election, p.always
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN LATERAL (
		SELECT regexp_replace(n.nspname || :separator: || c.relname, r.match, r.becomes) AS election, r.always
		FROM fenceproxy.protection r WHERE n.nspname || :separator: || c.relname ~ r.match ORDER BY r.id LIMIT 1
	) p ON true
	WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
	AND n.nspname NOT LIKE 'pg@_%' ESCAPE '@' AND n.nspname NOT IN ('information_schema', 'fenceproxy')
), above AS (
	SELECT oid, oid AS ancestor, 0 AS depth FROM named
	UNION
	SELECT a.oid, i.inhparent, a.depth + 1 FROM above a JOIN pg_inherits i ON i.inhrelid = a.ancestor
), ruled AS (
	SELECT DISTINCT ON (a.oid) a.oid, n.election, n.always
	FROM above a JOIN named n ON n.oid = a.ancestor WHERE n.election IS NOT NULL ORDER BY a.oid, a.depth, a.ancestor
), reached AS (
	SELECT a.oid, bool_or(up.election IS DISTINCT FROM own.election) AS otherwise, array_agg(a.ancestor) AS ancestors
	FROM above a JOIN ruled own ON own.oid = a.oid LEFT JOIN ruled up ON up.oid = a.ancestor GROUP BY a.oid
), wanted AS (
	SELECT n.oid, n.relnamespace, n.nspname, n.relname, r.election, r.always, c.ancestors,
		'fenceproxy.proven_' || left(encode(sha256(convert_to(r.election, 'UTF8')), 'hex'), 32) AS memory,
		n.relkind = 'r' AND (r.always OR c.otherwise) AS by_row
	FROM named n JOIN ruled r ON r.oid = n.oid JOIN reached c ON c.oid = n.oid
)
SELECT w.oid AS relation, w.relnamespace AS namespace, format('%I.%I', w.nspname, w.relname) AS name,
	w.election, w.memory, w.always, w.by_row, w.ancestors,
	coalesce(s.state, 'missing') AS statement_trigger, coalesce(r.state, 'missing') AS row_trigger
FROM wanted w
LEFT JOIN LATERAL (
	SELECT CASE t.tgenabled WHEN CASE WHEN w.always THEN 'A' ELSE 'O' END THEN 'there' WHEN 'A' THEN 'always' ELSE 'disabled' END AS state FROM pg_trigger t
	WHERE t.tgrelid = w.oid AND t.tgname = 'fenceproxy_protect' AND t.tgfoid = 'fenceproxy.protect()'::regprocedure
	AND t.tgtype = 62 AND t.tgqual IS NULL AND t.tgattr::text = ''
	AND t.tgargs = convert_to(w.election, 'UTF8') || decode('00', 'hex') || convert_to(w.memory, 'UTF8') || decode('00', 'hex')
) s ON true
LEFT JOIN LATERAL (
	SELECT CASE t.tgenabled WHEN CASE WHEN w.always THEN 'A' ELSE 'O' END THEN 'there' WHEN 'A' THEN 'always' ELSE 'disabled' END AS state FROM pg_trigger t
	WHERE t.tgrelid = w.oid AND t.tgname = 'fenceproxy_protect_row' AND t.tgfoid = 'fenceproxy.protect_row()'::regprocedure
	AND t.tgtype = 31 AND t.tgqual IS NULL AND t.tgattr::text = ''
	AND t.tgargs = convert_to(w.election, 'UTF8') || decode('00', 'hex') || convert_to(w.memory, 'UTF8') || decode('00', 'hex')
) r ON true;

-- Makes what protected_table wants. With only_on, no more than is missing on these tables, on
-- those of these schemas, and on what descends from them: then it leaves disabled triggers alone,
-- which their owner disabled, for instance to restore the table.
CREATE OR REPLACE FUNCTION fenceproxy.apply_protection(only_on oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $fenceproxy_function$
DECLARE
	t record;
BEGIN
	FOR t IN SELECT * FROM fenceproxy.protected_table p
		WHERE only_on IS NULL OR p.ancestors && only_on OR p.namespace = ANY (only_on) ORDER BY p.name
	LOOP
		IF to_regclass(t.memory) IS NULL THEN
			EXECUTE format('CREATE SEQUENCE %s', t.memory);
		END IF;
		IF t.statement_trigger = 'missing' OR t.statement_trigger <> 'there' AND only_on IS NULL THEN
			EXECUTE format('CREATE OR REPLACE TRIGGER fenceproxy_protect BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
				FOR EACH STATEMENT EXECUTE FUNCTION fenceproxy.protect(%L, %L)', t.name, t.election, t.memory);
			IF t.always THEN
				EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER fenceproxy_protect', t.name);
			END IF;
		END IF;
		IF t.by_row AND (t.row_trigger = 'missing' OR t.row_trigger <> 'there' AND only_on IS NULL) THEN
			EXECUTE format('CREATE OR REPLACE TRIGGER fenceproxy_protect_row BEFORE INSERT OR UPDATE OR DELETE ON %s
				FOR EACH ROW EXECUTE FUNCTION fenceproxy.protect_row(%L, %L)', t.name, t.election, t.memory);
			IF t.always THEN
				EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER fenceproxy_protect_row', t.name);
			END IF;
		END IF;
	END LOOP;
	IF only_on IS NULL THEN
		FOR t IN SELECT g.tgname, format('%I.%I', n.nspname, c.relname) AS name
			FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			LEFT JOIN fenceproxy.protected_table p ON p.relation = g.tgrelid
			WHERE g.tgfoid IN ('fenceproxy.protect()'::regprocedure, 'fenceproxy.protect_row()'::regprocedure)
			AND (p.relation IS NULL OR g.tgname = 'fenceproxy_protect_row' AND NOT p.by_row)
		LOOP
			EXECUTE format('DROP TRIGGER %I ON %s', t.tgname, t.name);
		END LOOP;
	END IF;
	-- Default privileges may have given to others what lets them forge a proof.
	FOR t IN SELECT format('fenceproxy.%I', c.relname) AS name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
		FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.relnamespace = 'fenceproxy'::regnamespace AND c.relkind = 'S' AND starts_with(c.relname, 'proven_') AND a.grantee <> c.relowner
	LOOP
		EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM %s', t.name, t.grantee);
	END LOOP;
END
$fenceproxy_function$;

-- For new tables, where a superuser made the event trigger.
CREATE OR REPLACE FUNCTION fenceproxy.protect_new_tables() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $fenceproxy_function$
DECLARE
	touched oid[] := ARRAY(SELECT d.objid FROM pg_event_trigger_ddl_commands() d
		WHERE d.classid = 'pg_namespace'::regclass OR d.classid = 'pg_class'::regclass AND d.schema_name IS DISTINCT FROM 'pg_temp'
		AND (d.command_tag = 'ALTER TABLE' OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = d.objid)
			OR EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				JOIN fenceproxy.protection p ON n.nspname || :separator: || c.relname ~ p.match WHERE c.oid = d.objid)));
BEGIN
	IF touched <> '{}' THEN -- it takes a look at all tables
		PERFORM fenceproxy.apply_protection(touched);
	END IF;
END
$fenceproxy_function$;

GRANT SELECT ON fenceproxy.proof_key, fenceproxy.protection, fenceproxy.protected_table TO :role:;
` + privateSQL
