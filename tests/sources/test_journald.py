"""The live journal, with folders of journal files that systemd's own tool made."""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.journals import BOOTS, FIRST_US, kernel, need_journals, program, write_journal
from xidwatch.core.identity import Identities
from xidwatch.core.kmsg import parse_kmsg
from xidwatch.sources.journald import JournalSource

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
Opened = Callable[..., JournalSource]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Opens sources on the test's folder and closes them at the end."""
    need_journals()
    sources: list[JournalSource] = []

    def open_source(resume: str | None = None, folder: Path = tmp_path) -> JournalSource:
        sources.append(JournalSource(resume, str(folder), retry_s=[0.01]))
        return sources[-1]

    yield open_source
    for source in sources:
        source.close()


def rings(source: JournalSource, within_s: float = 10.0) -> bool:
    """Whether the loop would be woken within the time."""
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def texts(source: JournalSource, most: int = 1000) -> list[str]:
    """What is read now."""
    return [record.text for record in source.read(most)]


def test_record_is_the_kernels(opened: Opened, tmp_path: Path) -> None:
    """A record carries both clocks, boot and node, and is believed: only the kernel gives this transport facility 0."""
    write_journal(tmp_path / "system.journal", [kernel(XID, 5.0)])
    source = opened()
    assert rings(source)
    (read,) = source.read()
    assert (XID, "kernel", BOOTS[0], "node01") == (read.text, read.trusted, read.boot_id, read.host)
    assert (FIRST_US + 5_000_000, 5_000_000) == (read.wall_us, read.since_boot_us)


def test_same_line_has_the_same_identity_in_kmsg(opened: Opened, tmp_path: Path) -> None:
    """An event that both sources bring counts once."""
    write_journal(tmp_path / "system.journal", [kernel("NVRM: a\\x20b", 5.0)])
    (from_journal,) = opened().read()
    from_kmsg = parse_kmsg(b"4,1,5000000,-;NVRM: a\\x5cx20b \n")
    assert from_kmsg is not None
    assert Identities().of(from_journal) == Identities().of(replace(from_kmsg, boot_id=BOOTS[0]))


def test_programs_are_left_out_and_injected_lines_are_not_believed(opened: Opened, tmp_path: Path) -> None:
    """Only kernel entries are read; what user space wrote into /dev/kmsg is untrusted and gets its first word back."""
    injected = kernel("Xid (PCI:0000:3b:00): 79, x", 2.0, SYSLOG_FACILITY="1", SYSLOG_IDENTIFIER="NVRM")
    other = kernel("Started x.", 3.0, SYSLOG_FACILITY="3", SYSLOG_IDENTIFIER="systemd")
    write_journal(tmp_path / "system.journal", [program(XID, 1.0), injected, other, kernel(XID, 4.0)])
    source = opened()
    read = source.read()
    assert [("NVRM: Xid (PCI:0000:3b:00): 79, x", "no"), ("Started x.", "no"), (XID, "kernel")] == [
        (one.text, one.trusted) for one in read
    ]  # fmt: skip
    assert (3, 1) == (source.health().records_total, source.health().untrusted_total)


def test_what_journald_missed_is_lost(opened: Opened, tmp_path: Path) -> None:
    """journald's own count of kernel messages it missed is taken over exactly; another's words about it are not."""
    missed = "e9bf28e6e834481bb6f48f548ad13606"
    own = kernel("Missed 17 kernel messages", 2.0, _TRANSPORT="driver", MESSAGE_ID=missed)
    other = program("Missed 99 kernel messages", 3.0, MESSAGE_ID=missed)
    write_journal(tmp_path / "system.journal", [kernel("one", 1.0), own, other, kernel("two", 4.0)])
    source = opened()
    assert ["one", "two"] == texts(source)
    assert (17, 2) == (source.health().lost_records_total, source.health().records_total)


def test_no_more_than_asked_and_the_rest_rings(opened: Opened, tmp_path: Path) -> None:
    """What was not taken keeps the loop awake until it is."""
    write_journal(tmp_path / "system.journal", [kernel(f"line {number}", number) for number in range(5)])
    source = opened()
    assert ["line 0", "line 1", "line 2"] == texts(source, 3)
    assert rings(source, 0)
    assert ["line 3", "line 4"] == texts(source, 3)
    assert [] == texts(source)
    assert not rings(source, 0)


def test_begins_with_the_boot_before_this_one(opened: Opened, tmp_path: Path) -> None:
    """The first time the last words of the boot before are read, then this one's; older boots are history."""
    write_journal(tmp_path / "old.journal", [kernel("first", 1.0, BOOTS[0])])
    write_journal(tmp_path / "system.journal", [kernel("last words", 9.0, BOOTS[1]), kernel("now", 1.0, BOOTS[2])])
    assert ["last words", "now"] == texts(opened())


def test_resumes_behind_its_position(opened: Opened, tmp_path: Path) -> None:
    """From a stored position on, whatever boot it is of, nothing is repeated and nothing missed."""
    boots = [kernel(f"boot {boot[0]}", 1.0, boot) for boot in BOOTS]
    write_journal(tmp_path / "system.journal", [kernel("zero", 0.5, BOOTS[0]), *boots])
    first = opened()
    first.read(1)
    assert ["boot c"] == texts(opened(first.position()))
    assert 0 == first.health().gaps_total


def test_position_that_is_gone(opened: Opened, tmp_path: Path) -> None:
    """When the journal no longer has the place, it goes on with the next entry and says that something may be missing."""
    lines = [kernel(f"line {number}", number) for number in range(6)]
    write_journal(tmp_path / "system.journal", lines)
    first = opened()
    assert ["line 0", "line 1"] == texts(first, 2)
    position = first.position()
    write_journal(tmp_path / "system.journal", lines[4:])
    second = opened(position)
    assert ["line 4", "line 5"] == texts(second)
    assert 1 == second.health().gaps_total


def test_entry_that_journald_copied_to_another_file_is_the_same(opened: Opened, tmp_path: Path) -> None:
    """A flush from /run to /var counts anew; the entry at the position is known by its clocks and hash."""
    lines = [kernel(f"line {number}", number) for number in range(4)]
    write_journal(tmp_path / "system.journal", lines)
    first = opened()
    texts(first, 3)
    write_journal(tmp_path / "system.journal", lines[1:])
    second = opened(first.position())
    assert ["line 3"] == texts(second)
    assert 0 == second.health().gaps_total


def test_position_that_is_none_begins_anew(opened: Opened, tmp_path: Path) -> None:
    """A position that cannot be read is as good as none, and said."""
    write_journal(tmp_path / "system.journal", [kernel("one", 1.0)])
    source = opened("nonsense")
    assert ["one"] == texts(source)
    assert 1 == source.health().gaps_total


def test_reads_a_file_that_comes(opened: Opened, tmp_path: Path) -> None:
    """A new file rings and is read, as after a rotation."""
    write_journal(tmp_path / "system@1.journal", [kernel("one", 1.0)])
    source = opened()
    assert ["one"] == texts(source)
    write_journal(tmp_path / "system.journal", [kernel("two", 2.0)])
    assert rings(source)
    assert ["two"] == texts(source)


def test_comes_back_when_the_files_were_removed(opened: Opened, tmp_path: Path) -> None:
    """Without files the source is down and says so; once there are some it reads on by itself and repeats nothing."""
    folder = tmp_path / "journal"
    folder.mkdir()
    write_journal(folder / "system.journal", [kernel("one", 1.0), kernel("two", 2.0)])
    source = opened(None, folder)
    assert ["one", "two"] == texts(source)
    shutil.rmtree(folder)
    assert rings(source)
    assert [] == texts(source)
    assert (False, 0) == (source.health().up, source.health().restarts_total)
    assert str(folder) in (source.health().why or "")
    assert rings(source)
    assert [] == texts(source)
    folder.mkdir()
    write_journal(folder / "system.journal", [kernel("two", 2.0), kernel("three", 3.0)])
    assert ["three"] == _until_some(source)
    assert (True, 1) == (source.health().up, source.health().restarts_total)


def test_folder_made_anew_is_opened_anew(opened: Opened, tmp_path: Path) -> None:
    """A folder that was replaced in one go is not mistaken for the old one."""
    folder, new = tmp_path / "journal", tmp_path / "new"
    for place, text in ((folder, "one"), (new, "two")):
        place.mkdir()
        write_journal(place / "system.journal", [kernel("same", 1.0), kernel(text, 2.0)])
    source = opened(None, folder)
    assert ["same", "one"] == texts(source)
    shutil.move(folder, tmp_path / "old")
    shutil.move(new, folder)
    (tmp_path / "old/system.journal").unlink()
    assert ["two"] == _until_some(source)


def _until_some(source: JournalSource) -> list[str]:
    """Follow its bell until something is read."""
    for _ in range(1000):
        assert rings(source)
        if read := texts(source):
            return read
    raise AssertionError("it rings, but nothing comes")


def test_damaged_file_does_not_end_it(opened: Opened, tmp_path: Path) -> None:
    """A torn file beside a good one is passed over."""
    write_journal(tmp_path / "system.journal", [kernel("one", 1.0)])
    whole = (tmp_path / "system.journal").read_bytes()
    (tmp_path / "torn.journal").write_bytes(whole[:300] + b"\xff" * 5000)
    (tmp_path / "empty.journal").write_bytes(b"")
    source = opened()
    assert ["one"] == texts(source)
    assert source.health().up
