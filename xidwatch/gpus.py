"""The GPUs themselves, beside what the log says of them: those on the PCI bus, and what NVML answers."""

from __future__ import annotations

import importlib.util
import selectors
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from xidwatch.core.census import Card, Slot, card_of, census
from xidwatch.core.gpu import Driver, GpuState, Lost, NotFound, Refused, Unresponsive, last_good
from xidwatch.core.pci import PciAddress
from xidwatch.core.regime import Look, latest_before, look
from xidwatch.errors import XidwatchError
from xidwatch.nvml.client import NvmlClient
from xidwatch.sinks.gpu_readings import readings
from xidwatch.sinks.history import TotalKey
from xidwatch.sources.devices import DeviceMonitor, PciGpu, config_reads_all_ones, list_gpus
from xidwatch.sources.errands import Errands

SOURCE = "gpus"
"""What history calls that which no log told but the GPUs."""
MISSED_S = 60.0
_ASKED_AFTER = ("xid", "nvrm", "sxid", "aer")
"""Kinds of event that a GPU can confirm or deny."""

_KEPT = 8
"""A fault is read within seconds, but the sample that it caused may be there first."""


class Gpus:
    """Registered in the daemon's loop. Nothing here waits for a GPU: NVML lives in a child process.

    Attributes:
        changed: Called from another thread when a device was looked at.
        is_dead: Reads a device's config space; may wait.
        patience_s: A GPU that is away for less is not missed.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        use_nvml: bool,
        devices: Callable[[], tuple[PciGpu, ...]] = list_gpus,
        client: Callable[[], NvmlClient] = NvmlClient,
        monitor: Callable[[], DeviceMonitor] | None = DeviceMonitor,
    ) -> None:
        """Nothing is asked yet.

        Args:
            devices: Lists the bus.
            client: Makes the way to NVML, which is only gone where the bus has an NVIDIA GPU.
            monitor: Tells what comes and goes; None where nothing does.
        """
        self._devices, self._make_client, self._selector = devices, client, selector
        self.changed: Callable[[], None] = lambda: None
        self.is_dead: Callable[[PciAddress], bool | None] = config_reads_all_ones
        self._use_nvml = use_nvml and (client is not NvmlClient or importlib.util.find_spec("pynvml") is not None)
        self._nvml: NvmlClient | None = None
        self._processes: tuple[object, Mapping[int, tuple[str, ...]]] = (None, {})
        self._states: dict[PciAddress, deque[GpuState]] = {}
        self._told = 0
        self._cards: dict[PciAddress, Card] = {}
        self._news: list[PciAddress] = []
        self._heard_us: dict[PciAddress, int] = {}
        self._other_until_us: dict[PciAddress, int] = {}
        self._dead: dict[PciAddress, bool | None] = {}
        self._touched: dict[PciAddress, type] = {}
        self._errands = Errands(lambda: self.changed())  # noqa: PLW0108  # the daemon sets it later
        self.patience_s = MISSED_S
        self._monitor: DeviceMonitor | None = None
        try:
            self._monitor = monitor() if monitor is not None else None
            if self._monitor is not None:
                selector.register(self._monitor.fileno(), selectors.EVENT_READ, lambda _mask: self._changed())
        except (XidwatchError, OSError) as error:
            sys.stderr.write(f"xidwatch: GPUs that come and go are not seen: {error}\n")
        self._look()

    def tick(self) -> None:
        """Begin the sample that is due; notice one that is late."""
        if self._nvml is not None:
            before = self.standing()
            self._nvml.tick()
            if self.standing() != before:
                self._weigh(self._nvml)

    def due_s(self) -> float | None:
        """Seconds until `tick` has something to do; None when nothing is due."""
        return self._nvml.due_s() if self._nvml is not None else None

    def happened(self, kind: str) -> None:
        """An event of this kind was read: the GPU may be asked about it."""
        if self._nvml is not None and kind in _ASKED_AFTER and not any(gpu.asleep for gpu in self._found):
            self._nvml.ask()

    def processes(self) -> Mapping[int, tuple[str, ...]]:
        """Which processes use which GPUs, as NVML told last: pid -> PCI addresses."""
        if self._nvml is None or (node := self._nvml.answers()) is self._processes[0]:
            return self._processes[1]
        found: dict[int, tuple[str, ...]] = {}
        for pci, answer in node.gpus.items():
            if isinstance(answer, GpuState) and isinstance(answer.processes, tuple):
                for pid in sorted({process.pid for process in answer.processes}):
                    found[pid] = (*found.get(pid, ()), str(pci))
        self._processes = node, found
        return found

    def release(self) -> None:
        """Leave NVML alone until `resume`."""
        if self._nvml is not None:
            self._nvml.release()
            self._told += 1

    def resume(self) -> None:
        """NVML may be asked again."""
        if self._nvml is not None:
            self._nvml.resume()
            self._told += 1

    def remember(self, pci: PciAddress, card: Card) -> None:
        """A card that was in this slot when the daemon last ran: it is missed when it is not there."""
        self._cards[pci] = card

    def accept(self) -> None:
        """What is there now is what should be there."""
        present = {gpu.pci for gpu in self._found}
        self._cards = {pci: card for pci, card in self._cards.items() if pci in present}

    def cards(self) -> list[tuple[PciAddress, Card]]:
        """Every card that should be there."""
        return list(self._cards.items())

    def news(self) -> list[tuple[PciAddress, Card]]:
        """Cards that were seen for the first time, or anew in their slots, since the last call."""
        found, self._news = self._news, []
        return [(pci, self._cards[pci]) for pci in found if pci in self._cards]

    def other_until_us(self, pci: PciAddress) -> int | None:
        """When a slot was last heard of before its present card took another's place; None where it did not."""
        return self._other_until_us.get(pci)

    def slots(self) -> tuple[Slot, ...]:
        """How every slot stands."""
        answers = self._nvml.answers().gpus if self._nvml is not None else {}
        return census({gpu.pci: gpu.driver for gpu in self._found}, answers, self._cards, self._dead)

    def way(self) -> dict[str, Any]:
        """How the way to NVML is, for state.json; `up` is null while nothing was asked."""
        if self._nvml is None:
            return {"asked": False, "up": None, "why": None, "stuck_s": 0.0, "sample_age_s": None, "released": False}
        way = self._nvml.health()
        return {
            "asked": True, "up": way.up, "why": way.why,
            "stuck_s": way.stuck_s, "sample_age_s": way.sample_age_s, "released": way.released,
        }  # fmt: skip

    def standing(self) -> tuple[object, ...] | None:
        """What of the way to NVML a person would call a change; seconds that grow are none. None where nothing is asked."""
        if self._nvml is None:
            return None
        way = self._nvml.health()
        return way.up, way.why, way.released, way.stuck_s > 0

    def driver_version(self) -> str | None:
        """As NVML tells it."""
        driver = self._nvml.answers().driver if self._nvml is not None else None
        return driver.driver_version if isinstance(driver, Driver) and isinstance(driver.driver_version, str) else None

    def readings(self, slots: Iterable[Slot]) -> Mapping[TotalKey, float]:
        """Series that the GPUs fill, for one snapshot; `slots` as `slots()` gives them."""
        shown: dict[TotalKey, float] = {
            ("xidwatch_gpus", (("source", "pci"),)): float(len(self._found)),
            ("xidwatch_gpus", (("source", "driver"),)): float(sum(gpu.driver == "nvidia" for gpu in self._found)),
        }
        for slot in slots:
            if slot.missing:
                shown["xidwatch_gpu_missing", (("gpu", str(slot.pci)),)] = 1.0
        if self._nvml is None:
            return shown
        node, way = self._nvml.answers(), self._nvml.health()
        shown |= readings(node.gpus, node.driver)
        if way.up is not None:
            shown["xidwatch_nvml_up", ()] = float(way.up)
        if way.sample_age_s is not None:
            shown["xidwatch_nvml_sample_age_seconds", ()] = way.sample_age_s
        shown["xidwatch_nvml_stuck_seconds", ()] = way.stuck_s
        return shown

    def look_before(self, pci: PciAddress, fault_us: int) -> Look | None:
        """What bound a GPU's work when it was last looked at before a fault; None when that is not known."""
        return latest_before(map(look, self._states.get(pci, ())), fault_us)

    def state_before(self, pci: PciAddress, fault_us: int) -> GpuState | None:
        """What a GPU said last before a fault; None when that is not known."""
        before = [state for state in self._states.get(pci, ()) if state.at_us < fault_us]
        return before[-1] if before else None

    def states_since(self, pci: PciAddress, fault_us: int) -> list[GpuState]:
        """What a GPU has said since, as far as it is kept."""
        return [state for state in self._states.get(pci, ()) if state.at_us >= fault_us]

    def told(self) -> int:
        """A number that changes whenever a GPU has said something, or something about one was found out."""
        return self._told

    def card(self) -> str | None:
        """The name of the node's cards as NVML tells it, of the first that answers."""
        answers = self._nvml.answers().gpus.values() if self._nvml is not None else ()
        names = (state.identity.name for answer in answers if (state := last_good(answer)) is not None)
        return next((name for name in names if isinstance(name, str)), None)

    def close(self) -> None:
        """Let go of NVML and the bus."""
        self._errands.close()
        if self._nvml is not None:
            self._selector.unregister(self._nvml.fileno())
            self._nvml.close()
        if self._monitor is not None:
            self._selector.unregister(self._monitor.fileno())

    def _hear(self, nvml: NvmlClient) -> None:
        nvml.read()
        self._weigh(nvml)

    def _weigh(self, nvml: NvmlClient) -> None:
        """Take what it answers: keep the states, meet the cards, look at the bus where nothing else tells."""
        self._told += 1
        for pci, answer in nvml.answers().gpus.items():
            if isinstance(answer, GpuState):
                states = self._states.setdefault(pci, deque(maxlen=_KEPT))
                if not states or states[-1].at_us < answer.at_us:
                    states.append(answer)
                self._dead.pop(pci, None)
                self._touched.pop(pci, None)
                self._meet(pci, card_of(answer))
            elif isinstance(answer, Lost | NotFound | Unresponsive) and self._touched.get(pci) is not type(answer):
                self._touched[pci] = type(answer)
                self._touch(pci)
            if isinstance(answer, GpuState | Refused | NotFound):
                self._heard_us[pci] = answer.at_us

    def _meet(self, pci: PciAddress, card: Card | None) -> None:
        if card is None:
            return
        known = self._cards.get(pci)
        card = card if known is None else card.with_what_is_known(known)
        if card != known:
            if known is not None and known.gpu_uuid != card.gpu_uuid and pci in self._heard_us:
                self._other_until_us[pci] = self._heard_us[pci]
            self._cards[pci] = card
            self._news.append(pci)

    def _touch(self, pci: PciAddress) -> None:
        """Read its config space: by another thread, since a sick bus may keep it waiting; not of one that a guest has."""
        if any(gpu.pci == pci and (gpu.asleep or gpu.driver not in ("nvidia", None)) for gpu in self._found):
            return

        def errand() -> None:
            self._dead[pci] = self.is_dead(pci)
            self._told += 1

        self._dead[pci] = None
        self._errands.send(errand)

    def _changed(self) -> None:
        if self._monitor is not None and self._monitor.read():
            self._look()

    def _look(self) -> None:
        self._found = self._devices()
        self._told += 1
        if self._found and self._use_nvml and self._nvml is None:
            self._nvml = self._make_client()
            nvml = self._nvml
            self._selector.register(nvml.fileno(), selectors.EVENT_READ, lambda _mask: self._hear(nvml))
        for gpu in self._found:
            if gpu.driver == "nvidia" and gpu.pci not in self._cards:
                self._meet(gpu.pci, Card())
        if self._nvml is not None:
            self._nvml.expect(gpu.pci for gpu in self._found if gpu.driver == "nvidia")
