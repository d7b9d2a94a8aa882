"""Records of /dev/kmsg."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.kmsg import parse_kmsg


def test_reads_sequence_time_and_text() -> None:
    """Sequence number, microseconds since boot and text are taken; more fields and ` KEY=value` lines are not."""
    record = parse_kmsg(b"4,3973,227996636,-,caller=T123;NVRM: x \n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")
    assert record is not None
    assert ("NVRM: x", 3973, 227_996_636, "kernel", True) == (
        record.text, record.seq, record.since_boot_us, record.trusted, record.timed,
    )  # fmt: skip


def test_escapes_are_bytes() -> None:
    r"""`\x0a` is a newline and `\xc3\xa9` one letter."""
    record = parse_kmsg(r"4,1,2,-;NVRM: a\x0aNVRM: caf\xc3\xa9\x5cx\x0a")
    assert record is not None
    assert "NVRM: a\nNVRM: café\\x" == record.text


def test_only_facility_0_is_the_kernel() -> None:
    """What root writes into /dev/kmsg arrives with another facility and is trusted "no"."""
    record = parse_kmsg("12,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, x")
    assert record is not None
    assert "no" == record.trusted


def test_other_lines_are_none() -> None:
    """A line without the head of a record is none of ours."""
    assert [None, None, None] == [parse_kmsg("12,345,-;x"), parse_kmsg(""), parse_kmsg("[ 1.0] x")]


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda text: b"4,1,2,-;" + text))
def test_any_bytes_are_read(raw: bytes) -> None:
    """No bytes raise."""
    parse_kmsg(raw)
