"""The scanner against plain reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xidwatch.core.parse import NOTHING, Further
from xidwatch.sources import scan
from xidwatch.sources.blocks import BEFORE, CHUNK_BYTES, LINE_BYTES, Block, searched
from xidwatch.sources.literals import find_hits
from xidwatch.sources.scan import SMALL_BYTES, scan_lines

WORDS = ("NVRM:", "blocked for more than", "soft lockup")


def pieces(text: bytes) -> list[tuple[int, bytes]]:
    """Every line, or its pieces, with its number."""
    cut_up = []
    for number, line in enumerate(text.removesuffix(b"\n").split(b"\n") if text else [], 1):
        cut_up += [(number, line[at : at + LINE_BYTES]) for at in range(0, len(line), LINE_BYTES)] or [(number, b"")]
    return cut_up


ALONE = b"[ 1.000000] "
"""A time of its own: the lines before such a one may be left out."""


def plain(text: bytes, after: int, before_all: int = 0) -> list[tuple[int, bytes]]:
    """What the scanner promises, said the slow way; so many lines before those that stand alone may be given too."""
    all_of_them = pieces(text)
    if len(text) < SMALL_BYTES:
        return all_of_them
    wanted = set(range(min(scan.FIRST_LINES, len(all_of_them))))
    for at, (_, piece) in enumerate(all_of_them):
        if any(word.encode() in piece for word in WORDS):
            before = before_all if piece.startswith(ALONE) else BEFORE
            wanted |= set(range(max(0, at - before), min(len(all_of_them), at + after + 1)))
    return [all_of_them[at] for at in sorted(wanted)]


def cut(text: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The text in chunks of these sizes, over and over."""
    at = turn = 0
    while at < len(text):
        yield text[at : at + sizes[turn % len(sizes)]]
        at += sizes[turn % len(sizes)]
        turn += 1


LINES = (
    b"", b"x" * 50, b"ordinary line with xid 0x1", b"[ 1.000000] NVRM: Xid", b"task blocked for more than 122 s", b"y" * 3000,
    b"z" * LINE_BYTES, b"z" * (LINE_BYTES + 1), b"z" * (2 * LINE_BYTES), b"z" * (3 * LINE_BYTES) + b"NVRM:",
)  # fmt: skip
BLOCKS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 400)) | st.tuples(st.integers(6, 9), st.just(1)), min_size=1, max_size=14
)
FILLER = (b"filler line " + b"." * 187 + b"\n") * (CHUNK_BYTES // 200)


@settings(max_examples=20, deadline=None)
@given(
    BLOCKS, st.lists(st.integers(30_000, 1 << 18), min_size=1, max_size=3), st.integers(0, 30), st.sampled_from([b"", b"\n"])
)
def test_scan_equals_plain_reading(blocks: list[tuple[int, int]], sizes: list[int], after: int, end: bytes) -> None:
    """The same lines with the same numbers, however the bytes are cut, with very long lines and without a last newline."""
    part = b"\n".join(LINES[line] for line, times in blocks for _ in range(times))
    text = part + b"\n" + FILLER + part + end
    found, every = list(scan_lines(cut(text, sizes), WORDS, after)), pieces(text)
    rest = iter(every)
    assert all(line in rest for line in found)
    most = Counter(plain(text, after, BEFORE)) + Counter(every[-scan.LAST_LINES :])
    assert Counter(plain(text, after)) <= Counter(found) <= most
    assert every[-1] == found[-1]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from([b"NVRM: Xid", b"a +0x1/0x2", b"b Tainted: x", b"ordinary"]), min_size=1, max_size=60),
    st.lists(st.integers(30_000, 1 << 18), min_size=1, max_size=3),
    st.integers(0, 5),
    st.integers(0, 30),
)
def test_lines_are_given_as_the_reader_asks(lines: list[bytes], sizes: list[int], whole: int, among: int) -> None:
    """Behind a line of ours come so many whole, and among so many those with a word that was asked for."""
    words = ("+0x", "Tainted:")
    text = b"".join(line + b"\n" + b"other\n" * 3 for line in lines) + FILLER
    text = FILLER + text
    numbered = pieces(text)
    wanted, latest = set(range(scan.FIRST_LINES)), -(10**6)
    for at, (_, line) in enumerate(numbered):
        hit = b"NVRM:" in line
        if hit:
            latest = at
            wanted |= {at - 2, at - 1, at}
        since = at - latest
        if since <= whole or (since <= among and any(word.encode() in line for word in words)):
            wanted.add(at)
    reader = [-(10**6), 0]

    def ask() -> Further:
        since = reader[1] - reader[0]
        return Further(max(0, whole - since), max(0, among - since), words) if since < max(whole, among) else NOTHING

    found = []
    for number, line in scan_lines(cut(text, sizes), WORDS, ask):
        if b"NVRM:" in line:
            reader[0] = number
        reader[1] = number
        found.append((number, line))
    expected = [numbered[at] for at in sorted(wanted)]
    assert expected == found[: len(expected)]


def test_a_fault_while_searching_is_raised() -> None:
    """What goes wrong in a thread is raised where the lines are read, and what goes wrong while reading too."""

    def broken(_block: bytes) -> list[int]:
        raise MemoryError

    blocks = [Block(FILLER, 0, len(FILLER))]
    with pytest.raises(MemoryError):
        list(searched(iter(blocks), [find_hits(WORDS), broken]))

    def chunks() -> Iterator[bytes]:
        yield FILLER
        raise OSError

    with pytest.raises(OSError):
        list(scan_lines(chunks(), WORDS, 3))


def test_dates_are_sampled() -> None:
    """The first line of a chunk with another date than the one before is given."""
    months = [b"%s 11 00:00:00 usb 1-1: new device\n" % month * 40_000 for month in (b"Nov", b"Dec", b"Jan")]
    given = [line[:3] for _, line in scan_lines(iter(months), WORDS, 0, sampled=True)][scan.FIRST_LINES : -scan.LAST_LINES]
    assert [b"Dec", b"Jan"] == given


@given(st.binary(max_size=400), st.lists(st.integers(1, 60), min_size=1))
def test_small_inputs_come_whole(text: bytes, sizes: list[int]) -> None:
    """An input below the limit is yielded line by line, whatever is in it."""
    assert plain(text, 3) == list(scan_lines(cut(text, sizes), WORDS, 3))


@pytest.mark.parametrize(
    ("line", "before"),
    [
        (b"Mar  2 06:00:00 node01 kernel: NVRM: Xid", 0),
        (b"<4>2026-03-02T06:00:00.123456+00:00 node01 kernel: NVRM: Xid", 0),
        (b"[    1.000000] NVRM: Xid", 0),
        (b"Mar  2 06:00:00 node01 kernel: [    1.000000] NVRM: Xid", 1),
        (b"2026-03-02T06:00:00.123456+00:00 node01 kernel[0]: [91056.500000] NVRM: Xid", 1),
        (b"NVRM: Xid", 2),
        (b"2026-03-02T06:00:00.123456Z stdout F NVRM: Xid", 2),
        (b'Mar  2 06:00:00 node01 docker: {"log":"NVRM: Xid", "stream":"stdout"}', 2),
    ],
)
def test_lines_before_are_given_where_they_may_matter(line: bytes, before: int) -> None:
    """A line with a time of its own says nothing of the one before; pieces of one message and lines without a time do."""
    text = FILLER + line + b"\n" + FILLER
    numbers = [number for number, _ in scan_lines(iter([text]), WORDS, 0)][scan.FIRST_LINES : -scan.LAST_LINES]
    at = FILLER.count(b"\n") + 1
    assert list(range(at - before, at + 1)) == numbers
