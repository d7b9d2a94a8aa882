"""Which files of the given paths belong together, in which order, and to which node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from xidwatch.core.pattern import lazy
from xidwatch.errors import XidwatchError
from xidwatch.sources.archive import Archive, why_unreadable
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
_LOGINS = lazy(r"^(?:[bw]tmp|lastlog|faillog|tallylog)")
"""Only root may read some of them, and they hold nothing of ours."""
_OF_A_SYSTEM = frozenset(
    (
        "boot",
        "dev",
        "etc",
        "home",
        "journal",
        "log",
        "logs",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "srv",
        "sys",
        "tmp",
        "usr",
        "var",
    )
)
"""A folder that has one of these is a system's, not a folder of nodes."""
_DEEPEST = 6
_GLANCE_BYTES = 1 << 14
_FIRST_LOOK_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class Family:
    """Files that are one log, oldest first.

    Attributes:
        host: The node that their folder is named after.
        folder: What is of one node: files that were given themselves, or all that lies below a node's folder.
    """

    paths: tuple[str, ...]
    host: str | None = None
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What is to be read, and (path, why not) of the rest: `unread` could not be read, `skipped` need not be."""

    families: tuple[Family, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Left:
    """What is not read, while it is being found."""

    skipped: list[tuple[str, str]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)


def find_logs(paths: Sequence[str]) -> Found:
    """Resolve files and folders.

    Raises:
        XidwatchError: the only path is a folder that holds no log or may not be entered.
    """
    left = _Left()
    files = [path for path in paths if path == "-" or not os.path.isdir(path)]
    families = _given(files)
    several = len(paths) - len(files) > 1
    for path in paths:
        if path in files:
            continue
        try:
            families += _folder(Path(path), left, node=Path(os.path.abspath(path)).name if several else None)
        except XidwatchError as reason:
            if len(paths) == 1:
                raise
            left.unread.append((path, str(reason).removeprefix(f"{path}: ")))
    return Found(tuple(_told_apart(families)), tuple(left.skipped), tuple(left.unread))


def _told_apart(families: list[Family]) -> list[Family]:
    """`a/node01 b/node01` with the same logs in them are two nodes, named by as much of their paths as tells them apart.

    Where their logs are of different names, as in `kernel/node01 app/node01`, they are one node's.
    """
    logs: dict[str, dict[str, set[str]]] = {}
    for family in families:
        if family.host is not None and family.folder:
            inside = logs.setdefault(family.host, {}).setdefault(os.path.abspath(family.folder), set())
            inside |= {_rotation(os.path.basename(path))[0] for path in family.paths}
    names: dict[str, str] = {}
    for folders in logs.values():
        if len(folders) > 1 and sum(map(len, folders.values())) > len(set().union(*folders.values())):
            names |= _shortest(list(folders))
    return [replace(one, host=names.get(os.path.abspath(one.folder), one.host)) if one.host else one for one in families]


def _shortest(folders: Sequence[str]) -> dict[str, str]:
    """Each path with its last parts, as many as it takes for all to differ."""
    for deep in range(2, max(len(Path(folder).parts) for folder in folders) + 1):
        names = {folder: "/".join(Path(folder).parts[-deep:]) for folder in folders}
        if len(set(names.values())) == len(folders):
            return names
    return {folder: folder for folder in folders}


def reading_order(families: Sequence[Family]) -> list[Family]:
    """First the logs whose times say when and where, then those that say when: of a line in several, the first is kept."""
    return sorted(families, key=lambda family: _vagueness(family.paths[-1])) if len(families) > 1 else list(families)


def _vagueness(path: str) -> int:
    """0: times and hosts, or not known, as of a pipe, which is read but once; 1: times alone; 2: neither."""
    if not os.path.isfile(path):
        return 0
    try:
        with contextlib.closing(Archive(path)) as archive:
            head = next(archive.chunks(), b"")
    except XidwatchError:
        return 0
    seen = probe(head[:_FIRST_LOOK_BYTES], b"")
    if not seen.head:
        seen = probe(head[:_GLANCE_BYTES], b"")
    if seen.kind.startswith("journal"):
        return 0
    walls = [line for line in seen.head if line.stamp is not None or line.epoch_us is not None]
    if 2 * len(walls) < len(seen.head) or (not seen.head and seen.kind == "text"):
        return 2
    return 1 if walls and not any(line.host for line in walls) else 0


def _given(files: Sequence[str]) -> list[Family]:
    """Files that were given themselves: `node01/dmesg node02/dmesg` are of nodes that their folders are named after."""
    parents = {path: os.path.dirname(os.path.abspath(path)) for path in files if path != "-"}
    names: dict[str, set[str]] = {}
    for path, parent in parents.items():
        names.setdefault(_rotation(os.path.basename(path))[0], set()).add(parent)
    alike = {parent for found in names.values() if len(found) > 1 for parent in found}
    found = []
    for family in _families(files, None):
        parent = parents.get(family.paths[0], "")
        found.append(replace(family, host=os.path.basename(parent), folder=parent) if parent in alike else family)
    return found


def _folder(folder: Path, left: _Left, node: str | None) -> list[Family]:
    """The logs below a folder. `node` is its name when it is one of several, each of a node."""
    files, folders = _entries(folder)
    unread_before = len(left.unread)
    own = _logs(files, left)
    families = _families(own, node, str(folder))
    nodes = not own and not any(inner.name in _OF_A_SYSTEM for inner in folders)
    for inner in folders:
        deep = _logs(_walk(inner, 1, left), left)
        families += _families(deep, inner.name if nodes else node, str(inner if nodes else folder))
    if families:
        return families
    if unread := left.unread[unread_before:]:
        del left.unread[unread_before:]
        more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        raise XidwatchError(f"{folder}: no log in this folder could be read; {unread[0][0]}: {unread[0][1]}{more}")
    raise XidwatchError(f"{folder}: no log files in this folder; give the files themselves, or the folder that has them")


def _entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """(files and what cannot be told, folders)."""
    try:
        entries = sorted(Path(entry) for entry in os.scandir(folder))
    except OSError as reason:
        raise XidwatchError(f"{folder}: {why_unreadable(str(folder), reason)}") from None
    folders = [entry for entry in entries if os.path.isdir(entry)]
    return [entry for entry in entries if entry not in set(folders)], folders


def _walk(folder: Path, depth: int, left: _Left) -> list[Path]:
    try:
        found, folders = _entries(folder)
    except XidwatchError as reason:
        left.skipped.append((str(folder), str(reason).removeprefix(f"{folder}: ")))
        return []
    if depth < _DEEPEST:
        for inner in folders:
            if not inner.is_symlink():
                found += _walk(inner, depth + 1, left)
    return found


def _logs(files: Sequence[Path], left: _Left) -> list[str]:
    """The files that look like logs; the others go to `left` with the reason."""
    logs: list[str] = []
    for file in files:
        if not os.path.isfile(file):
            continue
        try:
            reason = "not a log by its name" if _NEVER.search(file.name) else _why_not(str(file))
        except XidwatchError as unread:
            noted = left.skipped if _LOGINS.match(file.name) else left.unread
            noted.append((str(file), str(unread).removeprefix(f"{file}: ")))
            continue
        if reason:
            left.skipped.append((str(file), reason))
        else:
            logs.append(str(file))
    return logs


def _why_not(path: str) -> str | None:
    """Why it is no log; None when it is one.

    Raises:
        XidwatchError: that cannot be told, for it cannot be read.
    """
    with contextlib.closing(Archive(path)) as archive:
        head = next(archive.chunks(), b"")[:HEAD_BYTES]
    seen = probe(head[:_FIRST_LOOK_BYTES], b"")
    if seen.kind == "text" and not seen.is_log:
        seen = probe(head, b"")
    if seen.kind == "empty" and archive.notes:
        raise XidwatchError(f"{path}: {archive.notes[0]}")
    if seen.kind in ("binary", "empty"):
        return "binary, nothing readable" if seen.kind == "binary" else "empty"
    return None if seen.is_log or seen.kind != "text" else "no line in it looks like a log line"


def _families(paths: Sequence[str], host: str | None, folder: str = "") -> list[Family]:
    """Rotated files of one log together, oldest first: the higher number, the earlier date, last the live one."""
    groups: dict[tuple[str, str], list[tuple[tuple[int, str, int], str]]] = {}
    for path in paths:
        stem, age = _rotation(path)
        groups.setdefault((stem, "" if path != "-" else "-"), []).append((age, path))
    return [Family(tuple(dict.fromkeys(path for _, path in sorted(group))), host, folder) for group in groups.values()]


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
