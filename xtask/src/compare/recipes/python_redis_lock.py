"""python_redis_lock.py URL COMMAND...: python-redis-lock with auto renewal, as its README shows.

Only socket_timeout is set: the default of redis-py is as long as the lock blocks, so a waiting
client would time out again and again.
"""
import subprocess
import sys

import redis
import redis_lock

conn = redis.StrictRedis.from_url(sys.argv[1], socket_timeout=10)
with redis_lock.Lock(conn, "g/x", expire=5, auto_renewal=True):
    code = subprocess.run(sys.argv[2:]).returncode
sys.exit(code if code >= 0 else 128 - code)
