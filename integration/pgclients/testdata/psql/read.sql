\set VERBOSITY verbose
\pset pager off
\conninfo
\d
\d+ c
\dt+
\df
\sf f
\sv v
\dn
\dp
\dD
\dT
\l :DBNAME
select * from c order by id limit 3;
prepare p (int) as select name from c where id = $1;
execute p (2);
begin;
declare x cursor for select id from c order by id;
fetch 2 from x;
select 1/0;
rollback;
\set FETCH_COUNT 4
select id, name from v order by id;
\set FETCH_COUNT 0
\copy c to 'copied.tsv'
\! cksum copied.tsv
\copy (select id, name from c order by id limit 2) to stdout
copy c (id) to stdout;
select 1 \; select 2;
explain (costs off) select * from c where id = 1;
select count(*) as rows from c \gset
\echo :rows
select count(*) as rows from c \gdesc
select id % 2 as parity, id % 3 as rest, count(*) from c group by 1, 2 order by 1, 2 \crosstabview
listen l;
set application_name = 'another';
show application_name;
begin isolation level repeatable read read only;
select count(*) from c;
commit;
discard all;
select length(t), md5(t) from big;
selec 1;
select * frm c;
\c
select 'reconnected';
\echo
\echo done
