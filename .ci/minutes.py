"""Run a command, and fail where it takes more than sixteen processor minutes of a quiet core.

Processor time does not depend on other programs of a machine, but on who shares its cores and their cache: servers take
up to three times as long for the same work. A loop on two cores, before and after the command, says how fast they are.
"""

import resource
import statistics
import subprocess
import sys

MOST = 16.0
QUIET = 0.5
"""Processor seconds of the loop on a quiet core."""
LOOP = """
import time
def loop():
    total = 0
    for i in range(10**7):
        total += i * i
start = time.process_time()
loop()
print(time.process_time() - start)
"""


def seconds_of_loops() -> list[float]:
    """The processor seconds of two loops at a time."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return [float(loop.communicate()[0]) for loop in loops]


def minutes() -> float:
    """The processor minutes of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) / 60.0


if __name__ == "__main__":
    loops = seconds_of_loops()
    before = minutes()
    code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode
    taken = minutes() - before
    slowness = max(1.0, statistics.mean(loops + seconds_of_loops()) / QUIET)
    print(f"{taken:.1f} processor minutes of cores {slowness:.1f} times as slow as quiet ones, which have {MOST:g}")
    sys.exit(code or int(taken > MOST * slowness))
