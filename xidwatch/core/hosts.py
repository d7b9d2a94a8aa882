"""What the log tells about each host: driver, kernel, and which GPU sits in which slot."""

from __future__ import annotations

from dataclasses import dataclass, field

from xidwatch.core.event import Context
from xidwatch.core.incident import HostReport
from xidwatch.core.machine import UNKNOWN, Machine, learn
from xidwatch.core.pci import PciAddress


@dataclass(slots=True)
class _Host:
    machine: Machine = UNKNOWN
    kernel: str | None = None
    uuids: dict[PciAddress, str] = field(default_factory=dict)
    serials: dict[PciAddress, str] = field(default_factory=dict)
    named_last: PciAddress | None = None


class HostBook:
    """Facts by host name, the latest word winning; "" is the host of a log that names none."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    def note(self, host: str, context: Context) -> PciAddress | None:
        """Take what a context line says; the slot whose GPU has just changed, or None."""
        known = self._hosts.setdefault(host, _Host())
        facts = dict(context.facts)
        if context.kind in ("driver_load", "driver_version", "machine"):
            known.machine = learn(known.machine, facts)
        elif context.kind == "boot":
            known.kernel = facts.get("kernel", known.kernel)
        elif context.kind == "gpu_identity":
            return self._identify(known, context.pci, facts)
        return None

    def see(self, host: str, pci: PciAddress | None, serial: str | None = None) -> None:
        """Remember a GPU that an event names."""
        known = self._hosts.setdefault(host, _Host())
        if pci is not None and serial:
            known.serials[pci] = serial

    def driver_version(self, host: str) -> str | None:
        """Driver version that the host's log last gave, `580.95.05`."""
        return self.machine(host).driver_version

    def machine(self, host: str) -> Machine:
        """What the host's log tells of the machine."""
        return self._hosts[host].machine if host in self._hosts else UNKNOWN

    def uuid(self, host: str, pci: PciAddress | None) -> str | None:
        """UUID of the GPU in a slot, as last named."""
        return self._hosts[host].uuids.get(pci) if host in self._hosts and pci is not None else None

    def slot(self, host: str, uuid: str) -> PciAddress | None:
        """Slot of a GPU known by UUID."""
        found = (pci for pci, known in (self._hosts[host].uuids if host in self._hosts else {}).items() if known == uuid)
        return next(found, None)

    def reports(self, gpus: dict[str, set[PciAddress]]) -> tuple[HostReport, ...]:
        """One report a host; `gpus` adds the slots that events named."""
        names = dict.fromkeys((*self._hosts, *gpus))
        return tuple(self._report(name, gpus.get(name, set())) for name in names)

    def _report(self, name: str, seen: set[PciAddress]) -> HostReport:
        known = self._hosts.get(name, _Host())
        slots = sorted({*known.uuids, *known.serials, *seen})
        return HostReport(
            host=name or None,
            driver_version=known.machine.driver_version,
            module_flavour=known.machine.flavour,
            kernel=known.kernel,
            gpus={str(pci): (known.uuids.get(pci), known.serials.get(pci)) for pci in slots},
            machine=known.machine,
        )

    def _identify(self, known: _Host, pci: PciAddress | None, facts: dict[str, str]) -> PciAddress | None:
        pci = pci or known.named_last
        if pci is None:
            return None
        known.named_last = pci
        if serial := facts.get("serial"):
            known.serials[pci] = serial
        uuid = facts.get("uuid")
        before = known.uuids.get(pci)
        if uuid:
            known.uuids[pci] = uuid
        return pci if uuid and before and before != uuid else None
