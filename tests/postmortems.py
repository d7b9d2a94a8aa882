"""Postmortems that come out the same on every machine and every day."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import Postmortem
from xidwatch.explain import ExplainOptions, explain
from xidwatch.render.as_json import render_json

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"
UTC = timezone.utc
NOW = datetime(2026, 12, 31, 12, tzinfo=UTC)
SAME_EVERYWHERE = ExplainOptions(tz=UTC, year=2026, now_us=round(NOW.timestamp() * 1e6))
"""The zone, year and clock of every test."""


def case_names() -> list[str]:
    """All cases, in order."""
    return sorted(path.parent.name for path in FIXTURES.glob("*/input.log"))


def explained(log: Path, rules: RuleTable) -> Postmortem:
    """The postmortem of one log."""
    return explain([os.path.relpath(log)], SAME_EVERYWHERE, rules)


def reported(log: Path, rules: RuleTable) -> dict[str, Any]:
    """The JSON report of one log, read back from its text."""
    report: dict[str, Any] = json.loads(render_json(explained(log, rules), rules))
    return report
