"""Figures with their units, as the roofline's report and its plots print them."""

from __future__ import annotations

import math


def time_text(seconds: float) -> str:
    """Three digits with the unit that suits: `4.56 ms`, `0.280 ms`, `12.0 µs`, `1.23 s`."""
    if seconds >= 1:
        return f"{_three(seconds)} s"
    return f"{_three(seconds * 1e3)} ms" if seconds >= 1e-4 else f"{_three(seconds * 1e6)} µs"


def bytes_text(size: float) -> str:
    """Decimal unit: `15.00 GB`, `327,680 bytes`."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= scale:
            return f"{_two(size / scale)} {unit}"
    return f"{size:,.0f} bytes"


def capacity_text(size: float) -> str:
    """A card's memory as it is sold: `80 GB`, `141 GB`."""
    return f"{size / 1e9:,.4g} GB"


def both_bytes(size: float) -> str:
    """Decimal and binary unit: `16.06 GB (14.96 GiB)`."""
    return f"{bytes_text(size)} ({_two(size / 2**30)} GiB)" if size >= 1e8 else bytes_text(size)


def flop_text(flop: float, suffix: str = "") -> str:
    """`140 GFLOP`, `989 TFLOP/s`."""
    for scale, unit in ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if flop >= scale * (10 if unit == "PFLOP" else 1):
            return f"{_three(flop / scale, pad=False)} {unit}{suffix}"
    return f"{flop:,.0f} FLOP{suffix}"


def rate_text(per_second: float) -> str:
    """Tokens per second to four digits: `219.4`, `6,642`."""
    return f"{per_second:,.0f}" if per_second >= 1000 else f"{per_second:.4g}"


def count_text(count: float) -> str:
    """Parameters: `70 B`, `8.03 B`, `350 M`."""
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:,.0f}"


def intensity_text(intensity: float) -> str:
    """FLOP per byte without the unit: `295`, `0.5`, `8,192`."""
    if math.isinf(intensity):
        return "no bytes"
    return f"{intensity:,.0f}" if intensity >= 100 else f"{intensity:.3g}"


def _three(figure: float, *, pad: bool = True) -> str:
    if figure >= 99.95:
        return f"{figure:,.0f}"
    text = f"{figure:.1f}" if figure >= 9.995 else f"{figure:.2f}" if figure >= 0.9995 else f"{figure:.3f}"
    return text if pad else text.rstrip("0").rstrip(".")


def _two(figure: float) -> str:
    return f"{figure:,.1f}" if figure >= 99.995 else f"{figure:.2f}"
