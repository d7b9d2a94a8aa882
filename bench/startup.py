"""How long `xidwatch explain` takes on a log of twenty lines, beyond starting a bare Python.

    python -m bench.startup [RUNS]

The whole process is timed, from its start to its end, in alternation with `python -I -c pass` of the same installation,
so that a slow moment of the machine falls on both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.gen_syslog import Syslog
from bench.measure import program

LINES = 20


def whole_process_s(command: list[str]) -> float:
    """Wall-clock seconds of one run; its output goes nowhere."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    return time.perf_counter() - start


def short_log(path: Path) -> None:
    """Twenty lines, one of them an Xid."""
    log = Syslog(fault_every=0)
    lines = log.second().splitlines()[: LINES - 1] + next(log.storm(1)).splitlines()
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def main() -> int:
    """Command line; see the module's text."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 31
    bare = [sys.executable, "-I", "-c", "pass"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "short.log"
        short_log(log)
        explain = [program(), "explain", str(log)]
        status = subprocess.run(explain, capture_output=True, check=False).returncode
        if status not in (0, 1):
            print(f"startup: xidwatch explain answered {status}")
            return 1
        pairs = [(whole_process_s(bare), whole_process_s(explain)) for _ in range(runs)]
    bare_ms, explain_ms = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    print(
        f"startup: {explain_ms - bare_ms:.0f} ms over bare Python ({explain_ms:.0f} - {bare_ms:.0f} ms, median of {runs} runs)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
