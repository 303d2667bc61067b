"""psycopg 3 and psycopg_pool; see script in transcript_test.go for the modes."""

import asyncio
import datetime
import decimal
import hashlib
import os
import sys
import threading
import uuid

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

TOKEN = os.environ["FENCE_TOKEN"]


def name(e):
    return f"{type(e).__module__}.{type(e).__qualname__}"


def show(what, f):
    """Prints a result, or the exception with what it carries."""
    try:
        got = str(f())
        print(f"{what}: {got if len(got) < 2000 else hashlib.sha256(got.encode()).hexdigest()}")
    except psycopg.Error as e:
        d = e.diag
        print(f"{what}: {name(e)} {e.sqlstate} {d.severity} {d.message_primary} | {d.message_detail} | {d.message_hint}"
              f" | {d.statement_position} {d.schema_name} {d.table_name} {d.column_name} {d.constraint_name} | {str(e)!r}")


def note(conn):
    conn.add_notice_handler(lambda d: print(f"notice: {d.severity} {d.sqlstate} {d.message_primary} | {d.message_detail} | {d.message_hint}"))
    return conn


def reads(conn):
    def all(q, *args, **kw):
        return conn.execute(q, *args, **kw).fetchall()

    show("server", lambda: (conn.info.dbname, conn.info.user, conn.info.server_version // 10000, conn.info.transaction_status.name))
    for p in ("server_encoding", "client_encoding", "DateStyle", "TimeZone", "integer_datetimes", "standard_conforming_strings", "in_hot_standby", "is_superuser", "session_authorization"):
        show(p, lambda: conn.info.parameter_status(p))
    for binary in (False, True):
        show("types", lambda: all("""select 1, 2::bigint, 1.5::float8, 12345678901234567890.123456789::numeric, 'text', null, true,
            '\\x00ff'::bytea, array[1, null, 3], array[['a', 'b'], ['c', null]], '{"a": [1, null]}'::jsonb, '2020-02-29'::date,
            '2020-02-29 12:34:56.789+00'::timestamptz, '12:34'::time, '1 day 2 hours'::interval, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid,
            '10.0.0.0/8'::cidr, int4range(1, 5), (1, 'x')::text""", binary=binary))
        show("parameters", lambda: conn.cursor(binary=binary).execute("select %s, %s, %b, %s, %s, %s, %s, %s, %s, %s", (
            1, "t", b"\0\xff", None, decimal.Decimal("1.10"), [1, None, 2], datetime.date(2020, 1, 2),
            datetime.datetime(2020, 1, 2, 3, 4, tzinfo=datetime.timezone.utc), uuid.UUID(int=5), Jsonb({"k": [1]}))).fetchall())
    show("prepared", lambda: [all("select id, name from t where id = %s", (i,), prepare=True) for i in (1, 2, 999)])
    show("often", lambda: [all("select count(*) from t where id > %s", (i,)) for i in range(10)])
    show("several", lambda: [r.fetchall() for r in several(conn, "select 1; select 'two'; select 3 where false")])
    show("divide", lambda: all("select 1 / 0"))
    show("nowhere", lambda: all("select * from nowhere"))
    show("bad value", lambda: all("select %s::int", ("x",)))
    show("status", lambda: conn.info.transaction_status.name)

    def streamed():
        return sum(r[0] for r in conn.cursor().stream("select i from generate_series(1, 5000) i"))
    show("stream", streamed)

    def cursor():
        with conn.transaction(), conn.cursor("named", scrollable=True) as c:
            c.execute("select id from t order by id")
            got = [c.fetchone(), c.fetchmany(2)]
            c.scroll(1)
            return got + [c.fetchall()]
    show("cursor", cursor)
    show("dict", lambda: conn.cursor(row_factory=dict_row).execute("select id, name from t order by id limit 1").fetchone())

    def copy_out():
        with conn.cursor().copy("copy (select id, name, raw from t order by id) to stdout") as c:
            return list(c.rows())
    show("copy out", copy_out)

    def copy_binary():
        with conn.cursor().copy("copy (select id from t order by id) to stdout (format binary)") as c:
            return b"".join(c)
    show("copy out, binary", copy_binary)

    show("after", lambda: all("select 'still here'"))

    def pipeline():
        with conn.pipeline() as p:
            cs = [conn.execute("select %s::int * 2", (i,)) for i in range(5)]
            p.sync()
            return [c.fetchall() for c in cs]
    show("pipeline", pipeline)

    def failing():
        with conn.pipeline() as p:
            a = conn.execute("select 1")
            conn.execute("select 1 / 0")
            conn.execute("select 3")
            p.sync()
        return a
    show("pipeline that fails", failing)
    show("large", lambda: all("select length(%s), md5(%s)", ("x" * 3_000_000, "y" * 3_000_000)))
    show("large back", lambda: len(all("select repeat('z', 3000000)")[0][0]))

    conn.execute("set statement_timeout = 100")
    show("timeout", lambda: all("select pg_sleep(600)"))
    conn.execute("reset statement_timeout")
    with conn.transaction():
        conn.execute("set transaction isolation level serializable read only")
        show("serializable", lambda: all("select count(*), current_setting('transaction_isolation') from t"))
    show("notice", lambda: all("select 1 from t where id = 1"))
    conn.execute("listen l")
    conn.execute("unlisten *")
    conn.execute("set application_name = 'other'")
    show("application_name", lambda: (all("show application_name"), conn.info.parameter_status("application_name")))
    conn.execute("discard all")
    show("application_name", lambda: all("show application_name"))

    # Last: for one cancel the server signals its process twice, and the second may come late.
    def canceled():
        t = threading.Thread(target=cancel_sleep, args=(conn,))
        t.start()
        try:
            return all("select pg_sleep(600)")
        finally:
            t.join()
    show("cancel", canceled)
    show("next", lambda: all("select 'next'"))


def cancel_sleep(conn):
    """Cancels the connection's query once it sleeps."""
    with psycopg.connect(autocommit=True) as other:
        while not other.execute("select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'", (conn.info.backend_pid,)).fetchall():
            pass
    conn.cancel()


def several(conn, q):
    c = conn.execute(q)
    yield c
    while c.nextset():
        yield c


def session():
    conn = note(psycopg.connect(autocommit=True))

    def all(q, *args, **kw):
        return conn.execute(q, *args, **kw).fetchall()

    def many(c, q, rows):
        c.executemany(q, rows)
        return c.rowcount

    show("parameter", lambda: conn.info.parameter_status("default_transaction_read_only"))
    conn.execute("drop table if exists t")
    conn.execute("""create table t (id int primary key, name text, raw bytea, n numeric, tags text[], doc jsonb, at timestamptz)""")
    with conn.cursor() as c:
        show("insert", lambda: (c.execute("insert into t values (%s, %s, %s, %s, %s, %s, %s) returning id, n", (
            1, "one", b"\0\1\xfe", decimal.Decimal("1.50"), ["a", None, "c"], Jsonb({"a": None}),
            datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc))).fetchall(), c.statusmessage, c.rowcount))
        show("many", lambda: many(c, "insert into t (id, name) values (%s, %s)", [(i, f"n{i}") for i in range(2, 12)]))
        show("many returning", lambda: c.executemany("update t set name = upper(name) where id = %s returning name", [(2,), (3,)], returning=True))
        show("many that fails", lambda: many(c, "insert into t (id) values (%s)", [(100,), (1,), (101,)]))
        show("count", lambda: all("select count(*) from t"))
    show("rows", lambda: all("select * from t order by id limit 2"))

    def copy_in(rows, how=""):
        c = conn.cursor()
        with c.copy(f"copy t (id, name) from stdin{how}") as w:
            if how:
                w.set_types(["int4", "text"])
            for r in rows:
                w.write_row(r)
        return c.rowcount
    show("copy in", lambda: copy_in([(i, f"c{i}") for i in range(20, 2020)]))
    show("copy in, binary", lambda: copy_in([(3000, "b"), (3001, None)], " (format binary)"))
    show("copy in that fails", lambda: copy_in([(4000, "x"), (1, "again")]))

    def given_up():
        with conn.cursor().copy("copy t (id) from stdin") as w:
            w.write(b"5000\n")
            raise KeyError("mine")
    show("copy in, given up", given_up)
    print("status:", conn.info.transaction_status.name)
    show("count", lambda: all("select count(*) from t"))

    def transaction(inner):
        with conn.transaction():
            conn.execute("update t set name = 'in' where id = 1")
            try:
                with conn.transaction():
                    conn.execute("update t set name = 'inner' where id = 2")
                    inner()
            except psycopg.Error as e:
                print("inner:", name(e), e.sqlstate)
        return all("select name from t where id in (1, 2) order by id")
    show("savepoint", lambda: transaction(lambda: conn.execute("select 1")))
    show("savepoint, back", lambda: transaction(lambda: conn.execute("insert into t (id) values (1)")))

    def back():
        with conn.transaction(force_rollback=True):
            conn.execute("delete from t")
        return all("select count(*) from t")
    show("rollback", back)
    show("two phases", lambda: (conn.tpc_begin("x"), conn.execute("select 1").fetchall(), conn.tpc_rollback()))
    show("check", lambda: conn.execute("alter table t add constraint positive check (id > 0); insert into t (id) values (-1)"))
    show("notices", lambda: conn.execute("do $$ begin raise notice 'hello' using hint = 'h'; raise warning 'careful'; end $$").statusmessage)
    show("raise", lambda: conn.execute("do $$ begin raise exception 'mine' using errcode = 'MY001', detail = 'd'; end $$"))

    def pipeline():
        with conn.pipeline() as p:
            conn.execute("update t set name = 'p1' where id = 1")
            c = conn.execute("select name from t where id = 1")
            p.sync()
            conn.execute("insert into t (id) values (6000)")
            got = c.fetchall()
        return got
    show("pipeline", pipeline)

    def aborted():
        with conn.pipeline() as p:
            conn.execute("insert into t (id) values (7000)")
            try:
                conn.execute("insert into t (id) values (1)")
                p.sync()
            except psycopg.Error as e:
                print("aborted:", name(e), e.sqlstate)
            p.sync()
            return conn.execute("select count(*) from t where id = 7000").fetchall()
    show("pipeline, aborted", aborted)

    def notifications():
        got = []
        conn.add_notify_handler(lambda n: got.append((n.channel, n.payload, n.pid == conn.info.backend_pid)))
        conn.execute("listen l")
        conn.execute("notify l, 'payload'")
        with psycopg.connect(autocommit=True) as other:
            other.execute("notify l, 'of another'")
        while len(got) < 2:
            conn.execute("select 1")
        return got
    show("notify", notifications)
    show("temporary", lambda: (conn.execute("create temp table tmp on commit drop as select 1").statusmessage))
    reads(conn)
    show("after discard all", lambda: conn.execute("update t set name = 'again' where id = 5 returning name").fetchall())
    conn.close()
    show("closed", lambda: conn.execute("select 1"))

    implicit = note(psycopg.connect())
    implicit.execute("insert into written values ('implicit')")
    print("status:", implicit.info.transaction_status.name)
    implicit.rollback()
    implicit.read_only = True
    show("read only", lambda: implicit.execute("insert into written values ('no')"))
    implicit.rollback()
    implicit.read_only = None
    implicit.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    show("serializable", lambda: implicit.execute("insert into written values ('session') returning what").fetchall())
    implicit.commit()
    show("written", lambda: implicit.execute("select what from written order by 1").fetchall())
    implicit.close()

    async def work():
        async with await psycopg.AsyncConnection.connect(autocommit=True) as a:
            cur = await a.execute("select count(*) from t")
            print("async:", await cur.fetchall())
            task = asyncio.create_task(a.execute("select pg_sleep(600)"))
            await asyncio.to_thread(cancel_sleep, a)
            try:
                await task
            except psycopg.Error as e:
                print("async cancel:", name(e), e.sqlstate)
            cur = await a.execute("select 'next'")
            print("async:", await cur.fetchall())
    asyncio.run(work())

    with ConnectionPool("", min_size=1, max_size=4) as pool:
        def one(i, got):
            with pool.connection() as c:
                got.append(c.execute("select %s::int", (i,)).fetchone()[0])
        got = []
        threads = [threading.Thread(target=one, args=(i, got)) for i in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print("pool:", sorted(got))
    print("done")


def read():
    conn = note(psycopg.connect(autocommit=True))
    reads(conn)
    print("done")


def refused():
    conn = psycopg.connect(autocommit=True)

    def attempt(what, f):
        try:
            print(what, "passed:", f())
        except psycopg.Error as e:
            print(what, name(e), e.sqlstate, e.diag.message_primary)
        assert conn.execute("select 1").fetchone() == (1,), what

    def copy():
        with conn.cursor().copy("copy written from stdin") as w:
            w.write(b"stale\n")

    def pipeline():
        with conn.pipeline() as p:
            conn.execute("select 1")
            conn.execute("insert into written values ('stale')")
            p.sync()

    def block():
        with conn.transaction():
            conn.execute("select 1")
            conn.execute("insert into written values ('stale')")

    attempt("insert", lambda: conn.execute("insert into written values ('stale')"))
    attempt("parameters", lambda: conn.execute("insert into written values (%s)", ("stale",)))
    attempt("prepared", lambda: conn.execute("insert into written values (%s)", ("stale",), prepare=True))
    attempt("many", lambda: conn.cursor().executemany("insert into written values (%s)", [("stale",)] * 3))
    attempt("copy", copy)
    attempt("pipeline", pipeline)
    attempt("block", block)
    attempt("several", lambda: conn.execute("select 1; delete from written; select 2"))
    attempt("function", lambda: conn.execute("select pg_notify('l', 'x')"))
    attempt("ddl", lambda: conn.execute("create table x (i int)"))
    attempt("read write", lambda: conn.execute("set default_transaction_read_only = off"))
    attempt("server cursor", lambda: conn.cursor("c", withhold=True).execute("select what from written for update"))
    conn.autocommit = False
    conn.read_only = False
    try:
        conn.execute("insert into written values ('stale')")
    except psycopg.Error as e:
        print("read_only = False", name(e), e.sqlstate, e.diag.message_primary)
    print("done")


def ways():
    import urllib.parse

    def status(what, conn):
        print(f"{what}: {conn.execute('show fence.status').fetchone()[0]} {conn.execute('show fence.election').fetchone()[0]}".strip())
        conn.close()

    status("PGOPTIONS", psycopg.connect())
    del os.environ["PGOPTIONS"]
    status("none", psycopg.connect())
    status("options", psycopg.connect(options=f"-c fence.token={TOKEN}"))
    status("url", psycopg.connect("postgresql:///?options=" + urllib.parse.quote(f"-c fence.token={TOKEN}")))
    status("read-write", psycopg.connect(options=f"-c fence.token={TOKEN}", target_session_attrs="read-write"))
    conn = psycopg.connect(autocommit=True)
    conn.execute(sql.SQL("SET fence.token = {}").format(sql.Literal(TOKEN)))
    status("SET", conn)
    print("done")


def loss():
    token = TOKEN

    def options():
        return {"options": f"-c fence.token={token}"} if token else {}

    def ask(what):
        print(what, flush=True)
        return sys.stdin.readline().strip()

    def statement(conn):
        ask("@written")
        conn.execute("insert into written values ('lost too')")

    def commit(conn):
        ask("@written")
        conn.commit()

    def sleeping(conn):
        print("@sleeping", flush=True)
        conn.execute("select pg_sleep(600)")

    def copying(conn):
        with conn.cursor().copy("copy written from stdin") as w:
            w.write(b"lost too\n")
            ask("@written")
            for _ in range(10000):
                w.write(b"lost too\n" * 100)

    def pipeline(conn):
        with conn.pipeline() as p:
            ask("@written")
            conn.execute("insert into written values ('lost too')")
            conn.execute("insert into written values ('lost too')")
            p.sync()

    for variant in (statement, commit, sleeping, copying, pipeline):
        os.environ.pop("PGOPTIONS", None)
        with ConnectionPool("", min_size=1, max_size=1, kwargs=options()) as pool:
            try:
                with pool.connection() as conn:
                    conn.execute("insert into written values ('lost')")
                    variant(conn)
                print("lost", variant.__name__, "ok but should not")
            except psycopg.Error as e:
                print("lost", variant.__name__, name(e), e.sqlstate, "closed:", conn.closed, "broken:", conn.broken)
                # What libpq says of a COPY or a pipeline that breaks depends on the moment.
                print("told" if variant in (copying, pipeline) else "lost with", str(e).splitlines()[0])
            with pool.connection() as conn:
                print("again reads", conn.execute("select 1").fetchone())
                try:
                    if token:
                        conn.execute("insert into written values ('stale')")
                        print("again ok but should not")
                except psycopg.Error as e:
                    print("again", name(e), e.sqlstate, e.diag.message_primary)
                    conn.rollback()
        token = ask("@again")
        with psycopg.connect(**options()) as conn:
            conn.execute("insert into written values ('kept')")
        print("again writes")


{"session": session, "read": read, "refused": refused, "ways": ways, "loss": loss}[sys.argv[1]]()
