"""A remark on how a node is set up: what was found, why it matters, the command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xidwatch.core.node import Node

MOST_NAMED = 3
"""Of many alike so many are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that is looked at.

    Attributes:
        look: What was found, with the value that was read, when it is not as it should be; None when it is, and when nobody
            can tell.
        why: Why that matters to whoever is paged.
        command: What mends it, or where to look.
    """

    id: str
    look: Callable[[Node], str | None]
    why: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a check found. `what` may hold text of others: it is hostile."""

    id: str
    what: str
    why: str
    command: str


def listed(names: Sequence[object]) -> str:
    """`a, b, c and 2 more`."""
    rest = len(names) - MOST_NAMED
    return ", ".join(map(str, names[:MOST_NAMED])) + (f" and {rest} more" if rest > 0 else "")
