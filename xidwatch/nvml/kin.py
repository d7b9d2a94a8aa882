"""One child process on two pipes, none of whose methods waits for it; and the children that an earlier daemon left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from xidwatch.nvml.child import NAME
from xidwatch.nvml.protocol import MOST_BYTES
from xidwatch.ownpython import own_python

_READ_BYTES = 1 << 16
_MOST_READS = 16
_ABANDONED: list[subprocess.Popen[bytes]] = []
"""Children that outlive their client: nobody waits for them, and the interpreter need not complain."""


class Child:
    """A process that answers lines with lines."""

    def __init__(self, command: Sequence[str], ready: select.epoll) -> None:
        """Start it. `ready` becomes readable when it has spoken or ended.

        Raises:
            OSError: it cannot be started.
        """
        self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._in, self._out, self._ready = self._popen.stdin, self._popen.stdout, ready
        for pipe in (self._in, self._out):
            os.set_blocking(pipe.fileno(), False)
        ready.register(self._out.fileno(), select.EPOLLIN)
        self._part = b""
        self.pid = self._popen.pid

    def send(self, line: bytes) -> str | None:
        """Give it a line; why that was not possible, or None. A pipe takes 4,096 bytes whole or not at all."""
        try:
            sent = os.write(self._in.fileno(), line)
        except OSError as reason:
            return str(reason)
        return None if sent == len(line) else "it did not take the whole question"

    def lines(self) -> list[bytes]:
        """The whole lines that it has said since."""
        found: list[bytes] = []
        for _ in range(_MOST_READS):
            if self._out.closed:
                break
            try:
                said = os.read(self._out.fileno(), _READ_BYTES)
            except BlockingIOError:
                break
            if not said:
                self._close_output()
                break
            *whole, self._part = (self._part + said).split(b"\n")
            found += whole
            if len(self._part) > MOST_BYTES:
                found.append(self._part[:100])
                self._part = b""
        return found

    def ended(self) -> str | None:
        """How it ended (`signal 9`, `code 1`); None while it lives. Call `lines` first for its last words."""
        code = self._popen.poll()
        if code is None:
            return None
        return f"signal {-code}" if code < 0 else f"code {code}"

    @property
    def silent(self) -> bool:
        """Its output has ended."""
        return self._out.closed

    @property
    def dismissed(self) -> bool:
        """Its input has ended: it ends as soon as it can."""
        return self._in.closed

    def dismiss(self) -> None:
        """End its input."""
        self._in.close()

    def terminate(self) -> None:
        """Send SIGTERM; in D state it waits there until the driver lets go, and SIGKILL would do no more."""
        self._popen.send_signal(signal.SIGTERM)

    def let_go(self) -> None:
        """Close both pipes; a child that still lives stays behind."""
        self.dismiss()
        self._close_output()
        if self._popen.poll() is None:
            _ABANDONED.append(self._popen)

    def _close_output(self) -> None:
        if not self._out.closed:
            self._ready.unregister(self._out.fileno())
            self._out.close()


def own_command(scenario: Path | None = None) -> tuple[str, ...]:
    """What starts xidwatch's own child; with a scenario, whose `at` counts from now, one that asks no GPU but plays it."""
    played = () if scenario is None else ("--scenario", str(scenario), str(time.time()))
    return own_python("from xidwatch.nvml.child import main; main()", str(os.getpid()), *played)


def left_overs() -> tuple[int, ...]:
    """Children of an earlier daemon that still live in our own control group: their parent is no longer the one in their name.

    Reads names only: arguments and environment of a task in D state may themselves not be readable without waiting.
    """
    return tuple(pid for pid in sorted(_group_members()) if _orphan_state(pid) not in (None, "Z", "X"))


def blocked_anywhere() -> tuple[int, ...]:
    """Children that anybody on this machine left behind, and that are in D state: another would join them there."""
    return tuple(pid for pid in sorted(_all_processes()) if _orphan_state(pid) == "D")


def started_us(pid: int) -> int | None:
    """Wall clock of a process's start; None when it has ended (proc(5), the 22nd field of stat, in ticks since boot)."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time_ns() // 1000 - round(age_s * 1e6)


def _orphan_state(pid: int) -> str | None:
    """The state of a child whose parent is gone; None for any other process."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # proc(5): pid (comm) state ppid ...; the name may hold spaces and brackets.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        name, rest = stat.split("(", 1)[1].rsplit(")", 1)
        state, parent = rest.split()[:2]
        if name.startswith(NAME) and int(name.removeprefix(NAME)) != int(parent):
            return state
    return None


def _group_members() -> list[int]:
    """Pids in our control group: of version 2, or of systemd's own hierarchy of version 1."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number != "0" and controllers != "name=systemd":
                continue
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
                members = Path(f"{root}{path}", "cgroup.procs")
                if members.exists():
                    return [int(pid) for pid in members.read_text(encoding="ascii").split()]
    return _all_processes()


def _all_processes() -> list[int]:
    """Pids of all that we may see."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
