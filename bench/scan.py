"""How fast `xidwatch explain` reads logs, beside the tools a person would reach for.

    python -m bench.scan [--bytes N] [--runs N] [--folder FOLDER] [--only WORD]

All commands read the same input in turn, page cache warm, whole processes, report included; the figures are medians.
rg and grep find lines and understand nothing: once with thirteen words that a person would type (`13 words`), once with all
that xidwatch looks for (`all words`). mtail and SEC count lines by rules, lnav reads their times; they take so long that
they are given 100 MB. `cat` into nothing is the floor. A tool that is not installed is left out.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import inputs
from bench.gen_syslog import write_syslog
from bench.measure import MIB, compare, explain
from xidwatch.core.parse import LITERALS

WORDS = (
    "NVRM:", "nvidia-nvswitch", "blocked for more than", "blocked in I/O wait", "soft lockup", "hard LOCKUP", "rcu_sched",
    "rcu_preempt", "Out of memory", "oom-kill:", "PCIe Bus Error", "Hardware Error", "CUDA out of memory",
)  # fmt: skip
PATTERN = "|".join(WORDS)
SPECIAL = re.compile(r"[][().*+?{}|^$\\]")
"""What an extended regular expression takes for more than itself."""
MTAIL = "counter found\n/{pattern}/ {{\n  found++\n}}\n"
SEC = "type=Single\nptype=RegExp\npattern={pattern}\ndesc=found\naction=none\n"
LARGE = 100_000_000


class Bench:
    """The inputs, one after the other, each removed when it has been read."""

    def __init__(self, folder: Path, runs: int, size: int) -> None:
        self._folder = folder
        self._runs = runs
        self._size = size
        self._words = folder / "words"
        self._words.write_text("\n".join(LITERALS) + "\n", encoding="utf-8")
        self._patterns = folder / "patterns"
        self._patterns.write_text("\n".join(SPECIAL.sub(r"\\\g<0>", word) for word in LITERALS) + "\n", encoding="utf-8")

    def plain(self) -> None:
        """A syslog with a fault now and then, and four times as much of it."""
        for times in (1, 4):
            log = self._syslog(self._size * times)
            self._compare(f"syslog {_gib(log)}", log)

    def slow_peers(self) -> None:
        """The same beside the tools that follow rules."""
        log = self._syslog(min(self._size, LARGE))
        mtail, sec = self._folder / "rules.mtail", self._folder / "rules.sec"
        mtail.write_text(MTAIL.format(pattern=PATTERN.replace("/", r"\/")), encoding="ascii")
        sec.write_text(SEC.format(pattern=PATTERN), encoding="ascii")
        argvs = {
            "xidwatch": explain(log),
            "mtail": ["mtail", "-one_shot", "-progs", str(mtail), "-logs", str(log)],
            "sec": ["sec", f"--conf={sec}", f"--input={log}", "--notail", "--fromstart"],
            "lnav": ["lnav", "-n", "-c", f":filter-in {PATTERN}", str(log)],
        }
        compare(f"syslog {_gib(log)}", log.stat().st_size, argvs, 1)
        log.unlink()

    def packed(self) -> None:
        """230 MB of syslog as .gz and .zst."""
        log = self._syslog(min(self._size, 230_000_000))
        size = log.stat().st_size
        for packed, grep in ((inputs.gzipped(log), "zgrep"), (inputs.zstandarded(log), "zstdgrep")):
            argvs = {
                "xidwatch": explain(packed),
                "rg -z 13 words": ["rg", "-zc", PATTERN, str(packed)],
                "rg -z all words": ["rg", "-zcF", "-f", str(self._words), str(packed)],
                f"{grep} 13 words": [grep, "-cE", PATTERN, str(packed)],
            }
            compare(f"{packed.suffix} of {_gib(log)}", size, argvs, self._runs)
            packed.unlink()
        log.unlink()

    def storm(self) -> None:
        """1,000,000 lines of one Xid."""
        log = self._folder / "storm.log"
        write_syslog(log, size=16 * MIB, fault_every=0, storm=max(1000, self._size // 1000))
        self._compare("storm", log)

    def look_alikes(self) -> None:
        """A log in which every tenth line has words of ours and tells of no fault."""
        log = self._folder / "alike.log"
        inputs.look_alikes(log, self._size // 8, every=10)
        self._compare("every tenth looks alike", log)

    def journal(self) -> None:
        """A journal file of 1,000,000 entries."""
        if not inputs.REMOTE.exists():
            print("journal: left out, systemd-journal-remote is not installed")
            return
        path = self._folder / "system.journal"
        inputs.journal(path, entries=max(1000, self._size // 1000))
        grep = ["journalctl", f"--file={path}", "-q", "--grep", PATTERN]
        argvs = {"xidwatch": explain(path), "journalctl --grep": grep, "the same, -k": [*grep, "-k"]}
        compare("journal", path.stat().st_size, argvs, self._runs)
        path.unlink()

    def bug_report(self) -> None:
        """A packed bug report with a kernel log of 50 MB."""
        path = self._folder / "nvidia-bug-report.log.gz"
        inputs.bug_report(path, size=min(self._size, 50_000_000))
        argvs = {"xidwatch": explain(path), "rg -z 13 words": ["rg", "-zc", PATTERN, str(path)]}
        compare("bug report .gz", min(self._size, 50_000_000), argvs, self._runs)
        path.unlink()

    def many(self) -> None:
        """1,000 small files, and the folders of 200 nodes."""
        for what, make, most in (("small files", inputs.small_files, 1000), ("nodes", inputs.nodes, 200)):
            count = most if self._size >= 1 << 30 else most // 10
            title, folder = f"{count:,} {what}", self._folder / what.replace(" ", "-")
            make(folder, count)
            size = sum(path.stat().st_size for path in folder.rglob("*.log"))
            paths = sorted(folder.iterdir()) if make is inputs.nodes else [folder]
            argvs = {
                "xidwatch": explain(*paths),
                "rg 13 words": ["rg", "-c", PATTERN, str(folder)],
                "grep 13 words": ["grep", "-rcE", PATTERN, str(folder)],
            }
            compare(title, size, argvs, self._runs)
            shutil.rmtree(folder)

    def _syslog(self, size: int) -> Path:
        log = self._folder / "sys.log"
        write_syslog(log, size=size, fault_every=30_000, storm=0)
        return log

    def _compare(self, title: str, log: Path) -> None:
        argvs = {
            "xidwatch": explain(log),
            "rg 13 words": ["rg", "-c", PATTERN, str(log)],
            "rg all words": ["rg", "-cF", "-f", str(self._words), str(log)],
            "grep 13 words": ["grep", "-cE", PATTERN, str(log)],
            "grep all words": ["grep", "-cE", "-f", str(self._patterns), str(log)],
            "cat": ["cat", str(log)],
        }
        compare(title, log.stat().st_size, argvs, self._runs)
        log.unlink()


def _gib(log: Path) -> str:
    size = log.stat().st_size
    return f"{size / (1 << 30):.0f} GiB" if size >= 1 << 29 else f"{size / 1e6:.0f} MB"


def main() -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="size of the big log; the others follow it down")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the logs go while they are read (default: the temporary folder)")
    parser.add_argument("--only", help="only the inputs of this name, as in: plain, packed, storm")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        bench = Bench(Path(folder), asked.runs, asked.bytes)
        parts: tuple[Callable[[], None], ...] = (
            bench.plain, bench.slow_peers, bench.packed, bench.storm, bench.look_alikes, bench.journal, bench.bug_report,
            bench.many,
        )  # fmt: skip
        for part in parts:
            if asked.only in (None, part.__name__):
                part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
