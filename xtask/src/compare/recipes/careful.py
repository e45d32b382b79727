"""Supervision that a careful author adds around a lock. The examples of the libraries have none.

- SIGTERM and SIGINT reach the child; it has half a TTL, then SIGKILL; then the lock is released.
- When the lock is lost, the child gets SIGTERM, and SIGKILL 0.8 s later; the wrapper exits with 1.
- When the wrapper dies, the kernel kills the child (PR_SET_PDEATHSIG).
"""
import ctypes
import os
import signal
import subprocess
import threading
import time

TTL = 5.0
DRAIN = TTL / 2
GRACE = 0.8
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def end(child, within):
    child.terminate()
    try:
        child.wait(within)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class Lease:
    """Time of the last confirmed renewal, written by a renewing thread."""

    def __init__(self, confirmed):
        self.confirmed = confirmed
        self.lost = threading.Event()

    def renew_every(self, seconds, renew):
        """Calls `renew` in a thread; it returns False when the lock is lost, None when unknown."""

        def loop():
            while not self.lost.is_set():
                time.sleep(seconds)
                sent = time.monotonic()
                held = renew()
                if held:
                    self.confirmed = sent
                elif held is False:
                    self.lost.set()

        threading.Thread(target=loop, daemon=True).start()

    def is_held(self):
        return not self.lost.is_set() and time.monotonic() < self.confirmed + 0.85 * TTL


def run(command, lease, release):
    """Runs the command until it ends, a signal asks for the end, or the lock is lost."""
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    child = subprocess.Popen(
        command, preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    while child.poll() is None:
        if not lease.is_held():
            end(child, GRACE)
            os._exit(1)  # the thread may hang in a call that never returns
        if asked.is_set():
            end(child, DRAIN)
        time.sleep(0.05)
    release()
    os._exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)
