"""A process that keeps the lines of a file, for the tests that kill it.

    python history_writer.py HISTORY STREAM

Line N says N; its position is N. Goes on where the history says; ends once all is stored.
"""

from __future__ import annotations

import sys
from pathlib import Path

from xidwatch.core.codec import encode
from xidwatch.core.event import Event, XidDetail
from xidwatch.core.record import Record
from xidwatch.sinks.history import Entry, History


def numbered(number: int) -> Entry:
    """The entry of one line of the stream: an Xid whose totals tell odd from even."""
    record = Record(text=f"line {number}", seq=number, wall_us=number, boot_id="boot", trusted="kernel")
    event = Event(
        uid=(0, number, 0), kind="xid", code=13, record=record, last_record=record, detail=XidDetail(message="m" * 200)
    )
    return Entry(
        identity=f"{number:016x}",
        source="stream",
        position=str(number),
        wall_us=number,
        boot_id="boot",
        item=encode(event),
        totals=(("numbers_total", (("parity", ("even", "odd")[number % 2]),)), ("all_total", ())),
    )


def main() -> int:
    """Store the rest of the stream."""
    history = History.open(Path(sys.argv[1]))
    done = int(history.positions().get("stream", "0"))
    for line in Path(sys.argv[2]).read_text(encoding="ascii").splitlines()[done:]:
        history.append(numbered(int(line)))
        # Slow enough to be killed on the way, fast enough for full transactions.
        if history.health().backlog > 500:
            history.flush(10)
    return 0 if history.close(30) else 1


if __name__ == "__main__":
    sys.exit(main())
