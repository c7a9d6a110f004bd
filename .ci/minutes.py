"""Run a command, and fail where it takes more than sixteen processor minutes of a quiet core.

Processor time does not depend on other programs of a machine, but on who shares its cores, cache and memory: servers
take up to three times as long for the same tests. Work that is like theirs, small tensors and new memory, is timed on
two cores before and after the command, and says how fast they are.
"""

import resource
import statistics
import subprocess
import sys

MOST = 16.0
QUIET = 0.25
"""Processor seconds of the work where the tests take ten minutes; on a server where they took 21, it took .55."""
WORK = """
import time, torch
torch.set_num_threads(1)
def work():
    matrix = torch.eye(8)
    for _ in range(60_000):
        matrix = (matrix @ matrix).clamp(-1.0, 1.0)
    for _ in range(40):
        torch.ones(4_000_000)
start = time.process_time()
work()
print(time.process_time() - start)
"""


def seconds_of_work() -> list[float]:
    """The processor seconds of the work, done twice at a time."""
    command = [".venv/bin/python", "-c", WORK]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return [float(one.communicate()[0]) for one in both]


def minutes() -> float:
    """The processor minutes of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) / 60.0


if __name__ == "__main__":
    work = seconds_of_work()
    before = minutes()
    code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode
    taken = minutes() - before
    slowness = max(1.0, statistics.mean(work + seconds_of_work()) / QUIET)
    print(f"{taken:.1f} processor minutes of cores {slowness:.1f} times as slow as quiet ones, which have {MOST:g}")
    sys.exit(code or int(taken > MOST * slowness))
