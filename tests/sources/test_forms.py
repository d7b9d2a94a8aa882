"""Forms of a log that need more than its lines: order, line ends, entries of several lines, copies beside each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sources.test_logfile import inputs
from xidwatch.core.record import Record
from xidwatch.sources.bugreport import Deduplicator

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."
BLOCK = (
    "INFO: task python3:2201 blocked for more than 122 seconds.",
    "      Tainted: P           OE     6.8.0-60-generic #63-Ubuntu",
    '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    "task:python3         state:D stack:0     pid:2201  tgid:2201  ppid:2100   flags:0x00004006",
    "Call Trace:",
    " <TASK>",
    " __schedule+0x3c2/0x1580",
    " nvidia_unlocked_ioctl+0x21b/0x890 [nvidia]",
    " </TASK>",
)


@pytest.mark.parametrize("front", ["Nov 20 02:13:41 n kernel: ", "[  100.000000] ", ""])
def test_reversed_report_of_one_second_is_turned(tmp_path: Path, front: str) -> None:
    """Where all lines share one time, the order of a kernel's report tells that the log is upside down."""
    log = tmp_path / "kern.log"
    log.write_text("".join(f"{front}{line}\n" for line in reversed(BLOCK)))
    assert [line.strip() for line in BLOCK] == [text.strip() for text in inputs(log).texts]
    log.write_text("".join(f"{front}{line}\n" for line in BLOCK))
    assert [line.strip() for line in BLOCK] == [text.strip() for text in inputs(log).texts]


def test_carriage_returns_end_lines(tmp_path: Path) -> None:
    """A log whose lines end with a carriage return alone has lines all the same."""
    log = tmp_path / "kern.log"
    log.write_bytes(b"".join(b"Nov 20 02:13:4%d n kernel: %s\r" % (n, XID.encode()) for n in range(5)))
    assert [XID] * 5 == inputs(log).texts


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_entries_of_several_lines(tmp_path: Path, *, newest_first: bool, indent: int | None) -> None:
    """A JSON array is read in the order of time, and its entries are numbered by their lines."""
    entries = [
        {"jsonPayload": {"message": f"NVRM: Xid (PCI:0000:{n}b:00): 79, x"}, "timestamp": f"2026-11-20T02:13:4{n}Z"}
        for n in range(5)
    ]
    log = tmp_path / "log.json.txt"
    log.write_text(json.dumps(entries[::-1] if newest_first else entries, indent=indent))
    read = inputs(log)
    assert [f"NVRM: Xid (PCI:0000:{n}b:00): 79, x" for n in range(5)] == read.texts
    lines = [2 + 6 * n if indent else 1 for n in range(5)]
    assert (lines[::-1] if newest_first else lines) == [record.line for record in read.records]


@pytest.mark.parametrize("uptime", ["[  100.500000] ", ""])
def test_copy_that_says_when_and_where_is_kept(tmp_path: Path, uptime: str) -> None:
    """Of kern.log, dmesg and dmesg -T of one boot every line counts once, with its wall time and its host."""
    (tmp_path / "dmesg").write_text(f"[  100.500000] {XID}\n")
    (tmp_path / "dmesg-T").write_text(f"[Fri Nov 20 02:13:43 2026] {XID}\n")
    (tmp_path / "kern.log").write_text(f"Nov 20 02:13:41 gpu07 kernel: {uptime}{XID}\n")
    read = inputs(tmp_path)
    assert [(XID, "gpu07", "log")] == [(record.text, record.host, record.time_source) for record in read.records]
    assert ["dmesg", "dmesg-T", "kern.log"] == [Path(report.path).name for report in read.reports]


def test_ring_buffer_knows_more_than_the_log(tmp_path: Path) -> None:
    """A line of dmesg that the log beside it lacks is kept, also where its text stands in the log at another time."""
    (tmp_path / "dmesg").write_text(f"[  100.500000] {XID}\n[ 9100.500000] {XID}\n")
    (tmp_path / "kern.log").write_text(f"Nov 20 02:13:41 gpu07 kernel: [  100.500000] {XID}\n")
    assert [100_500_000, 9_100_500_000] == [record.since_boot_us for record in inputs(tmp_path).records]


def test_same_uptime_on_two_hosts_is_two_lines() -> None:
    """printk's clock tells doubles only within a host and a boot."""

    def at(seq: int, host: str | None, boot_id: str | None = None) -> Record:
        return Record(text=XID, seq=seq, stream=seq, since_boot_us=5_000_000, host=host, boot_id=boot_id, timed=True)

    doubles = Deduplicator()
    assert [False, False, True] == [doubles.seen(record) for record in (at(0, "a"), at(1, "b"), at(2, None))]
    boots = Deduplicator()
    assert [False, False, True] == [boots.seen(record) for record in (at(0, "a", "1" * 32), at(1, "a", "2" * 32), at(2, "a"))]


def test_first_line_of_a_boot_counts_once_in_a_bug_report() -> None:
    """The kernel's first line has no time since boot that tells it from other boots', but its text does."""
    logged = Record(text="Linux version 6.8", seq=1, stream=0, wall_us=1, time_source="log", since_boot_us=0, timed=True)
    ring = Record(text="Linux version 6.8", seq=2, stream=1, since_boot_us=0, timed=True)
    doubles = Deduplicator(by_text=True)
    assert [False, True] == [doubles.seen(logged), doubles.seen(ring)]
