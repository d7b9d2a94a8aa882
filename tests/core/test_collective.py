from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.reading import read
from xidwatch.core.collective import Call, Lag, call_of, call_text, ranks_text, who_lags
from xidwatch.core.event import Event
from xidwatch.core.record import Record

PROGRAM = Record(text="")


def timeout(rank: int, seq: int = 12, op: str = "ALLREDUCE", elements: int = 4) -> str:
    """The watchdog's line of one rank."""
    return (
        f"[rank{rank}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600060 "
        "milliseconds before timing out."
    )


def stands(rank: int, enqueued: int, completed: int, group: str = "0(default_pg)") -> str:
    """What the dump signal says of a rank."""
    return (
        f"[rank{rank}]:[E703 15:37:17.1 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID {group} Rank {rank}] Received a dump signal due "
        "to a collective timeout from  rank 0 and we will try our best to dump the debug info. "
        f"Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely"
    )


def failed(rank: int, seq: int, enqueued: int, group: str) -> str:
    """The line behind the watchdog's, which names the group."""
    return (
        f"[rank{rank}]:[E321 02:07:08.5 ProcessGroupNCCL.cpp:2168] [PG ID 3 PG GUID {group} Rank {rank}]  failure detected by watchdog "
        f"at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {seq - 1}"
    )


def lag(*lines: str) -> Lag:
    """Who lags by these lines."""
    events, notes = read("\n".join(lines), PROGRAM, None)
    return who_lags(called(events), notes)


def called(events: Iterable[Event]) -> list[Call]:
    """The time-outs as calls."""
    return [call for event in events if (call := call_of(event)) is not None]


@pytest.mark.parametrize(
    ("lines", "verdict", "ranks"),
    [
        ((timeout(0), timeout(1), stands(0, 14, 11), stands(1, 14, 11), stands(2, 11, 11)), "behind", (2,)),
        ((timeout(0), timeout(1), stands(0, 14, 11), stands(1, 14, 11), stands(2, 12, 11)), "joined", ()),
        ((timeout(0), timeout(1), stands(0, -1, -1), stands(1, -1, -1)), "idle", ()),
        ((timeout(0), timeout(1), timeout(2, op="BROADCAST")), "apart", (2,)),
        ((timeout(0), timeout(1), timeout(2, elements=8)), "apart", (2,)),
        ((timeout(0, op="ALLTOALL"), timeout(1, op="ALLTOALL"), timeout(2, op="ALLTOALL", elements=8)), "unknown", ()),
        ((timeout(0), timeout(1), timeout(2, seq=9)), "behind", (2,)),
        ((timeout(0), timeout(1), timeout(3)), "silent", (2,)),
        ((timeout(0), timeout(1), timeout(2), "n1:7:8 [0] NCCL INFO comm 0x7f rank 0 nranks 4 cudaDev 0"), "silent", (3,)),
        ((timeout(0), timeout(7)), "unknown", ()),
        ((timeout(0), timeout(1)), "unknown", ()),
        (("an ordinary line",), "unknown", ()),
        (
            (
                timeout(0),
                timeout(1),
                "\t - To our best knowledge, ranks [5, 6] are the lagging ranks that caused this timeout.",
            ),
            "behind",
            (5, 6),
        ),
        (
            (timeout(0), timeout(1), "\t     [3] finished collective #11, but didn't join collective #12 (count from 1)"),
            "behind",
            (3,),
        ),
    ],
)
def test_the_rank_that_the_others_waited_for(lines: tuple[str, ...], verdict: str, ranks: tuple[int, ...]) -> None:
    """The best evidence names it; without any nobody is named."""
    found = lag(*lines)
    assert (verdict, ranks) == (found.verdict, found.ranks)


def test_groups_count_on_their_own() -> None:
    """What a rank has done in another group tells nothing of the one that stopped."""
    lines = (timeout(0), timeout(1), failed(0, 12, 14, "7"), failed(1, 12, 14, "7"), stands(2, 3, 3, "0(default_pg)"))
    assert "behind" != lag(*lines).verdict
    assert (2,) == lag(*lines, stands(2, 11, 11, "7")).ranks


def test_one_rank_of_the_default_group_only() -> None:
    """Dump signals of a group that has not come so far are of another group than the time-outs."""
    assert "unknown" == lag(timeout(0), timeout(1), stands(0, 3, 3), stands(1, 3, 3)).verdict


@pytest.mark.parametrize(
    ("ranks", "text"),
    [((3,), "rank 3"), ((5, 3), "ranks 3 and 5"), ((1, 2, 3), "ranks 1, 2 and 3"), (range(9), "ranks 0, 1, 2, 3 and 5 more")],
)
def test_ranks_in_words(ranks: tuple[int, ...], text: str) -> None:
    """Few ranks are all named, many are counted."""
    assert text == ranks_text(ranks)


def test_what_was_called() -> None:
    """Most ranks' operation and number, with the limit; no number where none is common."""
    events, _ = read("\n".join((timeout(0), timeout(1), timeout(2, seq=9))), PROGRAM, None)
    assert "ALLREDUCE number 12, limit 10 min" == call_text(called(events))
    events, _ = read("\n".join((timeout(0, seq=1), timeout(1, seq=2))), PROGRAM, None)
    assert "ALLREDUCE, limit 10 min" == call_text(called(events))


RANKS = st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True)


@given(RANKS, st.integers(0, 50))
def test_who_did_not_come_is_found(ranks: list[int], seq: int) -> None:
    """Whoever is the one that did not enqueue what the others wait for, it is named whatever the order of the lines."""
    late, *others = ranks
    lines = [line for rank in others for line in (timeout(rank, seq), stands(rank, seq + 2, seq - 1))]
    assert (late,) == lag(stands(late, seq - 1, seq - 1), *lines).ranks
    assert (late,) == lag(*reversed(lines), stands(late, seq - 1, seq - 1)).ranks
