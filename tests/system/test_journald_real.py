"""A journald of the test's own on the real kernel log, in a mount namespace where nobody else sees it."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from xidwatch.core.identity import Identities
from xidwatch.core.record import Record
from xidwatch.sources.journald import JournalSource
from xidwatch.sources.kmsg import KmsgSource

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.journald]
_JOURNALD = Path("/lib/systemd/systemd-journald")
_DEADLINE_S = 60.0
_SETTINGS = """[Journal]
Storage=volatile
RateLimitIntervalSec=0
RuntimeMaxUse={most}
RuntimeMaxFileSize=512K
Audit=
ForwardToWall=no
"""
_BEGIN = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journald.conf.d /run/log/journal /run/systemd/journal &&
printf %s "$SETTINGS" > /run/systemd/journald.conf.d/test.conf && exec {journald}
"""


@dataclass
class Journald:
    """A running journald."""

    pid: int

    @property
    def folder(self) -> Path:
        """Where its files are, seen from outside."""
        return Path(f"/proc/{self.pid}/root/run/log/journal")

    def files(self) -> list[Path]:
        """Its journal files."""
        return sorted(self.folder.glob("*/*.journal"))

    def has_read(self) -> bool:
        """Whether it waits for more."""
        return Path(f"/proc/{self.pid}/wchan").read_text(encoding="ascii").startswith(("ep_poll", "do_epoll"))

    def rotate(self) -> None:
        """Have it begin a new file. Same as: journalctl --rotate."""
        os.kill(self.pid, signal.SIGUSR2)

    def vacuum(self) -> None:
        """Take away all files that are not written to any more. Same as: journalctl --vacuum-files=1."""
        for file in self.files():
            if "@" in file.name:
                file.unlink(missing_ok=True)


def start(most: str) -> Iterator[Journald]:
    """Run one until the test ends."""
    pytest.importorskip("systemd.journal")
    if os.geteuid() != 0 or not _JOURNALD.exists() or shutil.which("unshare") is None:
        pytest.skip("needs root, systemd-journald and unshare")
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _BEGIN.format(journald=_JOURNALD)]
    running = subprocess.Popen(command, env={**os.environ, "SETTINGS": _SETTINGS.format(most=most)})
    journald = Journald(running.pid)
    try:
        until(lambda: bool(journald.files()))
        yield journald
    finally:
        running.terminate()
        running.wait(_DEADLINE_S)


@pytest.fixture
def journald() -> Iterator[Journald]:
    """One with room for everything."""
    yield from start("64M")


@pytest.fixture
def small_journald() -> Iterator[Journald]:
    """One that keeps four small files and takes older ones away."""
    yield from start("2M")


@pytest.fixture
def word() -> str:
    """A word that no other test writes."""
    return f"xidwatch-test-{secrets.token_hex(4)}"


def until(true: Callable[[], bool]) -> None:
    """Wait for something that has no descriptor to wait on."""
    end = time.monotonic() + _DEADLINE_S
    nothing = select.poll()
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        nothing.poll(5)


def say(*texts: str) -> None:
    """Write lines into the kernel's log, each through a descriptor of its own (kernel.printk_devkmsg)."""
    for text in texts:
        with open("/dev/kmsg", "w", encoding="ascii") as kmsg:
            kmsg.write(f"<7>{text}\n")


class Follower:
    """Reads a source as the loop does: whenever its bell rings."""

    def __init__(self, source: JournalSource) -> None:
        self.source = source
        self.read: list[Record] = []
        self._poll = select.poll()
        self._poll.register(source.fileno(), select.POLLIN)

    def follow(self, last: str) -> list[str]:
        """Read until the record with this text has come; gives all texts so far."""
        end = time.monotonic() + _DEADLINE_S
        while not any(one.text == last for one in self.read[-5000:]):
            assert time.monotonic() < end, f"{last!r} did not come; {self.source.health()}"
            if self._poll.poll(1000):
                self.read += self.source.read()
        return [one.text for one in self.read]

    def numbers(self, word: str) -> list[int]:
        """The numbers of the numbered lines so far, as they came."""
        return [int(one.text.rpartition(" ")[2]) for one in self.read if one.text.startswith(f"line of {word} ")]


def begun(journald: Journald, word: str) -> Follower:
    """A reader that has seen everything that journald found in the ring when it started."""
    follower = Follower(opened(journald))
    say(f"begin of {word}")
    follower.follow(f"begin of {word}")
    return follower


def rotated(journald: Journald, files: int) -> Callable[[], bool]:
    """Whether it has more files than before."""
    return lambda: len(journald.files()) > files


def opened(journald: Journald, resume: str | None = None) -> JournalSource:
    """A source on its files."""
    return JournalSource(resume, str(journald.folder), retry_s=[0.05])


def spoken(texts: list[str], word: str) -> list[str]:
    """Ours among them. journald takes `word:` for an identifier, so the word stands inside the text."""
    return [text for text in texts if word in text]


def test_both_sources_tell_the_same(journald: Journald, word: str) -> None:
    """A line has one identity, whether /dev/kmsg or the journal brought it."""
    say(*(f"line of {word} {number % 3}" for number in range(50)), f"NVRM: Xid (PCI:0000:01:00): 79, {word}", f"end of {word}")
    follower = Follower(opened(journald))
    follower.follow(f"end of {word}")
    kmsg = KmsgSource(retry_s=[0.05])
    from_kmsg: list[Record] = []
    while some := kmsg.read():
        from_kmsg += some
    ids = [Identities(), Identities()]
    both = [{ids[side].of(one) for one in read if word in one.text} for side, read in enumerate((follower.read, from_kmsg))]
    assert 52 == len(both[0])
    assert both[0] == both[1]
    assert {"no"} == {one.trusted for one in follower.read if word in one.text}
    assert follower.source.health().untrusted_total >= 1
    kmsg.close()
    follower.source.close()


def test_rotation_and_vacuum_under_load(journald: Journald, word: str) -> None:
    """While files are rotated and taken away behind the reader, every line comes once and in order."""
    follower = begun(journald, word)
    before = follower.source.health()
    for turn in range(12):
        files = len(journald.files())
        say(*(f"line of {word} {turn * 200 + number}" for number in range(100)))
        journald.rotate()
        say(*(f"line of {word} {turn * 200 + 100 + number}" for number in range(100)), f"pause {turn} of {word}")
        follower.follow(f"pause {turn} of {word}")
        until(rotated(journald, files))
        journald.vacuum()
    assert list(range(2400)) == follower.numbers(word)
    assert replace(before, records_total=0, last_record_wall_us=None) == replace(
        follower.source.health(), records_total=0, last_record_wall_us=None
    )
    follower.source.close()


def test_vacuum_before_we_could_read(journald: Journald, word: str) -> None:
    """What was taken away unread is missing, but never without a word."""
    follower = begun(journald, word)
    for turn in range(4):
        files = len(journald.files())
        say(*(f"line of {word} {turn * 300 + number}" for number in range(300)))
        until(journald.has_read)
        journald.rotate()
        until(rotated(journald, files))
        journald.vacuum()
    say(f"end of {word}")
    follower.follow(f"end of {word}")
    numbers = follower.numbers(word)
    assert sorted(set(numbers)) == numbers
    assert follower.source.health().gaps_total > 0 or list(range(1200)) == numbers
    follower.source.close()


def test_flood_through_a_small_journal(small_journald: Journald, word: str) -> None:
    """While journald itself takes old files away, no line comes twice or out of order, and none is missing in silence."""
    follower = begun(small_journald, word)
    before = follower.source.health().lost_records_total
    for number in range(10_000):
        say(f"line of {word} {number}")
        if number % 100 == 0:
            follower.read += follower.source.read()
    say(f"end of {word}")
    follower.follow(f"end of {word}")
    numbers = follower.numbers(word)
    health = follower.source.health()
    assert sorted(set(numbers)) == numbers
    assert health.gaps_total > 0 or 10_000 - len(numbers) <= health.lost_records_total - before
    assert 0 == health.restarts_total
    follower.source.close()


def test_lines_that_journald_missed(journald: Journald, word: str) -> None:
    """What the ring overwrote while journald stood still is counted as lost."""
    follower = begun(journald, word)
    before = follower.source.health().lost_records_total
    os.kill(journald.pid, signal.SIGSTOP)
    try:
        written = fill_the_ring(word)
    finally:
        os.kill(journald.pid, signal.SIGCONT)
    say(f"end of {word}")
    follower.follow(f"end of {word}")
    missing = written - len(follower.numbers(word))
    assert 0 < missing <= follower.source.health().lost_records_total - before
    follower.source.close()


def fill_the_ring(word: str) -> int:
    """Write numbered lines until the first of them is overwritten. Returns how many were written."""
    kmsg = KmsgSource(retry_s=[0.05])
    while kmsg.read():
        pass
    last, written = int(kmsg.position().rpartition(":")[2]), 0
    kmsg.close()
    while written < 200_000:
        say(*(f"line of {word} {number}" for number in range(written, written + 500)))
        written += 500
        probe = KmsgSource(retry_s=[0.05])
        oldest = probe.read(1)[0].seq
        probe.close()
        if oldest > last + 200:
            return written
    raise AssertionError("the ring did not fill")


def test_resumes_across_rotation(journald: Journald, word: str) -> None:
    """A new source goes on behind the position, also when its file has been rotated meanwhile."""
    say(f"one of {word}", f"two of {word}")
    first = Follower(opened(journald))
    first.follow(f"two of {word}")
    position = first.source.position()
    first.source.close()
    files = len(journald.files())
    journald.rotate()
    until(rotated(journald, files))
    say(f"three of {word}")
    second = Follower(opened(journald, position))
    assert [f"three of {word}"] == spoken(second.follow(f"three of {word}"), word)
    assert 0 == second.source.health().gaps_total
    second.source.close()


def test_position_that_was_vacuumed(journald: Journald, word: str) -> None:
    """When the place to resume from is gone, reading goes on with what is left, and that is said."""
    say(f"one of {word}")
    first = Follower(opened(journald))
    first.follow(f"one of {word}")
    position = first.source.position()
    first.source.close()
    for number in range(2):
        files = len(journald.files())
        journald.rotate()
        until(rotated(journald, files))
        journald.vacuum()
        say(f"later {number} of {word}")
    second = Follower(opened(journald, position))
    texts = second.follow(f"later 1 of {word}")
    assert f"one of {word}" not in texts
    assert 1 == second.source.health().gaps_total
    second.source.close()


def test_comes_back_when_the_files_were_removed(journald: Journald, word: str) -> None:
    """Removed files stop the source; when journald writes again it goes on, and repeats nothing."""
    say(f"one of {word}")
    follower = Follower(opened(journald))
    follower.follow(f"one of {word}")
    for file in journald.files():
        file.unlink()
    until(lambda: bool(follower.source.read()) or not follower.source.health().up)
    assert "no journal files" in (follower.source.health().why or "")
    journald.rotate()
    until(lambda: bool(journald.files()))
    say(f"two of {word}")
    texts = follower.follow(f"two of {word}")
    assert [f"one of {word}", f"two of {word}"] == spoken(texts, word)
    assert (True, 1) == (follower.source.health().up, follower.source.health().restarts_total)
    follower.source.close()
