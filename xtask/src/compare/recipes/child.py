"""Command that runs under a lock: appends `TIME_NS HOLDER.PID` to a file every 20 ms.

Ends by itself after two minutes.
"""
import os
import time

me = f"{os.environ['COMPARE_HOLDER']}.{os.getpid()}"
out = os.open(os.environ["COMPARE_LINES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for _ in range(6000):
    os.write(out, f"{time.time_ns()} {me}\n".encode())
    time.sleep(0.02)
