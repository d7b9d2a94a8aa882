"""PCI addresses and MIG instances, as the log, NVML and sysfs spell them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xidwatch.core.pattern import lazy

_FORM = lazy(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?$", re.IGNORECASE)
_ANCIENT = lazy(r"([0-9a-f]{4}):([0-9a-f]{2})$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """One PCI function; prints as `0000:9b:00.0`, the spelling of sysfs and of the metric label."""

    domain: int
    bus: int
    device: int
    function: int = 0

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function}"


def parse_pci(text: str) -> PciAddress | None:
    """Read any spelling of a PCI address; None when it is not one (`...`, an empty string).

    Accepts `PCI:0000:3b:00`, `0000:3b:00.0`, `00000000:3B:00.0`, `10000:01:00`, `3b:00.0`
    and `0001:00`, which drivers before 2010 printed for bus 01, device 00.
    """
    text = text.removeprefix("PCI:").strip().rstrip(":")
    if ancient := _ANCIENT.match(text):
        return PciAddress(0, int(ancient[1], 16) & 0xFF, int(ancient[2], 16))
    if not (form := _FORM.match(text)):
        return None
    domain, bus, device, function = form.groups()
    return PciAddress(int(domain or "0", 16), int(bus, 16), int(device, 16), int(function or "0"))
