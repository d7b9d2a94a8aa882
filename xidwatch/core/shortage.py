"""Why GPU memory ran out, worked out from the figures that a program prints itself.

Source of the figures: PyTorch c10/cuda/CUDACachingAllocator.cpp. The error is raised after cached blocks that are wholly free
were given back, so what is still reserved and unallocated lies in segments of which a part is in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from xidwatch.core.event import UserspaceDetail

Shortage = Literal["fragmented", "shared", "limited", "full", "kv_cache", "unknown"]
"""Lies in pieces, held by another process, refused by a limit, simply full, no room for a KV cache; not to be told."""
SHORTAGES: tuple[Shortage, ...] = get_args(Shortage)
FRAGMENTED_SHARE = 0.05
"""Less of the card than this lies in pieces on any full card: giving it back would only put the failure off."""
SHARED_SHARE = 0.1
"""What others hold must be this much of the card to be the reason."""
INFERRED_BYTES = 1.5 * 2**30
"""A CUDA context of the program's own takes up to this much, and is in no figure of the older wordings."""


def in_pieces(detail: UserspaceDetail) -> float | None:
    """Bytes that PyTorch holds and nobody uses; None when the message does not tell.

    Since 1.4 `reserved in total` counts the allocated part in; a figure smaller than that part cannot.
    """
    if detail.reserved_unallocated is not None:
        return detail.reserved_unallocated
    if detail.reserved is None or detail.allocated is None:
        return None
    return detail.reserved - detail.allocated if detail.reserved >= detail.allocated else detail.reserved


def held_by_others(detail: UserspaceDetail) -> float | None:
    """Bytes of the card in other processes: as printed, else what no figure of this one accounts for; None when unknown."""
    if detail.others:
        return sum(held for _, held in detail.others)
    if detail.total is None or detail.free is None:
        return None
    if detail.in_use is not None:
        return max(detail.total - detail.free - detail.in_use, 0.0)
    pieces = in_pieces(detail)
    if detail.allocated is None or pieces is None:
        return None
    rest = detail.total - detail.free - detail.allocated - pieces
    return rest if rest >= INFERRED_BYTES else 0.0


def shortage_of(detail: UserspaceDetail) -> Shortage:
    """The reason, by arithmetic alone: what would have been enough is what was missing."""
    tried, free = detail.tried, detail.free
    if tried is None or free is None:
        return "unknown"
    if _over_limit(detail, tried):
        return "limited"
    if free >= tried:
        # It would have fitted: somebody has let go in the meantime, or a limit that the message does not name.
        return "unknown"
    return _missing(detail, tried - free)


def _missing(detail: UserspaceDetail, missing: float) -> Shortage:
    """Where the bytes that were missing lay."""
    total, pieces, others = detail.total, in_pieces(detail) or 0.0, held_by_others(detail) or 0.0
    if total is None:
        return "fragmented" if pieces > missing else "unknown"
    if missing <= pieces and pieces >= FRAGMENTED_SHARE * total:
        return "fragmented"
    return "shared" if missing <= pieces + others and others >= SHARED_SHARE * total else "full"


def _over_limit(detail: UserspaceDetail, tried: float) -> bool:
    """The program's own limit (`set_per_process_memory_fraction`) refused it, not the card."""
    if detail.allowed is None or detail.allocated is None:
        return False
    return detail.allocated + (in_pieces(detail) or 0.0) + tried > detail.allowed and (detail.free or 0.0) >= tried


def explain_shortage(detail: UserspaceDetail, other: str | None = None) -> str:
    """The figures in one clause, without a full stop; "" when there are none. `other` names the process that holds most."""
    if detail.tried is None:
        return ""
    wanted = f"it wanted {size(detail.tried)}"
    if detail.free is None:
        return f"{wanted}; how much was free is not printed"
    if detail.shortage == "kv_cache":
        return f"its KV cache needs {size(detail.tried)} and {size(detail.free)} was left for it"
    card = f" of {size(detail.total)}" if detail.total is not None else ""
    parts = [f"{size(detail.free)}{card} was free", *_reasons(detail, detail.tried, detail.free, other)]
    return f"{wanted}; {', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else f"{wanted}; {parts[0]}"


def _reasons(detail: UserspaceDetail, tried: float, free: float, other: str | None) -> Iterator[str]:
    pieces = in_pieces(detail) or 0.0
    match detail.shortage:
        case "limited":
            yield f"the program limits itself to {size(detail.allowed or 0.0)}"
        case "fragmented":
            yield f"{size(pieces)} more lay reserved in pieces: together enough"
        case "shared":
            yield f"{other or _others(detail)} held {size(held_by_others(detail) or 0.0)}"
        case "unknown":
            if free >= tried:
                yield "that is enough: it was freed just then, or another limit holds"
        case _ if detail.total is not None and tried > detail.total:
            yield "the card is too small for it"
        case _:
            if detail.allocated is not None:
                yield f"the program itself had {size(detail.allocated)} in use"
            if pieces and free + pieces >= tried:
                yield f"{size(pieces)} lay in pieces: just enough, but the card is as good as full"
            elif detail.total and pieces >= FRAGMENTED_SHARE * detail.total:
                yield f"{size(pieces)} lay in pieces, not enough either"


def _others(detail: UserspaceDetail) -> str:
    if not detail.others:
        return "other processes"
    pid = max(detail.others, key=lambda other: other[1])[0]
    return f"process {pid}" if len(detail.others) == 1 else f"process {pid} and {len(detail.others) - 1} more"


def size(value: float) -> str:
    """Bytes as a person says them: `79.1 GiB`."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"
