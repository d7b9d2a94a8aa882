"""The functions of `pynvml` that the child uses, answered from a scenario: no GPU, no driver, no compiler, no nvidia-ml-py.

A test holds every answer against the project's own libnvidia-ml.so.1 in C, on which the unchanged nvidia-ml-py runs.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from xidwatch.errors import XidwatchError
from xidwatch.nvml.scenario import NODE, Scenario, read_scenario

_UNINITIALIZED, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND, _FUNCTION_NOT_FOUND, _UNKNOWN = 1, 2, 3, 6, 13, 999
_TEXTS = {
    1: "Uninitialized", 2: "Invalid Argument", 3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found",
    7: "Insufficient Size", 8: "Insufficient External Power", 9: "Driver Not Loaded", 10: "Timeout",
    11: "Interrupt Request Issue", 12: "NVML Shared Library Not Found", 13: "Function Not Found", 14: "Corrupted infoROM",
    15: "GPU is lost", 16: "GPU requires restart", 17: "The operating system has blocked the request.",
    18: "RM has detected an NVML/RM version mismatch.", 20: "Insufficient Memory", 999: "Unknown Error",
}  # fmt: skip
"""As nvidia-ml-py words them."""
_NO_INSTANCE = 0xFFFFFFFF
_PLACES = 8
_MOST_MIG, _MOST_PROCESSES = 7, 16
_TEXTURE_MEMORY, _TEXTURE_SHM = 4, 5
_GPM = {2: 0, 5: 1, 10: 2}
"""By NVML_GPM_METRIC_*: which of the numbers behind `gpm`: SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL."""
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_VFORK = 0x4000
_LOOK_S = 0.05

_NODE_TEXTS = {"nvmlSystemGetDriverVersion": "driver", "nvmlSystemGetNVMLVersion": "nvml"}
_GPU_TEXTS = {
    "nvmlDeviceGetName": "name", "nvmlDeviceGetSerial": "serial", "nvmlDeviceGetBoardPartNumber": "part_number",
    "nvmlDeviceGetVbiosVersion": "vbios",
}  # fmt: skip
_GPU_NUMBERS = {
    "nvmlDeviceGetModuleId": "module_id", "nvmlDeviceGetPersistenceMode": "persistence_mode",
    "nvmlDeviceGetRetiredPagesPendingStatus": "retired.pending", "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetPowerUsage": "power_mw", "nvmlDeviceGetEnforcedPowerLimit": "power_limit_mw",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie_generation", "nvmlDeviceGetCurrPcieLinkWidth": "pcie_width",
    "nvmlDeviceGetMaxPcieLinkGeneration": "pcie_max_generation", "nvmlDeviceGetMaxPcieLinkWidth": "pcie_max_width",
    "nvmlDeviceGetPcieReplayCounter": "pcie_replays", "nvmlDeviceGetCurrentClocksThrottleReasons": "clock_reasons",
    "nvmlDeviceGetCurrentClocksEventReasons": "clock_reasons",
}  # fmt: skip
_GPU_TUPLES = {
    "nvmlDeviceGetRemappedRows": ("remapped_rows", 4), "nvmlDeviceGetMigMode": ("mig_mode", 2),
}  # fmt: skip
_PROCESSES = {
    "nvmlDeviceGetComputeRunningProcesses": "compute", "nvmlDeviceGetGraphicsRunningProcesses": "graphics",
    "nvmlDeviceGetMPSComputeRunningProcesses": "mps",
}  # fmt: skip
_IN_HEADER = {
    "nvmlInit": "nvmlInitWithFlags", "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetHandleByPciBusId": "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
}  # fmt: skip
"""What the binding's function is called in nvml.h where the names differ."""


class NVMLError(Exception):
    """An nvmlReturn_t that is not success."""

    def __init__(self, value: int, text: str | None = None) -> None:
        """`value` is the number; `text` says it in other words than NVML's."""
        super().__init__(text or _TEXTS.get(value, f"NVML Error with code {value}"))
        self.value = value


@dataclass(frozen=True, slots=True)
class Device:
    """A handle: of a GPU, or with `mig` of one of its MIG devices."""

    gpu: int
    mig: int | None = None


class _PlatformInfo(ctypes.Structure):
    _fields_ = (
        ("chassisSerialNumber", ctypes.c_char * 16), ("slotNumber", ctypes.c_char), ("trayIndex", ctypes.c_char),
        ("hostId", ctypes.c_char), ("moduleId", ctypes.c_char),
    )  # fmt: skip


class _SramStatus(ctypes.Structure):
    _fields_ = (
        ("bThresholdExceeded", ctypes.c_uint), ("aggregateUncParity", ctypes.c_ulonglong),
        ("aggregateUncSecDed", ctypes.c_ulonglong), ("aggregateCor", ctypes.c_ulonglong),
    )  # fmt: skip


class _FabricInfo(ctypes.Structure):
    _fields_ = (("state", ctypes.c_uint), ("status", ctypes.c_uint), ("healthMask", ctypes.c_uint))


class _MetricsGet(SimpleNamespace):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given, metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(64)])


class Player:
    """Stands where the module `pynvml` would. Attributes of its name are NVML's functions and structures."""

    NVMLError = NVMLError
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlPlatformInfo_v2_t = _PlatformInfo
    c_nvmlEccSramErrorStatus_v1_t = _SramStatus
    c_nvmlGpuFabricInfoV_t = _FabricInfo
    c_nvmlGpuFabricInfo_t = _FabricInfo
    c_nvmlGpmMetricsGet_t = _MetricsGet

    def __init__(self, path: Path, began_s: float, owner: int) -> None:
        """Nothing is read before nvmlInit.

        Args:
            path: The scenario; read anew by each nvmlInit.
            began_s: Wall clock, seconds since 1970, from which its `at` counts.
            owner: Pid without which nothing is worth waiting for.
        """
        self._path, self._began_s, self._owner = path, began_s, owner
        self._scenario = Scenario()
        self._ready = False
        self._opened: list[int] = []
        self._own: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._init, "nvmlShutdown": self._shutdown, "nvmlDeviceGetCount": lambda: self._scenario.count,
            "nvmlSystemGetCudaDriverVersion_v2": lambda: self._numbers(NODE, "cuda", 1)[0],
            "nvmlDeviceGetHandleByIndex": self._by_index, "nvmlDeviceGetHandleByPciBusId": self._by_slot,
            "nvmlDeviceGetIndex": lambda device: device.gpu, "nvmlDeviceGetUUID": self._uuid,
            "nvmlDeviceGetPciInfo": lambda device: SimpleNamespace(busId=self._text(device.gpu, "pci")),
            "nvmlDeviceGetNvLinkRemotePciInfo":
                lambda device, _link: SimpleNamespace(busId=self._text(device.gpu, "nvlink_remote")),
            "nvmlDeviceGetEccMode": lambda device: self._numbers(device.gpu, "ecc_mode", 1) * 2,
            "nvmlDeviceGetTotalEccErrors": lambda device, severity, lifetime: self._ecc(device, severity, lifetime, 0),
            "nvmlDeviceGetMemoryErrorCounter": self._ecc_at, "nvmlDeviceGetRetiredPages": self._retired,
            "nvmlDeviceGetRowRemapperHistogram": self._spare_rows, "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetUtilizationRates": self._utilization, "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlDeviceGetNvLinkState": self._link_state, "nvmlDeviceGetNvLinkErrorCounter": self._link_errors,
            "nvmlDeviceGetMaxMigDeviceCount": lambda _device: _MOST_MIG,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._mig_device,
            "nvmlDeviceGetGpuInstanceId": lambda device: self._instance(device, 0),
            "nvmlDeviceGetComputeInstanceId": lambda device: self._instance(device, 1),
            "nvmlDeviceGetGspFirmwareMode": lambda device: [*self._numbers(device.gpu, "gsp", 1), 1],
            "nvmlDeviceGetGspFirmwareVersion": lambda _device: self._text(NODE, "driver"),
            "nvmlDeviceGetSramEccErrorStatus": self._sram, "nvmlDeviceGetPlatformInfo": self._place,
            "nvmlDeviceGetGpuFabricInfoV": self._fabric,
            "nvmlGpmQueryDeviceSupport":
                lambda device: SimpleNamespace(isSupportedDevice=self._scenario.value(device.gpu, "gpm") is not None),
            "nvmlGpmSampleGet": self._gpm_sample, "nvmlGpmSampleAlloc": SimpleNamespace, "nvmlGpmSampleFree": lambda _: None,
            "nvmlGpmMetricsGet": self._gpm,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The function of that name; one that no scenario can speak of is not in the library either."""
        if not name.startswith("nvml"):
            raise AttributeError(name)
        answer = self._own.get(name) or self._simple(name)

        def function(*arguments: Any) -> Any:
            in_header = _IN_HEADER.get(name, name)
            if answer is None or self._scenario.deed(NODE, "lacks", in_header) is not None:
                raise NVMLError(_FUNCTION_NOT_FOUND)
            if name == "nvmlInit":
                self._load()
            if not name.startswith("nvmlGpm") or name in ("nvmlGpmSampleGet", "nvmlGpmQueryDeviceSupport"):
                device = arguments[0] if arguments and isinstance(arguments[0], Device) else None
                self._enter(NODE if device is None else device.gpu, in_header)
            return answer(*arguments)

        return function

    def _simple(self, name: str) -> Callable[..., Any] | None:
        """Functions that hand out what one key says."""
        if name in _NODE_TEXTS:
            return lambda: self._text(NODE, _NODE_TEXTS[name])
        if name in _GPU_TEXTS:
            return lambda device: self._text(device.gpu, _GPU_TEXTS[name])
        if name in _GPU_NUMBERS:
            return lambda device, *_which: self._numbers(device.gpu, _GPU_NUMBERS[name], 1)[0]
        if name in _GPU_TUPLES:
            return lambda device: self._numbers(device.gpu, *_GPU_TUPLES[name])
        if (kind := _PROCESSES.get(name[:-3])) is not None and name[-3:] in ("_v2", "_v3"):
            return lambda device: list(self._processes(device.gpu, kind))
        return None

    # what a scenario does to a call

    def _load(self) -> None:
        try:
            self._scenario = self._now()
        except XidwatchError as error:
            raise NVMLError(_UNKNOWN, str(error)) from None

    def _now(self) -> Scenario:
        return read_scenario(self._path, max(0.0, time.time() - self._began_s))

    def _enter(self, who: int, function: str) -> None:
        if not self._ready and function != "nvmlInitWithFlags":
            raise NVMLError(_UNINITIALIZED)
        said = self._scenario.deed
        if (milliseconds := said(who, "slow", function)) is not None:
            time.sleep(int(milliseconds) / 1000)
        if said(who, "block", function) is not None:
            if sign := os.environ.get("FAKE_NVML_BLOCKED"):
                Path(sign).touch()
            while True:
                signal.pause()
        if said(who, "crash", function) is not None:
            os.abort()
        if said(who, "dstate", function) is not None:
            self._wait_in_d_state(who, function)
        if code := int(said(who, "fail", function) or 0):
            raise NVMLError(code)

    def _wait_in_d_state(self, who: int, function: str) -> None:
        """As a call into a sick driver: in D state, and no SIGTERM ends it. It does end with the scenario and its owner."""
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        libc, number = ctypes.PyDLL(None), _CLONE.get(platform.machine())
        # The kernel keeps who cloned so in D state until the clone has ended (wait_for_vfork_done in kernel/fork.c).
        pid = libc.syscall(number, _CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) if number is not None else -1
        if pid <= 0:
            while self._is_wanted(who, function):
                time.sleep(_LOOK_S)
        if pid == 0:
            os._exit(0)
        if pid > 0:
            os.waitpid(pid, 0)
        signal.signal(signal.SIGTERM, before)

    def _is_wanted(self, who: int, function: str) -> bool:
        try:
            os.kill(self._owner, 0)
            return self._now().deed(who, "dstate", function) is not None
        except (OSError, XidwatchError):
            return False

    # the node

    def _init(self) -> None:
        self._ready = True
        self._open_device()

    def _shutdown(self) -> None:
        while self._opened and self._scenario.value(NODE, "leak") is None:
            os.close(self._opened.pop())
        self._ready = False

    def _open_device(self) -> None:
        """$FAKE_NVML_DEVICE stands for /dev/nvidiactl."""
        if path := os.environ.get("FAKE_NVML_DEVICE"):
            self._opened.append(os.open(path, os.O_RDONLY))

    def _by_index(self, index: int) -> Device:
        if index >= self._scenario.count:
            raise NVMLError(_INVALID_ARGUMENT)
        return self._handle(index, "nvmlDeviceGetHandleByIndex_v2")

    def _by_slot(self, slot: str) -> Device:
        for gpu in range(self._scenario.count):
            if (self._scenario.value(gpu, "pci") or "").lower() == slot.lower():
                return self._handle(gpu, "nvmlDeviceGetHandleByPciBusId_v2")
        raise NVMLError(_NOT_FOUND)

    def _handle(self, gpu: int, function: str) -> Device:
        self._enter(gpu, function)
        self._open_device()
        return Device(gpu)

    # one GPU

    def _text(self, who: int, key: str) -> str:
        if (found := self._scenario.value(who, key)) is None:
            raise NVMLError(_NOT_SUPPORTED)
        return found

    def _numbers(self, who: int, key: str, count: int) -> list[int]:
        words = self._text(who, key).split()
        return [int(word, 0) for word in (*words, *["0"] * count)[:count]]

    def _uuid(self, device: Device) -> str:
        if device.mig is None:
            return self._text(device.gpu, "uuid")
        return self._mig_words(device)[0]

    def _ecc(self, device: Device, severity: int, lifetime: int, place: int) -> int:
        """As the scenario says it: `ecc.volatile|aggregate.corrected|uncorrected TOTAL L1 L2 DRAM REGISTERS TEXTURE ...`."""
        key = f"ecc.{'aggregate' if lifetime else 'volatile'}.{'uncorrected' if severity else 'corrected'}"
        return self._numbers(device.gpu, key, _PLACES + 1)[place]

    def _ecc_at(self, device: Device, severity: int, lifetime: int, place: int) -> int:
        # Texture memory and L1 are of older chips, as on the real ones.
        if place in (_TEXTURE_MEMORY, _TEXTURE_SHM):
            raise NVMLError(_NOT_SUPPORTED)
        return self._ecc(device, severity, lifetime, place + 1)

    def _retired(self, device: Device, cause: int) -> list[int]:
        (count,) = self._numbers(device.gpu, "retired.uncorrected" if cause else "retired.corrected", 1)
        return [0x1000 * (page + 1) for page in range(count)]

    def _spare_rows(self, device: Device) -> SimpleNamespace:
        return _named(("max", "high", "partial", "low", "none"), self._numbers(device.gpu, "spare_rows", 5))

    def _memory(self, device: Device) -> SimpleNamespace:
        total, used = (mib << 20 for mib in self._numbers(device.gpu, "memory_mib", 2))
        return SimpleNamespace(total=total, used=used, free=total - used)

    def _utilization(self, device: Device) -> SimpleNamespace:
        return _named(("gpu", "memory"), self._numbers(device.gpu, "utilization", 2))

    def _field_values(self, device: Device, fields: list[int | tuple[int, int]]) -> list[SimpleNamespace]:
        """As the scenario says it: `field.N VALUE`, or for a link `field.N.LINK VALUE`."""
        found = []
        for asked in fields:
            number, scope = asked if isinstance(asked, tuple) else (asked, 0)
            own = f"field.{number}.{scope}"
            key = own if self._scenario.value(device.gpu, own) is not None else f"field.{number}"
            code, value = 0, 0
            try:
                (value,) = self._numbers(device.gpu, key, 1)
            except NVMLError as error:
                code = error.value
            found.append(SimpleNamespace(fieldId=number, nvmlReturn=code, valueType=1, value=SimpleNamespace(uiVal=value)))
        return found

    def _link_state(self, device: Device, link: int) -> int:
        states = self._text(device.gpu, "nvlinks").split()
        if link >= len(states):
            raise NVMLError(_INVALID_ARGUMENT)
        return int(states[link])

    def _link_errors(self, device: Device, link: int, counter: int) -> int:
        own = f"nvlink_errors.{link}.{counter}"
        return self._numbers(device.gpu, own if self._scenario.value(device.gpu, own) is not None else "nvlink_errors", 1)[0]

    def _processes(self, gpu: int, kind: str) -> Iterator[SimpleNamespace]:
        """As the scenario says it: `process.compute.0 PID MIB [GI CI]`."""
        for number in range(_MOST_PROCESSES):
            words = (self._scenario.value(gpu, f"process.{kind}.{number}") or "").split()
            if len(words) < 2:
                return
            pid, mib, gpu_instance, compute_instance = (*map(int, words), _NO_INSTANCE, _NO_INSTANCE)[:4]
            yield SimpleNamespace(
                pid=pid, usedGpuMemory=mib << 20, gpuInstanceId=gpu_instance, computeInstanceId=compute_instance
            )

    def _mig_device(self, device: Device, number: int) -> Device:
        found = Device(device.gpu, number)
        self._mig_words(found)
        return found

    def _mig_words(self, device: Device) -> list[str]:
        """As the scenario says it: `mig.N UUID GI CI`."""
        if (said := self._scenario.value(device.gpu, f"mig.{device.mig}")) is None:
            raise NVMLError(_NOT_FOUND)
        return said.split()

    def _instance(self, device: Device, which: int) -> int:
        if device.mig is None:
            raise NVMLError(_NOT_SUPPORTED)
        return int(self._mig_words(device)[1 + which])

    # structures that the caller gives

    def _sram(self, device: Device, into: Any) -> None:
        _fill(into, ("bThresholdExceeded", "aggregateUncParity", "aggregateUncSecDed", "aggregateCor"),
              self._numbers(device.gpu, "sram", 4))  # fmt: skip

    def _place(self, device: Device, into: Any) -> None:
        """As the scenario says it: `place CHASSIS SLOT TRAY HOST MODULE`."""
        chassis, *numbers = self._text(device.gpu, "place").split()
        _fill(into, ("chassisSerialNumber",), [chassis.encode("ascii")])
        _fill(into, ("slotNumber", "trayIndex", "hostId", "moduleId"), [bytes([int(number)]) for number in numbers])

    def _fabric(self, device: Device, into: Any) -> None:
        """As the scenario says it: `fabric STATE STATUS HEALTH_MASK`."""
        _fill(into, ("state", "status", "healthMask"), self._numbers(device.gpu, "fabric", 3))

    def _gpm_sample(self, device: Device, sample: SimpleNamespace) -> SimpleNamespace:
        sample.gpu = device.gpu
        return sample

    def _gpm(self, asked: _MetricsGet) -> _MetricsGet:
        """As the scenario says it: `gpm SM TENSOR DRAM`, in percent."""
        values = self._numbers(asked.sample1.gpu, "gpm", 3)
        for metric in asked.metrics[: asked.numMetrics]:
            place = _GPM.get(metric.metricId)
            metric.nvmlReturn, metric.value = (0, float(values[place])) if place is not None else (_NOT_SUPPORTED, 0.0)
        return asked


def _named(names: tuple[str, ...], values: list[int]) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip(names, values, strict=True)))


def _fill(into: Any, names: tuple[str, ...], values: list[Any]) -> None:
    """Set members of a structure that came by reference."""
    for name, value in zip(names, values, strict=True):
        setattr(into._obj, name, value)
