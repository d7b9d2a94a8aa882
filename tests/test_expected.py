"""The comparison itself: a check that cannot fail would prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.expected import differences

XID: dict[str, Any] = {"kind": "xid", "code": 31, "pci": "0000:3b:00", "pid": 4711, "process": "python3", "count": 3}
REPORTED: dict[str, Any] = {
    "kind": "xid", "code": 31, "what": None, "pci": "0000:3b:00.0", "pid": 4711, "process": "python3", "count": 1, "lines": 3,
}  # fmt: skip


def test_equal_reports_have_no_differences() -> None:
    """One event in the log's spelling equals the same event in the contract's spelling."""
    assert [] == differences([XID], [REPORTED])


@pytest.mark.parametrize("wrong", [{"pid": 4712}, {"process": None}, {"lines": 2}, {"code": 32}, {"pci": "0000:3c:00.0"}])
def test_every_field_counts(wrong: dict[str, Any]) -> None:
    """A wrong pid, process, number of lines, code or address is told."""
    assert differences([XID], [REPORTED | wrong])


def test_missed_and_invented_events_are_told() -> None:
    """An event left out and an event made up are both differences."""
    assert 1 == len(differences([XID], []))
    assert 1 == len(differences([{"kind": "none"}], [REPORTED]))


def test_doubtful_events_may_be_left_out() -> None:
    """An expected event marked as doubtful is not missed."""
    assert [] == differences([XID | {"note": "cut off"}], [])


def test_unknown_kinship_is_not_compared() -> None:
    """`gpu_related: unknown` in the log's truth accepts any answer; yes and no do not."""
    hung = {"kind": "hung_task", "pid": 7, "gpu_related": "unknown"}
    seen = {"kind": "hung_task", "pid": 7, "gpu_related": None, "count": 1, "lines": 4}
    assert [] == differences([hung], [seen])
    assert differences([hung | {"gpu_related": "yes"}], [seen])


def test_sizes_agree_within_what_the_log_prints() -> None:
    """1.70 GiB stands for any number of bytes that prints so, and for no other."""
    oom = {"kind": "torch_oom", "tried": "1.70 GiB"}
    seen = {"kind": "torch_oom", "tried": 1.7 * 2**30, "count": 1, "lines": 1}
    assert [] == differences([oom], [seen])
    assert differences([oom], [seen | {"tried": 1.9 * 2**30}])
    assert differences([oom], [seen | {"tried": None}])


def test_driver_lines_beside_a_fault_are_welcome() -> None:
    """A further nvrm event beside an Xid is no false report; alone it is."""
    nvrm = {"kind": "nvrm", "what": "nvassert", "pci": None, "count": 1, "lines": 1}
    assert [] == differences([XID], [REPORTED, nvrm])
    assert differences([{"kind": "none"}], [nvrm])
