"""Standard output: what it can show, how wide it is, whether it takes colours."""

from __future__ import annotations

import os
import sys


def say(text: str) -> None:
    """Write to standard output whatever its encoding: what it cannot show is shown escaped."""
    out = sys.stdout
    encoding = (getattr(out, "encoding", None) or "utf-8").lower()
    if not encoding.startswith("utf"):
        from xidwatch.render.layout import in_ascii

        text = in_ascii(text)
    out.write(text.encode(encoding, "backslashreplace").decode(encoding, "replace"))


def wants_color(choice: str = "auto") -> bool:
    """Whether to colour; `choice` is always, never, or auto: on a terminal that nobody asked to be plain."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def width() -> int:
    """Columns to write: the terminal's, at most 120; 100 when the output goes to a file or a pipe."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return min(int(columns), 240)
    try:
        return max(40, min(os.get_terminal_size(sys.stdout.fileno()).columns, 120))
    except (OSError, ValueError):
        return 100
