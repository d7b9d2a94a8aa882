"""A look at an input before it is read: what it is, in which order its lines stand, and when it begins and ends."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from xidwatch.core.logtext import LogLine, first_start, parse_line
from xidwatch.core.pattern import lazy
from xidwatch.sources.bugreport import is_bug_report

HEAD_BYTES = 1 << 18
_MOST_LINES = 400
_NULS = lazy(rb"\0{16,}")
_SPREAD_JSON = lazy(
    rb'[\s\x1e]*(?:data: )?(?:\[\s*\{\s*"|\{[ \t]*\r?\n\s*"'
    rb'|\{\s*"(?:dmesg|entries|logs|events|records|results|items|messages)"\s*:\s*\[)'
)
_VERBOSE = lazy(rb"\s*\S+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\[\n]* \[s=[0-9a-f]+;i=[0-9a-f]+;b=[0-9a-f]{32};m=")
_REPORT = (
    ("INFO: task ",), ("Tainted:", "Not tainted", "Blocked by coredump"), ('"echo 0 >',), ("task:",),
    ("Call Trace:", "Call trace:"), ("<TASK>",), ("__schedule+", "[<0>] __schedule+"),
)  # fmt: skip
"""The lines of a hung task's report, in the order of their printing (kernel/hung_task.c, kernel/sched/core.c)."""
_CONTROL = bytes(set(range(32)) - {7, 8, 9, 10, 12, 13, 27})


@dataclass(frozen=True, slots=True)
class Probe:
    """What a look at the head, and at the tail where it can be had, shows.

    Attributes:
        kind: "text", "entries" (of several lines each, or several in one), "carriage returns" (text without a newline),
            "bug report", "journal file", "journal export", "utf-16", "binary" or "empty".
        form: The format that most of the lines with a time have; "text without times" when none has.
        head, tail: Lines with a time of their own; no tail when the head is all there is, or all that can be had.
        reversed: Newest first.
        report_steps: How often the lines of a kernel's report stand the wrong way round, and how often the right way.
        entries_forward: In a reversed log, a record's further lines still stand behind its first (`journalctl -r`, not `tac`).
        is_log: Some line has a time or starts with one of our messages.
    """

    kind: str
    form: str = "text without times"
    head: tuple[LogLine, ...] = ()
    tail: tuple[LogLine, ...] = ()
    report_steps: tuple[int, int] = (0, 0)
    reversed: bool = False
    entries_forward: bool = False
    is_log: bool = False


def probe(head: bytes, tail: bytes) -> Probe:
    """Look at the first bytes of an input and, where they are known and lie behind the head, the last."""
    kind = _kind(head)
    if kind == "entries":
        first = _entries(head)
    elif kind in ("text", "bug report"):
        first = _sample(head.split(b"\n")[: -1 if len(head) >= HEAD_BYTES else None])
    else:
        return Probe(kind)
    timed = tuple(line for line in first if line.timed)
    forms = Counter(line.form for line in timed if line.form)
    opening = next((line for line in first if line.text.strip()), None)
    seen = Probe(
        kind=kind,
        form=forms.most_common(1)[0][0] if forms else "text without times",
        head=timed,
        report_steps=_report_steps(first),
        entries_forward=opening is not None and opening.timed,
        is_log=bool(timed) or any(first_start(line.text) >= 0 for line in first),
    )
    return with_tail(seen, tail)


def with_tail(seen: Probe, tail: bytes) -> Probe:
    """What a look at the last bytes adds; they need not begin with a whole line."""
    if seen.kind not in ("text", "entries", "bug report"):
        return seen
    last = tuple(line for line in _sample(tail.split(b"\n")[1:]) if line.timed) if tail else ()
    return replace(seen, tail=last, reversed=_is_reversed(seen.head, last, seen.report_steps))


def _kind(head: bytes) -> str:
    if not head:
        return "empty"
    if head.startswith(b"LPKSHHRH"):
        return "journal file"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if head.startswith(b"__CURSOR="):
        return "journal export"
    return _text_kind(head)


def _text_kind(head: bytes) -> str:
    sample = _NULS.sub(b"", head[:8192])
    odd = len(sample) - len(sample.translate(None, _CONTROL))
    if not sample or odd * 20 > len(sample):
        return "binary"
    if is_bug_report(head[:65536].decode("utf-8", "replace")):
        return "bug report"
    if _SPREAD_JSON.match(head) or _VERBOSE.match(head):
        return "entries"
    return "carriage returns" if b"\n" not in head and head.rstrip().count(b"\r") else "text"


def _entries(head: bytes) -> list[LogLine]:
    from xidwatch.core.entries import read_entries

    found = (parse_line(entry.decode("utf-8", "replace")) for _, entry in itertools.islice(read_entries([head]), _MOST_LINES))
    return [line for line in found if line.text.strip()]


def _sample(lines: Sequence[bytes]) -> list[LogLine]:
    """Lines evenly taken from all: the head of a file often belongs to one second."""
    step = max(1, -(-len(lines) // _MOST_LINES))
    return [parse_line(line[:4096].decode("utf-8", "replace")) for line in lines[::step] if line.strip()]


def _report_steps(lines: Sequence[LogLine]) -> tuple[int, int]:
    """Its head, its stack and all between often share one second, so that no clock tells."""
    ranks = [_rank(line.text) for line in lines]
    steps = [later - earlier for earlier, later in pairwise(ranks) if earlier is not None and later is not None]
    return sum(-2 <= step < 0 for step in steps), sum(0 < step <= 2 for step in steps)


def _rank(text: str) -> int | None:
    """Where in a hung task's report a line stands."""
    text = text.lstrip()
    return next((rank for rank, start in enumerate(_REPORT) if text.startswith(start)), None)


def _is_reversed(head: Sequence[LogLine], tail: Sequence[LogLine], report_steps: tuple[int, int]) -> bool:
    """Time falls all the way: at least three steps down, and hardly one up."""
    down, up = report_steps
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
