"""pg_advisory.py URL COMMAND...: a session advisory lock around a command, as usually shown."""
import subprocess
import sys

import psycopg

with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    conn.execute("SELECT pg_advisory_lock(hashtext('g/x'))")
    try:
        code = subprocess.run(sys.argv[2:]).returncode
    finally:
        conn.execute("SELECT pg_advisory_unlock(hashtext('g/x'))")
sys.exit(code if code >= 0 else 128 - code)
