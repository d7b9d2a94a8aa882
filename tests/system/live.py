"""A daemon that runs, and how a test looks at it: lines in the kernel's log, a scrape, waiting with a deadline."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.monitoring import free_port

Found = TypeVar("Found")
DEADLINE_S = 30.0
REQUIRED = os.environ.get("XIDWATCH_SYSTEM") == "required"
"""Whether a test that cannot be run here is a failure: so CI cannot lose it silently."""
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_pause = threading.Event().wait


def skip_unless_possible(hindrance: str | None) -> None:
    """Skip the test and say why; fail it where it must run ($XIDWATCH_SYSTEM=required)."""
    if hindrance is not None:
        (pytest.fail if REQUIRED else pytest.skip)(hindrance)


def until(look: Callable[[], Found | None], deadline_s: float = DEADLINE_S, *, what: str = "") -> Found:
    """What `look` gives once it gives something true; it is asked every 10 ms."""
    end = time.monotonic() + deadline_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"not within {deadline_s} s: {what or look}"
        _pause(0.01)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that no other test speaks of: lines stay in the kernel's buffer, and each daemon reads all of it at its start."""

    domain: int = field(default_factory=lambda: random.SystemRandom().randrange(0x1000, 0xFFFF))

    @property
    def label(self) -> str:
        """As metrics spell it."""
        return f"{self.domain:04x}:f3:00.0"

    def xid(self, code: int, pid: int, message: str = "Ch 00000001") -> str:
        """One event as the driver prints it."""
        return f"NVRM: Xid (PCI:{self.domain:04x}:f3:00): {code}, pid={pid}, name=gpu-{self.domain:x}, {message}"


def write_line(text: str) -> None:
    """A line of user space in the kernel's log.

    Opened anew each time, because the kernel limits the rate of each open file; with its newline, because without one the
    kernel keeps the line back until the next, which might continue it.
    """
    with open("/dev/kmsg", "w", encoding="utf-8") as kmsg:
        kmsg.write(f"<4>{text}\n")


class Scrape:
    """One answer of /metrics."""

    def __init__(self, text: str) -> None:
        self.samples = [
            (match[1], dict(_LABEL.findall(match[2] or "")), float(match[3]))
            for match in map(_SAMPLE.match, text.splitlines())
            if match
        ]

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's series that have these labels; 0 when there is none."""
        return sum(value for found, has, value in self.samples if found == name and labels.items() <= has.items())

    def series(self, **labels: str) -> list[str]:
        """Names of the series that have these labels."""
        return sorted({found for found, has, _ in self.samples if labels.items() <= has.items()})


def scrape(port: int) -> Scrape:
    """Ask now; as quickly as Prometheus would expect it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return Scrape(answer.read().decode())


def scraped(port: int) -> Scrape | None:
    """Ask now; None while nobody answers."""
    try:
        return scrape(port)
    except OSError:
        return None


class Daemon:
    """`xidwatch watch`, run directly on the host's kernel log."""

    def __init__(self, folder: Path, *options: str, state_dir: Path | None = None) -> None:
        self.folder, self.port = folder, free_port()
        self.state_dir = state_dir or folder / "state"
        self.said = folder / "said"
        self._options = options
        self.child = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "xidwatch", "watch", "--source", "kmsg", "--listen", f"127.0.0.1:{self.port}",
            "--state-dir", str(self.state_dir), "--run-dir", str(self.folder / "run"), *self._options,
        ]  # fmt: skip
        with open(self.said, "ab") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def scrape(self) -> Scrape:
        """Ask now."""
        return scrape(self.port)

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's series, now."""
        return self.scrape().total(name, **labels)

    def wait_for_start(self) -> None:
        """Until it has read what the kernel's buffer held and answers."""
        until(lambda: scraped(self.port) or self.child.poll(), what="the first scrape")
        assert self.child.poll() is None, self.said.read_text(encoding="utf-8")
        until((self.folder / "run" / "state.json").exists, what="state.json, which is written a moment later")

    def command(self, *arguments: str) -> str:
        """What another sub-command prints about this daemon; `status` also ends with 1 when something is wrong with the node."""
        done = subprocess.run(
            [sys.executable, "-m", "xidwatch", *arguments, "--state-dir", str(self.state_dir), "--run-dir", str(self.folder / "run")],
            capture_output=True, text=True, check=False, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    def stop(self) -> int:
        """End it, and give its exit status; one that does not end is killed."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.child.wait(timeout=DEADLINE_S)


@contextmanager
def daemon(folder: Path, *options: str, state_dir: Path | None = None) -> Iterator[Daemon]:
    """A daemon that runs until the end of the block."""
    one = Daemon(folder, *options, state_dir=state_dir)
    try:
        one.wait_for_start()
        yield one
    finally:
        one.stop()


@contextmanager
def following(run_dir: Path) -> Iterator[list[dict[str, Any]]]:
    """Every message of the daemon's socket, as it comes."""
    messages: list[dict[str, Any]] = []
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(run_dir / "follow.sock"))
    with connection.makefile("rb") as lines:

        def read() -> None:
            for line in lines:
                messages.append(json.loads(line))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield messages
        finally:
            with suppress(OSError):  # the daemon may have hung up
                connection.shutdown(socket.SHUT_RDWR)
            reader.join()
            connection.close()
