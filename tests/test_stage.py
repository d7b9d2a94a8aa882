"""A daemon on a stage: whole, and unable to touch or to be taken for a real node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml.fake import SCENARIOS
from xidwatch.config import Config
from xidwatch.core.event import Event
from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.stage import Stage, staged

GIVEN = {"kmsg": "k", "listen": "127.0.0.1:0", "state_dir": "s", "run_dir": "r"}


def config(folder: Path, **more: object) -> Config:
    """A configuration of a stage of its own."""
    pipe = folder / "kmsg"
    if not pipe.exists():
        os.mkfifo(pipe)
    values = {"kmsg": pipe, "listen": "127.0.0.1:0", "state_dir": folder / "state", "run_dir": folder / "run", **more}
    return Config(**values)  # type: ignore[arg-type]


def test_a_stage_of_its_own_is_accepted(tmp_path: Path) -> None:
    """Only the pipe is read; the tasks of this machine are not looked at, and no injected line is believed."""
    found = staged(config(tmp_path, accept_injected=True), GIVEN)
    assert ("kmsg", "off", False) == (found.source, found.d_state.scan, found.accept_injected)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kmsg": Path("/dev/kmsg")}, "a kernel's log"),
        ({"kmsg": Path("/nowhere/kmsg")}, "a kernel's log"),
        ({"state_dir": Config().state_dir}, "a real node's"),
        ({"run_dir": Config().run_dir}, "a real node's"),
        ({"listen": Config().listen}, "a real node's"),
        ({"listen": ":19079"}, "a real node's"),
        ({"state_dir": Config().state_dir / "demo"}, "a real node's"),
        ({"run_dir": Path("/tmp/../run/xidwatch")}, "a real node's"),
    ],
)
def test_what_is_real_is_refused(more: dict[str, object], why: str, tmp_path: Path) -> None:
    """Neither the kernel's log nor the folders or the port of the service may be a stage's."""
    with pytest.raises(XidwatchError, match=why):
        staged(config(tmp_path, **more), GIVEN)


@pytest.mark.parametrize("missing", GIVEN)
def test_nothing_is_left_to_a_default(missing: str, tmp_path: Path) -> None:
    """A default would be the real node's."""
    with pytest.raises(XidwatchError, match=f"--{missing.replace('_', '-')}"):
        staged(config(tmp_path), {**GIVEN, missing: None})


def test_the_command_line_refuses_before_anything_is_opened(tmp_path: Path) -> None:
    """`watch --scenario` without a pipe of its own ends with 2 and leaves no folder behind."""
    command = [sys.executable, "-m", "xidwatch", "watch", "--scenario", str(SCENARIOS / "healthy.txt")]
    command += ["--kmsg", "/dev/kmsg", "--listen", "127.0.0.1:0", "--state-dir", f"{tmp_path}/s", "--run-dir", f"{tmp_path}/r"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (2, True, []) == (done.returncode, "give a pipe" in done.stderr, list(tmp_path.iterdir()))


def test_whose_job_is_read_anew_when_the_file_changes(tmp_path: Path) -> None:
    """The scenario says whose a pid is; what cannot be read any more leaves what was known."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("include healthy.txt\nnode job.77 88123\n", encoding="ascii")
    stage = Stage(scenario)
    event = Event(kind="xid", uid=(0, 0, 0), record=Record(text=""), last_record=Record(text=""), pid=77)
    assert "88123" == getattr(stage.whose(event), "slurm_job", None)
    scenario.write_text("include healthy.txt\n", encoding="ascii")
    os.utime(scenario, ns=(1, 1))
    assert stage.whose(event) is None
    scenario.unlink()
    assert stage.whose(event) is None


@pytest.mark.parametrize(("said", "why"), [("generation kepler", "one of pre_ampere"), ("bmc perhaps", "one of true, false")])
def test_a_machine_that_cannot_be_is_told(said: str, why: str, tmp_path: Path) -> None:
    """Words outside the vocabulary are a mistake of the scenario."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(f"count 1\nnode machine.{said}\n", encoding="ascii")
    with pytest.raises(XidwatchError, match=why):
        Stage(scenario)


def test_the_machine_is_the_scenarios() -> None:
    """What kind of machine it is comes out of the file, with what it does not say unknown."""
    machine = Stage(SCENARIOS / "healthy.txt").machine()
    assert ("open", "hopper", True, "slurm", None) == (
        machine.flavour, machine.generation, machine.bmc, machine.scheduler, machine.mig,
    )  # fmt: skip


def test_a_timing_that_is_none_is_told(tmp_path: Path) -> None:
    """The mistake is told when the stage is built, not in the loop."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("count 1\nnode timing fast\n", encoding="ascii")
    with pytest.raises(XidwatchError, match="three numbers"):
        Stage(scenario)
