"""What a consumer of Kafka, or of any broker that assigns partitions, does in its rebalance
callbacks. A broker takes a partition from a consumer that it does not hear of, but cannot stop
it; the gate keeps the next one waiting until the first has stopped, or must have.

With confluent_kafka:

    consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)

Here lines of standard input stand for the broker: "assign 0 1", "revoke 1".

    python3 kafka.py a
"""

import select
import sys
import time

from partition import Busy, Partition

consumer = sys.argv[1]
held = {}


def on_assign(_, partitions):
    """Takes the partitions over. It waits for whoever still works on one."""
    for name in partitions:
        while name not in held:
            try:
                held[name] = Partition(consumer, name)
                print(consumer, "bound", name, flush=True)
            except Busy as e:
                print(consumer, "waits:", e, flush=True)
                time.sleep(0.2)


def on_revoke(_, partitions):
    """Lets the partitions go. No message of theirs is under way: callbacks and messages come
    one after the other."""
    for name in partitions:
        if name in held:
            held.pop(name).release()
            print(consumer, "released", name, flush=True)


def poll(seconds):
    """Stands for consumer.poll: it runs the callbacks, and brings a message or None."""
    if select.select([sys.stdin], [], [], seconds)[0]:
        verb, *partitions = sys.stdin.readline().split() or ["end"]
        if verb == "end":
            on_revoke(None, list(held))
            sys.exit()
        {"assign": on_assign, "revoke": on_revoke}[verb](None, partitions)


while True:
    message = poll(0.1)
    for name, partition in list(held.items()):
        # Before each message: may this consumer still work on its partition?
        if not partition.live():
            print(consumer, "lost", name + ":", partition.why or "nothing was heard of the gate", flush=True)
            held.pop(name).release()
