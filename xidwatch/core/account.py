"""What the figures of a program's own report add to the verdict: one clause, and whether the driver saw a fault."""

from __future__ import annotations

from collections.abc import Mapping

from xidwatch.core.event import Event, UserspaceDetail
from xidwatch.core.rule import Rule
from xidwatch.core.shortage import explain_shortage

NO_XID = "No Xid goes with it: the driver saw no fault."
NO_XID_SEEN = "a GPU fault: no Xid of this host in the log; memory that is refused to a program leaves none"
Names = Mapping[tuple[str, int], str]
"""Process names by (host, pid), as other lines of the log give them."""


def clause(root: Event, last: Event, host: str, names: Names) -> str:
    """The clause behind the verdict, without a full stop; "" when the line gives no figures.

    Args:
        root: The incident's root.
        last: Its latest repeat, which carries the latest running total.
    """
    detail = root.detail
    if not isinstance(detail, UserspaceDetail):
        return ""
    if root.kind == "vllm_preemption":
        return _preemptions(detail, last)
    if root.kind not in ("torch_oom", "cuda_error"):
        return ""
    name = names.get((host, detail.other_pid)) if detail.other_pid is not None else None
    return explain_shortage(detail, f"{name} ({detail.other_pid})" if name else None)


def is_out_of_memory(rule: Rule) -> bool:
    """Whether a program was refused GPU memory, which no Xid tells of."""
    return rule.kind == "torch_oom" or rule.id == "cuda-error-out-of-memory"


def _preemptions(detail: UserspaceDetail, last: Event) -> str:
    latest = last.detail.cumulative if isinstance(last.detail, UserspaceDetail) else None
    total = max((count for count in (detail.cumulative, latest) if count is not None), default=None)
    how = {"RECOMPUTE": "computed anew each time", "SWAP": "swapped to the host and back"}.get(detail.mode or "", "")
    often = f"{total:,} time{'' if total == 1 else 's'} so far by its own count" if total is not None else ""
    return ", ".join(part for part in (often, how) if part)
