"""How many records a second the daemon takes without losing one that matters, and what each costs.

    python -m bench.flood [RECORDS=300000] [--real]

A pipe stands for /dev/kmsg: it makes its writer wait instead of losing, so the greatest rate is records over the time until
the last is counted. Exit status 1 when a record or an event is missing.
--real (root): the kernel's own ring, written to as fast as one program can, opened anew for each line; what the ring
overwrote before it was read must be told as lost.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence

from bench.watched import Watched, load, on_pipe, watching

_ORDINARY = (
    "docker0: port 1(veth5a3f21c) entered blocking state",
    "eth0: renamed from veth9d1c2ab",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth5a3f21c: link becomes ready",
    'audit: type=1400 audit(1790000000.123:4711): apparmor="STATUS" operation="profile_replace" name="docker-default"',
    "mlx5_core 0000:17:00.0 ens1f0np0: Link settings changed to 200000 Mb/s full duplex",
    "perf: interrupt took too long (3154 > 3141), lowering kernel.perf_event_max_sample_rate to 63250",
    "TCP: request_sock_TCP: Possible SYN flooding on port 8080. Sending cookies.",
    "usb 1-1: new high-speed USB device number 4 using xhci_hcd",
)
GPUS = ("0000:1b:00", "0000:43:00", "0000:52:00", "0000:61:00", "0000:9d:00", "0000:c3:00", "0000:d1:00", "0000:df:00")
_SLICE = 2000


def mixed(first: int, count: int, every: int) -> list[str]:
    """Texts of which each `every`th is an Xid."""
    return [
        f"NVRM: Xid (PCI:{GPUS[n % 8]}): 31, pid={4000 + n // 100_000}, name=python3, Ch 00000008, intr 00000000. MMU Fault: "
        f"ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f32_{n & 0xFFFFFFF:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        if n % every == 0
        else f"{_ORDINARY[n % 8]} {n}"
        for n in range(first, first + count)
    ]


def flood(
    daemon: Watched, slices: Sequence[bytes], write: Callable[[bytes], None], records: int, events: int
) -> tuple[float, float, bool]:
    """Seconds of wall clock and of CPU until all is counted, and whether nothing is missing."""
    before, start = daemon.usage().cpu_s, time.monotonic()
    for one in slices:
        write(one)
    read = daemon.wait_for("xidwatch_source_records_total", records, source="kmsg")
    took_s = time.monotonic() - start
    seen = daemon.wait_for("xidwatch_xid_events_total", events)
    lost = daemon.total("xidwatch_source_lost_records_total", source="kmsg")
    return took_s, daemon.usage().cpu_s - before, (read, seen, lost) == (records, events, 0)


def measure(name: str, records: int, every: int) -> bool:
    """Print one mix's figures; True when nothing was lost."""
    with on_pipe() as (daemon, pipe):
        slices = [pipe.records(mixed(at, _SLICE, every)) for at in range(0, records, _SLICE)]
        took_s, cpu_s, whole = flood(daemon, slices, pipe.write, records, -(-records // every))
        usage = daemon.usage()
        print(
            f"flood: {name}: {records / took_s:,.0f} records/s, {1e6 * cpu_s / records:.2f} us of CPU each, "
            f"{'nothing lost' if whole else 'SOMETHING IS MISSING'}; {usage.main_mib:.1f} MiB resident; {load()}",
            flush=True,
        )
    return whole


def measure_real(lines: int, every: int) -> bool:
    """Print what became of lines written to the device; True when each was read or is told as lost."""
    domain = random.SystemRandom().randrange(0x1000, 0xFFFF)
    with watching("--source", "kmsg", "--accept-injected") as daemon:
        before = daemon.total("xidwatch_source_records_total"), daemon.total("xidwatch_source_lost_records_total")
        start, cpu_s = time.monotonic(), daemon.usage().cpu_s
        for number in range(lines):
            xid = number % every == 0
            text = (
                f"NVRM: Xid (PCI:{domain:04x}:1b:00): 31, pid=7, name=python3, Ch {number:08x}"
                if xid
                else f"ordinary line {number}"
            )
            with open("/dev/kmsg", "w", encoding="ascii") as kmsg:
                kmsg.write(f"<6>{text}\n")
        written_s = time.monotonic() - start
        seen = daemon.wait_for("xidwatch_xid_events_total", lines // every, 5.0, gpu=f"{domain:04x}:1b:00.0")
        read = daemon.wait_for("xidwatch_source_records_total", before[0] + lines, 1.0) - before[0]
        lost = daemon.total("xidwatch_source_lost_records_total") - before[1]
        print(
            f"flood: /dev/kmsg: {lines / written_s:,.0f} lines/s written, {read:.0f} records read (others speak too), "
            f"{lost:.0f} lost, {seen:.0f} of {lines // every} Xids; {1e6 * (daemon.usage().cpu_s - cpu_s) / read:.1f} us "
            f"of CPU each; {load()}"
        )
    return read + lost >= lines and (seen == lines // every or lost > 0)


def main() -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("records", type=int, nargs="?", default=300_000)
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    if options.real:
        return 0 if measure_real(options.records // 10, 100) else 1
    records = options.records
    whole = [
        measure("ordinary records", records, records + 1),
        measure("one Xid in 1,000 records", records, 1000),
        measure("nothing but Xids", records // 10, 1),
    ]
    return 0 if all(whole) else 1


if __name__ == "__main__":
    sys.exit(main())
