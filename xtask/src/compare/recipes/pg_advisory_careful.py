"""pg_advisory_careful.py URL COMMAND...: an advisory lock with a TTL and supervision.

The server ends a session that is idle for the TTL (idle_session_timeout), and with it the lock. A
thread keeps the session busy.
"""
import sys
import time

import psycopg

import careful

conn = psycopg.connect(sys.argv[1], autocommit=True, connect_timeout=5)
conn.execute("SELECT pg_advisory_lock(hashtext('g/x'))")
lease = careful.Lease(time.monotonic())
conn.execute(f"SET idle_session_timeout = '{int(careful.TTL)}s'")


def renew():
    try:
        conn.execute("SELECT 1")
        return True
    except psycopg.Error:
        return False


lease.renew_every(1.5, renew)
careful.run(sys.argv[2:], lease, conn.close)
