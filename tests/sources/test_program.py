"""What other programs say, within a time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from xidwatch.sources.program import ask


def test_each_ending_has_its_own_word(tmp_path: Path) -> None:
    """Got, not there, not permitted and failed are told apart by what the program and the kernel say."""
    closed = tmp_path / "closed"
    closed.write_text("not a program", encoding="utf-8")
    assert ("got", b"yes\n") == (ask(("echo", "yes"), 10).outcome, ask(("echo", "yes"), 10).output)
    assert "not there" == ask(("cat", "/nowhere/at/all"), 10).outcome
    assert "not there" == ask(("no-such-program-here",), 10).outcome
    assert "not permitted" == ask((str(closed),), 10).outcome
    assert "not permitted" == ask(("sh", "-c", "echo 'cat: x: Permission denied' >&2; exit 1"), 10).outcome
    assert ("failed", "sh ended with 3") == (ask(("sh", "-c", "exit 3"), 10).outcome, ask(("sh", "-c", "exit 3"), 10).why)


def test_one_that_never_ends_is_left_alone() -> None:
    """It gets SIGTERM, which it ignores; nobody waits for it, and the whole lines that it wrote are kept."""
    said = ask(("sh", "-c", "trap '' TERM; echo $$; printf half; exec sleep 600"), 2.0)
    assert said.why is not None and "it is left alone" in said.why
    pid = int(said.why.partition("(pid ")[2].partition(")")[0])
    os.kill(pid, signal.SIGKILL)
    assert ("timed out", f"{pid}\n".encode()) == (said.outcome, said.output)


def test_endless_output_is_cut() -> None:
    """More than 16 MiB is taken and not kept."""
    said = ask(("head", "-c", "20000000", "/dev/zero"), 60)
    assert ("got", "cut at 16 MiB") == (said.outcome, said.why)
    assert len(said.output) < 17 << 20
