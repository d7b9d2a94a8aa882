"""Figures as people write them: 70B parameters, 140GB, 15.0GiB, 8k tokens."""

from __future__ import annotations

from xidwatch.core.pattern import lazy

_FORM = lazy(r"([+-]?(?:\d[\d_,]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)$")
_GROUPED = lazy(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?$")
_PREFIXES = "kmgtp"
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_TOKENS = {"": 1, "k": 1000, "m": 1000**2, "K": 1024, "M": 1024**2, "Ki": 1024, "Mi": 1024**2}


def read_count(text: str) -> float:
    """A count with k, M, B (or G) or T, all decimal: `70B` is 70e9.

    Raises:
        ValueError: what is wrong, to be put behind the name of the figure.
    """
    number, unit = _split(text)
    if unit.lower() not in _COUNTS:
        raise ValueError(f"has an unknown unit in {text!r}: use k, M, B or T")
    return number * _COUNTS[unit.lower()]


def read_tokens(text: str) -> int:
    """A whole number of tokens; `8k` is 8,000 and `8K` or `8Ki` 8,192, as vLLM reads its own lengths.

    Raises:
        ValueError: as `read_count`.
    """
    number, unit = _split(text)
    if unit not in _TOKENS:
        raise ValueError(f"has an unknown unit in {text!r}: use k (1,000), K (1,024) or none")
    tokens = number * _TOKENS[unit]
    if abs(tokens - round(tokens)) > 1e-6:
        raise ValueError(f"must be a whole number, not {text!r}")
    return round(tokens)


def read_bytes(text: str, *, bare: float = 1.0) -> float:
    """Bytes with a decimal (`GB`, `G`) or binary (`GiB`, `Gi`) unit; a number without one counts in units of `bare`.

    Raises:
        ValueError: as `read_count`.
    """
    number, unit = _split(text)
    if not unit:
        return number * bare
    scale = _byte_scale(unit.lower())
    if scale is None:
        raise ValueError(f"has an unknown unit in {text!r}: use GB (10^9 bytes), GiB (2^30 bytes) or the like")
    return number * scale


def _byte_scale(unit: str) -> float | None:
    bare = unit.removesuffix("b")
    base = 1024.0 if bare.endswith("i") else 1000.0
    prefix = bare.removesuffix("i")
    if not prefix:
        return 1.0 if unit == "b" else None
    return base ** (_PREFIXES.index(prefix) + 1) if prefix in tuple(_PREFIXES) else None


def _split(text: str) -> tuple[float, str]:
    form = _FORM.match(text.strip())
    if form is None or ("," in form[1] and not _GROUPED.match(form[1])):
        raise ValueError(f"is not a number: {text!r}")
    number = float(form[1].replace(",", "").replace("_", ""))
    if number and not 1e-12 < abs(number) < 1e24:
        raise ValueError(f"is beyond every machine: {text!r}")
    return number, form[2]
