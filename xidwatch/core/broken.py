"""Records that reach us in pieces are put together, and records that hold a whole block are taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from xidwatch.core.logtext import MESSAGE_STARTS, LogLine, first_start
from xidwatch.core.pattern import lazy

NumberedText = tuple[int, LogLine]
"""A line with its number."""

_XID = lazy(
    r"Xid \((?:PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): *\d+, "
    r"(?!p(?:i(?:d(?:=[^,]*(?:,(?: (?:n(?:a(?:m(?:e(?:=[^,]*)?)?)?)?)?)?)?)?)?)?$)(?:pid=[^,\n]*, ?)?(?:name=[^,\n]{0,64}, ?)?"
)
_XID_BEGUN = lazy(
    r"NVRM:? *Xid \((?:PCI:)?[0-9a-fA-F:]*(?: GPU-I:\d*)?(?: GPU-CI:\d*)?"
    r"(?:\)(?:: *(?:\d+(?:,(?: (?:p|pi|pid|pid=[^,\n]{0,12}(?:, ?(?:n|na|nam|name|name=[^,\n]{0,15},?)?)?)?)?)?)?)?)?$"
)
"""A head in so many pieces that two do not complete it."""
_HEADS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("Xid (", _XID),
    ("INFO: task ", lazy(r"INFO: task .{1,120}:\d+ (?:is )?blocked (?:on an? |(?:in I/O wait )?for more than \d+ seconds)")),
    ("BUG: soft lockup", lazy(r"BUG: soft lockup - CPU#\d+ stuck for \d+s! \[.{1,120}:\d+\]")),
    ("NVRM: GPU 0", lazy(r"NVRM: GPU [0-9a-fA-F:.]{7,16}: GPU has fallen off the bus")),
)
"""The part of a message that its parser needs, by what it starts with: a line that ends inside goes on in the next."""
_HALF_STARTS = ("NVR", "NVRM", "NVRM:", "NVRM: X", "NVRM: Xi", "NVRM: Xid", "INFO: ta", "INFO: tas", "INFO: task", "BUG: soft")
_LONGEST_HEAD = 200
_LONGEST_JOINED = 1 << 16
_BLOCK_STARTS = ("INFO: task ", "watchdog: BUG: ", "BUG: soft lockup", "NMI watchdog: ", "rcu: INFO: ", "INFO: rcu_")


class Joiner:
    """Puts lines together that a terminal or a container's runtime broke in two.

    Attributes:
        holds: A line is held back until the one behind it has been seen.
        number: The latest line that was seen.
    """

    def __init__(self) -> None:
        self.holds = False
        self.number = 0

    def join(self, lines: Iterable[NumberedText]) -> Iterator[NumberedText]:
        """The lines, with the pieces of one as one, and the lines of a stack that syslog wrote into one each by itself."""
        held: NumberedText | None = None
        for number, line in lines:
            self.number = number
            if held is not None:
                joined = _joined(held[1], line)
                if joined is None:
                    yield from _apart(*held)
                else:
                    number, line = held[0], joined  # noqa: PLW2901 - the two lines go on as one
                held, self.holds = None, False
            if line.partial or _breaks_off(line.text):
                held, self.holds = (number, line), True
            else:
                yield from _apart(number, line)
        self.holds = False
        if held is not None:
            yield from _apart(*held)


def _joined(line: LogLine, further: LogLine) -> LogLine | None:
    """Both as one; None when the second stands for itself."""
    if len(line.text) + len(further.text) > _LONGEST_JOINED:
        return None
    if line.partial:
        return _with_rest(line, further)
    if further.timed or further.kernel or further.program or further.text.startswith((*MESSAGE_STARTS, "[")):
        return None
    return _with_continuation(line, further)


def _with_rest(line: LogLine, further: LogLine) -> LogLine | None:
    if further.form == line.form:
        whole = replace(line, text=line.text + further.text, partial=further.partial)
        at = first_start(whole.text)
        return replace(whole, text=whole.text[at:], glued=True) if at > 0 else whole
    return None


def _with_continuation(line: LogLine, further: LogLine) -> LogLine | None:
    rest = further.text.lstrip()
    for between in (" ", "") if line.text.endswith((",", "):")) else ("", " "):
        text = line.text + between + rest
        if _spans(text, len(line.text)) and (between == "" or line.timed):
            return replace(line, text=text)
        if _XID_BEGUN.search(text) is not None:
            return replace(line, text=text)
    return None


def _spans(text: str, at: int) -> bool:
    """Whether the head of a message lies across the break."""
    return any(
        found.start() < at < found.end() for _, head in _HEADS for found in head.finditer(text, max(0, at - _LONGEST_HEAD))
    )


def _breaks_off(text: str) -> bool:
    """Whether a line ends inside the head of a message."""
    for start, head in _HEADS:
        at = text.rfind(start)
        if at >= 0:
            return len(text) - at < _LONGEST_HEAD and head.match(text, at) is None
    return text.endswith(_HALF_STARTS)


def _apart(number: int, line: LogLine) -> Iterator[NumberedText]:
    """A block of many lines in one record (`#012` in syslog), as the lines that the kernel printed."""
    if "\n" not in line.text or not line.text.startswith(_BLOCK_STARTS):
        yield number, line
        return
    for nth, text in enumerate(line.text.split("\n")):
        yield number, replace(line, text=text.rstrip(), delta_us=0 if nth and line.delta_us is not None else line.delta_us)
