"""What the daemon costs while nothing happens: memory, CPU and wake-ups, with and without eight GPUs.

    python -m bench.idle [SECONDS=30]

A FIFO that stays silent stands for /dev/kmsg, so that other programs' kernel lines do not count. The GPUs are played from
scenarios/healthy.txt by the process that would ask NVML, every minute as on a node.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.watched import load, on_pipe

_SETTLE_S = 10.0
_SCENARIO = Path(__file__).parent.parent / "scenarios" / "healthy.txt"


def measure(name: str, seconds: float, *options: str) -> None:
    """Print the figures of one daemon."""
    with on_pipe(*options) as (daemon, _):
        time.sleep(_SETTLE_S)
        before, began = daemon.usage(), time.monotonic()
        time.sleep(seconds)
        after, took_s = daemon.usage(), time.monotonic() - began
        print(
            f"idle: {name}: {after.main_mib:.1f} MiB resident, {after.all_mib:.1f} MiB with its children; in {took_s:.0f} s "
            f"{100 * (after.cpu_s - before.cpu_s) / took_s:.3f} % of a core, {(after.wakeups - before.wakeups) / took_s:.2f} "
            f"wake-ups a second; {after.threads} threads, {after.descriptors} descriptors; {load()}",
            flush=True,
        )


def main(seconds: float) -> int:
    """Measure and print. Returns the exit code."""
    measure("no GPU", seconds)
    measure("8 GPUs", seconds, "--scenario", str(_SCENARIO))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0))
