"""A file's content where a file is meant: no device, no pipe, nothing without an end, and nobody waits for a dead disk."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
import time
from pathlib import Path

STATE_BYTES = 16 << 20
"""No state.json of a daemon's comes near it: what it remembers is bounded."""
STATE_S = 1.0
"""A state.json on the memory disk is read in a millisecond; what takes longer is stuck."""
_AT_ONCE = 1 << 16


def read_plain(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger; `strerror` says which.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(file, "rb", closefd=False) as plain:
            content = plain.read(most_bytes + 1)
    finally:
        os.close(file)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes >> 20} MiB", str(path))
    return content


def read_in_time(path: Path, most_bytes: int, within_s: float) -> bytes:
    """The same by a process of its own, which is left behind when it has not told everything in time.

    Raises:
        OSError: as `read_plain`; TimeoutError when its time is up.
    """
    out, theirs = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(out)
        os.close(theirs)
        return read_plain(path, most_bytes)
    if child == 0:
        _tell(path, most_bytes, theirs)
    os.close(theirs)
    try:
        told = _told(out, within_s)
    finally:
        os.close(out)
        _leave(child)
    if told is None:
        raise TimeoutError(errno.ETIMEDOUT, f"not read in {within_s:g} s", str(path))
    number, _, rest = told.partition(b"\n")
    if number == b"0":
        return rest
    if not number:
        raise OSError(errno.EIO, "the process that read it has died", str(path))
    raise OSError(int(number), rest.decode("utf-8", "replace"), str(path))


def read_state_bytes(path: Path) -> bytes:
    """The content of the daemon's state.json.

    Raises:
        OSError: as `read_in_time`.
    """
    return read_in_time(path, STATE_BYTES, STATE_S)


def _tell(path: Path, most_bytes: int, out: int) -> None:
    """In the child: write the error's number, 0 for none, and its words or the content; never returns."""
    try:
        # Whoever reads our parent's output to the end must not wait for a child that stays behind.
        os.closerange(0, out)
        os.closerange(out + 1, os.sysconf("SC_OPEN_MAX"))
        try:
            said = b"0\n" + read_plain(path, most_bytes)
        except OSError as error:
            said = f"{error.errno or errno.EIO}\n{error.strerror or error}".encode("utf-8", "replace")
        while said:
            said = said[os.write(out, said[: 1 << 20]) :]
    finally:
        os._exit(0)


def _told(out: int, within_s: float) -> bytes | None:
    """Everything that the child says; None when it has not ended in time."""
    until_s = time.monotonic() + within_s
    parts: list[bytes] = []
    poll = select.poll()
    poll.register(out, select.POLLIN)
    while (left_s := until_s - time.monotonic()) > 0:
        if not poll.poll(left_s * 1000):
            continue
        part = os.read(out, _AT_ONCE)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None


def _leave(child: int) -> None:
    """Reap it if it has ended, else let it end by itself: in D state nothing else is possible, and nobody waits."""
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        if os.waitpid(child, os.WNOHANG)[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, os.WNOHANG)
