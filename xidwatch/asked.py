"""The part of a log that a person asked for, and how much the report leaves out for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, tzinfo

from xidwatch.core.classify import RuleTable
from xidwatch.core.correlate import Correlator
from xidwatch.core.event import Context, Event
from xidwatch.core.findings import judge_event
from xidwatch.core.hosts import HostBook
from xidwatch.core.incident import Filtered, HostReport, Incident, InputReport
from xidwatch.core.judge import judge
from xidwatch.core.pci import parse_pci
from xidwatch.core.rule import SEVERITIES
from xidwatch.core.runs import Run, Runs
from xidwatch.gpuchoice import KnownGpu, choose_gpus

_MOST_HELD = 10_000


class OutsideTime:
    """What lies outside of `--since` and `--until`. It is judged too, or nobody could tell whether it mattered."""

    def __init__(self, rules: RuleTable) -> None:
        self._rules = rules
        self._correlator = Correlator(HostBook())
        self._runs = Runs()

    def add(self, item: Event | Context) -> None:
        """Take the next item, in the order of the log."""
        self._runs.add(item)
        if len(self._runs) > _MOST_HELD:
            self._settle()

    def incidents(self, zone: tzinfo) -> tuple[Incident, ...]:
        """All that happened outside."""
        self._settle()
        return judge(self._correlator.cases, self._rules, zone)

    def hosts(self) -> tuple[HostReport, ...]:
        """What the lines outside tell of the hosts."""
        return self._correlator.book.reports({})

    def _settle(self) -> None:
        for item in self._runs.take():
            if isinstance(item, Run):
                self._correlator.feed(judge_event(item.event, self._correlator, self._rules), item)
            else:
                self._correlator.note(item)


def wanted(
    incidents: Sequence[Incident], known: Sequence[KnownGpu], *, gpu: str | None, fault_class: str | None
) -> tuple[Incident, ...]:
    """The incidents of this GPU and class; None asks for all.

    Raises:
        XidwatchError: no known GPU is meant.
    """
    kept = [incident for incident in incidents if fault_class in (None, incident.fault_class)]
    if gpu is not None:
        chosen = choose_gpus(gpu, known)
        kept = [incident for incident in kept if any(_hit(incident, one) for one in chosen)]
    return tuple(kept)


def gpus_named(hosts: Sequence[HostReport], incidents: Sequence[Incident]) -> list[KnownGpu]:
    """Every GPU that a log names, with its UUID where it tells that."""
    named: dict[tuple[str, str], str | None] = {}
    for incident in incidents:
        named |= {(host, gpu): None for gpu in incident.gpus for host in incident.hosts or ("",)}
    for report in hosts:
        for gpu, (uuid, _) in report.gpus.items():
            place = (report.host or "", gpu)
            named[place] = uuid or named.get(place)
    found = ((host, parse_pci(gpu), uuid) for (host, gpu), uuid in named.items())
    return [KnownGpu(host, pci, uuid) for host, pci, uuid in found if pci is not None]


def left_out(options: Sequence[str], found: Sequence[Incident], kept: Sequence[Incident], undated: int) -> Filtered:
    """What the report has to say about its filter. `found` is everything, inside and outside of the time."""
    shown = set(map(id, kept))
    hidden = [incident.severity for incident in found if id(incident) not in shown]
    worst = max(hidden, key=SEVERITIES.index, default=None)
    return Filtered(options=tuple(options), incidents=len(hidden), worst=worst, undated=undated)


def filters(*, since: datetime | None, until: datetime | None, gpu: str | None, fault_class: str | None) -> list[str]:
    """The filters in force, as on the command line."""
    seconds = [None if at is None else at.replace(microsecond=0) for at in (since, until)]
    given = (("--since", seconds[0]), ("--until", seconds[1]), ("--gpu", gpu), ("--class", fault_class))
    return [f"{option} {value}" for option, value in given if value is not None]


def with_dates_missed(report: InputReport) -> InputReport:
    """The report of an input that has no date which `--since` or `--until` could be held against."""
    dated = any(record is not None and record.wall_us is not None for record in (report.first, report.last))
    if dated or not report.records:
        return report
    return replace(report, notes=(*report.notes, "its lines have no date: --since and --until leave nothing of it out"))


def _hit(incident: Incident, gpu: KnownGpu) -> bool:
    return str(gpu.pci) in incident.gpus and (not gpu.host or not incident.hosts or gpu.host in incident.hosts)
