"""kill -9 at any moment: every event ends up in the history exactly once, and the totals are right."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from xidwatch.core.event import Event
from xidwatch.errors import XidwatchError
from xidwatch.sinks.history_read import read_history

pytestmark = [pytest.mark.system, pytest.mark.root]
KILLS = int(os.environ.get("XIDWATCH_KILLS", "20"))
LISTEN = "127.0.0.1:19181"
SLOT = f"{random.SystemRandom().randrange(0x1000, 0xFFFF):04x}:e1:00"
"""The ring may still hold the lines of an earlier run."""


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A daemon on the real /dev/kmsg that believes what is written there."""
    command = [sys.executable, "-m", "xidwatch", "watch", "--source", "kmsg", "--accept-injected", "--listen", LISTEN,
               "--state-dir", str(folder / "state"), "--run-dir", str(folder / "run")]  # fmt: skip
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def write_line(number: int) -> None:
    """One numbered event. The device is opened anew each time: it limits the rate of each open file."""
    with open("/dev/kmsg", "w", encoding="ascii") as kmsg:
        kmsg.write(f"<4>NVRM: Xid (PCI:{SLOT}): 43, pid={1000 + number}, name=numbered, Ch {number:08x}\n")


def numbers(folder: Path) -> list[int]:
    """Which numbered events the history holds, in its order."""
    entries = read_history(folder / "state" / "history.db", gpu=SLOT)
    return [entry.item.pid - 1000 for entry in entries if isinstance(entry.item, Event) and entry.item.pid is not None]


def wait_for(number: int, folder: Path, deadline_s: float) -> None:
    """Until the daemon has kept an event of this number."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        with suppress(XidwatchError):  # not there yet, or its tables are not
            if number in numbers(folder):
                return
        time.sleep(0.1)
    raise AssertionError(f"event {number} is not in the history after {deadline_s} s")


def scraped_lines(deadline_s: float) -> list[str]:
    """The metrics, once the daemon that was started last answers: what it counts may be in the history before that."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(f"http://{LISTEN}/metrics", timeout=5) as answer:
            return answer.read().decode().splitlines()  # type: ignore[no-any-return]
        time.sleep(0.1)
    raise AssertionError(f"no scrape within {deadline_s} s")


@pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/kmsg", os.W_OK), reason="needs root and /dev/kmsg")
def test_killed_again_and_again_it_loses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    """A stream of numbered kernel lines under a daemon that is killed at random moments is kept line for line."""
    dice, number = random.Random(7), 0
    daemon = started(tmp_path)
    try:
        for _ in range(KILLS):
            lives_until = time.monotonic() + dice.uniform(0.2, 1.2)
            while time.monotonic() < lives_until:
                number += 1
                write_line(number)
                time.sleep(dice.uniform(0.005, 0.05))
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            daemon = started(tmp_path)
        wait_for(number, tmp_path, 30)
        lines = scraped_lines(30)
    finally:
        daemon.terminate()
        daemon.wait(timeout=20)
    total = next(line.split()[-1] for line in lines if line.startswith("xidwatch_xid_events_total") and SLOT in line)
    assert list(range(1, number + 1)) == sorted(numbers(tmp_path))
    assert number == float(total)
