"""The process that asks NVML, and the only place that imports `pynvml`. It may be lost; nothing else runs in it.

Each question is a fresh nvmlInit and ends with nvmlShutdown: between questions no descriptor of a device is open, so that a
reset, a change of MIG or the unloading of the module is never held up. Where the library left one open, or is no longer the
one on the disk, the child ends, and the next question gets a new one. It ends when its input does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from xidwatch.core.gpu import (
    Driver,
    DriverNotLoaded,
    GpuAnswer,
    LibraryMissing,
    NotFound,
    Reading,
    Refused,
    VersionMismatch,
    refusal,
)  # fmt: skip
from xidwatch.core.pci import PciAddress
from xidwatch.nvml.protocol import Answer, Ask, Asking, Done, Told, ToldDriver, read, write
from xidwatch.nvml.sample import sample, slot_of

NAME = "nvml-of-"
"""The process's name begins so, followed by the pid of the daemon that it belongs to; see `kin.left_overs`."""
_ABSENT = frozenset({6, 28})
"""nvmlReturn_t of a GPU that NVML does not know: NOT_FOUND, GPU_NOT_FOUND."""
_WIDTH = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""By nvmlValueType_t the member of nvmlValue_t."""


class Binding:
    """`pynvml`, with every error as a value."""

    def __init__(self, pynvml: Any) -> None:
        """`pynvml` is the module."""
        self._nvml = pynvml

    def now_us(self) -> int:
        """Wall clock."""
        return time.time_ns() // 1000

    def call(self, name: str, *arguments: object) -> Any:
        """What the function returns, or why not; a function that this binding lacks is not supported."""
        function = getattr(self._nvml, name, None)
        if function is None:
            return refusal(13, f"{name}: not in this nvidia-ml-py", self.now_us())
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            return refusal(int(error.value), f"{name}: {error}", self.now_us())
        except (TypeError, ctypes.ArgumentError) as error:
            return refusal(13, f"{name}: this nvidia-ml-py wants other arguments: {error}", self.now_us())
        except (UnicodeError, ValueError, OSError) as error:
            return refusal(999, f"{name}: {error}", self.now_us())

    def filled(self, name: str, device: object, structure: str) -> Any:
        """The structure that the function fills in, or why not."""
        kind = getattr(self._nvml, structure, None)
        if kind is None:
            return refusal(13, f"{structure}: not in this nvidia-ml-py", self.now_us())
        into = kind()
        answer = self.call(name, device, ctypes.byref(into))
        return answer if isinstance(answer, Refused) else into

    def field_values(self, device: object, fields: tuple[int | tuple[int, int], ...]) -> tuple[Reading[int], ...]:
        """Values of NVML_FI_*, in order."""
        found = self.call("nvmlDeviceGetFieldValues", device, list(fields))
        if isinstance(found, Refused):
            return (found,) * len(fields)
        return tuple(self._value(one) for one in found)

    def activity(self, first: Any, second: Any, metrics: tuple[int, ...]) -> Reading[tuple[float, ...]]:
        """NVML_GPM_METRIC_* between two GPM samples, in percent; refused when one of them is."""
        kind = getattr(self._nvml, "c_nvmlGpmMetricsGet_t", None)
        if kind is None:
            return refusal(13, "c_nvmlGpmMetricsGet_t: not in this nvidia-ml-py", self.now_us())
        asked = kind(version=self._nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(metrics), sample1=first, sample2=second)
        for place, number in enumerate(metrics):
            asked.metrics[place].metricId = number
        answer = self.call("nvmlGpmMetricsGet", asked)
        if isinstance(answer, Refused):
            return answer
        found = asked.metrics[: len(metrics)]
        refused = next((one for one in found if one.nvmlReturn), None)
        if refused is not None:
            return refusal(int(refused.nvmlReturn), f"GPM metric {refused.metricId}", self.now_us())
        return tuple(float(one.value) for one in found)

    def wait(self, seconds: float) -> None:
        """Sleep; not at all when it is less than nothing."""
        time.sleep(max(0.0, seconds))

    def _value(self, found: Any) -> Reading[int]:
        if found.nvmlReturn:
            return refusal(int(found.nvmlReturn), f"field {found.fieldId}", self.now_us())
        return int(getattr(found.value, _WIDTH.get(found.valueType, "ullVal")))


def main() -> None:
    """Answer the questions on standard input until it ends."""
    # Ctrl-C reaches the whole terminal; the daemon decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A library may print; what it prints must not stand between the answers.
    answers = os.dup(1)
    os.set_inheritable(answers, False)
    os.dup2(2, 1)
    owner, *scenario = sys.argv[1:] or [str(os.getppid())]
    _take_name(owner)
    library = partial(_player, scenario, int(owner)) if scenario else _pynvml

    def tell(answer: Answer) -> None:
        rest = write(answer)
        while rest:
            rest = rest[os.write(answers, rest) :]

    # The daemon is gone when nobody reads any more; so is the reason to be here.
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin.buffer:
            asked = read(line)
            if isinstance(asked, Ask) and (leaving := answer_all(asked, tell, library)):
                tell(Done(number=asked.number, leaving=leaving))
                return
            if isinstance(asked, Ask):
                tell(Done(number=asked.number))


def _pynvml() -> Any:
    import pynvml

    return pynvml


def _player(arguments: list[str], owner: int) -> Any:
    """What stands in for the binding after `--scenario FILE BEGAN`, BEGAN in seconds since 1970."""
    from xidwatch.nvml.player import Player

    _, path, began_s = arguments
    return Player(Path(path), float(began_s), owner)


def answer_all(asked: Ask, tell: Callable[[Answer], None], library: Callable[[], Any] = _pynvml) -> str | None:
    """Tell what NVML knows; why this process must not be asked again, or None. `library` gives the binding."""
    tell(Asking(number=asked.number))
    now_us = time.time_ns() // 1000
    if asked.module is not None and not Path(asked.module).exists():
        absent = DriverNotLoaded(code=9, text=f"{asked.module} is not there", at_us=now_us)
        tell(ToldDriver(number=asked.number, driver=absent))
        return None
    try:
        nvml = library()
    except ImportError as error:
        tell(ToldDriver(number=asked.number, driver=LibraryMissing(code=12, text=f"nvidia-ml-py: {error}", at_us=now_us)))
        return "nvidia-ml-py cannot be imported"
    before = _open_files()
    binding = Binding(nvml)
    started = binding.call("nvmlInit")
    if isinstance(started, Refused):
        tell(ToldDriver(number=asked.number, driver=started))
        # Whatever library is mapped here stays mapped; only a new process finds another.
        return started.text if isinstance(started, LibraryMissing | VersionMismatch | DriverNotLoaded) else _left_open(before)
    try:
        _tell_gpus(binding, asked, tell)
    finally:
        ended = binding.call("nvmlShutdown")
    if isinstance(ended, Refused):
        return ended.text
    return _left_open(before) or _other_library()


def _tell_gpus(binding: Binding, asked: Ask, tell: Callable[[Answer], None]) -> None:
    count = binding.call("nvmlDeviceGetCount")
    if isinstance(count, Refused):
        tell(ToldDriver(number=asked.number, driver=count))
        return
    driver = Driver(
        driver_version=binding.call("nvmlSystemGetDriverVersion"),
        nvml_version=binding.call("nvmlSystemGetNVMLVersion"),
        cuda_version=_cuda_version(binding.call("nvmlSystemGetCudaDriverVersion_v2")),
        gpu_count=count,
    )
    tell(ToldDriver(number=asked.number, driver=driver))
    indexes: set[int] = set()
    refusals: list[int] = []
    for pci in asked.gpus:
        tell(Asking(number=asked.number, pci=pci))
        index, answer = _by_slot(binding, pci)
        tell(Told(number=asked.number, pci=pci, answer=answer))
        if index is not None:
            indexes.add(index)
        elif isinstance(answer, Refused):
            refusals.append(answer.code)
    for index in range(count):
        if index not in indexes:
            _tell_index(binding, (asked.number, index), refusals, tell)


def _cuda_version(number: Any) -> Reading[str]:
    return number if isinstance(number, Refused) else f"{number // 1000}.{number % 1000 // 10}"


def _by_slot(binding: Binding, pci: PciAddress) -> tuple[int | None, GpuAnswer]:
    device = binding.call("nvmlDeviceGetHandleByPciBusId", f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function}")
    if isinstance(device, Refused):
        return None, NotFound(at_us=device.at_us) if device.code in _ABSENT else device
    index = binding.call("nvmlDeviceGetIndex", device)
    if isinstance(index, Refused):
        return None, index
    return index, sample(binding, device, index, pci)


def _tell_index(binding: Binding, place: tuple[int, int], refusals: list[int], tell: Callable[[Answer], None]) -> None:
    """Tell of the GPU with `place` = (question, index); `refusals` are the codes that slots gave, one for each."""
    number, index = place
    tell(Asking(number=number, index=index))
    device = binding.call("nvmlDeviceGetHandleByIndex", index)
    info = device if isinstance(device, Refused) else binding.call("nvmlDeviceGetPciInfo", device)
    if isinstance(info, Refused) and info.code in refusals:
        # The same GPU that refused under its slot: it has been told of.
        refusals.remove(info.code)
        return
    pci = None if isinstance(info, Refused) else slot_of(info)
    if pci is None:
        answer = info if isinstance(info, Refused) else refusal(999, f"GPU {index} has no PCI address", binding.now_us())
        tell(Told(number=number, pci=None, answer=answer))
        return
    tell(Asking(number=number, index=index, pci=pci))
    tell(Told(number=number, pci=pci, answer=sample(binding, device, index, pci)))


def _take_name(owner: str) -> None:
    """Be recognised by a later daemon; the name can be read without waiting, which is not so of arguments and environment."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"{NAME}{owner}"[:15], encoding="ascii")


def _open_files() -> dict[str, str]:
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[link.name] = str(link.readlink())
    return found


def _left_open(before: dict[str, str]) -> str | None:
    left = sorted(
        where for name, where in _open_files().items() if before.get(name) != where and not where.startswith("/proc/")
    )
    return f"NVML left open: {', '.join(left)}" if left else None


def _other_library() -> str | None:
    """Whether the mapped library is no longer the file of its name: the driver was upgraded."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if "/libnvidia-ml.so" in line:
            path, inode = line.split(None, 5)[5], int(line.split()[4])
            try:
                same = not path.endswith(" (deleted)") and Path(path).stat().st_ino == inode
            except OSError:
                same = False
            return None if same else f"{path} has been replaced"
    return None
