-- What a client sends that only reads. A line of %% parts two texts.
-- ActiveRecord 6.1: introspection, schema dump, batches.
SET client_min_messages TO 'warning'
%%
SET standard_conforming_strings = on
%%
SET intervalstyle = iso_8601
%%
SET SESSION timezone TO 'UTC'
%%
SELECT t.oid, t.typname
FROM pg_type as t
WHERE t.typname IN ('int2', 'int4', 'int8', 'oid', 'float4', 'float8', 'numeric', 'bool', 'timestamp', 'timestamptz')
%%
SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput, r.rngsubtype, t.typtype, t.typbasetype
FROM pg_type as t
LEFT JOIN pg_range as r ON oid = rngtypid
WHERE
  t.typname IN ('int2', 'int4', 'int8', 'oid', 'float4', 'float8', 'text', 'varchar', 'char', 'name', 'bpchar', 'bool', 'bit', 'varbit', 'timestamptz', 'date', 'money', 'bytea', 'point', 'hstore', 'json', 'jsonb', 'cidr', 'inet', 'uuid', 'xml', 'tsvector', 'macaddr', 'citext', 'ltree', 'line', 'lseg', 'box', 'path', 'polygon', 'circle', 'time', 'timestamp', 'numeric', 'interval')
  OR t.typtype IN ('r', 'e', 'd')
  OR t.typinput = 'array_in(cstring,oid,integer)'::regprocedure
  OR t.typelem != 0
%%
SHOW TIME ZONE
%%
SELECT 1
%%
SELECT c.relname FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind IN ('r','p')
%%
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
       pg_get_expr(d.adbin, d.adrelid), a.attnotnull, a.atttypid, a.atttypmod,
       c.collname, col_description(a.attrelid, a.attnum) AS comment
  FROM pg_attribute a
  LEFT JOIN pg_attrdef d ON a.attrelid = d.adrelid AND a.attnum = d.adnum
  LEFT JOIN pg_type t ON a.atttypid = t.oid
  LEFT JOIN pg_collation c ON a.attcollation = c.oid AND a.attcollation <> t.typcollation
 WHERE a.attrelid = '"parted"'::regclass
   AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum
%%
SELECT distinct i.relname, d.indisunique, d.indkey, pg_get_indexdef(d.indexrelid), t.oid,
                pg_catalog.obj_description(i.oid, 'pg_class') AS comment
FROM pg_class t
INNER JOIN pg_index d ON t.oid = d.indrelid
INNER JOIN pg_class i ON d.indexrelid = i.oid
LEFT JOIN pg_namespace n ON n.oid = i.relnamespace
WHERE i.relkind IN ('i', 'I')
  AND d.indisprimary = 'f'
  AND t.relname = 'parted'
  AND n.nspname = ANY (current_schemas(false))
ORDER BY i.relname
%%
SELECT t2.oid::regclass::text AS to_table, a1.attname AS column, a2.attname AS primary_key, c.conname AS name, c.confupdtype AS on_update, c.confdeltype AS on_delete, c.convalidated AS valid
FROM pg_constraint c
JOIN pg_class t1 ON c.conrelid = t1.oid
JOIN pg_class t2 ON c.confrelid = t2.oid
JOIN pg_attribute a1 ON a1.attnum = c.conkey[1] AND a1.attrelid = t1.oid
JOIN pg_attribute a2 ON a2.attnum = c.confkey[1] AND a2.attrelid = t2.oid
JOIN pg_namespace t3 ON c.connamespace = t3.oid
WHERE c.contype = 'f'
  AND t1.relname = 'parted'
  AND t3.nspname = ANY (current_schemas(false))
ORDER BY c.conname
%%
SELECT a.attname
  FROM (
         SELECT indrelid, indkey, generate_subscripts(indkey, 1) idx
           FROM pg_index
          WHERE indrelid = '"parted"'::regclass
            AND indisprimary
       ) i
  JOIN pg_attribute a
    ON a.attrelid = i.indrelid
   AND a.attnum = i.indkey[i.idx]
 ORDER BY i.idx
%%
SELECT pg_catalog.obj_description(c.oid, 'pg_class')
FROM pg_catalog.pg_class c
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'parted'
  AND c.relkind IN ('r','p')
  AND n.nspname = ANY (current_schemas(false))
%%
SELECT conname, pg_get_constraintdef(c.oid) AS constraintdef, c.convalidated AS valid
            FROM pg_constraint c
            JOIN pg_class t ON c.conrelid = t.oid
            WHERE c.contype = 'c'
              AND t.relname = 'parted'
%%
SELECT attr.attname, nsp.nspname, seq.relname
FROM pg_class      seq,
     pg_attribute  attr,
     pg_depend     dep,
     pg_constraint cons,
     pg_namespace  nsp
WHERE seq.oid           = dep.objid
  AND seq.relkind       = 'S'
  AND attr.attrelid     = dep.refobjid
  AND attr.attnum       = dep.refobjsubid
  AND attr.attrelid     = cons.conrelid
  AND attr.attnum       = cons.conkey[1]
  AND seq.relnamespace  = nsp.oid
  AND cons.contype      = 'p'
  AND dep.classid       = 'pg_class'::regclass
  AND dep.refobjid      = '"parted"'::regclass
%%
SELECT attr.attname, nsp.nspname,
  CASE
    WHEN pg_get_expr(def.adbin, def.adrelid) !~* 'nextval' THEN NULL
    WHEN split_part(pg_get_expr(def.adbin, def.adrelid), '''', 2) ~ '.' THEN
      substr(split_part(pg_get_expr(def.adbin, def.adrelid), '''', 2),
             strpos(split_part(pg_get_expr(def.adbin, def.adrelid), '''', 2), '.')+1)
    ELSE split_part(pg_get_expr(def.adbin, def.adrelid), '''', 2)
  END
FROM pg_class       t
JOIN pg_attribute   attr ON (t.oid = attrelid)
JOIN pg_attrdef     def  ON (adrelid = attrelid AND adnum = attnum)
JOIN pg_constraint  cons ON (conrelid = adrelid AND adnum = conkey[1])
JOIN pg_namespace   nsp  ON (t.relnamespace = nsp.oid)
WHERE t.oid = '"parted"'::regclass
  AND cons.contype = 'p'
  AND pg_get_expr(def.adbin, def.adrelid) ~* 'nextval|uuid_generate'
%%
SELECT a.attnum, a.attname
FROM pg_attribute a
WHERE a.attrelid = 19327
AND a.attnum IN (6)
%%
SHOW max_identifier_length
%%
SHOW search_path
%%
SELECT "orders".* FROM "orders" ORDER BY "orders"."id" ASC LIMIT $1
%%
SELECT COUNT(*) FROM "orders" WHERE "orders"."id" = $1
%%
BEGIN
%%
SELECT COUNT(*) FROM "orders"
%%
SAVEPOINT active_record_1
%%
SELECT 1 AS one FROM "orders" WHERE "orders"."id" = $1 LIMIT $2
%%
RELEASE SAVEPOINT active_record_1
%%
COMMIT
%%
SELECT "orders".* FROM "orders" WHERE "orders"."id" > $1 ORDER BY "orders"."id" ASC LIMIT $2
%%
SELECT extname FROM pg_extension
%%
SELECT nspname
  FROM pg_namespace
 WHERE nspname !~ '^pg_.*'
   AND nspname NOT IN ('information_schema')
 ORDER by nspname;
%%
SELECT current_database()
%%
SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()
%%
SELECT datcollate FROM pg_database WHERE datname = current_database()
%%
SELECT true FROM pg_available_extensions WHERE name = 'hstore'
%%
select 1
%%
SHOW client_min_messages
%%
SELECT c.relname FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ANY (current_schemas(false)) AND c.relname = 'schema_migrations' AND c.relkind IN ('r','v','m','p','f')
%%
DEALLOCATE a1
%%
DISCARD ALL
