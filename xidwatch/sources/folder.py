"""Which files of the given paths belong together, in which order, and to which node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xidwatch.core.pattern import lazy
from xidwatch.errors import XidwatchError
from xidwatch.sources.archive import Archive
from xidwatch.sources.probe import HEAD_BYTES, probe

_PACKED = lazy(r"\.(?:gz|xz|bz2|zst|Z)$")
_COUNTED = lazy(r"(.+?)\.(\d{1,4})$")
_DATED = lazy(r"(.+?)[-.](\d{8}(?:[-T_.]?\d{2,6})?)((?:\.\w+)?)$")
_OLD = lazy(r"(.+)\.old$")
_JOURNAL = lazy(r"(.*/|)([^/@]+)(?:@[^/]*)?\.journal~?$")
_JOURNAL_MAGIC = b"LPKSHHRH"
_NEVER = lazy(
    r"\.(?:py|pyc|so|o|ko|png|jpe?g|gif|pdf|html?|css|js|ya?ml|toml|ini|conf|cfg|csv|sqlite3?|db|zip|tar|tgz|deb|rpm)$"
)
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Family:
    """Files that are one log, oldest first, and the node that their folder is named after."""

    paths: tuple[str, ...]
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What is to be read, and (path, why not) of the rest."""

    families: tuple[Family, ...]
    skipped: tuple[tuple[str, str], ...] = ()


def find_logs(paths: Sequence[str]) -> Found:
    """Resolve files and folders.

    Raises:
        XidwatchError: a path does not exist, or a folder holds no log.
    """
    families: list[Family] = []
    skipped: list[tuple[str, str]] = []
    files = [path for path in paths if path == "-" or not Path(path).is_dir()]
    families += _families(files, None)
    for path in paths:
        if path not in files:
            found = _folder(Path(path))
            families += found.families
            skipped += found.skipped
    return Found(tuple(families), tuple(skipped))


def _folder(folder: Path) -> Found:
    skipped: list[tuple[str, str]] = []
    own = _logs(_entries(folder, want_folders=False), skipped)
    families = _families(own, None)
    for inner in _entries(folder, want_folders=True):
        deep = _logs(_walk(inner, 1), skipped)
        families += _families(deep, None if own else inner.name)
    if not families:
        raise XidwatchError(f"{folder}: no log files in this folder; give the files themselves, or the folder that has them")
    return Found(tuple(families), tuple(skipped))


def _entries(folder: Path, *, want_folders: bool) -> list[Path]:
    try:
        return sorted(Path(entry) for entry in os.scandir(folder) if entry.is_dir() == want_folders)
    except OSError as reason:
        raise XidwatchError(f"{folder}: {reason.strerror or reason}; try: sudo xidwatch explain {folder}") from None


def _walk(folder: Path, depth: int) -> list[Path]:
    found = _entries(folder, want_folders=False)
    if depth < _DEEPEST:
        for inner in _entries(folder, want_folders=True):
            if not inner.is_symlink():
                found += _walk(inner, depth + 1)
    return found


def _logs(files: Sequence[Path], skipped: list[tuple[str, str]]) -> list[str]:
    """The files that look like logs; the others go to `skipped` with the reason."""
    logs: list[str] = []
    for file in files:
        if not file.is_file():
            continue
        reason = "not a log by its name" if _NEVER.search(file.name) else _why_not(str(file))
        if reason:
            skipped.append((str(file), reason))
        else:
            logs.append(str(file))
    return logs


def _why_not(path: str) -> str | None:
    try:
        archive = Archive(path)
    except XidwatchError as reason:
        return str(reason).removeprefix(f"{path}: ")
    try:
        seen = probe(next(archive.chunks(), b"")[:HEAD_BYTES], b"")
    finally:
        archive.close()
    if seen.kind in ("binary", "empty"):
        return "binary, nothing readable" if seen.kind == "binary" else "empty"
    return None if seen.is_log or seen.kind != "text" else "no line in it looks like a log line"


def _families(paths: Sequence[str], host: str | None) -> list[Family]:
    """Rotated files of one log together, oldest first: the higher number, the earlier date, last the live one."""
    groups: dict[tuple[str, str], list[tuple[tuple[int, str, int], str]]] = {}
    for path in paths:
        stem, age = _rotation(path)
        groups.setdefault((stem, "" if path != "-" else "-"), []).append((age, path))
    return [Family(tuple(dict.fromkeys(path for _, path in sorted(group))), host) for group in groups.values()]


def _rotation(path: str) -> tuple[str, tuple[int, str, int]]:
    """(name of the log, sort key: older first)."""
    if journal := _JOURNAL.match(path):
        return f"{journal[1]}{'system' if journal[2].startswith('user-') else journal[2]}.journal", (2, "", 0)
    name = _PACKED.sub("", path)
    if counted := _COUNTED.match(name):
        return counted[1], (1, "", -int(counted[2]))
    if dated := _DATED.match(name):
        return dated[1] + dated[3], (0, dated[2], 0)
    if old := _OLD.match(name):
        return old[1], (1, "", 0)
    return name, (2, "", 0)


def is_journal_file(path: str) -> bool:
    """Whether it is a binary file of systemd's journal, by name and first bytes."""
    if not _JOURNAL.match(path):
        return False
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    except OSError:
        return False
