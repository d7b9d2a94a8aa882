"""What the kernel saved when it died: the parts in /sys/fs/pstore, or where systemd-pstore has put them away.

Source: linux, fs/pstore/platform.c, pstore_dump: each part begins with `Panic#2 Part1`; Part1 holds the last words, higher
parts what came before. Lines carry printk's level and facility, `<4>[ 12.345678] text`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record, Trust
from xidwatch.errors import XidwatchError

PSTORE = "/sys/fs/pstore"
KEPT = "/var/lib/systemd/pstore"
_HEAD = lazy(rb"([A-Z][A-Za-z ]*)#(\d+) Part(\d+)\n")
_LINE = lazy(r"(?:<(\d{1,10})>)?\[ *(\d{1,12})\.(\d{6})\](?:\[ *[TC]\d+\])? (.*)")
_SAME_DUMP_S = 120.0
_LARGEST_PART = 1 << 22


@dataclass(frozen=True, slots=True)
class _Part:
    path: Path
    reason: str
    count: int
    number: int
    written_s: float
    text: str


class PstoreDumps:
    """The records of every dump in a folder, the oldest dump first, each line once.

    Attributes:
        folder: Where they are read.
        notes: What could not be read, and why.
        reasons: Why each dump was made, in order: "Panic", "Oops", ...
    """

    def __init__(self, folder: str | None = None) -> None:
        """Without a folder: the kernel's own, and if that is empty the one where systemd-pstore keeps them."""
        self.notes: list[str] = []
        self.reasons: list[str] = []
        self._proven = folder is None
        own = any(Path(PSTORE).glob("dmesg-*")) if folder is None else True
        self.folder = folder if folder is not None else (PSTORE if own else KEPT)

    def __iter__(self) -> Iterator[Record]:
        """Records in the order in which the kernel wrote them.

        Raises:
            XidwatchError: the folder has no dump or cannot be read; the text names the next step.
        """
        dumps = _dumps(self._parts())
        if not dumps:
            why = "; ".join(self.notes) or "no dmesg-* files in it"
            raise XidwatchError(f"{self.folder}: no kernel dump to read ({why}); after a crash look for one as root")
        self.reasons = [dump[0].reason for dump in dumps]
        seen: set[tuple[int, str]] = set()
        boot, latest, seq = 1, -1, 0
        for dump in dumps:
            lines = list(_lines(dump))
            if lines and lines[-1][1] < latest:
                boot += 1
                seen.clear()
            latest = lines[-1][1] if lines else latest
            for facility, since_boot_us, text in lines:
                if (since_boot_us, text) in seen:
                    continue
                seen.add((since_boot_us, text))
                seq += 1
                yield self._record((facility, since_boot_us, text), seq, boot, dump[-1].written_s * 1e6 - latest)

    def _record(self, line: tuple[int | None, int, str], seq: int, boot: int, boot_us: float) -> Record:
        facility, since_boot_us, text = line
        kernel: Trust = "kernel" if self._proven and facility == 0 else "unverifiable"
        return Record(
            text=text,
            seq=seq,
            line=seq,
            wall_us=round(boot_us) + since_boot_us,
            since_boot_us=since_boot_us,
            boot_id=f"pstore-{boot}",
            trusted="no" if facility else kernel,
            timed=True,
            time_source="boot_offset",
            uncertainty_s=2.0,
        )

    def _parts(self) -> list[_Part]:
        parts = []
        try:
            paths = sorted(path for path in Path(self.folder).rglob("dmesg-*") if path.is_file())
            for path in paths:
                if path.name.endswith((".z", ".enc")):
                    self.notes.append(f"{path.name}: the kernel could not unpack it")
                elif (part := _part(path)) is not None:
                    parts.append(part)
                else:
                    self.notes.append(f"{path.name}: no part of a kernel dump")
        except OSError as reason:
            raise XidwatchError(
                f"{self.folder}: {reason.strerror or reason}; try: sudo xidwatch explain {self.folder}"
            ) from None
        return parts


def _part(path: Path) -> _Part | None:
    with path.open("rb") as file:
        raw = file.read(_LARGEST_PART)
        written_s = path.stat().st_mtime
    head = _HEAD.match(raw)
    if head is None:
        return None
    text = raw[head.end() :].decode("utf-8", "replace")
    return _Part(path, head[1].decode(), int(head[2]), int(head[3]), written_s, text)


def _dumps(parts: list[_Part]) -> list[list[_Part]]:
    """Parts of one dump together, its earliest words first; dumps in the order in which they were made."""
    dumps: list[list[_Part]] = []
    for part in sorted(parts, key=lambda part: (part.written_s, part.count, part.number)):
        mine = [dump for dump in dumps if _same_dump(dump[0], part) and part.number not in [one.number for one in dump]]
        if mine:
            mine[-1].append(part)
        else:
            dumps.append([part])
    return [sorted(dump, key=lambda part: -part.number) for dump in dumps]


def _same_dump(one: _Part, other: _Part) -> bool:
    same_kind = (one.reason, one.count, one.path.parent) == (other.reason, other.count, other.path.parent)
    backend = one.path.name.split("-")[1:2] == other.path.name.split("-")[1:2]
    return same_kind and backend and abs(one.written_s - other.written_s) <= _SAME_DUMP_S


def _lines(dump: list[_Part]) -> Iterator[tuple[int | None, int, str]]:
    """(facility, microseconds since boot, text); a line without a head belongs to the one before."""
    held: tuple[int | None, int, str] | None = None
    for part in dump:
        for line in part.text.splitlines():
            if head := _LINE.match(line):
                if held is not None:
                    yield held
                facility = int(head[1]) >> 3 if head[1] else None
                held = (facility, int(head[2]) * 1_000_000 + int(head[3]), head[4].rstrip())
            elif held is not None and line.strip():
                held = (held[0], held[1], f"{held[2]}\n{line.rstrip()}")
    if held is not None:
        yield held
