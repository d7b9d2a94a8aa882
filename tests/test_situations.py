"""Realistic situations, each with the recovery, time, investigation and first command that the vendor's guidance asks for.

The table is `situations.toml`; every situation runs through the postmortem and through the daemon's engine.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import Engine
from xidwatch.core.incident import Incident
from xidwatch.core.machine import UNKNOWN, Machine
from xidwatch.core.pci import parse_pci
from xidwatch.core.standing import Check, noted
from xidwatch.explain import ExplainOptions, explain
from xidwatch.render.as_json import incident_object
from xidwatch.render.steps import key_command
from xidwatch.rulefiles import load_rules
from xidwatch.sources.logfile import LogInputs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

START = datetime(2026, 11, 20, 1, 0, 0, tzinfo=timezone.utc)
TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "situations.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One row. Fields as the head of the table tells; what is not given is not asked about."""

    name: str
    source: str
    log: list[str]
    rung: str
    when: str | None = None
    key: str | None = None
    look: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    severity: str | None = None
    state: str | None = None
    why: str | None = None
    verify: str | None = None
    incidents: int | None = None
    machine: dict[str, Any] | None = None
    readings: tuple[dict[str, str], ...] = ()


SITUATIONS = [Situation(**row) for row in TABLE["situation"]]


@pytest.fixture(scope="module")
def rules() -> RuleTable:
    """The shipped rules."""
    return load_rules()


def written(situation: Situation, tmp_path: Path) -> Path:
    """The situation as a syslog."""
    lines = []
    for row in situation.log:
        offset, _, text = row.partition(" ")
        at = (START + timedelta(seconds=float(offset))).isoformat(timespec="microseconds")
        lines.append(f"{at} node7 {text[1:] if text.startswith('@') else 'kernel: ' + text}\n")
    path = tmp_path / "syslog"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def machine(situation: Situation) -> Machine:
    """What is known of the node beside its log."""
    return Machine(**situation.machine) if situation.machine else UNKNOWN


def lived(situation: Situation, path: Path, rules: RuleTable) -> list[Incident]:
    """The incidents of a daemon that read the same lines as they were written."""
    engine, now_us = Engine(rules), 0
    engine.machine = machine(situation)
    for record in LogInputs([str(path)], tz=timezone.utc, year=2026, now_us=round(START.timestamp() * 1e6)):
        now_us = record.wall_us or now_us
        engine.settle(now_us)
        engine.changes(now_us)
        engine.feed("kmsg", record, now_us)
    engine.settle(now_us + 3_000_000, everything=True)
    engine.changes(now_us + 3_000_000)
    for reading in situation.readings:
        pci = parse_pci(reading["gpu"])
        assert pci is not None
        check = Check(name=reading["reading"], pci=pci, answer="confirmed", said=reading["said"], at_us=now_us + 4_000_000)
        engine.note(noted(check, "node7", None))
    engine.changes(now_us + 5_000_000)
    return [one for one in engine.incidents.values() if one.end_reason != "merged"]


def latest(incidents: list[Incident]) -> Incident:
    """The one that began last."""
    return max(incidents, key=lambda one: (one.members[one.root].finding.event.record.wall_us or 0, one.id))


def differs(situation: Situation, incident: Incident, rules: RuleTable) -> list[str]:
    """What the incident says otherwise than the situation asks for."""
    told = incident_object(incident, rules)
    asked = {demand["rung"] for demand in told["investigate"]}
    demands = (told["recovery"], *told["investigate"])
    lines = [line for demand in demands for line in (*demand["commands"], *demand.get("preconditions", ()))]
    said = "\n".join([*lines, *asked])
    wanted = {
        "rung": (situation.rung, incident.recovery.rung),
        "when": (situation.when, incident.recovery.when if situation.rung != "none" else None),
        "key": (situation.key, key_command(rules, incident.recovery.rung, incident) if situation.rung != "none" else None),
        "severity": (situation.severity or incident.severity, incident.severity),
        "state": (situation.state or incident.state, incident.state),
    }
    found = [f"{name}: wanted {want}, got {have}" for name, (want, have) in wanted.items() if want != have]
    found += [f"look: {rung} is not among {sorted(asked)}" for rung in situation.look if rung not in asked]
    found += [f"has: {text!r} is not said" for text in situation.has if text not in said]
    found += [f"never: {text!r} is said" for text in situation.never if text in said]
    if situation.why is not None and situation.why not in incident.recovery.why:
        found.append(f"why: {incident.recovery.why}")
    if situation.verify is not None and situation.verify not in (told["verify"] or {}).get("commands", ()):
        found.append(f"verify: {told['verify']}")
    return found


def test_the_table_is_long_and_sourced() -> None:
    """Forty situations and more, each with a name of its own and a public source; no key is misspelt."""
    assert len(SITUATIONS) >= 40
    assert len({situation.name for situation in SITUATIONS}) == len(SITUATIONS)
    assert all(TABLE[situation.source].startswith("https://") for situation in SITUATIONS)
    assert {key for row in TABLE["situation"] for key in row} <= {field.name for field in fields(Situation)}


@pytest.mark.parametrize("situation", [one for one in SITUATIONS if not one.readings], ids=lambda one: one.name)
def test_the_postmortem_gives_what_the_vendor_asks_for(situation: Situation, tmp_path: Path, rules: RuleTable) -> None:
    """Recovery, time, investigation, first command."""
    options = ExplainOptions(tz=timezone.utc, machine=machine(situation))
    found = list(explain([str(written(situation, tmp_path))], options, rules).incidents)
    assert situation.incidents in (None, len(found))
    assert [] == differs(situation, latest(found), rules)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_the_daemon_gives_the_same(situation: Situation, tmp_path: Path, rules: RuleTable) -> None:
    """Line by line as they come, and with what the GPU itself says."""
    found = lived(situation, written(situation, tmp_path), rules)
    assert situation.incidents in (None, len(found))
    assert [] == differs(situation, latest(found), rules)
