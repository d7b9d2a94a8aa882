"""Feeds lines to the parser as a source would, for the tests of the event families."""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.event import Context, Event
from xidwatch.core.parse import Parser
from xidwatch.core.record import Record

PLAIN = Record(text="", timed=True)


def read(text: str, like: Record = PLAIN, step_us: int | None = 1000) -> tuple[list[Event], list[Context]]:
    """Events in their latest extension, and context, of the lines of a text; `step_us` is the time between two lines."""
    parser, events, context = Parser(), dict[tuple[int, int, int], Event](), list[Context]()
    for number, line in enumerate(text.strip("\n").splitlines(), start=1):
        since_boot_us = None if step_us is None else number * step_us
        for item in parser.feed(replace(like, text=line, seq=number, line=number, since_boot_us=since_boot_us)):
            if isinstance(item, Event):
                events[item.uid] = item
            else:
                context.append(item)
    return list(events.values()), context


def read_events(text: str, like: Record = PLAIN, step_us: int | None = 1000) -> list[Event]:
    """The events alone."""
    return read(text, like, step_us)[0]
