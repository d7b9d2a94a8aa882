"""`xidwatch check` beside a whole daemon whose GPUs are a scenario: what the one writes is what the other reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import Root
from tests.nvml.fake import SCENARIOS
from tests.system.live import until
from xidwatch.checkcli import look
from xidwatch.config import Config
from xidwatch.core.fitness import judge_fitness
from xidwatch.render.as_check import render_line

FALLEN = "NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus."


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A daemon, the pipe that is its kernel's log, and the file that is its GPUs."""

    folder: Path
    kernel: int

    def becomes(self, scenario: str) -> None:
        """From the next sample on the GPUs are so; there are five samples a second."""
        fresh = self.folder / "scenario.new"
        fresh.write_text(
            f"include {os.path.relpath(SCENARIOS, self.folder)}/{scenario}.txt\nnode timing 10 0.2 0.1\n", encoding="ascii"
        )
        fresh.replace(self.folder / "scenario.txt")

    def says(self, line: str) -> None:
        """A line of its kernel's."""
        uptime_us = round(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) * 1e6)
        os.write(self.kernel, f"4,{os.getpid()},{uptime_us},-;{line}\n".encode())

    def line(self) -> str:
        """What `xidwatch check --line` says of it, but for the set-up."""
        return render_line(judge_fitness(look(self.folder / "root", Config(run_dir=self.folder / "run"))), ())

    def told(self, words: str) -> str:
        """The line, once it holds the words."""
        return until(lambda: line if words in (line := self.line()) else None, what=words)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Eight healthy GPUs, and a daemon that has heard of them."""
    Root(tmp_path / "root", slots=())
    os.mkfifo(tmp_path / "kmsg")
    one = Node(folder=tmp_path, kernel=os.open(tmp_path / "kmsg", os.O_RDWR))
    one.becomes("healthy")
    command = [
        sys.executable, "-m", "xidwatch", "watch", "--scenario", str(tmp_path / "scenario.txt"), "--kmsg", str(tmp_path / "kmsg"),
        "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"), "--run-dir", str(tmp_path / "run"),
    ]  # fmt: skip
    daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        one.told("fit: 8 GPUs")
        yield one
    finally:
        daemon.terminate()
        daemon.wait(30)
        os.close(one.kernel)


def test_a_node_from_well_to_lost(node: Node) -> None:
    """Well; a GPU gone without a word of the kernel's; then the line. Each is told as soon as the daemon knows it."""
    assert "fit: 8 GPUs, no critical incident" == node.line()
    node.becomes("lost")
    assert "not fit: 0000:61:00.0 lost" == node.told("lost")
    node.says(FALLEN)
    assert node.told("fallen off the bus").startswith("not fit: 0000:61:00.0 GPU has fallen off the bus: ")


@pytest.mark.parametrize(
    ("scenario", "line"),
    [
        ("remap_pending", "fit: 8 GPUs, no critical incident; 2 warnings"),
        ("reset_required", "not fit: 0000:d1:00.0 needs a reset"),
        ("version_mismatch", "not fit: 0000:1b:00.0 +7 driver/library version mismatch"),
        ("nvlink_down", "fit: 8 GPUs, no critical incident; 1 warning"),
        ("throttled", "fit: 8 GPUs, no critical incident; 1 warning"),
        ("gone", "not fit: 0000:df:00.0 missing"),
    ],
)
def test_each_fault(node: Node, scenario: str, line: str) -> None:
    """What NVML says to the daemon is what the scheduler is told."""
    node.becomes(scenario)
    assert line == node.told(line.partition("0000")[2] or "warning").partition(" (+")[0]


def test_state_is_all_that_check_asks_for(node: Node) -> None:
    """Every part that is read is written, under its own name."""
    state: dict[str, Any] = json.loads((node.folder / "run" / "state.json").read_text(encoding="utf-8"))

    def is_written(part: str, key: str) -> bool:
        return key in (state[part][0] if isinstance(state[part], list) else state[part])

    parts = {
        "gpus": ("pci", "on_bus", "driver", "answer", "since_us", "missing", "gpu_uuid", "serial", "place", "recovery_action",
                 "row_remap_pending", "row_remap_failed", "pages_pending", "banks_without_spare_rows", "sram_threshold_exceeded",
                 "ecc_enabled", "mig_enabled", "mig_pending", "persistence_mode", "fabric", "config_space_dead",
                 "clock_reasons", "temperature_celsius", "nvlinks", "nvlinks_down", "pcie_width", "pcie_max_width"),
        "nvml": ("asked", "up", "released", "stuck_s"), "maintenance": ("active", "until_us", "reason"), "sources": ("name", "up"),
        "rules": ("success", "mistakes"), "history": ("last_error",),
    }  # fmt: skip
    assert [] == [f"{part}.{key}" for part, keys in parts.items() for key in keys if not is_written(part, key)]
    assert {"time_us", "expected_gpus", "injection_accepted", "incidents"} <= set(state)
