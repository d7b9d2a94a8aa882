"""Which rank of a job is to be looked at when a collective times out: the ranks that report are seldom the ones at fault.

Sources: PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (watchdog, dump signals) and TraceUtils.h (desync report).
Every process group counts its collectives from 0; a rank that has not enqueued the number the others wait for is behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from xidwatch.core.event import Context, Event, UserspaceDetail
from xidwatch.core.pattern import lazy

Verdict = Literal["behind", "apart", "silent", "idle", "joined", "unknown"]
"""A rank has not joined; ranks have called different things; a rank says nothing; nothing was in flight; all known ranks had
joined; not to be told."""
_GLOBAL_RANK = lazy(r"\[rank(\d+)\]")
_AT_WORK = lazy(r"\bat work(?: sequence id)?: (\d{1,18})")
_MOST_NAMED = 4


class Call(NamedTuple):
    """What one rank was waiting for when it gave up; a plain tuple, because of a large job there are many."""

    rank: int
    group: str | None
    seq: int | None
    op: str | None
    elements: int | None
    limit_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a rank had come in a group: numbers of the last collective that it enqueued and completed, -1 for none."""

    rank: int
    group: str | None
    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The answer. `ranks` are those to look at; `text` is a clause without a full stop, "" when there is nothing to say."""

    verdict: Verdict
    ranks: tuple[int, ...] = ()
    text: str = ""

    @property
    def apart(self) -> frozenset[int]:
        """Ranks that are known to differ from those that waited; none where it is only known who is silent."""
        return frozenset(self.ranks if self.verdict in ("behind", "apart") else ())


def call_of(event: Event) -> Call | None:
    """A time-out as a call; None without a rank. Rank is the job's own number where the line gives it, else the group's."""
    detail = event.detail
    if event.kind != "nccl_timeout" or not isinstance(detail, UserspaceDetail):
        return None
    rank = _rank(event.record.text, detail.rank)
    if rank is None:
        return None
    return Call(rank, detail.group, detail.seq, detail.op, detail.elements, detail.timeout_ms)


def standing_of(context: Context) -> Standing | None:
    """A line of the watchdog or of a dump signal as a rank's standing."""
    facts = dict(context.facts)
    rank = _rank(context.record.text, int(facts["rank"])) if facts.get("rank") else None
    if context.kind != "nccl_state" or rank is None:
        return None
    group = facts.get("guid") or facts.get("group")
    return Standing(rank=rank, group=group, enqueued=int(facts["enqueued"]), completed=int(facts["completed"]))


def who_lags(calls: Collection[Call], notes: Sequence[Context]) -> Lag:
    """The rank that the others waited for, by the best evidence there is.

    Args:
        calls: The time-outs of one job.
        notes: Context lines of kinds nccl_state, nccl_lagging and nccl_world that belong to it.
    """
    if not calls:
        return Lag(verdict="unknown")
    named = _groups(notes)
    calls = _main_group([call._replace(group=call.group or named.get((call.rank, call.seq))) for call in calls])
    seq, _ = _stuck(calls)
    standings = _standings(notes, calls[0].group, seq)
    what = f"number {seq:,}" if seq is not None else "the collective"
    return (
        _said_by_the_job(notes)
        or _called_apart(calls, seq)
        or _nothing_in_flight(calls, standings)
        or _behind(calls, standings, seq, what)
        or _silent(calls, standings, notes)
        or _all_joined(standings, seq, what)
        or Lag(verdict="unknown")
    )


def _groups(notes: Sequence[Context]) -> dict[tuple[int, int | None], str | None]:
    """The group of a rank's time-out by its number, from the line behind it."""
    found: dict[tuple[int, int | None], str | None] = {}
    for note in notes:
        stopped = _AT_WORK.search(dict(note.facts).get("said", ""))
        if stopped is not None and (standing := standing_of(note)) is not None:
            found[standing.rank, int(stopped[1])] = standing.group
    return found


def _standings(notes: Sequence[Context], group: str | None, seq: int | None) -> dict[int, Standing]:
    """Where each rank stands in the group that stopped; every group counts on its own, so others tell nothing."""
    found = [standing for standing in map(standing_of, notes) if standing is not None]
    if group is None and len({standing.group for standing in found}) == 1:
        highest = max(standing.enqueued for standing in found)
        group = found[0].group if seq is None or highest >= seq or highest == -1 else "another"
    return {standing.rank: standing for standing in found if standing.group == group}


def call_text(calls: Collection[Call]) -> str:
    """`ALLREDUCE number 1,580, limit 10 min`: what most ranks waited for; "" when the lines do not say."""
    if not calls:
        return ""
    limits = Counter(call.limit_ms for call in calls if call.limit_ms)
    limit = limits.most_common(1)[0][0] / 1000 if limits else None
    named = _collective(*_stuck(_main_group(calls)))
    told = f"limit {limit / 60:.0f} min" if limit and limit >= 120 else f"limit {limit:.0f} s" if limit else ""
    return ", ".join(part for part in (named, told) if part)


def _collective(seq: int | None, op: str | None) -> str:
    """`ALLREDUCE number 1,580`, as far as it is known."""
    return " ".join(part for part in (op, f"number {seq:,}" if seq is not None else None) if part)


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 3, 5 and 7`, `ranks 0, 1, 2, 3 and 12 more`."""
    named = [str(rank) for rank in sorted(set(ranks))]
    if len(named) == 1:
        return f"rank {named[0]}"
    shown, left = named[:_MOST_NAMED], len(named) - _MOST_NAMED
    last = f"{left} more" if left > 0 else shown.pop()
    return f"ranks {', '.join(shown)} and {last}"


def _says(ranks: Sequence[int]) -> str:
    return "says" if len(ranks) == 1 else "say"


def _rank(text: str, printed: int | None) -> int | None:
    found = _GLOBAL_RANK.search(text)
    return int(found[1]) if found else printed


def _main_group(calls: Collection[Call]) -> list[Call]:
    """The calls of the group in which most ranks gave up; groups count on their own."""
    ranks: dict[str | None, set[int]] = {}
    for call in calls:
        ranks.setdefault(call.group, set()).add(call.rank)
    most = max(ranks, key=lambda group: len(ranks[group]))
    return [call for call in calls if call.group == most]


def _stuck(calls: Sequence[Call]) -> tuple[int | None, str | None]:
    """Number and operation that most ranks waited for."""
    (seq, often), *others = Counter(call.seq for call in calls).most_common(2)
    if others and often == 1:
        seq = None
    op = Counter(call.op for call in calls if seq in (None, call.seq)).most_common(1)[0][0]
    return seq, op


def _said_by_the_job(notes: Sequence[Context]) -> Lag | None:
    """PyTorch's own desync report, where it was switched on."""
    ranks = [
        int(rank) for note in notes if note.kind == "nccl_lagging"
        for facts in (dict(note.facts),) if not facts.get("how", "").startswith("joined")
        for rank in facts.get("ranks", "").replace(" ", "").split(",") if rank
    ]  # fmt: skip
    if not ranks:
        return None
    named = tuple(sorted(set(ranks)))
    return Lag(verdict="behind", ranks=named, text=f"PyTorch's own report names {ranks_text(named)} as lagging")


def _called_apart(calls: Sequence[Call], seq: int | None) -> Lag | None:
    """At one number the ranks called different operations, or with different sizes: the program's ranks have come apart."""
    at = [call for call in calls if call.seq == seq]
    for what, kinds in (
        ("called {odd} where the others called {usual}", {call.rank: call.op for call in at}),
        ("passed {odd} elements where the others passed {usual}", {call.rank: call.elements for call in at}),
    ):
        tally = Counter(kind for kind in kinds.values() if kind is not None)
        if len(tally) > 1 and seq is not None and not _sizes_may_differ(at):
            (usual, _), *_, (odd, _) = tally.most_common()
            ranks = tuple(sorted(rank for rank, kind in kinds.items() if kind == odd))
            return Lag(verdict="apart", ranks=ranks, text=f"{ranks_text(ranks)} {what.format(odd=odd, usual=usual)}")
    return None


def _sizes_may_differ(calls: Sequence[Call]) -> bool:
    """Sends, receives, and gathers and scatters of uneven parts have sizes of their own on each rank."""
    ops = {call.op or "" for call in calls}
    return len(ops) == 1 and not any(op in ("ALLREDUCE", "BROADCAST", "REDUCE") for op in ops)


def _nothing_in_flight(calls: Sequence[Call], standings: dict[int, Standing]) -> Lag | None:
    if len(standings) < 2 or any(standing.enqueued != -1 for standing in standings.values()):
        return None
    return Lag(verdict="idle", text="no collective was in flight on any rank: the processes stood still, they did not wait")


def _behind(calls: Sequence[Call], standings: dict[int, Standing], seq: int | None, what: str) -> Lag | None:
    """Ranks that had not enqueued what the others waited for, else the ranks that gave up at the lowest number."""
    if seq is not None:
        behind = [standing for standing in standings.values() if standing.enqueued < seq]
        if behind:
            lowest = min(standing.enqueued for standing in behind)
            ranks = tuple(sorted(standing.rank for standing in behind if standing.enqueued == lowest))
            return Lag(verdict="behind", ranks=ranks, text=f"{ranks_text(ranks)} had not come to {what} (last {lowest:,})")
    numbers: dict[int, int] = {}
    ops: dict[int, str | None] = {}
    for call in calls:
        if call.seq is not None and call.seq <= numbers.get(call.rank, call.seq):
            numbers[call.rank], ops[call.rank] = call.seq, call.op
    if len(set(numbers.values())) < 2:
        return None
    lowest = min(numbers.values())
    ranks = tuple(sorted(rank for rank, number in numbers.items() if number == lowest))
    if len(ranks) > len(numbers) / 2:
        return None
    sure = "" if calls[0].group is not None else ", if they share one group"
    _, op = _stuck(calls)
    (own, *others) = {ops[rank] for rank in ranks}
    at = _collective(lowest, own if own != op and not others else None)
    return Lag(
        verdict="behind",
        ranks=ranks,
        text=f"{ranks_text(ranks)} {'was' if len(ranks) == 1 else 'were'} furthest behind, at {at}{sure}",
    )


def _silent(calls: Sequence[Call], standings: dict[int, Standing], notes: Sequence[Context]) -> Lag | None:
    """Ranks of whom there is no line although most others speak."""
    speak = {call.rank for call in calls} | set(standings)
    sizes = [int(size) for note in notes if note.kind == "nccl_world" for size in [dict(note.facts).get("nranks")] if size]
    world = max([*sizes, max(speak) + 1])
    missing = tuple(rank for rank in range(world) if rank not in speak) if world <= 1 << 16 else ()
    if not missing or len(missing) > len(speak) / 2:
        return None
    return Lag(verdict="silent", ranks=missing, text=f"{ranks_text(missing)} of {world} {_says(missing)} nothing in these logs")


def _all_joined(standings: dict[int, Standing], seq: int | None, what: str) -> Lag | None:
    if seq is None or len(standings) < 2:
        return None
    return Lag(verdict="joined", text=f"every rank that reports had joined {what}: the transport, or a rank that is not here")
