"""`xidwatch hook`: runs the site's program for every incident that opens, changes or ends.

A service of its own that follows the daemon's socket, so that the program can neither hold up the watcher nor use its rights.
The program gets one message of `xidwatch.follow/1` on standard input, and no argument but its own: log text is hostile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xidwatch.config import Hook, load_config
from xidwatch.errors import XidwatchError
from xidwatch.hookledger import Ledger, Message
from xidwatch.sinks.service import Service
from xidwatch.sinks.statefile import StateFile

AT_ONCE = 4
"""Programs that run at the same time, each for another incident."""
RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait before the first, second, ... attempt to reach the daemon; the last one goes on."""
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""
_LONGEST_LINE = 16 << 20
_IDLE_S = 10.0
_POLL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `xidwatch hook`."""
    parser.description = (
        "Follows the daemon and runs the program named in [hook] of the configuration for every incident that opens, changes "
        "or ends, with the message as JSON on its standard input. Runs until SIGTERM; waits for a daemon that is not there."
    )
    parser.add_argument("--config", metavar="FILE", help="default: /etc/xidwatch/config.toml, where it exists")
    parser.add_argument("--state-dir", metavar="DIR", help="what the program was told; default: /var/lib/xidwatch-hook")
    parser.add_argument("--run-dir", metavar="DIR", help="where the daemon's socket is; default: /run/xidwatch")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run until told to stop.

    Raises:
        XidwatchError: no program is configured, or it cannot be run.
    """
    environ = {"STATE_DIRECTORY": "/var/lib/xidwatch-hook", **os.environ}
    given = {"state_dir": options.state_dir, "run_dir": options.run_dir}
    config = load_config(Path(options.config) if options.config else None, given, environ)
    if config.hook is None:
        raise XidwatchError("no program to run: name one in the configuration\n[hook]\ncommand = ['/usr/local/sbin/my-hook']")
    program = config.hook.command[0]
    if not os.access(program, os.X_OK) or os.path.isdir(program):
        raise XidwatchError(f"hook.command: {program} is no program that this user can run")
    if config.hook.user is not None and config.hook.user != (own := _own_user()):
        raise XidwatchError(
            f"hook.user is {config.hook.user}, and this runs as {own}: systemctl edit xidwatch-hook, with User= there"
        )
    runner = HookRunner(config.hook, config.run_dir / "follow.sock", config.state_dir)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: runner.stop())
    runner.run()
    return 0


@dataclass(slots=True)
class _Run:
    """One run of the program; times are of the monotonic clock.

    Attributes:
        signals: What was sent to end it: 0 nothing, 1 SIGTERM, 2 SIGKILL.
    """

    child: subprocess.Popen[bytes]
    message: Message
    began_s: float
    deadline_s: float
    signals: int = 0


class HookRunner:
    """One loop: the daemon's socket, and the programs that run.

    Attributes:
        ledger: What is to be told and what was.
    """

    def __init__(self, hook: Hook, path: Path, state_dir: Path, steady_s: Callable[[], float] = time.monotonic) -> None:
        """Nothing is opened before `run`; `path` is the daemon's socket."""
        self.ledger = Ledger(hook.min_severity)
        self._hook, self._path, self._steady_s = hook, path, steady_s
        self._state_dir = state_dir
        self._service = Service()
        self._selector = selectors.DefaultSelector()
        self._connection: socket.socket | None = None
        self._received = bytearray()
        self._failures, self._retry_at_s = 0, 0.0
        self._runs: list[_Run] = []
        self._dropped_told = 0
        self._stopping = threading.Event()
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)

    def stop(self) -> None:
        """End `run` soon; may be called from a signal handler or another thread."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def run(self) -> None:
        """Follow until told to stop."""
        self._restore()
        self._kept = StateFile(self._state_dir / "told.json")
        self._service.ready("waits for the daemon")
        try:
            while not self._stopping.is_set():
                self._connect()
                for key, _mask in self._selector.select(self._timeout_s()):
                    key.data()
                self._end_late()
                self._reap()
                self._begin()
                self._service.alive()
        finally:
            self._service.stopping()
            self._end_all()
            self._disconnect()
            self._kept.close()
            self._selector.close()
            for end in (self._wake_read, self._wake_write):
                end.close()

    # the daemon's socket

    def _connect(self) -> None:
        if self._connection is not None or self._steady_s() < self._retry_at_s:
            return
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            connection.connect(str(self._path))
        except OSError as error:
            connection.close()
            if self._failures == 0:
                _say(f"the daemon does not listen at {self._path}: {error.strerror}; waiting for it")
            self._retry()
            return
        self._connection, self._received = connection, bytearray()
        self._selector.register(connection, selectors.EVENT_READ, self._receive)
        self._service.status("follows the daemon")

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            part = self._connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._lose("the daemon hung up; waiting for it")
            return
        *lines, rest = (bytes(self._received) + part).split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self._take(line)
        if len(rest) > _LONGEST_LINE:
            self._lose("what comes from the daemon's socket is not xidwatch.follow/1")

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            self.ledger.take(message)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _say(f"a line of the daemon's socket cannot be read: {error!r}")
            return
        self._failures = 0

    def _lose(self, why: str) -> None:
        _say(why)
        self._disconnect()
        self._retry()

    def _retry(self) -> None:
        self._retry_at_s = self._steady_s() + RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        self._service.status("waits for the daemon")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._selector.unregister(self._connection)
            self._connection.close()
            self._connection = None

    def _woken(self) -> None:
        self._wake_read.recv(4096)

    def _timeout_s(self) -> float:
        waits = [_IDLE_S]
        if self._connection is None:
            waits.append(self._retry_at_s - self._steady_s())
        if self._runs:
            # A descriptor that tells of a child's end (pidfd_open) needs Linux 5.3, and the nodes have older ones.
            waits.append(_POLL_S)
        return max(0.0, min(waits))

    # the program

    def _begin(self) -> None:
        while len(self._runs) < AT_ONCE and (message := self.ledger.next()) is not None:
            now_s = self._steady_s()
            try:
                child = _start(self._hook.command, json.dumps(message).encode() + b"\n")
            except OSError as error:
                self.ledger.failed(message)
                _say(f"{_about(message)}: {self._hook.command[0]} cannot be run: {error.strerror}")
                continue
            self._runs.append(_Run(child, message, now_s, now_s + self._hook.timeout_s))
        if self.ledger.dropped_total > self._dropped_told:
            _say(f"{self.ledger.dropped_total - self._dropped_told} incidents found no room among those that wait")
            self._dropped_told = self.ledger.dropped_total

    def _reap(self) -> None:
        for one in list(self._runs):
            if not _has_ended(one.child.pid):
                continue
            if one.signals:
                # The child's number is still taken, so that this reaches what it left behind and nobody else.
                _signal(one.child.pid, signal.SIGKILL)
            code = one.child.wait()
            self._runs.remove(one)
            self.ledger.done(one.message)
            self._keep(self.ledger.as_json())
            _say(f"{_about(one.message)}: {_outcome(one, code)} after {self._steady_s() - one.began_s:.1f} s")

    def _keep(self, ledger: dict[str, Any]) -> None:
        self._kept.put(lambda: ledger)

    def _end_late(self) -> None:
        now_s = self._steady_s()
        for one in self._runs:
            if one.signals == 0 and now_s >= one.deadline_s:
                one.signals = 1
                _signal(one.child.pid, signal.SIGTERM)
            elif one.signals == 1 and now_s >= one.deadline_s + GRACE_S:
                one.signals = 2
                _signal(one.child.pid, signal.SIGKILL)

    def _end_all(self) -> None:
        """Those that still run are told again after the next start."""
        for one in self._runs:
            _signal(one.child.pid, signal.SIGTERM)
        limit_s = self._steady_s() + GRACE_S
        for one in self._runs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.child.wait(max(0.0, limit_s - self._steady_s()))
        for one in self._runs:
            if one.child.poll() is None:
                _signal(one.child.pid, signal.SIGKILL)

    def _restore(self) -> None:
        file = self._state_dir / "told.json"
        try:
            self._state_dir.mkdir(parents=True, exist_ok=True)
            self.ledger.restore(json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _say(f"{file} cannot be used, so active incidents are told once more: {error}")


def _own_user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _start(command: tuple[str, ...], message: bytes) -> subprocess.Popen[bytes]:
    """Run the program in a process group of its own, the message on its standard input."""
    descriptor = os.memfd_create("xidwatch-message")
    try:
        # Not a pipe: the program may read it late, in part, or not at all, and nobody waits for that.
        with open(descriptor, "wb", closefd=False) as out:
            out.write(message)
        os.lseek(descriptor, 0, os.SEEK_SET)
        environ = {
            name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        }
        return subprocess.Popen(command, stdin=descriptor, cwd="/", env=environ, start_new_session=True)
    finally:
        os.close(descriptor)


def _has_ended(pid: int) -> bool:
    """Whether our child has ended; it stays there to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _outcome(one: _Run, code: int) -> str:
    if one.signals:
        return "took too long and was ended"
    return f"ended by signal {-code}" if code < 0 else f"exit status {code}"


def _about(message: Message) -> str:
    return f"incident {message['incident']['id']} {message['change']}"


def _say(text: str) -> None:
    from xidwatch.render.layout import visible

    sys.stderr.write(f"xidwatch hook: {visible(text)}\n")
    sys.stderr.flush()
