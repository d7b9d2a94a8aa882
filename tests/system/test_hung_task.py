"""What a frozen file system does: to a task, which the daemon reports, and to the daemon itself, which goes on."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.system import hung_task
from tests.system.live import Gpu, daemon, following, skip_unless_possible, until, write_line
from xidwatch.core.event import Event
from xidwatch.sinks.history_read import read_history

pytestmark = [pytest.mark.system, pytest.mark.root]


def seen_by_kernel(pid: int) -> float:
    """When (monotonic, s) the kernel's line about this hung task could be read."""
    with open("/dev/kmsg", "rb", buffering=0) as kmsg:
        os.lseek(kmsg.fileno(), 0, os.SEEK_END)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                line = kmsg.read(8192) or b""
            except BrokenPipeError:
                continue  # overwritten before it was read; the next one is there
            if f":{pid} blocked".encode() in line and line.split(b",")[0].isdigit() and int(line.split(b",")[0]) < 8:
                return time.monotonic()
    raise AssertionError("the kernel did not report the hung task")


def test_a_true_hung_task_is_an_event_within_a_second(tmp_path: Path) -> None:
    """The kernel's own report, facility 0, becomes a trusted event attributed to storage, in metrics and for followers."""
    skip_unless_possible(hung_task.impossible())
    with daemon(tmp_path) as one, following(tmp_path / "run") as messages:
        before = one.total("xidwatch_hung_tasks_total", attribution="storage")
        with hung_task.hung_task(tmp_path) as writer:
            said_s = seen_by_kernel(writer.pid)
            until(lambda: one.total("xidwatch_hung_tasks_total", attribution="storage") > before, 5)
            counted_s = time.monotonic()
            opened = until(lambda: [m for m in messages if f":{writer.pid} blocked" in str(m)], 5)
            told_s = time.monotonic()
    kept = [entry for entry in read_history(one.state_dir / "history.db") if f":{writer.pid} blocked" in str(entry.item)]
    assert ["hung_task"] * len(kept) == [entry.kind for entry in kept]
    assert ["kernel"] * len(kept) == [entry.item.record.trusted for entry in kept if entry.item is not None]
    assert {"platform"} == {str(message["incident"]["class"]) for message in opened}
    assert (True, True) == (counted_s - said_s < 1, told_s - said_s < 1)
    assert kept


def test_settings_of_the_kernel_are_put_back(tmp_path: Path) -> None:
    """After the test the kernel looks for hung tasks as it did before."""
    skip_unless_possible(hung_task.impossible())
    files = [Path("/proc/sys/kernel") / name for name in ("hung_task_timeout_secs", "hung_task_warnings")]
    before = [file.read_text(encoding="ascii") for file in files]
    with hung_task.hung_task(tmp_path):
        assert before != [file.read_text(encoding="ascii") for file in files]
    assert before == [file.read_text(encoding="ascii") for file in files]


def test_a_frozen_disk_stops_neither_scrape_nor_followers(tmp_path: Path) -> None:
    """With the history's disk frozen events are counted, followers told, the backlog is a metric; thawed, nothing is missing."""
    skip_unless_possible(hung_task.no_loop_mount())
    gpu = Gpu()
    with (
        hung_task.own_file_system(tmp_path) as disk,
        daemon(tmp_path, "--accept-injected", state_dir=disk / "state") as one,
        following(tmp_path / "run") as messages,
    ):
        with hung_task.frozen(disk):
            for number in range(20):
                write_line(gpu.xid(43, number))
            until(lambda: one.total("xidwatch_xid_events_total", gpu=gpu.label, xid="43") == 20, 5, what="20 events")
            until(lambda: one.total("xidwatch_history_backlog") > 0, 5, what="a backlog")
            until(lambda: [message for message in messages if gpu.label in str(message)], 5, what="a follower's message")
            asked_s = time.monotonic()
            one.scrape()
            assert time.monotonic() - asked_s < 1
        until(lambda: one.total("xidwatch_history_backlog") == 0, what="the backlog on the disk")
        kept = [entry.item for entry in read_history(one.state_dir / "history.db", gpu=gpu.label)]
        assert list(range(20)) == sorted(item.pid or 0 for item in kept if isinstance(item, Event))
        assert 0 == one.stop()


def test_a_disk_that_refuses_is_a_metric(tmp_path: Path) -> None:
    """With the disk gone read-only every event is still counted, and the failures are shown in metrics and status."""
    skip_unless_possible(hung_task.no_loop_mount())
    gpu = Gpu()
    with (
        hung_task.own_file_system(tmp_path) as disk,
        daemon(tmp_path, "--accept-injected", state_dir=disk / "state") as one,
    ):
        # What ext4 itself does after an error of the disk; a plain remount is refused while files are open for writing.
        subprocess.run(["mount", "-o", "remount,abort", str(disk)], check=False, capture_output=True)
        write_line(gpu.xid(43, 1))
        until(lambda: one.total("xidwatch_xid_events_total", gpu=gpu.label, xid="43") == 1, 5, what="the event")
        until(lambda: one.total("xidwatch_history_write_failures_total") > 0, what="a write failure")
        until(lambda: "history:" in one.command("status"), what="a word about it in the status")
