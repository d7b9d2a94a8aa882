"""What the engine knows of an event before it is complete, and what it remembers of events that are."""

from __future__ import annotations

import pytest

from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import SETTLE_US, Engine
from xidwatch.core.event import Event
from xidwatch.core.identity import LatestNames
from xidwatch.core.record import Record

NOW_US = 1_790_000_000_000_000
THIRTEEN = "NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name=a, Graphics SM Warp Exception on (GPC 0, TPC {n}, SM 0): Out Of Range"


def record(seq: int, text: str, at_us: int) -> Record:
    """A line of the kernel's own, `at_us` after the first."""
    return Record(
        text=text, seq=seq, wall_us=NOW_US + at_us, since_boot_us=at_us, boot_id="b", host="h", trusted="kernel", timed=True
    )  # fmt: skip


@pytest.fixture
def engine(rules: RuleTable) -> Engine:
    """One that knows nothing yet."""
    return Engine(rules)


def test_event_that_may_grow_is_known_at_its_first_line(engine: Engine) -> None:
    """It is born, not complete, and can be shown; once complete it is that no longer."""
    engine.feed("kmsg", record(1, THIRTEEN.format(n=0), 0), NOW_US)
    assert [] == engine.settle(NOW_US)
    assert [13] == [event.code for _, event in engine.unfinished()]
    (done,) = engine.settle(NOW_US + SETTLE_US)
    assert [] == list(engine.unfinished())
    assert 13 == getattr(done.item, "code", None)


def test_line_behind_a_complete_event_is_an_event_of_its_own(engine: Engine) -> None:
    """What was taken for complete is extended no more: every line is counted once."""
    lines = 0
    for number, at_us in enumerate((0, 50_000, 400_000, 450_000)):
        engine.feed("kmsg", record(number, THIRTEEN.format(n=number), at_us), NOW_US + at_us)
        if at_us == 50_000:
            lines += sum(done.item.lines for done in engine.settle(NOW_US + 300_000) if isinstance(done.item, Event))
    lines += sum(done.item.lines for done in engine.settle(NOW_US, everything=True) if isinstance(done.item, Event))
    assert 4 == lines


def test_kernels_own_record_is_a_whole_text(engine: Engine) -> None:
    """An Xid with a wording that might go on in a wrapped mail is complete at once when the kernel wrote it."""
    engine.feed("kmsg", record(1, "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=a, some new words that", 0), NOW_US)
    assert 1 == len(engine.settle(NOW_US))


def test_latest_names_are_known_and_the_memory_is_bounded() -> None:
    """The latest ones for sure, older ones for a while, and never more than twice as many."""
    names = LatestNames(100)
    for number in range(1000):
        names.add(f"{number}")
    assert all(f"{number}" in names for number in range(900, 1000))
    assert not any(f"{number}" in names for number in range(700))
