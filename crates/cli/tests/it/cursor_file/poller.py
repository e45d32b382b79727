"""A poller with a cursor file. It knows nothing of Tenure but its variables, which it passes on.

usage: poller.py API CURSOR
"""

import json
import os
import signal
import sys
import urllib.error
import urllib.request

API, CURSOR = sys.argv[1:]
SHARD, SHARDS = int(os.environ.get("TENURE_SHARD", 0)), int(os.environ.get("TENURE_SHARDS", 1))
WHO = {word: os.environ.get("TENURE_" + word.upper()) for word in ("duty", "epoch", "instance")}

stopping = False


def stop(*_):
    global stopping
    stopping = True


def load():
    try:
        with open(CURSOR) as file:
            return json.load(file)["last_update_id"]
    except FileNotFoundError:
        return 0


def save(position):
    with open(CURSOR + ".tmp", "w") as file:
        json.dump({"last_update_id": position}, file)
    os.rename(CURSOR + ".tmp", CURSOR)


def ask(path, body=None):
    data = None if body is None else json.dumps(WHO | body).encode()
    with urllib.request.urlopen(API + path, data) as response:
        return json.load(response)


signal.signal(signal.SIGTERM, stop)
position = load()
try:
    ask("/start", {"id": position})
    while not stopping:
        for update in ask(f"/updates?offset={position + 1}"):
            if update % SHARDS == SHARD:
                ask("/effect", {"id": update})
            position = update
            save(position)
            if stopping:
                break
except urllib.error.HTTPError as error:
    sys.exit(f"refused: {error}")
