-- What a client sends that only reads. A line of %% parts two texts.
-- psycopg 3.1 and psycopg2 2.9: types, cursors, COPY, transaction modes.
BEGIN
%%
SELECT
    typname AS name, oid, typarray AS array_oid,
    oid::regtype::text AS regtype, typdelim AS delimiter
FROM pg_type t
WHERE t.oid = $1::regtype
ORDER BY t.oid
%%
COMMIT
%%
SELECT name, oid, array_oid, array_agg(label) AS labels
FROM (
    SELECT
        t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
        e.enumlabel AS label
    FROM pg_type t
    LEFT JOIN  pg_enum e
    ON e.enumtypid = t.oid
    WHERE t.oid = $1::regtype
    ORDER BY e.enumsortorder
) x
GROUP BY name, oid, array_oid
%%
SELECT
    t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
    t.oid::regtype::text AS regtype,
    coalesce(a.fnames, '{}') AS field_names,
    coalesce(a.ftypes, '{}') AS field_types
FROM pg_type t
LEFT JOIN (
    SELECT
        attrelid,
        array_agg(attname) AS fnames,
        array_agg(atttypid) AS ftypes
    FROM (
        SELECT a.attrelid, a.attname, a.atttypid
        FROM pg_attribute a
        JOIN pg_type t ON t.typrelid = a.attrelid
        WHERE t.oid = $1::regtype
        AND a.attnum > 0
        AND NOT a.attisdropped
        ORDER BY a.attnum
    ) x
    GROUP BY attrelid
) a ON a.attrelid = t.typrelid
WHERE t.oid = $1::regtype
%%
SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
    t.oid::regtype::text AS regtype,
    r.rngsubtype AS subtype_oid
FROM pg_type t
JOIN pg_range r ON t.oid = r.rngtypid
WHERE t.oid = $1::regtype
%%
SELECT t.typname AS name, t.oid AS oid, t.typarray AS array_oid,
    t.oid::regtype::text AS regtype,
    r.rngtypid AS range_oid, r.rngsubtype AS subtype_oid
FROM pg_type t
JOIN pg_range r ON t.oid = r.rngmultitypid
WHERE t.oid = $1::regtype
%%
select * from orders where id=$1
%%
DECLARE "big" CURSOR FOR select generate_series(1,30)
%%
FETCH FORWARD 5 FROM "big"
%%
MOVE 2 FROM "big"
%%
FETCH FORWARD ALL FROM "big"
%%
CLOSE "big"
%%
SAVEPOINT "_pg3_1"
%%
select 1
%%
RELEASE "_pg3_2"
%%
COPY orders TO STDOUT
%%
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE
%%
SELECT t.oid, typarray
FROM pg_type t JOIN pg_namespace ns
    ON typnamespace = ns.oid
WHERE typname = 'hstore';
%%
ROLLBACK
%%
SELECT t.oid, typarray, attname, atttypid
FROM pg_type t
JOIN pg_namespace ns ON typnamespace = ns.oid
JOIN pg_attribute a ON attrelid = typrelid
WHERE typname = 'orders' AND nspname = 'public'
    AND attnum > 0 AND NOT attisdropped
ORDER BY attnum;
%%
SET default_transaction_read_only TO 'on'
%%
SET client_encoding TO 'LATIN1'
