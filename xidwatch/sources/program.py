"""What another program says, within a time: a child that does not end by then is left to itself, since it may be in D state."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from xidwatch.core.evidence import Outcome

_MOST_BYTES = 16 << 20
_ABANDONED: list[subprocess.Popen[bytes]] = []
"""Those that did not end: nobody waits for them, and the interpreter need not complain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What came of it. `why`: one sentence unless it was got whole; `output` what it wrote until then, in whole lines."""

    outcome: Outcome
    output: bytes = b""
    why: str | None = None


def ask(argv: Sequence[str], deadline_s: float) -> Said:
    """Run a program and take what it writes to standard output, at most 16 MiB.

    At the deadline it gets SIGTERM once and nobody waits for it.
    """
    out, theirs = os.pipe()
    wrong, its = os.pipe()
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=its, start_new_session=True, env=_environment()
        )
    except FileNotFoundError:
        _close(out, wrong)
        return Said(outcome="not there", why=f"{argv[0]} is not installed")
    except OSError as reason:
        _close(out, wrong)
        denied = isinstance(reason, PermissionError)
        return Said(outcome="not permitted" if denied else "failed", why=f"{argv[0]}: {reason.strerror}")
    finally:
        _close(theirs, its)
    texts = {out: bytearray(), wrong: bytearray()}
    whole = _read(texts, time.monotonic() + deadline_s)
    _close(out, wrong)
    if not whole or not _ends(child):
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGTERM)
        _ABANDONED.append(child)
        why = f"{argv[0]} (pid {child.pid}) did not end within {deadline_s:g} s; it is left alone"
        return Said(outcome="timed out", output=bytes(texts[out][: texts[out].rfind(b"\n") + 1]), why=why)
    return _judged(argv, child.returncode, bytes(texts[out]), bytes(texts[wrong]).decode("utf-8", "replace").strip())


def _judged(argv: Sequence[str], status: int, output: bytes, complaint: str) -> Said:
    line = complaint.splitlines()[-1] if complaint else None
    if len(output) >= _MOST_BYTES:
        return Said(outcome="got", output=output, why="cut at 16 MiB")
    if status == 0 or (output and not complaint):
        return Said(outcome="got", output=output, why=line)
    low = complaint.lower()
    if "permission denied" in low or "not permitted" in low:
        return Said(outcome="not permitted", output=output, why=line)
    if "no such file" in low:
        return Said(outcome="not there", output=output, why=line)
    return Said(outcome="failed", output=output, why=line or f"{argv[0]} ended with {status}")


def _read(texts: dict[int, bytearray], until_s: float) -> bool:
    """Take both as far as they come until then; gives whether they came to their ends."""
    ready = select.poll()
    for number in texts:
        ready.register(number, select.POLLIN)
    left = set(texts)
    while left:
        wait_s = until_s - time.monotonic()
        if wait_s <= 0:
            return False
        for number, _ in ready.poll(wait_s * 1000):
            piece = os.read(number, 1 << 16)
            if not piece:
                ready.unregister(number)
                left.discard(number)
            elif len(texts[number]) < _MOST_BYTES:
                texts[number] += piece
    return True


def _ends(child: subprocess.Popen[bytes]) -> bool:
    """Whether it ends now that it has closed its output."""
    try:
        child.wait(1.0)
    except subprocess.TimeoutExpired:
        return False
    return True


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _close(*numbers: int) -> None:
    for number in numbers:
        os.close(number)
