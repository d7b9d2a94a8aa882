"""A daemon, its kernel, its GPUs and its hook, in a folder that is gone afterwards, and the seams through which one looks.

The daemon is `xidwatch watch --scenario`, the hook `xidwatch hook`, both processes of their own. What is seen of them is what
anybody sees: /metrics over HTTP, state.json, the followers' socket, what the hook's program was given, what commands print.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from xidwatch.errors import XidwatchError
from xidwatch.ownpython import own_python

Found = TypeVar("Found")
PATIENCE_S = 20.0
"""How long anything may take on a busy machine before it counts as not happening."""
_LOOK_S = 0.02
_SCRAPE_S = 5.0
_ENDING_S = 10.0
_NVML = "2 1 0.2"
"""Deadline, interval and distance of NVML's samples in seconds: nobody is patient with a demo."""
_HOOK = "import sys; text = sys.stdin.buffer.read().strip(); open(sys.argv[1], 'ab').write(text + b'\\n')"
_XIDWATCH = own_python("from xidwatch.cli import run; run()")
_SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SERVICE = ("STATE_DIRECTORY", "RUNTIME_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What systemd tells a service by its environment: these processes are none of its."""
_PR_SET_PDEATHSIG = 1
_LONGEST_PATH = 60
"""A socket's path has at most 107 characters (unix(7))."""
_pause = threading.Event().wait


class NotAsTold(Exception):
    """xidwatch did not do what the story says it does."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a scrape; `text` as it was scraped."""

    text: str
    name: str
    labels: dict[str, str]
    value: float


class Theatre:
    """Use it as a context manager; nothing of it is left afterwards, whatever happened.

    Attributes:
        heard: What a follower of the daemon was told, in order.
    """

    def __init__(self, *lines: str, patience_s: float = PATIENCE_S) -> None:
        """Nothing is started before it is entered.

        Args:
            lines: The scenario at the beginning.
            patience_s: How long anything may take.
        """
        self._lines, self._patience_s = lines, patience_s
        self._boots = self._seq = 0
        self._last_us = 0
        self._daemon: subprocess.Popen[bytes] | None = None
        self._hook: subprocess.Popen[bytes] | None = None
        self._pen = -1
        self.heard: list[dict[str, Any]] = []

    def __enter__(self) -> Theatre:
        """Make the folder and start daemon and hook.

        Raises:
            XidwatchError: there is no place for it.
        """
        try:
            where = tempfile.gettempdir()
            self.folder = Path(tempfile.mkdtemp(prefix="xidwatch-demo-", dir=where if len(where) < _LONGEST_PATH else "/tmp"))
            os.mkfifo(self.folder / "kmsg", 0o600)
        except OSError as error:
            raise XidwatchError(f"the demo needs a folder for its files: {error}") from error
        try:
            # Read and write: neither side's opening waits, and a reader that ends leaves the pipe open for the next.
            self._pen = os.open(self.folder / "kmsg", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._write_scenario()
            self._start_daemon()
            program = json.dumps([sys.executable, "-c", _HOOK, str(self.folder / "hook-was-told")])
            (self.folder / "hook.toml").write_text(f"[hook]\ncommand = {program}\n", encoding="utf-8")
            self._hook = self._started("hook", "--config", self._path("hook.toml"), "--state-dir", self._path("hook"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End both and remove the folder; a second Ctrl-C does not stop that."""
        with _undisturbed():
            for process in (self._hook, self._daemon):
                _end(process)
            if self._pen >= 0:
                os.close(self._pen)
            shutil.rmtree(self.folder, ignore_errors=True)

    # what happens on the stage

    def kernel(self, lines: Sequence[str]) -> None:
        """The kernel prints these lines, now.

        Source: linux Documentation/ABI/testing/dev-kmsg; 3 is LOG_ERR of facility 0, with which the driver prints.
        """
        self._wait_for_daemon()
        records = bytearray()
        for line in lines:
            self._seq += 1
            self._last_us = max(self._last_us + 1, time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
            records += f"3,{self._seq},{self._last_us},-;{line}\n".encode()
        end = time.monotonic() + self._patience_s
        while records:
            if not select.select([], [self._pen], [], max(0.0, end - time.monotonic()))[1]:
                raise NotAsTold(f"the daemon does not read the kernel's log: {len(records):,} bytes wait")
            with contextlib.suppress(BlockingIOError):
                del records[: os.write(self._pen, records[: select.PIPE_BUF])]

    def gpus(self, *lines: str) -> None:
        """From NVML's next sample on the GPUs are so."""
        self._lines = lines
        self._write_scenario()

    def reboot(self, *lines: str) -> None:
        """The machine goes down and comes up: another boot, the same history, and the GPUs are so."""
        _end(self._daemon)
        self._boots += 1
        self.gpus(*lines)
        self._start_daemon()

    def command(self, *arguments: str) -> str:
        """What another command prints about this daemon.

        Raises:
            NotAsTold: it fails, or does not end in time.
        """
        folders = ("--state-dir", self._path("state"), "--run-dir", self._path("run"))
        try:
            done = subprocess.run(
                [*_XIDWATCH, *arguments, *folders],
                capture_output=True, text=True, check=False, env=_environment(), timeout=self._patience_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise NotAsTold(f"xidwatch {' '.join(arguments)} says nothing for {self._patience_s:g} s") from error
        if done.returncode not in (0, 1):
            raise NotAsTold(f"xidwatch {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    # the seams

    @property
    def url(self) -> str:
        """Where the daemon's metrics are."""
        return f"http://127.0.0.1:{self._port}/metrics"

    def state(self) -> dict[str, Any]:
        """state.json as it is now."""
        with open(self.folder / "run/state.json", encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
        return found

    def incidents(self) -> list[dict[str, Any]]:
        """Those that are not over."""
        found: list[dict[str, Any]] = self.state()["incidents"]
        return found

    def scrape(self) -> list[Series]:
        """All that /metrics says now; asked over HTTP, as Prometheus does."""
        with urllib.request.urlopen(self.url, timeout=_SCRAPE_S) as answer:
            text = answer.read().decode()
        found = ((line, match) for line in text.splitlines() if (match := _SERIES.match(line)))
        return [Series(line, match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])) for line, match in found]

    def series(self, name: str, **labels: str) -> list[Series]:
        """The series of one metric with these labels, now."""
        return [one for one in self.scrape() if one.name == name and labels.items() <= one.labels.items()]

    def hook_was_told(self) -> list[dict[str, Any]]:
        """Messages that the hook's program was given."""
        with contextlib.suppress(FileNotFoundError):
            return [json.loads(line) for line in (self.folder / "hook-was-told").read_bytes().splitlines()]
        return []

    def nvml_children(self) -> list[int]:
        """Processes that the daemon has started for NVML and that live."""
        found = []
        for task in Path(f"/proc/{self._daemon.pid if self._daemon else 0}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in task.read_text(encoding="ascii").split() if _name(pid).startswith("nvml-of-")]
        return found

    def until(self, look: Callable[[], Found | None], what: str) -> Found:
        """What `look` gives once it gives something true.

        Raises:
            NotAsTold: it does not in time; `what` says what should have been.
        """
        end = time.monotonic() + self._patience_s
        while True:
            self._wait_for_daemon()
            with contextlib.suppress(OSError, ValueError):
                if found := look():
                    return found
            if time.monotonic() > end:
                raise NotAsTold(f"within {self._patience_s:g} s this did not come about: {what}")
            _pause(_LOOK_S)

    # within

    def _path(self, name: str) -> str:
        return str(self.folder / name)

    def _write_scenario(self) -> None:
        own = [f"node timing {_NVML}", *([f"node boot_id demo-{self._boots}"] if self._boots else [])]
        new = self.folder / "scenario.new"
        new.write_text("\n".join([*own, *self._lines, ""]), encoding="utf-8")
        new.replace(self.folder / "scenario.txt")

    def _start_daemon(self) -> None:
        self._daemon = self._started(
            "watch", "--scenario", self._path("scenario.txt"), "--kmsg", self._path("kmsg"), "--listen", "127.0.0.1:0",
            "--state-dir", self._path("state"),
        )  # fmt: skip
        began_us = time.time_ns() // 1000
        self._port = self.until(lambda: self._port_since(began_us), "the daemon starts")
        thread = threading.Thread(target=_follow, args=(self.folder / "run/follow.sock", self.heard), daemon=True)
        thread.start()

    def _port_since(self, began_us: int) -> int | None:
        state = self.state()
        port: int | None = state["metrics_port"]
        return port if state["time_us"] >= began_us and state["demo"] is True else None

    def _started(self, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{command}.said", "ab") as out:
            return subprocess.Popen(
                [*_XIDWATCH, command, *arguments, "--run-dir", self._path("run")],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_environment(),
                start_new_session=True,  # Ctrl-C is ours to hear: they end in their order
                preexec_fn=_end_with_parent,  # noqa: PLW1509  # before any thread of ours; so that kill -9 leaves nothing
            )  # fmt: skip

    def _wait_for_daemon(self) -> None:
        if self._daemon is None or self._daemon.poll() is not None:
            said = (self.folder / "watch.said").read_text(encoding="utf-8", errors="replace").strip()
            raise NotAsTold(f"the daemon has ended{': ' + said if said else ''}")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment() -> dict[str, str]:
    hidden = (*_SERVICE, *(name for name in os.environ if name.startswith("FAKE_NVML_")))
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """SIGTERM, and SIGKILL when that is not heeded in time."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _name(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    return ""


def _follow(path: Path, heard: list[dict[str, Any]]) -> None:
    """Take what the daemon says until it hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, contextlib.suppress(OSError, ValueError):
        connection.connect(str(path))
        with connection.makefile("rb") as lines:
            for line in lines:
                heard.append(json.loads(line))
