"""Files, archives and folders of every kind -> records in the true order."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import lzma
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from xidwatch.core.incident import InputReport
from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.sources.logfile import LogInputs
from xidwatch.sources.ringbuffer import RingBuffer

UTC = timezone.utc
NOW_US = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass
class Read:
    """What came out."""

    records: list[Record]
    reports: list[InputReport]

    @property
    def texts(self) -> list[str]:
        """The messages."""
        return [record.text for record in self.records]


def inputs(*paths: Path | str, year: int | None = None) -> Read:
    """Read everything."""
    logs = LogInputs([str(path) for path in paths], tz=UTC, year=year, now_us=NOW_US)
    records = list(logs)
    return Read(records, logs.reports)


def syslog(day: int, count: int, start: int = 0) -> str:
    """Lines of one second each, numbered."""
    return "".join(f"Nov {day:2d} 10:{n // 60 % 60:02d}:{n % 60:02d} n kernel: line {start + n}\n" for n in range(count))


def test_report_says_what_was_read(tmp_path: Path) -> None:
    """Format, bytes, lines and the first and last record with a time are reported."""
    log = tmp_path / "kern.log"
    log.write_text("no time\n" + syslog(9, 3))
    report = inputs(log).reports[0]
    assert ("syslog", log.stat().st_size, 4) == (report.format, report.bytes, report.records)
    assert report.first is not None
    assert report.last is not None
    assert ("line 0", "line 2", 4) == (report.first.text, report.last.text, report.last.line)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": lambda raw: bz2.compress(raw, 1),
    "zst": lambda raw: zstandard.ZstdCompressor().compress(raw),
}


@pytest.mark.parametrize("packing", PACKERS)
def test_packed_logs_are_told_by_their_bytes(tmp_path: Path, packing: str) -> None:
    """Packed data is unpacked whatever the file is called, several members behind one another too."""
    log = tmp_path / "kern.txt"
    log.write_bytes(PACKERS[packing](syslog(9, 3).encode()) + PACKERS[packing](syslog(10, 2, 3).encode()))
    assert [f"line {n}" for n in range(5)] == inputs(log).texts


@pytest.mark.parametrize("packing", PACKERS)
def test_packed_data_may_end_early_or_break(tmp_path: Path, packing: str) -> None:
    """What stands before the break is read, and a note tells of the rest."""
    raw = os.urandom(600_000).hex().encode()
    lines = b"".join(b"Nov  9 10:00:00 n kernel: " + raw[at : at + 60] + b"\n" for at in range(0, len(raw), 60))
    packed = PACKERS[packing](lines)
    short, broken = tmp_path / "short", tmp_path / "broken"
    short.write_bytes(packed[: len(packed) // 2])
    broken.write_bytes(packed[: len(packed) // 2] + b"\xff\x00" * 30_000)
    for path in (short, broken):
        read = inputs(path)
        assert 0 < read.reports[0].records < 20_001
        assert read.reports[0].notes


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)
@given(raw=st.binary(max_size=300) | st.binary(max_size=300).map(lambda body: b"\x1f\x8b\x08\0\0\0\0\0\0\3" + body))
def test_any_bytes_are_read(tmp_path: Path, raw: bytes) -> None:
    """A file of any content but a journal's gives a report and raises nothing."""
    assume(not raw.startswith(b"LPKSHHRH"))
    path = tmp_path / "any"
    path.write_bytes(raw)
    assert 1 == len(inputs(path).reports)


def test_empty_and_binary_files_say_so(tmp_path: Path) -> None:
    """Nothing to read is a note, not an error."""
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_bytes(b"")
    binary.write_bytes(bytes(range(256)) * 40)
    assert [("empty",), ("binary, nothing readable",)] == [report.notes for report in inputs(empty, binary).reports]


def test_missing_file_names_the_next_step(tmp_path: Path) -> None:
    """A path that is not there is the operator's mistake."""
    with pytest.raises(XidwatchError, match="no such file"):
        inputs(tmp_path / "none")


def test_journal_file_is_recognised(tmp_path: Path) -> None:
    """A binary journal is read with python-systemd, and a damaged one is a note; without it the message says how to read it."""
    path = tmp_path / "system.journal"
    path.write_bytes(b"LPKSHHRH" + bytes(300))
    if importlib.util.find_spec("systemd") is None:
        with pytest.raises(XidwatchError, match=re.escape("-o json")):
            inputs(path)
    else:
        (report,) = inputs(path).reports
        assert ("journal file", 1) == (report.format, len(report.notes))


def test_utf16_of_a_windows_shell(tmp_path: Path) -> None:
    """A log redirected by PowerShell is read like any other."""
    path = tmp_path / "dmesg.txt"
    path.write_bytes(syslog(9, 2).encode("utf-16"))
    assert ["line 0", "line 1"] == inputs(path).texts


def test_export_format(tmp_path: Path) -> None:
    """`journalctl -o export` is read with its binary fields."""
    path = tmp_path / "journal.export"
    message = b"NVRM: a\nNVRM: b"
    path.write_bytes(b"__CURSOR=s=1\n_TRANSPORT=kernel\nMESSAGE\n" + len(message).to_bytes(8, "little") + message + b"\n\n")
    assert [message.decode()] == inputs(path).texts


@pytest.mark.parametrize("count", [5, 40_000])
@pytest.mark.parametrize("packing", ["", "gz"])
def test_newest_first_is_turned_round(tmp_path: Path, count: int, packing: str) -> None:
    """A reversed log is delivered oldest first, `seq` ascending, with the line numbers of the file."""
    lines = [f"[{n:>6}.000000] NVRM: line {n}" for n in range(count)][::-1]
    path = tmp_path / "reversed.log"
    raw = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(raw, 1) if packing else raw)
    read = inputs(path)
    assert ("NVRM: line 0", count) == (read.texts[0], read.records[0].line)
    assert (f"NVRM: line {count - 1}", 1) == (read.texts[-1], read.records[-1].line)
    assert sorted(record.seq for record in read.records) == [record.seq for record in read.records]
    assert ("dmesg, newest first", count, len(raw)) == (
        read.reports[0].format, read.reports[0].records, read.reports[0].bytes,
    )  # fmt: skip


def test_reversed_journal_keeps_its_entries_whole(tmp_path: Path) -> None:
    """`journalctl -r` turns entries round, not their lines; `tac` turns every line round."""
    journal, tac = tmp_path / "r", tmp_path / "tac"
    entries = [f"[ {n}.000000] NVRM: API mismatch {n}\n          NVRM: tail {n}\n" for n in (40, 30, 20, 10)]
    journal.write_text("".join(entries))
    tac.write_text("\n".join("".join(entries[::-1]).splitlines()[::-1]))
    expected = [f"NVRM: {part} {n}" for n in (10, 20, 30, 40) for part in ("API mismatch", "tail")]
    assert expected == inputs(journal).texts
    assert expected == inputs(tac).texts


def test_mixed_excerpts_are_not_reversed(tmp_path: Path) -> None:
    """Times that fall once are a mix: the order of the file stays, and a note says so."""
    path = tmp_path / "mix"
    path.write_text("[38889.018130] a\n[ 1108.858286] b\n[38889.018130] c\n")
    read = inputs(path)
    assert ["a", "b", "c"] == read.texts
    assert any("backwards" in note for note in read.reports[0].notes)


def test_rotated_logs_are_one_stream_in_the_order_of_writing(tmp_path: Path) -> None:
    """Numbers count down and dates count up to the live file, packed or not, whatever order the shell gave."""
    (tmp_path / "kern.log.3.gz").write_bytes(gzip.compress(syslog(1, 2).encode()))
    (tmp_path / "kern.log.2").write_text(syslog(2, 2, 2))
    (tmp_path / "kern.log").write_text(syslog(4, 2, 6))
    (tmp_path / "kern.log.1").write_text(syslog(3, 2, 4))
    read = inputs(*sorted(tmp_path.iterdir()))
    assert [f"line {n}" for n in range(8)] == read.texts
    assert {0} == {record.stream for record in read.records}
    assert [1, 2, 3, 4, 5, 6, 7, 8] == [record.seq for record in read.records]
    dated = tmp_path / "dated"
    dated.mkdir()
    for name, day in (("messages", 9), ("messages-20261101", 1), ("messages-20261108", 8)):
        (dated / name).write_text(syslog(day, 1, day))
    assert ["line 1", "line 8", "line 9"] == inputs(dated).texts


def test_year_of_rotated_logs(tmp_path: Path) -> None:
    """The oldest of the rotated files may be of last year."""
    (tmp_path / "kern.log.1").write_text("Dec 28 10:00:00 n kernel: old\n")
    (tmp_path / "kern.log").write_text("Jan  3 10:00:00 n kernel: new\n")
    years = [datetime.fromtimestamp((record.wall_us or 0) / 1e6, UTC).year for record in inputs(tmp_path).records]
    assert [2025, 2026] == years


def test_folder_reads_logs_and_names_the_rest(tmp_path: Path) -> None:
    """Binary files and other text are left out with a reason; a line in two logs comes once."""
    line = "Nov  9 10:00:00 n kernel: [  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, x\n"
    (tmp_path / "syslog").write_text(line + "Nov  9 10:00:01 n cron[1]: y\n")
    (tmp_path / "kern.log").write_text(line)
    (tmp_path / "wtmp").write_bytes(bytes(4000))
    (tmp_path / "notes.md").write_text("nothing here\n")
    (tmp_path / "app.py").write_text("print()\n")
    read = inputs(tmp_path)
    assert 1 == sum("Xid" in text for text in read.texts)
    assert {"wtmp", "notes.md", "app.py"} == {Path(report.path).name for report in read.reports if report.format == "not read"}


def test_folder_tells_what_it_should_have_read(tmp_path: Path) -> None:
    """A log that is broken is no log that is empty; a link that leads nowhere or in a circle stops nothing."""
    (tmp_path / "kern.log").write_text(syslog(9, 2))
    (tmp_path / "kern.log.1.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 3000)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    read = inputs(tmp_path)
    assert ["line 0", "line 1"] == read.texts
    assert ["kern.log.1.gz"] == [Path(report.path).name for report in read.reports if report.unread]
    assert "gzip data is broken" in read.reports[-1].notes[0]


def test_rotated_log_without_one_of_its_files(tmp_path: Path) -> None:
    """One missing file of several that are one log costs the others nothing, not even their year."""
    (tmp_path / "kern.log.2").write_text("Dec 28 10:00:00 n kernel: old\n")
    (tmp_path / "kern.log").write_text("Jan  3 10:00:00 n kernel: new\n")
    read = inputs(*(tmp_path / name for name in ("kern.log.2", "kern.log.1", "kern.log")))
    assert ["old", "new"] == read.texts
    assert ["kern.log.1"] == [Path(report.path).name for report in read.reports if report.unread]
    assert [2025, 2026] == [datetime.fromtimestamp((record.wall_us or 0) / 1e6, UTC).year for record in read.records]


def test_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    """A folder with nothing to read is the operator's mistake."""
    with pytest.raises(XidwatchError, match="no log files"):
        inputs(tmp_path)


def test_folder_of_nodes_gives_the_hosts(tmp_path: Path) -> None:
    """Below a folder without logs of its own, the folders are nodes; a host in the line is kept."""
    for node in ("gpu01", "gpu02"):
        (tmp_path / node / "var" / "log").mkdir(parents=True)
        (tmp_path / node / "var" / "log" / "dmesg.txt").write_text("[    5.000000] NVRM: x\n[    6.000000] NVRM: y\n")
    (tmp_path / "gpu02" / "syslog").write_text("Nov  9 10:00:00 real kernel: NVRM: z\n")
    assert {("gpu01", "x"), ("gpu01", "y"), ("real", "z")} <= {
        (record.host, record.text[6:]) for record in inputs(tmp_path).records
    }


def test_lost_records_are_counted(tmp_path: Path) -> None:
    """What journald, printk and rsyslog say they lost is added up."""
    path = tmp_path / "log"
    path.write_text(
        "Nov  9 10:00:00 n systemd-journald[1]: Missed 12 kernel messages\n"
        "Nov  9 10:00:01 n kernel: ** 30 printk messages dropped **\n"
    )
    assert 42 == inputs(path).reports[0].lost_records


def test_boots_are_listed(tmp_path: Path) -> None:
    """The boots in the file are reported in order."""
    path = tmp_path / "log"
    path.write_text("[ 9999.000000] x\n[    0.000000] Linux version 6.8\n[    1.000000] y\n")
    assert ("boot-1", "boot-2") == inputs(path).reports[0].boot_ids


def test_big_log_gives_the_lines_worth_reading(tmp_path: Path) -> None:
    """Of a big log the faults come with their neighbours, and every line is counted."""
    path = tmp_path / "big"
    path.write_text(syslog(1, 30_000) + "Nov  2 10:00:00 n kernel: NVRM: Xid (PCI:0000:3b:00): 79, x\n" + syslog(3, 30_000))
    read = inputs(path)
    xid = next(record for record in read.records if record.text.startswith("NVRM"))
    assert (30_001, 30_001, 60_001) == (xid.line, xid.seq, read.reports[0].records)
    assert 400 > len(read.records)


def test_progress_is_told(tmp_path: Path) -> None:
    """Bytes read and in all are told while reading."""
    path = tmp_path / "log"
    path.write_text(syslog(1, 100))
    seen: list[tuple[int, int | None]] = []
    list(LogInputs([str(path)], tz=UTC, year=None, now_us=NOW_US, progress=lambda done, total: seen.append((done, total))))
    assert (path.stat().st_size, path.stat().st_size) == seen[-1]


def test_ring_buffer_is_read_to_its_end(tmp_path: Path) -> None:
    """Records come oldest first with both clocks; a gap in the sequence counts as lost."""
    path = tmp_path / "kmsg"
    path.write_text("4,10,1000000,-;NVRM: a\n SUBSYSTEM=pci\n6,11,1500000,-;b\n12,15,2000000,-;injected\n")
    buffer = RingBuffer(str(path))
    records = list(buffer)
    assert [("NVRM: a", "kernel"), ("b", "kernel"), ("injected", "no")] == [(one.text, one.trusted) for one in records]
    assert 3 == buffer.lost
    assert 1_000_000 == (records[2].wall_us or 0) - (records[0].wall_us or 0)


def test_ring_buffer_that_is_not_there(tmp_path: Path) -> None:
    """Without /dev/kmsg the message says what to do instead."""
    with pytest.raises(XidwatchError, match="give a log file"):
        list(RingBuffer(str(tmp_path / "none")))
