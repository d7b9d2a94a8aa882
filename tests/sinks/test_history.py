from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.sinks.history_writer import numbered
from xidwatch.core.codec import encode
from xidwatch.core.event import Context, Event, XidDetail
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.sinks.history import Entry, History, Limits, Note, TotalKey, add_note, read_history, read_notes

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("XIDWATCH_KILLS", "20"))
DAY_US = 86_400_000_000
ALL: TotalKey = ("all_total", ())
FAST = Limits(poll_s=0.01, age_check_s=0, retry_s=0.1)


class Clock:
    """A clock with hands: microseconds since 1970."""

    def __init__(self, now_us: int = 1_800_000_000_000_000) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        """The time now."""
        return self.now_us


def until(holds: Callable[[], object], deadline_s: float = 20) -> None:
    """Wait for what another thread or process does."""
    never = threading.Event()
    for _ in range(int(deadline_s / 0.005)):
        if holds():
            return
        never.wait(0.005)
    raise AssertionError("the deadline passed")


def xid(number: int, *, gpu: str = "3b", code: int = 79, wall_us: int | None = 1_000_000) -> Entry:
    """One Xid as the daemon appends it."""
    record = Record(text=f"NVRM: Xid (PCI:0000:{gpu}:00): {code}, n {number}", seq=number, wall_us=wall_us, boot_id="b1")
    event = Event(
        uid=(0, number, 0),
        kind="xid",
        code=code,
        pci=PciAddress(0, int(gpu, 16), 0),
        record=record,
        last_record=record,
        detail=XidDetail(message=f"n {number}"),
    )
    return Entry(
        identity=f"id{number}",
        source="kmsg",
        position=f"b1:{number}",
        wall_us=wall_us,
        boot_id="b1",
        item=encode(event),
        totals=(ALL, ("xid_events_total", (("gpu", f"0000:{gpu}:00.0"), ("xid", str(code))))),
    )


def stored_numbers(path: Path) -> list[int]:
    """Which entries are in the file, in order."""
    return [entry.item.record.seq for entry in read_history(path) if entry.item is not None]


@contextmanager
def another_writer(path: Path) -> Iterator[None]:
    """Nobody else can write meanwhile, as if the disk did not answer."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


# what is kept


def test_round_trip(tmp_path: Path) -> None:
    """Events, context, totals and positions are after a restart what they were before, in the same order."""
    path = tmp_path / "history.db"
    record = Record(text="nvidia: loading out-of-tree module", seq=3, boot_id="b1")
    context = Context(kind="driver_load", record=record, facts=(("version", "580.1"),))
    history = History.open(path)
    history.append(xid(1))
    history.append(xid(2, gpu="4e", code=48))
    history.append(Entry(identity="c", source="journal", position="s=1", item=encode(context)))
    totals = history.totals()
    assert history.close(10)

    again = History.open(path)
    assert {"kmsg": "b1:2", "journal": "s=1"} == again.positions()
    assert totals == again.totals()
    recent = list(again.recent_entries())
    assert ["xid", "xid", "driver_load"] == [entry.kind for entry in recent]
    assert context == recent[2].item
    assert ["kmsg", "kmsg", "journal"] == [entry.source for entry in recent]
    assert [48, None] == [entry.code for entry in again.recent_entries(limit=2)]
    assert again.close(10)


def test_total_is_seen_at_once(tmp_path: Path) -> None:
    """A total rises with the append, before the disk has the entry."""
    history = History.open(tmp_path / "history.db")
    with another_writer(tmp_path / "history.db"):
        assert history.append(xid(1))
        assert 1 == history.totals()[ALL]
        assert {} == history.positions()
    assert history.close(10)


def test_same_line_from_two_sources_counts_once(tmp_path: Path) -> None:
    """What a second source brings again only moves that source's position, also after a restart."""
    path = tmp_path / "history.db"
    history = History.open(path)
    assert history.append(xid(1))
    assert not history.append(Entry(identity="id1", source="journal", position="s=9", totals=(ALL,)))
    assert history.close(10)
    history = History.open(path)
    assert history.knows("id1")
    assert not history.append(xid(1))
    assert 1 == history.totals()[ALL]
    assert {"kmsg": "b1:1", "journal": "s=9"} == history.positions()
    assert history.close(10)
    assert [1] == stored_numbers(path)


def test_position_moves_without_entries(tmp_path: Path) -> None:
    """A source that brought nothing of interest does not read it all again."""
    history = History.open(tmp_path / "history.db")
    history.advance("kmsg", "b1:500")
    assert history.flush(10)
    assert {"kmsg": "b1:500"} == history.positions()
    assert history.close(10)


def test_what_is_only_counted(tmp_path: Path) -> None:
    """An incident that opens again in a replay is counted once and is no entry of the history."""
    path = tmp_path / "history.db"
    for _ in range(2):
        history = History.open(path)
        history.append(Entry(identity="incident/abc", totals=(("incidents_total", ()),)))
        assert 1 == history.totals()["incidents_total", ()]
        assert [] == list(history.recent_entries())
        assert history.close(10)
    assert [] == list(read_history(path))


def test_identity_older_than_memory(tmp_path: Path) -> None:
    """An entry that memory has forgotten and the file has not is counted once in the long run, and no total falls meanwhile."""
    history = History.open(tmp_path / "history.db", Limits(seen=2))
    for number in range(5):
        history.append(xid(number))
    history.append(xid(0))
    assert history.flush(10)
    assert 6 == history.totals()[ALL]
    history.append(xid(5))
    assert 6 == history.totals()[ALL]
    history.append(xid(6))
    assert 7 == history.totals()[ALL]
    assert history.close(10)
    history = History.open(tmp_path / "history.db")
    assert 7 == history.totals()[ALL]
    assert history.close(10)


def test_hostile_values(tmp_path: Path) -> None:
    """Broken UTF-8 and numbers beyond 64 bits come back as they went in."""
    history = History.open(tmp_path / "history.db")
    entry = xid(1)
    assert entry.item is not None
    entry.item["code"] = 1 << 70
    entry.item["process"] = "\udcff\x00'); DROP TABLE entries; --"
    history.append(entry)
    assert history.flush(10)
    (stored,) = history.recent_entries()
    assert stored.code is None
    assert isinstance(stored.item, Event)
    assert (1 << 70, entry.item["process"]) == (stored.item.code, stored.item.process)
    assert history.close(10)


def test_damaged_row(tmp_path: Path) -> None:
    """A row that cannot be decoded is left out of the replay and counted; `history` still shows when it was."""
    path = tmp_path / "history.db"
    history = History.open(path)
    for number in range(3):
        history.append(xid(number))
    assert history.flush(10)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entries SET item = CAST(x'7bff00' AS TEXT) WHERE identity = 'id1'")
    assert ["id0", "id2"] == [entry.identity for entry in history.recent_entries()]
    assert 1 == history.health().damaged_total
    assert [False, True, False] == [entry.damaged for entry in read_history(path)]
    assert 79 == list(read_history(path))[1].code
    assert history.close(10)


# killed


def test_kill_at_any_moment(tmp_path: Path) -> None:
    """Killed twenty times at random moments, the history has each line exactly once and the totals are right."""
    path, stream, last = tmp_path / "history.db", tmp_path / "stream", 5000 * KILLS
    stream.write_text("".join(f"{number}\n" for number in range(1, last + 1)), encoding="ascii")
    command = [sys.executable, "-m", "tests.sinks.history_writer", str(path), str(stream)]
    moments = random.Random(6)
    cut_short = 0
    for _ in range(KILLS):
        with subprocess.Popen(command, cwd=ROOT) as child:
            with suppress(subprocess.TimeoutExpired):
                child.wait(moments.uniform(0.1, 0.6))
            child.send_signal(signal.SIGKILL)
        cut_short += child.returncode == -signal.SIGKILL
        if path.exists() and path.stat().st_size:
            with suppress(XidwatchError):
                assert_whole(path)
    assert 0 == subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode
    assert cut_short > KILLS // 2
    assert list(range(1, last + 1)) == stored_numbers(path)
    history = History.open(path)
    assert {ALL: last, number_key("odd"): last / 2, number_key("even"): last / 2} == history.totals()
    assert {"stream": str(last)} == history.positions()
    assert history.close(10)
    assert [] == list(tmp_path.glob("*.broken-*"))


def number_key(parity: str) -> TotalKey:
    """The total of the odd or even numbers."""
    return ("numbers_total", (("parity", parity),))


def assert_whole(path: Path) -> None:
    """Entries, totals and position in the file tell the same."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        (there,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'totals'").fetchone()
        if not there:
            return
        (entries, highest) = connection.execute("SELECT count(*), coalesce(max(wall_us), 0) FROM entries").fetchone()
        (total,) = connection.execute("SELECT coalesce(max(value), 0) FROM totals WHERE metric = 'all_total'").fetchone()
        (position,) = connection.execute("SELECT coalesce(max(position + 0), 0) FROM positions").fetchone()
    assert (entries, entries, entries) == (highest, total, position)


# the disk does not do as it should


def test_full_backlog(tmp_path: Path) -> None:
    """When the disk does not keep up, entries lose their details but are counted, and counted once, also after a restart."""
    path = tmp_path / "history.db"
    history = History.open(path, Limits(backlog=10, seen=50))
    with another_writer(path):
        for number in range(100):
            assert history.append(xid(number))
        assert 100 == history.totals()[ALL]
        assert (60, 90) == (history.health().backlog, history.health().dropped_total)
    assert history.flush(20)
    assert history.close(10)
    assert 60 == len(list(read_history(path)))
    assert list(range(10)) == stored_numbers(path)
    assert [79] * 60 == [entry.code for entry in read_history(path)]

    history = History.open(path)
    assert 100 == history.totals()[ALL]
    for number in range(60):
        assert not history.append(xid(number))
    assert history.close(10)


def test_close_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """While the disk stands still `close` gives up in time, the process ends, and the next one goes on where the disk is."""
    path = tmp_path / "history.db"
    assert History.open(path).close(10)
    program = (
        "import sys; from pathlib import Path; from tests.sinks.history_writer import numbered\n"
        "from xidwatch.sinks.history import History\n"
        "history = History.open(Path(sys.argv[1])); print('open', flush=True); input()\n"
        "history.append(numbered(1)); print(history.totals()['all_total', ()], history.close(0.2), flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert "open\n" == child.stdout.readline()
        with another_writer(path):
            child.stdin.write("\n")
            child.stdin.flush()
            assert "1.0 False\n" == child.stdout.readline()
            assert 0 == child.wait(4)
    assert [] == list(read_history(path))


def test_failing_writes(tmp_path: Path) -> None:
    """A disk that refuses writes is said and counted; the entries wait in memory, and all are stored once it takes them."""
    path = tmp_path / "history.db"
    program = (
        "import sys, resource; from pathlib import Path; from tests.sinks.history_writer import numbered\n"
        "from tests.sinks.test_history import until, FAST; from xidwatch.sinks.history import History\n"
        "history = History.open(Path(sys.argv[1]), FAST)\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_FSIZE); resource.setrlimit(resource.RLIMIT_FSIZE, (70000, hard))\n"
        "for number in range(1, 1001): history.append(numbered(number))\n"
        "until(lambda: history.health().write_failures_total > 3)\n"
        "print(history.health().last_error is not None, history.health().backlog > 700, len(history.take_messages()))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "print(history.flush(20), history.close(20), history.health().last_error, history.totals()['all_total', ()])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert "True True 1\nTrue True None 1000.0\n" == answer.stdout, answer.stderr
    assert list(range(1, 1001)) == stored_numbers(path)
    history = History.open(path)
    assert 1000 == history.totals()[ALL]
    assert history.close(10)


def test_no_folder_to_write_in(tmp_path: Path) -> None:
    """Without a place to write the history lives in memory, says so, and moves to the disk when there is one."""
    folder = tmp_path / "state"
    folder.write_text("in the way")
    history = History.open(folder / "history.db", FAST)
    assert history.append(xid(1))
    assert ({}, []) == (history.positions(), list(history.recent_entries()))
    assert history.health().write_failures_total >= 1
    (said,) = history.take_messages()
    assert "cannot be written" in said
    folder.unlink()
    assert history.flush(20)
    assert {"kmsg": "b1:1"} == history.positions()
    until(lambda: history.health().last_error is None)
    assert ["written again" in one for one in history.take_messages()] == [True]
    assert history.close(10)
    assert [1] == stored_numbers(folder / "history.db")


def test_never_writable_history_closes(tmp_path: Path) -> None:
    """With nothing to store, a history that could never be written still closes."""
    (tmp_path / "state").write_text("in the way")
    assert History.open(tmp_path / "state" / "history.db", FAST).close(10)


def test_totals_of_a_file_that_opens_late(tmp_path: Path) -> None:
    """What was counted while the file could not be read is added to what the file says, except for what it knows already."""
    folder, aside = tmp_path / "state", tmp_path / "aside"
    history = History.open(folder / "history.db")
    for number in range(5):
        history.append(xid(number))
    assert history.close(10)
    folder.rename(aside)
    folder.write_text("in the way")
    history = History.open(folder / "history.db", FAST)
    history.append(xid(4))
    history.append(xid(5))
    assert 2 == history.totals()[ALL]
    folder.unlink()
    aside.rename(folder)
    assert history.flush(20)
    assert 7 == history.totals()[ALL]
    history.append(xid(6))
    assert 7 == history.totals()[ALL]
    assert history.close(10)
    assert list(range(7)) == stored_numbers(folder / "history.db")


def test_file_removed_while_it_runs(tmp_path: Path) -> None:
    """When somebody deletes the file a new one is begun and has the totals and positions."""
    path = tmp_path / "history.db"
    history = History.open(path, FAST)
    history.append(xid(1))
    assert history.flush(10)
    for one in tmp_path.iterdir():
        one.unlink()
    until(path.exists)
    history.append(xid(2))
    assert history.flush(10)
    assert history.close(10)
    history = History.open(path)
    assert (2, {"kmsg": "b1:2"}) == (history.totals()[ALL], history.positions())
    assert history.close(10)


# files that cannot be used


def filled(path: Path, entries: int = 300) -> None:
    """Make a history."""
    history = History.open(path)
    for number in range(entries):
        history.append(xid(number))
    assert history.close(20)


def truncate(path: Path) -> None:
    """Cut off its second half."""
    os.truncate(path, path.stat().st_size // 2 + 100)


def empty(path: Path) -> None:
    """Leave no byte."""
    os.truncate(path, 0)


def scribble(path: Path) -> None:
    """Write garbage over its middle."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 3)
        file.write(random.Random(1).randbytes(20_000))


def overwrite(path: Path) -> None:
    """Put something else in its place."""
    path.write_bytes(b"no database at all " * 1000)


def from_the_future(path: Path) -> None:
    """As a later xidwatch would leave it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = 99 WHERE name = 'version'")


def of_another_program(path: Path) -> None:
    """A sound database of somebody else."""
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE things (name TEXT)")


def wrong_totals(path: Path) -> None:
    """Sound pages, but a total that is none."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE totals SET labels = 'x'")


@pytest.mark.parametrize(
    "spoil",
    [truncate, empty, scribble, overwrite, from_the_future, of_another_program, wrong_totals],
    ids=lambda one: one.__name__,
)
def test_unusable_file(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """A torn file, or one of another version or program, is kept under another name and said, and a new history begins."""
    path = tmp_path / "history.db"
    filled(path)
    spoil(path)
    before = path.read_bytes()
    history = History.open(path, clock_us=Clock())
    assert {} == history.totals()
    aside = tmp_path / "history.db.broken-20270115T080000Z"
    assert before == aside.read_bytes()
    (said,) = history.take_messages()
    assert aside.name in said
    assert 1 == history.health().set_aside_total
    history.append(xid(7))
    assert history.close(10)
    assert [7] == stored_numbers(path)


def test_file_torn_while_it_runs(tmp_path: Path) -> None:
    """A file that is found torn at a write is set aside too, and totals and positions go on from where they were."""
    path = tmp_path / "history.db"
    filled(path)
    history = History.open(path, FAST)
    overwrite_all_pages_but_the_first(path)
    numbers = itertools.count(1000)

    def set_aside() -> bool:
        history.append(xid(next(numbers)))
        return history.health().set_aside_total == 1

    until(set_aside)
    assert history.flush(20)
    totals = history.totals()
    assert 300 < totals[ALL]
    assert history.close(10)
    history = History.open(path)
    assert totals == history.totals()
    assert f"b1:{next(numbers) - 1}" == history.positions()["kmsg"]
    assert history.close(10)


def overwrite_all_pages_but_the_first(path: Path) -> None:
    """Garbage, as a failing disk leaves it."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(2).randbytes(path.stat().st_size - 4096))


def test_few_broken_files_are_kept(tmp_path: Path) -> None:
    """A disk that breaks the file again and again is not filled with what it broke."""
    path, clock = tmp_path / "history.db", Clock()
    for _ in range(6):
        path.write_bytes(b"torn")
        assert History.open(path, clock_us=clock).close(10)
        clock.now_us += 60_000_000
    assert 3 == len(list(tmp_path.glob("history.db.broken-*")))


# limits


def test_age_limit(tmp_path: Path) -> None:
    """Entries stored longer ago than the limit go; their totals stay, and so does the latest word on maintenance."""
    path, clock = tmp_path / "history.db", Clock(time.time_ns() // 1000)
    filled_at = clock.now_us
    history = History.open(path, FAST, clock)
    for number in range(600):
        history.append(xid(number))
    assert history.flush(10)
    clock.now_us = filled_at + 60 * DAY_US
    history.append(xid(600))
    assert history.flush(10)
    for number in range(3):
        add_note(path, "maintenance_start", {"n": number})
    clock.now_us = filled_at + 91 * DAY_US
    until(lambda: [600] == stored_numbers(path))
    assert [{"n": 2}] == [note.data for note in read_notes(path)]
    assert 601 == history.totals()[ALL]
    assert history.close(10)
    history = History.open(path, FAST, clock)
    assert 601 == history.totals()[ALL]
    assert history.close(10)


def test_size_limit(tmp_path: Path) -> None:
    """The file stays within its size, the oldest entries go first, and the totals do not fall."""
    path, limit = tmp_path / "history.db", 400_000
    history = History.open(path, Limits(size_bytes=limit, poll_s=0.01))
    highest = 0
    for number in range(6000):
        history.append(xid(number))
        if number % 500 == 499:
            assert history.flush(20)
            highest = max(highest, path.stat().st_size)
    until(lambda: path.stat().st_size <= limit * 1.1)
    assert history.close(20)
    assert path.stat().st_size <= limit * 1.1
    assert highest < 4 * limit
    kept = stored_numbers(path)
    assert kept == list(range(6000 - len(kept), 6000))
    assert len(kept) > 100
    history = History.open(path)
    assert 6000 == history.totals()[ALL]
    assert history.close(10)


def test_lowered_size_limit(tmp_path: Path) -> None:
    """A file that is over a lowered limit is brought below it in slices, and gives the room back."""
    path = tmp_path / "history.db"
    filled(path, 3000)
    before = path.stat().st_size
    history = History.open(path, Limits(size_bytes=before // 4, poll_s=0.01))
    until(lambda: file_bytes(path) <= before // 4)
    assert history.close(20)
    assert path.stat().st_size <= before // 4
    assert 2999 == stored_numbers(path)[-1]


def file_bytes(path: Path) -> int:
    """Size of the database itself, its log merged."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0])


# notes and reading from other processes


def test_notes_of_another_process(tmp_path: Path) -> None:
    """An operator's note from another process reaches the running daemon once, and again after each restart."""
    path = tmp_path / "history.db"
    history = History.open(path, FAST)
    assert [] == history.take_notes()
    program = (
        "import sys; from pathlib import Path; from xidwatch.sinks.history import add_note\n"
        "print(add_note(Path(sys.argv[1]), 'incident_close', {'id': 'abc', 'reason': 'card \\u00fcberpr\\u00fcft'}).id)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=True, timeout=20, stdout=subprocess.DEVNULL)
    history.append(xid(1))
    found: list[Note] = []

    def taken(most: int) -> bool:
        found.extend(history.take_notes())
        return len(found) >= most

    until(lambda: taken(1))
    assert [("incident_close", {"id": "abc", "reason": "card \u00fcberpr\u00fcft"})] == [
        (note.kind, note.data) for note in found
    ]
    second = add_note(path, "maintenance_start", {"until_us": 5})
    until(lambda: taken(2))
    assert second == found[1]
    assert history.close(10)
    history = History.open(path)
    assert found == history.take_notes() == read_notes(path)
    assert [] == history.take_notes()
    assert history.close(10)


def test_note_without_history(tmp_path: Path) -> None:
    """A note has nowhere to go before the daemon ran; the error names the place, and nothing is made there."""
    with pytest.raises(XidwatchError, match="no history there"):
        add_note(tmp_path / "history.db", "maintenance_start", {})
    assert [] == list(tmp_path.iterdir())


def test_read_while_the_daemon_writes(tmp_path: Path) -> None:
    """A slow reader sees a prefix of the stream, whole and in order, and does not hold the writer up."""
    path = tmp_path / "history.db"
    filled(path, 50)
    history = History.open(path)
    reader = read_history(path)
    first = [next(reader).identity for _ in range(10)]
    for number in range(50, 2000):
        history.append(xid(number))
    assert history.flush(20)
    assert [f"id{number}" for number in range(2000)] == first + [entry.identity for entry in reader]
    assert history.close(10)


def test_read_filters(tmp_path: Path) -> None:
    """`since` goes by the line's own time, and by that of storing where it has none; a GPU by any spelling or its end."""
    path = tmp_path / "history.db"
    history = History.open(path, clock_us=Clock(9_000_000))
    history.append(xid(1, wall_us=1_000_000))
    history.append(xid(2, wall_us=2_000_000, gpu="4e"))
    history.append(xid(3, wall_us=None))
    assert history.flush(10)
    assert ["id2", "id3"] == [entry.identity for entry in read_history(path, since_us=2_000_000)]
    for spelling in ("4e:00", "0000:4e:00.0", "PCI:0000:4E:00", "00000000:4E:00.0"):
        assert ["id2"] == [entry.identity for entry in read_history(path, gpu=spelling)]
    assert [] == list(read_history(path, since_us=3_000_000, gpu="4e:00"))
    assert history.close(10)


def test_read_without_history(tmp_path: Path) -> None:
    """Where there is no history, or one that this version cannot read, the reader says so in a sentence."""
    with pytest.raises(XidwatchError, match="no history there"):
        list(read_history(tmp_path / "history.db"))
    filled(tmp_path / "history.db", 1)
    from_the_future(tmp_path / "history.db")
    with pytest.raises(XidwatchError, match="a newer xidwatch wrote it: version 99"):
        list(read_history(tmp_path / "history.db"))
    overwrite(tmp_path / "history.db")
    with pytest.raises(XidwatchError, match="not a database"):
        list(read_history(tmp_path / "history.db"))


# with root: file systems that are really full, read-only or frozen


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A file system of our own."""
    folder.mkdir()
    subprocess.run(["mount", *options, str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


@pytest.mark.root
def test_full_disk(tmp_path: Path) -> None:
    """On a disk without room the entries wait in memory, and are all there once there is some."""
    with mounted(tmp_path / "state", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as folder:
        history = History.open(folder / "history.db", FAST)
        (folder / "ballast").write_bytes(b"x" * 700_000)
        for number in range(1, 3000):
            history.append(numbered(number))
        until(lambda: "full" in (history.health().last_error or ""))
        assert 2999 == history.totals()[ALL]
        subprocess.run(["mount", "-o", "remount,size=50m", str(folder)], check=True)
        assert history.flush(20)
        assert history.close(10)
        assert list(range(1, 3000)) == stored_numbers(folder / "history.db")


@pytest.mark.root
@pytest.mark.parametrize("killed", [False, True])
def test_read_only_file_system(tmp_path: Path, *, killed: bool) -> None:
    """A disk that went read-only can be read, tells the totals to a restarted daemon, and is written again when it can be."""
    with mounted(tmp_path / "state", "-t", "tmpfs", "tmpfs") as folder:
        path = folder / "history.db"
        filled(path, 10)
        if killed:
            leave_log_behind(path)
        entries = 11 if killed else 10
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert list(range(entries)) == stored_numbers(path)
        history = History.open(path, FAST)
        assert (entries, f"b1:{entries - 1}") == (history.totals()[ALL], history.positions()["kmsg"])
        assert not history.append(xid(1))
        assert history.append(xid(50))
        until(lambda: history.health().write_failures_total > 2)
        assert entries + 1 == history.totals()[ALL]
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        assert history.flush(20)
        assert entries + 1 == history.totals()[ALL]
        assert history.close(10)
        assert [*range(entries), 50] == stored_numbers(path)


def leave_log_behind(path: Path) -> None:
    """Add entry 10 and end as a killed process does: the log not merged, its index file gone."""
    program = (
        "import os, sys; from pathlib import Path; from tests.sinks.test_history import xid\n"
        "from xidwatch.sinks.history import History\n"
        "history = History.open(Path(sys.argv[1])); history.append(xid(10)); history.flush(10); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=False)
    path.with_name(path.name + "-shm").unlink()


@pytest.mark.root
def test_frozen_file_system(tmp_path: Path) -> None:
    """On a frozen disk the writer sleeps in D state and nothing else: totals rise, health answers, close gives up in time."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mounted(tmp_path / "state", "-o", "loop", str(image)) as folder:
        path = folder / "history.db"
        history = History.open(path)
        history.append(xid(0))
        assert history.flush(10)
        subprocess.run(["fsfreeze", "-f", str(folder)], check=True)
        try:
            for number in range(1, 12_000):
                history.append(xid(number))
            until(lambda: "D" in {line_state(task) for task in Path("/proc/self/task").iterdir()})
            assert 12_000 == history.totals()[ALL]
            assert history.health().backlog > 10_000
            assert not history.close(0.3)
        finally:
            subprocess.run(["fsfreeze", "-u", str(folder)], check=True)
        assert history.close(30)
        assert 12_000 == len(list(read_history(path)))


def line_state(task: Path) -> str:
    """State letter of a thread."""
    return (task / "stat").read_text().rpartition(") ")[2][0]


def test_way_is_made_as_long_as_is_allowed(tmp_path: Path) -> None:
    """Whoever is far ahead of a disk that has just written waits while nothing more is written."""
    path = tmp_path / "history.db"
    history = History.open(path, clock_us=lambda: 1_000_000_000)
    history.append(xid(1))
    assert history.flush(30)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        for number in range(2, 2000):
            history.append(xid(number))
        began_s = time.monotonic()
        history.make_way(0.3)
        assert time.monotonic() - began_s > 0.25
        other.rollback()
    assert history.close(30)


def test_way_is_made_only_for_a_disk_that_answers(tmp_path: Path) -> None:
    """Whoever is ahead waits for the thread, but not for one that has not written lately."""
    hands = {"us": 1_000_000_000}
    history = History.open(tmp_path / "history.db", clock_us=lambda: hands["us"])
    for number in range(3000):
        history.append(Entry(identity=f"{number}", source="kmsg", wall_us=number, item={"type": "x"}))
    hands["us"] += 60_000_000
    began_s = time.monotonic()
    history.make_way(30.0)
    assert time.monotonic() - began_s < 10
    assert history.flush(30)
    history.make_way(30.0)
    assert time.monotonic() - began_s < 20
    assert history.close(30)
