\set VERBOSITY verbose
\pset pager off
\conninfo
create table c (id int primary key, name text, at timestamptz default '2020-01-01', doc jsonb, raw bytea, n numeric(12,3), tags text[]);
comment on table c is 'a table';
create index on c (name);
create view v as select id, name from c where id < 5;
create function f(int) returns int language sql immutable as 'select $1 + 1';
create sequence s start 5;
create type mood as enum ('sad', 'ok');
create domain positive as int check (value > 0);
insert into c (id, name, doc, raw, n, tags) select g, 'n' || g, jsonb_build_object('g', g), decode(repeat('ab00', g), 'hex'), g * 1.5, array['a', null, 'b' || g] from generate_series(1, 20) g;

-- copy, both ways
\copy c (id, name) from stdin
21	twenty-one
22	\N
\.
\copy (select id, name from c order by id limit 2) to stdout
\copy c (id, name, n) to 'copied.tsv'
create table d (id int, name text, n numeric);
\copy d from 'copied.tsv'
\copy d (id, name) from program 'printf "100,x\n101,y\n"' with (format csv)
\copy d to program 'sort -n | tail -2'
\copy d (id) from stdin
1
not a number
\.
select count(*), sum(id), sum(n) from d;
copy c (id, name) from stdin;
23	twenty-three
\.
copy (select * from c order by id limit 3) to stdout with (format csv, header);
\copy (select id, raw from c order by id limit 2) to 'copied.bin' with binary
create table e (id int, raw bytea);
\copy e from 'copied.bin' with binary
table e;

-- queries, errors, transactions
select * from c order by id limit 3;
\x
select * from c where id = 20;
\x
select * from c where id > 20 order by id;
begin;
update c set name = upper(name) where id = 1 returning *;
savepoint a;
insert into c values (1, 'again');
select 1;
rollback to a;
select name from c where id = 1;
commit;
commit;
\errverbose
select 1/0;
\errverbose
insert into nowhere values (1);
selec 1;
select f('x');
\set ON_ERROR_ROLLBACK on
begin;
select 1/0;
insert into d values (7);
commit;
\set ON_ERROR_ROLLBACK off
\set AUTOCOMMIT off
insert into d values (8);
rollback;
\set AUTOCOMMIT on
select 1 \; select 2 \; update c set name = 'z' where id = 3;
insert into d values (9) \; select 1/0 \; insert into d values (10);
select count(*) from d where id in (7, 8, 9, 10);
begin \; insert into d values (11) \; commit \; select 'after' as commit;

-- prepared statements, cursors
prepare p (int) as select name from c where id = $1;
execute p (2);
deallocate all;
execute p (2);
select name from c where id = 7;
update c set n = 12.5 where id = 4 returning n;
begin;
declare x cursor for select id from c order by id;
fetch 2 from x;
move 3 in x;
fetch backward 1 from x;
commit;
declare y cursor with hold for select id from c order by id;
fetch 2 from y;
close y;
\set FETCH_COUNT 4
select id, name from c order by id;
select id, 1 / (5 - id) as quotient from c order by id;
\set FETCH_COUNT 0

-- settings
discard all;
update c set name = 'after discard all' where id = 4 returning name;
set default_transaction_read_only = on;
update c set name = 'no' where id = 5;
reset default_transaction_read_only;
update c set name = 'yes' where id = 5 returning name;
begin read only;
update c set name = 'no' where id = 5;
rollback;
set application_name = 'another';
show application_name;
\encoding LATIN1
select 'ä' as latin1;
\encoding UTF8
show client_encoding;
set search_path = pg_catalog;
\dt
reset search_path;

-- notifications and notices
listen l;
notify l, 'hello';
select pg_notify('l', 'and again');
do $$ begin raise notice 'a notice' using detail = 'its detail', hint = 'its hint'; raise warning 'a warning'; end $$;
do $$ begin raise exception 'mine' using errcode = 'MY001', detail = 'd', hint = 'h', table = 't', column = 'c'; end $$;
drop table if exists nothing;

-- psql's own commands
select count(*), sum(id) from c;
select 42 as answer \gset
\echo :answer :ROW_COUNT :SQLSTATE :ERROR
select 1/0;
\echo :ROW_COUNT :SQLSTATE :LAST_ERROR_SQLSTATE :LAST_ERROR_MESSAGE
select format('create table g%s (i int)', i) from generate_series(1, 3) i \gexec
select format('drop table g%s', i) from generate_series(1, 3) i \gexec
select id, name, doc, raw from c where id = 2 \gdesc
select id from c order by id limit 3 \g (format=csv)
select id % 2 as parity, id % 3 as rest, count(*) from c group by 1, 2 order by 1, 2 \crosstabview
create table counter as select 3 as n;
update counter set n = n - 1 returning 6 / n as left \watch 0.05
select n from counter;
\d
\d c
\d+ c
\d v
\d s
\dt+ c
\di
\dv
\ds
\df f
\sf f
\sv v
\dT mood
\dD
\dn
\du app
\dp c
\l :DBNAME
\dx
\db
\dconfig default_transaction_read_only
\! printf 'a file' > large.txt
\lo_import large.txt
\set oid :LASTOID
\lo_export :oid large.out
\! cat large.out; echo
select convert_from(lo_get(:oid), 'UTF8');
\lo_unlink :oid
\z d

-- a large value there and back
select length(repeat('x', 5000000)), md5(repeat('x', 5000000));
select repeat('y', 300000) as big \gset
create table big as select :'big'::text as t;
select length(t), md5(t) from big;
select string_agg(md5(i::text), '') from generate_series(1, 200000) i \g big.out
\! cat big.out | cksum
insert into written values ('session');
select :'DBNAME', :'USER', :SERVER_VERSION_NUM > 0;
\c
select 'reconnected';
\conninfo
\echo
\echo done
