"""What journal files hold by journald's own count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journals import kernel, need_journals, write_journal
from xidwatch.sources.journalread import open_reader
from xidwatch.sources.journalspan import Progress, Span, cursor_span, read_span

COUNT = "a" * 32


def write_header(path: Path, first: int, last: int) -> Path:
    """The head of a journal file with these entries."""
    numbers = (last - first + 1, last, first)
    header = b"LPKSHHRH".ljust(72, b"\0") + bytes.fromhex(COUNT)
    path.write_bytes(header.ljust(152, b"\0") + b"".join(number.to_bytes(8, "little") for number in numbers) + bytes(8))
    return path


def test_span_is_what_systemd_counts(tmp_path: Path) -> None:
    """The header of a real file agrees with the cursors of its first and last entry."""
    need_journals()
    path = tmp_path / "system.journal"
    write_journal(path, [kernel(f"line {number}", number) for number in range(5)])
    with open_reader(files=[str(path)]) as reader:
        cursors = [cursor_span(entry["__CURSOR"]) for entry in reader]
    first, last, span = cursors[0], cursors[-1], read_span(path)
    assert first is not None
    assert last is not None
    assert Span(first.count_id, first.first, last.last) == span


@pytest.mark.parametrize("content", [b"", b"LPKSHHRH", b"x" * 500, b"LPKSHHRH" + bytes(400)])
def test_other_files_hold_nothing(tmp_path: Path, content: bytes) -> None:
    """An empty journal, a cut one and another file are none."""
    (tmp_path / "x.journal").write_bytes(content)
    assert None is read_span(tmp_path / "x.journal")
    assert None is read_span(tmp_path / "none.journal")


def test_file_that_went_away_unread_is_a_gap(tmp_path: Path) -> None:
    """Entries between the last one read and the first one left are gone; that is told once."""
    progress = Progress()
    progress.took(f"s={COUNT};i=64;b=0")
    later = write_header(tmp_path / "b.journal", 201, 300)
    assert progress.skipped([later])
    assert not progress.skipped([later])


def test_file_that_went_away_read_is_none(tmp_path: Path) -> None:
    """What had been read to its end may go, and files that follow each other leave no gap."""
    progress = Progress()
    progress.begin([write_header(tmp_path / "a.journal", 1, 200)])
    progress.all_read()
    assert not progress.skipped(
        [write_header(tmp_path / "b.journal", 201, 300), write_header(tmp_path / "c.journal", 301, 400)]
    )
