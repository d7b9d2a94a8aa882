"""Searches for many literals at once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.parse import LITERALS
from xidwatch.sources.literals import count_lines, find_hits, find_hits_slowly, line_searches, together

WORDS = ("NVRM:", "blocked for more than", "soft lockup")
ORDINARY = b"Mar  2 06:00:00 node01 kernel: [86400.500000] docker0: port 1(veth0a1b2c) entered disabled state\n"


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


def lines_hit(text: bytes, literals: tuple[str, ...]) -> set[int]:
    """Numbers from 0 of the lines that the searches hit."""
    return {text.count(b"\n", 0, hit) for hit in together(line_searches(literals))(text)}


def test_every_literal_hits_its_line_wherever_it_stands() -> None:
    """Each of our literals, alone, at the ends of a line and inside it, is hit in its line; ordinary lines are not."""
    for literal in LITERALS:
        said = literal.encode()
        text = ORDINARY + said + b"\n" + ORDINARY + b"x" + said + b"y\n" + ORDINARY + ORDINARY[:-1] + said + b"\n" + ORDINARY
        assert {1, 3, 5} == lines_hit(text, LITERALS), literal


@pytest.mark.parametrize("seed", range(20))
def test_lines_with_several_literals_are_hit(seed: int) -> None:
    """Whatever literals stand side by side or over each other, every line with one is hit."""
    dice = random.Random(seed)
    lines = []
    for _ in range(300):
        parts = [dice.choice(LITERALS)[dice.randrange(3) * dice.randrange(6) :] for _ in range(dice.randrange(4))]
        lines.append(dice.choice(("", " ", "x")).join(parts))
    with_one = {at for at, line in enumerate(lines) if any(literal in line for literal in LITERALS)}
    assert with_one <= lines_hit("\n".join(lines).encode(), LITERALS)


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"\r\n", b"\0", b"a" * 70]), max_size=80), st.integers(0, 90), st.integers(0, 900)
)
def test_lines_are_counted_between_two_places(parts: list[bytes], start: int, stop: int) -> None:
    """As many as newlines stand there."""
    text = b"".join(parts)
    start, stop = min(start, len(text)), min(stop, len(text))
    assert text.count(b"\n", start, stop) == count_lines(text, start, max(start, stop))
