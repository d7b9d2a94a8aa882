"""Whether a kernel fault or a program's own error is the root where both are there."""

from __future__ import annotations

import pytest

from tests.postmortems import SAME_EVERYWHERE
from xidwatch.core.classify import RuleTable
from xidwatch.core.record import Record
from xidwatch.explain import explain_records

NCCL = (
    "[rank0]:[E1130 10:10:03.1 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
)
CUDA = "RuntimeError: CUDA error: unspecified launch failure"
TIDIED = "NVRM: Xid (PCI:0000:17:00): 45, pid=5000, name=python3, Ch 00000008"
RESET = "NVRM: Xid (PCI:0000:17:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
BUG = "NVRM: Xid (PCI:0000:17:00): 13, pid=5000, name=python3, Graphics Exception: ESR 0x504224=0x80000000"


@pytest.mark.parametrize(
    ("lines", "root"),
    [
        ((NCCL, TIDIED), "nccl_timeout"),
        ((CUDA, TIDIED), "cuda_error"),
        ((TIDIED, CUDA), "xid"),
        ((RESET, NCCL), "xid"),
        ((CUDA, BUG), "xid"),
        ((BUG, CUDA, TIDIED), "xid"),
    ],
)
def test_root_of_kernel_and_program(lines: tuple[str, ...], root: str, rules: RuleTable) -> None:
    """The kernel's fault is the root, unless it only tidies up behind a program that has spoken before."""
    records = [
        Record(text=line, seq=at, line=at, wall_us=1_796_000_000_000_000 + at * 100_000, host="n1", timed=True)
        for at, line in enumerate(lines, 1)
    ]
    (incident,) = explain_records(records, SAME_EVERYWHERE, rules).incidents
    assert root == incident.members[incident.root].finding.event.kind
