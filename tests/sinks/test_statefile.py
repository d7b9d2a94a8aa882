"""state.json is written by a thread that survives whatever goes wrong."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from xidwatch.sinks.statefile import StateFile

DEADLINE_S = 10.0


def _mistaken() -> dict[str, Any]:
    raise KeyError("a mistake in drawing")


def _written(path: Path, state: dict[str, Any]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not (path.is_file() and json.loads(path.read_text(encoding="utf-8")) == state):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_mistake_in_drawing_is_told_and_leaves_no_old_state_standing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A state that cannot be drawn is told on standard error, and the next one is written."""
    path = tmp_path / "state.json"
    file = StateFile(path)
    file.put(lambda: {"turn": 1})
    _written(path, {"turn": 1})
    file.put(_mistaken)
    told = ""
    end = time.monotonic() + DEADLINE_S
    while not told and time.monotonic() < end:
        told = capfd.readouterr().err
    assert f"xidwatch: {path} is not up to date: KeyError: 'a mistake in drawing'\n" == told
    file.put(lambda: {"turn": 2})
    _written(path, {"turn": 2})
    assert file.close()


def test_a_disk_that_refuses_is_told_once_in_a_row(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Writes that fail one after the other make one line; what is there when the disk takes it again is the latest."""
    folder = tmp_path / "run"
    path = folder / "state.json"
    file = StateFile(path)
    for turn in range(3):
        file.put(partial(dict, turn=turn))
        time.sleep(0.05)
    folder.mkdir()
    file.put(lambda: {"turn": 3})
    _written(path, {"turn": 3})
    assert file.close()
    assert 1 == capfd.readouterr().err.count("is not up to date: FileNotFoundError")
