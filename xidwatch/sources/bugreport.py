"""nvidia-bug-report.log: its sections told apart, and lines that stand in several of them counted once.

Source: nvidia-bug-report.sh of the driver packages (echo of the rule, of `*** FILE`, of the command).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xidwatch.core.logtext import MESSAGE_STARTS
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record

RULE = "____________________________________________"
_TITLE_FILE = lazy(r"\*\*\* (/\S+)$")
_SUBTITLE = lazy(r"  (/var/log/\S+|journalctl -b [^:]*):$")
_LOG = lazy(r"/var/log/(?:messages|kern|syslog|dmesg|boot)|(?:\S*/)?(?:journalctl|dmesg)\b|Scanning kernel log files")
_VERSION = lazy(r"/nvidia/(?:\./)?version$")
_SMI = lazy(r"(?:\S*/)?nvidia-smi\b")
_MARKS = ("Start of NVIDIA bug report log file", "nvidia-bug-report.sh Version")
_MOST_KEYS = 100_000
_MOST_OWNERS = 16
_MOST_TIMES = 64
_EVERY_BOOT_US = 1_000_000
"""Before that every boot says the same at the same time."""
_SAME_DISTANCE_US = 120_000_000
"""syslog starts late and writes what the kernel said before under its own first seconds."""
_FARTHEST_CLOCK_US = 600_000_000
"""`dmesg -T` counts from the clock's present setting, and so may lie by minutes."""
_KNOWN_STARTS = (
    *MESSAGE_STARTS,
    "Linux version ",
    "Kernel panic ",
    "Out of memory",
    "oom-kill:",
    "Memory cgroup out of memory",
)

_Owner = tuple[str | None, str | None]
"""Host and boot."""
_Count = tuple[_Owner, int]
_NOBODY: _Owner = (None, None)


def is_bug_report(head: str) -> bool:
    """Whether a file that begins like this is one."""
    return any(mark in head for mark in _MARKS)


@dataclass(slots=True)
class Sections:
    """Follows the sections line by line.

    Attributes:
        title: What the present section is: a path or a command; "" before the first.
        number: Which section it is; a part of the section that greps through several logs counts as one.
    """

    title: str = ""
    number: int = 0
    _awaits_title: bool = False

    def feed(self, line: str) -> bool:
        """Take one line; True when it belongs to the content of a section that can hold messages."""
        if line.startswith(RULE):
            self._awaits_title = True
            return False
        if self._awaits_title:
            if line.strip():
                self._begin(line)
            return False
        if self.title.startswith("Scanning kernel log files") and (part := _SUBTITLE.match(line)):
            self.title = f"Scanning kernel log files: {part[1]}"
            self.number += 1
            return False
        if line.startswith("*** "):
            return False
        return bool(_LOG.match(self.title) or _SMI.match(self.title) or _VERSION.search(self.title))

    def _begin(self, line: str) -> None:
        named = _TITLE_FILE.match(line)
        self.title = named[1] if named else line.strip().rstrip(":")
        self.number += 1
        self._awaits_title = False


@dataclass(slots=True)
class Deduplicator:
    """Says of a record whether another stream brought the same one already.

    The same is: printk's clock and text, of hosts and boots that may be the same; else second, host and text; and of equal
    ones within a stream the n-th equals the n-th. Where the two streams share no clock, the text alone must do: in a bug
    report (`by_text`), and in a stream that names no host beside the log of a single one, as far as its clock keeps the
    same distance from that log's (`dmesg` or `dmesg -T` beside kern.log).

    Attributes:
        by_text: The streams are views of one machine's log.
        full: More was seen than is kept; later doubles may count twice.
    """

    by_text: bool = False
    full: bool = False
    _earlier: dict[int, tuple[_Count, ...]] = field(default_factory=dict)
    _here: dict[tuple[int, _Owner], int] = field(default_factory=dict)
    _walls: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _walls_here: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _hosts: set[str | None] = field(default_factory=set)
    _distances: tuple[int, ...] = ()
    _offsets: set[int] = field(default_factory=set)
    _stream: int | None = None
    _dropped: bool = False

    def seen(self, record: Record) -> bool:
        """True for a double. A line without its own time shares the fate of the one before it."""
        if record.stream != self._stream:
            self._turn(record.stream)
        if not record.timed:
            return self._dropped
        double = False
        if record.wall_us is not None and record.since_boot_us is not None and record.time_source == "log":
            self._learn_offset(record.wall_us - record.since_boot_us)
        for own, other, owner in self._keys(record):
            key = (hash(own), owner)
            ordinal = self._here[key] = self._here.get(key, 0) + 1
            double = double or (hash(other) in self._earlier and ordinal <= _counted(self._earlier[hash(other)], owner))
        if not self.by_text:
            double = self._seen_at_a_distance(record) or double
        if len(self._here) > _MOST_KEYS:
            self._here.clear()
            self._walls_here.clear()
            self.full = True
        self._dropped = double
        return double

    def _learn_offset(self, offset_us: int) -> None:
        """How far the two clocks of a log lie apart; it is known of every boot in it."""
        if len(self._offsets) < _MOST_TIMES:
            self._offsets.add(round(offset_us, -8))

    def _keys(self, record: Record) -> Iterator[tuple[tuple[object, ...], tuple[object, ...], _Owner]]:
        """What to count this record under, what another stream would have counted the same one under, and whose it is."""
        text = record.text.strip()
        has_wall = record.wall_us is not None and record.time_source == "log"
        has_uptime = record.since_boot_us is not None and record.since_boot_us >= _EVERY_BOOT_US
        if has_uptime:
            boot = record.boot_id if record.boot_id and not record.boot_id.startswith("boot-") else None
            key: tuple[object, ...] = (record.since_boot_us, text)
            yield key, key, (record.host, boot)
        if has_wall and record.wall_us is not None:
            key = (record.wall_us // 1_000_000, record.host, text)
            yield key, key, _NOBODY
        first_line = record.since_boot_us is not None and not has_uptime and not has_wall
        if self.by_text and (has_uptime != has_wall or first_line):
            mine, theirs = ("wall", "uptime") if has_wall else ("uptime", "wall")
            yield (mine, text), (theirs, text), _NOBODY

    def _seen_at_a_distance(self, record: Record) -> bool:
        """Whether the log of the one host has this text where this stream's clock, shifted, says."""
        text, key = record.text.strip(), 0
        own_wall = record.wall_us if record.time_source == "log" else None
        if text.startswith(_KNOWN_STARTS):
            key = hash(text)
        self._hosts.add(record.host)
        if record.host is not None or not key or self._stream is None:
            if own_wall is not None and key and len(times := self._walls_here.get(key, ())) < _MOST_TIMES:
                self._walls_here[key] = (*times, own_wall)
            return False
        clock = own_wall if own_wall is not None else record.since_boot_us
        if own_wall is None and not self._distances:
            self._distances = tuple(self._offsets)
        if clock is None or len(self._hosts - {None}) > 1:
            return False
        distances = tuple(time - clock for time in self._walls.get(key, ()))
        if own_wall is not None:
            distances = tuple(distance for distance in distances if abs(distance) <= _FARTHEST_CLOCK_US)
        if self._distances:
            distances = tuple(d for d in distances if any(abs(d - known) <= _SAME_DISTANCE_US for known in self._distances))
        if distances:
            self._distances = distances
        elif own_wall is not None and len(times := self._walls_here.get(key, ())) < _MOST_TIMES:
            self._walls_here[key] = (*times, own_wall)
        return bool(distances)

    def _turn(self, stream: int) -> None:
        for (key, owner), count in self._here.items():
            counts = self._earlier.get(key, ())
            if not counts and len(self._earlier) >= _MOST_KEYS:
                self.full = True
                break
            known = next((n for n, (whose, _) in enumerate(counts) if whose == owner), None)
            if known is None:
                self._earlier[key] = (*counts[: _MOST_OWNERS - 1], (owner, count))
            elif count > counts[known][1]:
                self._earlier[key] = (*counts[:known], (owner, count), *counts[known + 1 :])
        for key, times in self._walls_here.items():
            if len(self._walls) < _MOST_KEYS:
                self._walls[key] = (*self._walls.get(key, ()), *times)[:_MOST_TIMES]
        self._here, self._walls_here, self._distances = {}, {}, ()
        self._stream = stream
        self._dropped = False


def _counted(counts: tuple[_Count, ...], owner: _Owner) -> int:
    """How many were seen whose host and boot may be the same: an unknown one may be any."""
    return sum(
        count for whose, count in counts if all(None in pair or pair[0] == pair[1] for pair in zip(whose, owner, strict=True))
    )
