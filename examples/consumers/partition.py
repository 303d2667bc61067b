"""A partition that this consumer alone works on: it leads the partition's election, and is
bound to the partition at the gate, which refuses everybody else meanwhile."""

import json
import os
import threading
import time
import urllib.error
import urllib.request

API = os.environ.get("FENCEPROXY", "http://127.0.0.1:9180")
LEASE = float(os.environ.get("LEASE", "15"))  # seconds


def ask(method, path, timeout=LEASE, **body):
    request = urllib.request.Request(f"{API}/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    return urllib.request.urlopen(request, timeout=timeout)


def reason(e):
    """What the proxy said, or why it said nothing."""
    return json.load(e)["error"]["message"] if isinstance(e, urllib.error.HTTPError) else str(e)


class Partition:
    def __init__(self, consumer, name):
        """Claims the partition, waiting for the gate to be rid of an earlier consumer. Raises
        Busy when another has it."""
        self.name, self.why, self._done = name, None, threading.Event()
        self._election = f"elections/orders-{name}"
        try:
            term = json.load(ask("POST", f"{self._election}/acquire", owner=consumer, ttl_ms=int(LEASE * 1000)))
        except OSError as e:
            raise Busy(reason(e))
        if term["outcome"] != "acquired":
            raise Busy(f"{term.get('owner')} has partition {name}")
        self.token, self.number = term["token"], term["number"]
        threading.Thread(target=self._renew, daemon=True).start()
        asked = time.monotonic()
        try:
            binding = json.load(ask("POST", f"gates/orders/partitions/{name}/bind", token=self.token, wait_ms=int(LEASE * 500)))
        except OSError as e:
            self._resign()
            raise Busy(reason(e))
        self._binding = f"gates/orders/bindings/{binding['binding']}"
        self._trusted = asked + binding["trusted_ms"] / 1000
        threading.Thread(target=self._keep, daemon=True).start()

    def live(self):
        """Says whether this consumer may work on the partition. It asks the clock: a consumer
        that hears nothing from the gate stops by itself."""
        return time.monotonic() < self._trusted and self.why is None

    def release(self):
        """Lets another have the partition. Call it when the work on it has stopped."""
        self.why = self.why or "released"
        try:
            ask("DELETE", self._binding).close()
        except OSError:
            pass  # lost already, or it ends by itself
        self._resign()

    def _resign(self):
        self._done.set()
        try:
            ask("POST", f"{self._election}/resign", token=self.token).close()
        except OSError:
            pass  # the lease ends by itself

    def _renew(self):
        """Renews the lease of the election."""
        while not self._done.wait(LEASE / 3):
            try:
                ask("POST", f"{self._election}/renew", token=self.token).close()
            except OSError:
                pass  # the gate says when it is too late

    def _keep(self):
        """Listens to the gate, which sends a line every second."""
        while self.live():
            asked = time.monotonic()  # all that is answered counts from here
            try:
                with ask("GET", f"{self._binding}/keep") as stream:
                    for line in map(json.loads, stream):
                        if "trusted_ms" in line:
                            self._trusted = asked + line["trusted_ms"] / 1000
                        elif "ended" in line:
                            self.why = self.why or line["error"]["message"]
            except OSError:
                time.sleep(0.1)  # and try again, for as long as the partition is trusted


class Busy(Exception):
    """Another consumer has the partition."""


def consume(consumer, partitions, attach, take):
    """Works on every partition that it can get, one message of each in turn. attach(partition)
    opens a connection, take(connection, partition) does one piece of work."""
    held = {}
    try:
        while True:
            for name in partitions:
                try:
                    if name not in held:
                        p = Partition(consumer, name)
                        held[name] = p, attach(p)
                        print(consumer, "has partition", name, "with number", p.number, flush=True)
                    p, connection = held[name]
                    if not p.live():
                        raise Lost(p.why or "nothing was heard of the gate")
                    take(connection, p)
                except Busy:
                    continue
                except Exception as e:
                    print(consumer, "drops partition", name + ":", e, flush=True)
                    if name in held:
                        held.pop(name)[0].release()
            time.sleep(0.1)
    finally:
        for p, _ in held.values():
            p.release()


class Lost(Exception):
    """The partition is another's now, or nobody's."""
