"""Kernel dumps in a folder made like /sys/fs/pstore."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.sources.pstore import PstoreDumps

DIED_S = 1_790_000_000


def add_part(folder: Path, name: str, text: str, written_s: float = DIED_S) -> None:
    """One part of a dump."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (written_s, written_s))


def texts(records: list[Record]) -> list[str]:
    """What they say."""
    return [record.text for record in records]


def test_parts_are_put_in_order(tmp_path: Path) -> None:
    """Part 1 is the end of the log; the higher numbers come before it, ten before nine."""
    for number in range(1, 11):
        text = f"Panic#1 Part{number}\n<4>[{200 - number * 10:5d}.000001] line of part {number}\n"
        add_part(tmp_path, f"dmesg-efi-1790000000{number:02d}001", text)
    read = list(PstoreDumps(str(tmp_path)))
    assert [f"line of part {number}" for number in range(10, 0, -1)] == texts(read)
    assert list(range(1, 11)) == [record.seq for record in read]


def test_last_line_was_written_when_the_part_was(tmp_path: Path) -> None:
    """The dump's time ties printk's clock to the wall clock."""
    add_part(tmp_path, "dmesg-erst-7", "Panic#1 Part1\n<4>[   90.000000] first\n<0>[  100.500000] Kernel panic\n")
    first, last = PstoreDumps(str(tmp_path))
    assert (DIED_S * 1_000_000 - 10_500_000, DIED_S * 1_000_000) == (first.wall_us, last.wall_us)
    assert (90_000_000, "boot_offset", "pstore-1") == (first.since_boot_us, first.time_source, first.boot_id)


def test_lines_of_user_space_are_known_by_their_facility(tmp_path: Path) -> None:
    """`<12>` is user space's; a file in some folder proves nothing about `<4>`."""
    text = "Oops#1 Part1\n<4>[    1.000000] by the kernel\n<12>[    2.000000] NVRM: injected\n[    3.000000] unknown\n"
    add_part(tmp_path, "dmesg-ramoops-0", text)
    assert ["unverifiable", "no", "unverifiable"] == [record.trusted for record in PstoreDumps(str(tmp_path))]


def test_oops_and_panic_of_one_boot_overlap(tmp_path: Path) -> None:
    """The ring that both dumps saved is read once."""
    line = "<4>[    1.000000] both\n"
    add_part(tmp_path, "dmesg-efi-1", f"Oops#1 Part1\n{line}<1>[    2.000000] BUG: unable to handle\n")
    add_part(tmp_path, "dmesg-efi-2", f"Panic#2 Part1\n{line}<0>[    3.000000] Kernel panic\n", DIED_S + 1)
    dumps = PstoreDumps(str(tmp_path))
    assert ["both", "BUG: unable to handle", "Kernel panic"] == texts(list(dumps))
    assert ["Oops", "Panic"] == dumps.reasons


def test_dumps_of_two_boots_are_told_apart(tmp_path: Path) -> None:
    """Each crash is a boot of its own, in order, also where each left a `Panic#1`."""
    add_part(tmp_path / "b", "dmesg-efi-2", "Panic#1 Part1\n<0>[    3.000000] second\n", DIED_S + 86_400)
    add_part(tmp_path / "a", "dmesg-efi-1", "Panic#1 Part1\n<0>[  900.000000] first\n")
    assert [("first", "pstore-1"), ("second", "pstore-2")] == [(one.text, one.boot_id) for one in PstoreDumps(str(tmp_path))]


def test_caller_ids_and_further_lines(tmp_path: Path) -> None:
    """A thread's id in front is left out, and a line without a head belongs to the one before."""
    add_part(tmp_path, "dmesg-efi-1", "Panic#1 Part1\n<4>[    1.000000][  T123] NVRM: API mismatch:\nNVRM: this\n")
    assert ["NVRM: API mismatch:\nNVRM: this"] == texts(list(PstoreDumps(str(tmp_path))))


def test_what_cannot_be_read_is_noted(tmp_path: Path) -> None:
    """A part that the kernel could not unpack, or that is none, does not stop the others."""
    add_part(tmp_path, "dmesg-efi-1", "Panic#1 Part1\n<4>[    1.000000] good\n")
    add_part(tmp_path, "dmesg-efi-2.enc.z", "x")
    add_part(tmp_path, "dmesg.txt", "put together by systemd-pstore")
    add_part(tmp_path, "dmesg-efi-3", "")
    dumps = PstoreDumps(str(tmp_path))
    assert ["good"] == texts(list(dumps))
    assert 2 == len(dumps.notes)


def test_no_dump_is_said(tmp_path: Path) -> None:
    """An empty folder is named, and so is one that is not there."""
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(XidwatchError, match="no kernel dump"):
            list(PstoreDumps(str(folder)))
