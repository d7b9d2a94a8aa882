"""A postmortem as JSON: the contract `xidwatch.explain/1` of docs/ARCHITECTURE.md."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import fields
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from xidwatch.core.event import (
    AerDetail,
    Context,
    Detail,
    Event,
    HungTaskDetail,
    LockupDetail,
    MceDetail,
    OomDetail,
    SxidDetail,
    UserspaceDetail,
    XidDetail,
)
from xidwatch.core.incident import Demand, Filtered, HostReport, Incident, InputReport, Member, Postmortem
from xidwatch.core.job import Job, parse_path
from xidwatch.core.ladder import rung_to_verify
from xidwatch.core.machine import Machine
from xidwatch.core.pattern import lazy
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.render.steps import action_for, checks_for, command_lines, commands_for, key_command, known_of, say, verdict
from xidwatch.times import rfc3339

if TYPE_CHECKING:
    from xidwatch.core.classify import RuleTable

SCHEMA = "xidwatch.explain/1"
_FAMILY_FIELDS: dict[type[Detail], tuple[str, ...]] = {
    XidDetail: (
        "severity_word",
        "link",
        "subcode",
        "link_down_reason",
        "caused_by",
        "recovery_action",
        "reset_flags",
        "registers",
    ),
    SxidDetail: ("severity_word", "link", "registers"),
    HungTaskDetail: ("gpu_related", "io_wait", "killable"),
    LockupDetail: ("cpu", "gpu_related"),
    OomDetail: ("memcg",),
    AerDetail: ("severity_word",),
    MceDetail: ("cpu", "bank", "severity_word"),
    UserspaceDetail: ("tried", "total", "free", "allocated", "reserved_unallocated", "op", "seq", "rank", "timeout_ms"),
}
"""Fields that an event of the family always has, null where the log does not say; its others appear when known."""
_HEX = ("address", "physical_address", "status")
_SURROGATE = lazy("[\ud800-\udfff]")
_MOST_EVIDENCE = 40


def render_json(postmortem: Postmortem, rules: RuleTable, *, zone: tzinfo | None = None) -> str:
    """One object, one event or incident a line.

    Args:
        zone: For times of a log that names no zone; None means UTC.
    """
    return _written(_Document(postmortem, rules, zone).build())


class _Document:
    def __init__(self, postmortem: Postmortem, rules: RuleTable, zone: tzinfo | None) -> None:
        self.postmortem, self.rules, self.zone = postmortem, rules, zone
        owned: list[tuple[Member, str | None]] = [
            (member, incident.id) for incident in postmortem.incidents for member in incident.members
        ]
        owned += [(member, None) for member in postmortem.loose]
        self.listed = sorted(owned, key=lambda pair: _position(pair[0].finding.event.record))
        self.index = {id(member): place for place, (member, _) in enumerate(self.listed)}

    def build(self) -> dict[str, Any]:
        answer = verdict(self.postmortem, self.rules)
        return {
            "schema": SCHEMA,
            "inputs": [self.input(report) for report in self.postmortem.inputs],
            "hosts": [_host(report) for report in self.postmortem.hosts],
            "events": [self.event(member, incident_id) for member, incident_id in self.listed],
            "context": [self.context(context) for context in self.postmortem.context],
            "incidents": [self.incident(incident) for incident in self.postmortem.incidents],
            "first_fault": self.first_fault(),
            "malformed": list(self.postmortem.malformed),
            "filtered": _filtered(self.postmortem.filtered),
            "verdict": {"sentence": answer.sentence, "rung": answer.rung, "command": answer.command},
        }

    def first_fault(self) -> dict[str, Any] | None:
        """The incident that came first where several nodes have some."""
        first = self.postmortem.first_fault
        return {"incident": first.id, "hosts": first.hosts} if first is not None else None

    def input(self, report: InputReport) -> dict[str, Any]:
        return {
            "path": report.path,
            "format": report.format,
            "bytes": report.bytes,
            "records": report.records,
            "first_time": rfc3339(report.first, self.zone),
            "last_time": rfc3339(report.last, self.zone),
            "lost_records": report.lost_records,
            "boot_ids": report.boot_ids,
            "notes": report.notes,
        }

    def event(self, member: Member, incident_id: str | None) -> dict[str, Any]:
        event, rule = member.finding.event, member.finding.rule
        record = event.record
        entry: dict[str, Any] = {
            "kind": event.kind,
            "code": event.code,
            "what": event.what,
            "pci": event.pci,
            "gpu_instance": event.gpu_instance,
            "compute_instance": event.compute_instance,
            "gpu_uuid": event.gpu_uuid or self.uuid(event),
            "pid": event.pid,
            "pid_role": event.pid_role,
            "process": event.process,
            "job": _job(event),
            "count": member.count,
            "lines": member.lines,
            "count_is_minimum": member.count_is_minimum,
            "first": rfc3339(record, self.zone),
            "last": rfc3339(member.last.record, self.zone),
            "time_source": record.time_source,
            "uncertainty_s": record.uncertainty_s if record.wall_us is not None else None,
            "host": record.host,
            "boot_id": record.boot_id,
            "class": rule.fault_class,
            "origin": rule.origin,
            "severity": rule.severity,
            "role": member.role,
            "incident": incident_id,
            "trusted": record.trusted,
            "glued": record.glued,
            "line": record.line,
            "text": record.text,
            "rule": rule.id,
            "decoded": member.finding.decoded,
            "vendor_immediate": rule.vendor_immediate,
            "vendor_investigate": rule.vendor_investigate,
        }
        return entry | {name: value for name, value in _detail(event.detail).items() if name not in entry}

    def uuid(self, event: Event) -> str | None:
        """The UUID that the log gives for the event's slot; None when it is not sure which host's."""
        hosts = [report for report in self.postmortem.hosts if report.host == event.record.host]
        if event.record.host is None and len(self.postmortem.hosts) == 1:
            hosts = list(self.postmortem.hosts)
        found = {report.gpus[str(event.pci)][0] for report in hosts if str(event.pci) in report.gpus}
        return found.pop() if len(found) == 1 else None

    def context(self, context: Context) -> dict[str, Any]:
        return {
            "kind": context.kind,
            "time": rfc3339(context.record, self.zone),
            "host": context.record.host,
            "pci": context.pci,
            "text": context.record.text,
            "line": context.record.line,
            "facts": dict(context.facts),
        }

    def incident(self, incident: Incident) -> dict[str, Any]:
        root = incident.members[incident.root]
        again = incident.recurrence
        return {
            "id": incident.id,
            "title": incident.title,
            "sentence": incident.sentence,
            "figures": incident.figures or None,
            "state": incident.state,
            "class": incident.fault_class,
            "origin": incident.origin,
            "severity": incident.severity,
            "confidence": incident.confidence,
            "scope": incident.scope,
            "gpus": incident.gpus,
            "hosts": incident.hosts,
            "start": rfc3339(self.start(incident), self.zone),
            "end": rfc3339(incident.end.record, self.zone) if incident.end is not None else None,
            "end_reason": incident.end_reason,
            "root": self.index[id(root)],
            "events": [self.index[id(member)] for member in incident.members],
            "recurrence": {"count": again.count, "since": rfc3339(again.since.record, self.zone)}
            if again is not None
            else None,
            "patterns": incident.patterns,
            "cause": self.context(incident.cause) if incident.cause is not None else None,
            "recovery": self.recovery(incident),
            "verify": self.verification(incident),
            "investigate": [self.investigation(demand, incident) for demand in incident.investigate],
            "evidence": _evidence(incident),
            "excluded": incident.excluded,
            "unknowns": incident.unknowns,
            "checks": [self.check(check) for check in incident.checks],
            "driver_word": incident.driver_word,
        }

    def check(self, check: Context) -> dict[str, Any]:
        time = rfc3339(check.record, self.zone)
        return {"gpu": str(check.pci), "said": check.record.text, "time": time, **dict(check.facts)}

    def start(self, incident: Incident) -> Record:
        """The first event that is not context."""
        own = [m.finding.event.record for m in incident.members if m.role != "context"] or [
            incident.members[incident.root].finding.event.record
        ]
        return min(own, key=_position)

    def recovery(self, incident: Incident) -> dict[str, Any]:
        demand = incident.recovery
        needs = action_for(self.rules, demand.rung, incident).preconditions if demand.rung != "none" else ()
        return {
            "rung": demand.rung,
            "say": say(self.rules, demand.rung, incident),
            "when": demand.when,
            "why": demand.why,
            "command": key_command(self.rules, demand.rung, incident),
            "commands": commands_for(self.rules, demand.rung, incident),
            "preconditions": [need.say for need in needs],
        }

    def verification(self, incident: Incident) -> dict[str, Any] | None:
        """What shows that all is well again, after what; None where nothing was to be done."""
        if (rung := rung_to_verify(incident)) is None:
            return None
        checks = checks_for(self.rules, incident)
        known = known_of(incident)
        return {
            "after": rung,
            "say": "not proven healthy: run these before it takes work again",
            "commands": [line for check in checks for line in command_lines(check, known)],
            "expect": [check.note for check in checks],
        }

    def investigation(self, demand: Demand, incident: Incident) -> dict[str, Any]:
        return {"rung": demand.rung, "why": demand.why, "commands": commands_for(self.rules, demand.rung, incident)}


def _filtered(filtered: Filtered | None) -> dict[str, Any] | None:
    if filtered is None:
        return None
    return {
        "options": filtered.options,
        "incidents_left_out": filtered.incidents,
        "worst_left_out": filtered.worst,
        "undated_events": filtered.undated,
    }


def _host(report: HostReport) -> dict[str, Any]:
    return {
        "host": report.host,
        "driver_version": report.driver_version,
        "module_flavour": report.module_flavour,
        "kernel": report.kernel,
        "machine": _machine(report.machine),
        "gpus": [{"pci": pci, "gpu_uuid": uuid, "serial": serial} for pci, (uuid, serial) in report.gpus.items()],
    }


def _machine(machine: Machine) -> dict[str, Any]:
    """What is known of the machine beside its driver: one key a fact, left out where it is not known."""
    apart = ("driver_version", "flavour")
    known = {one.name: getattr(machine, one.name) for one in fields(machine) if one.name not in apart}
    return {name: value for name, value in known.items() if value is not None}


def _position(record: Record) -> tuple[int, int]:
    return (record.stream, record.seq)


def _detail(detail: Detail | None) -> dict[str, Any]:
    """What the event's family adds, under the contract's names."""
    if detail is None:
        return {}
    promised = _FAMILY_FIELDS.get(type(detail), ())
    found: dict[str, Any] = {}
    for field in fields(detail):
        value = getattr(detail, field.name)
        if field.name in promised or value not in (None, "", ()):
            found[field.name] = f"{value:#x}" if field.name in _HEX and isinstance(value, int) else value
    return found


def _job(event: Event) -> dict[str, Any] | None:
    """What is known of whose work it was; for an OOM kill by the cgroup that its line names."""
    if event.job is None and isinstance(event.detail, OomDetail) and event.detail.cgroup:
        named = parse_path(event.detail.cgroup)
        return job_object(Job(slurm_job=named.slurm_job, pod=named.pod, container=named.container))
    return job_object(event.job)


def job_object(job: Job | None) -> dict[str, Any] | None:
    """What is known of a job, one key a value; None where nothing is."""
    known = {one.name: getattr(job, one.name) for one in fields(job)} if job is not None else {}
    return {name: value for name, value in known.items() if value is not None} or None


def _evidence(incident: Incident) -> list[str]:
    """The lines themselves: the root's first, then the others in order, context last."""
    root = incident.members[incident.root]
    records = [root.finding.event.record, *(m.finding.event.record for m in incident.members if m is not root)]
    records += [context.record for context in incident.context]
    return list(dict.fromkeys(record.text for record in records))[:_MOST_EVIDENCE]


def _written(document: dict[str, Any]) -> str:
    """The object with one list element a line: readable with less and grep, and written by the fast encoder."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            body = ",\n".join("  " + _dumped(item) for item in value)
            parts.append(f"{json.dumps(name)}: [\n{body}\n]")
        else:
            parts.append(f"{json.dumps(name)}: {_dumped(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _dumped(value: object) -> str:
    return json.dumps(plain(value), allow_nan=False)


def plain(value: object) -> object:
    """The value in JSON's own types: addresses as text, no surrogates, no infinities, whole numbers without a fraction."""
    match value:
        case str():
            return _SURROGATE.sub(_byte, value)
        case PciAddress():
            return str(value)
        case float():
            return (int(value) if value.is_integer() else value) if math.isfinite(value) else None
        case dict():
            return {str(plain(name)): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in _each(value)]
        case _:
            return value


def _each(values: Iterable[object]) -> Iterable[object]:
    return values


def _byte(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def incident_object(incident: Incident, rules: RuleTable, hosts: tuple[HostReport, ...] = ()) -> dict[str, Any]:
    """One incident as in a report, with its own events (indexes count within it), in JSON's own types."""
    alone = _Document(Postmortem(inputs=(), hosts=hosts, incidents=(incident,)), rules, None)
    found = alone.incident(incident) | {"events": [alone.event(member, owner) for member, owner in alone.listed]}
    shaped = plain(found)
    return shaped if isinstance(shaped, dict) else {}
