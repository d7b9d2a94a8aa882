"""The live kernel log, with a pipe in the place of /dev/kmsg."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from xidwatch.core.record import Record
from xidwatch.sources.kmsg import KmsgSource
from xidwatch.sources.printk_clock import PrintkClock
from xidwatch.sources.ringbuffer import running_boot_id

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
DEADLINE_S = 10.0


def rings(source: KmsgSource, within_s: float = DEADLINE_S) -> bool:
    """Whether the loop would be woken within the time."""
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def record(seq: int, text: str = "text", priority: int = 4) -> bytes:
    """One record as the kernel prints it."""
    return f"{priority},{seq},{1_000_000 + seq},-;{text}\n".encode()


@dataclass
class Pipe:
    """A FIFO and its writing end."""

    path: Path
    writer: int = -1

    def begin(self) -> None:
        """Open it for writing; a reader must be there."""
        self.writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)

    def write(self, *records: bytes) -> None:
        """Write some records at once."""
        os.write(self.writer, b"".join(records))

    def end(self) -> None:
        """Close the writing end."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    """A FIFO that nobody has opened."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    pipe = Pipe(path)
    yield pipe
    pipe.end()


@pytest.fixture
def source(pipe: Pipe) -> Iterator[KmsgSource]:
    """A source on the open pipe."""
    source = KmsgSource(str(pipe.path), retry_s=[0.01])
    pipe.begin()
    yield source
    source.close()


def seqs(records: list[Record]) -> list[int]:
    """Their numbers."""
    return [one.seq for one in records]


def test_record_has_both_clocks_boot_and_host(source: KmsgSource, pipe: Pipe) -> None:
    """A record carries number, boot, node, microseconds since boot, wall clock, and that the kernel wrote it."""
    pipe.write(record(7, XID))
    assert rings(source)
    (read,) = source.read()
    assert (XID, 7, running_boot_id(), os.uname().nodename) == (read.text, read.seq, read.boot_id, read.host)
    assert (1_000_007, "boot_offset", "kernel") == (read.since_boot_us, read.time_source, read.trusted)
    assert read.wall_us is not None


def test_nothing_there_is_no_record_and_no_ring(source: KmsgSource, pipe: Pipe) -> None:
    """Reading an empty source gives nothing at once, and the loop sleeps on."""
    pipe.write(record(1))
    assert [1] == seqs(source.read())
    assert [] == source.read()
    assert not rings(source, 0)


def test_no_more_than_asked_and_the_rest_rings(source: KmsgSource, pipe: Pipe) -> None:
    """What was not taken keeps the loop awake until it is."""
    pipe.write(*(record(seq) for seq in range(5)))
    assert [0, 1, 2] == seqs(source.read(3))
    assert rings(source, 0)
    assert [3, 4] == seqs(source.read(3))
    assert [] == source.read()
    assert not rings(source, 0)


def test_record_cut_by_the_pipe_is_put_together(source: KmsgSource, pipe: Pipe) -> None:
    """Half a record waits for its other half."""
    whole = record(1, XID)
    pipe.write(whole[:20])
    assert [] == source.read()
    pipe.write(whole[20:])
    assert [XID] == [one.text for one in source.read()]


def test_gaps_are_lost_records_to_the_record(source: KmsgSource, pipe: Pipe) -> None:
    """Numbers left out are counted, wherever they are missing; those before the first were before our time."""
    pipe.write(record(100), record(101), record(105), record(106), record(1106))
    assert [100, 101, 105, 106, 1106] == seqs(source.read())
    assert 3 + 999 == source.health().lost_records_total


def test_malformed_records_are_counted_and_passed_over(source: KmsgSource, pipe: Pipe) -> None:
    """Nonsense, bytes that are no text and a record without a time end nothing; a number that can be read is not lost."""
    pipe.write(record(1), b"nonsense\n", b"\xff\xfe\x00\n", b"4,2,x,-;text\n", b" SUBSYSTEM=pci\n", record(3))
    assert [1, 3] == seqs(source.read())
    assert (3, 0, True) == (source.health().malformed_total, source.health().lost_records_total, source.health().up)


def test_injected_lines_are_not_trusted(source: KmsgSource, pipe: Pipe) -> None:
    """A line with another facility is handed out untrusted; it counts only if it would have been read for a fault's."""
    pipe.write(record(1, XID, priority=11), record(2, "systemd[1]: Started x.", priority=30), record(3, XID))
    assert ["no", "no", "kernel"] == [one.trusted for one in source.read()]
    assert (1, 3) == (source.health().untrusted_total, source.health().records_total)


def test_comes_back_when_its_device_was_gone(source: KmsgSource, pipe: Pipe) -> None:
    """A source whose device goes says so, opens it again by itself, and repeats and misses nothing."""
    pipe.write(record(1), record(2))
    assert [1, 2] == seqs(source.read())
    pipe.end()
    assert rings(source)
    assert [] == source.read()
    assert (False, 0) == (source.health().up, source.health().restarts_total)
    assert "writer" in (source.health().why or "")
    assert rings(source)
    assert [] == source.read()
    assert (True, 1, None) == (source.health().up, source.health().restarts_total, source.health().why)
    pipe.begin()
    pipe.write(record(1), record(2), record(5))
    assert [5] == seqs(source.read())
    assert (2, 3) == (source.health().lost_records_total, source.health().records_total)


def test_waits_for_a_device_that_is_not_there_yet(tmp_path: Path) -> None:
    """A missing device is no error: the source is down and looks again, waiting longer each time, until it is there."""
    path = tmp_path / "kmsg"
    source = KmsgSource(str(path), retry_s=[0.01, 0.02])
    for _ in range(3):
        assert rings(source)
        assert [] == source.read()
        assert not source.health().up
    os.mkfifo(path)
    assert rings(source)
    assert [] == source.read()
    assert source.health().up
    source.close()


def test_down_source_is_not_opened_before_its_time(tmp_path: Path) -> None:
    """Asking a source that is down changes nothing until its bell rings."""
    source = KmsgSource(str(tmp_path / "kmsg"), retry_s=[3600])
    os.mkfifo(tmp_path / "kmsg")
    assert [] == source.read()
    assert not source.health().up
    source.close()


def test_resumes_behind_its_position(pipe: Pipe) -> None:
    """What was handed out before the restart is not repeated; what was overwritten meanwhile is counted."""
    first = KmsgSource(str(pipe.path))
    pipe.begin()
    pipe.write(record(5), record(6))
    first.read()
    position = first.position()
    assert f"{running_boot_id()}:6" == position
    second = KmsgSource(str(pipe.path), position)
    pipe.write(record(5), record(6), record(9))
    assert [9] == seqs(second.read())
    assert 2 == second.health().lost_records_total
    first.close()
    second.close()


def test_position_of_another_boot_reads_all(pipe: Pipe) -> None:
    """After a reboot every record is new, and the first ones that the ring no longer has are lost."""
    source = KmsgSource(str(pipe.path), f"{'0' * 32}:4711")
    pipe.begin()
    assert f"{'0' * 32}:4711" == source.position()
    pipe.write(record(2), record(3))
    assert [2, 3] == seqs(source.read())
    assert 2 == source.health().lost_records_total
    source.close()


def test_position_that_is_none_begins_anew(pipe: Pipe) -> None:
    """A position that cannot be read is as good as none."""
    source = KmsgSource(str(pipe.path), "nonsense")
    pipe.begin()
    pipe.write(record(900))
    assert [900] == seqs(source.read())
    assert 0 == source.health().lost_records_total
    source.close()


def test_wall_clock_that_is_set_carries_over(pipe: Pipe) -> None:
    """The wall clock is asked at every read."""
    hands = {"wall": 1_790_000_000_000_000, "monotonic": 50_000_000}
    source = KmsgSource(str(pipe.path), clock=PrintkClock(lambda: hands["wall"], lambda: hands["monotonic"]))
    pipe.begin()
    pipe.write(record(1), record(2))
    assert [1_790_000_000_000_000 - 50_000_000 + 1_000_001] == [one.wall_us for one in source.read(1)]
    hands["wall"] += 3_600_000_000
    assert [1_790_003_600_000_000 - 50_000_000 + 1_000_002] == [one.wall_us for one in source.read(1)]
    source.close()


def test_drift_of_printks_clock_is_seen_from_records_that_arrive_live() -> None:
    """A record that comes as it is written shows how far the clock has drifted; one that waited does not spoil that."""
    hands = {"wall": 2_000_000_000_000_000, "monotonic": 1_000_000_000_000}
    clock = PrintkClock(lambda: hands["wall"], lambda: hands["monotonic"])
    clock.look()
    assert (2_000_000_000_000_000 - 7_000_000, 100 + 1 - 0.001) == pytest.approx(clock.tell(999_993_000_000), abs=0.01)
    clock.arrived(999_993_000_000)  # seven seconds behind
    assert (2_000_000_000_000_000, 1.0) == clock.tell(999_993_000_000)
    hands["monotonic"] += 60_000_000
    hands["wall"] += 60_000_000
    clock.look()
    clock.arrived(1_000_013_000_000)  # we were stopped for 40 seconds
    told, _ = clock.tell(1_000_013_000_000)
    assert 2_000_000_020_000_000 == pytest.approx(told, abs=10_000)
