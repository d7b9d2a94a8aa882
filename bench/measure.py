"""Whole processes timed in turn, with the kernel's own account of each."""

from __future__ import annotations

import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import xidwatch

MIB = 1 << 20


@dataclass
class Cost:
    """What the runs of one command took: wall-clock and processor seconds of each, and the highest memory of any."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_mib: float = 0.0


@lru_cache(maxsize=1)
def program() -> str:
    """The installed `xidwatch`, with its bytecode at hand as after an installation from a wheel.

    Without it, where PYTHONDONTWRITEBYTECODE is set, each run would translate what was changed last: up to 30 ms.
    """
    compileall.compile_dir(Path(xidwatch.__file__).parent, quiet=1)
    return str(Path(sys.executable).with_name("xidwatch"))


def explain(*paths: Path) -> list[str]:
    """The command that explains these logs."""
    return [program(), "explain", "--format", "json", *map(str, paths)]


def measure(argv: Sequence[str], cost: Cost) -> None:
    """One whole process: seconds, and its peak resident memory with that of its children.

    Output goes into a file: grep stops at the first match when it sees that it writes to /dev/null.

    Raises:
        RuntimeError: it ended with neither 0 nor 1; what crashed early must not look fast.
    """
    with tempfile.TemporaryFile() as sink:
        start = time.perf_counter()
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if argv[0] == "cat" else sink,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"LC_ALL": "C"},
        )
        _, status, usage = os.wait4(child.pid, 0)
    cost.wall_s.append(time.perf_counter() - start)
    cost.cpu_s.append(usage.ru_utime + usage.ru_stime)
    cost.peak_mib = max(cost.peak_mib, usage.ru_maxrss * 1024 / MIB)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise RuntimeError(f"{argv[0]} answered {child.returncode}")


def compare(title: str, size: int, argvs: Mapping[str, Sequence[str]], runs: int) -> None:
    """Run what is installed of these commands in turn, and print a line for each.

    Median seconds on the clock and of the processor, MB/s of `size` bytes, peak memory, and how many times xidwatch's seconds
    each peer's are.
    """
    costs = {name: Cost() for name, argv in argvs.items() if shutil.which(argv[0])}
    for _ in range(runs):
        for name, cost in costs.items():
            measure(argvs[name], cost)
    own = statistics.median(costs["xidwatch"].wall_s)
    for name, cost in costs.items():
        wall_s, cpu_s = statistics.median(cost.wall_s), statistics.median(cost.cpu_s)
        ratio = "" if name == "xidwatch" else f"  xidwatch / it {own / wall_s:5.2f}"
        print(
            f"{title:<24} {name:<16} {wall_s:7.2f} s  cpu {cpu_s:6.2f} s  {size / wall_s / 1e6:6.0f} MB/s  "
            f"peak {cost.peak_mib:4.0f} MiB{ratio}",
            flush=True,
        )
