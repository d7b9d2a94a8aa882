"""The postmortem's one pass: from any log to a `Postmortem`, through the same core as the daemon."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from typing import TYPE_CHECKING, Protocol

from xidwatch.asked import OutsideTime, filters, gpus_named, left_out, wanted, with_dates_missed
from xidwatch.core.boots import BootTurns
from xidwatch.core.classify import RuleTable
from xidwatch.core.correlate import Correlator, Fold
from xidwatch.core.event import PROGRAM_KINDS, Context, Event
from xidwatch.core.findings import judge_event
from xidwatch.core.hosts import HostBook
from xidwatch.core.incident import InputReport, Member, Postmortem
from xidwatch.core.judge import judge
from xidwatch.core.machine import UNKNOWN, Machine, merged
from xidwatch.core.parse import Further, Parser
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.core.runs import Run, Runs, run_key
from xidwatch.core.zones import hint_zones
from xidwatch.errors import XidwatchError
from xidwatch.homes import Homes
from xidwatch.sources.lastwords import Boot, PstoreInput, is_pstore
from xidwatch.sources.logfile import LogInputs

if TYPE_CHECKING:
    from xidwatch.core.floor import Floor


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """What the person asked for.

    Attributes:
        since, until: Only events of this time; events without a wall-clock time stay.
        boot: Read this boot out of the journal: `-1` the one before, or a boot id.
        gpu: As `choose_gpus` reads it.
        fault_class: Only incidents of this class.
        tz: Zone of times that name none, and of the times shown; None is this machine's.
        year: Year of dates that name none; None derives it.
        now_us: Microseconds since 1970 that count as now; None is now.
        progress: Called with (bytes read, bytes in all or None).
        waiting: Called with the name of an input that is silent.
        floor: What the nodes serve, to tell slow from hung; None when it is not known.
        machine: What is known of the machine beside its log.
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
    waiting: Callable[[str], None] | None = None
    floor: Floor | None = None
    machine: Machine = UNKNOWN


def explain(paths: Sequence[str], options: ExplainOptions, rules: RuleTable) -> Postmortem:
    """Read logs (none: this machine's ring buffer) and work out what happened.

    Raises:
        XidwatchError: nothing could be read, `options.gpu` is not in the log, or the options contradict each other.
    """
    if options.since is not None and options.until is not None and options.since > options.until:
        raise XidwatchError(f"--since {options.since} is later than --until {options.until}: no time is left")
    zone = options.tz or datetime.now(timezone.utc).astimezone().tzinfo or timezone.utc
    now_us = options.now_us if options.now_us is not None else time.time_ns() // 1000
    if options.boot is not None:
        if len(paths) > 1:
            raise XidwatchError("--boot reads one journal: give one folder with journal files, or none for this machine's")
        return _explained(Boot(options.boot, paths[0] if paths else None), options, rules)
    if len(paths) == 1 and is_pstore(paths[0]):
        return _explained(PstoreInput(paths[0]), options, rules)
    inputs = LogInputs(paths, tz=zone, year=options.year, now_us=now_us, progress=options.progress, waiting=options.waiting)
    return _explained(inputs, options, rules)


def unread_sentences(postmortem: Postmortem) -> list[str]:
    """Why inputs could not be read, one sentence each: `kern.log.gz: the gzip data is broken (...); nothing could be read`."""
    missing = [report for report in postmortem.inputs if report.unread]
    names = ["standard input" if report.path == "-" else report.path for report in missing]
    return [f"{name}: {'; '.join(report.notes) or 'not read'}" for name, report in zip(names, missing, strict=True)]


def anything_read(postmortem: Postmortem) -> bool:
    """Whether some input could be read, be it an empty one."""
    return any(report.records or not (report.unread or report.format == "not read") for report in postmortem.inputs)


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
    outside = OutsideTime(rules) if options.since is not None or options.until is not None else None
    reading = _Reading(options, outside)
    if isinstance(records, LogInputs):
        records.reader = reading
    correlator = Correlator(HostBook())
    folders = records.folders if isinstance(records, LogInputs) else {}
    at_home = Homes(folders)
    for item in _in_order(reading.items(records), at_home):
        if isinstance(item, Context):
            correlator.note(item)
        else:
            correlator.feed(judge_event(item.event, correlator, rules), item)
    if correlator.timeouts:
        from xidwatch.core.fleet import join_fleet

        join_fleet(correlator)
    hint_zones(correlator.cases)
    for (stream, host), record in reading.ends():
        correlator.tick(record, at_home.host(stream, host or None) or "")
    incidents = judge(
        correlator.cases, rules, zone, machine_of=lambda host: merged(correlator.book.machine(host), options.machine)
    )
    if options.floor is not None:
        from xidwatch.core.stall import with_floor

        incidents = tuple(with_floor(one, options.floor) for one in incidents)
    gpus: dict[str, set[PciAddress]] = {}
    for case in correlator.cases:
        for fold in case.folds.values():
            if fold.finding.event.kind in ("xid", "nvrm") and fold.finding.event.pci is not None:
                gpus.setdefault(case.host, set()).add(fold.finding.event.pci)
    inputs = reports()
    hosts = correlator.book.reports(gpus)
    found, told = list(incidents), list(hosts)
    if outside is not None:
        inputs = tuple(map(with_dates_missed, inputs))
        found += outside.incidents(zone)
        told += outside.hosts()
    gpu = options.gpu if reading.records else None  # nothing that was read is no log without that GPU
    shown = wanted(incidents, gpus_named(told, found), gpu=gpu, fault_class=options.fault_class)
    asked = filters(since=options.since, until=options.until, gpu=options.gpu, fault_class=options.fault_class)
    return Postmortem(
        inputs=inputs,
        hosts=hosts,
        incidents=shown,
        loose=tuple(_loose(fold) for fold in correlator.loose),
        context=tuple(correlator.context),
        malformed=tuple(record.text for record in reading.malformed),
        records=sum(one.records for one in inputs) or reading.records,
        gpu_lines=sum(member.lines for incident in incidents for member in incident.members),
        filtered=left_out(asked, found, shown, reading.undated) if asked else None,
    )


class _Reading:
    """Events and context of every stream, each event once and complete, in the order of their first lines."""

    def __init__(self, options: ExplainOptions, outside: OutsideTime | None) -> None:
        self.records = 0
        self.undated = 0
        self._newest: dict[int, Record] = {}
        self._hosts: dict[tuple[int, str], None] = {}
        self.malformed: list[Record] = []
        self._since = _microseconds(options.since)
        self._until = _microseconds(options.until)
        self._outside = outside
        self._parser = Parser()
        self._latest: tuple[Record, tuple[Event | Context, ...]] = (Record(text=""), ())

    def ends(self) -> Iterator[tuple[tuple[int, str], Record]]:
        """Where each stream ended, for every host that it tells of: until then nothing more was heard of it.

        Not each host's own last line: in a big log only the lines worth reading are read.
        """
        return ((key, self._newest[key[0]]) for key in self._hosts)

    def further(self) -> Further:
        """Which lines behind the latest record may matter."""
        return self._parser.further()

    def told(self) -> tuple[Record, Hashable] | None:
        """The latest record with what its event is counted by, where it is one whole event and nothing else is open."""
        record, items = self._latest
        event = items[0] if len(items) == 1 else None
        if not isinstance(event, Event) or self._since is not None or self._until is not None:
            return None
        programs = event.kind in PROGRAM_KINDS and self._parser.programs_alone()
        timed = record.wall_us is not None or record.since_boot_us is not None or programs
        alone = event.record is record and event.last_record is record and (programs or self._parser.done_with(event))
        if not timed or not alone:
            return None
        key = run_key(event)
        return None if key is None or event.lines != 1 else (record, key)

    def items(self, records: Iterable[Record]) -> Iterator[tuple[int, Event | Context]]:
        """(stream, item) pairs, settled: no later line of the stream adds to them."""
        for stream, group in itertools.groupby(records, key=lambda record: record.stream):
            parser = self._parser = Parser()
            waiting: dict[object, Event | Context] = {}
            boots = BootTurns()
            for record in group:
                self.records += 1 + record.repeats
                if (boot := boots.turn(record.host, record)) is not None:
                    waiting[object()] = boot
                if record.timed or stream not in self._newest:
                    self._newest[stream] = record
                self._hosts[stream, record.host or ""] = None
                self._latest = record, tuple(parser.feed(record))
                for item in self._latest[1]:
                    waiting[item.uid if isinstance(item, Event) else object()] = item
                if waiting:
                    yield from ((stream, item) for item in _settled(waiting, parser.still_open()) if self._in_time(item))
            yield from ((stream, item) for item in waiting.values() if self._in_time(item))
            self.malformed += parser.malformed[: 1000 - len(self.malformed)]

    def _in_time(self, item: Event | Context) -> bool:
        if self._outside is None:
            return True
        at = item.record.wall_us
        if at is None:
            self.undated += isinstance(item, Event)
            return True
        inside = (self._since is None or at >= self._since) and (self._until is None or at <= self._until)
        if not inside:
            self._outside.add(item)
        return inside


def _settled(waiting: dict[object, Event | Context], still_open: set[tuple[int, int, int]]) -> Iterator[Event | Context]:
    for key in list(waiting):
        if key in still_open:
            return
        yield waiting.pop(key)


_MOST_HELD = 10_000
"""Distinct events kept in memory to sort several streams by time."""
_AT_THE_END = 1 << 62


def _in_order(items: Iterator[tuple[int, Event | Context]], homes: Homes) -> Iterator[Run | Context]:
    """Every stream's events, folded to runs; the streams merged by time, a line without one staying behind its neighbour."""
    streams: list[tuple[int, list[tuple[int, Run | Context]]]] = []
    held = 0
    for stream, group in itertools.groupby(items, key=lambda pair: pair[0]):
        runs = Runs()
        streams.append((stream, []))
        for _, item in group:
            runs.add(item)
            if len(runs) + held > _MOST_HELD:
                # Too much to be sorted in memory: what is held goes on, and the rest follows as it comes.
                streams[-1][1].extend(_timed(runs.take()))
                yield from _merged(streams, homes)
                streams, held = [(stream, [])], 0
        streams[-1][1].extend(_timed(runs.take()))
        held = sum(len(found) for _, found in streams)
    yield from _merged(streams, homes)


def _merged(streams: list[tuple[int, list[tuple[int, Run | Context]]]], homes: Homes) -> Iterator[Run | Context]:
    for stream, found in streams:
        homes.see(stream, (item for _, item in found))
    at_home = ([(at, homes.move(stream, item)) for at, item in found] for stream, found in streams)
    yield from (item for _, item in heapq.merge(*at_home, key=lambda pair: pair[0]))


def _timed(items: Iterator[Run | Context]) -> Iterator[tuple[int, Run | Context]]:
    """Items with their place in time; a log of programs that has no time follows all else, for then the faults are known."""
    found = list(items)
    timeless = all(_record(item).wall_us is None and _of_a_program(item) for item in found)
    latest = _AT_THE_END if timeless else 0
    for item in found:
        latest = max(latest, _record(item).wall_us or 0)
        yield latest, item


def _record(item: Run | Context) -> Record:
    return item.event.record if isinstance(item, Run) else item.record


def _of_a_program(item: Run | Context) -> bool:
    return item.event.kind in PROGRAM_KINDS if isinstance(item, Run) else item.kind.startswith("nccl_")


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
