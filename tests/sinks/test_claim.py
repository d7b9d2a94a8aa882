"""One daemon for a folder, whatever became of the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml.staged import staged, write_scenario
from tests.system.live import DEADLINE_S, until
from xidwatch.errors import XidwatchError
from xidwatch.sinks.claim import Claims

HOLDS = """
import sys
from pathlib import Path
from xidwatch.sinks.claim import Claims
claims = Claims([Path(sys.argv[1])])
{then}
print("held", flush=True)
sys.stdin.read()
"""


def holder(file: Path, then: str = "") -> subprocess.Popen[str]:
    """Another process that holds the file."""
    command = [sys.executable, "-c", HOLDS.format(then=then), str(file)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def test_a_second_one_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """It is told who holds the folder; after a kill -9 the folder is free, with nothing to clean up."""
    file = tmp_path / "watch.lock"
    with holder(file) as first:
        with pytest.raises(XidwatchError, match=rf"another `xidwatch watch` that runs \(pid {first.pid}\)"):
            Claims([file])
        first.send_signal(signal.SIGKILL)
    Claims([file]).close()


def test_what_is_started_does_not_inherit_it(tmp_path: Path) -> None:
    """A child that outlives the daemon, as a stuck one of NVML's does, holds nothing."""
    file = tmp_path / "watch.lock"
    then = "import subprocess; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True)"
    command = [sys.executable, "-c", HOLDS.format(then=then), str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
        first.send_signal(signal.SIGKILL)
        first.wait()
        try:
            Claims([file]).close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_one_that_was_killed_and_cannot_die_is_not_obeyed(tmp_path: Path) -> None:
    """A zombie that still holds the lock keeps nobody out; the lock is taken over when it lets go."""
    file = tmp_path / "watch.lock"
    # Of a thread in D state this is left: the process is a zombie, and something still has its open files.
    with holder(file, "import os\nif os.fork():\n    os._exit(0)") as zombie:
        assert zombie.stdin is not None
        ours = Claims([file])
        zombie.stdin.close()
        until(lambda: file.read_text(encoding="ascii") == f"{os.getpid()}\n")
        with pytest.raises(XidwatchError):
            Claims([file])
        ours.close()


def test_where_nothing_can_be_written_nobody_is_refused(tmp_path: Path) -> None:
    """A folder that is not there, and a pipe in place of the file, are no other daemon."""
    os.mkfifo(tmp_path / "pipe")
    Claims([tmp_path / "nowhere" / "watch.lock", tmp_path / "pipe"]).close()


def test_a_second_daemon_leaves_the_first_alone(tmp_path: Path) -> None:
    """It ends with 2 and one sentence; the first keeps its socket, its log and its state."""
    write_scenario(tmp_path, "healthy")
    with staged(tmp_path) as node:
        node.wait(lambda state: state["nvml"]["up"])
        command = [
            sys.executable, "-m", "xidwatch", "watch", "--scenario", str(node.scenario), "--kmsg", str(node.pipe),
            "--listen", "127.0.0.1:0",
        ]  # fmt: skip
        for folders in (
            node.folders(),
            ["--state-dir", str(tmp_path / "other"), "--run-dir", str(node.run_dir)],
            ["--state-dir", str(node.state_dir), "--run-dir", str(tmp_path / "other")],
        ):
            second = subprocess.run([*command, *folders], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            assert (2, 1) == (second.returncode, len(second.stderr.splitlines())), second.stderr
            assert f"(pid {node.child.pid})" in second.stderr
        node.say("NVRM: Xid (PCI:0000:61:00): 79, pid=1, name=a, GPU has fallen off the bus.")
        node.wait(lambda state: state["incidents"])
        assert (node.run_dir / "follow.sock").is_socket()
    assert not (node.run_dir / "follow.sock").exists()
