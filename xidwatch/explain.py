"""The postmortem's one pass: from any log to a `Postmortem`, through the same core as the daemon."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from typing import Protocol

from xidwatch.core.boots import BootTurns
from xidwatch.core.classify import RuleTable
from xidwatch.core.correlate import Correlator, Fold
from xidwatch.core.event import Context, Event
from xidwatch.core.findings import judge_event
from xidwatch.core.hosts import HostBook
from xidwatch.core.incident import Incident, InputReport, Member, Postmortem
from xidwatch.core.judge import judge
from xidwatch.core.parse import Further, Parser
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.record import Record
from xidwatch.core.runs import Run, Runs
from xidwatch.errors import XidwatchError
from xidwatch.sources.lastwords import Boot, PstoreInput, is_pstore
from xidwatch.sources.logfile import LogInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """What the person asked for.

    Attributes:
        since, until: Only events of this time; events without a wall-clock time stay.
        boot: Read this boot out of the journal: `-1` the one before, or a boot id.
        gpu: PCI address, its end (`4e:00`) or UUID.
        fault_class: Only incidents of this class.
        tz: Zone of times that name none, and of the times shown; None is this machine's.
        year: Year of dates that name none; None derives it.
        now_us: Microseconds since 1970 that count as now; None is now.
        progress: Called with (bytes read, bytes in all or None).
    """

    since: datetime | None = None
    until: datetime | None = None
    boot: str | None = None
    gpu: str | None = None
    fault_class: str | None = None
    tz: tzinfo | None = None
    year: int | None = None
    now_us: int | None = None
    progress: Callable[[int, int | None], None] | None = None


def explain(paths: Sequence[str], options: ExplainOptions, rules: RuleTable) -> Postmortem:
    """Read logs (none: this machine's ring buffer) and work out what happened.

    Raises:
        XidwatchError: nothing could be read, or `options.gpu` is not in the log.
    """
    zone = options.tz or datetime.now(timezone.utc).astimezone().tzinfo or timezone.utc
    now_us = options.now_us if options.now_us is not None else time.time_ns() // 1000
    if options.boot is not None:
        return _explained(Boot(options.boot, paths[0] if paths else None), options, rules)
    if len(paths) == 1 and is_pstore(paths[0]):
        return _explained(PstoreInput(paths[0]), options, rules)
    inputs = LogInputs(paths, tz=zone, year=options.year, now_us=now_us, progress=options.progress)
    return _explained(inputs, options, rules)


class Inputs(Protocol):
    """Records, and once they are read a report on each input."""

    @property
    def reports(self) -> Sequence[InputReport]:
        """Complete when the records have been read."""

    def __iter__(self) -> Iterator[Record]:
        """In the order of each stream."""


def _explained(inputs: Inputs, options: ExplainOptions, rules: RuleTable) -> Postmortem:
    return explain_records(inputs, options, rules, reports=lambda: tuple(inputs.reports))


def explain_records(
    records: Iterable[Record], options: ExplainOptions, rules: RuleTable, reports: Callable[[], tuple[InputReport, ...]] = tuple
) -> Postmortem:
    """The same for records that are at hand. `reports` is asked once everything is read."""
    zone = options.tz or datetime.now(timezone.utc).astimezone().tzinfo or timezone.utc
    reading = _Reading(options)
    if isinstance(records, LogInputs):
        records.reader = reading
    correlator = Correlator(HostBook())
    for item in _in_order(reading.items(records)):
        if isinstance(item, Context):
            correlator.note(item)
        else:
            correlator.feed(judge_event(item.event, correlator, rules), item)
    for record in reading.newest.values():
        correlator.tick(record, correlator.host_of(record))
    incidents = judge(correlator.cases, rules, zone)
    gpus: dict[str, set[PciAddress]] = {}
    for case in correlator.cases:
        for fold in case.folds.values():
            if fold.finding.event.kind in ("xid", "nvrm") and fold.finding.event.pci is not None:
                gpus.setdefault(case.host, set()).add(fold.finding.event.pci)
    inputs = reports()
    return Postmortem(
        inputs=inputs,
        hosts=correlator.book.reports(gpus),
        incidents=_wanted(incidents, options, correlator),
        loose=tuple(_loose(fold) for fold in correlator.loose),
        context=tuple(correlator.context),
        malformed=tuple(record.text for record in reading.malformed),
        records=sum(one.records for one in inputs) or reading.records,
        gpu_lines=sum(member.lines for incident in incidents for member in incident.members),
    )


class _Reading:
    """Events and context of every stream, each event once and complete, in the order of their first lines."""

    def __init__(self, options: ExplainOptions) -> None:
        self.records = 0
        self.newest: dict[str | None, Record] = {}
        self.malformed: list[Record] = []
        self._since = _microseconds(options.since)
        self._until = _microseconds(options.until)
        self._parser = Parser()

    def further(self) -> Further:
        """Which lines behind the latest record may matter."""
        return self._parser.further()

    def items(self, records: Iterable[Record]) -> Iterator[tuple[int, Event | Context]]:
        """(stream, item) pairs, settled: no later line of the stream adds to them."""
        for stream, group in itertools.groupby(records, key=lambda record: record.stream):
            parser = self._parser = Parser()
            waiting: dict[object, Event | Context] = {}
            boots = BootTurns()
            for record in group:
                self.records += 1
                if (boot := boots.turn(record.host, record)) is not None:
                    waiting[object()] = boot
                if record.timed or record.host not in self.newest:
                    self.newest[record.host] = record
                for item in parser.feed(record):
                    waiting[item.uid if isinstance(item, Event) else object()] = item
                if waiting:
                    yield from ((stream, item) for item in _settled(waiting, parser.still_open()) if self._in_time(item))
            yield from ((stream, item) for item in waiting.values() if self._in_time(item))
            self.malformed += parser.malformed[: 1000 - len(self.malformed)]

    def _in_time(self, item: Event | Context) -> bool:
        at = item.record.wall_us
        if at is None:
            return True
        return (self._since is None or at >= self._since) and (self._until is None or at <= self._until)


def _settled(waiting: dict[object, Event | Context], still_open: set[tuple[int, int, int]]) -> Iterator[Event | Context]:
    for key in list(waiting):
        if key in still_open:
            return
        yield waiting.pop(key)


_MOST_HELD = 10_000
"""Distinct events kept in memory to sort several streams by time."""


def _in_order(items: Iterator[tuple[int, Event | Context]]) -> Iterator[Run | Context]:
    """Every stream's events, folded to runs; the streams merged by time, a line without one staying behind its neighbour."""
    streams: list[list[tuple[int, Run | Context]]] = []
    held = 0
    for _, group in itertools.groupby(items, key=lambda pair: pair[0]):
        runs = Runs()
        streams.append([])
        for _, item in group:
            runs.add(item)
            if len(runs) + held > _MOST_HELD:
                # Too much to be sorted in memory: what is held goes on, and the rest follows as it comes.
                streams[-1] += _timed(runs.take())
                yield from (item for _, item in heapq.merge(*streams, key=lambda pair: pair[0]))
                streams, held = [[]], 0
        streams[-1] += _timed(runs.take())
        held = sum(map(len, streams))
    yield from (item for _, item in heapq.merge(*streams, key=lambda pair: pair[0]))


def _timed(items: Iterator[Run | Context]) -> Iterator[tuple[int, Run | Context]]:
    latest = 0
    for item in items:
        record = item.event.record if isinstance(item, Run) else item.record
        latest = max(latest, record.wall_us or 0)
        yield latest, item


def _wanted(incidents: tuple[Incident, ...], options: ExplainOptions, correlator: Correlator) -> tuple[Incident, ...]:
    if options.fault_class is not None:
        incidents = tuple(incident for incident in incidents if incident.fault_class == options.fault_class)
    if options.gpu is None:
        return incidents
    known = {gpu for incident in incidents for gpu in incident.gpus}
    asked = _asked_gpus(options.gpu, known, correlator)
    if not asked:
        listed = ", ".join(sorted(known)) or "none"
        raise XidwatchError(f"no GPU {options.gpu!r} in this log; it names: {listed}")
    return tuple(incident for incident in incidents if asked & set(incident.gpus))


def _asked_gpus(asked: str, known: set[str], correlator: Correlator) -> set[str]:
    if asked.lower().startswith("gpu-"):
        slots = (correlator.book.slot(case.host, asked) for case in correlator.cases)
        return {str(slot) for slot in slots if slot is not None}
    exact = parse_pci(asked)
    if exact is not None and str(exact) in known:
        return {str(exact)}
    return {gpu for gpu in known if gpu.removesuffix(".0").endswith(asked.lower().removesuffix(".0"))}


def _loose(fold: Fold) -> Member:
    return Member(
        finding=fold.finding,
        count=fold.count,
        lines=fold.lines,
        last=fold.last,
        role="context",
        count_is_minimum=fold.count_is_minimum,
    )


def _microseconds(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1e6)
