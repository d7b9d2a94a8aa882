"""The player in Python and the library in C tell the same of every scenario, through the same child."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from threading import Event

import pytest

from tests.nvml.fake import SCENARIOS, SLOTS, SOON_S, library, state_of
from xidwatch.errors import XidwatchError
from xidwatch.nvml.kin import own_command
from xidwatch.nvml.protocol import Ask, read, write
from xidwatch.nvml.scenario import read_scenario

NAMES = sorted(path.stem for path in SCENARIOS.glob("*.txt"))
ENDLESS = {"blocked", "blocked_init"}
UNEQUAL = {"at_us": 0, "over_s": 0.0}
"""What two runs cannot have in common."""
_pause = Event().wait


@contextmanager
def child(command: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A child that was asked once, and then has no more questions to wait for."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        assert process.stdin is not None
        process.stdin.write(write(Ask(number=1, gpus=SLOTS)))
        process.stdin.close()
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def until(holds: Callable[[], object]) -> None:
    """Wait for it, with a deadline."""
    end = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < end
        _pause(0.01)


def told(process: subprocess.Popen[bytes]) -> list[object]:
    """All that it says up to its end, but for the times."""
    assert process.stdout is not None
    return [timeless(read(line)) for line in process.stdout]


def timeless(value: object) -> object:
    """The message with its times put to nothing, as plain values."""
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__,
                [(one.name, UNEQUAL.get(one.name, timeless(getattr(value, one.name)))) for one in fields(value)])  # fmt: skip
    return [timeless(one) for one in value] if isinstance(value, tuple) else value


def by_library(name: str, folder: Path) -> list[object]:
    """What the child says on the library in C."""
    environment = {
        "FAKE_NVML_SCENARIO": str(SCENARIOS / f"{name}.txt"),
        "LD_LIBRARY_PATH": str(library(old=name == "old_driver")),
    }
    return played(name, own_command(), folder, environment)


def played(name: str, command: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> list[object]:
    """What a child says of a scenario; one that never answers is ended once it is there."""
    device, blocked = folder / "nvidiactl", folder / "blocked"
    device.touch()
    blocked.unlink(missing_ok=True)
    with child(command, {"FAKE_NVML_DEVICE": str(device), "FAKE_NVML_BLOCKED": str(blocked), **environment}) as process:
        if name in ENDLESS:
            until(blocked.exists)
            process.terminate()
        return told(process)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "d_state"])
def test_player_and_library_agree(name: str, tmp_path: Path) -> None:
    """Message by message, refusals and their words included, until the end, the crash or the call that never returns."""
    expected = by_library(name, tmp_path)
    assert expected == played(name, own_command(SCENARIOS / f"{name}.txt"), tmp_path, {})
    assert len(expected) > 1 or name == "blocked_init"


def test_d_state_is_one_and_ends_with_the_scenario(tmp_path: Path) -> None:
    """The kernel itself shows D, SIGTERM changes nothing; once the scenario is another, the call returns and all is told."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("include d_state.txt\n", encoding="ascii")
    with child(own_command(scenario), {"FAKE_NVML_DEVICE": ""}) as process:
        until(lambda: state_of(process.pid) == "D")
        process.terminate()
        _pause(0.2)
        assert "D" == state_of(process.pid)
        scenario.write_text("include healthy.txt\n", encoding="ascii")
        found = told(process)
    healthy = played("healthy", own_command(SCENARIOS / "healthy.txt"), tmp_path, {})
    assert healthy == found


def test_d_state_ends_when_its_file_is_gone(tmp_path: Path) -> None:
    """Nothing stays behind when the folder of a demo is removed."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("include d_state.txt\n", encoding="ascii")
    with child(own_command(scenario), {}) as process:
        until(lambda: state_of(process.pid) == "D")
        scenario.unlink()
        assert told(process)
        assert 0 == process.wait(SOON_S)


@pytest.mark.parametrize("elapsed_s", [0, 100])
def test_time_changes_the_scenario_in_both(elapsed_s: int, tmp_path: Path) -> None:
    """What stands below `at` holds from then on, in Python and in C."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("include healthy.txt\nat 50\n2 temperature 91\nat 1e6\n3 temperature 99\n", encoding="ascii")
    began_s = str(time.time() - elapsed_s)
    command = own_command(scenario)
    earlier = (*command[:-1], began_s)
    environment = {
        "FAKE_NVML_SCENARIO": f"{scenario}", "FAKE_NVML_BEGAN": began_s, "LD_LIBRARY_PATH": str(library(old=False)),
    }  # fmt: skip
    (tmp_path / "healthy.txt").symlink_to(SCENARIOS / "healthy.txt")
    expected = played("", own_command(), tmp_path, environment)
    assert expected == played("", earlier, tmp_path, {})
    assert (elapsed_s > 50) == ("('temperature_celsius', 91)" in str(expected))
    assert "('temperature_celsius', 99)" not in str(expected)


def test_every_mistake_of_a_scenario_is_told(tmp_path: Path) -> None:
    """File, line and what is wrong, all at once; a file that includes itself ends."""
    scenario = tmp_path / "mine.txt"
    scenario.write_text("include mine.txt\ncount many\nat noon\n17 name X\n3\nfoo bar\n* fail\ncount 2\n", encoding="ascii")
    with pytest.raises(XidwatchError) as caught:
        read_scenario(scenario)
    last = str(caught.value).splitlines()[-6:]
    assert [f"{scenario}:{line}:" for line in (2, 3, 4, 5, 6, 7)] == [line.split(" ")[0] for line in last]
    with pytest.raises(XidwatchError, match=r"nothing\.txt: No such file"):
        read_scenario(tmp_path / "nothing.txt")


@pytest.mark.parametrize("moment", ["nan", "inf", "-5", "1e400", "soon"])
def test_a_moment_that_never_comes_is_a_mistake(moment: str, tmp_path: Path) -> None:
    """What is no number of seconds from the start on is told, and not taken for one."""
    (tmp_path / "scenario.txt").write_text(f"count 1\nat {moment}\ncount 2\n")
    with pytest.raises(XidwatchError, match=r"scenario\.txt:2: 'at "):
        read_scenario(tmp_path / "scenario.txt")


def test_only_a_plain_file_with_an_end_is_a_scenario(tmp_path: Path) -> None:
    """A pipe that nobody fills is not waited for, and no device and no huge file is read to its end."""
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge.txt", "wb") as huge:
        huge.truncate(1 << 40)
    for path, why in (
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "huge.txt", "larger than 1 MiB"),
    ):
        with pytest.raises(XidwatchError, match=why):
            read_scenario(path)


def test_a_mistake_made_meanwhile_is_an_unknown_error(tmp_path: Path) -> None:
    """A scenario that cannot be read any more makes NVML fail with the reason; the child goes on."""
    found = played("", own_command(tmp_path / "gone.txt"), tmp_path, {})
    assert "UnknownError" in str(found) and "gone.txt: No such file" in str(found) and "Done" in str(found)


def test_d_state_needs_its_owner(tmp_path: Path) -> None:
    """A stuck child of a daemon that is gone does not stay for ever."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("include d_state.txt\n", encoding="ascii")
    with subprocess.Popen(["sleep", "60"]) as owner:
        command = tuple(str(owner.pid) if one == str(os.getpid()) else one for one in own_command(scenario))
        with child(command, {}) as process:
            until(lambda: state_of(process.pid) == "D")
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            assert told(process)
            assert 0 == process.wait(SOON_S)
