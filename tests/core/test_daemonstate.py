"""state.json read back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from xidwatch.cli import main
from xidwatch.core.census import Slot, slot_object
from xidwatch.core.daemonstate import stuck_s
from xidwatch.core.pci import PciAddress

NOW_US = 1_796_000_000_000_000


def test_a_silence_grows_while_nothing_is_written() -> None:
    """The seconds are those at reading time; where nothing was silent, age makes no silence."""
    silent_s = [stuck_s({"stuck_s": then_s}, 12.0) for then_s in (0.5, 0.0, 30)]
    assert silent_s == [12.5, 0.0, 42]


WHOLE: dict[str, Any] = {
    "schema": "xidwatch.state/1", "time_us": NOW_US, "host": "n1", "injection_accepted": False,
    "maintenance": {"active": False, "until_us": None, "reason": ""},
    "sources": [{"name": "kmsg", "up": True, "records": 1, "lost": 0, "untrusted": 0, "restarts": 0}],
    "rules": {"success": True, "mistakes": []}, "history": {"up": True, "last_error": None, "backlog": 0},
    "incidents": [
        {"id": "ab", "severity": "critical", "state": "active", "sentence": "it fell", "gpus": ["0000:61:00.0"],
         "recovery": {"rung": "reboot_node", "when": "now", "commands": ["reboot"], "say": None, "command": None},
         "verify": None, "driver_word": None, "checks": [], "events": [{"pid": None, "process": None, "job": None}]},
    ],
    "gpus": [],
}  # fmt: skip


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Every place of the document that holds something."""
    for key, one in [*value.items()] if isinstance(value, dict) else [*enumerate(value)] if isinstance(value, list) else []:
        yield value, key
        yield from places(one)


def shown(state: object, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that reads it answers, or says in one line why not."""
    (folder / "state.json").write_text(state if isinstance(state, str) else json.dumps(state), encoding="utf-8")
    for command in (["status"], ["gpus"], ["incident", "list"], ["incident", "show", "ab"]):
        code = main([*command, "--run-dir", str(folder), "--state-dir", str(folder)])
        told = capsys.readouterr().err
        assert code in (0, 1, 2), (command, state)
        assert len(told.splitlines()) == (1 if told else 0), told


def test_no_damage_is_a_bug(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any part of a state, replaced by something else of JSON or taken out, is shown or told in one line, without a traceback."""
    shown(WHOLE, tmp_path, capsys)
    for number in range(len(list(places(WHOLE)))):
        for other in (None, 5, "x", [1], {"a": 1}):
            damaged = deepcopy(WHOLE)
            holder, key = list(places(damaged))[number]
            holder[key] = other
            shown(damaged, tmp_path, capsys)
        damaged = deepcopy(WHOLE)
        holder, key = list(places(damaged))[number]
        del holder[key]
        shown(damaged, tmp_path, capsys)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "9" * 40, "9" * 5000])
def test_numbers_that_none_can_reckon_with(number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A time without end, or a gpus that is a number, is a mistake in the file and no bug."""
    for text in (
        f'{{"time_us":{number},"gpus":5,"schema":1}}',
        json.dumps(WHOLE).replace(str(NOW_US), number),
        json.dumps(WHOLE).replace('"records": 1', f'"records": {number}'),
    ):
        shown(text, tmp_path, capsys)


def test_status_and_check_agree_on_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lost GPU, a failed remap or a demand of the driver's without any log line is not fit for both."""
    names = slot_names()
    well = dict.fromkeys(names) | {
        "pci": "0000:61:00.0",
        "on_bus": True,
        "driver": "nvidia",
        "missing": False,
        "answer": "state",
    }
    for change, code in (
        ({}, 0), ({"answer": "lost"}, 1), ({"row_remap_failed": True}, 1), ({"recovery_action": "reset_gpu"}, 1),
        ({"row_remap_pending": True}, 0), ({"answer": "reset_required"}, 1), ({"missing": True, "on_bus": False}, 1),
    ):  # fmt: skip
        nvml = {"asked": True, "up": True, "why": None, "stuck_s": 0.0, "sample_age_s": 1.0, "released": False}
        state = WHOLE | {"time_us": time.time_ns() // 1000, "incidents": [], "gpus": [well | change], "nvml": nvml}
        (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
        folders = ["--run-dir", str(tmp_path), "--state-dir", str(tmp_path)]
        assert (code, code) == (main(["status", *folders]), main(["check", "--line", *folders])), change
        capsys.readouterr()


def slot_names() -> list[str]:
    """The names of what `gpus[]` has of each GPU."""
    slot = Slot(pci=PciAddress(0, 0x61, 0, 0), on_bus=True, driver="nvidia", answer=None, dead=None, card=None, expected=False)
    return list(slot_object(slot))
