"""Peak memory of `xidwatch explain` on a big log and in a storm, and whether it counted what is in them.

    python -m bench.memory [--bytes N] [--storm LINES] [--folder FOLDER]

The peak is the kernel's own figure for the process (ru_maxrss): it includes the interpreter and touched pages of mapped files.
Exit status 1 when a count differs from what the generator put in.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.gen_syslog import write_syslog
from bench.measure import explain

MIB = 1 << 20


def explained(log: Path, out: Path) -> tuple[dict[str, Any], float, float]:
    """The report on a log, with wall-clock seconds and peak resident MiB of the whole process.

    Raises:
        RuntimeError: xidwatch ended with neither 0 nor 1.
    """
    command = explain(log)
    start = time.perf_counter()
    with out.open("wb") as sink:
        child = subprocess.Popen(command, stdout=sink)
        _, status, usage = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise RuntimeError(f"xidwatch explain answered {child.returncode}")
    return json.loads(out.read_bytes()), wall_s, usage.ru_maxrss * 1024 / MIB


def counted(report: dict[str, Any]) -> dict[str, int]:
    """The report's faults, in the generator's words."""
    faults: Counter[str] = Counter()
    for event in report["events"]:
        if event["kind"] == "xid":
            faults[f"xid {event['code']}"] += event["lines"]
        else:
            faults[event["kind"]] += event["count"]
    return dict(sorted(faults.items()))


def measure(name: str, folder: Path, **content: int) -> bool:
    """Generate, explain, print one line; True when the counts agree."""
    log = folder / f"{name}.log"
    truth = write_syslog(log, **content)
    report, wall_s, peak_mib = explained(log, folder / f"{name}.json")
    agree = bool(truth["faults"] == counted(report))
    print(
        f"memory: {name}: peak {peak_mib:.0f} MiB, {wall_s:.2f} s, {truth['bytes']} bytes, {truth['lines']} lines, "
        f"{len(report['incidents'])} incidents, counts {'agree' if agree else 'DIFFER'}"
    )
    if not agree:
        print(f"  in the log: {truth['faults']}\n  reported:   {counted(report)}")
    log.unlink()
    return agree


def main() -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="size of the big log")
    parser.add_argument("--storm", type=int, default=1_000_000, metavar="LINES")
    parser.add_argument("--folder", type=Path, help="where the logs go while they are read (default: the temporary folder)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        agree = [
            measure("big", Path(folder), size=asked.bytes, fault_every=30_000, storm=0),
            measure("storm", Path(folder), size=16 * MIB, fault_every=0, storm=asked.storm),
        ]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
