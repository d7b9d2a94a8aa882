"""`xidwatch check`: is this node fit, and is it set up to tell us when it is not?

It answers within five seconds whatever the GPUs, the disks and the jobs do: what may block is read by processes of its own,
which are left behind when they do not answer.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import selectors
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from xidwatch import terminal
from xidwatch.config import CONFIG_FILE, Config, load_config
from xidwatch.core.daemonstate import read_daemon
from xidwatch.core.fitness import FABRIC_MANAGER, Fitness, judge_fitness, judge_strictly, word_of
from xidwatch.core.gpu import NodeAnswer
from xidwatch.core.gpuword import gpu_of
from xidwatch.core.node import BusGpu, Daemon, Gpu, Node, NvmlWay
from xidwatch.core.pci import parse_pci
from xidwatch.core.remark import Remark
from xidwatch.core.remarks import remarks_on
from xidwatch.core.remarks_jobs import WATCHED
from xidwatch.core.stateshape import read_json
from xidwatch.daemoncli import STALE_S
from xidwatch.nvml.client import Means, NvmlClient, Timing
from xidwatch.nvml.kin import blocked_anywhere, own_command, started_us
from xidwatch.plainfile import read_state_bytes
from xidwatch.sources.devices import list_gpus
from xidwatch.sources.nodelook import NodeLook

EXIT_CODES = {"fit": 0, "not_fit": 1, "not_known": 2}
_NVML_S = 3.0
_LOOK_S = 2.5
_SKEW_S = 60.0
"""A state from further ahead than this was written before the clock was set back: its age is not known."""
_PROGRAMS = (FABRIC_MANAGER,)
_DESCRIPTION = """\
Says whether this node is fit for GPU work, and how it could be set up better
to tell when it is not. Takes the daemon's word where it watches; without it
NVML is asked, for at most three seconds. Answers within five."""
_END = """\
exit status: 0 fit, 1 not fit, 2 not known or wrongly called, 3 a bug
  1: a critical incident; a GPU that is lost, missing, silent, failed or must be
     reset; no driver; no NVLink fabric
  0: also with a warning: a warning incident, a pending remap, a demand of the
     driver's that can wait; and without any GPU, unless expected_gpus in
     config.toml says otherwise
  2: NVML does not answer in time and no daemon knows; a fault in maintenance
Warnings and remarks on the set-up make it 1 only with --strict.
In config.toml: [check] not_fit_from = "warning", ignore = ["sysrq"]"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `xidwatch check`."""
    parser.description, parser.epilog = _DESCRIPTION, _END
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--format", choices=("text", "json", "line"), default="text", help="line: at most 80 ASCII characters; default: text")
    add("--line", dest="format", action="store_const", const="line", help="the same as --format line")
    add("--strict", action="store_true", help="warnings and remarks on the set-up make the node not fit, too")
    add("--config", metavar="FILE", help="default: /etc/xidwatch/config.toml, where it exists")
    add("--state-dir", metavar="DIR", help="what outlives a reboot; default: /var/lib/xidwatch")
    add("--run-dir", metavar="DIR", help="where the daemon's state.json is; default: /run/xidwatch")
    add("--root", metavar="DIR", default="/", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look, judge, tell. Returns the exit code."""
    root = Path(os.path.abspath(options.root))
    config = _config(options, root)
    node = look(root, config)
    fitness = judge_fitness(node, warnings_count=config.check.not_fit_from == "warning")
    remarks = remarks_on(node, config.check.ignore)
    if options.strict:
        fitness = judge_strictly(fitness, remarks)
    code = EXIT_CODES[fitness.verdict]
    terminal.say(_rendered(options.format, node, (fitness, remarks), code))
    return code


def _rendered(form: str, node: Node, found: tuple[Fitness, tuple[Remark, ...]], code: int) -> str:
    from xidwatch.render.as_check import render_json, render_line, render_text

    if form == "line":
        return render_line(*found) + "\n"
    if form == "json":
        return render_json(node, *found, code)
    return render_text(node, *found, terminal.width(), color=terminal.wants_color())


def _config(options: argparse.Namespace, root: Path) -> Config:
    given: dict[str, object] = {name: getattr(options, name) for name in ("state_dir", "run_dir") if getattr(options, name)}
    file = Path(options.config) if options.config else None
    if root == Path("/"):
        return load_config(file, given)
    inside = root / str(CONFIG_FILE).lstrip("/")
    config = load_config(file or (inside if inside.exists() else Path(os.devnull)), given, environ={})
    return config if options.run_dir else replace(config, run_dir=root / str(config.run_dir).lstrip("/"))


# looking


def look(root: Path, config: Config) -> Node:
    """Everything that can be learned of the node in the time there is."""
    now_us = time.time_ns() // 1000
    daemon, why = read_state(config.run_dir / "state.json", now_us)
    watching = daemon if daemon is not None and why is None else None
    bus = _bus(root, watching)
    word = word_of(watching) if watching is not None else None
    way, way_why = _way(bus, word[0] if word is not None else None, config)
    awake = [gpu.pci for gpu in bus if not gpu.asleep]
    files = NodeLook(root, awake, _PROGRAMS, sorted(WATCHED))
    asked = _Asked(gpus=word[1] if word is not None else ())
    if way == "asked" and (blocked := blocked_anywhere()):
        way, way_why = "blocked", f"pid {blocked[0]} of an earlier question is in D state"
        asked = _Asked(gpus=_blocked(bus, started_us(blocked[0])))
    client = _client(root, bus) if way == "asked" else None
    try:
        _wait(files, client)
        if client is not None:
            asked = _Asked.of(client)
            way, way_why = ("asked", None) if asked.answered else ("silent", asked.why)
    finally:
        files.close()
        if client is not None:
            client.close()
    expected = config.expected_gpus
    if expected is None and daemon is not None:
        expected = daemon.expected_gpus
    return Node(
        now_us=now_us, host=socket.gethostname(), tree=files.tree(), bus=bus, daemon=watching, daemon_why=why,
        last_words=daemon.incidents if daemon is not None and watching is None else (), gpus=asked.gpus, nvml=way,
        nvml_why=way_why, processes=files.programs, jobs=tuple(files.jobs), clock_synchronized=files.clock_synchronized,
        expected_gpus=expected, hook_configured=config.hook is not None,
    )  # fmt: skip


def _bus(root: Path, daemon: Daemon | None) -> tuple[BusGpu, ...]:
    """The GPUs on the bus, and those that the daemon sees there where we do not."""
    told = daemon.gpus if daemon is not None and daemon.gpus is not None else ()
    found = {
        str(gpu.pci): BusGpu(pci=str(gpu.pci), driver=gpu.driver, asleep=gpu.asleep) for gpu in list_gpus(str(root / "sys"))
    }
    for gpu in told:
        if gpu.on_bus and gpu.pci not in found:
            found[gpu.pci] = BusGpu(pci=gpu.pci, driver=gpu.driver)
    return tuple(found[pci] for pci in sorted(found))


def read_state(path: Path, now_us: int) -> tuple[Daemon | None, str | None]:
    """What the daemon wrote, and why it cannot be relied upon; None when it can."""
    try:
        daemon = read_daemon(read_json(read_state_bytes(path)), now_us)
    except FileNotFoundError:
        return None, f"{path} is not there"
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return None, f"{path} cannot be understood: {error}"
    if daemon.age_s < -_SKEW_S:
        return daemon, f"{path} is from the future, by {-daemon.age_s:.0f} s"
    return daemon, f"{path} was written {daemon.age_s / 60:.0f} minutes ago" if daemon.age_s > STALE_S else None


def _way(bus: tuple[BusGpu, ...], told: NvmlWay | None, config: Config) -> tuple[NvmlWay, str | None]:
    """Who asks NVML, and why nobody does; `told` is the daemon's word."""
    if told is not None:
        return told, "the daemon does not ask it" if told == "off" else None
    ours = [gpu for gpu in bus if gpu.driver in (None, "nvidia")]
    if not ours:
        return "needless", None
    if config.nvml == "off":
        return "off", 'nvml = "off" in config.toml'
    if importlib.util.find_spec("pynvml") is None:
        return "off", "nvidia-ml-py is not installed"
    return ("asleep", None) if any(gpu.asleep for gpu in ours) else ("asked", None)


def _client(root: Path, bus: tuple[BusGpu, ...]) -> NvmlClient:
    # Its error output goes nowhere: a caller that reads ours to the end must not wait for a child that is left behind.
    quiet = ("/bin/sh", "-c", 'exec "$@" 2>/dev/null', "sh", *own_command())
    means = Means(command=quiet, module=str(root / "sys/module/nvidia"), left_overs=lambda: ())
    client = NvmlClient(Timing(deadline_s=_NVML_S, interval_s=3600.0, apart_s=0.0), means=means)
    client.expect(pci for gpu in bus if gpu.driver == "nvidia" and (pci := parse_pci(gpu.pci)) is not None)
    client.tick()
    return client


def _wait(files: NodeLook, client: NvmlClient | None) -> None:
    """Until both have told everything, or their time is up."""
    began_s = time.monotonic()
    with selectors.DefaultSelector() as ready:
        ready.register(files, selectors.EVENT_READ, files.read)
        if client is not None:
            ready.register(client, selectors.EVENT_READ, client.read)
        while True:
            spent_s = time.monotonic() - began_s
            waits = [] if files.over else [_LOOK_S - spent_s]
            if client is not None and not client.health().over:
                waits.append(_NVML_S + 0.2 - spent_s)
            left = [wait for wait in waits if wait > 0]
            if not left:
                return
            for key, _ in ready.select(min(0.1, *left)):
                key.data()
            if client is not None:
                client.tick()
            if files.over and files in {key.fileobj for key in ready.get_map().values()}:
                ready.unregister(files)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What came of asking. `answered`: NVML said something, be it an error, of the node."""

    gpus: tuple[Gpu, ...] = ()
    answered: bool = False
    why: str | None = None

    @classmethod
    def of(cls, client: NvmlClient) -> _Asked:
        """What it has learned so far."""
        node: NodeAnswer = client.answers()
        gpus = tuple(gpu_of(str(pci), answer) for pci, answer in sorted(node.gpus.items()))
        health = client.health()
        unplaced = tuple(gpu_of("a GPU in an unknown slot", answer) for answer in node.unplaced)
        return cls(gpus + unplaced, health.samples_total > 0, health.why or f"no answer in {_NVML_S:g} s")


def _blocked(bus: tuple[BusGpu, ...], since_us: int | None) -> tuple[Gpu, ...]:
    return tuple(Gpu(pci=gpu.pci, answer="unresponsive", since_us=since_us) for gpu in bus if gpu.driver == "nvidia")
