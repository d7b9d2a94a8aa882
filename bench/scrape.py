"""How long a scrape takes on a node where much has happened, and how many series it has.

    python -m bench.scrape [SCRAPES]

Each scrape is of a snapshot that was never asked for before, over HTTP on the loopback. Fails above 10 ms (median).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path

from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import Engine
from xidwatch.core.record import Record
from xidwatch.rulefiles import load_rules
from xidwatch.sinks.history import HistoryHealth, TotalKey
from xidwatch.sinks.metrics import Snapshot, counters_for, exposition, incident_counter, timestamp_of, zero_totals
from xidwatch.sinks.web import WebServer

LIMIT_MS = 10.0
CODES = (13, 31, 43, 45, 48, 61, 62, 63, 64, 69, 74, 79, 92, 94, 95, 109, 119, 120, 121, 154)
"""Twenty that a fleet sees."""
SLICES = 7
_GPUS = tuple(f"0000:{bus:02x}:00" for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF))
_START_US = 1_790_000_000_000_000
_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source that is well."""

    up: bool = True
    why: str | None = None
    records_total: int = 123_456
    lost_records_total: int = 0
    gaps_total: int = 0
    restarts_total: int = 0
    untrusted_total: int = 0
    malformed_total: int = 0
    last_record_wall_us: int | None = _START_US


def busy_node(rules: RuleTable, *, slices: int = 1) -> Snapshot:
    """Eight GPUs, each with every code of CODES in each of its MIG slices (1: no MIG), and all the rest of a scrape."""
    engine = Engine(rules)
    totals: Counter[TotalKey] = Counter()
    times: dict[TotalKey, float] = {}
    wall_us = _START_US
    for number, text in enumerate(_lines(slices)):
        wall_us = _START_US + number * 200_000
        record = Record(
            text=text, seq=number, wall_us=wall_us, since_boot_us=number * 200_000, boot_id="b", trusted="kernel", timed=True
        )
        engine.feed("kmsg", record, wall_us)
        for settled in engine.settle(wall_us, everything=True):
            for key in counters_for(settled.finding) if settled.finding is not None else ():
                totals[key] += 1
                if (last := timestamp_of(key)) is not None:
                    times[last] = wall_us / 1e6
    for change in engine.changes(wall_us):
        totals[incident_counter(change.incident)] += 1
    return Snapshot(
        rules_version="0123abcd4567",
        zeros=zero_totals(rules),
        totals=totals,
        times=times,
        incidents=tuple(engine.incidents.values()),
        driver_actions=dict.fromkeys((f"{gpu}.0" for gpu in _GPUS), 2),
        sources={"kmsg": Source(), "journal": Source()},
        parse_failures={"malformed": 0},
        rules_reload_timestamp_s=_START_US / 1e6,
        history=HistoryHealth(
            up=True, backlog=0, dropped_total=0, write_failures_total=0, set_aside_total=0, damaged_total=0,
            last_error=None, last_write_us=_START_US,
        ),
        latencies={name: (tuple((bound, 7) for bound in _BUCKETS), 77, 1.5) for name in ("kmsg", "journal")},
        readings=dict.fromkeys(_readings(), 1.0),
    )  # fmt: skip


def count_series(page: bytes) -> int:
    """Samples of a page."""
    return sum(not line.startswith(b"#") for line in page.splitlines())


def _lines(slices: int) -> Iterable[str]:
    for code in CODES:
        for gpu in _GPUS:
            for number in range(1, slices + 1):
                at = f"{gpu} GPU-I:{number:02d} GPU-CI:00" if slices > 1 else gpu
                yield f"NVRM: Xid (PCI:{at}): {code}, {_MESSAGES.get(code, 'pid=4242, name=python3, Ch 00000008')}"
    yield "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    yield "INFO: task python3:4242 blocked for more than 122 seconds."


_MESSAGES = {
    79: "pid=4242, name=python3, GPU has fallen off the bus.",
    94: "pid=4242, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    154: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}


def _readings() -> Iterable[TotalKey]:
    """As many series as NVML and /proc would bring."""
    yield "xidwatch_gpus_expected", ()
    for number, bus in enumerate(_GPUS):
        gpu = "gpu", f"{bus}.0"
        uuid, name = ("uuid", f"GPU-{number}"), ("name", "NVIDIA H100 80GB HBM3")
        card = (gpu, uuid, ("index", str(number)), name, ("serial", f"165{number}"), ("driver_version", "570.86.15"))
        yield "xidwatch_gpu_info", card
        yield "xidwatch_gpu_missing", (gpu,)
        yield "xidwatch_row_remap_pending", (gpu,)
        yield "xidwatch_row_remap_failure", (gpu,)
        yield "xidwatch_memory_banks", (gpu, ("spare_rows", "one"))
        yield "xidwatch_throttle_active", (gpu, ("reason", "sw_power_cap"))
        for errors in ("corrected", "uncorrected_dram", "uncorrected_sram", "sram_threshold"):
            yield "xidwatch_ecc_errors_total", (gpu, ("kind", errors))
        for regime in ("memory_bound", "compute_bound", "overhead_bound", "spinning", "idle", "unknown"):
            yield "xidwatch_regime", (gpu, ("regime", regime))
    for source in ("pci", "driver", "nvml"):
        yield "xidwatch_gpus", (("source", source),)
    for attribution in ("gpu", "storage", "network", "other", "unknown"):
        yield "xidwatch_tasks_blocked", (("attribution", attribution),)
        yield "xidwatch_task_blocked_seconds_max", (("attribution", attribution),)
    for what in ("scan_up", "scans_total", "scan_cpu_seconds_total", "scan_interval_seconds", "scan_tasks", "reads_stuck"):
        yield f"xidwatch_task_{what}", ()
    for what in ("up", "stuck_seconds", "sample_age_seconds"):
        yield f"xidwatch_nvml_{what}", ()
    for result in ("ok", "failed", "timeout"):
        yield "xidwatch_hook_runs_total", (("result", result),)
    yield "xidwatch_hook_last_duration_seconds", ()
    yield "xidwatch_demo", ()


# the measurement


class _Fresh:
    """Gives a snapshot that nobody has seen, so that no answer is a stored one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __call__(self) -> Snapshot:
        return replace(self._snapshot)


def _scrape_ms(port: int, headers: dict[str, str]) -> float:
    start = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers=headers)
    connection.getresponse().read()
    connection.close()
    return 1000 * (time.perf_counter() - start)


def measure(name: str, snapshot: Snapshot, scrapes: int) -> float:
    """Print and give the median in ms of scrapes in the form that Prometheus asks for."""
    server = WebServer("127.0.0.1:0", _Fresh(snapshot))
    server.start()
    ask = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "Accept-Encoding": "gzip"}
    plain = sorted(_scrape_ms(server.port, {}) for _ in range(scrapes))
    packed = sorted(_scrape_ms(server.port, ask) for _ in range(scrapes))
    server.close()
    still = WebServer("127.0.0.1:0", lambda: snapshot)
    still.start()
    with ThreadPoolExecutor(200) as pool:
        many = sorted(pool.map(lambda _: _scrape_ms(still.port, ask), range(1000)))
    still.close()
    page = exposition(snapshot)
    print(f"scrape: {name}: {count_series(page)} series, {len(page) / 1000:.0f} kB")
    for form, times in (("text", plain), ("OpenMetrics, gzip", packed), ("the same from 200 at once, one snapshot", many)):
        print(f"scrape: {name}: {form}: {_told(times)}")
    return max(statistics.median(plain), statistics.median(packed))


def _told(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.1f} ms (99 of 100: {times[len(times) * 99 // 100]:.1f} ms)"


def main() -> int:
    """Command line; see the module's text."""
    scrapes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rules = load_rules(site=Path("/nonexistent"))
    eight = measure("8 GPUs, 20 codes", busy_node(rules), scrapes)
    measure("56 MIG instances, 20 codes", busy_node(rules, slices=SLICES), scrapes)
    return 0 if eight < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
