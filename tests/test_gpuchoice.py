"""Which GPU a person means."""

from __future__ import annotations

import pytest

from xidwatch.core.pci import PciAddress
from xidwatch.errors import XidwatchError
from xidwatch.gpuchoice import KnownGpu, choose_gpus

FIRST = KnownGpu("n1", PciAddress(0, 0x3B, 0), "GPU-1b2c3d4e-1111-2222-3333-44445555abcd")
SECOND = KnownGpu("n1", PciAddress(0, 0x4E, 0), "GPU-1b2c3d4f-1111-2222-3333-44445555abcd")
FAR = KnownGpu("n2", PciAddress(9, 0x4E, 0))
KNOWN = (FIRST, SECOND, FAR)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("3b", [FIRST]),
        ("3B:00", [FIRST]),
        ("3b:00.0", [FIRST]),
        ("0000:3b:00", [FIRST]),
        ("PCI:0000:3b:00", [FIRST]),
        ("00000000:3B:00.0", [FIRST]),
        ("4e:00", [SECOND, FAR]),
        ("0009:4e:00.0", [FAR]),
        ("GPU-1b2c3d4e-1111-2222-3333-44445555abcd", [FIRST]),
        ("gpu-1B2C3D4F", [SECOND]),
        ("1b2c3d4f-11", [SECOND]),
    ],
)
def test_whole_parts_are_understood(asked: str, chosen: list[KnownGpu]) -> None:
    """A bus, a bus and device, a whole address in any spelling, a UUID or eight digits and more of its beginning."""
    assert chosen == list(choose_gpus(asked, KNOWN))


@pytest.mark.parametrize(
    "asked", ["", " ", "0", "b", "b:00", "e:00", "00", ":00.0", "3b:", "3b:00.1", "GPU-", "GPU-1b2c3d4", "n1", "5"]
)
def test_half_a_part_is_no_gpu(asked: str) -> None:
    """What fits no GPU by whole parts gets the list of those that there are."""
    with pytest.raises(XidwatchError, match=r"it names: 0000:3b:00\.0 \(GPU-1b2c3d4e.*0009:4e:00\.0"):
        choose_gpus(asked, KNOWN)


def test_a_beginning_that_fits_two() -> None:
    """Two GPUs whose UUIDs begin alike are not taken for one."""
    twin = KnownGpu("n1", PciAddress(0, 0x5E, 0), "GPU-1b2c3d4e-9999-2222-3333-44445555abcd")
    with pytest.raises(XidwatchError, match="more of the UUID"):
        choose_gpus("1b2c3d4e", (*KNOWN, twin))
