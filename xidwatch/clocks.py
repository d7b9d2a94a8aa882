"""What time it is, as a value that is handed on: tests give their own."""

from __future__ import annotations

import time


class Clocks:
    """The kernel's own."""

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def steady_s(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()
