"""What the daemon and its NVML child say to each other: one JSON object a line. Pure.

The daemon sends `Ask`. The child answers with `Asking` before it turns to a GPU, so that a call that never returns has a name,
with `Told` as soon as one GPU is known, and with `Done` at the end. Every answer carries the number of its question.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias, cast

from xidwatch.core import gpu
from xidwatch.core.gpu import DriverAnswer, GpuAnswer
from xidwatch.core.pci import PciAddress

MOST_BYTES = 1 << 20
"""A longer line is not the child's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Sample every GPU.

    Attributes:
        number: Of the question; answers carry it.
        gpus: Slots in which GPUs are expected, in the order in which to ask them; others come after.
        module: Folder that is there while the kernel module is loaded, or None not to look. NVML is not touched without it:
            its initialisation would load the module that an operator is just replacing.
    """

    number: int
    gpus: tuple[PciAddress, ...] = ()
    module: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The child turns to this now. `pci` is None while only the index is known, both are None for NVML as a whole."""

    number: int
    index: int | None = None
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldDriver:
    """What the node has, or why NVML cannot be used at all."""

    number: int
    driver: DriverAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One GPU. `pci` is None for a refusal by a GPU whose slot NVML does not tell."""

    number: int
    pci: PciAddress | None
    answer: GpuAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """NVML is shut down again. `leaving` says why the child ends now, so that the next sample is a fresh child's."""

    number: int
    leaving: str | None = None


Answer: TypeAlias = Asking | ToldDriver | Told | Done

_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Ask, Asking, ToldDriver, Told, Done, PciAddress, gpu.Place, gpu.Identity, gpu.EccCount, gpu.Sram, gpu.RetiredPages,
        gpu.RowRemap, gpu.SpareRows, gpu.Pcie, gpu.NvLink, gpu.GpuProcess, gpu.Memory, gpu.Utilization, gpu.Activity,
        gpu.MigDevice, gpu.Mig, gpu.Gsp, gpu.Fabric, gpu.GpuState, gpu.NotFound, gpu.Driver, gpu.NotSupported,
        gpu.NoPermission, gpu.DriverNotLoaded, gpu.LibraryMissing, gpu.VersionMismatch, gpu.Lost,
        gpu.ResetRequired, gpu.UnknownError, gpu.OtherError,
    )
}  # fmt: skip


def write(message: Ask | Answer) -> bytes:
    """One line, with its end."""
    return json.dumps(_encode(message), separators=(",", ":")).encode() + b"\n"


def read(line: bytes) -> Ask | Answer:
    """The message of one line.

    Raises:
        ValueError: it is not one.
    """
    try:
        message = _decode(json.loads(line))
    except (TypeError, KeyError, RecursionError) as reason:
        raise ValueError(f"not a message: {reason}") from None
    if not _is_sound(message):
        raise ValueError("not a message")
    return cast("Ask | Answer", message)


def _is_sound(message: object) -> bool:
    """Whether the fields that decide what happens next are of their types; the readings are shown, not obeyed."""
    match message:
        case Told(number=int(), pci=pci, answer=answer):
            return isinstance(pci, PciAddress | None) and isinstance(answer, gpu.GpuState | gpu.NotFound | gpu.Refused)
        case ToldDriver(number=int(), driver=driver):
            return isinstance(driver, gpu.Driver | gpu.Refused)
        case Ask(number=int(), gpus=slots):
            return all(isinstance(slot, PciAddress) for slot in slots)
        case Asking(number=int()) | Done(number=int()):
            return True
    return False


def _encode(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        inside = {one.name: _encode(getattr(value, one.name)) for one in fields(value)}
        return {"is": type(value).__name__} | inside
    if isinstance(value, tuple):
        return [_encode(one) for one in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(one) for one in value)
    if isinstance(value, dict):
        inside = {name: _decode(one) for name, one in value.items() if name != "is"}
        return _TYPES[value["is"]](**inside)
    return value
