"""What state.json must look like before a command shows it: a file can be damaged, or an older program's. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_NONE = type(None)
_MOST = 1 << 63
_WORD, _FLAG, _COUNT = (str, _NONE), (bool, _NONE), (int, _NONE)
_NUMBER = (int, float)
Shape = Any
"""A type, several of them, a list with the shape of its items, or an object with those of its members.

A member whose name ends in `?` may be missing; an object whose shape has the member `?`, and a list whose shape has a None,
may be null.
"""

_STEP = {"do": str, "command": _WORD}
_RECOVERY = {"rung": str, "when": _WORD, "say?": _WORD, "command?": _WORD, "commands": [str]}
_JOB = {
    "?": None, "slurm_job?": _WORD, "slurm_step?": _WORD, "pod?": _WORD, "pod_name?": _WORD, "container?": _WORD,
    "runtime?": _WORD, "unit?": _WORD, "uid?": _COUNT, "user?": _WORD,
}  # fmt: skip
_PROCESS = {"pid": _COUNT, "process": _WORD, "job": _JOB}
STATE: Shape = {
    "time_us": int,
    "host": str,
    "demo?": bool,
    "injection_accepted": bool,
    "maintenance": {"active": bool},
    "sources": [{"name": str, "up": bool, "records": int, "lost": int, "untrusted": int, "restarts": int}],
    "rules": {"success": bool, "mistakes": [str]},
    "history": {"last_error": _WORD, "backlog": int},
    "incidents": [
        {
            "id": str, "severity": str, "state": str, "sentence": str, "gpus": [str], "recovery": _RECOVERY,
            "verify?": {"?": None, "commands": [str]},
            "driver_word?": _WORD,
            "checks?": [{"gpu": str, "check": str, "answer": str, "said": str}],
            "events?": [_PROCESS],
        }
    ],
    "expected_gpus?": int,
    "missing_without_a_name?": int,
    "nvml?": {"stuck_s?": _NUMBER, "why?": _WORD, "released?": bool, "up?": _FLAG},
    "gpus?": [
        {
            "pci": str, "on_bus": bool, "missing": bool, "driver": _WORD, "answer": _WORD,
            "name": _WORD, "serial": _WORD, "gpu_uuid": _WORD, "place": _WORD, "recovery_action": _WORD,
            "row_remap_failed": _FLAG, "row_remap_pending": _FLAG, "pages_pending": _FLAG, "sram_threshold_exceeded": _FLAG,
            "mig_enabled": _FLAG, "mig_pending": _FLAG,
            "banks_without_spare_rows?": {"?": None, "none_left": int, "one_left": int},
        }
    ],
    "d_state?": {"up?": bool, "why?": _WORD, "scan?": str, "cannot_see?": [str], "blocked?": int},
    "holders?": [{**_PROCESS, "alive": bool, "gpus": [str]}],
    "blocked?": [
        {
            **_PROCESS, "tid": int, "inner_pid": _COUNT, "process": str, "since_us": int, "at_least_s": _NUMBER,
            "attribution": str, "why": str, "killable": _FLAG, "killable_why": str, "waits_for": _WORD, "wchan": _WORD,
            "syscall": _WORD, "file": _WORD, "stack": [str, None], "devices": [str, None], "way_out?": [_STEP],
        }
    ],
}  # fmt: skip


def read_json(content: bytes) -> object:
    """The value; its numbers are such that can be reckoned with.

    Raises:
        ValueError: it is no JSON, or a number is none, infinite, or of more than 63 bits.
        RecursionError: it is nested too deeply.
    """
    return json.loads(content, parse_float=_fraction, parse_int=_whole, parse_constant=_fraction)


def read_shaped(content: bytes) -> dict[str, Any]:
    """state.json, every part of it that a command shows being there and what it should be.

    Raises:
        ValueError, RecursionError: as `read_json`, or a part is missing or something else.
    """
    state = read_json(content)
    if (wrong := _wrong(state, STATE, "state.json")) is not None or not isinstance(state, dict):
        raise ValueError(wrong)
    return state


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def _whole(text: str) -> int:
    number = int(text) if len(text) < 21 else _MOST
    if abs(number) >= _MOST:
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _wrong(value: object, shape: Shape, name: str) -> str | None:
    """What does not fit, for a person; None when everything does."""
    if isinstance(shape, list | Mapping):
        if value is None and (None if isinstance(shape, list) else "?") in shape:
            return None
        return _wrong_list(value, shape[0], name) if isinstance(shape, list) else _wrong_object(value, shape, name)
    kinds = shape if isinstance(shape, tuple) else (shape,)
    # A truth value is an int to Python, not to us.
    return None if type(value) in kinds else f"{name} is {str(value)[:40]!r}"


def _wrong_list(value: object, shape: Shape, name: str) -> str | None:
    if not isinstance(value, list):
        return f"{name} is not a list"
    return next(filter(None, (_wrong(one, shape, f"{name}[]") for one in value)), None)


def _wrong_object(value: object, shape: Mapping[str, Shape], name: str) -> str | None:
    if not isinstance(value, dict):
        return f"{name} is not an object"
    return next(filter(None, (_wrong_member(value, key, shape[key]) for key in shape if key != "?")), None)


def _wrong_member(value: Mapping[str, object], key: str, shape: Shape) -> str | None:
    name = key.removesuffix("?")
    if name not in value:
        return None if key != name else f"{name} is missing"
    return _wrong(value[name], shape, name)
