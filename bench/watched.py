"""A daemon that the measurements look at: on a pipe that stands for /dev/kmsg or on a real source, with what it uses."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE = re.compile(rb"^(\w+)(\{[^\n]*\})? (\S+)$", re.MULTILINE)
_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes have used or hold.

    Attributes:
        cpu_s: User and system time of all of them so far, in seconds.
        main_mib, all_mib: Resident set of the first process, and the sum of all of them, pages that they share counted twice:
            more than their cgroup would show.
        wakeups: How often any thread has gone to sleep of its own will: once a wake-up.
        descriptors, threads: Of all of them.
    """

    cpu_s: float
    main_mib: float
    all_mib: float
    wakeups: int
    descriptors: int
    threads: int


class Watched:
    """A running daemon. Made by `watching`."""

    def __init__(self, child: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self.child, self.port, self.folder = child, port, folder

    def scrape(self) -> bytes:
        """The page of /metrics, over a connection of its own as Prometheus makes one."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
        return b"".join(parts).partition(b"\r\n\r\n")[2]

    def total(self, metric: str, **labels: str) -> float:
        """The sum of a metric's series that have these labels."""
        wanted = [f'{name}="{value}"'.encode() for name, value in labels.items()]
        return sum(
            float(value)
            for name, has, value in _SAMPLE.findall(self.scrape())
            if name.decode() == metric and all(one in has for one in wanted)
        )

    def wait_for(self, metric: str, value: float, deadline_s: float = _DEADLINE_S, **labels: str) -> float:
        """Until a metric has reached a value; gives what it is then, or at the deadline."""
        end = time.monotonic() + deadline_s
        while (now := self.total(metric, **labels)) < value and time.monotonic() < end:
            time.sleep(0.02)
        return now

    def usage(self) -> Usage:
        """Of the daemon and every process that it has started: its whole cgroup under systemd."""
        pids = _family(self.child.pid)
        return Usage(
            cpu_s=sum(map(_cpu_s, pids)),
            main_mib=_kib(f"/proc/{self.child.pid}/status", "VmRSS") / 1024,
            all_mib=sum(_kib(f"/proc/{pid}/status", "VmRSS") for pid in pids) / 1024,
            wakeups=sum(map(_wakeups, pids)),
            descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
            threads=sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids),
        )


class Pipe:
    """The writing end of a FIFO in the place of /dev/kmsg. Records are numbered as the kernel does."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.seq = 0
        self._descriptor = os.open(path, os.O_RDWR)

    def records(self, texts: list[str]) -> bytes:
        """The next records, numbered and dated now."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        first, self.seq = self.seq, self.seq + len(texts)
        return "".join(
            [f"6,{number},{now_us + number - first},-;{text}\n" for number, text in enumerate(texts, first)]
        ).encode()

    def write(self, records: bytes) -> None:
        """Write them all; waits while the pipe is full."""
        left = memoryview(records)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def close(self) -> None:
        """Hang up."""
        os.close(self._descriptor)


@contextlib.contextmanager
def watching(*options: str, folder: Path | None = None, through: Sequence[str] = ()) -> Iterator[Watched]:
    """A daemon with these further options of `watch`, until the end of the block; started `through` another command."""
    with tempfile.TemporaryDirectory() as own:
        where = folder or Path(own)
        port = _free_port()
        command = [*through, sys.executable, "-m", "xidwatch", "watch", "--listen", f"127.0.0.1:{port}",
                   "--state-dir", f"{where}/state", "--run-dir", f"{where}/run", *options]  # fmt: skip
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            one = Watched(child, port, where)
            _wait_for_start(one)
            yield one
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextlib.contextmanager
def on_pipe(*options: str) -> Iterator[tuple[Watched, Pipe]]:
    """A daemon that reads a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = Pipe(Path(folder) / "kmsg")
        try:
            source = () if "--scenario" in options else ("--source", "kmsg")
            with watching(*source, "--kmsg", str(pipe.path), *options) as daemon:
                yield daemon, pipe
        finally:
            pipe.close()


def load() -> str:
    """How busy the machine is, to be told beside every figure."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _wait_for_start(one: Watched) -> None:
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end and one.child.poll() is None:
        with contextlib.suppress(OSError):
            one.scrape()
            return
        time.sleep(0.05)
    raise RuntimeError("the daemon did not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split():
                found += _family(int(child))
    return found


def _cpu_s(pid: int) -> float:
    """Of its living threads, to the nanosecond (Documentation/scheduler/sched-stats.rst)."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


def _kib(path: str, name: str) -> float:
    lines = Path(path).read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _wakeups(pid: int) -> int:
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # a thread that answered a scrape may be gone
            lines = Path(f"/proc/{pid}/task/{task}/status").read_text(encoding="ascii").splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return total
