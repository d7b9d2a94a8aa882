"""What the daemon costs while nothing happens: memory, CPU and wake-ups, with and without eight GPUs, and after a bad hour.

    python -m bench.idle [SECONDS=30]

A FIFO that stays silent stands for /dev/kmsg, so that other programs' kernel lines do not count. The GPUs are played from
scenarios/healthy.txt by the process that would ask NVML, every minute as on a node. The bad hour is 1,000 records a second,
and each second an Xid of one of eight kinds on one of the eight GPUs, written as fast as they are taken. Exit status 1 when
one is missing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.flood import GPUS, mixed
from bench.watched import Pipe, Watched, load, on_pipe

_SETTLE_S = 10.0
_SCENARIO = Path(__file__).parent.parent / "scenarios" / "healthy.txt"


_HOUR_S, _RECORDS_A_SECOND = 3600, 1000
_XIDS = (
    "31, pid={pid}, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f32_1000",
    "43, pid={pid}, name=python3, Ch 00000010",
    "45, pid={pid}, name=python3, Ch 00000010",
    "48, pid='<unknown>', name=<unknown>, DBE (double bit error) detected",
    "63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
    "94, pid={pid}, name=python3, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    "109, pid={pid}, name=python3, Ch 00000018, errorString CTX SWITCH TIMEOUT, Info 0x1c008",
    "13, pid={pid}, name=python3, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Illegal Instruction Parameter",
)


def measure(name: str, seconds: float, *options: str, bad_hour: bool = False) -> bool:
    """Print the figures of one daemon; True when it missed nothing."""
    with on_pipe(*options) as (daemon, pipe):
        whole = not bad_hour or _pass_bad_hour(daemon, pipe)
        time.sleep(_SETTLE_S)
        before, began = daemon.usage(), time.monotonic()
        time.sleep(seconds)
        after, took_s = daemon.usage(), time.monotonic() - began
        print(
            f"idle: {name}: {after.main_mib:.1f} MiB resident, {after.all_mib:.1f} MiB with its children; in {took_s:.0f} s "
            f"{100 * (after.cpu_s - before.cpu_s) / took_s:.3f} % of a core, {(after.wakeups - before.wakeups) / took_s:.2f} "
            f"wake-ups a second; {after.threads} threads, {after.descriptors} descriptors; {load()}"
            f"{'' if whole else '; AN XID IS MISSING'}",
            flush=True,
        )
    return whole


def _pass_bad_hour(daemon: Watched, pipe: Pipe) -> bool:
    """Write an hour's records; True when every Xid was counted."""
    for second in range(_HOUR_S):
        xid = _XIDS[second // len(GPUS) % len(_XIDS)].format(pid=4000 + second // 600)
        texts = [
            *mixed(second * _RECORDS_A_SECOND + 1, _RECORDS_A_SECOND - 1, 1 << 60),
            f"NVRM: Xid (PCI:{GPUS[second % 8]}): {xid}",
        ]
        pipe.write(pipe.records(texts))
    return daemon.wait_for("xidwatch_xid_events_total", _HOUR_S) == _HOUR_S


def main(seconds: float) -> int:
    """Measure and print. Returns the exit code."""
    measure("no GPU", seconds)
    measure("8 GPUs", seconds, "--scenario", str(_SCENARIO))
    return 0 if measure("8 GPUs after a bad hour", seconds, "--scenario", str(_SCENARIO), bad_hour=True) else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0))
