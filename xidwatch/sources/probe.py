"""A look at an input before it is read: what it is, in which order its lines stand, and when it begins and ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from xidwatch.core.logtext import LogLine, first_start, parse_line
from xidwatch.core.pattern import lazy
from xidwatch.sources.bugreport import is_bug_report

HEAD_BYTES = 1 << 18
_MOST_LINES = 400
_NULS = lazy(rb"\0{16,}")
_CONTROL = bytes(set(range(32)) - {7, 8, 9, 10, 12, 13, 27})


@dataclass(frozen=True, slots=True)
class Probe:
    """What a look at the head, and at the tail where it can be had, shows.

    Attributes:
        kind: "text", "bug report", "journal file", "journal export", "utf-16", "binary" or "empty".
        form: The format that most of the lines with a time have; "text without times" when none has.
        head, tail: Lines with a time of their own; no tail when the head is all there is, or all that can be had.
        reversed: Newest first.
        entries_forward: In a reversed log, a record's further lines still stand behind its first (`journalctl -r`, not `tac`).
        is_log: Some line has a time or starts with one of our messages.
    """

    kind: str
    form: str = "text without times"
    head: tuple[LogLine, ...] = ()
    tail: tuple[LogLine, ...] = ()
    reversed: bool = False
    entries_forward: bool = False
    is_log: bool = False


def probe(head: bytes, tail: bytes) -> Probe:
    """Look at the first bytes of an input and, where they are known and lie behind the head, the last."""
    kind = _kind(head)
    if kind not in ("text", "bug report"):
        return Probe(kind)
    first = _sample(head.split(b"\n")[: -1 if len(head) >= HEAD_BYTES else None])
    timed = tuple(line for line in first if line.timed)
    last = tuple(line for line in _sample(tail.split(b"\n")[1:]) if line.timed) if tail else ()
    forms = Counter(line.form for line in timed if line.form)
    newest_first = _is_reversed(timed, last)
    opening = next((line for line in first if line.text.strip()), None)
    return Probe(
        kind=kind,
        form=forms.most_common(1)[0][0] if forms else "text without times",
        head=timed,
        tail=last,
        reversed=newest_first,
        entries_forward=opening is not None and opening.timed,
        is_log=bool(timed) or any(first_start(line.text) >= 0 for line in first),
    )


def _kind(head: bytes) -> str:
    if not head:
        return "empty"
    if head.startswith(b"LPKSHHRH"):
        return "journal file"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if head.startswith(b"__CURSOR="):
        return "journal export"
    sample = _NULS.sub(b"", head[:8192])
    odd = len(sample) - len(sample.translate(None, _CONTROL))
    if not sample or odd * 20 > len(sample):
        return "binary"
    return "bug report" if is_bug_report(head[:65536].decode("utf-8", "replace")) else "text"


def _sample(lines: Sequence[bytes]) -> list[LogLine]:
    """Lines evenly taken from all: the head of a file often belongs to one second."""
    step = max(1, len(lines) // _MOST_LINES)
    return [parse_line(line[:4096].decode("utf-8", "replace")) for line in lines[::step] if line.strip()]


def _is_reversed(head: Sequence[LogLine], tail: Sequence[LogLine]) -> bool:
    """Time falls all the way: at least three steps down, and hardly one up."""
    down = up = 0
    for lines in (head, tail, (*head[:1], *tail[-1:])):
        for earlier, later in pairwise(lines):
            step = _step(earlier, later)
            down += step < 0
            up += step > 0
    return down >= 3 and up * 20 <= down


def _step(earlier: LogLine, later: LogLine) -> int:
    """-1, 0 or 1: how time moves from one line to the next, by a clock that both have."""
    one: object
    other: object
    if earlier.stamp is not None and later.stamp is not None and (earlier.stamp.year is None) == (later.stamp.year is None):
        one, other = _moment(earlier), _moment(later)
        if one != other or earlier.uptime_us is None:
            return (other > one) - (other < one)
    if earlier.epoch_us is not None and later.epoch_us is not None:
        return (later.epoch_us > earlier.epoch_us) - (later.epoch_us < earlier.epoch_us)
    if earlier.uptime_us is not None and later.uptime_us is not None:
        return (later.uptime_us > earlier.uptime_us) - (later.uptime_us < earlier.uptime_us)
    return 0


def _moment(line: LogLine) -> tuple[int, ...]:
    stamp = line.stamp
    if stamp is None:
        return ()
    return (stamp.year or 0, stamp.month, stamp.day, stamp.hour, stamp.minute, stamp.second, stamp.micro)
