"""What was looked for about a GPU, and what came of each: the parts of an evidence archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Outcome = Literal["got", "not permitted", "not there", "timed out", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that was looked for.

    Attributes:
        name: Its file in the archive.
        how: The command or file that it comes from, so that a reader can look again.
        why: What a reader must know of it: why it is missing, or not whole.
        data: None where nothing was got.
        secret_free: It needs no masking.
    """

    name: str
    how: str
    outcome: Outcome
    why: str | None = None
    data: bytes | None = None
    secret_free: bool = False


def manifest(items: Sequence[Item], heading: Sequence[str]) -> str:
    """What is in the archive, what is not, and why."""
    width = max((len(item.name) for item in items), default=0)
    lines = [*heading, ""]
    for item in items:
        size = f"{len(item.data):,} bytes" if item.data is not None else "-"
        lines.append(
            f"{item.outcome:<13}  {item.name:<{width}}  {size:>16}  {item.how}" + (f"  ({item.why})" if item.why else "")
        )
    return "\n".join(lines) + "\n"


def masked(item: Item, text: Callable[[str], str]) -> Item:
    """The item with its secrets masked by `text`, line by line."""
    data = item.data
    if data is not None and not item.secret_free:
        lines = data.decode("utf-8", "replace").split("\n")
        data = "\n".join(text(line) for line in lines).encode("utf-8", "surrogateescape")
    return replace(item, how=text(item.how), why=text(item.why) if item.why is not None else None, data=data)
