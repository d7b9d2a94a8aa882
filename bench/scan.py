"""How fast `xidwatch explain` reads big logs, beside the tools a person would reach for.

    python -m bench.scan [--bytes N] [--storm LINES] [--runs N] [--folder FOLDER]

Three inputs: a big syslog with a fault now and then, the same packed with gzip, and a storm of one Xid.
All commands read the same file in turn, page cache warm, whole processes; the figures are medians of the runs.
`cat` into nothing is the floor; rg and grep find lines and understand nothing; mtail counts them; lnav reads their times.
A tool that is not installed is left out.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.gen_syslog import write_syslog

LITERALS = (
    "NVRM:", "nvidia-nvswitch", "blocked for more than", "blocked in I/O wait", "soft lockup", "hard LOCKUP", "rcu_sched",
    "rcu_preempt", "Out of memory", "oom-kill:", "PCIe Bus Error", "Hardware Error", "CUDA out of memory",
)  # fmt: skip
PATTERN = "|".join(LITERALS)
COUNTER = "counter found\n/{pattern}/ {{\n  found++\n}}\n"
"""mtail's program."""
MIB = 1 << 20


@dataclass
class Cost:
    """What the runs of one command took."""

    wall_s: list[float] = field(default_factory=list)
    peak_mib: float = 0.0


def commands(log: Path) -> dict[str, list[str]]:
    """Name -> argument list, of what is installed; the first is the peer that the others are compared with."""
    explain = [str(Path(sys.executable).with_name("xidwatch")), "explain", "--format", "json", str(log)]
    if log.suffix == ".gz":
        every = {"rg -zc": ["rg", "-zc", PATTERN, str(log)], "zgrep -cE": ["zgrep", "-cE", PATTERN, str(log)]}
    else:
        counter = log.with_suffix(".mtail")
        counter.write_text(COUNTER.format(pattern=PATTERN.replace("/", r"\/")), encoding="ascii")
        every = {
            "rg -c": ["rg", "-c", PATTERN, str(log)],
            "grep -cE": ["grep", "-cE", PATTERN, str(log)],
            "cat": ["cat", str(log)],
            "mtail": ["mtail", "-one_shot", "-progs", str(counter), "-logs", str(log)],
            "lnav": ["lnav", "-n", "-c", f":filter-in {PATTERN}", str(log)],
        }
    every["xidwatch explain"] = explain
    return {name: argv for name, argv in every.items() if shutil.which(argv[0])}


def measure(argv: list[str], cost: Cost) -> None:
    """One whole process: wall-clock seconds, and its peak resident memory with that of its children.

    Output goes into a file: grep stops at the first match when it sees that it writes to /dev/null.

    Raises:
        RuntimeError: it ended with neither 0 nor 1; what crashed early must not look fast.
    """
    with tempfile.TemporaryFile() as sink:
        start = time.perf_counter()
        child = subprocess.Popen(
            argv,
            stdout=subprocess.DEVNULL if argv[0] == "cat" else sink,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"LC_ALL": "C"},
        )
        _, status, usage = os.wait4(child.pid, 0)
    cost.wall_s.append(time.perf_counter() - start)
    cost.peak_mib = max(cost.peak_mib, usage.ru_maxrss * 1024 / MIB)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise RuntimeError(f"{argv[0]} answered {child.returncode}")


def compare(log: Path, runs: int) -> None:
    """Print one line a command: median seconds, GB/s of the file, the ratio to the first, peak memory."""
    argvs = commands(log)
    costs = {name: Cost() for name in argvs}
    for _ in range(runs):
        for name, argv in argvs.items():
            measure(argv, costs[name])
    medians = {name: statistics.median(cost.wall_s) for name, cost in costs.items()}
    peer, size = next(iter(argvs)), log.stat().st_size
    for name, wall_s in medians.items():
        ratio = f"{wall_s / medians[peer]:5.2f} x {peer}"
        rate = f"{size / wall_s / 1e9:5.2f} GB/s"
        print(
            f"scan: {log.name:<10} {name:<17} {wall_s:6.2f} s  {rate}  {ratio}  peak {costs[name].peak_mib:.0f} MiB", flush=True
        )


def main() -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--storm", type=int, default=1_000_000, metavar="LINES")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the logs go while they are read (default: the temporary folder)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        big, packed, storm = (Path(folder) / name for name in ("big.log", "big.log.gz", "storm.log"))
        write_syslog(big, size=asked.bytes, fault_every=30_000, storm=0)
        compare(big, asked.runs)
        with big.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as sink:
            shutil.copyfileobj(plain, sink, MIB)
        big.unlink()
        compare(packed, asked.runs)
        packed.unlink()
        write_syslog(storm, size=16 * MIB, fault_every=0, storm=asked.storm)
        compare(storm, asked.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
