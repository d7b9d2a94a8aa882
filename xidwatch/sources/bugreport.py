"""nvidia-bug-report.log: its sections told apart, and lines that stand in several of them counted once.

Source: nvidia-bug-report.sh of the driver packages (echo of the rule, of `*** FILE`, of the command).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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

    The same is: printk's clock and text, else second, host and text; and of equal ones within a stream the n-th equals the
    n-th. Where the two streams share no clock (a bug report's dmesg and its journal) the text alone must do, if `by_text`.

    Attributes:
        by_text: The streams are views of one machine's log.
        full: More was seen than is kept; later doubles may count twice.
    """

    by_text: bool = False
    full: bool = False
    _earlier: dict[int, int] = field(default_factory=dict)
    _here: dict[int, int] = field(default_factory=dict)
    _stream: int | None = None
    _dropped: bool = False

    def seen(self, record: Record) -> bool:
        """True for a double. A line without its own time shares the fate of the one before it."""
        if record.stream != self._stream:
            self._turn(record.stream)
        if not record.timed:
            return self._dropped
        double = False
        for own, other in self._keys(record):
            key = hash(own)
            ordinal = self._here[key] = self._here.get(key, 0) + 1
            double = double or ordinal <= self._earlier.get(hash(other), 0)
        if len(self._here) > _MOST_KEYS:
            self._here.clear()
            self.full = True
        self._dropped = double
        return double

    def _keys(self, record: Record) -> Iterator[tuple[tuple[object, ...], tuple[object, ...]]]:
        """Pairs: what to count this record under, and under what another stream would have counted the same one."""
        text = record.text.strip()
        has_uptime = record.since_boot_us is not None and record.since_boot_us >= 1_000_000
        has_wall = record.wall_us is not None and record.time_source == "log"
        if has_uptime:
            key: tuple[object, ...] = (record.since_boot_us, text)
            yield key, key
        if has_wall and record.wall_us is not None:
            key = (record.wall_us // 1_000_000, record.host, text)
            yield key, key
        if self.by_text and has_uptime != has_wall:
            yield ("uptime" if has_uptime else "wall", text), ("wall" if has_uptime else "uptime", text)

    def _turn(self, stream: int) -> None:
        for key, count in self._here.items():
            if count > self._earlier.get(key, 0):
                if len(self._earlier) >= _MOST_KEYS:
                    self.full = True
                    break
                self._earlier[key] = count
        self._here = {}
        self._stream = stream
        self._dropped = False
