"""A whole daemon beside an NVML call that does not return: it answers, reads, feeds its watchdog, and stops."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring import ROOT
from tests.nvml.fake import Fake, state_of
from tests.nvml.staged import Staged, staged, write_scenario
from tests.system import hung_task
from tests.system.live import until

LINE = "NVRM: Xid (PCI:0000:1b:00): 31, pid=77, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted"
GSP = "NVRM: Xid (PCI:0000:61:00): 119, pid=78, name=python3, Timeout after 6s of waiting for RPC response from GPU3 GSP!"
ON_THE_LIBRARY = """
import sys
from pathlib import Path
from xidwatch import daemoncli, stage
from xidwatch.nvml.client import Means, NvmlClient
class Real(stage.Stage):
    def _client(self):
        return NvmlClient(self._timing, None, Means(module=None))
stage.Stage = Real
from xidwatch.cli import main
sys.argv[1:1] = ["watch"]
sys.exit(main())
"""
"""The same daemon, whose child asks the compiled library instead of playing the scenario, and minds what others left behind."""


class Watchdog:
    """systemd's end of the notification socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))

    def fed(self) -> int:
        """How often since the last call the daemon has said that it is alive."""
        count = 0
        while True:
            try:
                count += b"WATCHDOG=1" in self._socket.recv(4096)
            except BlockingIOError:
                return count

    def close(self) -> None:
        """Close it."""
        self._socket.close()


@pytest.fixture
def watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watchdog]:
    """A watchdog that wants to be fed every second."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    one = Watchdog(tmp_path / "notify")
    yield one
    one.close()


def stuck(state: dict[str, Any]) -> dict[str, Any] | None:
    """The GPU at which the call does not return, once that is noticed."""
    found: list[dict[str, Any]] = [
        gpu for gpu in state["gpus"] if gpu["answer"] == "unresponsive" and gpu["pci"] == "0000:61:00.0"
    ]
    return found[0] if found else None


def lives_on(node: Staged, watchdog: Watchdog) -> None:
    """Scrape, log and watchdog go on; the seconds grow; what the GPU said last is kept."""
    gpu = node.wait(stuck)
    assert ("1652923000103", True) == (gpu["serial"], gpu["as_of_us"] is not None)
    took_s = []
    seconds = [0.0]

    def grown() -> bool:
        began_s = time.monotonic()
        seconds.append(node.scrape().total("xidwatch_nvml_stuck_seconds"))
        took_s.append(time.monotonic() - began_s)
        return seconds[-1] > seconds[1] > 0

    until(grown, what="stuck seconds that grow")
    assert sorted(took_s)[len(took_s) // 2] < 1
    before = node.scrape().total("xidwatch_xid_events_total", xid="31")
    node.say(LINE, GSP)
    until(lambda: node.scrape().total("xidwatch_xid_events_total", xid="31") == before + 1, what="the line in the metrics")
    incident = node.wait(
        lambda state: next((one for one in state["incidents"] if one["checks"] and "0000:61:00.0" in one["gpus"]), None)
    )
    assert ("nvml_stuck", "confirmed") in [(check["check"], check["answer"]) for check in incident["checks"]]
    watchdog.fed()
    until(watchdog.fed, what="the watchdog's food")
    assert node.command("status").returncode in (0, 1)


def test_a_call_that_waits_in_the_kernel(tmp_path: Path, watchdog: Watchdog) -> None:
    """The child is in D state, deaf to SIGTERM: the daemon lives on and stops at once; with the call back, all GPUs answer."""
    write_scenario(tmp_path, "healthy", timing="3 0.2 0.05")
    with staged(tmp_path) as node:
        node.wait(lambda state: sum(gpu["answer"] == "state" for gpu in state["gpus"]) == 8)
        write_scenario(tmp_path, "d_state", timing="3 0.2 0.05")
        lives_on(node, watchdog)
        (child,) = children_of(node.child.pid)
        assert "D" == state_of(child)
        write_scenario(tmp_path, "healthy", timing="3 0.2 0.05")
        node.wait(lambda state: sum(gpu["answer"] == "state" for gpu in state["gpus"]) == 8 and not state["nvml"]["stuck_s"])
        write_scenario(tmp_path, "d_state", timing="3 0.2 0.05")
        node.wait(stuck)
        took_s = node_stop(node)
    assert took_s < 5


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps: apt-get install procps")
def test_the_documented_command_shows_the_stuck_process(tmp_path: Path) -> None:
    """What docs/nvml.md says to type finds the process that asks NVML and its D state."""
    (command,) = re.findall(r"^    (ps .*)$", (ROOT / "docs" / "nvml.md").read_text(encoding="utf-8"), re.MULTILINE)
    write_scenario(tmp_path, "d_state")
    with staged(tmp_path) as node:
        (child,) = until(lambda: children_of(node.child.pid), what="the process that asks NVML")
        until(lambda: state_of(child) == "D", what="its D state")
        shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
        assert (str(child), "D") in [(line.split()[0], line.split()[1][0]) for line in shown.splitlines()]


def node_stop(node: Staged) -> float:
    """How long the daemon takes to end after SIGTERM, in seconds."""
    began_s = time.monotonic()
    node.child.terminate()
    node.child.wait(30)
    return time.monotonic() - began_s


def children_of(pid: int) -> list[int]:
    """Its NVML children that live."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(one) for one in found if Path(f"/proc/{one}/comm").read_text(encoding="utf-8").startswith("nvml-of-")]


@pytest.mark.system
@pytest.mark.root
def test_a_frozen_file_system_under_the_library(
    fake: Fake, tmp_path: Path, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled library waits in a true D state: the daemon lives on and stops in time; the next one starts no second child."""
    if (why := hung_task.no_loop_mount()) is not None:
        pytest.skip(why)
    folder = tmp_path / "node"
    folder.mkdir()
    program = ("-c", ON_THE_LIBRARY)
    with hung_task.own_file_system(tmp_path) as disk:
        monkeypatch.setenv("FAKE_NVML_FROZEN", str(disk))
        fake.use("healthy")
        write_scenario(folder, "healthy", timing="3 0.2 0.05")
        with staged(folder, program=program) as node:
            node.wait(lambda state: sum(gpu["answer"] == "state" for gpu in state["gpus"]) == 8)
            until(lambda: not fake.holders(*children_of(node.child.pid)), what="a moment between two samples")
            with hung_task.frozen(disk):
                fake.use("d_state")
                lives_on(node, watchdog)
                (child,) = children_of(node.child.pid)
                assert "D" == state_of(child)
                assert node_stop(node) < 5
                with staged(folder, program=program) as second:
                    why = second.wait(lambda state: state["nvml"]["stuck_s"] > 0 and state["nvml"]["why"])
                    assert f"child {child} of an earlier run is still blocked" in why
                    assert [] == children_of(second.child.pid)
                    assert not [gpu for gpu in (second.state() or {})["gpus"] if gpu["missing"]]
                    second.say(LINE)
                    until(lambda: second.scrape().total("xidwatch_xid_events_total", xid="31") > 1, what="the line")
        until(lambda: not os.path.exists(f"/proc/{child}"), what="the thawed child's end")
