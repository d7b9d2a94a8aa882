"""The daemon's engine and `explain` make the same incidents of the same bytes."""

from __future__ import annotations

from datetime import timezone

import pytest

from tests.postmortems import FIXTURES, case_names
from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import Engine
from xidwatch.core.incident import Incident
from xidwatch.core.record import Record
from xidwatch.explain import ExplainOptions, explain_records
from xidwatch.sources.logfile import LogInputs

NOW_US = 1_796_000_000_000_000
LOOP_US = 5_000_000
"""The daemon's loop turns at least this often, also when no line comes."""
PASTED_TWICE = {"rminit_2016_frontend_open"}
"""A person pasted the same kernel records twice: two failures to a reader of text, one to the daemon, which knows records."""


@pytest.mark.parametrize("name", case_names())
def test_live_and_offline_agree(name: str, rules: RuleTable) -> None:
    """Ids, roots, members, severity and recovery are the same, whichever way the lines came."""
    records = list(LogInputs([str(FIXTURES / name / "input.log")], tz=timezone.utc, year=2026, now_us=NOW_US))
    offline = explain_records(records, ExplainOptions(tz=timezone.utc, now_us=NOW_US), rules).incidents
    live = watched(records, rules)
    if name in PASTED_TWICE:
        assert sorted(incident.id for incident in offline) == sorted(incident.id for incident in live)
    else:
        assert sorted(map(essence, offline)) == sorted(map(essence, live))


def watched(records: list[Record], rules: RuleTable) -> list[Incident]:
    """What the engine knows after the records came one by one, each at its own time."""
    engine = Engine(rules)
    now_us = NOW_US
    for record in records:
        arrives_us = record.wall_us if record.wall_us is not None else now_us + 1000
        if arrives_us > now_us + LOOP_US:
            engine.settle(now_us + LOOP_US)
        now_us = arrives_us
        engine.feed("log", record, now_us)
        engine.settle(now_us)
        engine.changes(now_us)
    engine.settle(now_us, everything=True)
    engine.changes(now_us)
    return list(engine.incidents.values())


def essence(incident: Incident) -> tuple[object, ...]:
    """What must agree; that silence ended it depends on when one looks."""
    root = incident.members[incident.root].finding
    return (
        incident.id, root.event.kind, root.event.code or 0, incident.severity, incident.fault_class, incident.recovery.rung,
        tuple(demand.rung for demand in incident.investigate), incident.gpus, sum(member.lines for member in incident.members),
    )  # fmt: skip
