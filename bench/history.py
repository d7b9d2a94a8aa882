"""What the history costs the loop, how fast it reaches the disk, and how long a start with a full file takes.

    python -m bench.history [--entries N] [--folder FOLDER]

The stream is a storm: one append after the other, waiting only when half the backlog is used, each entry an Xid of its own.
The pauses are what a second thread sees that wakes every millisecond, as the loop would: the worst is the longest stall.
Exit status 1 when an entry or a total is missing.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from xidwatch.core.codec import encode
from xidwatch.core.event import Event, XidDetail
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.sinks.history import Entry, History, Limits, TotalKey, read_history

ALL: TotalKey = ("faults_total", (("class", "memory"), ("severity", "critical")))
_TEXT = "NVRM: Xid (PCI:0000:{bus:02x}:00): 95, pid=1234, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, {number}"


def storm_entry(number: int) -> Entry:
    """The entry of one Xid 95 on one of eight GPUs."""
    pci = PciAddress(0, 0x3B + number % 8, 0)
    text = _TEXT.format(bus=pci.bus, number=number)
    record = Record(
        text=text, seq=number, since_boot_us=number, wall_us=1_800_000_000_000_000 + number, boot_id="b" * 32, trusted="kernel"
    )
    event = Event(
        uid=(0, number, 0), kind="xid", code=95, pci=pci, pid=1234, process="python3", record=record, last_record=record,
        detail=XidDetail(message=text[60:]),
    )  # fmt: skip
    return Entry(
        identity=f"{number:016x}", source="kmsg", position=f"{'b' * 32}:{number}", wall_us=record.wall_us,
        boot_id=record.boot_id, item=encode(event), totals=(("xid_events_total", (("gpu", str(pci)), ("xid", "95"))), ALL),
    )  # fmt: skip


def stall_ms(stop: threading.Event) -> list[float]:
    """Pauses beyond one millisecond that a thread sees until it is told to stop."""
    pauses, last = [], time.perf_counter()
    while not stop.wait(0.001):
        now = time.perf_counter()
        pauses.append(1000 * (now - last) - 1)
        last = now
    return pauses


def measure_storm(path: Path, entries: int) -> bool:
    """Append, wait for the disk, print; True when all of it is there."""
    storm = [storm_entry(number) for number in range(entries)]
    history = History.open(path, Limits(size_bytes=10 << 30))
    gc.collect()
    gc.freeze()  # the prepared storm is no part of the measurement
    stop, pauses, appends = threading.Event(), [0.0], []
    watcher = threading.Thread(target=lambda: pauses.extend(stall_ms(stop)))
    watcher.start()
    start = time.perf_counter()
    for entry in storm:
        before = time.perf_counter()
        history.append(entry)
        appends.append(time.perf_counter() - before)
        if history.health().backlog > 5000:
            history.flush(60)
    history.flush(60)
    took_s = time.perf_counter() - start
    stop.set()
    watcher.join()
    whole = history.totals()[ALL] == entries and history.health().dropped_total == 0
    history.close(60)
    appends.sort()
    print(
        f"history: storm of {entries}: {entries / took_s:,.0f} entries/s on the disk, "
        f"{path.stat().st_size / entries:.0f} bytes each; "
        f"append median {1e6 * statistics.median(appends):.0f} us, p99 {1e6 * appends[int(0.99 * entries)]:.0f} us; "
        f"worst pause of another thread {max(pauses):.0f} ms"
    )
    return whole


def measure_start(path: Path, entries: int) -> None:
    """Open what the storm left, and read it."""
    start = time.perf_counter()
    history = History.open(path, Limits(size_bytes=10 << 30))
    opened_s = time.perf_counter() - start
    start = time.perf_counter()
    recent = sum(1 for _ in history.recent_entries())
    recent_s = time.perf_counter() - start
    start = time.perf_counter()
    read = sum(1 for _ in read_history(path))
    read_s = time.perf_counter() - start
    history.close(60)
    print(
        f"history: a file of {path.stat().st_size / 1e6:.0f} MB: checked and loaded in {opened_s:.2f} s, "
        f"{recent} entries for replay in {recent_s:.2f} s, all {read} of {entries} read in {read_s:.2f} s"
    )


def measure_limit(path: Path, entries: int) -> bool:
    """A storm into a file at its limit; True when the file stays there and the totals count on."""
    limit = path.stat().st_size // 2
    history = History.open(path, Limits(size_bytes=limit, poll_s=0.01))
    start = time.perf_counter()
    for number in range(entries, entries + entries // 2):
        history.append(storm_entry(number))
        if history.health().backlog > 5000:
            history.flush(60)
    history.flush(60)
    took_s = time.perf_counter() - start
    whole = history.totals()[ALL] == entries + entries // 2
    deadline_s = time.monotonic() + 60
    while path.stat().st_size > 1.1 * limit and time.monotonic() < deadline_s:
        history.advance("kmsg", f"idle:{time.monotonic_ns()}")
        history.flush(1)
    history.close(60)
    print(
        f"history: storm of {entries // 2} into a file over its limit: {entries / 2 / took_s:,.0f} entries/s, "
        f"limit {limit / 1e6:.0f} MB, file {path.stat().st_size / 1e6:.0f} MB"
    )
    return whole and path.stat().st_size < 1.1 * limit


def measure_silence(path: Path) -> None:
    """CPU and disk writes of a history that has nothing to do for ten seconds."""
    program = (
        "import sys, time, threading; from pathlib import Path; from xidwatch.sinks.history import History\n"
        "history = History.open(Path(sys.argv[1])); threading.Event().wait(1)\n"
        "io = lambda: [int(l.split()[1]) for l in open('/proc/self/io') if l.startswith('write_bytes')][0]\n"
        "cpu, wrote = time.process_time(), io(); threading.Event().wait(10)\n"
        "print(f'history: ten idle seconds: {1000 * (time.process_time() - cpu):.1f} ms CPU, {io() - wrote} bytes written')"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)


def main() -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, help="where the file goes (default: the temporary folder)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder, "history.db")
        whole = measure_storm(path, asked.entries)
        measure_start(path, asked.entries)
        measure_silence(path)
        whole = measure_limit(path, asked.entries) and whole
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
