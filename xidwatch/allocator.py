"""How much freed memory the C library keeps for itself."""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD = -1
"""Source: glibc, malloc/malloc.h."""
_KEPT_BYTES = 1 << 17


def give_back_early() -> None:
    """Have freed memory above 128 KiB at the end of the heap given back to the system, which is glibc's first setting.

    Left alone, glibc raises it with the largest block that was ever freed: after a burst a megabyte or two would stay. Other
    C libraries have no such setting (musl) and are left as they are.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
