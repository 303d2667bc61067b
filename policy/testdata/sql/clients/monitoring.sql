-- What a client sends that only reads. A line of %% parts two texts.
-- Monitoring and dashboards: the kinds of queries that exporters, Grafana, Metabase, pgAdmin, DBeaver and DataGrip send.
SELECT pid, usename, application_name, client_addr, state, wait_event_type, wait_event, age(clock_timestamp(), query_start), left(query, 100) FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()
%%
SELECT datname, pg_size_pretty(pg_database_size(datname)), numbackends, xact_commit, xact_rollback, blks_hit::float / nullif(blks_hit + blks_read, 0), temp_bytes, deadlocks, stats_reset FROM pg_stat_database
%%
SELECT CASE WHEN pg_catalog.has_database_privilege(d.datname, 'CONNECT') THEN pg_catalog.pg_database_size(d.datname) ELSE 0 END FROM pg_catalog.pg_database d WHERE NOT datistemplate
%%
SELECT schemaname, relname, seq_scan, idx_scan, n_live_tup, n_dead_tup, last_autovacuum, pg_total_relation_size(relid) FROM pg_stat_user_tables ORDER BY 8 DESC LIMIT 20
%%
SELECT locktype, mode, granted, count(*) FROM pg_locks l LEFT JOIN pg_database d ON d.oid = l.database GROUP BY 1, 2, 3
%%
SELECT a.pid, pg_blocking_pids(a.pid), a.query FROM pg_stat_activity a WHERE cardinality(pg_blocking_pids(a.pid)) > 0
%%
SELECT CASE WHEN pg_is_in_recovery() THEN extract(epoch FROM now() - pg_last_xact_replay_timestamp()) ELSE 0 END AS lag, pg_postmaster_start_time(), pg_conf_load_time()
%%
SELECT slot_name, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots
%%
SELECT *, (CASE pg_is_in_recovery() WHEN 't' THEN NULL ELSE pg_current_wal_lsn() END) AS pg_current_wal_lsn, (CASE pg_is_in_recovery() WHEN 't' THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), pg_lsn('0/0'))::float END) FROM pg_stat_replication
%%
SELECT datname, age(datfrozenxid), mxid_age(datminmxid), current_setting('autovacuum_freeze_max_age')::int FROM pg_database
%%
SELECT c.oid::regclass, greatest(age(c.relfrozenxid), age(t.relfrozenxid)) FROM pg_class c LEFT JOIN pg_class t ON c.reltoastrelid = t.oid WHERE c.relkind IN ('r', 'm')
%%
SELECT name, setting, COALESCE(unit, ''), short_desc, vartype FROM pg_settings WHERE vartype IN ('bool', 'integer', 'real') AND name != 'sync_commit_cancel_wait'
%%
SELECT checkpoints_timed, buffers_checkpoint, maxwritten_clean, stats_reset FROM pg_stat_bgwriter
%%
SELECT queryid, calls, total_exec_time, rows, query FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY total_exec_time DESC LIMIT 100
%%
SELECT count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE wait_event IS NOT NULL) FROM pg_stat_get_activity(NULL)
%%
SELECT (SELECT count(*) FROM pg_ls_waldir()), (SELECT sum(size) FROM pg_ls_waldir()), pg_walfile_name(pg_current_wal_lsn())
%%
/*pga4dash*/
SELECT 'session_stats' AS chart_name, pg_catalog.row_to_json(t) AS chart_data FROM (SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity) AS "Total") t
UNION ALL
SELECT 'tps_stats', pg_catalog.row_to_json(t) FROM (SELECT (SELECT sum(xact_commit) + sum(xact_rollback) FROM pg_catalog.pg_stat_database) AS "Transactions") t
%%
SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings() WHERE name = 'bytea_output'; SET client_encoding='UTF8';
%%
SELECT rel.oid, rel.relname, pg_catalog.obj_description(rel.oid, 'pg_class'), pg_catalog.pg_get_userbyid(rel.relowner), substring(pg_catalog.array_to_string(rel.reloptions, ',') FROM 'fillfactor=([0-9]*)'), pg_catalog.has_table_privilege(rel.oid, 'SELECT') FROM pg_catalog.pg_class rel WHERE rel.relkind IN ('r','s','t','p')
%%
SELECT n.nspname, has_schema_privilege(n.oid, 'USAGE'), has_sequence_privilege(c.oid, 'USAGE') FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'S' WHERE n.nspname NOT LIKE E'pg\\_%'
%%
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid, true), col_description(a.attrelid, a.attnum), a.attnotnull FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum) WHERE a.attrelid = 'orders'::regclass AND a.attnum > 0
%%
SELECT pg_get_viewdef(c.oid, true), pg_get_indexdef(i.indexrelid, 0, true), pg_get_constraintdef(k.oid), pg_get_functiondef(p.oid), pg_get_triggerdef(t.oid), pg_get_ruledef(r.oid), pg_get_serial_sequence('orders', 'id') FROM pg_class c, pg_index i, pg_constraint k, pg_proc p, pg_trigger t, pg_rewrite r LIMIT 0
%%
SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=$1 AND c.relkind NOT IN ('i','I','c')
%%
select case when pg_catalog.pg_is_in_recovery() then null else (pg_catalog.txid_current() % (2^32)::bigint)::varchar::bigint end as current_txid
%%
select N.oid::bigint as id, N.xmin as state_number, nspname as name, D.description, pg_catalog.pg_get_userbyid(N.nspowner) as "owner" from pg_catalog.pg_namespace N left join pg_catalog.pg_description D on N.oid = D.objoid order by case when nspname = pg_catalog.current_schema() then -1::bigint else N.oid::bigint end
%%
SHOW TRANSACTION ISOLATION LEVEL
%%
SELECT current_database(), current_schema(), session_user, current_user, version(), inet_server_addr(), inet_server_port(), current_setting('server_version_num')::int
%%
SELECT floor(extract(epoch FROM at) / 60) * 60 AS "time", count(*) AS value FROM orders WHERE at BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-02T00:00:00Z' GROUP BY 1 ORDER BY 1
%%
SELECT date_trunc('month', "source"."at") AS "at", CAST(SUM("source"."total") AS float) AS "sum" FROM (SELECT "public"."orders"."at" AS "at", "public"."orders"."total" AS "total" FROM "public"."orders") AS "source" GROUP BY date_trunc('month', "source"."at") ORDER BY date_trunc('month', "source"."at") ASC
%%
SELECT g::date, coalesce(sum(o.total), 0), percentile_cont(0.95) WITHIN GROUP (ORDER BY o.total) FROM generate_series('2024-01-01'::date, '2024-02-01', '1 day') g LEFT JOIN orders o ON o.at::date = g::date GROUP BY 1
%%
SELECT doc->'a'->>'b', doc #>> '{a,b}', doc @> '{"a":1}', jsonb_path_query_array(doc, '$.a[*]'), jsonb_build_object('a', 1), json_agg(o), string_agg(id::text, ',' ORDER BY id) FROM orders o GROUP BY doc
%%
SELECT * FROM jsonb_to_recordset('[{"a":1}]') AS x(a int), jsonb_array_elements('[1]') e, jsonb_each_text('{"a":1}'), unnest(ARRAY[1,2]) WITH ORDINALITY, regexp_split_to_table('a b', ' '), xmltable('/a' PASSING ('<a>1</a>'::xml) COLUMNS b int PATH '.')
%%
SELECT to_tsvector('simple', 'a b') @@ websearch_to_tsquery('simple', 'a'), ts_rank(to_tsvector('a'), to_tsquery('a')), ts_headline('a b', to_tsquery('a')), similarity('a', 'b')
%%
CLOSE ALL;UNLISTEN *;SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP;RESET ALL;SET SESSION AUTHORIZATION DEFAULT
%%
SELECT 1 /* a comment that a tracing library adds */ -- traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01'
