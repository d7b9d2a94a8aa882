"""A node's files, read by a process of its own: nothing here waits for a disk, a device or another process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from xidwatch.core.node import Job, Tree
from xidwatch.ownpython import own_python

_RUN = "from xidwatch.sources.nodefiles import main; main(*json.loads(sys.argv[1]))"
_READ_BYTES = 1 << 16
_ABANDONED: list[subprocess.Popen[bytes]] = []
"""Those that did not end: nobody waits for them, and the interpreter need not complain."""


class NodeLook:
    """What one look has told so far.

    Attributes:
        complete: It has told everything.
        clock_synchronized: None where the kernel does not say.
        programs: Pids by name, of those that were asked for; None where not all processes can be seen.
        jobs: Processes that hold a GPU.
    """

    def __init__(self, root: Path, slots: Sequence[str], programs: Sequence[str], variables: Sequence[str]) -> None:
        """Begin. Arguments as of `nodefiles.main`."""
        arguments = json.dumps([str(root), list(slots), list(programs), list(variables)])
        self._part = b""
        self._texts: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        self._at, self._why = "the node's files", "no answer in time"
        self.complete = self.over = False
        self.clock_synchronized: bool | None = None
        self.programs: dict[str, tuple[int, ...]] | None = None
        self.jobs: list[Job] = []
        self._out, theirs = os.pipe()
        os.set_blocking(self._out, False)
        self._popen: subprocess.Popen[bytes] | None = None
        try:
            # Its error output is closed too: a caller that reads ours to the end must not wait for a child that stays behind.
            self._popen = subprocess.Popen(
                own_python(_RUN, arguments),
                stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            self._why = f"no process could be started: {error.strerror}"
        finally:
            os.close(theirs)

    def fileno(self) -> int:
        """Readable when it has told something."""
        return self._out

    def read(self) -> None:
        """Take what it has told; never blocks. `over` is set when nothing more comes."""
        while not self.over:
            try:
                said = os.read(self._out, _READ_BYTES)
            except BlockingIOError:
                return
            self.over = not said
            *whole, self._part = (self._part + said).split(b"\n")
            for line in whole:
                self._take(json.loads(line))

    def tree(self) -> Tree:
        """The files; where it was at when it stopped telling is among the unread."""
        unread = self._unread if self.complete else {**self._unread, self._at: self._why}
        return Tree(texts=self._texts, unread=unread, complete=self.complete)

    def close(self) -> None:
        """Let it go; in D state it stays behind until it is let go itself."""
        os.close(self._out)
        if self._popen is not None and self._popen.poll() is None:
            with contextlib.suppress(OSError):
                self._popen.send_signal(signal.SIGTERM)
            _ABANDONED.append(self._popen)

    def _take(self, told: dict[str, object]) -> None:
        match told:
            case {"path": str(path), "text": str(text)}:
                self._texts[path] = text
            case {"path": str(path), "error": str(why)}:
                self._unread[path] = why
            case {"at": str(where)}:
                self._at = where
            case {"clock": bool() | None as synchronized}:
                self.clock_synchronized = synchronized
            case {"programs": dict(found)}:
                self.programs = {name: tuple(pids) for name, pids in found.items()}
            case {"job": int(pid), "variables": dict(variables)}:
                self.jobs.append(Job(pid=pid, variables=variables))
            case {"done": True}:
                self.complete = True
