"""The real /dev/kmsg of this machine."""

from __future__ import annotations

import os
import secrets
import select
from collections.abc import Iterator

import pytest

from xidwatch.core.record import Record
from xidwatch.sources.kmsg import KmsgSource

pytestmark = [pytest.mark.system, pytest.mark.root]


def say(text: str) -> None:
    """Write one line; opened anew each time, since the kernel takes ten a file only (kernel.printk_devkmsg)."""
    with open("/dev/kmsg", "w", encoding="ascii") as kmsg:
        kmsg.write(f"<7>{text}\n")


def drained(source: KmsgSource) -> list[Record]:
    """Everything that is there now."""
    read: list[Record] = []
    while some := source.read():
        read += some
    return read


def waited(source: KmsgSource, text: str) -> list[Record]:
    """Records up to the one with this text, following the bell."""
    read: list[Record] = []
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    while not any(one.text == text for one in read):
        assert poll.poll(10_000), "no word from the kernel"
        read += source.read()
    return read


@pytest.fixture
def word() -> str:
    """A word that no other test writes."""
    return f"xidwatch-test-{secrets.token_hex(4)}"


@pytest.fixture
def source() -> Iterator[KmsgSource]:
    """A source that has read all there was."""
    if os.geteuid() != 0:
        pytest.skip("not root")
    source = KmsgSource()
    assert source.health().up, source.health().why
    drained(source)
    yield source
    source.close()


def test_lines_of_user_space_arrive_untrusted(source: KmsgSource, word: str) -> None:
    """Lines written into /dev/kmsg come in order, none missing, none believed, counted when they read like a fault's."""
    before = source.health().untrusted_total
    for number in range(200):
        say(f"{word} {number}")
    say(f"NVRM: Xid (PCI:0000:01:00): 79, {word}")
    read = [one for one in waited(source, f"NVRM: Xid (PCI:0000:01:00): 79, {word}") if word in one.text]
    assert [f"{word} {number}" for number in range(200)] == [one.text for one in read[:-1]]
    assert {"no"} == {one.trusted for one in read}
    assert 0 == source.health().lost_records_total
    assert source.health().untrusted_total > before


def test_nothing_to_do_does_not_ring(source: KmsgSource, word: str) -> None:
    """The bell is silent until a line comes and after it was read."""
    say(word)
    waited(source, word)
    drained(source)
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    rung = poll.poll(0)
    assert [] == rung or drained(source)  # another program of this machine may have spoken


def overrun(word: str, position: str) -> int:
    """Write numbered lines until the kernel has overwritten what lay behind the position. Returns how many."""
    written, last = 0, int(position.rpartition(":")[2])
    while written < 200_000:
        for number in range(written, written + 500):
            say(f"{word} {number}")
        written += 500
        probe = KmsgSource()
        oldest = probe.read(1)[0].seq
        probe.close()
        if oldest > last + 200:
            return written
    raise AssertionError("the ring did not fill")


def test_flood_while_we_were_stopped_is_counted_to_the_record(source: KmsgSource, word: str) -> None:
    """When the ring runs over under a reader, the lost count is exactly the numbers that it never saw."""
    say(f"{word} mark")
    waited(source, f"{word} mark")
    position, before = source.position(), source.health()
    last = int(position.rpartition(":")[2])
    written = overrun(word, position)
    read = drained(source)
    lost = source.health().lost_records_total - before.lost_records_total
    assert read[0].seq - last - 1 == lost
    assert read[-1].seq - last == lost + len(read)
    ours = [one.text for one in read if one.text.startswith(word)]
    assert [f"{word} {number}" for number in range(written - len(ours), written)] == ours
    assert written - len(ours) <= lost  # the rest were other programs' lines
    assert (0, 0) == (source.health().malformed_total, source.health().restarts_total)


def test_restart_repeats_nothing_and_counts_what_was_overwritten(source: KmsgSource, word: str) -> None:
    """A new source that resumes goes on behind the position; after an overrun it knows how many it missed."""
    say(f"{word} mark")
    waited(source, f"{word} mark")
    position = source.position()
    say(f"{word} after")
    resumed = KmsgSource(resume=position)
    texts = [one.text for one in drained(resumed)]
    assert f"{word} after" in texts
    assert f"{word} mark" not in texts
    assert 0 == resumed.health().lost_records_total
    resumed.close()
    overrun(word, position)
    late = KmsgSource(resume=position)
    first = late.read(1)[0]
    assert first.seq - int(position.rpartition(":")[2]) - 1 == late.health().lost_records_total > 0
    late.close()
