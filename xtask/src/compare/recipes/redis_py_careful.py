"""redis_py_careful.py URL COMMAND...: redis-py's Lock with renewal and supervision.

redis-py renews nothing by itself: a thread extends the lock every third of the TTL.
"""
import sys
import time

import redis
from redis.exceptions import LockError

import careful

client = redis.Redis.from_url(sys.argv[1], socket_timeout=1.5, socket_connect_timeout=1.5)
lock = client.lock("g/x", timeout=careful.TTL, thread_local=False)
lock.acquire()
lease = careful.Lease(time.monotonic() - lock.sleep)


def renew():
    try:
        return lock.extend(careful.TTL, replace_ttl=True)
    except LockError:
        return False
    except redis.RedisError:
        return None  # no response: try again at the next turn


def release():
    try:
        lock.release()
    except redis.RedisError as error:
        print(error, file=sys.stderr, flush=True)


lease.renew_every(careful.TTL / 3, renew)
careful.run(sys.argv[2:], lease, release)
