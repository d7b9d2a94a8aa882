from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.event import UserspaceDetail
from xidwatch.core.shortage import SHORTAGES, explain_shortage, held_by_others, in_pieces, shortage_of

GIB = 2.0**30


def figures(**gib: float) -> UserspaceDetail:
    """A message with these figures, in GiB."""
    return UserspaceDetail(**{name: value * GIB for name, value in gib.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("detail", "shortage"),
    [
        (figures(tried=8, total=79.15, free=1.2, allocated=68.2, reserved=9.75), "fragmented"),
        (figures(tried=2.87, total=14.76, free=0.02, allocated=8.77, reserved=13.71), "fragmented"),
        (figures(tried=6, total=79.15, free=1.4, in_use=77.74, allocated=65.2, reserved_unallocated=11.31), "fragmented"),
        (figures(tried=6, free=1, reserved_unallocated=9), "fragmented"),
        (figures(tried=0.5, total=14.75, free=0.23, in_use=14.52, allocated=14.06, reserved_unallocated=0.32), "full"),
        (figures(tried=22.8, total=31.5, free=12.7, in_use=18.7, allocated=9.1, reserved_unallocated=9.3), "full"),
        (figures(tried=55, total=12, free=9, allocated=1, reserved_unallocated=0.4), "full"),
        (figures(tried=20, total=79, free=1.2, in_use=17.8, allocated=17, reserved_unallocated=0.2), "shared"),
        (figures(tried=2, total=11, free=0.1, allocated=3, reserved=3.2), "shared"),
        (figures(tried=0.1, total=11, free=0.05, allocated=9.3, reserved=9.6), "full"),
        (figures(tried=2, total=79, free=60, allocated=18, reserved_unallocated=0.1, allowed=19.8), "limited"),
        (figures(tried=2, total=79, free=0.5, in_use=78.5, allocated=77, reserved_unallocated=0.1, allowed=79), "full"),
        (figures(tried=8.1, total=10.8, free=8.2, allocated=0.6, reserved=0.03), "unknown"),
        (figures(tried=2, total=79), "unknown"),
        (figures(total=79, free=1), "unknown"),
        (figures(tried=2, free=1), "unknown"),
    ],
)
def test_why_memory_ran_out(detail: UserspaceDetail, shortage: str) -> None:
    """What would have been enough is what was missing; without the figures nobody knows."""
    assert shortage == shortage_of(detail)


def test_older_wordings_count_the_allocated_part_in() -> None:
    """`reserved in total` holds the allocated part, `cached` does not; a figure smaller than that part cannot."""
    assert 5 * GIB == in_pieces(figures(allocated=9, reserved=14))
    assert 2 * GIB == in_pieces(figures(allocated=9, reserved=2))
    assert in_pieces(figures(allocated=9)) is None


def test_what_others_hold() -> None:
    """Printed processes come first; a remainder as small as a CUDA context proves no other process."""
    assert 60 * GIB == held_by_others(UserspaceDetail(total=79 * GIB, free=GIB, others=((7, 60 * GIB),)))
    assert held_by_others(figures(total=16, free=1, allocated=13, reserved=14)) == 0
    assert 5 * GIB == held_by_others(figures(total=16, free=1, allocated=9, reserved=10))
    assert held_by_others(figures(total=16)) is None


@pytest.mark.parametrize(
    ("detail", "clause"),
    [
        (figures(), ""),
        (figures(tried=2), "it wanted 2.0 GiB; how much was free is not printed"),
        (figures(tried=2, free=1), "it wanted 2.0 GiB; 1.0 GiB was free"),
    ],
)
def test_figures_that_are_not_there_are_not_said(detail: UserspaceDetail, clause: str) -> None:
    """The clause holds what the message printed and nothing else."""
    assert clause == explain_shortage(detail)


SIZES = st.none() | st.floats(min_value=0, max_value=2.0**50)


@given(
    st.fixed_dictionaries({name: SIZES for name in ("tried", "total", "free", "allocated", "reserved", "allowed", "in_use")})
)
def test_any_figures_have_an_answer(sizes: dict[str, float | None]) -> None:
    """Figures that contradict each other give a word of the vocabulary and a clause, never an exception."""
    detail = UserspaceDetail(**sizes)  # type: ignore[arg-type]
    assert shortage_of(detail) in SHORTAGES
    assert isinstance(explain_shortage(detail), str)
