"""An incident's members and context as rows in order of time, repeats folded, the root marked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import tzinfo

from xidwatch.core.event import Event
from xidwatch.core.incident import Incident, Member, Role
from xidwatch.core.job import job_words
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record, gap_s
from xidwatch.core.rule import Rule
from xidwatch.render.layout import visible
from xidwatch.render.wording import label, names, number, said, seconds
from xidwatch.times import clock, moment, zone_name

_MOST_NODES = 6
"""On more nodes than these, what is alike on all of them is one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a timeline.

    Attributes:
        role: Root, consequence or context.
        record: Where its time comes from.
        name: `Xid 79`, or the kind of a context line.
        text: What it means and what it says, with its repeats.
        members: What was folded into it, in order; none for a context line.
        pci: Device that a context line names.
    """

    role: Role
    record: Record
    name: str
    text: str
    members: tuple[Member, ...] = ()
    pci: PciAddress | None = None


def rows(incident: Incident) -> list[Row]:
    """Context, root and consequences in order of time."""
    groups: dict[object, list[Member]] = {}
    for index, member in enumerate(incident.members):
        event = member.finding.event
        host = event.record.host if 1 < len(incident.hosts) <= _MOST_NODES or event.pci is not None else None
        key: object = (
            event.kind,
            event.code,
            event.what,
            member.finding.rule.id,
            _role(member, incident),
            event.pci,
            host,
            _differs(event, incident),
        )
        groups.setdefault("root" if index == incident.root and incident.cause is None else key, []).append(member)
    several, nodes = len(incident.gpus) > 1, len(incident.hosts) > 1
    found = [_row(group, _role(group[0], incident), show_gpu=several) for group in groups.values()]
    found += [
        Row(
            role="root" if c is incident.cause else "context",
            record=c.record,
            name=c.kind.replace("_", " "),
            text=visible(c.record.text),
            pci=c.pci,
        )
        for c in incident.context
    ]
    if nodes:
        found = [replace(row, text=f"{where}: {row.text}") if (where := _where(row)) else row for row in found]
    return sorted(found, key=_order)


def _differs(event: Event, incident: Incident) -> bool:
    """Whether it is the time-out of a rank that is known to differ from those that waited for it."""
    if incident.lag is None or not incident.lag.apart or event.kind != "nccl_timeout":
        return False
    from xidwatch.core.collective import call_of

    call = call_of(event)
    return call is not None and call.rank in incident.lag.apart


def _where(row: Row) -> str:
    """The node of a row, or how many nodes it tells of; "" when its lines name none."""
    hosts = {member.finding.event.record.host for member in row.members} | {row.record.host}
    if len(hosts) > 1 and row.role != "root":
        return f"{len(hosts)} nodes"
    return visible(row.record.host) if row.record.host else ""


def most_telling(shown: list[Row], most: int) -> list[Row]:
    """The rows worth showing: all when few, else the root, the first ones and the last one."""
    if len(shown) <= most:
        return shown
    chosen = shown[: most - 2] + shown[-1:]
    root = next(row for row in shown if row.role == "root")
    return chosen if root in chosen else [*chosen[:-1], root, chosen[-1]]


def _order(row: Row) -> tuple[int, int, int]:
    record = row.record
    at = record.wall_us if record.wall_us is not None else record.since_boot_us
    return (at or 0, record.stream, record.seq)


def _role(member: Member, incident: Incident) -> Role:
    """Where a context line began it, the event that the contract calls the root is the first that followed."""
    return "consequence" if incident.cause is not None and member.role == "root" else member.role


def _row(group: list[Member], role: Role, *, show_gpu: bool) -> Row:
    first = group[0]
    rule: Rule = first.finding.rule
    event = first.finding.event
    parts = [visible(rule.title)]
    if show_gpu and event.pci is not None:
        parts.append(str(event.pci))
    phrases = said(first.finding)
    alike = all(said(member.finding) == phrases for member in group[:20])
    parts += phrases if alike else ([*phrases[:2], "and others"] if phrases else [])
    if who := _owners(group):
        parts.append(who)
    if often := _often(group):
        parts.append(often)
    return Row(role=role, record=event.record, name=label(event), text=", ".join(parts), members=tuple(group))


def _owners(group: Iterable[Member]) -> str:
    """`vllm_worker (7711, 7712), python3 (4711)`."""
    events = [member.finding.event for member in group]
    pids: dict[str, list[str]] = {}
    for event in events:
        if event.process is not None or event.pid is not None:
            known = pids.setdefault(event.process or "pid", [])
            known += [str(event.pid)] if event.pid is not None else []
    who = names((_who(name, numbers) for name, numbers in pids.items()), 2)
    jobs = names((words for event in events if (words := job_words(event.job))), 2)
    who = ", ".join(part for part in (who or "its job", jobs) if part) if jobs else who
    return f"asked by {who}" if who and events[0].pid_role == "victim" else who


def _who(name: str, pids: list[str]) -> str:
    if name == "pid":
        return f"pid {names(pids)}"
    return f"{name} ({names(pids)})" if pids else name


def _often(group: list[Member]) -> str:
    count = sum(member.count for member in group)
    least = any(member.count_is_minimum for member in group)
    if count == 1 and not least:
        return ""
    span = _span(group)
    within = f" in {seconds(span)}" if span is not None else ""
    often = "once" if count == 1 else f"{number(count)} times"
    return f"{'at least ' if least else ''}{often}{within}"


def _span(group: list[Member]) -> float | None:
    """Seconds from the first to the last occurrence; None when they share no clock."""
    last = max((member.last for member in group), key=lambda event: (event.record.stream, event.record.seq))
    span = gap_s(group[0].finding.event.record, last.record)
    return span if span is not None and span >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How times are shown in one report: in the log's zone, with the date only where days differ.

    Attributes:
        heading: `2026-11-30, UTC+01:00`; empty when the log has no times.
        zone: For logs that name none.
        dated: The rows carry the date.
    """

    heading: str
    zone: tzinfo | None
    dated: bool

    def of(self, record: Record) -> str:
        """`02:13:05.123`, `[1234.567]` since boot, or `line 17`."""
        at = moment(record, self.zone)
        if at is not None:
            return f"{at:%Y-%m-%d} {clock(at)}" if self.dated else clock(at)
        if record.since_boot_us is not None:
            return f"[{record.since_boot_us / 1e6:.3f}]"
        return f"line {record.line or record.seq}"


def times(records: Iterable[Record], zone: tzinfo | None) -> Times:
    """Choose how to show the times of these records."""
    known = [at for record in records if (at := moment(record, zone)) is not None]
    days = sorted({f"{at:%Y-%m-%d}" for at in known})
    zones = sorted({zone_name(at) for at in known})
    heading = ""
    if known:
        heading = (days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}") + f", {' and '.join(zones)}"
    return Times(heading=heading, zone=zone, dated=len(days) > 1)


def moments(incident: Incident) -> list[Record]:
    """Every record that an incident's timeline shows."""
    return [row.record for row in rows(incident)]
