"""Weeks in minutes: floods, storms, lines that no node has, and restarts, while memory, descriptors and threads are told.

    python -m bench.soak [MINUTES=3]

A pipe stands for /dev/kmsg. One round is 100,000 ordinary records, 2,000 Xids of a few programs, 500 of slots that are not
there, a hung task with its stack, scrapes, and every third time a start on the same history, after kill -9 in turn. Exit
status 1 when an event is missing or was counted twice, or when the daemon holds more after the last round than after those
that fill all that is bounded.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.flood import mixed
from bench.watched import Pipe, Usage, Watched, load, watching

_HUNG = (
    "INFO: task python3:{pid} blocked for more than 122 seconds.",
    "      Tainted: P           OE      6.8.0-45-generic #45-Ubuntu",
    "task:python3         state:D stack:0     pid:{pid} tgid:{pid} ppid:1      flags:0x00000002",
    "Call Trace:",
    " <TASK>",
    " __schedule+0x284/0x6b0",
    " schedule+0x33/0x110",
    " os_acquire_rwlock_write+0x35/0x50 [nvidia]",
    " _nv042330rm+0x10/0x40 [nvidia]",
    " </TASK>",
)
_XIDS, _ROUNDS_TO_SETTLE = 2000, 12
_MORE_MIB, _MORE_DESCRIPTORS = 8.0, 6


def one_round(daemon: Watched, pipe: Pipe, number: int) -> None:
    """Write what happens in one round, and wait until the last of it is counted."""
    for at in range(0, 100_000, 2000):
        pipe.write(pipe.records(mixed(at + 1, 2000, 1 << 60)))
    for at in range(0, _XIDS, 500):
        pipe.write(pipe.records(mixed(number * _XIDS + at, 500, 1)))
    pipe.write(
        pipe.records([f"NVRM: Xid (PCI:{number:04x}:{n:02x}:01): 43, pid={n}, name=x, Ch 00000008" for n in range(250)] * 2)
    )
    pipe.write(pipe.records([line.format(pid=40_000 + number) for line in _HUNG]))
    daemon.wait_for("xidwatch_hung_tasks_total", number + 1, attribution="gpu")


def main(minutes: float) -> int:
    """Measure and print. Returns the exit code."""
    end, number, settled, now = time.monotonic() + 60 * minutes, 0, None, None
    with tempfile.TemporaryDirectory() as folder:
        pipe = Pipe(Path(folder) / "kmsg")
        try:
            while time.monotonic() < end or number <= _ROUNDS_TO_SETTLE:
                with watching("--source", "kmsg", "--kmsg", str(pipe.path), folder=Path(folder)) as daemon:
                    for _ in range(3):
                        one_round(daemon, pipe, number)
                        number += 1
                        xids = daemon.total("xidwatch_xid_events_total", xid="31")
                        now = daemon.usage()
                        print(f"soak: round {number}: {_told(now)}, {xids:.0f} of {number * _XIDS} Xids; {load()}", flush=True)
                    if number % 2:
                        # What a pipe has given it gives no second time, unlike the kernel's ring.
                        while daemon.total("xidwatch_history_backlog"):
                            time.sleep(0.05)
                        daemon.child.send_signal(signal.SIGKILL)
                if number >= _ROUNDS_TO_SETTLE and settled is None:
                    settled = now
        finally:
            pipe.close()
    flat = settled is not None and now is not None and _is_flat(settled, now)
    print(f"soak: {'flat' if flat else 'NOT FLAT'}")
    return 0 if flat and xids == number * _XIDS else 1


def _is_flat(before: Usage, after: Usage) -> bool:
    more = after.descriptors - before.descriptors
    return after.main_mib - before.main_mib < _MORE_MIB and more < _MORE_DESCRIPTORS and after.threads <= before.threads + 3


def _told(usage: Usage) -> str:
    return f"{usage.main_mib:.1f} MiB, {usage.threads} threads, {usage.descriptors} descriptors"


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0))
