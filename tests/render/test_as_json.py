"""The JSON contract `xidwatch.explain/1`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from tests.render.conftest import HOST, UUID, record
from xidwatch.core.classify import RuleTable
from xidwatch.core.event import OomDetail, UserspaceDetail
from xidwatch.core.incident import Postmortem
from xidwatch.render.as_json import render_json

INPUT = {"path", "format", "bytes", "records", "first_time", "last_time", "lost_records", "boot_ids", "notes"}
HOST_FIELDS = {"host", "driver_version", "module_flavour", "kernel", "gpus"}
EVENT = {
    "kind", "code", "what", "pci", "gpu_instance", "compute_instance", "gpu_uuid", "pid", "pid_role", "process", "job", "count",
    "lines", "count_is_minimum", "first", "last", "host", "boot_id", "class", "origin", "severity", "role", "incident",
    "trusted", "line", "text", "vendor_immediate", "vendor_investigate", "time_source", "uncertainty_s",
}  # fmt: skip
XID = {"severity_word", "link", "subcode", "link_down_reason", "caused_by", "recovery_action", "reset_flags", "registers"}
INCIDENT = {
    "id", "title", "state", "class", "origin", "severity", "confidence", "scope", "gpus", "hosts", "start", "end", "end_reason",
    "root", "events", "recurrence", "recovery", "investigate", "evidence", "excluded", "unknowns",
}  # fmt: skip
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?[+-]\d\d:\d\d")


def document(postmortem: Postmortem, few_rules: RuleTable) -> dict[str, Any]:
    """The report, read back."""
    report: dict[str, Any] = json.loads(render_json(postmortem, few_rules))
    return report


def test_contract_is_kept(off_the_bus: Postmortem, job_end: Postmortem, nothing: Postmortem, few_rules: RuleTable) -> None:
    """Every field of the contract is there, in its spelling."""
    for postmortem in (off_the_bus, job_end, nothing):
        report = document(postmortem, few_rules)
        assert "xidwatch.explain/1" == report["schema"]
        assert set() == {"inputs", "hosts", "events", "context", "incidents", "verdict"} - report.keys()
        assert {"sentence", "rung", "command"} == report["verdict"].keys()
        for name, fields in (("inputs", INPUT), ("hosts", HOST_FIELDS), ("events", EVENT), ("incidents", INCIDENT)):
            assert [set()] * len(report[name]) == [fields - entry.keys() for entry in report[name]]
        for entry in report["events"]:
            assert entry["kind"] != "xid" or set() == XID - entry.keys()


def test_indexes_lead_to_the_events(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Incidents point into the one list of events, the root by its own index."""
    report = document(off_the_bus, few_rules)
    (incident,) = report["incidents"]
    assert list(range(len(report["events"]))) == incident["events"]
    root = report["events"][incident["root"]]
    assert ("xid", 79, "root", incident["id"]) == (root["kind"], root["code"], root["role"], root["incident"])


def test_start_is_the_first_event_that_is_not_context(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """An AER line before the fault is in the picture but does not begin the incident."""
    (incident,) = document(off_the_bus, few_rules)["incidents"]
    assert "2026-11-30T02:13:05.123000+01:00" == incident["start"]


def test_times_are_rfc3339_or_null(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """A time has its offset; an untimed line has null and claims no uncertainty."""
    member = off_the_bus.incidents[0].members[1]
    untimed = record("NVRM: Xid", 0, 9, wall_us=None, time_source=None)
    event = replace(member.finding.event, record=untimed, last_record=untimed)
    loose = replace(member, finding=replace(member.finding, event=event), last=event)
    report = document(replace(off_the_bus, loose=(loose,)), few_rules)
    timed = [entry["first"] for entry in report["events"] if entry["incident"] is not None]
    assert [True] * len(timed) == [bool(RFC3339.fullmatch(time)) for time in timed]
    (free,) = [entry for entry in report["events"] if entry["incident"] is None]
    assert (None, None, None, None) == (free["first"], free["last"], free["time_source"], free["uncertainty_s"])


def test_spellings(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """A GPU is spelled as in the metric labels, and its UUID comes from the log's own table."""
    report = document(off_the_bus, few_rules)
    (lost,) = [entry for entry in report["events"] if entry["code"] == 79]
    assert ("0000:4e:00.0", UUID, HOST) == (lost["pci"], lost["gpu_uuid"], lost["host"])
    assert ["ipmitool -H <bmc> chassis power cycle"] == report["incidents"][0]["recovery"]["commands"]


def test_family_fields_are_flat(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """What a family adds stands beside the common fields; sizes are whole bytes, a cgroup names its job."""
    member = off_the_bus.incidents[0].members[1]
    torch = replace(member.finding.event, kind="torch_oom", code=None, detail=UserspaceDetail(tried=2.0**30, rank=3))
    oom = replace(
        member.finding.event, kind="oom_kill", code=None, detail=OomDetail(memcg=True, cgroup="/slurm/uid_1000/job_4711/step_0")
    )
    loose = tuple(replace(member, finding=replace(member.finding, event=event)) for event in (torch, oom))
    first, second = (
        entry for entry in document(replace(off_the_bus, loose=loose), few_rules)["events"] if entry["incident"] is None
    )
    assert (1073741824, 3, None) == (first["tried"], first["rank"], first["op"])
    assert (True, {"slurm_job": "4711"}) == (second["memcg"], second["job"])


def test_always_valid(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Raw bytes, control characters and infinities give valid ASCII JSON without lone surrogates."""
    incident = off_the_bus.incidents[0]
    member = incident.members[1]
    hostile = replace(member.finding.event.record, text='a"\\\x00\udc80\ud800\u2028', uncertainty_s=float("inf"))
    event = replace(member.finding.event, record=hostile, process="\udcff")
    loose = replace(member, finding=replace(member.finding, event=event), last=event)
    text = render_json(replace(off_the_bus, loose=(loose,), malformed=("\udc00",)), few_rules)
    assert text.isascii()
    assert not re.search(r"(?<!\\)\\ud[89a-f]", text)
    (free,) = [entry for entry in json.loads(text)["events"] if entry["incident"] is None]
    assert ('a"\\\x00\\x80\\ud800\u2028', "\\xff", None) == (free["text"], free["process"], free["uncertainty_s"])


def test_nothing_found(nothing: Postmortem, few_rules: RuleTable) -> None:
    """A clean log has a verdict too."""
    report = document(nothing, few_rules)
    assert ([], [], "none", None) == (
        report["events"], report["incidents"], report["verdict"]["rung"], report["verdict"]["command"],
    )  # fmt: skip
