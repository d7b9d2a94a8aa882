"""The roofline drawn: both axes logarithmic, prefill and decode as points, for a terminal and as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from xidwatch.core.floor import Floor, Step, attainable
from xidwatch.render.figures import flop_text, intensity_text

_LEVELS = "⎽⎼─⎻⎺"
_ASCII = str.maketrans({"⎽": "_", "⎼": "_", "⎻": "-", "⎺": "-", "┊": ":", "┤": "|", "┴": "+", "µ": "u"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Decades that the plot spans, as powers of ten: FLOP per byte across, FLOP per second upward."""

    left: int
    right: int
    bottom: int
    top: int

    def across(self, intensity: float) -> float:
        """Where an intensity lies, 0 at the left edge and 1 at the right."""
        return (math.log10(intensity) - self.left) / (self.right - self.left)

    def upward(self, flop_s: float) -> float:
        """Where a rate lies, 0 at the bottom and 1 at the top."""
        return (math.log10(flop_s) - self.bottom) / (self.top - self.bottom)

    def intensity_at(self, across: float) -> float:
        """The intensity at a place across."""
        return float(10 ** (self.left + across * (self.right - self.left)))


def roofline_in_ascii(text: str) -> str:
    """The characters that only the terminal plot and its figures use, in ASCII."""
    return text.translate(_ASCII)


def plot_text(floor: Floor, *, width: int = 80, height: int = 15) -> str:
    """The roofline in characters: P for prefill, D for decode, a dotted column for the ridge; 80 columns unless told."""
    frame, left = _frame(floor), 13
    columns = width - left - 2
    grid = [[" "] * columns for _ in range(height)]
    ridge = _column(frame, floor.ridge_flop_per_byte, columns)
    for column in range(columns):
        rate = attainable(floor.accelerator, frame.intensity_at(column / (columns - 1)))
        row, level = _cell(frame.upward(rate), height)
        if 0 <= row < height:
            grid[row][column] = _LEVELS[level]
            if column == ridge:
                for below in range(row + 1, height):
                    grid[below][column] = "┊"
    for mark, _, step in _points(floor):
        row, _ = _cell(frame.upward(step.flop / step.seconds), height)
        column = _column(frame, step.intensity, columns)
        grid[row][column - (grid[row][column] == "P")] = mark
    lines = [
        f"{_rate_label(frame, row, height):>{left - 2}} {'┤' if _rate_label(frame, row, height) else '│'}"
        for row in range(height)
    ]
    drawn = [f"{front}{''.join(cells)}".rstrip() for front, cells in zip(lines, grid, strict=True)]
    return "\n".join([*drawn, *_axis(frame, columns, left), *_legend(floor)]) + "\n"


def plot_svg(floor: Floor) -> str:
    """The roofline as a stand-alone SVG of 720 x 440; shapes and words tell the points apart, not colour alone."""
    frame = _frame(floor)
    body = "\n".join([*_svg_grid(frame), *_svg_roof(floor, frame), *_svg_points(floor, frame)])
    title = escape(f"Roofline of {floor.accelerator.name}")
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 440" width="720" height="440" role="img"
 aria-label="{title}" font-family="system-ui, sans-serif" font-size="12" fill="#1f2937">
<title>{title}</title>
<rect width="720" height="440" fill="#ffffff"/>
<text x="80" y="26" font-size="15" font-weight="600">{title}</text>
<text x="80" y="44" fill="#4b5563">{escape(_figures(floor))}</text>
{body}
<text x="390" y="430" text-anchor="middle">intensity, FLOP/byte</text>
<text transform="translate(16 225) rotate(-90)" text-anchor="middle">FLOP/s per card</text>
</svg>
"""


def _points(floor: Floor) -> Iterator[tuple[str, str, Step]]:
    """The steps that have a place in the plot: mark, name, step."""
    for mark, name, step in (("P", "prefill", floor.prefill), ("D", "decode", floor.decode)):
        if step is not None and step.flop > 0 and step.bytes > 0:
            yield mark, name, step


def _frame(floor: Floor) -> _Frame:
    card, steps = floor.accelerator, [step for _, _, step in _points(floor)]
    ridge = floor.ridge_flop_per_byte
    left = math.floor(math.log10(min([1.0, ridge / 10, *(step.intensity for step in steps)])) - 0.05)
    right = math.ceil(math.log10(max([ridge * 10, *(step.intensity for step in steps)])) + 0.05)
    lowest = min([attainable(card, 10.0**left), *(step.flop / step.seconds for step in steps)])
    top = math.ceil(math.log10(card.peak_flop_s) + 0.05)
    return _Frame(left=left, right=right, bottom=math.floor(math.log10(lowest)), top=top)


def _column(frame: _Frame, intensity: float, columns: int) -> int:
    return min(columns - 1, max(0, round(frame.across(intensity) * (columns - 1))))


def _cell(upward: float, height: int) -> tuple[int, int]:
    """Row from the top, and which of the five levels within it from below."""
    fine = min(height * len(_LEVELS) - 1, max(0, int(upward * height * len(_LEVELS))))
    return height - 1 - fine // len(_LEVELS), fine % len(_LEVELS)


def _rate_label(frame: _Frame, row: int, height: int) -> str:
    for power in range(frame.bottom, frame.top + 1):
        if _cell(frame.upward(10.0**power), height)[0] == row:
            return f"{_power_text(power)}FLOP/s"
    return ""


def _power_text(power: int) -> str:
    """A power of ten with its prefix and a blank before the unit: `100 T`, `1 P`, `10 `."""
    if not 0 <= power < 21:
        return f"{10.0**power:g} "
    return f"{10 ** (power % 3)} {'kMGTPE'[power // 3 - 1] if power >= 3 else ''}"


def _axis(frame: _Frame, columns: int, left: int) -> list[str]:
    ticks, labels = ["─"] * columns, [" "] * (columns + 2)
    for power in range(frame.left, frame.right + 1):
        place = _column(frame, 10.0**power, columns)
        ticks[place] = "┴"
        label = _power_text(power).replace(" ", "")
        start = min(max(0, place - len(label) // 2), columns + 2 - len(label))
        if all(cell == " " for cell in labels[max(0, start - 1) : start + len(label)]):
            labels[start : start + len(label)] = label
    return [f"{'':{left - 1}}└{''.join(ticks)}", f"{'':{left}}{''.join(labels)}".rstrip(), f"{'FLOP/byte':>{left + columns}}"]


def _legend(floor: Floor) -> Iterator[str]:
    yield f"  ┊ ridge    {intensity_text(floor.ridge_flop_per_byte)} FLOP/byte: left of it memory binds, from it on compute"
    for mark, name, step in _points(floor):
        yield f"  {mark} {name:8} {_place(step)}"


def _place(step: Step) -> str:
    rate, regime = flop_text(step.flop / step.seconds, "/s"), step.regime.replace("_", "-")
    return f"{intensity_text(step.intensity)} FLOP/byte, {rate}, {regime}"


def _figures(floor: Floor) -> str:
    card = floor.accelerator
    ridge = intensity_text(floor.ridge_flop_per_byte)
    return f"{flop_text(card.peak_flop_s, '/s')}, {card.bandwidth_bytes_s / 1e9:,.0f} GB/s, ridge {ridge} FLOP/byte"


def _x(frame: _Frame, intensity: float) -> float:
    return 80 + 620 * frame.across(intensity)


def _y(frame: _Frame, flop_s: float) -> float:
    return 390 - 330 * frame.upward(flop_s)


def _svg_grid(frame: _Frame) -> Iterator[str]:
    for power in range(frame.left, frame.right + 1):
        x = _x(frame, 10.0**power)
        yield f'<path d="M{x:.1f} 60V390" stroke="#e5e7eb"/>'
        yield f'<text x="{x:.1f}" y="408" text-anchor="middle">{_power_text(power).strip()}</text>'
    for power in range(frame.bottom, frame.top + 1):
        y = _y(frame, 10.0**power)
        yield f'<path d="M80 {y:.1f}H700" stroke="#e5e7eb"/>'
        yield f'<text x="74" y="{y + 4:.1f}" text-anchor="end">{_power_text(power).strip()}</text>'


def _svg_roof(floor: Floor, frame: _Frame) -> Iterator[str]:
    card, ridge = floor.accelerator, floor.ridge_flop_per_byte
    start = 10.0**frame.left
    x, y = _x(frame, ridge), _y(frame, card.peak_flop_s)
    foot = f"{_x(frame, start):.1f} {_y(frame, attainable(card, start)):.1f}"
    yield f'<path d="M{foot}L{x:.1f} {y:.1f}H700" fill="none" stroke="#111827" stroke-width="2.5" stroke-linejoin="round"/>'
    yield f'<path d="M{x:.1f} {y:.1f}V390" stroke="#6b7280" stroke-dasharray="4 4"/>'
    yield f'<text x="{x + 6:.1f}" y="382" fill="#4b5563">ridge {intensity_text(ridge)}</text>'


def _svg_points(floor: Floor, frame: _Frame) -> Iterator[str]:
    """Each point with its name, prefill's above it and decode's below; its figures in the empty corner over the slope."""
    for index, (_, name, step) in enumerate(_points(floor)):
        x, y = _x(frame, step.intensity), _y(frame, step.flop / step.seconds)
        line = 82 + 22 * index
        yield from (_svg_mark(name, x, y), _svg_mark(name, 98, line - 4))
        yield f'<text x="{x:.1f}" y="{y + (24 if name == "decode" else -14):.1f}" text-anchor="middle">{name}</text>'
        yield f'<text x="114" y="{line}">{name}: {escape(_place(step))}</text>'


def _svg_mark(name: str, x: float, y: float) -> str:
    """A disc for decode, a hollow square for prefill: both can be seen where they meet."""
    if name == "decode":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="#2563eb"/>'
    return f'<rect x="{x - 8:.1f}" y="{y - 8:.1f}" width="16" height="16" fill="none" stroke="#c2410c" stroke-width="3"/>'
