"""Write a syslog as a GPU node fills it, and tell what is in it.

    python -m bench.gen_syslog OUT [--bytes N] [--fault-every LINES] [--storm LINES]

Almost every line is everyday noise, part of it with words that a careless pattern takes for GPU faults.
About one line in --fault-every begins a real fault: an Xid on one of eight GPUs, or a hung task with its stack.
--storm puts that many lines of one Xid 95 in the middle, all within a few seconds.
Same arguments, same bytes. Standard output gets one JSON object: bytes, lines, and how many of each fault,
counted as `xidwatch explain` counts them (printed lines for an Xid, occurrences for a hung task).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

HOST = "gpu-node-17"
START = datetime(2026, 3, 2, 6, 0, tzinfo=timezone.utc)
LINES_PER_SECOND = 40
NOISE = (
    "systemd[1]: Finished Rotate log files.",
    "sshd[{n}]: Disconnected from user ops 192.0.2.44 port {p}",
    "kubelet[{n}]: I0302 06:00:00.{p:06d} {n} kubelet.go:2445] \"SyncLoop (PLEG): event for pod\" pod=\"serving/decode-{p}\"",
    "containerd[{n}]: time=\"2026-03-02T06:00:00Z\" level=info msg=\"StopContainer returns successfully\" id={p:08x}",
    "kernel: [@] docker0: port 1(veth{p:06x}) entered disabled state",
    "kernel: [@] perf: interrupt took too long (2519 > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
    "kernel: [@] IPv6: ADDRCONF(NETDEV_CHANGE): veth{p:06x}: link becomes ready",
    "chronyd[{n}]: Selected source 192.0.2.1 (ntp.example.net)",
    "dcgm-exporter[{n}]: time=\"2026-03-02T06:00:00Z\" level=info msg=\"Collecting DCP Metrics\" gpus=8 request={p}",
    "vllm[{n}]: INFO 03-02 06:00:00 loggers.py:122] Engine 000: Running: {p} reqs, Waiting: 0 reqs, GPU KV cache usage: 63.4%",
)  # fmt: skip
LOOK_ALIKES = (
    "dhclient[{n}]: DHCPACK of 192.0.2.17 from 192.0.2.1 (xid=0x{p:08x})",
    "kernel: [@] r8169 0000:05:00.0 eth0: RTL8168h/8111h, 04:d9:f5:00:00:01, XID 541, IRQ 134",
    "zookeeper[{n}]: INFO [main:FileSnap@83] - Reading snapshot /var/lib/zookeeper/version-2/snapshot.{p:x} zxid: 0x{n:x}",
    'postgres[{n}]: WARNING: database "jobs" must be vacuumed within {p} transactions, oldest xid far behind',
    "nfsd[{n}]: rpc: bad xid {p:08x} in reply, retrying",
    "trainer[{n}]: step {p}: process blocked on the data loader for 3 s, memory 71 GiB of 80 GiB",
)
NOISE_POOL, FIRST_PID = 4096, 20_000
BUSES = (0x07, 0x0B, 0x48, 0x4C, 0x88, 0x8B, 0xC8, 0xCB)
XIDS = {
    31: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_2 faulted @ 0x7f21_4a000000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "Ch 00000010",
    45: "Ch 00000012",
    63: "Row Remapper: New row (0x00000000012ab000) marked for remapping, reset gpu to activate.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    109: "Ch 00000020, errorString CTX SWITCH TIMEOUT, Info 0x2c014",
}  # fmt: skip
STORM = (
    "kernel: [@] NVRM: Xid (PCI:0000:07:00): 95, pid=4711, name=vllm, Uncontained: LTC (0x{slice:x},0x1). RST: Yes, D-RST: No"
)
HUNG_TASK = (
    "INFO: task {name}:{pid} blocked for more than 120 seconds.",
    "      Tainted: P           OE      6.8.0-79-generic #79-Ubuntu",
    "\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.",
    "task:{name:<15} state:D stack:0     pid:{pid} tgid:{pid} ppid:{parent}   task_flags:0x400040 flags:0x00004006",
    "Call Trace:",
    " <TASK>",
    " __schedule+0x2c6/0x7a0",
    " schedule+0x27/0xf0",
    " schedule_preempt_disabled+0x15/0x30",
    " __mutex_lock.constprop.0+0x3f8/0x7a0",
    " nvidia_unlocked_ioctl+0x1b2/0x880 [nvidia]",
    " __x64_sys_ioctl+0xa0/0xf0",
    " </TASK>",
)  # fmt: skip


class Syslog:
    """The lines in order of time, second by second, and the truth about them in `faults`."""

    def __init__(self, fault_every: int) -> None:
        self.faults: Counter[str] = Counter()
        self.lines = 0
        self._chance = LINES_PER_SECOND / fault_every if fault_every else 0.0
        self._dice = random.Random(20260302)
        self._second = 0
        self._pid = FIRST_PID
        templates = NOISE * 3 + LOOK_ALIKES
        self._noise = [
            self._dice.choice(templates).format(n=self._dice.randrange(300, 60_000), p=self._dice.randrange(1, 1_000_000))
            for _ in range(NOISE_POOL)
        ]

    def second(self) -> str:
        """The next second's lines: noise, and now and then a fault among them."""
        bodies = self._dice.choices(self._noise, k=LINES_PER_SECOND)
        if self._dice.random() < self._chance:
            at = self._dice.randrange(LINES_PER_SECOND)
            bodies[at:at] = self._fault()
        return self._stamped(bodies)

    def storm(self, lines: int) -> Iterator[str]:
        """One uncontained memory error, printed anew for each access that meets the poison."""
        self.faults["xid 95"] += lines
        for first in range(0, lines, 10_000):
            last = min(first + 10_000, lines)
            yield self._stamped(STORM.format(slice=n % 96) for n in range(first, last))

    def _fault(self) -> list[str]:
        self._pid += 1
        if self._dice.random() < 0.2:
            self.faults["hung_task"] += 1
            values = {"name": "vllm_worker", "pid": self._pid, "parent": self._pid - 7}
            return ["kernel: [@] " + line.format(**values) for line in HUNG_TASK]
        xid = self._dice.choice(tuple(XIDS))
        self.faults[f"xid {xid}"] += 1
        bus = self._dice.choice(BUSES)
        return [f"kernel: [@] NVRM: Xid (PCI:0000:{bus:02x}:00): {xid}, pid={self._pid}, name=python3, {XIDS[xid]}"]

    def _stamped(self, bodies: Iterable[str]) -> str:
        at = START + timedelta(seconds=self._second)
        head = f"{at:%b} {at.day:>2} {at:%H:%M:%S} {HOST} "
        block = [head + body for body in bodies]
        self.lines += len(block)
        uptime = f"[{86_400 + self._second:>6}.500000]"
        self._second += 1
        return "\n".join(block).replace("[@]", uptime) + "\n"


def write_syslog(out: Path, size: int, fault_every: int, storm: int) -> dict[str, object]:
    """Write at least `size` bytes and answer {bytes, lines, faults: {"xid 31": printed lines, "hung_task": occurrences}}."""
    log, written, storm_at = Syslog(fault_every), 0, size // 2
    with out.open("w", encoding="ascii") as file:
        while written < size or storm:
            if storm and written >= storm_at:
                for block in log.storm(storm):
                    written += file.write(block)
                storm = 0
            written += file.write(log.second())
    return {"bytes": written, "lines": log.lines, "faults": dict(sorted(log.faults.items()))}


def main() -> None:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--fault-every", type=int, default=30_000, metavar="LINES", help="0: none")
    parser.add_argument("--storm", type=int, default=0, metavar="LINES")
    asked = parser.parse_args()
    print(json.dumps(write_syslog(asked.out, asked.bytes, asked.fault_every, asked.storm)))


if __name__ == "__main__":
    main()
