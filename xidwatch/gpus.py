"""The GPUs themselves, beside what the log says of them: those on the PCI bus, and what NVML answers."""

from __future__ import annotations

import importlib.util
import selectors
import sys
from collections import deque
from collections.abc import Callable, Mapping

from xidwatch.core.gpu import GpuState, last_good
from xidwatch.core.pci import PciAddress
from xidwatch.core.regime import Look, latest_before, look
from xidwatch.errors import XidwatchError
from xidwatch.nvml.client import NvmlClient
from xidwatch.sinks.gpu_readings import readings
from xidwatch.sinks.history import TotalKey
from xidwatch.sources.devices import DeviceMonitor, PciGpu, list_gpus

_ASKED_AFTER = ("xid", "nvrm", "sxid", "aer")
"""Kinds of event that a GPU can confirm or deny."""

_LOOKS = 8
"""A fault is read within seconds, but the sample that it caused may be there first."""


class Gpus:
    """Registered in the daemon's loop. Nothing here waits for a GPU: NVML lives in a child process."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        use_nvml: bool,
        devices: Callable[[], tuple[PciGpu, ...]] = list_gpus,
        client: Callable[[], NvmlClient] = NvmlClient,
        monitor: Callable[[], DeviceMonitor] | None = DeviceMonitor,
    ) -> None:
        """`devices` lists the bus; `client` makes the way to NVML, which is only gone where the bus has an NVIDIA GPU.

        Without a `monitor` nothing comes or goes.
        """
        self._devices, self._make_client, self._selector = devices, client, selector
        self._use_nvml = use_nvml and (client is not NvmlClient or importlib.util.find_spec("pynvml") is not None)
        self._nvml: NvmlClient | None = None
        self._looks: dict[PciAddress, deque[Look]] = {}
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
            self._nvml.tick()

    def due_s(self) -> float | None:
        """Seconds until `tick` has something to do; None when nothing is due."""
        return self._nvml.due_s() if self._nvml is not None else None

    def happened(self, kind: str) -> None:
        """An event of this kind was read: the GPU may be asked about it."""
        if self._nvml is not None and kind in _ASKED_AFTER and not any(gpu.asleep for gpu in self._found):
            self._nvml.ask()

    def processes(self) -> Mapping[int, tuple[str, ...]]:
        """Which processes use which GPUs, as NVML told last: pid -> PCI addresses."""
        found: dict[int, tuple[str, ...]] = {}
        for pci, answer in self._nvml.answers().gpus.items() if self._nvml is not None else ():
            if isinstance(answer, GpuState) and isinstance(answer.processes, tuple):
                for pid in sorted({process.pid for process in answer.processes}):
                    found[pid] = (*found.get(pid, ()), str(pci))
        return found

    def release(self) -> None:
        """Leave NVML alone until `resume`."""
        if self._nvml is not None:
            self._nvml.release()

    def resume(self) -> None:
        """NVML may be asked again."""
        if self._nvml is not None:
            self._nvml.resume()

    def readings(self) -> Mapping[TotalKey, float]:
        """Series that the GPUs fill, for one snapshot."""
        shown: dict[TotalKey, float] = {
            ("xidwatch_gpus", (("source", "pci"),)): float(len(self._found)),
            ("xidwatch_gpus", (("source", "driver"),)): float(sum(gpu.driver == "nvidia" for gpu in self._found)),
        }
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
        return latest_before(self._looks.get(pci, ()), fault_us)

    def card(self) -> str | None:
        """The name of the node's cards as NVML tells it, of the first that answers."""
        answers = self._nvml.answers().gpus.values() if self._nvml is not None else ()
        names = (state.identity.name for answer in answers if (state := last_good(answer)) is not None)
        return next((name for name in names if isinstance(name, str)), None)

    def close(self) -> None:
        """Let go of NVML and the bus."""
        if self._nvml is not None:
            self._selector.unregister(self._nvml.fileno())
            self._nvml.close()
        if self._monitor is not None:
            self._selector.unregister(self._monitor.fileno())

    def _hear(self, nvml: NvmlClient) -> None:
        nvml.read()
        for pci, answer in nvml.answers().gpus.items():
            if isinstance(answer, GpuState):
                looks = self._looks.setdefault(pci, deque(maxlen=_LOOKS))
                if not looks or looks[-1].at_us < answer.at_us:
                    looks.append(look(answer))

    def _changed(self) -> None:
        if self._monitor is not None and self._monitor.read():
            self._look()

    def _look(self) -> None:
        self._found = self._devices()
        if self._found and self._use_nvml and self._nvml is None:
            self._nvml = self._make_client()
            nvml = self._nvml
            self._selector.register(nvml.fileno(), selectors.EVENT_READ, lambda _mask: self._hear(nvml))
        if self._nvml is not None:
            self._nvml.expect(gpu.pci for gpu in self._found if gpu.driver == "nvidia")
