"""Logs whose entries span several lines, or share one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.entries import LONGEST_OBJECT, json_entries, read_entries
from xidwatch.core.logtext import parse_line

DMESG = (
    '{\n   "dmesg": [\n      {\n         "pri": 3,\n         "time":   100.500000,\n         "msg": "NVRM: a {"\n      },{\n'
    + ('         "pri": 11,\n         "time":   101.000000,\n         "msg": "NVRM: \\"b\\""\n      }\n   ]\n}\n')
)
VERBOSE = (
    "Fri 2026-11-20 02:13:41.000000 CET [s=0b91;i=1;b=0123456789abcdef0123456789abcdef;m=5fd8220;t=660abcaf51f40;x=7f]\n"
    "    _TRANSPORT=kernel\n    SYSLOG_FACILITY=0\n    MESSAGE=NVRM: a\n            b\n    _HOSTNAME=gpu07\n"
)


def test_dmesg_json() -> None:
    """util-linux prints one object around all; the facility is in `pri`."""
    found = [(number, parse_line(entry.decode())) for number, entry in read_entries([DMESG.encode()])]
    assert [
        (3, "NVRM: a {", 100_500_000, "unverifiable"),
        (7, 'NVRM: "b"', 101_000_000, "no"),
    ] == [(number, line.text, line.uptime_us, line.trusted) for number, line in found]


@given(st.lists(st.integers(1, 400), max_size=6))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    """Entries are the same however the bytes arrive."""
    whole = DMESG.encode()
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(whole[at : at + cut])
        at += cut
    assert list(json_entries([whole])) == list(json_entries([*chunks, whole[at:]]))


@pytest.mark.parametrize("indent", [None, 2])
def test_array_of_entries(indent: int | None) -> None:
    """An array on one line or many gives its objects, and text around it is not lost."""
    array = json.dumps([{"message": "a", "tags": [{"b": 1}]}, {"message": "c"}], indent=indent)
    found = [parse_line(entry.decode()).text for _, entry in json_entries([f"{array}\nNVRM: x\n".encode()])]
    assert ["a", "c", "NVRM: x"] == found


def test_object_without_end_is_given_as_lines() -> None:
    """Memory and time are bounded: what never closes becomes lines."""
    text = b'{"a": "\n' * (LONGEST_OBJECT // 4)
    assert text.count(b"\n") == sum(1 for _ in json_entries([text]))


def test_verbose_entries() -> None:
    """journalctl -o verbose: the exact time is in the cursor, a message may have several lines."""
    [(number, entry)] = read_entries([VERBOSE.encode()])
    line = parse_line(entry.decode())
    assert (1, "NVRM: a\nb", int("660abcaf51f40", 16), 100_500_000, "gpu07") == (
        number,
        line.text,
        line.epoch_us,
        line.uptime_us,
        line.host,
    )
