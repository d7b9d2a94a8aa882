"""What a scrape shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from bench.scrape import SLICES, busy_node, count_series
from tests.postmortems import ROOT
from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import Engine
from xidwatch.core.incident import Finding, Incident
from xidwatch.core.record import Record
from xidwatch.core.rule import SEVERITIES
from xidwatch.sinks.families import FAMILIES
from xidwatch.sinks.history import TotalKey
from xidwatch.sinks.metrics import (
    SeriesBudget,
    Snapshot,
    counters_for,
    exposition,
    incident_counter,
    timestamp_of,
    zero_totals,
)
from xidwatch.sinks.totals import MOST_SERIES

START_US = 1_790_000_000_123_456
LOST = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=s3cret, GPU has fallen off the bus."
parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics_parser.text_string_to_metric_families
DOCUMENT = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def node(rules: RuleTable) -> Snapshot:
    """Eight GPUs on which twenty codes were seen."""
    return busy_node(rules)


def seen(rules: RuleTable, *texts: str, **more: object) -> tuple[list[Finding], tuple[Incident, ...]]:
    """Findings and incidents of these lines, a tenth of a second apart, as the daemon sees them."""
    engine = Engine(rules)
    now_us = START_US
    for number, text in enumerate(texts):
        now_us = START_US + number * 100_000
        values: dict[str, object] = {"trusted": "kernel", "wall_us": now_us, "since_boot_us": now_us - START_US, "boot_id": "b"}
        engine.feed("kmsg", Record(text=text, seq=number, timed=True, **{**values, **more}), now_us)  # type: ignore[arg-type]
    settled = engine.settle(now_us, everything=True)
    engine.changes(now_us)
    return [one.finding for one in settled if one.finding is not None], tuple(engine.incidents.values())


def samples(snapshot: Snapshot) -> list[Sample]:
    """All samples of the text format, read back."""
    return [sample for family in parse_text(exposition(snapshot).decode()) for sample in family.samples]


def labels_of(snapshot: Snapshot, name: str) -> list[dict[str, str]]:
    """Label sets of one metric, in order."""
    return [sample.labels for sample in samples(snapshot) if sample.name == name]


def events(*labels: str) -> dict[TotalKey, float]:
    """One Xid event of (gpu, gi, ci, xid)."""
    return {("xidwatch_xid_events_total", tuple(zip(("gpu", "gi", "ci", "xid"), labels, strict=True))): 1.0}


# names, labels, size


def test_eight_gpus_with_twenty_codes_stay_within_800_series(node: Snapshot) -> None:
    """A node on which everything has happened costs Prometheus no more than was promised."""
    assert count_series(exposition(node)) <= 800


def test_56_mig_instances_with_twenty_codes_stay_within_2000_series(rules: RuleTable) -> None:
    """Slices multiply the events, nothing else."""
    assert count_series(exposition(busy_node(rules, slices=SLICES))) <= 2000


def test_every_sample_has_the_labels_of_its_family(node: Snapshot) -> None:
    """What is exported is what the table of families says, which is an interface."""
    tails = {"xidwatch_detection_latency_seconds" + tail: {"source"} for tail in ("_sum", "_count")}
    tails["xidwatch_detection_latency_seconds_bucket"] = {"source", "le"}
    known = {family.name: set(family.labels) for family in FAMILIES if family.type != "histogram"} | tails
    assert [] == [sample for sample in samples(node) if set(sample.labels) != known[sample.name]]
    assert set(known) == {sample.name for sample in samples(node)}


def test_no_family_has_more_than_six_labels() -> None:
    """More would be too much for anybody's Prometheus."""
    assert 6 >= max(len(family.labels) for family in FAMILIES)


def test_every_family_is_documented() -> None:
    """docs/metrics.md has a row for each metric, with its type and its labels, and for no other."""
    rows = re.findall(r"^\| `(xidwatch_\w+)` \| (\w+) \|(.*?) \|", DOCUMENT, re.MULTILINE)
    documented = {(name, kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in rows}
    assert {(family.name, family.type, family.labels) for family in FAMILIES} == documented


def test_no_created_series(node: Snapshot) -> None:
    """A second series for each counter would say nothing."""
    assert b"_created" not in exposition(node) + exposition(node, openmetrics=True)


def test_nothing_of_a_log_line_but_its_codes_and_addresses_becomes_a_label(rules: RuleTable) -> None:
    """Neither the process nor its pid nor the message is anywhere in a scrape."""
    findings, incidents = seen(rules, LOST, "NVRM: s3cret: assertion failed: s3cret @ s3cret.c:1234")
    totals = {key: 1.0 for finding in findings for key in counters_for(finding)}
    page = exposition(Snapshot(totals=totals, incidents=incidents), openmetrics=True)
    assert b"0000:9b:00.0" in page
    assert b"s3cret" not in page
    assert b"1234" not in page.replace(str(START_US)[-6:].encode(), b"")


# formats


@given(st.text())
def test_any_label_text_comes_back_as_it_was(text: str) -> None:
    """Quotes, backslashes, newlines and every script survive both formats."""
    shown = text.encode("utf-8", "replace").decode()
    key: TotalKey = ("xidwatch_row_remap_pending", (("gpu", text),))
    snapshot = Snapshot(readings={key: 1.0})
    for page, parse in ((exposition(snapshot), parse_text), (exposition(snapshot, openmetrics=True), parse_openmetrics)):
        found = [s.labels for family in parse(page.decode()) for s in family.samples if s.name == "xidwatch_row_remap_pending"]
        assert [{"gpu": shown}] == found


def test_both_formats_say_the_same(node: Snapshot) -> None:
    """Whichever is asked for, the same series have the same values."""

    def told(families: Iterable[Metric]) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
        return {(s.name, tuple(sorted(s.labels.items())), s.value) for family in families for s in family.samples}

    assert told(parse_text(exposition(node).decode())) == told(parse_openmetrics(exposition(node, openmetrics=True).decode()))


def test_an_xid_counter_names_its_incident_in_openmetrics(rules: RuleTable) -> None:
    """From a point of the graph to `xidwatch incident show`."""
    _, incidents = seen(rules, LOST)
    page = exposition(Snapshot(totals=events("0000:9b:00.0", "", "", "79"), incidents=incidents), openmetrics=True).decode()
    found = [s.exemplar for family in parse_openmetrics(page) for s in family.samples if s.name == "xidwatch_xid_events_total"]
    assert [({"incident": incidents[0].id}, START_US / 1e6)] == [
        (one.labels, float(one.timestamp)) for one in found if one and one.timestamp
    ]


def test_times_keep_their_microseconds() -> None:
    """A time stamp is not rounded on its way."""
    key: TotalKey = ("xidwatch_xid_last_timestamp_seconds", (("gpu", "0000:9b:00.0"), ("xid", "79")))
    found = [s.value for s in samples(Snapshot(times={key: START_US / 1e6})) if s.name == key[0]]
    assert [START_US / 1e6] == found


def test_latencies_are_cumulative_buckets() -> None:
    """Each bucket holds all that was as fast or faster."""
    snapshot = Snapshot(latencies={"kmsg": (((0.001, 3), (0.1, 2)), 6, 9.5)})
    found = {s.labels.get("le", s.name.rpartition("_")[2]): s.value for s in samples(snapshot) if "latency" in s.name}
    assert {"0.001": 3.0, "0.1": 5.0, "+Inf": 6.0, "count": 6.0, "sum": 9.5} == found


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with the package prometheus")
def test_promtool_has_nothing_to_say(node: Snapshot) -> None:
    """Prometheus' own linter finds no fault with names, help and types."""
    run = subprocess.run(["promtool", "check", "metrics"], input=exposition(node), capture_output=True, check=False)
    assert (0, b"") == (run.returncode, run.stdout + run.stderr)


# what an event counts


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        (LOST, ("xid_events", "gpu=0000:9b:00.0 gi= ci= xid=79")),
        (
            "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 13, pid=7, name=x, Graphics Exception: ESR 0x1=0x2",
            ("xid_events", "gpu=0000:3b:00.0 gi=5 ci=1 xid=13"),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            ("sxid_events", "nvswitch=0000:c1:00.0 sxid=20034 fatal=true"),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20001, Non-fatal, Link 8 Something",
            ("sxid_events", "nvswitch=0000:c1:00.0 sxid=20001 fatal=false"),
        ),
        ("INFO: task python3:4242 blocked for more than 122 seconds.", ("hung_tasks", "attribution=unknown")),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4242]", ("soft_lockups", "scope=node")),
        (
            "Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
            ("oom_kills", "scope=memcg"),
        ),
        ("Out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB", ("oom_kills", "scope=node")),
    ],
)
def test_an_event_raises_the_counter_of_its_family(rules: RuleTable, text: str, counted: tuple[str, str]) -> None:
    """One line, one event, one family's counter, and one fault."""
    findings, _ = seen(rules, text)
    (own, fault), *more = [counters_for(finding) for finding in findings]
    assert [] == more
    assert counted == (own[0].removeprefix("xidwatch_").removesuffix("_total"), " ".join("=".join(pair) for pair in own[1]))
    assert ("class", "severity") == tuple(name for name, _ in fault[1])


def test_what_user_space_wrote_counts_nothing(rules: RuleTable) -> None:
    """A line of `logger` or of root's echo raises no counter but the source's own."""
    findings, _ = seen(rules, LOST, trusted="no")
    assert [()] == [counters_for(finding) for finding in findings]


def test_a_rumour_is_no_critical_fault(rules: RuleTable) -> None:
    """A line found inside another text counts as a warning, and sends nobody to the power switch."""
    findings, incidents = seen(rules, LOST, glued=True)
    (_, fault) = counters_for(findings[0])
    snapshot = Snapshot(incidents=incidents)
    assert ("xidwatch_faults_total", (("class", "platform"), ("severity", "warning"))) == fault
    assert (["warning"], []) == (
        [labels["severity"] for labels in labels_of(snapshot, "xidwatch_incident_active")],
        labels_of(snapshot, "xidwatch_recovery_needed"),
    )


def test_invented_addresses_cannot_fill_prometheus() -> None:
    """Once a metric has its fill, new label sets are counted as `other`, and those known go on."""
    first, *more = (next(iter(events(f"{number:04x}:00:00.0", "", "", "79"))) for number in range(5000))
    budget = SeriesBudget([first])
    admitted = budget.admit(more)
    assert MOST_SERIES["xidwatch_xid_events_total"] + 1 == len({first, *admitted})
    assert (next(iter(events("other", "other", "other", "other"))),) == budget.admit(more[-1:])
    assert (first,) == budget.admit([first])


def test_a_counter_has_its_time() -> None:
    """The time belongs to the GPU and the code, whatever the slice."""
    (key,) = events("0000:9b:00.0", "1", "2", "79")
    assert ("xidwatch_xid_last_timestamp_seconds", (("gpu", "0000:9b:00.0"), ("xid", "79"))) == timestamp_of(key)
    assert timestamp_of(("xidwatch_faults_total", ())) is None


def test_counters_are_born_at_zero(rules: RuleTable) -> None:
    """Every class, origin and severity that a rule can make of a line is there before it happens."""
    zeros = zero_totals(rules)
    judged = [rule for rule in rules.rules() if not rule.context]
    wanted = {(rule.fault_class, rule.origin, severity) for rule in judged for severity in SEVERITIES}
    born = {tuple(value for _, value in labels) for name, labels in zeros if name == "xidwatch_incidents_total"}
    assert (wanted, {0.0}) == (born, set(zeros.values()))
    once = next(iter(zeros))
    risen = [s.value for s in samples(Snapshot(zeros=zeros, totals={once: 4.0})) if s.name == once[0]]
    assert [0.0] * (len(risen) - 1) + [4.0] == sorted(risen)


# incidents


def test_an_incident_stands_on_each_of_its_gpus_while_it_lasts(rules: RuleTable) -> None:
    """Two GPUs lost at a time are one incident and a series for each; once it is over there is none."""
    _, incidents = seen(rules, LOST, LOST.replace("9b", "3b"))
    (incident,) = incidents
    snapshot = Snapshot(incidents=incidents)
    over = Snapshot(incidents=(replace(incident, state="resolved"),))
    rows = labels_of(snapshot, "xidwatch_incident_active")
    assert [("0000:3b:00.0", "xid 79"), ("0000:9b:00.0", "xid 79")] == [(row["gpu"], row["root"]) for row in rows]
    assert ["0000:3b:00.0", "0000:9b:00.0"] == [row["gpu"] for row in labels_of(snapshot, "xidwatch_recovery_needed")]
    starts = [s.value for s in samples(snapshot) if s.name == "xidwatch_incident_start_timestamp_seconds"]
    assert [START_US / 1e6] * 2 == starts
    assert [] == [s for s in samples(over) if "incident_active" in s.name or "needed" in s.name]


def test_an_incident_that_waits_for_proof_stays(rules: RuleTable) -> None:
    """Awaiting verification is not over."""
    _, incidents = seen(rules, LOST)
    snapshot = Snapshot(incidents=tuple(replace(one, state="awaiting_verification") for one in incidents))
    assert 1 == len(labels_of(snapshot, "xidwatch_incident_active"))


def test_an_incident_without_a_gpu_has_an_empty_label(rules: RuleTable) -> None:
    """A hung task that no GPU is named for."""
    _, incidents = seen(rules, "INFO: task python3:4242 blocked for more than 122 seconds.")
    rows = labels_of(Snapshot(incidents=incidents), "xidwatch_incident_active")
    assert [("", "hung_task")] == [(row["gpu"], row["root"]) for row in rows]


def test_too_many_incidents_keep_the_worst_and_say_so(rules: RuleTable) -> None:
    """A user who invents GPUs cannot push a true one out of the scrape."""
    _, (critical, *_) = seen(rules, LOST)
    invented = [
        replace(critical, id=f"{number:012x}", severity="warning", gpus=(f"{number:04x}:00:00.0",), confidence="unconfirmed")
        for number in islice(count(), 1000)
    ]
    snapshot = Snapshot(incidents=(*invented, critical))
    rows = labels_of(snapshot, "xidwatch_incident_active")
    (withheld,) = [s.value for s in samples(snapshot) if s.name == "xidwatch_series_withheld"]
    assert (100, True) == (len(rows), "0000:9b:00.0" in {row["gpu"] for row in rows})
    assert withheld >= 900


def test_the_driver_says_what_it_wants() -> None:
    """An Xid 154's number is shown in words, and a number without a word not at all."""
    rows = labels_of(Snapshot(driver_actions={"0000:9b:00.0": 4, "0000:3b:00.0": 99}), "xidwatch_driver_recovery_action")
    assert [{"gpu": "0000:9b:00.0", "action": "drain_and_reset", "source": "log"}] == rows


def test_an_incident_is_counted_as_it_opened(rules: RuleTable) -> None:
    """The counter's labels are the incident's."""
    _, (incident,) = seen(rules, LOST)
    labels = (("class", "platform"), ("origin", incident.origin), ("severity", "critical"))
    assert ("xidwatch_incidents_total", labels) == incident_counter(incident)
