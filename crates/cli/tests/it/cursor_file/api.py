"""An API of updates 1, 2, 3 ... and a ledger of their effects.

usage: api.py LEDGER HEAD
It serves updates up to the number in the file HEAD, and prints its port. An effect under an older
epoch of its duty than the newest that it has seen is refused.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LEDGER, HEAD = sys.argv[1:]
UPDATES_PER_RESPONSE = 5

lock = threading.Lock()
newest = {}
ledger = open(LEDGER, "a", buffering=1)


def judge(what, entry):
    """Notes an entry; returns whether its epoch is the newest of its duty."""
    duty, epoch = entry["duty"], int(entry["epoch"] or 0)
    with lock:
        accepted = epoch >= newest.get(duty, 0)
        if accepted:
            newest[duty] = epoch
        ledger.write(json.dumps({"what": what if accepted else "refused"} | entry) + "\n")
    return accepted


class Api(BaseHTTPRequestHandler):
    def do_GET(self):
        offset = int(self.path.rpartition("=")[2])
        with open(HEAD) as file:
            head = int(file.read())
        # Its clients are not to use a whole core.
        threading.Event().wait(0.03)
        self.answer(200, list(range(offset, min(head + 1, offset + UPDATES_PER_RESPONSE))))

    def do_POST(self):
        entry = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(200 if judge(self.path[1:], entry) else 409, {})

    def answer(self, status, body):
        body = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
print(server.server_port, flush=True)
server.serve_forever()
