"""`xidwatch check` beside an NVML that is in true D state: it answers, its caller's pipes are free, and it joins nobody there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes import Root, incident
from tests.nvml.fake import Fake, library
from tests.system import dead_mount, hung_task
from xidwatch.nvml.kin import blocked_anywhere

pytestmark = [pytest.mark.system, pytest.mark.root]
DEADLINE_S = 60.0


def run(root: Root, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it; returns when both its outputs have ended, as a scheduler waits for them."""
    command = [sys.executable, "-m", "xidwatch", *root.arguments, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)


def check(root: Root) -> tuple[int, str]:
    """Exit code and line."""
    done = run(root, "--line")
    assert "" == done.stderr
    return done.returncode, done.stdout


def test_check_beside_nvml_in_d_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run leaves one child in D state, the second leaves it alone; thawed, the node is fit again."""
    if (why := hung_task.no_loop_mount()) is not None:
        pytest.skip(why)
    library(old=False)
    fake, root = Fake(monkeypatch, tmp_path), Root(tmp_path / "root")
    before = set(blocked_anywhere())
    with hung_task.own_file_system(tmp_path) as disk:
        monkeypatch.setenv("FAKE_NVML_FROZEN", str(disk))
        fake.use("d_state")
        with hung_task.frozen(disk):
            first = check(root)
            stuck = set(blocked_anywhere()) - before
            second = check(root)
            assert stuck == set(blocked_anywhere()) - before
        assert (2, "not known: 0000:61:00.0 +4 NVML did not answer in time\n") == first
        assert (2, "not known: 0000:1b:00.0 +7 NVML did not answer in time\n") == second
        assert 1 == len(stuck)
        assert (0, "fit: 8 GPUs, no daemon: log not watched; 1 remark\n") == check(root)


def test_check_beside_a_dead_disk(tmp_path: Path) -> None:
    """Where /var hangs the daemon's word still counts, and what could not be looked at is told by name."""
    if (why := dead_mount.impossible()) is not None:
        pytest.skip(why)
    root = Root(tmp_path)
    root.daemon(incidents=[incident()])
    root.write("proc/sys/kernel/hung_task_timeout_secs", 0)
    with dead_mount.dead(tmp_path / "var/log"):
        assert (1, "not fit: 0000:61:00.0 GPU has fallen off the bus: reboot node\n") == check(root)
        told = json.loads(run(root, "--format", "json").stdout)
    assert [{"path": "files on the disks", "why": "no answer in time"}] == told["not_read"]
    assert ["hung_task_timeout"] == [one["id"] for one in told["remarks"]]
