"""What holds for any log at all, found by trying many."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.postmortems import FIXTURES, case_names, reported
from xidwatch.core.classify import RuleTable
from xidwatch.errors import XidwatchError

LINES = sorted(
    {line for name in case_names() for line in (FIXTURES / name / "input.log").read_bytes().splitlines(keepends=True)}
)
"""Every line of every case: the grammar that mutations start from."""
any_bytes = st.binary(max_size=2000)
real_lines = st.lists(st.sampled_from(LINES), max_size=30).map(b"".join)
PADDING = b"systemd[1]: Finished Rotate log files.\n" * 8000
"""Enough to have the log searched for lines worth reading instead of read whole."""
NO_DEADLINE = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@st.composite
def broken_logs(draw: st.DrawFn) -> bytes:
    """Real lines with bytes cut out, doubled and overwritten."""
    text = bytearray(draw(real_lines))
    dice = random.Random(draw(st.integers()))
    for _ in range(draw(st.integers(0, 12))):
        at = dice.randrange(len(text) + 1)
        length = dice.randrange(1, 40)
        match dice.randrange(3):
            case 0:
                del text[at : at + length]
            case 1:
                text[at:at] = text[at : at + length]
            case _:
                text[at : at + length] = dice.randbytes(length)
    return bytes(text)


PACKED = (b"LPKSHHRH", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")
"""How binary journals and archives begin; behind one of these, nonsense is an unreadable input and no log."""


def report_on(content: bytes, folder: Path, rules: RuleTable) -> dict[str, Any]:
    """The JSON report on a log of these bytes."""
    log = folder / "any.log"
    log.write_bytes(content)
    return reported(log, rules)


@NO_DEADLINE
@given(content=(any_bytes | real_lines | broken_logs()).filter(lambda content: not content.startswith(PACKED)))
def test_any_bytes_give_a_valid_report(content: bytes, tmp_path: Path, rules: RuleTable) -> None:
    """Whatever the file holds, there is a report, and its indexes point to what it lists."""
    report = report_on(content, tmp_path, rules)
    assert "xidwatch.explain/1" == report["schema"]
    ids = {incident["id"] for incident in report["incidents"]}
    for incident in report["incidents"]:
        assert incident["root"] in incident["events"]
        assert {incident["id"]} == {report["events"][index]["incident"] for index in incident["events"]}
    assert {event["incident"] for event in report["events"]} <= ids | {None}
    assert all(event["count"] >= 1 and event["lines"] >= 1 and event["line"] >= 1 for event in report["events"])


@NO_DEADLINE
@given(magic=st.sampled_from(PACKED), content=any_bytes)
def test_broken_packing_is_told(magic: bytes, content: bytes, tmp_path: Path, rules: RuleTable) -> None:
    """A broken archive or journal gives a report on what could be read, or an error that names the file; never a crash."""
    try:
        report = report_on(magic + content, tmp_path, rules)
    except XidwatchError as error:
        assert "any.log" in str(error)
    else:
        assert "xidwatch.explain/1" == report["schema"]


@NO_DEADLINE
@given(content=broken_logs())
def test_same_bytes_same_report(content: bytes, tmp_path: Path, rules: RuleTable) -> None:
    """Explaining a log twice gives the same report: nothing depends on order of memory, hash or clock."""
    assert json.dumps(report_on(content, tmp_path, rules)) == json.dumps(report_on(content, tmp_path, rules))


@NO_DEADLINE
@given(content=real_lines | broken_logs(), cuts=st.lists(st.integers(0, 4000), max_size=5), lead=st.integers(0, 2000))
def test_cuts_do_not_matter(content: bytes, cuts: list[int], lead: int, tmp_path: Path, rules: RuleTable) -> None:
    """A big log says the same as one plain file and as gzip members cut anywhere, inside lines and characters too."""
    whole = PADDING[:lead] + b"\n" + content + b"\n" + PADDING
    plain, packed = tmp_path / "plain.log", tmp_path / "packed.log"
    plain.write_bytes(whole)
    edges = [0, *sorted(min(lead + cut, len(whole)) for cut in cuts), len(whole)]
    packed.write_bytes(b"".join(gzip.compress(whole[a:b], 1) for a, b in itertools.pairwise(edges)))
    one, other = reported(plain, rules), reported(packed, rules)
    assert [one[part] for part in ("events", "incidents", "context")] == [
        other[part] for part in ("events", "incidents", "context")
    ]


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"\r\n"])
def test_last_line_counts_without_its_end(ending: bytes, tmp_path: Path, rules: RuleTable) -> None:
    """A log that was cut in its last line, or has blank lines behind it, says the same."""
    line = b"[   10.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python3, GPU has fallen off the bus."
    assert [(79, 1)] == [(event["code"], event["lines"]) for event in report_on(line + ending, tmp_path, rules)["events"]]
