"""Tasks in D state that the kernel does not report: the daemon finds them in /proc by itself."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.system import hung_task
from tests.system.live import daemon, following, skip_unless_possible, until

pytestmark = [pytest.mark.system, pytest.mark.root]
QUICK = "[d_state]\nothers_after_s = 3.0\ngpu_after_s = 3.0\nincident_after_s = 6.0\n"
VFORK = (
    "import ctypes, os, time\nif not ctypes.CDLL(None).syscall({number}, 0x4011, 0, 0, 0, 0):\n time.sleep(60)\n os._exit(0)"
)
"""A parent that waits in D state for its child: clone(CLONE_VFORK | SIGCHLD)."""
CLONE = {"x86_64": 56, "aarch64": 220}


def waits(folder: Path, pid: int) -> list[dict[str, Any]]:
    """What state.json tells of a process."""
    found = json.loads((folder / "run/state.json").read_text())["blocked"]
    return [one for one in found if one["pid"] == pid]


def configured(folder: Path) -> Path:
    """A configuration that does not wait for minutes."""
    file = folder / "config.toml"
    file.write_text(QUICK)
    return file


def test_a_stuck_writer_is_found_with_the_kernels_detector_off(tmp_path: Path) -> None:
    """hung_task_timeout_secs is 0: the writer is found, attributed to storage, an incident; thawed, all of it ends."""
    skip_unless_possible(hung_task.impossible())
    with (
        hung_task.kernel_setting("hung_task_timeout_secs", 0),
        hung_task.own_file_system(tmp_path) as disk,
        daemon(tmp_path, "--config", str(configured(tmp_path))) as one,
        following(tmp_path / "run") as messages,
    ):
        with hung_task.frozen(disk):
            writer = subprocess.Popen([sys.executable, "-c", f"open({str(disk / 'file')!r}, 'w').write('x')"])
            (wait,) = until(lambda: waits(tmp_path, writer.pid), 60, what="the writer in state.json")
            assert ("storage", None, {}) == (wait["attribution"], wait["waits_for"], wait["hidden"])
            assert "percpu_rwsem_wait" in wait["stack"][0] or "mnt_want_write" in str(wait["stack"])
            assert "root" == wait["job"]["user"]
            assert one.total("xidwatch_tasks_blocked", attribution="storage") >= 1
            opened = until(
                lambda: [m for m in messages if "task python" in str(m) and f":{writer.pid} in D state" in str(m)], 30
            )
            assert {("platform", "warning")} == {(m["incident"]["class"], m["incident"]["severity"]) for m in opened}
            assert f":{writer.pid} blocked for more than" not in str(messages)
            assert f"(pid {writer.pid})" in one.command("status")
        writer.wait(30)
        until(lambda: not waits(tmp_path, writer.pid), 30, what="the wait to be over")
        ended = until(lambda: [m for m in messages if m["change"] == "ended" and f":{writer.pid} in D state" in str(m)], 30)
        assert ["released"] == [m["incident"]["end_reason"] for m in ended]
        until(lambda: one.total("xidwatch_tasks_blocked", attribution="storage") == 0, 30)


def pids_of_incidents(folder: Path) -> list[int | None]:
    """What state.json names."""
    incidents = json.loads((folder / "run/state.json").read_text())["incidents"]
    return [event["pid"] for incident in incidents for event in incident["events"]]


def test_the_kernels_own_line_joins_and_its_incident_ends_with_the_wait(tmp_path: Path) -> None:
    """One wait, seen in /proc and reported by the kernel, is one member of one incident; it ends when the task goes on."""
    skip_unless_possible(hung_task.impossible())
    with daemon(tmp_path, "--config", str(configured(tmp_path))), following(tmp_path / "run") as messages:
        with hung_task.hung_task(tmp_path) as writer:
            until(
                lambda: [m for m in messages if f":{writer.pid} blocked for more than" in str(m)], 30, what="the kernel's line"
            )
            until(lambda: waits(tmp_path, writer.pid), 60, what="the writer in state.json")
            incidents = json.loads((tmp_path / "run/state.json").read_text())["incidents"]
            mine = [event for incident in incidents for event in incident["events"] if event["pid"] == writer.pid]
            assert 1 == len(mine)
        until(lambda: [m for m in messages if m["change"] == "ended" and f":{writer.pid} " in str(m)], 30, what="the end")
        until(lambda: writer.pid not in pids_of_incidents(tmp_path), 10, what="state.json without it")


@pytest.mark.skipif(os.uname().machine not in CLONE, reason="the number of clone is not known here")
def test_a_vfork_parent_says_whom_it_waits_for(tmp_path: Path) -> None:
    """It shows D, hears SIGKILL, and waits for its child; nobody is told of an incident."""
    skip_unless_possible(None if os.geteuid() == 0 else "needs root to read stacks")
    with daemon(tmp_path, "--config", str(configured(tmp_path))) as one:
        parent = subprocess.Popen([sys.executable, "-c", VFORK.format(number=CLONE[os.uname().machine])])
        try:
            (wait,) = until(lambda: waits(tmp_path, parent.pid), 60, what="the parent in state.json")
            child = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0]
            assert ("other", True, f"its vfork child (pid {child})") == (
                wait["attribution"],
                wait["killable"],
                wait["waits_for"],
            )
            assert "kill -9" in one.command("status")
        finally:
            os.kill(int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0]), 9)
            parent.wait(30)
        incidents = json.loads((tmp_path / "run/state.json").read_text())["incidents"]
        assert [] == [one for one in incidents if any(event["pid"] == parent.pid for event in one["events"])]


def test_an_xid_says_whose_process_it_was(tmp_path: Path) -> None:
    """The pid in a line is looked up while it lives: its user and cgroup stand in the event, the verdict and the history."""
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    pipe = os.open(fifo, os.O_RDWR)
    victim = subprocess.Popen(["sleep", "60"])
    try:
        with daemon(tmp_path, "--kmsg", str(fifo), "--config", str(configured(tmp_path))) as one:
            until(lambda: one.total("xidwatch_task_scans_total"), what="the first look at all tasks")
            line = f"NVRM: Xid (PCI:0000:3b:00): 31, pid={victim.pid}, name=sleep, Ch 00000008, intr 10000000."
            os.write(pipe, f"4,1,{round(time.monotonic() * 1e6)},-;{line}\n".encode())
            (incident,) = until(lambda: json.loads((tmp_path / "run/state.json").read_text())["incidents"], what="the incident")
            victim.kill()
            user = pwd.getpwuid(os.geteuid()).pw_name
            assert user == incident["events"][0]["job"]["user"]
            assert f"sleep (pid {victim.pid}), " in incident["sentence"]
            assert f"user {user}" in incident["sentence"]
            until(lambda: f"user {user}]" in one.command("history"), what="the history on the disk")
    finally:
        victim.kill()
        victim.wait(10)
        os.close(pipe)
