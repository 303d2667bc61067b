-- A database with some of everything that pg_dump dumps.
create schema shop;
comment on schema shop is 'a shop';
create type shop.state as enum ('new', 'paid');
create type shop.address as (street text, city text);
create domain shop.amount as numeric(12,2) check (value >= 0);
create sequence shop.numbers start 100 increment 10;
create table shop.customer (
	id int generated always as identity primary key, name text not null unique, address shop.address,
	joined timestamptz default '2020-01-01', notes jsonb, photo bytea, tags text[], initials text generated always as (left(name, 2)) stored);
create table shop.orders (
	number int default nextval('shop.numbers') primary key, customer int not null references shop.customer on delete cascade,
	state shop.state not null default 'new', total shop.amount, at date not null, unique (customer, at));
create index on shop.orders (at) where state = 'new';
create table shop.log (at date not null, what text) partition by range (at);
create table shop.log_2020 partition of shop.log for values from ('2020-01-01') to ('2021-01-01');
create table shop.log_rest partition of shop.log default;
create view shop.open as select c.name, o.total from shop.orders o join shop.customer c on c.id = o.customer where o.state = 'new';
create materialized view shop.totals as select customer, sum(total) as total from shop.orders group by customer with no data;
create function shop.twice(i int) returns int language sql immutable return i * 2;
create function shop.touch() returns trigger language plpgsql as 'begin new.state := coalesce(new.state, ''new''); return new; end';
create trigger touch before insert on shop.orders for each row execute function shop.touch();
create procedure shop.noop() language sql as 'select 1';
create rule never as on delete to shop.log do instead nothing;
create aggregate shop.product(int) (sfunc = int4mul, stype = int, initcond = '1');
create statistics shop.correlated on customer, at from shop.orders;
create publication everything for table shop.orders;
alter table shop.customer enable row level security;
create policy everybody on shop.customer using (true);
alter default privileges in schema shop grant select on tables to public;
grant usage on schema shop to public;

insert into shop.customer (name, address, notes, photo, tags)
	select 'Name ' || i, ('Street ' || i, 'City')::shop.address, jsonb_build_object('i', i, 'nothing', null), decode(md5(i::text), 'hex'), array['a', null, 'b ' || i]
	from generate_series(1, 500) i;
insert into shop.customer (name) values (E'quotes '' " \\ \n \t and ümlaut');
insert into shop.orders (customer, total, at) select 1 + i % 500, i, '2020-01-01'::date + i from generate_series(1, 2000) i;
insert into shop.log select '2020-01-01'::date + i, repeat('x', i) from generate_series(1, 400) i;
refresh materialized view shop.totals;
create table shop.big as select i, md5(i::text) as a, repeat('y', 100) as b from generate_series(1, 30000) i;
select lo_from_bytea(20001, decode(repeat('00ff41', 10000), 'hex'));
select lo_from_bytea(20002, ''::bytea);
comment on large object 20001 is 'a large object';
