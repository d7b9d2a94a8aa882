"""Journal entries, as JSON, in the export format and from a reader."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.journal import parse_export, parse_journal
from xidwatch.core.record import Record

KERNEL = {
    "__REALTIME_TIMESTAMP": "1790200000000001",
    "_SOURCE_MONOTONIC_TIMESTAMP": "227996636",
    "_BOOT_ID": "4d7f00000000000000000000000000aa",
    "_HOSTNAME": "node01",
    "_TRANSPORT": "kernel",
    "SYSLOG_FACILITY": "0",
    "SYSLOG_IDENTIFIER": "kernel",
    "MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, x ",
}


def read(**fields: object) -> Record:
    """The record of a kernel entry with some fields changed."""
    record = parse_journal(KERNEL | fields)
    assert record is not None
    return record


def test_kernel_entry() -> None:
    """Text, both clocks, boot and host are taken; a file proves nothing about who wrote it."""
    record = read()
    assert ("NVRM: Xid (PCI:0000:3b:00): 79, x", 1_790_200_000_000_001, 227_996_636) == (
        record.text, record.wall_us, record.since_boot_us,
    )  # fmt: skip
    assert ("4d7f00000000000000000000000000aa", "node01", None, "unverifiable") == (
        record.boot_id, record.host, record.program, record.trusted,
    )  # fmt: skip


def test_live_journal_proves_the_kernel() -> None:
    """On a live journal the kernel's transport with facility 0 is the kernel; another facility is not."""
    live = parse_journal(KERNEL, kernel_trust="kernel")
    injected = parse_journal(KERNEL | {"SYSLOG_FACILITY": "1"}, kernel_trust="kernel")
    assert live is not None
    assert injected is not None
    assert ("kernel", "no") == (live.trusted, injected.trusted)


def test_injected_line_gets_its_tag_back() -> None:
    """The journal moves the first word of a line written into /dev/kmsg to the identifier; it is put back and not believed."""
    record = read(SYSLOG_FACILITY="1", SYSLOG_IDENTIFIER="NVRM", MESSAGE="Xid (PCI:0000:3b:00): 79, x")
    assert ("NVRM: Xid (PCI:0000:3b:00): 79, x", "no") == (record.text, record.trusted)


def test_program_named_kernel_is_not_the_kernel() -> None:
    """`logger -t kernel` comes by another transport."""
    assert "no" == read(_TRANSPORT="syslog", SYSLOG_FACILITY="1").trusted


def test_program_entry() -> None:
    """Another program's entry names it and its pid."""
    record = read(_TRANSPORT="stdout", SYSLOG_FACILITY="3", SYSLOG_IDENTIFIER="vllm", _PID="4711", MESSAGE="x")
    assert ("vllm", 4711, "unverifiable") == (record.program, record.program_pid, record.trusted)


def test_messages_as_bytes() -> None:
    """A message that is not UTF-8 comes as a list of byte numbers; one that is too large comes as null."""
    assert "NVRM: \ufffd" == read(MESSAGE=[*b"NVRM: ", 0xFF]).text
    assert "first" == read(MESSAGE=["first", "second"]).text
    assert None is parse_journal(KERNEL | {"MESSAGE": None})


def test_types_of_python_systemd() -> None:
    """Dates, intervals and UUIDs of a reader mean the same as their numbers."""
    record = read(
        __REALTIME_TIMESTAMP=datetime(2026, 5, 1, tzinfo=timezone.utc),
        _SOURCE_MONOTONIC_TIMESTAMP=timedelta(microseconds=7),
        _BOOT_ID=uuid.UUID("4d7f0000-0000-0000-0000-0000000000aa"),
        SYSLOG_FACILITY=0,
    )
    assert (1_777_593_600_000_000, 7, KERNEL["_BOOT_ID"]) == (record.wall_us, record.since_boot_us, record.boot_id)


def exported(*entries: dict[str, bytes]) -> bytes:
    """Entries in the export format, fields with a newline in binary form."""
    out = b""
    for entry in entries:
        for name, value in entry.items():
            if b"\n" in value:
                out += name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"
            else:
                out += name.encode() + b"=" + value + b"\n"
        out += b"\n"
    return out


FIELDS = st.dictionaries(st.sampled_from(["MESSAGE", "_PID", "A"]), st.binary(min_size=1, max_size=40), min_size=1)


@given(st.lists(FIELDS, max_size=4), st.integers(1, 50))
def test_export_format_round_trip(entries: list[dict[str, bytes]], size: int) -> None:
    """What was exported is read, binary fields too, however the bytes are cut."""
    raw = exported(*entries)
    assert entries == list(parse_export(raw[at : at + size] for at in range(0, len(raw), size)))


@given(st.binary(max_size=200))
def test_any_export_is_read(raw: bytes) -> None:
    """Damaged exports raise nothing."""
    for entry in parse_export([raw]):
        parse_journal(entry)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.sampled_from([*KERNEL, "_PID", "_COMM"]), JSON))
def test_any_entry_is_read(entry: dict[str, object]) -> None:
    """Fields of any JSON type raise nothing."""
    parse_journal(json.loads(json.dumps(entry)))
