"""One daemon for a folder: a second one would take its socket away, and share its kernel lines and history with it.

The claim is an flock(2), which the kernel gives back when its holder is gone, however it ended.
Of a killed holder a thread may stay in D state, and the lock with it: that one is not obeyed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from xidwatch.errors import XidwatchError

_PATIENCE_S = 2.0
_KILLED = 1 << (signal.SIGKILL - 1)


class Claims:
    """Files that nobody else holds until `close`, or until this process ends."""

    def __init__(self, files: Sequence[Path], patience_s: float = _PATIENCE_S) -> None:
        """Take them all; where none can be written, or a disk does not answer, nothing is held, and nobody refused.

        Raises:
            XidwatchError: another daemon, which lives, holds one.
        """
        self._claims = [_Claim(file) for file in files]
        until_s = time.monotonic() + patience_s
        for claim in self._claims:
            claim.known.wait(max(0.0, until_s - time.monotonic()))
        for file, claim in zip(files, self._claims, strict=True):
            if claim.holder is not None:
                self.close()
                raise XidwatchError(
                    f"{file.parent} belongs to another `xidwatch watch` that runs ({claim.holder}): "
                    "stop that one, or give this one folders of its own (--state-dir, --run-dir)"
                )

    def close(self) -> None:
        """Let others have them."""
        for claim in self._claims:
            claim.close()


class _Claim:
    """One file. `known` is set once it is held, refused, or not to be had; `holder` says who refused it."""

    def __init__(self, file: Path) -> None:
        self.known = threading.Event()
        self.holder: str | None = None
        self._file, self._descriptor, self._closed = file, -1, False
        self._lock = threading.Lock()
        # On a frozen disk even opening may not return.
        threading.Thread(target=self._take, name="claim", daemon=True).start()

    def close(self) -> None:
        """Give it back."""
        with self._lock:
            self._closed = True
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def _take(self) -> None:
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o644)
        except OSError:
            self.known.set()
            return
        try:
            self._hold(descriptor)
        except OSError:
            os.close(descriptor)
        finally:
            self.known.set()

    def _hold(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            if not _is_dying(pid):
                self.holder = f"pid {pid}" if pid.isdecimal() else "its pid is not known"
                raise
            self.known.set()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with self._lock:
            if self._closed:
                raise OSError("closed meanwhile")
            self._descriptor = descriptor
        with contextlib.suppress(OSError):  # a full disk: it is held all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _is_dying(pid: str) -> bool:
    """Whether this process has ended or was killed, and only waits for the kernel to let it go (proc(5), status)."""
    if not pid.isdecimal():
        return False
    try:
        told = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    status = dict(line.partition(":")[::2] for line in told.splitlines())
    if status.get("State", "").strip()[:1] in ("Z", "X"):
        return True
    return any(int(status.get(mask, "0"), 16) & _KILLED for mask in ("SigPnd", "ShdPnd"))
