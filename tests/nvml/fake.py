"""The fake NVML, built from fake_nvml.c against the real nvml.h, and clients that run on it."""

from __future__ import annotations

import atexit
import importlib.util
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from xidwatch.clocks import Clocks
from xidwatch.core.gpu import NodeAnswer
from xidwatch.core.pci import PciAddress
from xidwatch.nvml.client import Means, NvmlClient, Timing

HERE = Path(__file__).parent
SCENARIOS = HERE.parent.parent / "scenarios"
SLOTS = tuple(PciAddress(0, bus, 0) for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF))
QUICK = Timing(deadline_s=10.0, interval_s=3600.0, apart_s=0.0, again_s=())
SOON_S = 20.0
ALONE = Means(module=None, left_overs=lambda: ())
"""No module to look for, and no eye for what other tests leave behind on purpose."""


@cache
def header() -> Path | None:
    """The folder of nvml.h, from the package nvidia-nvml-dev; None where it is not installed."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for found in Path(place).glob("**/include/nvml.h"):
            return found.parent
    return None


def impossible() -> str | None:
    """Why the fake cannot be built here; None when it can."""
    if shutil.which("cc") is None:
        return "needs a C compiler"
    if header() is None:
        return "needs: pip install nvidia-nvml-dev"
    return None if importlib.util.find_spec("pynvml") else "needs: pip install nvidia-ml-py"


@cache
def _built() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder)
    return folder


@cache
def library(*, old: bool) -> Path:
    """The folder with libnvidia-ml.so.1, compiled once for each test run. `old`: without the functions of R525 and later."""
    if (why := impossible()) is not None:
        pytest.skip(why)
    folder = _built() / ("old" if old else "new")
    folder.mkdir()
    defined = ["-DOLD_DRIVER"] if old else []
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{header()}"]
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", *options, *defined, "-o", str(target), str(HERE / "fake_nvml.c")], check=True)
    return folder


@dataclass
class Hands(Clocks):
    """Clocks with hands: they stand still until a test moves them."""

    seconds: float = 1000.0

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return int(self.seconds * 1e6)

    def steady_s(self) -> float:
        """As `time.monotonic`."""
        return self.seconds


@dataclass
class Slowest:
    """The longest that any call of a client took, without the time for which a busy machine had no processor for it."""

    seconds: float = 0.0

    def of(self, call: Callable[[], object]) -> None:
        """Make the call and measure it."""
        began_s, queued_s = time.monotonic(), _queued_s()
        call()
        self.seconds = max(self.seconds, time.monotonic() - began_s - (_queued_s() - queued_s))


def _queued_s() -> float:
    """How long this thread has been ready to run without a processor (Documentation/scheduler/sched-stats.rst)."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


def turn(client: NvmlClient, until: Callable[[], object], slowest: Slowest | None = None) -> None:
    """Run a loop such as the daemon's until something holds."""
    slowest, end = slowest or Slowest(), time.monotonic() + SOON_S
    with selectors.DefaultSelector() as selector:
        selector.register(client.fileno(), selectors.EVENT_READ)
        while not until():
            assert time.monotonic() < end, f"it did not come about: {client.health()}"
            slowest.of(client.tick)
            due = client.due_s()
            if selector.select(min(0.05, due if due is not None else 0.05)):
                slowest.of(client.read)


def state_of(pid: int) -> str:
    """The letter that ps shows."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]


def sampled(client: NvmlClient, slowest: Slowest | None = None) -> NodeAnswer:
    """Ask once and wait for the whole answer."""
    before = client.health().samples_total
    client.ask()
    turn(client, lambda: client.health().samples_total > before, slowest)
    return client.answers()


class Fake:
    """Chooses the scenario; the environment is what the child inherits."""

    def __init__(self, environment: pytest.MonkeyPatch, folder: Path) -> None:
        """`folder` is the test's own."""
        self._environment, self.folder = environment, folder
        self.device = folder / "nvidiactl"
        self.device.touch()
        self.blocked = folder / "blocked"
        environment.setenv("FAKE_NVML_DEVICE", str(self.device))
        environment.setenv("FAKE_NVML_BLOCKED", str(self.blocked))
        self.use("healthy")

    def use(self, name: str, *lines: str) -> None:
        """From the next nvmlInit on this scenario holds, with `lines` after it."""
        current = self.folder / "scenario.txt"
        text = "\n".join([f"include {os.path.relpath(SCENARIOS, self.folder)}/{name}.txt", *lines, ""])
        new = self.folder / "scenario.new"
        new.write_text(text, encoding="ascii")
        new.replace(current)
        self._environment.setenv("FAKE_NVML_SCENARIO", str(current))
        self._environment.setenv("LD_LIBRARY_PATH", str(library(old=name == "old_driver")))

    def play(self, scenario: Path) -> None:
        """From the next nvmlInit on this file holds; the library stays."""
        self._environment.setenv("FAKE_NVML_SCENARIO", str(scenario))

    @contextmanager
    def client(self, timing: Timing = QUICK, clocks: Clocks | None = None, means: Means = ALONE) -> Iterator[NvmlClient]:
        """A client whose child runs on the fake; nothing of it is left afterwards."""
        client = NvmlClient(timing, clocks, means)
        try:
            yield client
        finally:
            client.close()

    def block(self, client: NvmlClient, clocks: Hands, slowest: Slowest | None = None) -> None:
        """Ask, wait until the child is inside the call that never returns, and let the deadline pass."""
        self.blocked.unlink(missing_ok=True)
        clocks.seconds += 100
        client.ask()
        turn(client, self.blocked.exists, slowest)
        clocks.seconds += QUICK.deadline_s
        (slowest or Slowest()).of(client.tick)

    def holders(self, *pids: int) -> list[int]:
        """Which of these processes have the pretended device open."""
        return [pid for pid in pids if str(self.device) in _open_files(pid)]


def _open_files(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(str(link.readlink()))
    return found


def children() -> list[int]:
    """Living NVML children of this very process."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text(encoding="ascii").split():
            with suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
                if "(nvml-of-" in stat and stat.rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(int(pid))
    return found
