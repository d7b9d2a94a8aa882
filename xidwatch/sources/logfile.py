"""Any log file, archive, folder or bug report -> Records, stream by stream, in the true order, in bounded memory."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, BinaryIO, Protocol

from xidwatch.core.broken import Joiner
from xidwatch.core.incident import InputReport
from xidwatch.core.journal import parse_export, parse_journal
from xidwatch.core.logclock import LogClock
from xidwatch.core.logtext import LogLine, parse_line
from xidwatch.core.parse import LITERALS, NOTHING, Further
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.sources.archive import Archive, Waiting
from xidwatch.sources.blocks import CHUNK_BYTES, Block, search_ahead
from xidwatch.sources.bugreport import RULE, Deduplicator, Sections
from xidwatch.sources.folder import Family, find_logs, is_journal_file, reading_order
from xidwatch.sources.literals import find_hits, line_searches
from xidwatch.sources.probe import HEAD_BYTES, Probe, probe, with_tail
from xidwatch.sources.repeats import Repeats
from xidwatch.sources.ringbuffer import RingBuffer
from xidwatch.sources.scan import FIRST_LINES, NumberedLine, every_line, scan_blocks, scan_lines

AFTER_LINES = 200
_BOOT_WORDS = ("Linux version ", "0.000000] ", "-- Boot ", "-- Reboot --")
_LOST_WORDS = ("kernel messages", "printk messages dropped", "messages lost due to rate-limiting")
_SECTION_WORDS = (RULE, "*** /", "journalctl -", "dmesg:", "NVRM version:", "nvidia-smi")
_BYTE_ARRAYS = tuple(f"MESSAGE{quote}{colon}[" for quote in ('"', '\\"') for colon in (":", ": ", " : ", " :"))
"""JSON's form of a journal entry that is not UTF-8: `"MESSAGE":[78,86,...`, perhaps inside another JSON text."""
_JSON_ESCAPES = (r"\u002", r"\u003a", r"\u003A", r"\u004", r"\u005", r"\u006", r"\u007")
"""Characters that our words are made of, as JSON may write them; `'` and `&` are what most writers write so."""
_OTHER_SPELLINGS = (*_BYTE_ARRAYS, *_JSON_ESCAPES, *(word.replace("/", r"\/") for word in LITERALS if "/" in word))
_FIRST_WORDS = ("INFO: task ",)
"""The beginnings of messages that a narrow terminal may break inside their literal."""
_WANTED = (*LITERALS, *_BOOT_WORDS, *_LOST_WORDS, *_OTHER_SPELLINGS, *_FIRST_WORDS)
_LOST = lazy(r"(?:Missed (\d+) kernel messages|(\d+) printk messages dropped|(\d+) messages lost due to rate-limiting)")
_TAIL_BYTES = 1 << 16
_KMSG = "/dev/kmsg"
"""As a file it has no end."""
_MOST_HELD = 500
_MOST_UNTIMED = 5000
_MOST_UNTIMED_BYTES = 1 << 21
"""So many lines at the beginning, and so many bytes, are looked at for a first time: a line may be as long as the file."""
_BACKWARDS_US = 60_000_000

Progress = Callable[[int, int | None], None]


class Reader(Protocol):
    """Who takes the records; asked when each has been dealt with."""

    def further(self) -> Further:
        """Which of the lines behind it are wanted."""

    def told(self) -> tuple[Record, Hashable] | None:
        """See `Repeats`."""


class LogInputs:
    """The records of several inputs; iterate once.

    Attributes:
        reports: What was read of each input, complete once the iteration has ended.
        folders: By stream, what is of one node (see `Family`), and the node that it is named after.
        reader: Who takes the records. Without one, a fixed number of lines behind each line of ours is given too.
    """

    def __init__(  # noqa: PLR0913  # one maker
        self,
        paths: Sequence[str],
        *,
        tz: tzinfo,
        year: int | None,
        now_us: int,
        progress: Progress | None = None,
        waiting: Waiting | None = None,
        whole: bool = False,
    ) -> None:
        """Args: see `ExplainOptions`; no path at all means this machine's ring buffer. `whole`: leave out no line."""
        self.reports: list[InputReport] = []
        self.folders: dict[int, tuple[str, str | None]] = {}
        self.reader: Reader | None = None
        self.whole = whole
        self.several = False
        self._paths = tuple(paths)
        self._tz = tz
        self._year = year
        self._now_us = now_us
        self._progress = progress
        self._waiting = waiting
        self._alone = False
        self._folder: tuple[str, str | None] = ("", None)
        self._streams = self._numbered()
        self._read_before = 0

    def __iter__(self) -> Iterator[Record]:
        """Records in order of time within each stream; streams one after another.

        Raises:
            XidwatchError: the only input is missing or unreadable; the text names the next step. One of several is reported.
        """
        if self._paths in ((), (_KMSG,)):
            yield from self._ring_buffer()
            return
        found = find_logs(self._paths)
        several = self.several = len(found.families) > 1
        self._alone = len(self._paths) == 1 and sum(len(family.paths) for family in found.families) == 1
        doubles = Deduplicator()
        for family in reading_order(found.families):
            for record in self._family(family):
                if not (several and doubles.seen(record)):
                    yield record
        given = [path for family in found.families for path in family.paths]
        self.reports.sort(key=lambda report: given.index(report.path) if report.path in given else len(given))
        for path, why in found.unread:
            self.reports.append(_not_read(path, why, unread=True))
        for path, why in found.skipped:
            self.reports.append(_not_read(path, why, unread=False))
        if doubles.full and self.reports:
            note = "so many lines that some which stand in two inputs may have been counted twice"
            self.reports[0] = replace(self.reports[0], notes=(*self.reports[0].notes, note))

    def _ring_buffer(self) -> Iterator[Record]:
        buffer = RingBuffer()
        tally = _Tally()
        for record in buffer:
            tally.add(record)
            yield record
        tally.records, tally.lost = tally.seen, buffer.lost
        boot_ids = (buffer.boot_id,) if buffer.boot_id else ()
        self.reports.append(tally.report(buffer.path, "/dev/kmsg", buffer.bytes, boot_ids))

    def _numbered(self) -> Iterator[int]:
        """Numbers for streams, each known to be of the folder that is being read."""
        for stream in itertools.count():
            self.folders[stream] = self._folder
            yield stream

    def _family(self, family: Family) -> Iterator[Record]:
        self._folder = family.folder, family.host
        stream = next(self._streams)
        clock = LogClock(self._tz, self._now_us, self._year)
        if len(family.paths) > 1 and self._year is None:
            _look_over(family, clock)
        place = _Place(stream, 0, family.host, self._streams)
        beside = family.paths[1:] if all(is_journal_file(path) for path in family.paths) else ()
        for path in family.paths[:1] if beside else family.paths:
            try:
                archive = Archive(path, waiting=self._waiting)
            except XidwatchError as reason:
                if self._alone:
                    raise
                self.reports.append(_not_read(path, str(reason).removeprefix(f"{path}: "), unread=True))
                continue
            reading = _Reading(self, archive, clock, replace(place, stream=stream), self._tick(archive), beside)
            try:
                yield from reading.records()
            except XidwatchError as reason:
                if self._alone:
                    raise
                reading.give_up(str(reason).removeprefix(f"{path}: "))
            finally:
                archive.close()
            place = reading.place
            self._read_before += archive.taken
            self.reports.append(reading.report())

    def _tick(self, archive: Archive) -> Callable[[], None]:
        progress, before = self._progress, self._read_before
        if progress is None:
            return lambda: None
        total = archive.size + before if archive.size is not None and len(self._paths) == 1 else None
        return lambda: progress(before + archive.taken, total)


def _not_read(path: str, why: str, *, unread: bool) -> InputReport:
    return InputReport(path=path, format="not read", bytes=0, records=0, notes=(why,), unread=unread)


def _look_over(family: Family, clock: LogClock) -> None:
    """Find the year in which the oldest file of a rotated log begins, from the heads of all and the tail of the last."""
    heads: list[LogLine] = []
    last = Probe("empty")
    for path in family.paths:
        try:
            with contextlib.closing(Archive(path)) as archive:
                tail = archive.tail(_TAIL_BYTES) if archive.plain else b""
                last = probe(next(archive.chunks(), b"")[:HEAD_BYTES], tail)
        except XidwatchError:
            continue  # it is reported where it is to be read
        heads += (last.head[-1:] + last.head[:1])[::-1] if last.reversed else (last.head[:1] + last.head[-1:])
    clock.look_ahead(heads, list(last.tail[:1] if last.reversed else last.tail[-1:]))


@dataclass(slots=True)
class _Place:
    """Where records go: their stream, the last `seq` used in it, the folder's host, and further streams for sections."""

    stream: int
    seq: int
    host: str | None
    streams: Iterator[int]


@dataclass(slots=True)
class _Tally:
    """What the report needs to know."""

    seen: int = 0
    records: int = 0
    lost: int = 0
    first: Record | None = None
    last: Record | None = None
    backwards: int = 0
    notes: list[str] = field(default_factory=list)
    unread: bool = False

    def add(self, record: Record) -> None:
        self.seen += 1
        if record.wall_us is not None or record.since_boot_us is not None:
            if self.last is not None and _runs_back(self.last, record):
                self.backwards += 1
            self.first = self.first or record
            self.last = record
        if "messages" in record.text and (lost := _LOST.search(record.text)):
            self.lost += int(lost[1] or lost[2] or lost[3])

    def report(self, path: str, form: str, size: int, boot_ids: Sequence[str]) -> InputReport:
        if self.backwards:
            self.notes.append(
                f"the clock runs backwards {self.backwards} times: excerpts put together, or a clock that was set"
            )
        return InputReport(
            path=path,
            format=form,
            bytes=size,
            records=self.records,
            first=self.first,
            last=self.last,
            lost_records=self.lost,
            boot_ids=tuple(boot_ids),
            notes=tuple(self.notes),
            unread=self.unread,
        )


def _runs_back(earlier: Record, later: Record) -> bool:
    if earlier.stream != later.stream or earlier.host != later.host:
        return False
    if earlier.wall_us is not None and later.wall_us is not None:
        return later.wall_us < earlier.wall_us - _BACKWARDS_US
    if earlier.boot_id != later.boot_id or earlier.since_boot_us is None or later.since_boot_us is None:
        return False
    return later.since_boot_us < earlier.since_boot_us - _BACKWARDS_US


class _Reading:
    """One file being read."""

    def __init__(  # noqa: PLR0913, PLR0917 - one maker
        self,
        inputs: LogInputs,
        archive: Archive,
        clock: LogClock,
        place: _Place,
        tick: Callable[[], None],
        beside: Sequence[str] = (),
    ) -> None:
        """Args: `beside` are the further files of the same journal."""
        self._inputs = inputs
        self.place = place
        self._beside = tuple(beside)
        self._archive = archive
        self._clock = clock
        self._tick = tick
        self._tally = _Tally()
        self._form = "empty"
        self._bytes = 0
        self._later_file = place.seq > 0
        self._boot_ids: dict[str, None] = {}
        self._boot_lines = 0
        self._parsed_bytes = 0
        self._ahead: list[Block] | None = None
        self._joiner = Joiner()
        self._repeats = Repeats(self._told)

    def report(self) -> InputReport:
        """What was read."""
        boot_ids = list(self._boot_ids)
        self._tally.notes += self._archive.notes
        if self._form == "empty" and self._archive.notes:
            self._tally.unread = True
        return self._tally.report(self._archive.path, self._form, self._bytes, boot_ids)

    def give_up(self, why: str) -> None:
        """The rest of it cannot be read."""
        self._note(why)
        self._tally.unread = True
        if not self._tally.seen:
            self._form = "not read"

    def records(self) -> Iterator[Record]:
        """The records in order of time."""
        chunks: Iterator[bytes] = self._counted(self._archive.chunks())
        head: list[bytes] = []
        for chunk in chunks:
            head.append(chunk)
            if sum(map(len, head)) >= HEAD_BYTES:
                break
        start = b"".join(head)
        seen = probe(start[:HEAD_BYTES], self._tail(start))
        chunks = itertools.chain(head, chunks)
        if self._needs_last_lines(seen, start):
            seen, chunks = self._to_its_end(seen, chunks)
        for record in self._by_kind(seen, chunks):
            self._tally.add(record)
            if record.boot_id is not None and record.boot_id not in self._boot_ids:
                self._boot_ids[record.boot_id] = None
                self._boot_lines = FIRST_LINES
            yield record

    def _by_kind(self, seen: Probe, chunks: Iterator[bytes]) -> Iterator[Record]:
        self._form = seen.form if seen.kind in ("text", "utf-16") else f"{seen.kind}"
        match seen.kind:
            case "empty":
                if not self._archive.notes:
                    self._note("empty")
            case "binary":
                self._note("binary, nothing readable")
                self._tally.unread = True
            case "journal file":
                yield from self._journal_files()
            case "journal export":
                self._form = "journalctl -o export"
                yield from self._export(chunks)
            case "utf-16":
                yield from self._respelt(_from_utf16(chunks), "UTF-16")
            case "carriage returns":
                yield from self._respelt((chunk.replace(b"\r", b"\n") for chunk in chunks), "carriage returns")
            case "entries":
                self._form = seen.form
                yield from self._spread(seen, chunks)
            case "bug report":
                self._form = "nvidia-bug-report.log"
                yield from self._bug_report(seen, chunks)
            case _ if seen.reversed:
                yield from self._reversed(seen, chunks)
            case _:
                self._settle(seen)
                yield from self._text(seen, chunks)

    # --- text ---

    def _respelt(self, plain: Iterator[bytes], spelling: str) -> Iterator[Record]:
        """Text that had to be spelt anew before it had lines."""
        opening = next(plain, b"")
        seen = probe(opening[:HEAD_BYTES], b"")
        self._form = f"{seen.form}, {spelling}"
        chunks = itertools.chain([opening], plain)
        if seen.kind == "entries":
            yield from self._spread(seen, chunks)
        elif seen.reversed:
            yield from self._reversed(seen, chunks, spool=True)
        else:
            self._settle(seen)
            yield from self._text(seen, chunks)

    def _spread(self, seen: Probe, chunks: Iterable[bytes]) -> Iterator[Record]:
        """Entries that are not a line each; they are numbered by the line at which they begin."""
        from xidwatch.core.entries import read_entries

        entries: Iterable[NumberedLine] = read_entries(chunks)
        with contextlib.ExitStack() as stack:
            if seen.reversed:
                self._note("newest entry first; read from its end")
                self._form += ", newest first"
                file = stack.enter_context(_spool(b"%d %s\n" % (number, _one_line(entry)) for number, entry in entries))
                turned = Archive(self._archive.path, file).backwards()
                entries = (_numbered(line) for _, line in every_line(_reversed_chunks(turned)))
            if not self._later_file:
                turn = -1 if seen.reversed else 1
                self._clock.look_ahead(list(seen.head)[::turn], [])
            seq = 0
            for seq, (number, line) in enumerate(self._joiner.join(self._parsed(entries)), 1):
                yield self._record(line, seq, number)
            self._end(seq)

    def _text(self, seen: Probe, chunks: Iterable[bytes]) -> Iterator[Record]:
        number = 0
        lines = every_line(chunks) if _needs_every_line(seen) else self._scanned(seen, chunks, _WANTED)
        above = 0
        for number, line in self._joiner.join(self._parsed(self._repeats.fold(lines))):
            if number > above + 1 and not self._repeats.count:
                self._clock.skip()
            above = number
            record = self._record(line, number, number)
            yield replace(record, repeats=self._repeats.count) if self._repeats.count else record
        self._end(max(number, self._joiner.number))

    def _scanned(self, seen: Probe, chunks: Iterable[bytes], words: Sequence[str]) -> Iterator[NumberedLine]:
        """The lines worth reading. Dates without a year are sampled: who sees too few of them misses a new year."""
        if self._inputs.whole:
            return every_line(chunks)
        after = AFTER_LINES if self._inputs.reader is None else self._further
        if self._ahead is not None:
            return scan_blocks(self._ahead, words, after, sampled=True)
        return scan_lines(chunks, words, after, sampled=any(map(_lacks_year, seen.head)))

    def _told(self) -> tuple[Record, Hashable] | None:
        """What the reader says of the latest record; nothing where two inputs have to be compared line by line."""
        reader = self._inputs.reader
        alone = reader is not None and not self._inputs.whole and not self._inputs.several and not self._joiner.holds
        return reader.told() if alone and reader is not None else None

    def _further(self) -> Further:
        """What the reader wants, and the first lines of a boot: they name it, and hosts."""
        further = self._inputs.reader.further() if self._inputs.reader is not None else NOTHING
        if self._joiner.holds or self._boot_lines or self._seeks_time():
            self._boot_lines = max(0, self._boot_lines - 1)
            return further._replace(whole=max(further.whole, 1))
        return further

    def _seeks_time(self) -> bool:
        """No line had a time yet, and it is early."""
        return self._tally.first is None and self._tally.seen < _MOST_UNTIMED and self._parsed_bytes < _MOST_UNTIMED_BYTES

    def _parsed(self, lines: Iterable[NumberedLine]) -> Iterator[tuple[int, LogLine]]:
        host = self.place.host
        for number, raw in lines:
            self._parsed_bytes += len(raw)
            line = parse_line(raw.decode("utf-8", "replace"))
            if line.host is None:
                line.host = host
            yield number, line

    def _record(self, line: LogLine, seq: int, number: int) -> Record:
        return self._clock.record(line, stream=self.place.stream, seq=self.place.seq + seq, number=number)

    def _end(self, lines: int) -> None:
        self._tally.records += lines
        self.place.seq += lines
        if self._clock.assumed_year:
            self._note(f"its dates name no year: the first is taken for {self._clock.first_year}; --year says otherwise")
        for name in sorted(self._clock.odd_months):
            self._note(f"{name} is not the same month in every language; it was taken for the likeliest")
        if self._clock.odd_zones:
            self._note("some of its times name a zone that does not exist; they are taken for times of the machine's own zone")

    def _settle(self, seen: Probe) -> None:
        """Give the clock what the ends of the log show."""
        if not self._later_file:
            self._clock.look_ahead(list(seen.head), list(seen.tail))

    def _tail(self, start: bytes) -> bytes:
        if not self._archive.plain or (self._archive.size or 0) <= len(start):
            return b""
        return self._archive.tail(_TAIL_BYTES, behind=len(start))

    def _needs_last_lines(self, seen: Probe, start: bytes) -> bool:
        """A packed log without years must be unpacked once to see when it ends, and so in which year it begins."""
        if not self._archive.packing or not self._archive.seekable or self._clock.year is not None or len(start) < HEAD_BYTES:
            return False
        return any(map(_lacks_year, seen.head))

    def _to_its_end(self, seen: Probe, chunks: Iterator[bytes]) -> tuple[Probe, Iterator[bytes]]:
        """What a packed log looks like with its end, and its bytes once more; most are not needed again."""
        ahead = search_ahead(chunks, line_searches(_WANTED), _TAIL_BYTES)
        seen = with_tail(seen, ahead.tail)
        if seen.kind == "text" and not seen.reversed and not _needs_every_line(seen) and not self._inputs.whole:
            self._ahead = ahead.blocks
        if self._ahead is not None:
            return seen, iter(())
        self._bytes = 0
        self._archive.notes.clear()
        return seen, self._counted(self._archive.chunks())

    # --- newest first ---

    def _reversed(self, seen: Probe, chunks: Iterable[bytes], *, spool: bool = False) -> Iterator[Record]:
        self._note("newest line first; read from its end")
        self._form = f"{seen.form}, newest first"
        with contextlib.ExitStack() as stack:
            archive = self._archive
            if spool or not archive.plain:
                archive = Archive(archive.path, stack.enter_context(_spool(chunks)))
            yield from self._from_end(seen, archive)

    def _from_end(self, seen: Probe, archive: Archive) -> Iterator[Record]:
        total, self._bytes = _count_lines(archive.chunks())
        if not self._later_file:
            self._clock.look_ahead(list(seen.tail)[::-1], list(seen.head)[::-1])
        turned = _reversed_chunks(archive.backwards())
        lines = self._parsed(every_line(turned) if self._inputs.whole else scan_lines(turned, _WANTED, AFTER_LINES))
        if seen.entries_forward:
            lines = _heads_first(lines)
        for seq, (number, line) in enumerate(self._joiner.join(lines), 1):
            yield self._record(line, seq, max(1, total - number + 1))
        self._end(total)

    # --- bug reports and journals ---

    def _bug_report(self, seen: Probe, chunks: Iterable[bytes]) -> Iterator[Record]:
        sections, doubles = Sections(), Deduplicator(by_text=True)
        open_section = -1
        number = 0
        for number, raw in self._scanned(seen, chunks, (*_WANTED, *_SECTION_WORDS)):
            text = raw.decode("utf-8", "replace")
            if not sections.feed(text.rstrip("\r")):
                continue
            if sections.number != open_section:
                open_section = sections.number
                self.place.stream = next(self.place.streams)
                self._clock = LogClock(self._clock.tz, self._clock.now_us, self._clock.year)
            record = self._record(parse_line(text), number, number)
            if not doubles.seen(record):
                yield record
        self._tally.records += number
        if doubles.full:
            self._note("so many lines that some which stand in two sections may have been counted twice")

    def _export(self, chunks: Iterable[bytes]) -> Iterator[Record]:
        yield from self._entries(parse_export(chunks))

    def _journal_files(self) -> Iterator[Record]:
        """This file and those beside it, put together by journald's own count."""
        from xidwatch.sources.journalfile import JournalFiles, need_journal_extra

        path = self._archive.path
        need_journal_extra(path)
        self._form = "journal file" if not self._beside else f"{len(self._beside) + 1} journal files"
        self._bytes = sum(os.path.getsize(file) for file in (path, *self._beside))
        files = JournalFiles([path, *self._beside], find_hits(_WANTED), AFTER_LINES)
        for number, entry in files:
            if (record := self._entry(entry, number)) is not None:
                yield record
        self._tally.notes += files.notes
        self._tally.records += files.entries
        self.place.seq += files.entries

    def _entry(self, entry: Any, number: int) -> Record | None:
        if (record := parse_journal(entry)) is None:
            return None
        place = self.place
        return replace(record, stream=place.stream, seq=place.seq + number, line=number, host=record.host or place.host)

    def _entries(self, entries: Iterable[Any]) -> Iterator[Record]:
        seq = 0
        for seq, entry in enumerate(entries, 1):
            if (record := self._entry(entry, seq)) is not None:
                yield record
        self._tally.records += seq
        self.place.seq += seq

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._bytes += len(chunk)
            self._tick()
            yield chunk

    def _note(self, text: str) -> None:
        if text not in self._tally.notes:
            self._tally.notes.append(text)


def _lacks_year(line: LogLine) -> bool:
    return line.stamp is not None and line.stamp.year is None


def _needs_every_line(seen: Probe) -> bool:
    """A time that counts from the line before needs that line (`dmesg -H`, `dmesg -d`)."""
    return any(line.delta_us is not None and line.uptime_us is None for line in seen.head)


def _spool(chunks: Iterable[bytes]) -> BinaryIO:
    """The bytes of a pipe or an archive in a nameless file, to be read from its end."""
    import tempfile

    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        for chunk in chunks:
            file.write(chunk)
        file.flush()
    except OSError as reason:
        raise XidwatchError(f"no temporary copy: {reason.strerror or reason}; give it room with TMPDIR=/some/folder") from None
    return file


def _one_line(entry: bytes) -> bytes:
    """JSON has no line ends that mean something."""
    return entry.replace(b"\n", b" ")


def _numbered(line: bytes) -> NumberedLine:
    number, _, entry = line.partition(b" ")
    return int(number) if number.isdigit() else 0, entry


def _count_lines(chunks: Iterable[bytes]) -> tuple[int, int]:
    """(lines, bytes)."""
    lines = size = 0
    last = b"\n"
    for chunk in chunks:
        lines += chunk.count(b"\n")
        size += len(chunk)
        last = chunk[-1:]
    return lines + (last != b"\n"), size


def _reversed_chunks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of a file from its end -> its lines from the last to the first."""
    rest = b""
    at_end = True
    for block in blocks:
        whole = block + rest
        if at_end:
            whole, at_end = whole.removesuffix(b"\n"), False
        rest, newline, lines = whole.partition(b"\n")
        if newline:
            yield b"\n".join(lines.split(b"\n")[::-1]) + b"\n"
        elif len(rest) > 16 * CHUNK_BYTES:
            rest = rest[-CHUNK_BYTES:]
    if rest:
        yield rest + b"\n"


def _heads_first(lines: Iterable[tuple[int, LogLine]]) -> Iterator[tuple[int, LogLine]]:
    """Put the further lines of a record, met before their head, behind it again."""
    held: list[tuple[int, LogLine]] = []
    for number, line in lines:
        if line.timed or len(held) >= _MOST_HELD:
            yield number, line
            yield from reversed(held)
            held.clear()
        else:
            held.append((number, line))
    yield from reversed(held)


def _from_utf16(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """UTF-8 of what a Windows shell wrote."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for chunk in chunks:
        if text := decoder.decode(chunk):
            yield text.encode("utf-8", "replace")
