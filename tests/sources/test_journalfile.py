"""Journal files that lie somewhere."""

from __future__ import annotations

from datetime import timezone
from pathlib import Path

import pytest

from tests.journals import BOOTS, kernel, need_journals, program, write_journal
from xidwatch.core.incident import InputReport
from xidwatch.core.record import Record
from xidwatch.sources.logfile import LogInputs

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@pytest.fixture(autouse=True)
def _journals() -> None:
    need_journals()


def read(*paths: Path) -> tuple[list[Record], tuple[InputReport, ...]]:
    """Records and reports of some inputs."""
    inputs = LogInputs([str(path) for path in paths], tz=timezone.utc, year=None, now_us=1_800_000_000_000_000)
    return list(inputs), tuple(inputs.reports)


def test_file_is_read_but_proves_nothing(tmp_path: Path) -> None:
    """Kernel and programs are read; anybody can write a file, so the kernel's words are unverifiable."""
    write_journal(tmp_path / "system.journal", [kernel(XID, 1.0), program("x", 2.0, _PID="7", SYSLOG_IDENTIFIER="vllm")])
    records, (report,) = read(tmp_path / "system.journal")
    assert [(XID, "unverifiable", None), ("x", "unverifiable", "vllm")] == [
        (one.text, one.trusted, one.program) for one in records
    ]
    assert ("journal file", 2, (BOOTS[0],)) == (report.format, report.records, report.boot_ids)


def test_files_of_a_folder_are_one_journal(tmp_path: Path) -> None:
    """Rotated, active and users' files are read together in the order of time, whatever their names."""
    write_journal(tmp_path / "system.journal", [kernel("four", 4.0), kernel("six", 6.0)])
    write_journal(tmp_path / "system@0001-0002.journal", [kernel("one", 1.0), kernel("three", 3.0)])
    write_journal(tmp_path / "user-1000.journal", [program("two", 2.0), program("five", 5.0)])
    records, (report,) = read(tmp_path)
    assert ["one", "two", "three", "four", "five", "six"] == [one.text for one in records]
    assert [1, 2, 3, 4, 5, 6] == [one.seq for one in records]
    assert "3 journal files" == report.format


def test_files_of_different_nodes_stay_apart(tmp_path: Path) -> None:
    """What was collected from two nodes is two streams."""
    for node, at_s in (("node01", 1.0), ("node02", 2.0)):
        write_journal(tmp_path / f"remote-{node}.journal", [kernel(XID, at_s, _HOSTNAME=node)])
    records, reports = read(tmp_path)
    assert {(0, "node01"), (1, "node02")} == {(one.stream, one.host) for one in records}
    assert 2 == len(reports)


def test_big_journal_is_read_where_it_matters(tmp_path: Path) -> None:
    """Of many entries the first twenty, those with our words, what follows them and the last are looked at; all are counted."""
    lines = [kernel(XID if number == 600 else f"line {number}", number) for number in range(2000)]
    write_journal(tmp_path / "system.journal", lines)
    records, (report,) = read(tmp_path / "system.journal")
    numbers = [one.line for one in records]
    assert [*range(1, 21), *range(601, 802), 2000] == numbers
    assert XID == records[20].text
    assert 2000 == report.records


@pytest.mark.parametrize("at", [[21], [275, 276, 277, 532], [277], [600, 700, 1100], [1998], [1999], [2000]])
def test_entries_are_looked_at_wherever_they_stand(tmp_path: Path, at: list[int]) -> None:
    """A word of ours is found at either end of what is searched at once, and each entry is given once."""
    lines = [kernel(XID if 1 + number in at else f"line {number}", number) for number in range(2000)]
    write_journal(tmp_path / "system.journal", lines)
    records, (report,) = read(tmp_path / "system.journal")
    wanted = {*range(1, 21), *(near for one in at for near in range(one, min(2001, one + 201))), 2000}
    assert sorted(wanted) == [one.line for one in records]
    assert at == [one.line for one in records if one.text == XID]
    assert 2000 == report.records


def test_injected_line_is_found_though_its_first_word_is_elsewhere(tmp_path: Path) -> None:
    """journald moves `nvidia-uvm:` of a line that user space wrote into another field; it is found nevertheless."""
    lines = [kernel(f"line {number}", number) for number in range(100)]
    injected = kernel("fatal", 50.5, SYSLOG_FACILITY="1", SYSLOG_IDENTIFIER="nvidia-uvm")
    write_journal(tmp_path / "system.journal", [*lines[:51], injected, *lines[51:]])
    records, _ = read(tmp_path / "system.journal")
    assert [("nvidia-uvm: fatal", "no")] == [(one.text, one.trusted) for one in records if "fatal" in one.text]


def test_damaged_file_is_noted_and_the_others_are_read(tmp_path: Path) -> None:
    """A torn file does not hide the good ones."""
    write_journal(tmp_path / "system.journal", [kernel(XID, 1.0)])
    whole = (tmp_path / "system.journal").read_bytes()
    (tmp_path / "system@0001.journal~").write_bytes(whole[:300] + b"\xff" * 5000)
    records, (report,) = read(tmp_path)
    assert [XID] == [one.text for one in records]
    assert any("damaged" in note for note in report.notes)


def test_only_damaged_files(tmp_path: Path) -> None:
    """Nothing readable gives no record and a note."""
    path = tmp_path / "system.journal"
    path.write_bytes(b"LPKSHHRH" + b"\xff" * 500)
    records, (report,) = read(path)
    assert [] == records
    assert any("damaged" in note for note in report.notes)
