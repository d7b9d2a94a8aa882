"""How fast `xidwatch explain` reads a big log, beside the tools a person would reach for.

    python -m bench.scan [--bytes N] [--runs N] [--folder FOLDER]

All commands read the same file in turn, page cache warm, whole processes; the figure is the best of the runs.
`cat` into nothing is the floor; grep and rg find lines and understand nothing.
A tool that is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.gen_syslog import write_syslog

LITERALS = (
    "NVRM:", "nvidia-nvswitch", "blocked for more than", "blocked in I/O wait", "soft lockup", "hard LOCKUP", "rcu_sched",
    "rcu_preempt", "Out of memory", "oom-kill:", "PCIe Bus Error", "Hardware Error", "CUDA out of memory",
)  # fmt: skip
PATTERN = "|".join(LITERALS)


def commands(log: Path) -> dict[str, list[str]]:
    """Name -> argument list, of what is installed."""
    explain = str(Path(sys.executable).with_name("xidwatch"))
    every = {
        "cat": ["cat", str(log)],
        "rg -c": ["rg", "-c", PATTERN, str(log)],
        "grep -cE": ["grep", "-cE", PATTERN, str(log)],
        "xidwatch explain": [explain, "explain", "--format", "json", str(log)],
    }
    return {name: argv for name, argv in every.items() if shutil.which(argv[0])}


def wall_s(argv: list[str]) -> float:
    """Wall-clock seconds of one whole process.

    Output goes into a pipe: grep stops at the first match when it sees that it writes to /dev/null.

    Raises:
        RuntimeError: it ended with neither 0 nor 1; what crashed early must not look fast.
    """
    sink = subprocess.DEVNULL if argv[0] == "cat" else subprocess.PIPE
    start = time.perf_counter()
    run = subprocess.run(argv, stdout=sink, check=False, env=os.environ | {"LC_ALL": "C"})
    taken = time.perf_counter() - start
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{argv[0]} answered {run.returncode}")
    return taken


def compare(log: Path, runs: int) -> None:
    """Print one line a command: seconds, GB/s, and the ratio to `cat`."""
    argvs = commands(log)
    times: dict[str, list[float]] = {name: [] for name in argvs}
    for _ in range(runs):
        for name, argv in argvs.items():
            times[name].append(wall_s(argv))
    floor, size = min(times["cat"]), log.stat().st_size
    for name, taken in times.items():
        best = min(taken)
        print(f"scan: {log.name}: {name:<17} {best:6.2f} s  {size / best / 1e9:5.2f} GB/s  {best / floor:5.1f} x cat")


def main() -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the log goes while it is read (default: the temporary folder)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        log = Path(folder) / "big.log"
        write_syslog(log, size=asked.bytes, fault_every=30_000, storm=0)
        compare(log, asked.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
