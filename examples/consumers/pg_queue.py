"""A consumer of a queue in Postgres that has partitions: each has one consumer at a time.

    python3 pg_queue.py a
"""

import os
import signal
import sys
import time

import psycopg

from partition import consume

DATABASE = os.environ.get("DATABASE", "postgres://app@127.0.0.1:6432/shop")  # the proxy
consumer = sys.argv[1]


def attach(partition):
    """Opens a connection that writes for as long as this consumer has the partition: what
    the gate cannot stop, a write on its way, the fence does."""
    return psycopg.connect(DATABASE, options=f"-c fence.election=orders-{partition.name} -c fence.token={partition.token}")


def take(conn, partition):
    """Works off one order."""
    with conn.transaction():
        order = conn.execute("DELETE FROM queue WHERE id = (SELECT min(id) FROM queue WHERE partition = %s) RETURNING body",
                             (partition.name,)).fetchone()
        if order is None:
            return
        time.sleep(0.05)  # an order takes a moment
        conn.execute("INSERT INTO journal (worker) VALUES (%s)", (f"{consumer} {partition.name}",))
    print(consumer, "wrote", order[0], flush=True)


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
consume(consumer, ["0", "1", "2", "3"], attach, take)
