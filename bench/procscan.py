"""What looking for tasks in D state costs: processor time of one look at all tasks, and the share of a core at its interval.

default: 2000 20000

Processes with ten threads each stand for a busy node; all of them sleep, and all are ended afterwards.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from xidwatch.sources.procfs import ProcReader
from xidwatch.sources.taskscan import pass_interval_s

THREADS = 10
LOOKS = 7
_BROOD = """
import os, signal, sys, threading
threading.stack_size(32768)
children = []
def end(*_):
    for child in children:
        os.kill(child, signal.SIGKILL)
    os._exit(0)
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        for _ in range(int(sys.argv[2]) - 1):
            threading.Thread(target=signal.pause, daemon=True).start()
        while True:
            signal.pause()
    children.append(child)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
signal.pause()
"""
"""A process that has many children with many threads; SIGTERM ends them all."""


@contextmanager
def sleepers(tasks: int) -> Iterator[None]:
    """So many tasks that sleep."""
    command = [sys.executable, "-I", "-c", _BROOD, str(max(1, tasks // THREADS)), str(THREADS)]
    brood = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert brood.stdout is not None
        brood.stdout.readline()
        yield
    finally:
        brood.send_signal(signal.SIGTERM)
        brood.wait(60)


def measure(reader: ProcReader, *, processes: bool) -> tuple[float, int]:
    """Median processor time of a look in seconds, and how many tasks it saw."""
    took, tasks = [], 0
    for _ in range(LOOKS):
        began_s = time.thread_time()
        tasks = reader.all(processes=processes).tasks
        took.append(time.thread_time() - began_s)
    return statistics.median(took), tasks


def main(sizes: list[int]) -> int:
    """Measure each size and print a line for it. Returns the exit code."""
    reader = ProcReader()
    print(f"load average {os.getloadavg()[0]:.1f}, {LOOKS} looks each, medians")
    for size in [0, *sizes]:
        if not size:
            report(*measure(reader, processes=False))
            continue
        with sleepers(size):
            wait_until_there(reader, size)
            report(*measure(reader, processes=True))
    return 0


def wait_until_there(reader: ProcReader, size: int) -> None:
    """The children start their threads in their own time."""
    end_s = time.monotonic() + 120
    while reader.all().tasks < size and time.monotonic() < end_s:
        time.sleep(0.2)


def report(cost_s: float, tasks: int) -> None:
    """One line."""
    interval_s = pass_interval_s(cost_s)
    print(f"{tasks:>6,} tasks: {1000 * cost_s:7.1f} ms a look, {1e6 * cost_s / tasks:5.1f} us a task; "
          f"every {interval_s:3.0f} s: {100 * cost_s / interval_s:.3f} % of a core")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", metavar="TASKS", type=int, nargs="*", default=[2000, 20_000], help="how many tasks sleep")
    sys.exit(main(parser.parse_args().sizes))
