"""psycopg2 and its pool; see script in transcript_test.go for the modes."""

import datetime
import decimal
import hashlib
import io
import os
import select
import sys
import threading
import uuid

import psycopg2
import psycopg2.extras
import psycopg2.pool
from psycopg2 import sql
from psycopg2.extensions import ISOLATION_LEVEL_SERIALIZABLE

TOKEN = os.environ["FENCE_TOKEN"]
psycopg2.extras.register_uuid()


def name(e):
    return f"{type(e).__module__}.{type(e).__qualname__}"


def show(what, f):
    try:
        got = str(f())
        print(f"{what}: {got if len(got) < 2000 else hashlib.sha256(got.encode()).hexdigest()}")
    except psycopg2.Error as e:
        d = e.diag
        print(f"{what}: {name(e)} {e.pgcode} {d.severity} {d.message_primary} | {d.message_detail} | {d.message_hint} | {d.statement_position}"
              f" {d.schema_name} {d.table_name} {d.column_name} {d.constraint_name} | {str(e)!r}")


def wait(conn):
    while True:
        state = conn.poll()
        if state == psycopg2.extensions.POLL_OK:
            return
        if state == psycopg2.extensions.POLL_READ:
            select.select([conn.fileno()], [], [])
        else:
            select.select([], [conn.fileno()], [])


def opened(autocommit=True, **kw):
    conn = psycopg2.connect("", **kw)
    conn.autocommit = autocommit
    return conn


def execute(conn, q, args=None):
    c = conn.cursor()
    c.execute(q, args)
    return c


def cancel_sleep(conn):
    """Cancels the connection's query once it sleeps."""
    other = opened()
    while not execute(other, "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'", (conn.info.backend_pid,)).fetchall():
        pass
    other.close()
    conn.cancel()


def reads(conn):
    def all(q, args=None):
        return execute(conn, q, args).fetchall()

    show("server", lambda: (conn.info.dbname, conn.info.user, conn.server_version // 10000, conn.get_transaction_status(), conn.encoding))
    show("types", lambda: all("""select 1, 2::bigint, 1.5::float8, 12345678901234567890.123456789::numeric, 'text', null, true,
        array[1, null, 3], array[['a', 'b'], ['c', null]], '{"a": [1, null]}'::jsonb, '2020-02-29'::date, '2020-02-29 12:34:56.789+00'::timestamptz,
        '12:34'::time, '1 day 2 hours'::interval, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '10.0.0.0/8'::cidr, int4range(1, 5)"""))
    show("bytes", lambda: bytes(all("select %s", (psycopg2.Binary(bytes(range(256))),))[0][0]))
    show("parameters", lambda: all("select %s, %s, %s, %s, %s, %s, %s, %s", (
        1, "it's \\", None, decimal.Decimal("1.10"), [1, None, 2], datetime.date(2020, 1, 2), uuid.UUID(int=5), psycopg2.extras.Json({"k": [1]}))))
    show("several", lambda: all("select 1; select 'two'; select 3"))
    show("divide", lambda: all("select 1 / 0"))
    show("nowhere", lambda: all("select * from nowhere"))
    show("dict", lambda: [dict(r) for r in rows(conn, psycopg2.extras.RealDictCursor)])

    def named():
        conn.autocommit = False
        try:
            with conn.cursor("named", scrollable=True) as c:
                c.itersize = 3
                c.execute("select id from t order by id")
                got = [c.fetchone(), c.fetchmany(2)]
                c.scroll(-1)
                return got + [list(c)]
        finally:
            conn.commit()
            conn.autocommit = True
    show("cursor", named)

    def out(q):
        b = io.BytesIO()
        conn.cursor().copy_expert(q, b)
        return b.getvalue()
    show("copy out", lambda: out("copy (select id, name from t order by id) to stdout with csv header"))
    show("large", lambda: all("select length(%s), md5(%s)", ("x" * 50_000, "y" * 50_000)))
    show("large back", lambda: len(all("select repeat('z', 3000000)")[0][0]))

    execute(conn, "set statement_timeout = 100")
    show("timeout", lambda: all("select pg_sleep(600)"))
    conn.reset()
    conn.autocommit = True
    show("reset", lambda: all("show statement_timeout"))
    conn.set_session(isolation_level=ISOLATION_LEVEL_SERIALIZABLE, readonly=True, autocommit=False)
    show("serializable", lambda: all("select count(*), current_setting('transaction_isolation'), current_setting('transaction_read_only') from t"))
    conn.rollback()
    conn.set_session(isolation_level="default", readonly="default", autocommit=True)
    show("session", lambda: all("select current_setting('transaction_isolation')"))
    conn.set_client_encoding("LATIN1")
    show("latin1", lambda: all("select 'ä', %s", ("ö",)))
    conn.set_client_encoding("UTF8")

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


def rows(conn, factory):
    with conn.cursor(cursor_factory=factory) as c:
        c.execute("select id, name from t order by id limit 2")
        return c.fetchall()


def session():
    conn = opened()

    def all(q, args=None):
        return execute(conn, q, args).fetchall()

    show("parameter", lambda: conn.get_parameter_status("default_transaction_read_only"))
    execute(conn, "drop table if exists t")
    execute(conn, "create table t (id int primary key, name text, raw bytea, n numeric, tags text[], doc jsonb, at timestamptz)")
    show("insert", lambda: all("insert into t values (%s, %s, %s, %s, %s, %s, %s) returning id, n, at", (
        1, "one", psycopg2.Binary(b"\0\1\xfe"), decimal.Decimal("1.50"), ["a", None, "c"], psycopg2.extras.Json({"a": None}),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc))))

    def many():
        with conn.cursor() as c:
            c.executemany("insert into t (id, name) values (%s, %s)", [(i, f"n{i}") for i in range(2, 5)])
            psycopg2.extras.execute_batch(c, "insert into t (id, name) values (%s, %s)", [(i, f"b{i}") for i in range(5, 50)])
            return psycopg2.extras.execute_values(c, "insert into t (id, name) values %s returning id", [(i, f"v{i}") for i in range(50, 90)], fetch=True)
    show("many", many)
    # psycopg2 puts values into the statement. A reader's may have 128 KiB; a leader's 1 MiB
    # where the server has max_prepared_transactions.
    show("large", lambda: all("select length(%s), md5(%s)", ("x" * 500_000, "y" * 500_000)))
    show("duplicate", lambda: execute(conn, "insert into t (id) values (1)"))

    def copy_in(text):
        c = conn.cursor()
        c.copy_expert("copy t (id, name) from stdin", io.StringIO(text))
        return c.rowcount
    show("copy in", lambda: copy_in("".join(f"{i}\tc{i}\n" for i in range(100, 2100))))
    show("copy in that fails", lambda: copy_in("5000\tx\n1\tagain\n" + "6000\ty\n" * 50000))

    class Broken(io.StringIO):
        def read(self, n=-1):
            raise KeyError("mine")
    show("copy in, given up", lambda: conn.cursor().copy_expert("copy t (id) from stdin", Broken()))
    show("count", lambda: all("select count(*) from t"))

    conn.autocommit = False
    with conn:
        execute(conn, "update t set name = 'in' where id = 1")
        execute(conn, "savepoint a")
        show("inside", lambda: execute(conn, "insert into t (id) values (1)"))
        show("aborted", lambda: execute(conn, "select 1"))
        execute(conn, "rollback to savepoint a")
    show("with", lambda: all("select name from t where id = 1"))
    try:
        with conn:
            execute(conn, "update t set name = 'undone' where id = 1")
            raise KeyError
    except KeyError:
        pass
    show("with, undone", lambda: all("select name from t where id = 1"))
    conn.rollback()
    show("two phases", lambda: (conn.tpc_begin("x"), conn.tpc_rollback()))
    conn.rollback()

    def large_object():
        lo = conn.lobject(0, "wb")
        lo.write(b"0123456789" * 100000)
        lo.seek(10)
        at, oid = lo.tell(), lo.oid
        lo.truncate(500001)
        lo.close()
        back = conn.lobject(oid, "rb")
        got = (at, len(back.read()), back.seek(-1, 2))
        back.close()
        conn.lobject(oid).unlink()
        conn.commit()
        return got
    show("large object", large_object)
    conn.autocommit = True
    show("notices", lambda: (execute(conn, "do $$ begin raise notice 'hello'; raise warning 'careful'; end $$"), conn.notices)[1])

    def notifications():
        execute(conn, "listen l")
        execute(conn, "notify l, 'payload'")
        other = opened()
        execute(other, "notify l, 'of another'")
        other.close()
        while len(conn.notifies) < 2:
            select.select([conn], [], [])
            conn.poll()
        return [(n.channel, n.payload, n.pid == conn.info.backend_pid) for n in conn.notifies]
    show("notify", notifications)
    execute(conn, "discard all")
    show("after discard all", lambda: all("update t set name = 'again' where id = 5 returning name"))
    conn.reset()
    conn.autocommit = True
    show("after reset", lambda: all("update t set name = 'and again' where id = 5 returning name"))
    reads(conn)
    conn.close()
    show("closed", lambda: conn.cursor())

    a = psycopg2.connect("", async_=True)
    wait(a)
    c = a.cursor()
    c.execute("insert into written values ('session') returning what")
    wait(a)
    print("async:", c.fetchall())
    a.close()
    with psycopg2.connect("") as two:
        two.set_session(readonly=True)
        show("read only", lambda: execute(two, "insert into written values ('no')"))
    print("done")


def read():
    reads(opened())
    print("done")


def refused():
    conn = opened()

    def attempt(what, f):
        try:
            print(what, "passed:", f())
        except psycopg2.Error as e:
            print(what, name(e), e.pgcode, e.diag.message_primary or str(e))
        if not conn.autocommit:
            conn.rollback()
        assert execute(conn, "select 1").fetchone() == (1,), what

    attempt("insert", lambda: execute(conn, "insert into written values ('stale')"))
    attempt("values", lambda: psycopg2.extras.execute_values(conn.cursor(), "insert into written values %s", [("stale",)] * 3))
    attempt("copy", lambda: conn.cursor().copy_expert("copy written from stdin", io.StringIO("stale\n")))
    attempt("copy_from", lambda: conn.cursor().copy_from(io.StringIO("stale\n"), "written"))
    attempt("several", lambda: execute(conn, "select 1; delete from written; select 2"))
    attempt("notify", lambda: execute(conn, "notify l"))
    attempt("large object", lambda: execute(conn, "select lo_create(0)"))
    attempt("ddl", lambda: execute(conn, "create table x (i int)"))
    conn.autocommit = False
    attempt("block", lambda: execute(conn, "insert into written values ('stale')"))
    try:
        conn.lobject(0, "wb")
    except psycopg2.Error as e:
        # libpq's large object functions hand on the text alone.
        print("lobject", name(e), e.pgcode or "no SQLSTATE", str(e).splitlines()[0])
    conn.rollback()
    conn.autocommit = True
    attempt("read write", lambda: execute(conn, "set session characteristics as transaction read write"))
    conn.set_session(readonly=False, autocommit=False)
    try:
        execute(conn, "select 1")
    except psycopg2.Error as e:
        print("readonly=False", name(e), e.pgcode, e.diag.message_primary)
    print("done")


def ways():
    def status(what, conn):
        c = conn.cursor()
        c.execute("show fence.status")
        bound = c.fetchone()[0]
        c.execute("show fence.election")
        print(f"{what}: {bound} {c.fetchone()[0]}".strip())
        conn.close()

    status("PGOPTIONS", psycopg2.connect(""))
    del os.environ["PGOPTIONS"]
    status("none", psycopg2.connect(""))
    status("options", psycopg2.connect("", options=f"-c fence.token={TOKEN}"))
    status("read-write", psycopg2.connect(f"options='-c fence.token={TOKEN}' target_session_attrs=read-write"))
    conn = opened()
    execute(conn, sql.SQL("SET fence.token = {}").format(sql.Literal(TOKEN)))
    status("SET", conn)
    conn = opened()
    execute(conn, "SET fence.token = %s", (TOKEN,))
    status("SET with a parameter", conn)
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
        execute(conn, "insert into written values ('lost too')")

    def commit(conn):
        ask("@written")
        conn.commit()

    def sleeping(conn):
        print("@sleeping", flush=True)
        execute(conn, "select pg_sleep(600)")

    def copying(conn):
        class Rows(io.StringIO):
            n = 0

            def read(self, size=-1):
                if self.n == 1:
                    ask("@written")
                self.n += 1
                return "lost too\n" * 1000 if self.n < 1000 else ""
        conn.cursor().copy_expert("copy written from stdin", Rows())

    for variant in (statement, commit, sleeping, copying):
        os.environ.pop("PGOPTIONS", None)
        pool = psycopg2.pool.SimpleConnectionPool(1, 1, "", **options())
        conn = pool.getconn()
        try:
            execute(conn, "insert into written values ('lost')")
            variant(conn)
            print("lost", variant.__name__, "ok but should not")
        except psycopg2.Error as e:
            print("lost", variant.__name__, name(e), e.pgcode, "closed:", conn.closed)
            # What libpq says of a COPY that breaks depends on the moment.
            print("told" if variant is copying else "lost with", str(e).splitlines()[0])
        pool.putconn(conn)
        conn = pool.getconn()
        with conn:
            print("again reads", execute(conn, "select 1").fetchone())
        if token:
            try:
                with conn:
                    execute(conn, "insert into written values ('stale')")
                print("again ok but should not")
            except psycopg2.Error as e:
                print("again", name(e), e.pgcode, e.diag.message_primary)
        pool.closeall()
        token = ask("@again")
        with psycopg2.connect("", **options()) as conn:
            execute(conn, "insert into written values ('kept')")
        conn.close()
        print("again writes")


{"session": session, "read": read, "refused": refused, "ways": ways, "loss": loss}[sys.argv[1]]()
