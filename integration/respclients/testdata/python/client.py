"""redis-py; see script in transcript_test.go for the modes and losing in loss_test.go for
what is printed of a loss."""

import hashlib
import json
import logging
import os
import sys

import redis

ENV = os.environ
logging.disable()  # its cluster client logs each error, too
HOST, PORT, PASSWORD = ENV["REDIS_HOST"], int(ENV["REDIS_PORT"]), ENV["REDIS_PASSWORD"]
ELECTION, TOKEN, BIND = ENV["FENCE_ELECTION"], ENV["FENCE_TOKEN"], "FENCE_BIND" in ENV
with open(os.path.join(os.path.dirname(__file__), "..", "commands.json")) as f:
    COMMANDS = json.load(f)
CLUSTER = "REDIS_CLUSTER" in ENV
CLUSTER_KEYS = [f"key:{i}" for i in range(60)]
BIG = "0123456789abcdef" * (1 << 16)
PROTOCOL = {"protocol": int(ENV["RESP"])} if "RESP" in ENV and hasattr(redis, "CredentialProvider") else {}


def username(token):
    return f"app;election={ELECTION};token={token}" if token and not BIND else "app"


if "REDIS_CA" in ENV:
    TLS = {"ssl_ca_certs": ENV["REDIS_CA"]}
    SSL = {"ssl": True, **TLS}
else:
    TLS = SSL = {}


class BindingConnection(redis.SSLConnection if TLS else redis.Connection):
    """A connection that presents its token by FENCE BIND when it connects."""

    def on_connect(self):
        super().on_connect()
        self.send_command("FENCE", "BIND", ELECTION, token)
        try:
            self.read_response()
        except redis.ResponseError as e:
            if not str(e).startswith("FENCED "):
                raise  # else it reads


token = TOKEN


def connected(**more):
    """A client with the library's own defaults, but for what the place says."""
    if CLUSTER:
        return redis.RedisCluster(HOST, PORT, username=username(token), password=PASSWORD, **PROTOCOL, **SSL)
    if BIND and token:
        one = more.pop("single_connection_client", False)
        pool = redis.ConnectionPool(connection_class=BindingConnection, host=HOST, port=PORT, username="app", password=PASSWORD, **PROTOCOL, **TLS, **more)
        return redis.Redis(connection_pool=pool, single_connection_client=one)
    return redis.Redis(HOST, PORT, username=username(token), password=PASSWORD, **PROTOCOL, **SSL, **more)


def name(e):
    return f"{type(e).__module__}.{type(e).__name__}"


def text(v):
    if isinstance(v, set):
        v = sorted(v)
    got = repr(v)
    return got if len(got) < 2000 else f"{len(got)} {hashlib.sha256(got.encode()).hexdigest()}"


def show(what, f):
    try:
        print(f"{what}: {text(f())}")
    except Exception as e:  # some options' replies are beyond its parsers
        print(f"{what}: {name(e)} {e}")


def commands(r, which):
    for args in COMMANDS[which]:
        show(" ".join(args)[:60].replace("\n", " ").replace("\r", ""), lambda: r.execute_command(*args))


def reads(r):
    commands(r, "read")
    show("hgetall", lambda: r.hgetall("{k}:h"))
    show("smembers", lambda: r.smembers("{k}:set4"))
    show("zrange", lambda: r.zrange("{k}:z", 0, -1, withscores=True))
    show("xrange", lambda: r.xrange("{k}:x"))
    show("xinfo", lambda: r.xinfo_groups("{k}:x"))
    show("geopos", lambda: r.geopos("{k}:g", "rome"))
    show("big", lambda: r.get("{k}:big"))
    show("scan", lambda: sorted(set(r.scan_iter("{k}:*", count=3))))
    show("hscan", lambda: sorted(r.hscan_iter("{k}:h")))
    p = r.pipeline(transaction=False)
    for i in range(300):
        p.getrange("{k}:s", i % 4, -1)
    show("pipeline", lambda: p.lrange("{k}:s", 0, 1).hgetall("{k}:h").execute(raise_on_error=False))
    show("pipeline that raises", lambda: r.pipeline(transaction=False).get("{k}:s").lrange("{k}:s", 0, 1).execute())
    show("transaction", lambda: r.pipeline().get("{k}:s").zrange("{k}:z", 0, -1, withscores=True).execute())
    show("transaction with a failure", lambda: r.pipeline().get("{k}:s").llen("{k}:s").execute(raise_on_error=False))
    show("transaction with an error in its queue", lambda: r.pipeline().get("{k}:s").execute_command("TIME", "no such argument").execute())
    show("watch", lambda: r.transaction(lambda p: p.multi() or p.get("{k}:s"), "{k}:s"))
    decoded = connected(decode_responses=True, client_name="named", db=1)
    show("decoded", lambda: [decoded.client_getname(), decoded.get("{k}:s"), decoded.select(0), decoded.get("{k}:s")])
    decoded.close()
    one = connected(single_connection_client=True)
    show("one connection", lambda: [one.ping(), one.client_setname("mine"), one.client_getname(), one.get("{k}:s")])
    one.close()


def pubsub(r):
    p = r.pubsub()

    def messages(n):
        return [tuple(v[:40] if isinstance(v, bytes) else v for v in p.get_message(timeout=60).values()) for _ in range(n)]

    p.subscribe("{k}:one", "{k}:two")
    p.psubscribe("{k}:t*")
    show("subscribe", lambda: messages(3))
    show("publish", lambda: [r.publish("{k}:one", "hello"), r.publish("{k}:two", BIG)])
    show("messages", lambda: messages(3))
    p.ping("there")
    show("ping", lambda: messages(1))
    p.unsubscribe()
    p.punsubscribe()
    show("unsubscribe", lambda: sorted(messages(3), key=repr))
    p.close()


def session():
    r = connected()
    commands(r, "session")
    show("set", lambda: r.set("{k}:big", BIG))
    show("bytes", lambda: [r.set("{k}:bytes", b"\0\xff\r\n"), r.get("{k}:bytes")])
    show("hset", lambda: r.hset("{k}:map", mapping={"a": 1, "b": 2.5}))
    show("zadd", lambda: [r.zadd("{k}:zz", {"a": 1.5, "b": 2}), r.zincrby("{k}:zz", 0.25, "a"), r.bzpopmin(["{k}:none", "{k}:zz"], 1)])
    show("blpop", lambda: r.blpop(["{k}:none", "{k}:l"], 1))
    show("xreadgroup", lambda: r.xreadgroup("g", "c2", {"{k}:x": ">"}, block=10))
    p = r.pipeline(transaction=False)
    for i in range(2000):
        p.rpush("{k}:many", i)
    show("pipeline", lambda: p.incr("{k}:s").llen("{k}:many").set("{k}:big2", BIG).strlen("{k}:big2").execute(raise_on_error=False)[1990:])
    p = r.pipeline()
    for i in range(100):
        p.incr("{k}:tx")
    show("transaction", lambda: p.incr("{k}:s").hset("{k}:txh", "f", "v").hgetall("{k}:txh").execute(raise_on_error=False))
    show("aborted", lambda: r.pipeline().set("{k}:aborted", 1).execute_command("SET", "{k}:aborted").execute())
    for disturbed in (False, True):
        with r.pipeline() as p:
            p.watch("{k}:tx")
            n = int(p.get("{k}:tx"))
            if disturbed:
                r.set("{k}:tx", 0)
            p.multi()
            p.set("{k}:tx", n * 2)
            show("watch", p.execute)
    add = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    show("script", lambda: [add(["{k}:sn"], [7]), add(["{k}:sn"], [7])])
    p = r.pipeline()
    add(["{k}:sn"], [1], client=p)
    show("script in a transaction", p.execute)
    lock = r.lock("{k}:lock", timeout=60)
    show("lock", lambda: [lock.acquire(), r.lock("{k}:lock", timeout=60).acquire(blocking=False), lock.extend(5), lock.release()])
    other = connected(db=1)
    show("another database", lambda: [other.set("x", 1), other.keys("*"), other.flushdb(), other.dbsize()])
    other.close()
    pubsub(r)
    reads(r)


def refused():
    r = connected()

    def attempt(what, f):
        try:
            print(f"{what}: ok but should not: {text(f())}")
        except redis.RedisError as e:
            print(f"{what}: {name(e)} {e}")

    attempt("set", lambda: r.set("{k}:late", 1))
    attempt("big", lambda: r.set("{k}:late", BIG))
    attempt("blpop", lambda: r.blpop("{k}:queue", 0))
    attempt("xreadgroup", lambda: r.xreadgroup("g", "c", {"{k}:x": ">"}))
    attempt("eval", lambda: r.eval("return redis.call('SET', KEYS[1], 1)", 1, "{k}:late"))
    attempt("script", lambda: r.register_script("return redis.call('SET', KEYS[1], 1)")(["{k}:late"]))
    attempt("publish", lambda: r.publish("c", "m"))
    attempt("flushall", r.flushall)
    attempt("lock", lambda: r.lock("{k}:late").acquire())
    attempt("pipeline", lambda: r.pipeline(transaction=False).get("{k}:s").set("{k}:late", 1).get("{k}:s").execute())
    attempt("transaction", lambda: r.pipeline().get("{k}:s").set("{k}:late", 1).execute())
    attempt("watch", lambda: r.transaction(lambda p: p.multi() or p.set("{k}:late", 1), "{k}:s"))


def ways():
    def status(what, r):
        got = r.execute_command("FENCE", "STATUS")
        if isinstance(got, list):
            got = dict(zip(got[::2], got[1::2]))
        print(f"{what}: {got[b'state'].decode()}")
        r.close()

    import urllib.parse

    at = {"host": HOST, "port": PORT, "password": PASSWORD, **PROTOCOL, **SSL}
    short = f";token={TOKEN}"
    status("none", redis.Redis(username="app", **at))
    status("user name", redis.Redis(username=f"app;election={ELECTION}{short}", **at))
    status("default election", redis.Redis(username="app" + short, **at))
    status("default user", redis.Redis(username=f";election={ELECTION}{short}", **at))
    status("url", redis.Redis.from_url(f"{'rediss' if TLS else 'redis'}://{urllib.parse.quote('app' + short)}:{PASSWORD}@{HOST}:{PORT}", **PROTOCOL, **TLS))
    if hasattr(redis, "CredentialProvider"):
        class Provider(redis.CredentialProvider):
            def get_credentials(self):
                return "app" + short, PASSWORD

        status("credential provider", redis.Redis(HOST, PORT, credential_provider=Provider(), **PROTOCOL, **SSL))
    one = redis.Redis(username="app", single_connection_client=True, **at)
    one.execute_command("FENCE", "BIND", ELECTION, TOKEN)
    status("FENCE BIND", one)


def unordered(r):
    return r.pipeline() if CLUSTER else r.pipeline(transaction=False)


def loss():
    global token

    def ask(what):
        print(what, flush=True)
        return sys.stdin.readline().strip()

    def lost(what, f):
        try:
            print(f"ok but should not: {what} {text(f())}")
        except redis.RedisError as e:
            print(f"lost {what}: {name(e)} {e}")

    def blocked(what, f):
        print("@blocked", flush=True)
        lost(what, f)

    def one_command(r):
        r.ping()
        ask("@idle")
        lost("set", lambda: r.set("{k}:late", 1))

    def watch(r):
        with r.pipeline() as p:
            p.watch("{k}:then")
            p.get("{k}:then")
            ask("@idle")
            p.multi()
            p.set("{k}:late", 1)
            lost("watch", p.execute)

    def pipeline(r):
        p = unordered(r).incr("{k}:early").blpop("{k}:queue", 0).set("{k}:late", 1)
        blocked("pipeline", p.execute)

    def flood(transaction):
        def f(r):
            print("@flooding", flush=True)

            def forever():
                while True:
                    p = r.pipeline() if transaction else unordered(r)
                    for _ in range(100):
                        p.incr("{k}:flood")
                    p.execute()

            lost("flood", forever)

        return f

    def subscribed(r):
        p = r.pubsub()
        p.subscribe("{k}:channel")
        p.get_message(timeout=60)
        ask("@idle")
        lost("subscription", lambda: p.get_message(timeout=60))
        if p.get_message(timeout=60)["type"] != "subscribe":  # on a new connection
            print("not subscribed again")
        p.close()

    for what, lose in (
        ("one command", one_command),
        ("blpop", lambda r: blocked("blpop", lambda: r.blpop("{k}:queue", 0))),
        ("xreadgroup", lambda r: blocked("xreadgroup", lambda: r.xreadgroup("g", "c", {"{k}:stream": ">"}, block=0))),
        ("watch", None if CLUSTER else watch),  # which the library has not in a cluster
        ("pipeline", pipeline),
        ("flood", flood(False)),
        ("flood of transactions", None if CLUSTER else flood(True)),
        ("subscribed", None if CLUSTER else subscribed),
    ):
        if lose is None:
            continue
        r = connected()
        lose(r)
        for _ in range(3):  # what follows an error at once may still meet the connection that closes
            try:
                if r.get("{k}:then"):
                    print("again reads")
                break
            except redis.ConnectionError:
                pass
        try:
            r.set("{k}:late again", 1)
            print("ok but should not")
        except redis.RedisError as e:
            print("again refused", what, name(e), e)
        r.close()
        token = ask("@again")
        r = connected()
        r.incr("{k}:kept")
        print("again writes")
        r.close()


def read():
    reads(connected())


def cluster_reads(r):
    for k in CLUSTER_KEYS:
        show(k, lambda: r.get(k))
    p = r.pipeline()
    for k in CLUSTER_KEYS:
        p.get(k)
    show("pipeline", p.execute)
    show("lrange", lambda: r.lrange("{k}:l", 0, -1))
    show("mget", lambda: r.mget("key:1", "key:2"))
    show("mget of many slots", lambda: r.mget_nonatomic(CLUSTER_KEYS))
    show("keyslot", lambda: r.cluster_keyslot("{k}"))
    show("primaries", lambda: len(r.get_primaries()))
    show("keys", lambda: len(r.keys("key:*", target_nodes=redis.RedisCluster.PRIMARIES)))


def cluster_session():
    r = connected()
    for k in CLUSTER_KEYS:
        show(k, lambda: r.set(k, k))
    p = r.pipeline()
    for k in CLUSTER_KEYS:
        p.append(k, "x")
    show("pipeline", p.execute)
    show("mset of many slots", lambda: r.mset_nonatomic({k: 1 for k in CLUSTER_KEYS}))
    show("mset", lambda: r.mset({"key:1": 1, "key:2": 2}))
    show("rpush", lambda: [r.incr("{k}:n"), r.rpush("{k}:l", 1, 2, 3), r.blpop("{k}:l", 1)])
    show("eval", lambda: r.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "{k}:n", 7))
    show("CROSSSLOT", lambda: r.eval("return 1", 2, "key:1", "key:2"))
    show("to a shard", lambda: r.execute_command("SPUBLISH", "key:3", "hello", target_nodes=r.get_node_from_key("key:3")))
    pub = r.pubsub()
    pub.subscribe("channel")
    show("subscribe", lambda: pub.get_message(timeout=60))
    r.publish("channel", "hello")
    show("message", lambda: pub.get_message(timeout=60))
    pub.close()
    cluster_reads(r)


def cluster_refused():
    r = connected()
    for k in CLUSTER_KEYS:
        try:
            print("ok but should not", r.set("late:" + k, 1))
        except redis.RedisError as e:
            print(f"set: {name(e)} {e}")


if CLUSTER:
    modes = {"session": cluster_session, "read": lambda: cluster_reads(connected()), "refused": cluster_refused, "loss": loss}
else:
    modes = {"session": session, "read": read, "refused": refused, "ways": ways, "loss": loss}
modes[sys.argv[1]]()
print("done")
