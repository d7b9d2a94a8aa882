"""The live path of a record, without I/O: parse, wait until an event is complete, correlate, judge.

`explain` drives the same parser, rules, correlator and judge over a file; here time goes on by itself and
two sources may bring the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from xidwatch.core.boots import BootTurns
from xidwatch.core.classify import RuleTable
from xidwatch.core.correlate import Case, Correlator, alive
from xidwatch.core.event import Context, Event
from xidwatch.core.findings import judge_event
from xidwatch.core.floor import Floor
from xidwatch.core.hosts import HostBook
from xidwatch.core.identity import Identities, LatestNames
from xidwatch.core.incident import Finding, Incident
from xidwatch.core.job import Job
from xidwatch.core.judge import incident_id, judge
from xidwatch.core.machine import UNKNOWN, Machine, merged
from xidwatch.core.parse import NOTHING, Further, Parser
from xidwatch.core.record import Record
from xidwatch.core.runs import Run
from xidwatch.core.stall import with_floor

SETTLE_US = 100_000
"""An event that nothing has extended for this long is complete: the kernel prints a block in milliseconds."""
OWNER_US = 15_000
"""How long a complete event waits to be told whose process it names: reading that takes a millisecond or two."""
LONGEST_WAIT_US = 2_000_000
OLD_US = 3_600_000_000
"""Back-fill older than this opens nothing: nobody is woken for what ended an hour ago."""
_MOST_SEEN = 25_000
_MOST_CASES = 500
_FORGET_AT_ONCE = 50
_MOST_ACTIVE = 300
_QUIET_EVERY_US = 1_000_000
_TICK_US = 5_000_000


@dataclass(slots=True)
class _Waiting:
    item: Event | Context
    identity: str
    since_us: int
    touched_us: int


@dataclass(slots=True)
class _Source:
    parser: Parser = field(default_factory=Parser)
    identities: Identities = field(default_factory=Identities)
    waiting: dict[object, _Waiting] = field(default_factory=dict)
    twice: set[tuple[int, int, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Settled:
    """A complete event or context line, to be kept. `finding` is None for context; `source` brought it."""

    identity: str
    source: str
    item: Event | Context
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class Change:
    """An incident that is new or has changed. `before` is what it was, None when it is new."""

    incident: Incident
    before: Incident | None


class Engine:
    """What the daemon knows.

    Attributes:
        rules: The table in force; replaced as a whole on reload.
        floor: What the node serves, to tell slow from hung; None while that is not known.
        machine: What this node is, beside what its log tells.
        whose: Tells whose job an event's pid is, as far as that is known when the event is complete.
        awaits: Tells whether the answer to that is on its way; a complete event waits `OWNER_US` for it, no longer.
        incidents: By id, as last judged; ended ones are forgotten in time (history keeps them).
    """

    def __init__(self, rules: RuleTable) -> None:
        self.rules = rules
        self.floor: Floor | None = None
        self.machine: Machine = UNKNOWN
        self.correlator = Correlator(HostBook(), endless=True)
        self.incidents: dict[str, Incident] = {}
        self.whose: Callable[[Event], Job | None] = lambda _event: None
        self.awaits: Callable[[Event], bool] = lambda _event: False
        self._sources: dict[str, _Source] = {}
        self._seen = LatestNames(_MOST_SEEN)
        self._boots = BootTurns()
        self._touched: list[Case] = []
        self._replayed_us = self._quiet_us = 0

    def replay(self, identity: str, item: Event | Context, then_us: int) -> None:
        """Take an item from history as it was taken then: what happened in between by silence happens again.

        Call `changes` once after the last, so that nothing of it is announced.
        """
        if then_us - self._replayed_us > _TICK_US:
            self._replayed_us = then_us
            self._end_quiet(then_us)
        self._seen.add(identity)
        self._boot(item.record, then_us)
        self._place(item, then_us)

    def feed(self, source: str, record: Record, now_us: int) -> list[Event]:
        """Events born on this record, each once whichever source is first; they may still grow."""
        here = self._sources.setdefault(source, _Source())
        identity = here.identities.of(record)
        self._boot(record, now_us)
        born = []
        for number, item in enumerate(here.parser.feed(record)):
            key: object = item.uid if isinstance(item, Event) else (identity, number)
            if key in here.waiting:
                here.waiting[key].item, here.waiting[key].touched_us = item, now_us
            elif isinstance(item, Event) and item.uid in here.twice:
                continue
            elif not self._seen.add(mark := f"{identity}.{number}"):
                if isinstance(item, Event):
                    here.twice.add(item.uid)
            else:
                here.waiting[key] = _Waiting(item, mark, now_us, now_us)
                if isinstance(item, Event):
                    born.append(item)
        if len(here.twice) > 1000:
            here.twice.clear()
        return born

    def further(self, source: str) -> Further:
        """Which of a source's next records are wanted, beside those with one of the parsers' words."""
        return self._sources[source].parser.further() if source in self._sources else NOTHING

    def settle(self, now_us: int, *, everything: bool = False) -> list[Settled]:
        """Events that are complete by now, correlated, in the order of their first lines."""
        done = []
        for name, source in self._sources.items():
            if not source.waiting:
                continue
            still_open = source.parser.still_open()
            for key, waiting in list(source.waiting.items()):
                quiet = now_us - waiting.touched_us >= SETTLE_US or now_us - waiting.since_us >= LONGEST_WAIT_US
                if key in still_open and not quiet and not everything:
                    break
                if now_us - waiting.since_us < OWNER_US and not everything and self._awaited(waiting):
                    break
                del source.waiting[key]
                if isinstance(waiting.item, Event) and key in still_open:
                    source.parser.close(waiting.item.uid)
                item = self._owned(waiting.item)
                done.append(Settled(waiting.identity, name, item, self._place(item, waiting.since_us)))
        return done

    def unfinished(self) -> Iterator[tuple[str, Event]]:
        """Events that are born and not complete yet, with their identities."""
        for source in self._sources.values():
            for waiting in source.waiting.values():
                if isinstance(waiting.item, Event):
                    yield waiting.identity, waiting.item

    def observe(self, identity: str, source: str, item: Event | Context, now_us: int) -> Settled | None:
        """Take something complete that no log told; None when it is known already."""
        if not self._seen.add(identity):
            return None
        return Settled(identity, source, item, self._place(item, now_us))

    def _owned(self, item: Event | Context) -> Event | Context:
        if not isinstance(item, Event) or item.job is not None:
            return item
        return replace(item, job=job) if (job := self.whose(item)) is not None else item

    def deadline_us(self) -> int | None:
        """When `settle` has something to do next; None while nothing waits."""
        times = [w.touched_us + SETTLE_US for source in self._sources.values() for w in source.waiting.values()]
        firsts = [next(iter(source.waiting.values())) for source in self._sources.values() if source.waiting]
        times += [w.since_us + OWNER_US for w in firsts if self._awaited(w)]
        return min(times, default=None)

    def _awaited(self, waiting: _Waiting) -> bool:
        return isinstance(waiting.item, Event) and waiting.item.pid is not None and self.awaits(waiting.item)

    def waits(self, source: str) -> bool:
        """Whether events of a source are not complete yet, so that its position must not be passed."""
        return bool(self._sources[source].waiting) if source in self._sources else False

    def changes(self, now_us: int) -> list[Change]:
        """Incidents that are new or different since the last call."""
        if abs(now_us - self._quiet_us) >= _QUIET_EVERY_US:
            self._quiet_us = now_us
            self._end_quiet(now_us)
        if not self._touched and not self.correlator.has_news():
            return []
        if any("nccl_timeout" in case.kinds for case in self._touched):
            from xidwatch.core.fleet import join_fleet

            join_fleet(self.correlator)
        touched = {id(case): case for case in (alive(case) for case in self._touched)}
        touched |= {id(case): case for case in self.correlator.take_ended()}
        self._touched = []
        known = {id(case) for case in self.correlator.cases}
        cases = [case for case in touched.values() if id(case) in known]
        found = []
        for judged in self._judged(cases):
            incident = with_floor(judged, self.floor)
            before = self.incidents.get(incident.id)
            self.incidents[incident.id] = incident
            found.append(Change(incident, before))
        found += self._swallowed()
        self._forget()
        return found

    def _judged(self, cases: list[Case]) -> tuple[Incident, ...]:
        if not cases:
            return ()
        book, here = self.correlator.book, self.machine
        return judge(self.correlator.cases, self.rules, only=cases, machine_of=lambda host: merged(book.machine(host), here))

    def _swallowed(self) -> list[Change]:
        """Incidents that turned out to be part of another one: they end, so that nothing keeps paging for them."""
        if not self.correlator.take_merged():
            return []
        kept = {incident_id(case) for case in self.correlator.cases}
        swallowed = [one for one in self.incidents.values() if one.state != "resolved" and one.id not in kept]
        for one in swallowed:
            del self.incidents[one.id]
        return [Change(replace(one, state="resolved", end_reason="merged"), one) for one in swallowed]

    def note(self, context: Context) -> None:
        """Put something that was not read in a log, such as what a GPU did before its fault, beside what it belongs to."""
        self._touched += self.correlator.note(context)

    def close(self, id_: str) -> bool:
        """End an incident by the operator's word; False when there is none of that id."""
        for case in self.correlator.cases:
            if incident_id(case) == id_:
                self.correlator.end(case, "operator")
                return True
        return False

    def rejudge(self, rules: RuleTable) -> None:
        """Put another rule table in force; open incidents are judged anew at the next `changes`."""
        self.rules = rules
        self._touched += [case for case in self.correlator.cases if case.state == "active"]

    def malformed_total(self) -> int:
        """Lines that were ours and unreadable."""
        return sum(source.parser.malformed_total for source in self._sources.values())

    def _place(self, item: Event | Context, now_us: int) -> Finding | None:
        if isinstance(item, Context):
            self._touched += self.correlator.note(item)
            return None
        finding = judge_event(item, self.correlator, self.rules)
        case = self.correlator.feed(finding, Run(item, item, 1, item.lines, item.count_is_minimum))
        if case is None:
            return finding
        at = item.record.wall_us
        if case.first is item and at is not None and now_us - at > OLD_US and not case.has("persistent"):
            self.correlator.end(case, "unconfirmed_old")
        self._touched.append(case)
        return finding

    def _boot(self, record: Record, now_us: int) -> None:
        if (boot := self._boots.turn(record.host, record)) is not None:
            self._place(boot, now_us)

    def _end_quiet(self, now_us: int) -> None:
        for host in {case.host for case in self.correlator.cases if case.state == "active"}:
            self.correlator.tick(Record(text="", wall_us=now_us, host=host or None), host)

    def _forget(self) -> None:
        cases = self.correlator.cases
        too_many = len(cases) - _MOST_CASES
        if too_many < _FORGET_AT_ONCE:
            return
        ended = [case for case in cases if case.state == "resolved"]
        self.correlator.forget(ended[:too_many])
        for case in ended[:too_many]:
            self.incidents.pop(incident_id(case), None)
        # Forgotten next time: their end is to be told first.
        self._end_surplus([case for case in cases if case.state == "active"])

    def _end_surplus(self, cases: list[Case]) -> None:
        """A node does not have hundreds of faults at once: endless text does. What asks for least and is oldest goes first."""
        if len(cases) <= _MOST_ACTIVE:
            return
        surplus = len(cases) - _MOST_ACTIVE + _MOST_ACTIVE // 10
        for case in sorted(cases, key=lambda case: (_is_whole(case), case.needs(), case.order))[:surplus]:
            self.correlator.end(case, "quiet", case.last)


def active(incidents: Sequence[Incident]) -> list[Incident]:
    """Those that are not over."""
    return [incident for incident in incidents if incident.state != "resolved"]


def _is_whole(case: Case) -> bool:
    """Whether a line of its own, not a rumour inside another text, tells of it."""
    return any(not fold.finding.event.record.glued for fold in case.folds.values())
