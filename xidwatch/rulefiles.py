"""From rules/*.toml to a RuleTable.

The shipped files are checked by the tests, so here they are only cut into entries, and an entry is parsed when it is asked for:
reading all of them would cost more than the rest of the start of `xidwatch explain`.
A site's own files are always checked, and all their mistakes are told at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from xidwatch.core.classify import Entry, Key, Knowledge, Nvlink4Row, Nvlink5Row, RuleTable, TableName
from xidwatch.core.pattern import lazy
from xidwatch.core.rule import (
    Action,
    Applies,
    Combination,
    Command,
    Escalation,
    Guidance,
    Pattern,
    Precondition,
    Reading,
    Rule,
    Source,
)
from xidwatch.errors import XidwatchError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SITE_RULES = Path("/etc/xidwatch/rules.d")
TYPES: dict[TableName, type[Knowledge]] = {
    "rule": Rule, "combination": Combination, "pattern": Pattern, "escalation": Escalation, "reading": Reading,
    "guidance": Guidance,    "nvlink5": Nvlink5Row, "nvlink4": Nvlink4Row, "action": Action,
}  # fmt: skip
_KNOWN: dict[str, TableName] = {name: name for name in TYPES}
_ABSENT = "no such folder"
_OTHERS = {"accelerators.toml"}
"""Files in the folder that are no rules."""
_TABLE = lazy(r"(\w+)\]\]")
_ID = lazy(r'^id *= *"([^"]*)"', re.MULTILINE)
_ABOUT = lazy(r'^(xid|sxid|kind) *= *(?:(\d+)|"(\w+)")', re.MULTILINE)
_FIRST_LINE = lazy(r"^\[\[(\w+)\]\]", re.MULTILINE)


class RuleFileError(XidwatchError):
    """Site rules that cannot be used. `mistakes` has one line for each: file, line, entry, what is wrong."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        """Keep the mistakes and make the message of all of them."""
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join((*self.mistakes, "Mend these, then try again: xidwatch rules check DIR")))


def shipped_rules() -> Path:
    """The folder of the rules that came with xidwatch: in the wheel, else beside the package (editable install).

    Raises:
        XidwatchError: neither can be read by the caller.
    """
    tried = (Path(__file__).parent / "_rules", Path(__file__).parent.parent / "rules")
    answers = [(folder, _why_unreadable(folder)) for folder in tried]
    if (found := next((folder for folder, why in answers if why is None), None)) is not None:
        return found
    folder, why = next((answer for answer in answers if answer[1] != _ABSENT), answers[0])
    raise _unreadable(folder, why or "")


def _unreadable(path: Path, why: str) -> XidwatchError:
    return XidwatchError(
        f"{path}: the rules that come with xidwatch cannot be read ({why}); let this user read them, or install anew"
    )


def load_rules(extra: Sequence[Path] = (), *, check: bool = False, site: Path = SITE_RULES) -> RuleTable:
    """All rules in force: shipped, then the site's, then those of each folder in `extra`; later ones win by id.

    With `check` the shipped files are checked like a site's.

    Raises:
        RuleFileError: A site file cannot be read or says something it must not; all mistakes at once.
    """
    mistakes: list[str] = []
    entries: list[Entry] = []
    for path in _files(shipped_rules()):
        entries += _checked(path, mistakes) if check else _cut(path)
    own: list[Entry] = []
    for folder in (site, *extra):
        if (why := _why_unreadable(folder)) is not None:
            if folder != site or why != _ABSENT:
                mistakes.append(f"{folder}: {why}")
            continue
        for path in _files(folder):
            own += _checked(path, mistakes)
    table = RuleTable([*entries, *own])
    if own or check:
        from xidwatch.rulecheck import cross_mistakes

        mistakes += cross_mistakes(table, [*entries, *own] if check else own)
    if mistakes:
        raise RuleFileError(mistakes)
    return table


def rules_version(extra: Sequence[Path] = (), site: Path = SITE_RULES) -> str:
    """Twelve hex digits that change with any rule file in force."""
    files = [file for folder in (shipped_rules(), site, *extra) if os.path.isdir(folder) for file in _files(folder)]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def check_dir(path: Path) -> list[str]:
    """Every mistake in a folder of site rules, also examples that do not hit their own rule; empty when it is good."""
    from xidwatch.rulecheck import cross_mistakes, example_mistakes

    if (why := _why_unreadable(path)) is not None:
        return [f"{path}: {why}"]
    mistakes: list[str] = []
    own = [entry for file in _files(path) for entry in _checked(file, mistakes)]
    table = RuleTable([*(entry for file in _files(shipped_rules()) for entry in _cut(file)), *own])
    mistakes += cross_mistakes(table, own)
    if not mistakes:
        mistakes += example_mistakes(table, {entry.id for entry in own if entry.table == "rule"})
    return mistakes


def _why_unreadable(folder: Path) -> str | None:
    try:
        os.listdir(folder)
    except FileNotFoundError:
        return _ABSENT
    except NotADirectoryError:
        return "no folder"
    except OSError as reason:
        return f"{reason.strerror or reason}; as root it may be readable"
    return None


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.toml") if path.name not in _OTHERS)


def _cut(path: Path) -> Iterator[Entry]:
    """Entries of a trusted file, each to be parsed when it is asked for.

    Cut at the lines that begin with `[[`, and known by the first id and the first of xid, sxid and kind;
    a test holds that this reads every shipped file as a full parse does.
    """
    try:
        text = "\n" + path.read_text(encoding="utf-8")
    except OSError as reason:
        raise _unreadable(path, reason.strerror or str(reason)) from None
    for chunk in text.split("\n[[")[1:]:
        name = _TABLE.match(chunk)
        table = _KNOWN.get(name[1]) if name else None
        if table is None:
            raise ValueError(f"{path}: no such table: [[{chunk[:40]}")
        identity = _ID.search(chunk)
        about = _ABOUT.search(chunk) if table == "rule" else None
        key = (about[1], int(about[2]) if about[2] else about[3]) if about else None
        load = partial(_parse, table, "[[" + chunk, path.name)
        yield Entry(table=table, id=identity[1] if identity else "", key=key, file=path.name, load=load)


def _parse(table: TableName, text: str, file: str) -> Knowledge:
    (values,) = tomllib.loads(text)[table]
    return _BUILD[table](_shaped(values) | {"file": file})


def _shaped(values: dict[str, Any]) -> dict[str, Any]:
    """A TOML table in the shape of its dataclass: `class` renamed, arrays as tuples, `where` as pairs."""
    shaped = {"fault_class" if key == "class" else key: _tuples(value) for key, value in values.items()}
    if isinstance(where := values.get("where"), dict):
        shaped["where"] = tuple(
            (field, tuple(value) if isinstance(value, list) else (value,)) for field, value in where.items()
        )
    if isinstance(needs := values.get("preconditions"), list):
        shaped["preconditions"] = tuple({"say": _tuples(need)} if isinstance(need, str) else _tuples(need) for need in needs)
    return shaped


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value


def _sourced(kind: Callable[..., Knowledge], values: dict[str, Any]) -> Knowledge:
    values["sources"] = tuple(Source(url=item["url"], checked=str(item["checked"])) for item in values["sources"])
    return kind(**values)


def _action(values: dict[str, Any]) -> Action:
    for name in ("commands", "verify"):
        values[name] = tuple(Command(**_conditioned(item)) for item in values.get(name, ()))
    values["preconditions"] = tuple(Precondition(**_conditioned(item)) for item in values.get("preconditions", ()))
    return Action(**_conditioned(values))


def _conditioned(values: dict[str, Any]) -> dict[str, Any]:
    return values | {name: Applies(**values[name]) for name in ("applies", "only") if name in values}


def _guidance(values: dict[str, Any]) -> Guidance:
    values.pop("file")
    return Guidance(**values)


_BUILD: dict[TableName, Callable[[dict[str, Any]], Knowledge]] = {
    "rule": partial(_sourced, Rule),
    "combination": partial(_sourced, Combination),
    "pattern": partial(_sourced, Pattern),
    "escalation": partial(_sourced, Escalation),
    "reading": partial(_sourced, Reading),
    "guidance": _guidance,
    "nvlink5": lambda values: Nvlink5Row(**values),
    "nvlink4": lambda values: Nvlink4Row(**values),
    "action": _action,
}


def _checked(path: Path, mistakes: list[str]) -> list[Entry]:
    """Entries of a site file, checked field by field; what is wrong goes to `mistakes`."""
    from xidwatch.rulecheck import checked_value

    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        mistakes.append(f"{path}: {error}")
        return []
    lines = _lines(text)
    entries: list[Entry] = []
    for name, rows in tables.items():
        table = _KNOWN.get(name)
        if table is None or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            mistakes.append(f"{path}: [[{name}]] is not a table of rules; there are {', '.join(TYPES)}")
            continue
        for row, line in zip(rows, lines.get(name, []) + [0] * len(rows), strict=False):
            label = f"{path}:{line}: [[{name}]] {row.get('id', '')}".rstrip()
            value, wrong = checked_value(TYPES[table], _shaped(row), str(path))
            mistakes += [f"{label}: {problem}" for problem in wrong]
            if value is not None:
                entries.append(_entry(table, value, label))
    return entries


def _entry(table: TableName, value: Knowledge, label: str) -> Entry:
    key: Key | None = None
    if isinstance(value, Rule):
        about = [(family, getattr(value, family)) for family in ("xid", "sxid", "kind")]
        key = next(((name, given) for name, given in about if given is not None), None)
    return Entry(table=table, id=getattr(value, "id", ""), key=key, file=label, load=lambda: value)


def _lines(text: str) -> dict[str, list[int]]:
    """Line numbers of the headers of each array of tables, in order."""
    found: dict[str, list[int]] = {}
    for head in _FIRST_LINE.finditer(text):
        found.setdefault(head[1], []).append(text.count("\n", 0, head.start()) + 1)
    return found


__all__ = ["SITE_RULES", "RuleFileError", "check_dir", "load_rules", "shipped_rules"]
