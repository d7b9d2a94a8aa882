"""What the daemon costs while nothing happens: resident memory, CPU and wake-ups of all its threads.

Usage: python -m bench.idle [SECONDS=30]

A FIFO that stays silent stands for /dev/kmsg, so that other programs' kernel lines do not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTLE_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def wakeups(pid: int) -> int:
    """How often any of its threads has gone to sleep of its own will: once a wake-up."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text(encoding="ascii").splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return total


def resident_mib(pid: int) -> float:
    """Resident set, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main(seconds: float) -> int:
    """Measure one daemon and print the figures. Returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        fifo = Path(folder) / "kmsg"
        os.mkfifo(fifo)
        silent = os.open(fifo, os.O_RDWR)
        command = [sys.executable, "-m", "xidwatch", "watch", "--source", "kmsg", "--kmsg", str(fifo),
                   "--listen", "127.0.0.1:0", "--state-dir", f"{folder}/state", "--run-dir", f"{folder}/run"]  # fmt: skip
        daemon = subprocess.Popen(command)
        try:
            time.sleep(SETTLE_S)
            cpu, woken, began = cpu_s(daemon.pid), wakeups(daemon.pid), time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - began
            print(f"idle for {took:.0f} s: {resident_mib(daemon.pid):.1f} MiB resident, "
                  f"{100 * (cpu_s(daemon.pid) - cpu) / took:.3f} % of a core, "
                  f"{(wakeups(daemon.pid) - woken) / took:.2f} wake-ups a second")  # fmt: skip
        finally:
            daemon.terminate()
            daemon.wait(timeout=20)
            os.close(silent)
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0))
