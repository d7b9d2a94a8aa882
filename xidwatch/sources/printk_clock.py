"""printk's clock told as wall-clock time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_DRIFT = 1e-4
"""How far printk's clock, which nobody disciplines, may run from CLOCK_MONOTONIC: seconds in a second, seen at worst."""


@dataclass(slots=True)
class PrintkClock:
    """What the wall clock shows for microseconds of printk's clock.

    The two are tied by CLOCK_MONOTONIC, from which printk's clock drifts by some seconds a day on some machines.
    A record that arrives as it is written shows the drift; until one has come it is taken for none.

    Attributes:
        wall_us: The wall clock now, microseconds since 1970.
        monotonic_us: CLOCK_MONOTONIC now.
    """

    wall_us: Callable[[], int] = field(default=lambda: time.time_ns() // 1000)
    monotonic_us: Callable[[], int] = field(default=lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
    _offset_us: int = 0
    _behind_us: int | None = None
    _seen_us: int = 0

    def look(self) -> None:
        """Take the two clocks anew, so that a wall clock that was set carries over."""
        self._offset_us = self.wall_us() - self.monotonic_us()

    def arrived(self, since_boot_us: int) -> None:
        """A record came just now, none having waited before.

        One that waited nevertheless would make printk's clock look further behind; the least of what is seen counts.
        """
        now_us = self.monotonic_us()
        behind_us = now_us - since_boot_us
        if self._behind_us is not None:
            behind_us = min(behind_us, self._behind_us + round((now_us - self._seen_us) * _DRIFT))
        self._behind_us, self._seen_us = behind_us, now_us

    def tell(self, since_boot_us: int) -> tuple[int, float]:
        """(wall clock in microseconds since 1970, how far off that may be in seconds)."""
        wall_us = self._offset_us + (self._behind_us or 0) + since_boot_us
        return wall_us, 1.0 if self._behind_us is not None else round(1.0 + since_boot_us * _DRIFT / 1e6, 3)
