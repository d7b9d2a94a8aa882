"""Logs whose entries span several lines: pretty-printed JSON, a JSON array, `journalctl -o verbose` -> an entry a line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator

from xidwatch.core.pattern import lazy

Entry = tuple[int, bytes]
"""The line number at which it begins, from 1, and the entry as JSON, or a line that belongs to none."""

LONGEST_OBJECT = 1 << 20
_LONGEST_LINE = 1 << 16
_AT_ONCE = 1 << 18
_BETWEEN = lazy(rb"(?:[\s,\x1e\[\]}]+|data: (?=\{))*")
_TOKEN = lazy(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}]', 16)  # 16: re.DOTALL
_FRAME = lazy(rb'\{\s*"(?:dmesg|entries|logs|events|records|results|items|messages)"\s*:\s*\[')
"""An object around all entries: util-linux has "dmesg"."""
_VERBOSE_HEAD = lazy(
    rb"\S+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\[\n]* \[s=[0-9a-f]+;i=[0-9a-f]+;b=([0-9a-f]{32});m=([0-9a-f]+);t=([0-9a-f]+);"
)
_VERBOSE_FIELD = lazy(rb"\s+([A-Z_][A-Z0-9_]*)=(.*)")
_MOST_FIELDS = 200


def read_entries(chunks: Iterable[bytes]) -> Iterator[Entry]:
    """The entries of a log, whichever of these it is."""
    feed = iter(chunks)
    opening = next(feed, b"")
    whole = itertools.chain([opening], feed)
    return verbose_entries(_cut(whole)) if _VERBOSE_HEAD.match(opening.lstrip()) else json_entries(whole)


def json_entries(chunks: Iterable[bytes]) -> Iterator[Entry]:
    """The objects of a JSON text, whatever stands between them, and the lines that are none; bounded in memory.

    An object longer than LONGEST_OBJECT, or one that never ends, is given as its lines.
    """
    buffer, number = b"", 1
    for chunk, last in _with_last(_gathered(chunks)):
        buffer += chunk
        at = 0
        while True:
            start = _after_frame(buffer, _end_of_between(buffer, at))
            number += buffer.count(b"\n", at, start)
            at = start
            is_object = (end := _object_end(buffer, at)) is not None
            if end is None and (end := _end_of_lines(buffer, at, last=last)) is None:
                break
            if is_object:
                yield number, buffer[at:end].replace(b"\r", b"")
            else:
                yield from _lines(number, buffer[at:end])
            number += buffer.count(b"\n", at, end)
            at = end
        buffer = buffer[at:]


def verbose_entries(lines: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of `journalctl -o verbose` as `-o json` would print them; the exact times stand in the cursor."""
    entry: dict[str, str] = {}
    begin, field = 0, ""
    for number, line in lines:
        if head := _VERBOSE_HEAD.match(line):
            if entry:
                yield begin, json.dumps(entry).encode()
            begin, field = number, ""
            entry = {
                "_BOOT_ID": head[1].decode(),
                "__MONOTONIC_TIMESTAMP": str(int(head[2], 16)),
                "__REALTIME_TIMESTAMP": str(int(head[3], 16)),
            }
        elif named := _VERBOSE_FIELD.match(line):
            field = named[1].decode()
            if len(entry) < _MOST_FIELDS:
                entry.setdefault(field, named[2].decode("utf-8", "replace"))
        elif field == "MESSAGE" and len(entry.get(field, "")) < _LONGEST_LINE:
            entry[field] += "\n" + line.strip().decode("utf-8", "replace")
    if entry:
        yield begin, json.dumps(entry).encode()


def _gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Chunks large enough that looking twice at an unfinished object costs little."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= _AT_ONCE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _with_last(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    for chunk in chunks:
        yield chunk, False
    yield b"", True


def _end_of_between(buffer: bytes, at: int) -> int:
    between = _BETWEEN.match(buffer, at)
    return between.end() if between else at


def _after_frame(buffer: bytes, at: int) -> int:
    frame = _FRAME.match(buffer, at)
    return _end_of_between(buffer, frame.end()) if frame else at


def _end_of_lines(buffer: bytes, at: int, *, last: bool) -> int | None:
    """Where the line at `at` ends, or all the lines of an object that is none; None when more must be read first."""
    if at >= len(buffer):
        return None
    enough = last or len(buffer) - at > (LONGEST_OBJECT if buffer[at : at + 1] == b"{" else _LONGEST_LINE)
    if buffer[at : at + 1] != b"{":
        return buffer.find(b"\n", at) + 1 or (len(buffer) if enough else None)
    return (buffer.rfind(b"\n", at) + 1 or len(buffer)) if enough else None


def _object_end(buffer: bytes, at: int) -> int | None:
    if buffer[at : at + 1] != b"{":
        return None
    depth = 0
    for token in _TOKEN.finditer(buffer, at):
        match token[0]:
            case b"{":
                depth += 1
            case b"}":
                depth -= 1
                if not depth:
                    return token.end()
            case b'"':
                return None
    return None


def _lines(number: int, text: bytes) -> Iterator[Entry]:
    for nth, line in enumerate(text.removesuffix(b"\n").split(b"\n")):
        yield number + nth, line[:_LONGEST_LINE]


def _cut(chunks: Iterable[bytes]) -> Iterator[Entry]:
    rest, number = b"", 0
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield number, line[:_LONGEST_LINE]
        rest = rest[:LONGEST_OBJECT]
    if rest:
        yield number + 1, rest[:_LONGEST_LINE]
