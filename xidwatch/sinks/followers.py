"""Who follows the daemon: a Unix socket that sends one JSON line a change.

A follower connects, gets what holds now, then every change. It says nothing; whoever does not read is dropped once its
backlog is full, so nobody can make the daemon wait. Anyone on the node may follow: what is sent is in state.json too.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MOST_BACKLOG_BYTES = 4 << 20
_MOST_FOLLOWERS = 64


class Followers:
    """Listens in the daemon's own loop.

    Attributes:
        dropped_total: Followers that were cut off because they did not read.
    """

    def __init__(self, path: Path, selector: selectors.BaseSelector, greeting: Callable[[], list[dict[str, Any]]]) -> None:
        """`greeting` gives what a new follower sees first."""
        self.dropped_total = 0
        self._selector, self._greeting, self._path = selector, greeting, path
        self._backlogs: dict[socket.socket, bytearray] = {}
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._listener.bind(str(path))
        os.chmod(path, 0o666)
        self._own = _which(path)
        self._listener.listen(16)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def anybody(self) -> bool:
        """Whether there is one to publish to."""
        return bool(self._backlogs)

    def publish(self, change: dict[str, Any]) -> None:
        """Send one change to every follower."""
        line = _line(change)
        for follower in list(self._backlogs):
            self._send(follower, line)

    def close(self) -> None:
        """Hang up on everybody and remove the socket, if it is still ours."""
        for follower in list(self._backlogs):
            self._drop(follower)
        self._selector.unregister(self._listener)
        self._listener.close()
        with contextlib.suppress(OSError):
            if _which(self._path) == self._own:
                self._path.unlink()

    def _accept(self, _mask: int) -> None:
        try:
            follower, _address = self._listener.accept()
        except OSError:
            return
        if len(self._backlogs) >= _MOST_FOLLOWERS:
            follower.close()
            return
        follower.setblocking(False)
        self._backlogs[follower] = bytearray()
        self._selector.register(follower, selectors.EVENT_READ, lambda mask: self._serve(follower, mask))
        self._send(follower, b"".join(map(_line, self._greeting())))

    def _serve(self, follower: socket.socket, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(follower)
            if mask & selectors.EVENT_READ and not follower.recv(4096):
                self._drop(follower)
        except BlockingIOError:
            return
        except OSError:
            self._drop(follower)

    def _send(self, follower: socket.socket, lines: bytes) -> None:
        backlog = self._backlogs[follower]
        if len(backlog) + len(lines) > _MOST_BACKLOG_BYTES:
            self.dropped_total += 1
            self._drop(follower)
            return
        backlog += lines
        try:
            self._flush(follower)
        except OSError:
            self._drop(follower)

    def _flush(self, follower: socket.socket) -> None:
        backlog = self._backlogs[follower]
        with contextlib.suppress(BlockingIOError):
            while backlog:
                del backlog[: follower.send(backlog)]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if backlog else 0)
        if (key := self._selector.get_key(follower)).events != wanted:
            self._selector.modify(follower, wanted, key.data)

    def _drop(self, follower: socket.socket) -> None:
        if self._backlogs.pop(follower, None) is not None:
            self._selector.unregister(follower)
            follower.close()


def _which(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
