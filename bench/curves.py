"""How the cost of `xidwatch explain` grows with files, nodes, distinct events and incidents.

    python -m bench.curves [--folder FOLDER]

Each quantity is doubled until it is large; processor seconds and peak memory of the whole process, and what one more costs.
A cost for each that stays the same is a straight line; one that doubles would be a quadratic step.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import inputs
from bench.measure import Cost, explain, measure

CURVES: tuple[tuple[str, Callable[[Path, int], None], tuple[int, ...]], ...] = (
    ("files", inputs.small_files, (125, 250, 500, 1000, 2000)),
    ("nodes", inputs.nodes, (25, 50, 100, 200)),
    ("distinct events", inputs.events, (12_500, 25_000, 50_000, 100_000)),
    ("incidents", inputs.incidents, (1250, 2500, 5000, 10_000)),
)
RUNS = 3


def main() -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the logs go while they are read (default: the temporary folder)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        for title, make, counts in CURVES:
            empty = _cost_s(Path(made) / "empty.log", _empty, 0)[0]
            for count in counts:
                cpu_s, peak_mib = _cost_s(Path(made) / "input", make, count)
                each_us = (cpu_s - empty) / count * 1e6
                print(
                    f"curve: {count:>7,} {title:<16} cpu {cpu_s:6.2f} s  {each_us:7.0f} us each  peak {peak_mib:4.0f} MiB",
                    flush=True,
                )
    return 0


def _empty(path: Path, _count: int) -> None:
    path.write_text("", encoding="ascii")


def _cost_s(path: Path, make: Callable[[Path, int], None], count: int) -> tuple[float, float]:
    """(least processor seconds of some runs, peak MiB)."""
    make(path, count)
    paths = sorted(path.iterdir()) if make is inputs.nodes else [path]
    cost = Cost()
    for _ in range(RUNS):
        measure(explain(*paths), cost)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return min(cost.cpu_s), cost.peak_mib


if __name__ == "__main__":
    sys.exit(main())
