"""Blocks of whole lines, searched ahead of their reading."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from xidwatch.core import parse
from xidwatch.sources import blocks
from xidwatch.sources.blocks import BEFORE, KEPT_LINES, search_ahead
from xidwatch.sources.literals import line_searches
from xidwatch.sources.scan import FIRST_LINES, scan_blocks

WORDS = ("NVRM:", "soft lockup")
CHUNK = 1 << 18


def chunks(text: bytes) -> Iterator[bytes]:
    """In pieces."""
    return (text[at : at + CHUNK] for at in range(0, len(text), CHUNK))


@pytest.mark.parametrize("seed", range(8))
def test_what_may_be_asked_for_is_kept(seed: int) -> None:
    """Lines of ours, those before them and as many behind them as any event stays open for are read, under their own numbers."""
    dice = random.Random(seed)
    lines = [b"ordinary line of some program " + b"x" * dice.randrange(120) for _ in range(40_000)]
    hits = dice.sample(range(len(lines)), dice.choice((1, 20, 200)))
    for at in hits:
        lines[at : at + 1] = [b"NVRM: Xid"]
    text = b"\n".join(lines) + dice.choice((b"", b"\n"))
    searches = line_searches(WORDS)
    ahead = search_ahead(chunks(text), searches, 100)
    assert text[-100:] == ahead.tail
    assert ahead.blocks is not None
    assert len(lines) == sum(block.lines for block in ahead.blocks) + (not text.endswith(b"\n"))
    if len(hits) < 200:
        assert sum(len(block.bytes) for block in ahead.blocks) < len(text)
    given = dict(scan_blocks(ahead.blocks, WORDS, KEPT_LINES))
    wanted = set(range(FIRST_LINES)) | {near for at in hits for near in range(at - BEFORE, at + KEPT_LINES + 1)}
    wanted &= set(range(len(lines)))
    assert {1 + at: lines[at] for at in wanted} == {number: given.get(number) for number in (1 + at for at in wanted)}
    assert all(lines[number - 1] == line for number, line in given.items())
    assert len(lines) == max(given)


def test_nothing_is_kept_of_a_storm() -> None:
    """Where too much would have to be kept only the end is told."""
    text = b"NVRM: Xid of a storm\n" * (2 * blocks._MOST_KEPT // 21)
    ahead = search_ahead(chunks(text), line_searches(WORDS), 50)
    assert ahead.blocks is None
    assert text[-50:] == ahead.tail


def test_no_event_stays_open_for_longer_than_lines_are_kept() -> None:
    """What is kept behind a line of ours is enough for every family."""
    longest = [
        value
        for family in parse.FAMILIES
        for name, value in vars(family).items()
        if name.isupper() and isinstance(value, int) and ("OPEN_FOR" in name or "BLOCK" in name)
    ]
    assert len(longest) > 5
    assert max(longest) < KEPT_LINES


ENDLESS = """
import sys
from xidwatch.sources.blocks import searched, whole_lines
from xidwatch.sources.literals import line_searches

def chunks():
    while True:
        yield b"an ordinary line of some program, nothing to see here\\n" * 20_000

blocks = searched(whole_lines(chunks()), line_searches(("NVRM:", "soft lockup")))
next(blocks)
if sys.argv[1] == "left":
    kept = [blocks]
    kept.append(kept)
raise SystemExit(7)
"""


@pytest.mark.parametrize("how", ["closed", "left"])
def test_leaving_in_the_middle_ends_in_order(how: str) -> None:
    """Whoever stops while threads search, by an error or Ctrl-C, ends with the status that was meant."""
    for _ in range(6):
        run = subprocess.run([sys.executable, "-c", ENDLESS, how], capture_output=True, check=False, timeout=60)
        assert (7, b"") == (run.returncode, run.stderr)
