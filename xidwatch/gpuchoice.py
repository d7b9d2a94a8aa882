"""Which GPUs of a log a person means by `--gpu`: whole parts of an address, or a UUID's beginning."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from xidwatch.core.pattern import lazy
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.errors import XidwatchError

_UUID = lazy(r"(?:gpu-)?([0-9a-f]{8}[0-9a-f-]*)$")
_BUS = lazy(r"[0-9a-f]{2}$")


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU that the log names; `host` is "" where the log names none."""

    host: str
    pci: PciAddress
    uuid: str | None = None

    def __str__(self) -> str:
        return f"{self.pci} ({self.uuid})" if self.uuid else str(self.pci)


def choose_gpus(asked: str, known: Collection[KnownGpu]) -> tuple[KnownGpu, ...]:
    """Those of the known GPUs that are meant; never none.

    Args:
        asked: `4e`, `4e:00`, `4e:00.0`, any spelling of a whole address, a UUID, or its first eight digits and more.

    Raises:
        XidwatchError: none is meant, or the beginning of a UUID fits several; the text lists those that there are.
    """
    text = asked.strip().lower()
    if uuid := _UUID.match(text):
        chosen = [gpu for gpu in known if gpu.uuid is not None and gpu.uuid.lower().removeprefix("gpu-").startswith(uuid[1])]
        if len({gpu.uuid for gpu in chosen}) > 1:
            raise XidwatchError(f"--gpu {asked}: {_listed(chosen)} begin so; give more of the UUID")
    elif _BUS.match(text):
        chosen = [gpu for gpu in known if gpu.pci.bus == int(text, 16)]
    else:
        chosen = [gpu for gpu in known if _is_at(gpu.pci, text)]
    if not chosen:
        raise XidwatchError(f"no GPU {asked!r} in this log; it names: {_listed(known) or 'none'}")
    return tuple(sorted(chosen, key=_place))


def _is_at(pci: PciAddress, text: str) -> bool:
    """Whether an address fits what is given of it; a domain that is not given fits all."""
    asked = parse_pci(text.removeprefix("pci:"))
    if asked is None:
        return False
    whole = text.removeprefix("pci:").count(":") > 1 or len(text.partition(":")[0]) == 4
    return (pci if whole else PciAddress(0, pci.bus, pci.device, pci.function)) == asked


def _listed(gpus: Collection[KnownGpu]) -> str:
    return ", ".join(dict.fromkeys(map(str, sorted(gpus, key=_place))))


def _place(gpu: KnownGpu) -> tuple[PciAddress, str, str]:
    return gpu.pci, gpu.host, gpu.uuid or ""
