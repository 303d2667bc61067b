"""Campaigns by ELECTION commands (redis-py) or over HTTP (the standard library)."""
import json
import os
import sys
import urllib.request

import redis

election, name = os.environ["ELECTION"], os.environ["NAME"]
conn = redis.Redis(host=os.environ["HOST"], port=int(os.environ["PORT"]), single_connection_client=True, decode_responses=True)


def by_resp(call, *args):
    flat = conn.execute_command("ELECTION", call, election, *args)
    return dict(zip(flat[::2], flat[1::2]))


def by_http(call, body=None):
    url = os.environ["API"] + "/" + call
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), {
        "Authorization": "Bearer " + os.environ["API_TOKEN"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


if sys.argv[1] == "http":
    acquire = lambda: by_http("acquire", {"owner": name, "ttl_ms": 60000})
    watch = lambda number: by_http(f"watch?number={number}")
    resign = lambda token: by_http("resign", {"token": token})
else:
    acquire = lambda: by_resp("ACQUIRE", "OWNER", name, "TTL", 60000)
    watch = lambda number: by_resp("WATCH", number)
    resign = lambda token: by_resp("RESIGN", token)


def say(*words):
    print(*words, flush=True)


def write():
    try:
        conn.set("written:" + election, name)
        say("wrote")
    except redis.ResponseError as e:
        say("refused", str(e).split()[0])
    except redis.ConnectionError:
        say("refused", "closed")


won = acquire()
while won["outcome"] != "acquired":
    say("busy", won["owner"])
    watch(won["number"])
    won = acquire()
say("leads", won["number"])
conn.execute_command("FENCE", "BIND", election, won["token"])
write()
sys.stdin.readline()
say(resign(won["token"])["outcome"])
sys.stdin.readline()
write()
