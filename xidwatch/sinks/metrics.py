"""One snapshot in Prometheus' text format or in OpenMetrics. Nothing here reads a clock, a disk or a GPU."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import exposition as text_format
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics_format
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from xidwatch.core.incident import Incident
from xidwatch.core.rule import SEVERITIES
from xidwatch.sinks.families import FAMILIES, Family
from xidwatch.sinks.history import HistoryHealth, TotalKey
from xidwatch.sinks.snapshot import Buckets, Snapshot, SourceState
from xidwatch.sinks.totals import (
    SeriesBudget,
    counters_for,
    early_counters,
    incident_counter,
    timestamp_of,
    xid_counter,
    zero_totals,
)

__all__ = [
    "DRIVER_ACTIONS", "SeriesBudget", "Snapshot", "counters_for", "early_counters", "exposition", "incident_counter",
    "timestamp_of", "zero_totals",
]  # fmt: skip

DRIVER_ACTIONS = (
    "none", "reset_gpu", "reboot_node", "drain_p2p", "drain_and_reset", "recover_imex", "bus_reset", "system_reboot",
)  # fmt: skip
"""Recovery actions of Xid 154 and of NVML, by number (open-gpu-kernel-modules, NV2080_CTRL_GPU_RECOVERY_ACTION_*)."""
_MOST_OF_INCIDENTS = 100
"""Series of one metric that incidents may have: text that a user chose can open incidents on GPUs that do not exist."""


def exposition(snapshot: Snapshot, *, openmetrics: bool = False) -> bytes:
    """What a scrape gets. In OpenMetrics an Xid counter carries the id of its incident as an exemplar."""
    collector = _Once(snapshot)
    render: Callable[[Collector], bytes] = openmetrics_format.generate_latest if openmetrics else text_format.generate_latest
    return render(collector)


class _Once(Collector):
    """Gives the families of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        exemplars = dict(_exemplars(self._snapshot))
        series = _by_family(self._snapshot)
        for family in FAMILIES:
            if family.type == "histogram":
                if self._snapshot.latencies:
                    yield _histogram(family, self._snapshot.latencies)
            elif rows := series.get(family.name):
                yield _metric(family, rows, exemplars)


def _metric(family: Family, rows: dict[tuple[tuple[str, str], ...], float], exemplars: Mapping[TotalKey, Exemplar]) -> Metric:
    metric = Metric(family.name.removesuffix("_total") if family.type == "counter" else family.name, family.help, family.type)
    for labels, value in sorted(rows.items()):
        metric.add_sample(family.name, dict(labels), value, exemplar=exemplars.get((family.name, labels)))
    return metric


def _histogram(family: Family, latencies: Mapping[str, Buckets]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for source, (buckets, count, total_s) in sorted(latencies.items()):
        below, so_far = [], 0
        for bound, hits in buckets:
            so_far += hits
            below.append((str(bound), so_far))
        metric.add_metric([source], [*below, ("+Inf", count)], total_s)
    return metric


def _by_family(snapshot: Snapshot) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Name -> labels -> value of everything but histograms."""
    of_incidents, withheld = _capped(_incident_series(snapshot))
    series: dict[TotalKey, float] = {
        **snapshot.zeros, **snapshot.totals, **snapshot.times, **of_incidents, **dict(_own_series(snapshot)),
        ("xidwatch_series_withheld", ()): withheld, **{_encodable(key): value for key, value in snapshot.readings.items()},
    }  # fmt: skip
    families: defaultdict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    for (name, labels), value in series.items():
        families[name][labels] = value
    return families


def _encodable(key: TotalKey) -> TotalKey:
    """A card's name comes from outside: half a character in it must not cost the whole scrape."""
    return key[0], tuple((name, value.encode("utf-8", "replace").decode("utf-8")) for name, value in key[1])


# incidents


def _incident_series(snapshot: Snapshot) -> dict[TotalKey, float]:
    """Worst first, so that those beyond the limit are the least."""
    series: dict[TotalKey, float] = {}
    open_ones = [incident for incident in snapshot.incidents if incident.state != "resolved"]
    for incident in sorted(open_ones, key=lambda one: (-SEVERITIES.index(one.severity), one.id)):
        for gpu in incident.gpus or ("",):
            _add(series, incident, gpu)
    for gpu, number in snapshot.driver_actions.items():
        if 0 <= number < len(DRIVER_ACTIONS):
            labels = (("gpu", gpu), ("action", DRIVER_ACTIONS[number]), ("source", "log"))
            series["xidwatch_driver_recovery_action", labels] = 1.0
    return series


def _add(series: dict[TotalKey, float], incident: Incident, gpu: str) -> None:
    at, word, root = ("gpu", gpu), ("class", incident.fault_class), ("root", _root(incident))
    labels = (at, word, ("origin", incident.origin), ("severity", incident.severity), root)
    series["xidwatch_incident_active", labels] = 1.0
    if (start_us := _start_us(incident)) is not None:
        key: TotalKey = ("xidwatch_incident_start_timestamp_seconds", (at, word, root))
        series[key] = min(start_us / 1e6, series.get(key, float("inf")))
    # A rumour inside another text may not send anybody to the power switch.
    if incident.recovery.rung != "none" and incident.confidence != "unconfirmed":
        when = ("when", incident.recovery.when or "now")
        series["xidwatch_recovery_needed", (at, ("rung", incident.recovery.rung), when)] = 1.0
    for demand in incident.investigate:
        series["xidwatch_investigation_needed", (at, ("rung", demand.rung))] = 1.0


def _capped(series: dict[TotalKey, float]) -> tuple[dict[TotalKey, float], int]:
    """The first series of each metric, and how many were left out."""
    kept: dict[TotalKey, float] = {}
    counts: Counter[str] = Counter()
    for key, value in series.items():
        counts[key[0]] += 1
        if counts[key[0]] <= _MOST_OF_INCIDENTS:
            kept[key] = value
    return kept, len(series) - len(kept)


def _start_us(incident: Incident) -> int | None:
    """Of the first event that is not context."""
    own = [member for member in incident.members if member.role != "context"] or [incident.members[incident.root]]
    return min((us for member in own if (us := member.finding.event.record.wall_us) is not None), default=None)


def _root(incident: Incident) -> str:
    """`xid 79`, `sxid 20034`, `nvrm fallen_off_bus`, `hung_task`: from closed vocabularies, never the log's own words."""
    event = incident.members[incident.root].finding.event
    if event.code is not None:
        return f"{event.kind} {event.code}"
    return f"{event.kind} {event.what or 'other'}" if event.kind == "nvrm" else event.kind


def _exemplars(snapshot: Snapshot) -> Iterator[tuple[TotalKey, Exemplar]]:
    for incident in snapshot.incidents:
        for member in incident.members:
            if member.finding.event.kind == "xid" and incident.state != "resolved":
                wall_us = member.last.record.wall_us
                exemplar = Exemplar({"incident": incident.id}, 1.0, None if wall_us is None else wall_us / 1e6)
                yield xid_counter(member.finding.event), exemplar


# xidwatch itself


def _own_series(snapshot: Snapshot) -> Iterator[tuple[TotalKey, float]]:
    version = ("version", snapshot.version), ("rules_version", snapshot.rules_version)
    yield ("xidwatch_build_info", version), 1.0
    yield ("xidwatch_maintenance", ()), float(snapshot.maintenance)
    yield ("xidwatch_injection_accepted", ()), float(snapshot.injection_accepted)
    yield ("xidwatch_rules_reload_success", ()), float(snapshot.rules_reload_success)
    if snapshot.rules_reload_timestamp_s is not None:
        yield ("xidwatch_rules_reload_timestamp_seconds", ()), snapshot.rules_reload_timestamp_s
    unreadable = sum(source.malformed_total for source in snapshot.sources.values())
    for kind, count in {"record": unreadable, **snapshot.parse_failures}.items():
        yield ("xidwatch_parse_failures_total", (("kind", kind),)), float(count)
    for name, source in snapshot.sources.items():
        yield from _source_series(name, source)
    if snapshot.history is not None:
        yield from _history_series(snapshot.history)


def _source_series(name: str, source: SourceState) -> Iterator[tuple[TotalKey, float]]:
    values: dict[str, float] = {
        "up": source.up,
        "records_total": source.records_total,
        "lost_records_total": source.lost_records_total,
        "gaps_total": source.gaps_total,
        "restarts_total": source.restarts_total,
        "untrusted_total": source.untrusted_total,
    }
    if source.last_record_wall_us is not None:
        values["last_record_timestamp_seconds"] = source.last_record_wall_us / 1e6
    for what, value in values.items():
        yield (f"xidwatch_source_{what}", (("source", name),)), float(value)


def _history_series(history: HistoryHealth) -> Iterator[tuple[TotalKey, float]]:
    yield ("xidwatch_history_up", ()), float(history.up)
    yield ("xidwatch_history_backlog", ()), float(history.backlog)
    yield ("xidwatch_history_write_failures_total", ()), float(history.write_failures_total)
    yield ("xidwatch_history_dropped_total", ()), float(history.dropped_total)
    yield ("xidwatch_history_set_aside_total", ()), float(history.set_aside_total)
