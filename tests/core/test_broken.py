"""Records in pieces, and blocks in one record."""

from __future__ import annotations

import json

import pytest

from xidwatch.core.broken import Joiner
from xidwatch.core.logtext import parse_line

HEAD = "NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, name=python3, "
XID = HEAD + "An error."


def joined(*lines: str) -> list[tuple[int, str]]:
    """What becomes of some lines."""
    numbered = ((number, parse_line(line)) for number, line in enumerate(lines, 1))
    return [(number, line.text) for number, line in Joiner().join(numbered)]


@pytest.mark.parametrize("at", range(len("NVRM: X"), len(HEAD) - 1))
def test_head_broken_anywhere_is_whole_again(at: int) -> None:
    """A terminal may break the head of an Xid at any letter."""
    before = "Nov 20 02:13:41 gpu07 kernel: "
    found = joined(before + XID[:at], XID[at:], before + "other")
    assert [XID, "other"] == [text for _, text in found]
    assert 1 == found[0][0]


@pytest.mark.parametrize("width", [10, 13, 17, 23, 30])
def test_head_in_many_pieces(width: int) -> None:
    """A narrow terminal breaks it several times."""
    pieces = [HEAD[at : at + width] for at in range(0, len(HEAD), width)]
    assert HEAD.strip() in joined(*pieces)[0][1]


def test_whole_lines_stay_apart() -> None:
    """A line without a time behind a whole message, or a message behind a cut one, stands for itself."""
    assert 2 == len(joined("[    1.000000] " + XID, "more"))
    assert 2 == len(joined("NVRM: Xid (PCI:0000:3b:00): 4", XID))


def test_partial_lines_of_a_container_runtime() -> None:
    """CRI marks a piece with P, Docker by the missing line end; blanks at the break are kept."""
    time = "2026-11-20T02:13:41.1Z stderr"
    assert [(1, XID)] == joined(f"{time} P {XID[:20]}\n", f"{time} P {XID[20:22]}\n", f"{time} F {XID[22:]}\n")
    assert [(1, XID)] == joined(f"{time} P NVRM: Xid \n", f"{time} F {XID[10:]}\n")
    first, second = (json.dumps({"log": text, "stream": "stderr"}) for text in (XID[:20], XID[20:] + "\n"))
    assert [(1, XID)] == joined(first, second)


def test_stack_in_one_record_is_taken_apart() -> None:
    """syslog writes a report of several lines with #012 between them."""
    lines = joined(
        "Nov 20 02:13:41 gpu07 kernel: INFO: task a:1 blocked for more than 122 seconds.#012Call Trace:#012 f+0x1/0x2"
    )
    assert [(1, "INFO: task a:1 blocked for more than 122 seconds."), (1, "Call Trace:"), (1, " f+0x1/0x2")] == lines
