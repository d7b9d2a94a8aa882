"""What can be wrong with settings, and where it stands. The only user of pydantic among the settings' modules."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from xidwatch.quantity import read_bytes, read_count, read_tokens
from xidwatch.sinks.listen import parse_listen

Settings = TypeVar("Settings")
Place = tuple[str | int, ...]
"""Keys that lead to a value: ("hook", "command", 0)."""
NO_SUCH_KEY = "there is no such key"
PATHS = frozenset({"kmsg", "state_dir", "run_dir", "web_config_file", "rules", "workload.model"})
"""Settings that are absolute paths, or lists of them."""
_HEAD = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_PAIR = re.compile(r"\s*[\"']?([\w.-]+)[\"']?\s*=")


def checked(kind: type[Settings], values: Mapping[str, Any]) -> tuple[Settings | None, list[tuple[Place, str]]]:
    """Build a dataclass from its table, strictly; None and every mistake, with its place, when it does not fit."""
    try:
        # By way of JSON, because there arrays become tuples and text a path under strict checking too.
        return TypeAdapter(kind).validate_json(json.dumps(values, default=str)), []
    except ValidationError as error:
        return None, [(item["loc"], _in_words(item["type"], item["msg"])) for item in error.errors(include_url=False)]


def value_mistakes(values: Mapping[str, Any], found: list[tuple[Place, str]]) -> Iterator[tuple[Place, str]]:
    """Values of the daemon's configuration that are of the right type and still wrong; `found` are those of the wrong type."""
    wrong = {place[:depth] for place, _ in found for depth in range(1, len(place) + 1)}
    for place, value in _leaves(values):
        if place not in wrong and (what := _value_mistake(dotted(place), value)) is not None:
            yield place, what


def line_of(text: str, place: Place) -> int | None:
    """Line of a key in TOML, else of the key or table around it; None where neither stands in plain form."""
    key = dotted(place)
    around = key.rpartition(".")[0]
    table, near = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        full = None
        if head := _HEAD.match(line):
            full = table = head[1]
        elif pair := _PAIR.match(line):
            full = f"{table}.{pair[1]}" if table else pair[1]
        if full == key:
            return number
        if full == around and full is not None and near is None:
            near = number
    return near


def dotted(place: Place) -> str:
    """`hook.command`."""
    return ".".join(part for part in place if isinstance(part, str))


def _in_words(type_: str, message: str) -> str:
    if type_ == "unexpected_keyword_argument":
        return NO_SUCH_KEY
    return "is missing" if type_ in ("missing", "missing_argument") else message


def _leaves(values: Mapping[str, Any], above: Place = ()) -> Iterator[tuple[Place, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _value_mistake(key: str, value: Any) -> str | None:
    if key in PATHS:
        return _absolute(value)
    try:
        return _MUST[key](value) if key in _MUST else None
    except ValueError as error:
        return str(error)


def _absolute(value: Any) -> str | None:
    paths = value if isinstance(value, list) else [value]
    wrong = [path for path in paths if not os.path.isabs(path) or "\0" in path]
    return f"{wrong[0]!r} is not an absolute path" if wrong else None


def _between(least: float, most: float) -> Callable[[Any], str | None]:
    return lambda value: None if least <= value <= most else f"{value} is not within {least:g} and {most:g}"


def _read_by(read: Callable[[str], object]) -> Callable[[Any], str | None]:
    """Right when `read` does not raise."""

    def mistake(value: Any) -> str | None:
        read(value)
        return None

    return mistake


def _command(value: Any) -> str | None:
    if not value or not os.path.isabs(value[0]):
        return "is an argument list that begins with the absolute path of a program"
    return "has a zero byte in it" if any("\0" in word for word in value) else None


def _remarks(value: Any) -> str | None:
    from xidwatch.core.remarks import CHECKS

    known = [check.id for check in CHECKS]
    wrong = [name for name in value if name not in known]
    return f"{wrong[0]!r} is no remark; there are {', '.join(known)}" if wrong else None


def _filled(value: Any) -> str | None:
    return None if value else "is empty"


_MUST: dict[str, Callable[[Any], str | None]] = {
    "listen": _read_by(parse_listen),
    "expected_gpus": _between(0, 1024),
    "hook.command": _command,
    "hook.user": _filled,
    "hook.timeout_s": _between(0.1, 3600),
    "history.max_age_days": _between(0.01, 36_500),
    "history.max_mb": _between(1, 1_000_000),
    "d_state.gpu_after_s": _between(1, 86_400),
    "d_state.others_after_s": _between(1, 86_400),
    "d_state.incident_after_s": _between(1, 86_400),
    "check.ignore": _remarks,
    "workload.params": _read_by(read_count),
    "workload.active_params": _read_by(read_count),
    "workload.weights_bytes": _read_by(read_bytes),
    "workload.dtype_bytes": _between(0.01, 16),
    "workload.tp": _between(1, 1024),
    "workload.batch": _between(1, 1_000_000),
    "workload.context": _read_by(read_tokens),
    "workload.prompt": _read_by(read_tokens),
}
