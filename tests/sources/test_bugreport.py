"""Sections of a bug report, and lines that stand in several of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.sources.test_logfile import inputs
from xidwatch.core.record import Record
from xidwatch.sources.bugreport import Deduplicator, Sections, is_bug_report

RULE = "____________________________________________"
REPORT = f"""{RULE}

Start of NVIDIA bug report log file.  Please include this file, along
with a detailed description of your problem, when reporting a graphics

nvidia-bug-report.sh Version: 36134301

Date: Mon Nov 30 12:00:00 UTC 2026
uname: Linux node01 6.8.0-60-generic
{RULE}

*** /etc/issue
*** ls: -rw-r--r-- 1 root root 26 2026-01-01 00:00:00.000000000 +0000 /etc/issue
NVRM: not a log

{RULE}

*** /var/log/messages
*** ls: -rw-r--r-- 1 root root 26 2026-01-01 00:00:00.000000000 +0000 /var/log/messages
Nov 30 10:00:00 node01 kernel: [  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, x

{RULE}

*** /var/log/syslog does not exist

{RULE}

Scanning kernel log files for NVIDIA kernel messages:

  /var/log/messages:
Nov 30 10:00:00 node01 kernel: [  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, x

  journalctl -b -0:
Nov 30 10:00:00 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x
Nov 30 10:00:05 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 45, y

{RULE}

dmesg:

[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, x
[  105.000001] NVRM: Xid (PCI:0000:3b:00): 45, y
[  106.000001] NVRM: Xid (PCI:0000:3b:00): 45, z
{RULE}

*** /proc/driver/nvidia/./version
*** ls: -r--r--r-- 1 root root 0 2026-11-30 12:00:00.000000000 +0000 /proc/driver/nvidia/./version
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build

"""


def test_only_log_sections_are_read() -> None:
    """Logs, nvidia-smi and the driver's version are content; other files, headers and commands are not."""
    sections = Sections()
    taken = [line for line in REPORT.splitlines() if sections.feed(line) and line.strip()]
    assert "NVRM: not a log" not in taken
    assert 8 == len(taken)
    assert taken[-1].startswith("NVRM version:")


def test_line_in_several_sections_counts_once(tmp_path: Path) -> None:
    """The same line by syslog, journal and ring buffer is one record, though they share no clock."""
    path = tmp_path / "nvidia-bug-report.log"
    path.write_text(REPORT)
    read = inputs(path)
    assert ["79, x", "45, y", "45, z"] == [record.text[-5:] for record in read.records if "Xid" in record.text]
    assert "nvidia-bug-report.log" == read.reports[0].format
    assert len(REPORT.splitlines()) == read.reports[0].records


def test_sections_are_streams_of_their_own(tmp_path: Path) -> None:
    """Each section is a stream, so a block cut at its end is not continued by the next one."""
    path = tmp_path / "nvidia-bug-report.log"
    path.write_text(REPORT)
    streams = [record.stream for record in inputs(path).records if record.text.startswith("NVRM")]
    assert sorted(streams) == streams
    assert 4 == len(set(streams))


def test_head_tells_a_bug_report() -> None:
    """The file says what it is in its first lines."""
    assert is_bug_report(REPORT)
    assert not is_bug_report("Nov 30 10:00:00 node01 kernel: x")


def kept(records: Iterable[Record], doubles: Deduplicator) -> list[int]:
    """`seq` of the records that are no doubles."""
    return [record.seq for record in records if not doubles.seen(record)]


def at(seq: int, stream: int, boot_us: int, text: str = "x") -> Record:
    """A record with printk's time."""
    return Record(text=text, seq=seq, stream=stream, since_boot_us=boot_us, timed=True)


def test_equal_lines_of_one_stream_all_count() -> None:
    """Five equal lines of one stream are five; of the next stream's six, one is new."""
    first = [at(n, 0, 5_000_000) for n in range(5)]
    second = [at(n, 1, 5_000_000) for n in range(6)]
    assert [0, 1, 2, 3, 4, 5] == kept([*first, *second], Deduplicator())


def test_other_times_and_hosts_are_no_doubles() -> None:
    """Another microsecond, another text or another host's second is another line."""
    one = Record(text="x", seq=1, stream=0, wall_us=1_000_000, host="a", time_source="log", timed=True)
    two = Record(text="x", seq=2, stream=1, wall_us=1_000_000, host="b", time_source="log", timed=True)
    assert [1, 2, 3, 4, 5] == kept(
        [one, two, at(3, 2, 7_000_000), at(4, 3, 7_000_001), at(5, 4, 7_000_000, "y")], Deduplicator()
    )


def test_lines_without_time_follow_their_head() -> None:
    """The further lines of a double go with it, those of a new line stay."""
    tail = [Record(text="tail", seq=seq, stream=1) for seq in (12, 14)]
    assert [1, 13, 14] == kept(
        [at(1, 0, 5_000_000), at(11, 1, 5_000_000), tail[0], at(13, 1, 6_000_000), tail[1]], Deduplicator()
    )
