"""A node that is not there: the GPUs of a scenario and a pipe for the kernel's log, so that a demo or a test has a daemon.

Nothing of it can be taken for this machine: the host is called "demo" in every message, state and record, and the metrics
carry `xidwatch_demo`. Nothing of this machine is read: not its PCI bus, its NVML, its tasks, its configuration or its rules.
"""

from __future__ import annotations

import contextlib
import selectors
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from xidwatch.config import Config
from xidwatch.core.event import Event
from xidwatch.core.job import Job
from xidwatch.core.machine import Machine
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.gpus import Gpus
from xidwatch.nvml.client import Means, NvmlClient, Timing
from xidwatch.nvml.kin import own_command
from xidwatch.nvml.scenario import NODE, Scenario, read_scenario
from xidwatch.sinks.history import TotalKey
from xidwatch.sources.devices import PciGpu
from xidwatch.sources.kmsgblock import Ask
from xidwatch.sources.live import MOST_WORTH, LiveSource, SourceHealth

HOST = "demo"
NO_CONFIG = Path("/dev/null")
"""A configuration with nothing in it, so that the node's own is not read."""
_H100 = 0x2330
_ALL_ONES = "ffffffff"


class Stage:
    """What a daemon has around it instead of this machine.

    Beside what the GPUs answer, the scenario may say of the node, at the daemon's start:

        node boot_id ID                          a boot of its own
        node timing DEADLINE INTERVAL APART      how NVML is asked, in seconds (`nvml.client.Timing`)

    and at any time

        node machine.FIELD VALUE                 what kind of machine it is (`core.machine.Machine`)
        node job.PID SLURM_JOB                   whose process a pid is
        GPU config_space ffffffff                the GPU answers on the bus no more
    """

    def __init__(self, path: Path) -> None:
        """Read the scenario.

        Raises:
            XidwatchError: it has mistakes.
        """
        self._path = path
        self._read_ns, self._scenario = 0, read_scenario(path)
        self._boot_id = self._scenario.value(NODE, "boot_id")
        self._timing = _timing(self._scenario.value(NODE, "timing"))
        self.machine()

    def gpus(self, selector: selectors.BaseSelector) -> Gpus:
        """The GPUs of the scenario, on a bus that nobody plugs into."""
        gpus = Gpus(selector, use_nvml=True, devices=self._devices, client=self._client, monitor=None)
        gpus.is_dead = self._is_dead
        gpus.patience_s = self._timing.deadline_s
        return gpus

    def machine(self) -> Machine:
        """What kind of machine the scenario says it is; unknown where it says nothing.

        Raises:
            XidwatchError: it says what no machine can be.
        """
        now = self._now()
        said = {one.name: now.value(NODE, f"machine.{one.name}") for one in fields(Machine)}
        return Machine(**{name: _field(name, value) for name, value in said.items() if value is not None})

    def _is_dead(self, pci: PciAddress) -> bool:
        now = self._now()
        gpu = next((gpu for gpu in range(now.count) if parse_pci(now.value(gpu, "pci") or "") == pci), None)
        return gpu is not None and now.value(gpu, "config_space") == _ALL_ONES

    @property
    def boot_id(self) -> str | None:
        """The boot of its records; None for this machine's."""
        return self._boot_id

    def readings(self) -> dict[TotalKey, float]:
        """The series that tells its metrics from a real node's."""
        return {("xidwatch_demo", ()): 1.0}

    def source(self, source: LiveSource) -> LiveSource:
        """The same source, with records of the stage's host and boot."""
        return _Staged(source, self._boot_id)

    def whose(self, event: Event) -> Job | None:
        """Whose job an event's pid is, by the scenario."""
        job = None if event.pid is None else self._now().value(NODE, f"job.{event.pid}")
        return Job(slurm_job=job) if job else None

    def _now(self) -> Scenario:
        """The scenario of this moment, but for its `at`; what it was before where it cannot be read."""
        with contextlib.suppress(OSError, XidwatchError):
            if (changed_ns := self._path.stat().st_mtime_ns) != self._read_ns:
                self._read_ns, self._scenario = changed_ns, read_scenario(self._path)
        return self._scenario

    def _devices(self) -> tuple[PciGpu, ...]:
        return tuple(PciGpu(pci=slot, driver="nvidia", device=_H100, asleep=False) for slot in sorted(self._now().slots()))

    def _client(self) -> NvmlClient:
        # No module to look for, and no eye for children of other daemons: these harm nobody.
        means = Means(command=own_command(self._path.resolve()), module=None, left_overs=lambda: ())
        return NvmlClient(self._timing, None, means)


def _field(name: str, value: str) -> Any:
    """A field of `Machine` out of its closed vocabulary."""
    kinds = get_args(get_type_hints(Machine)[name])
    words = [word for kind in kinds for word in get_args(kind)]
    if bool in kinds:
        words, known = ["true", "false"], {"true": True, "false": False}
        if value in known:
            return known[value]
    elif not words or value in words:
        return value
    raise XidwatchError(f"node machine.{name} {value}: one of {', '.join(words)}")


def _timing(said: str | None) -> Timing:
    if said is None:
        return Timing()
    try:
        deadline_s, interval_s, apart_s = map(float, said.split())
    except ValueError:
        raise XidwatchError(f"node timing {said!r}: three numbers of seconds: deadline, interval, apart") from None
    return Timing(deadline_s=deadline_s, interval_s=interval_s, apart_s=apart_s)


def staged(config: Config, given: Mapping[str, object]) -> Config:
    """The configuration of a daemon on a stage.

    Args:
        given: What the command line says, by key: nothing may be left to a default that a real daemon uses.

    Raises:
        XidwatchError: it would touch what is real.
    """
    if missing := [key for key in ("kmsg", "listen", "state_dir", "run_dir") if given.get(key) is None]:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in missing)
        raise XidwatchError(f"--scenario stands beside no real node: give {options} of its own")
    real = Config()
    taken = [
        f"--state-dir {config.state_dir}" if config.state_dir.resolve().is_relative_to(real.state_dir) else "",
        f"--run-dir {config.run_dir}" if config.run_dir.resolve().is_relative_to(real.run_dir) else "",
        f"--listen {config.listen}" if config.listen.rpartition(":")[2] == real.listen.rpartition(":")[2] else "",
    ]
    if any(taken):
        raise XidwatchError(f"--scenario with {', '.join(filter(None, taken))}: that is a real node's")
    if not _is_pipe(config.kmsg):
        raise XidwatchError(f"--scenario with --kmsg {config.kmsg}: give a pipe (mkfifo), not a kernel's log")
    return replace(config, source="kmsg", d_state=replace(config.d_state, scan="off"), accept_injected=False)


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


class _Staged:
    """A source that another one feeds."""

    def __init__(self, source: LiveSource, boot_id: str | None) -> None:
        self._source, self._boot_id = source, boot_id

    @property
    def name(self) -> str:
        """That of the other."""
        return self._source.name

    def fileno(self) -> int:
        """That of the other."""
        return self._source.fileno()

    def read(self, most: int = 1000) -> list[Record]:
        """Its records, as the stage's."""
        return [self._restaged(record) for record in self._source.read(most)]

    def follow(self, ask: Ask, most: int = MOST_WORTH) -> Iterator[Record]:
        """Its records that matter, as the stage's."""
        return map(self._restaged, self._source.follow(ask, most))

    def _restaged(self, record: Record) -> Record:
        return replace(record, host=HOST, boot_id=self._boot_id or record.boot_id)

    def position(self) -> str:
        """That of the other."""
        return self._source.position()

    def health(self) -> SourceHealth:
        """That of the other."""
        return self._source.health()

    def close(self) -> None:
        """Close the other."""
        self._source.close()
