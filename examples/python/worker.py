"""One of several workers. The one that leads writes to Postgres through a fenceproxy; the
others wait.

    python3 worker.py a
"""

import json
import os
import signal
import sys
import time
import urllib.request

import psycopg

API = os.environ.get("FENCEPROXY", "http://127.0.0.1:9180")
DATABASE = os.environ.get("DATABASE", "postgres://app@127.0.0.1:6432/shop")  # the proxy
LEASE = float(os.environ.get("LEASE", "15"))  # seconds
ELECTION = "reports"


def ask(verb, **body):
    """Asks the proxy about the election: acquire, renew or resign. Without an answer the
    outcome is unknown."""
    request = urllib.request.Request(f"{API}/v1/elections/{ELECTION}/{verb}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LEASE / 3) as answer:
            return json.load(answer)
    except OSError as e:
        print("cannot", verb + ":", e, flush=True)
        return {"outcome": "unknown"}


def campaign(worker):
    """Waits for the leadership; returns it, and when it was asked for."""
    while True:
        asked = time.monotonic()
        answer = ask("acquire", owner=worker, ttl_ms=int(LEASE * 1000))
        if answer["outcome"] == "acquired":
            return answer, asked
        time.sleep(LEASE / 15)


def lead(worker, token, renewed):
    """Works while the lease can be trusted: until a tenth before its end, counted from
    before it was asked for. Work that takes longer than this needs a thread that renews."""
    with psycopg.connect(DATABASE, options=f"-c fence.election={ELECTION} -c fence.token={token}") as conn:
        order = 0
        while (now := time.monotonic()) < renewed + LEASE * 0.9:
            if now > renewed + LEASE / 3:
                outcome = ask("renew", token=token)["outcome"]
                if outcome == "lost":
                    return
                if outcome == "renewed":
                    renewed = now
            order += 1
            with conn.transaction():
                conn.execute("INSERT INTO journal (worker) VALUES (%s)", (worker,))
                print(worker, "begins order", order, flush=True)
                time.sleep(0.5)  # an order takes a moment
            print(worker, "wrote order", order, flush=True)


def main(worker):
    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, lambda *_: sys.exit())
    while True:
        term, asked = campaign(worker)
        print(worker, "leads with number", term["number"], flush=True)
        try:
            lead(worker, term["token"], asked)
        except psycopg.Error as e:
            print(worker, "failed:", e, flush=True)  # stale leader refused
        finally:
            ask("resign", token=term["token"])  # so that the next need not wait for the lease
            print(worker, "leads no more", flush=True)


main(sys.argv[1])
