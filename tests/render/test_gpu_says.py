"""What the GPUs say of an incident, in every report for a person."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from xidwatch.core.classify import RuleTable
from xidwatch.core.event import Context
from xidwatch.core.incident import Postmortem
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.render.answer import gpu_says
from xidwatch.render.as_html import render_html
from xidwatch.render.as_json import render_json
from xidwatch.render.as_markdown import render_markdown
from xidwatch.render.as_text import render_text

GPU, OTHER = PciAddress(0, 0x4E, 0), PciAddress(0, 0x9B, 0)


def check(name: str, answer: str, said: str, pci: PciAddress = GPU, **more: str) -> Context:
    """One reading, as history gives it back."""
    record = Record(text=f"{pci}: {said}", wall_us=1_796_000_000_000_000)
    return Context(kind="gpu_check", record=record, pci=pci, facts=(("check", name), ("answer", answer), *more.items()))


def told(postmortem: Postmortem, *checks: Context, driver: str | None = None) -> Postmortem:
    """The same, with what the GPUs say of its first incident."""
    first = replace(postmortem.incidents[0], checks=checks, driver_word=driver)
    return replace(postmortem, incidents=(first, *postmortem.incidents[1:]))


@pytest.mark.parametrize("render", [
    lambda report, rules: render_text(report, rules, color=False, width=100), render_markdown, render_html,
])  # fmt: skip
def test_every_report_tells_it(render: object, off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The answer, the reading and the driver's demand stand in text, Markdown and HTML; NVML's words cannot break out."""
    report = told(
        off_the_bus,
        check("gpu_not_found", "confirmed", "NVML has lost it\x1b[2J<script>"),
        driver="the driver itself asks more",
    )
    shown = " ".join(render(report, few_rules).split())  # type: ignore[operator]
    assert "confirmed" in shown
    assert "NVML has lost" in shown
    assert "asks more" in shown
    assert "\x1b" not in shown
    assert render is not render_html or "<script>" not in shown


def test_json_tells_it_whole(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Every reading, also the summary, with its time."""
    report = told(off_the_bus, check("gpu_state", "contradicted", "it answers", working="yes"))
    (one,) = json.loads(render_json(report, few_rules))["incidents"][0]["checks"]
    assert {"gpu": str(GPU), "check": "gpu_state", "answer": "contradicted", "working": "yes"}.items() <= one.items()
    assert one["time"].startswith("2026-11-30T")


def test_what_several_say_alike_stands_once(off_the_bus: Postmortem) -> None:
    """Two GPUs lost are one line; the summary of what a reading says already is left out, and so is the driver's own line."""
    report = told(
        off_the_bus,
        check("gpu_not_found", "confirmed", "NVML has lost it"),
        check("gpu_not_found", "confirmed", "NVML has lost it", OTHER),
        check("gpu_state", "confirmed", "NVML has lost it"),
        check("recovery_action", "contradicted", "asks nothing"),
        check("nvml_stuck", "contradicted", "NVML answers", was="confirmed"),
        driver="the driver itself asks nothing",
    )
    assert ["confirmed: 0000:4e:00.0, 0000:9b:00.0: NVML has lost it", "no longer: 0000:4e:00.0: NVML answers"] == gpu_says(
        report.incidents[0]
    )
