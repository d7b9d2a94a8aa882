"""The table of accelerators, and finding one by the name a person gives it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from xidwatch.core.floor import Accelerator
from xidwatch.errors import XidwatchError
from xidwatch.rulefiles import shipped_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Names = tuple[str, ...]
_MAKERS = {"nvidia", "tesla", "amd", "instinct", "gpu"}


def load_accelerators() -> dict[Names, Accelerator]:
    """The cards of rules/accelerators.toml in its order, each under all its names, the table's own first."""
    with (shipped_rules() / "accelerators.toml").open("rb") as file:
        rows = tomllib.load(file)["accelerator"]
    return {
        (row["name"], *row["also"]): Accelerator(
            name=row["name"],
            peak_flop_s=row["peak_tflops"] * 1e12,
            bandwidth_bytes_s=row["bandwidth_gbs"] * 1e9,
            memory_bytes=row["memory_gb"] * 1e9,
            memory=row["memory"],
            source=row["source"],
        )
        for row in rows
    }


def find_accelerator(asked: str, table: Mapping[Names, Accelerator] | None = None) -> Accelerator:
    """The one card that a name means: `H100 SXM`, `h100-sxm5`, `NVIDIA A100-SXM4-80GB`. Without a table it is read.

    Raises:
        XidwatchError: no card or several have such a name; the sentence lists them.
    """
    table = table or load_accelerators()
    words = _words(asked)
    exact = [card for names, card in table.items() if any(_words(name) == words for name in names)]
    if len(exact) == 1:
        return exact[0]
    found = [card for names, card in table.items() if words and any(words <= _words(name) | _memory(card) for name in names)]
    if len(found) == 1:
        return found[0]
    if found:
        raise XidwatchError(f"--accelerator {asked!r} may be {_listed(found, 'or')}: name one of them.")
    known = _listed(list(table.values()), "and")
    raise XidwatchError(
        f"--accelerator {asked!r} is not in the table, which has {known}; give --peak-tflops and --bandwidth-gbs instead."
    )


def _words(name: str) -> frozenset[str]:
    """The words of a name that tell cards apart: `SXM4` and `SXM` are one word, `80 GB` and `80GB` too."""
    text = re.sub(r"(\d)\s+(gi?b?)\b", r"\1\2", name.lower())
    text = re.sub(r"\b([a-z]+\d+[a-z]*)(sxm|pcie|nvl)", r"\1 \2", text)
    words = (re.sub(r"^sxm\d?$", "sxm", word) for word in re.findall(r"[a-z0-9]+", text))
    return frozenset(re.sub(r"^(\d+)gi?b?$", r"\1gb", word) for word in words if word not in _MAKERS)


def _memory(card: Accelerator) -> frozenset[str]:
    size = f"{card.memory_bytes / 1e9:.0f}gb" if card.memory_bytes else ""
    return frozenset({size, (card.memory or "").lower()})


def _listed(cards: list[Accelerator], word: str) -> str:
    *first, last = [card.name for card in cards]
    return f"{', '.join(first)} {word} {last}" if first else last
