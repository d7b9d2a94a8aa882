"""Lines for a terminal: wrapping, escaping, colour. Nothing here knows what a GPU is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from xidwatch.core.pattern import lazy

_UNSEEN = lazy(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_BREAK = lazy("[ \n]+")
_ASCII = str.maketrans({"├": "|", "└": "`", "┌": ",", "─": "-", "│": "|", "·": "-", "…": "...", "×": "x", "→": "->", "–": "-"})
_STYLES = {
    "critical": "1;31", "warning": "1;33", "info": "1;32", "strong": "1", "quiet": "2", "command": "36", "plain": "",
}  # fmt: skip

Line = tuple[str, str]
"""(style, text); the style is one of critical, warning, info, strong, quiet, command, plain."""


def visible(text: str) -> str:
    r"""The text with every control, format and surrogate character shown as an escape (`\x1b`), so that none acts."""
    return _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[found[0]]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def wrap(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Break a text at blanks into lines of at most `width` characters; a longer word keeps a line for itself.

    Args:
        first, rest: What stands in front of the first line and of the others; counted in the width.
    """
    lines: list[str] = []
    line, empty = first, True
    for word in _BREAK.split(text.strip(" \n")):
        if not empty and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
        empty = False
    lines.append(line.rstrip())
    return lines


def paragraphs(text: str) -> list[str]:
    """A rule's prose as paragraphs; lines that begin with `- ` or a blank-indented `*` stay on their own."""
    found: list[str] = []
    fresh = True
    for raw in text.strip().splitlines():
        line = raw.strip()
        if not line:
            fresh = True
        elif fresh or line.startswith(("- ", "* ")):
            found.append(line)
            fresh = False
        else:
            found[-1] += " " + line
    return found


def first_sentences(text: str, most: int) -> str:
    """The beginning of a rule's prose: whole sentences of its first paragraph, at most so many."""
    whole = paragraphs(text)
    return " ".join(re.split(r"(?<=[.!?])\s+(?=[A-Z`(])", whole[0])[:most]) if whole else ""


def labelled(label: str, texts: Iterable[str], width: int, *, indent: int) -> list[str]:
    """`Label:   text` with every following line under the first text's beginning; nothing without a text."""
    lines: list[str] = []
    for text in texts:
        head = "" if lines else label
        lines += wrap(text, width, first=head.ljust(indent - 1) + " ", rest=" " * indent)
    return lines


def paint(lines: Iterable[Line], *, color: bool) -> str:
    """The lines as one text with a final newline; every character that could act on a terminal is escaped first."""
    done = []
    for style, raw in lines:
        text = visible(raw).rstrip()
        code = _STYLES[style] if color and text else ""
        done.append(f"\x1b[{code}m{text}\x1b[0m" if code else text)
    return "\n".join(done) + "\n"


def in_ascii(text: str) -> str:
    """The tree and punctuation characters of a report in ASCII, for a terminal that cannot show them."""
    return text.translate(_ASCII)


def columns(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Rows in columns two blanks apart; the last column wraps under itself."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        front = "".join(cell.ljust(size + 2) for cell, size in zip(row, widths, strict=False))
        lines += wrap(row[-1], max(width, len(front) + 20), first=front, rest=" " * len(front))
    return lines
