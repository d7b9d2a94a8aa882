"""The lines between the daemon and its NVML child."""

from __future__ import annotations

import pytest

from xidwatch.core.gpu import (
    DriverNotLoaded,
    Lost,
    NotSupported,
    OtherError,
    ResetRequired,
    UnknownError,
    VersionMismatch,
    clock_reasons,
    refusal,
)
from xidwatch.core.pci import PciAddress
from xidwatch.nvml.protocol import Ask, Asking, Done, Told, ToldDriver, read, write

GPU = PciAddress(0, 0x3B, 0)
LOST = Lost(code=15, text="nvmlDeviceGetHandleByIndex: GPU is lost", at_us=1)


@pytest.mark.parametrize(
    "message",
    [
        Ask(number=1, gpus=(GPU,), module="/sys/module/nvidia"),
        Asking(number=1, index=3, pci=GPU),
        ToldDriver(number=1, driver=DriverNotLoaded(code=9, text="", at_us=1)),
        Told(number=1, pci=GPU, answer=LOST),
        Told(number=1, pci=None, answer=LOST),
        Done(number=1, leaving="the library has been replaced"),
    ],
)
def test_round_trip(message: Ask | Asking | ToldDriver | Told | Done) -> None:
    """What is written is read again as the same value, on one line."""
    line = write(message)
    assert message == read(line)
    assert (1, True) == (line.count(b"\n"), line.endswith(b"\n"))


@pytest.mark.parametrize(
    "line",
    [
        b"", b"nonsense", b"{}", b"[]", b"7", b"null", b'{"is":"Popen","args":[]}', b'{"is":"Done"}', b'{"is":"Done","number":"1"}',
        b'{"is":"Told","number":1,"pci":"0000:3b:00.0","answer":null}', b'{"is":"Told","number":1,"pci":null,"answer":{"is":"Done","number":1}}',
        b'{"is":"ToldDriver","number":1,"driver":7}', b"[" * 100_000, b'{"is":["Done"],"number":1}', b"\xff\xfe",
    ],
)  # fmt: skip
def test_nonsense_is_told_from_a_message(line: bytes) -> None:
    """Whatever a library prints or a broken child says is a ValueError, never a message."""
    with pytest.raises(ValueError):
        read(line)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (2, NotSupported), (3, NotSupported), (13, NotSupported), (25, NotSupported), (9, DriverNotLoaded), (15, Lost),
        (16, ResetRequired), (18, VersionMismatch), (999, UnknownError), (14, OtherError), (4711, OtherError),
    ],
)  # fmt: skip
def test_each_code_has_its_answer(code: int, kind: type) -> None:
    """Codes that call for different acts are different answers; one that nobody knows keeps its number."""
    found = refusal(code, "", 7)
    assert (kind, code, 7) == (type(found), found.code, found.at_us)


def test_clock_reasons_by_name() -> None:
    """The bits of nvml.h have names, a newer one its number."""
    assert ("hw_slowdown", "hw_thermal", "hw_power_brake", "bit_20") == clock_reasons(0x8 | 0x40 | 0x80 | 1 << 20)
