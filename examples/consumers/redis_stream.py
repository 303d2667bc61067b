"""A consumer of four streams in Redis: each has one consumer at a time.

    python3 redis_stream.py a
"""

import os
import signal
import sys

import redis

from partition import consume

PROXY = os.environ.get("PROXY", "redis://127.0.0.1:6380")
GROUP, HOLDER = "workers", "holder"  # whoever has the partition: what one left undone, the next is given again
consumer = sys.argv[1]


def attach(partition):
    """Opens a connection that writes for as long as this consumer has the partition."""
    r = redis.Redis.from_url(PROXY, username=f";election=orders-{partition.name};token={partition.token}", password="none",
                             decode_responses=True)
    try:
        r.xgroup_create(f"orders:{partition.name}:in", GROUP, "0", mkstream=True)
    except redis.ResponseError as e:
        if not str(e).startswith("BUSYGROUP"):
            raise
    return r


def take(r, partition):
    """Works off one order: one that was left undone, or else a new one."""
    stream = f"orders:{partition.name}:in"
    for after in ("0", ">"):
        for _, orders in r.xreadgroup(GROUP, HOLDER, {stream: after}, count=1):
            for order, fields in orders:
                with r.pipeline(transaction=True) as both:
                    both.xadd(f"orders:{partition.name}:done", {"worker": consumer, "number": partition.number, "order": order})
                    both.xack(stream, GROUP, order)
                    both.execute()
                print(consumer, "wrote", fields["body"], flush=True)
                return


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
consume(consumer, ["0", "1", "2", "3"], attach, take)
