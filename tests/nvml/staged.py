"""A whole daemon on the GPUs of a scenario, with a pipe for the kernel's log.

`program` may be another one than xidwatch itself that takes the same options, such as one whose child runs on the library in C.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system.live import DEADLINE_S, Scrape, scrape, until
from xidwatch.nvml.scenario import shipped_scenarios

QUICK = "5 0.2 0.05"
"""`node timing`: deadline, interval, and what lies between two samples, in seconds."""


class Staged:
    """`xidwatch watch --scenario`; what it keeps is in `folder`, for the next one to find."""

    def __init__(self, folder: Path, *options: str, program: Sequence[str] = ("-m", "xidwatch", "watch")) -> None:
        self.folder, self.pipe, self.scenario = folder, folder / "kmsg", folder / "scenario.txt"
        self.run_dir, self.state_dir = folder / "run", folder / "state"
        if not self.pipe.exists():
            os.mkfifo(self.pipe)
        self._seq = time.time_ns() // 1000
        # Opened for both, so that the daemon never finds its end of the pipe closed.
        self._kmsg = os.open(self.pipe, os.O_RDWR)
        (self.run_dir / "state.json").unlink(missing_ok=True)
        command = [
            sys.executable, *program, "--scenario", str(self.scenario), "--kmsg", str(self.pipe),
            "--listen", "127.0.0.1:0", *self.folders(), *options,
        ]  # fmt: skip
        with open(folder / "said", "ab") as out:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def folders(self) -> list[str]:
        """The options of every sub-command that looks at it."""
        return ["--state-dir", str(self.state_dir), "--run-dir", str(self.run_dir)]

    def say(self, *lines: str, before_s: float = 0.0) -> None:
        """The kernel logs these, now or some time ago."""
        for line in lines:
            self._seq += 1
            since_us = time.monotonic_ns() // 1000 - round(before_s * 1e6)
            os.write(self._kmsg, f"4,{self._seq},{since_us},-;{line}\n".encode())

    def state(self) -> dict[str, Any] | None:
        """state.json; None before it is written."""
        assert self.child.poll() is None, (self.folder / "said").read_text(encoding="utf-8")
        try:
            found: dict[str, Any] = json.loads((self.run_dir / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    def wait(self, look: Callable[[dict[str, Any]], Any], deadline_s: float = DEADLINE_S) -> Any:
        """What `look` makes of the state once that is something true."""

        def seen() -> Any:
            state = self.state()
            return look(state) if state is not None else None

        try:
            return until(seen, deadline_s)
        except AssertionError as reason:
            raise AssertionError(f"{reason}\n{json.dumps(self.state(), indent=1)}") from None

    def scrape(self) -> Scrape:
        """Its metrics, now."""
        return scrape(self.wait(lambda state: state["metrics_port"]))

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What another sub-command says about it."""
        command = [sys.executable, "-m", "xidwatch", *arguments, *self.folders()]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)

    def stop(self) -> float:
        """End it; how long that took, in seconds. One that does not end is killed."""
        began_s = time.monotonic()
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise
        finally:
            os.close(self._kmsg)
        return time.monotonic() - began_s


def write_scenario(folder: Path, name: str, *lines: str, timing: str = QUICK) -> None:
    """From the next sample on this scenario holds, with `lines` after it."""
    text = "\n".join([f"include {shipped_scenarios()}/{name}.txt", f"node timing {timing}", *lines, ""])
    (folder / "scenario.new").write_text(text, encoding="ascii")
    (folder / "scenario.new").replace(folder / "scenario.txt")


@contextmanager
def staged(folder: Path, *options: str, program: Sequence[str] = ("-m", "xidwatch", "watch")) -> Iterator[Staged]:
    """A daemon that runs until the end of the block."""
    one = Staged(folder, *options, program=program)
    try:
        yield one
    finally:
        one.stop()
