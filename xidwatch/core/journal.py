"""One journal entry -> Record: `journalctl -o json`, the export format, or a reader's dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record, Trust

_KERNEL_TAG = lazy(r"(?:NVRM|INFO|BUG|mce|rcu|watchdog|EDAC|nvidia(?:-\w+)?)$")
_KERNEL_TEXT = lazy(r"\s*(?:NVRM\b|nvidia-\w+: |INFO: task |watchdog: |NMI watchdog: |BUG: |mce: |rcu: |EDAC )")
"""What only the kernel says: in a program's own message it is a copy at best."""
_LARGEST_FIELD = 16 << 20


def parse_journal(entry: Mapping[str, object], *, kernel_trust: Trust = "unverifiable") -> Record | None:
    """Read one entry; None when it has no readable MESSAGE.

    Args:
        entry: Field name to text, number, list of byte numbers (JSON's form of bytes that are not UTF-8), bytes,
            or the types that python-systemd converts to.
        kernel_trust: What an entry of _TRANSPORT=kernel and facility 0 proves: "kernel" on a live journal,
            "unverifiable" in a file, which anybody can write.

    A line that user space wrote into /dev/kmsg has facility 1 or more, and journald moved its `NVRM:` into
    SYSLOG_IDENTIFIER: it is put back, and the record is trusted "no".
    """
    message = _text(entry.get("MESSAGE"))
    if message is None:
        return None
    tag = _text(entry.get("SYSLOG_IDENTIFIER")) or _text(entry.get("_COMM"))
    kernel, trusted = _origin(entry, tag, message, kernel_trust)
    if not kernel and tag and _KERNEL_TAG.match(tag):
        message, trusted = f"{tag}: {message}", "no"
    wall_us = _number(entry.get("__REALTIME_TIMESTAMP"))
    boot_us = _number(entry.get("_SOURCE_MONOTONIC_TIMESTAMP"))
    boot_id = entry.get("_BOOT_ID")
    return Record(
        text=message.rstrip(),
        wall_us=wall_us,
        since_boot_us=boot_us if boot_us is not None or not kernel else _number(entry.get("__MONOTONIC_TIMESTAMP")),
        boot_id=_text(getattr(boot_id, "hex", None)) if hasattr(boot_id, "int") else _text(boot_id),
        host=_text(entry.get("_HOSTNAME")),
        program=None if kernel or not tag else tag,
        program_pid=None if kernel else _number(entry.get("_PID") or entry.get("SYSLOG_PID")),
        trusted=trusted,
        timed=True,
        time_source=None if wall_us is None else "log",
    )


def _origin(entry: Mapping[str, object], tag: str | None, message: str, kernel_trust: Trust) -> tuple[bool, Trust]:
    """(is it kernel text, how far it is trusted)."""
    transport, facility = _text(entry.get("_TRANSPORT")), _number(entry.get("SYSLOG_FACILITY"))
    if transport == "kernel":
        if facility == 0:
            return True, kernel_trust
        return facility is None, "unverifiable" if facility is None else "no"
    if transport is None and tag in (None, "kernel"):
        return True, "unverifiable"
    return False, "no" if tag == "kernel" or _KERNEL_TEXT.match(message) else "unverifiable"


def _text(value: object) -> str | None:
    match value:
        case str():
            return value or None
        case bytes():
            return value.decode("utf-8", "replace") or None
        case [int(), *_]:
            return bytes(number for number in value if isinstance(number, int) and 0 <= number < 256).decode("utf-8", "replace")
        case [first, *_]:
            return _text(first)
        case int():
            return str(value)
        case _:
            return None


def _number(value: object) -> int | None:
    """A number however it is spelt; times as microseconds."""
    match value:
        case bool() | None:
            return None
        case int():
            return value
        case datetime():
            return round(value.timestamp() * 1e6)
        case timedelta():
            return value // timedelta(microseconds=1)
        case tuple() if value:  # python-systemd's Monotonic: (timedelta, boot id)
            return _number(value[0])
        case _:
            text = _text(value)
            return int(text) if text and text.isdecimal() and len(text) < 20 else None


def parse_export(chunks: Iterable[bytes]) -> Iterator[dict[str, object]]:
    """Entries of the export format: `KEY=value` lines, binary fields with a 64-bit length, a blank line between.

    A cut or damaged end is left out. Source: systemd.io/JOURNAL_EXPORT_FORMATS.
    """
    entry: dict[str, object] = {}
    reader = _Reader(chunks)
    while (line := reader.line()) is not None:
        name, equals, value = line.partition(b"=")
        if equals:
            entry.setdefault(name.decode("ascii", "replace"), value)
        elif line:
            size = int.from_bytes(reader.take(8) or b"", "little")
            if not 0 < size <= _LARGEST_FIELD or (field := reader.take(size)) is None:
                return
            entry.setdefault(name.decode("ascii", "replace"), field)
            reader.take(1)
        elif entry:
            yield entry
            entry = {}
    if entry:
        yield entry


class _Reader:
    """Lines and counted bytes out of chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""
        self._at = 0

    def line(self) -> bytes | None:
        while (end := self._buffer.find(b"\n", self._at)) < 0:
            if not self._more():
                rest, self._at = self._buffer[self._at :], len(self._buffer)
                return rest or None
        found = self._buffer[self._at : end]
        self._at = end + 1
        return found

    def take(self, size: int) -> bytes | None:
        while len(self._buffer) - self._at < size:
            if not self._more():
                return None
        found = self._buffer[self._at : self._at + size]
        self._at += size
        return found

    def _more(self) -> bool:
        chunk = next(self._chunks, b"")
        if len(self._buffer) - self._at > _LARGEST_FIELD:
            chunk = b""
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)
