"""The scanner against plain reading."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xidwatch.sources import scan
from xidwatch.sources.scan import LINE_BYTES, SMALL_BYTES, find_hits, find_hits_slowly, scan_lines

WORDS = ("NVRM:", "blocked for more than", "soft lockup")


def plain(text: bytes, after: int) -> list[tuple[int, bytes]]:
    """What the scanner promises, said the slow way."""
    pieces = []
    for number, line in enumerate(text.removesuffix(b"\n").split(b"\n") if text else [], 1):
        pieces += [(number, line[at : at + LINE_BYTES]) for at in range(0, len(line), LINE_BYTES)] or [(number, b"")]
    if len(text) < SMALL_BYTES:
        return pieces
    wanted = set(range(min(scan.FIRST_LINES, len(pieces)))) | {len(pieces) - 1}
    for at, (_, piece) in enumerate(pieces):
        if any(word.encode() in piece for word in WORDS):
            wanted |= set(range(max(0, at - scan.BEFORE), min(len(pieces), at + after + 1)))
    return [pieces[at] for at in sorted(wanted)]


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
FILLER = b"filler line\n" * (SMALL_BYTES // 12)


@settings(max_examples=40, deadline=None)
@given(
    BLOCKS, st.lists(st.integers(30_000, 1 << 18), min_size=1, max_size=3), st.integers(0, 30), st.sampled_from([b"", b"\n"])
)
def test_scan_equals_plain_reading(blocks: list[tuple[int, int]], sizes: list[int], after: int, end: bytes) -> None:
    """The same lines with the same numbers, however the bytes are cut, with very long lines and without a last newline."""
    part = b"\n".join(LINES[line] for line, times in blocks for _ in range(times))
    text = part + b"\n" + FILLER + part + end
    same = plain(text, after) == list(scan_lines(cut(text, sizes), WORDS, after))
    assert same


@given(st.binary(max_size=400), st.lists(st.integers(1, 60), min_size=1))
def test_small_inputs_come_whole(text: bytes, sizes: list[int]) -> None:
    """An input below the limit is yielded line by line, whatever is in it."""
    assert plain(text, 3) == list(scan_lines(cut(text, sizes), WORDS, 3))


@given(st.lists(st.sampled_from([b"NVRM: ", b"x", b"soft lockup", b"blocked for more than", b"NV", b"\n"]), max_size=40))
def test_both_searches_agree(parts: list[bytes]) -> None:
    """The standard library finds what the fast library finds."""
    text = b"".join(parts)
    assert find_hits_slowly(WORDS)(text) == find_hits(WORDS)(text)


def test_many_literals_are_found_in_groups() -> None:
    """Beyond one group's size every literal still is found, in order."""
    words = [f"word{number:03d}" for number in range(200)]
    text = " ".join(reversed(words)).encode()
    assert [8 * at for at in range(200)] == find_hits(words)(text)


@pytest.mark.parametrize("literals", [(), ("NVRM:", "NVRM: Xid")])
def test_literal_inside_another_is_enough(literals: tuple[str, ...]) -> None:
    """A longer literal adds no second hit to the one inside it; no literal finds nothing."""
    assert [0][: len(literals)] == find_hits(literals)(b"NVRM: Xid")
