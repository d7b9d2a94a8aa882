"""Is this node fit for GPU work? A pure judgment over a `Node`; every doubt is a value beside every reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from xidwatch.core.node import HOST_PID_NAMESPACE, BusGpu, Daemon, Gpu, Node, NvmlWay, Tree, Trouble
from xidwatch.core.remark import Remark
from xidwatch.core.slower import links_down, links_text, slowdown_text

Fit = Literal["fit", "not_fit", "not_known"]
FABRIC_MANAGER = "nv-fabricmanager"[:15]
"""The kernel keeps 15 characters of a process's name."""
NVSWITCH = "/sys/bus/pci/drivers/nvidia-nvswitch/"
_STARTING_S = 300.0
_STARTS_LATE = ("no_driver", "gpu_driver_not_loaded", "fabric", "fabric_manager")
"""What is not there yet while a node boots: nothing is drained for it."""
_PATIENCE_US = 60_000_000
"""A GPU that has been silent for less is slow as far as anyone can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that speaks against the node, or one that is not known.

    Attributes:
        short: For one line of 80 characters.
        what: For a person, with what was read.
        gpus: Those it is about.
        command: What to do or to look at next.
    """

    id: str
    short: str
    what: str
    gpus: tuple[str, ...] = ()
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """The verdict and what it rests on.

    Attributes:
        reasons: The node is not fit because of these.
        unknowns: Whether it is fit cannot be said because of these.
        warnings: Work may go on; somebody should see to it in working hours.
        summary: What was looked at, when nothing speaks against the node.
    """

    verdict: Fit
    reasons: tuple[Finding, ...] = ()
    unknowns: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    summary: str = ""


def judge_fitness(node: Node, *, warnings_count: bool = False) -> Fitness:
    """The verdict. `warnings_count`: the site wants a node with a warning out of service too."""
    reasons, warnings, unknowns = [], [*_mild(node)], [*_unknown(node)]
    for one in _grave(node):
        excuse = _excuse(node, one)
        if excuse is None:
            reasons.append(one)
        else:
            unknowns.append(replace(one, what=f"{one.what} ({excuse})"))
    if warnings_count:
        reasons, warnings = reasons + warnings, []
    maintenance = node.daemon.maintenance if node.daemon is not None else None
    if maintenance is not None and reasons:
        unknowns, warnings, reasons = [_in_maintenance(maintenance, len(reasons))], warnings + reasons, []
    verdict: Fit = "not_fit" if reasons else "not_known" if unknowns else "fit"
    return Fitness(
        verdict=verdict,
        reasons=_folded(reasons),
        unknowns=_folded(unknowns),
        warnings=_folded(warnings),
        summary=_summary(node),
    )


def judge_told(daemon: Daemon, now_us: int, texts: Mapping[str, str]) -> Fitness:
    """The verdict from nothing but the daemon's word; `texts` are files of the node, such as /proc/uptime."""
    told = daemon.gpus or ()
    bus = tuple(BusGpu(pci=gpu.pci, driver=gpu.driver) for gpu in told if gpu.on_bus)
    way, gpus = word_of(daemon) or ("needless", ())
    return judge_fitness(
        Node(now_us=now_us, host="", tree=Tree(texts=texts), bus=bus, daemon=daemon, gpus=gpus, nvml=way,
             expected_gpus=daemon.expected_gpus)
    )  # fmt: skip


def word_of(daemon: Daemon) -> tuple[NvmlWay, tuple[Gpu, ...]] | None:
    """How the daemon's GPUs came to speak, and what they say; None when it knows of none."""
    if not daemon.gpus:
        return None
    if daemon.nvml_released:
        return "released", ()
    return ("daemon", daemon.gpus) if daemon.nvml_asks else ("off", ())


def judge_strictly(fitness: Fitness, remarks: Sequence[Remark]) -> Fitness:
    """The same, where a warning or a remark on the set-up is a reason, too."""
    reasons = [*fitness.reasons, *fitness.warnings]
    if remarks:
        ids = ", ".join(one.id for one in remarks)
        reasons.append(Finding(id="set_up", short=f"set-up: {ids}", what=f"the set-up is not as it should be: {ids}"))
    return replace(fitness, verdict="not_fit", reasons=tuple(reasons), warnings=()) if reasons else fitness


# what speaks against it


def _grave(node: Node) -> Iterator[Finding]:
    if node.daemon is not None:
        yield from (_of_trouble(one) for one in node.daemon.incidents if one.severity == "critical")
    for gpu in node.gpus:
        yield from _of_answer(node, gpu)
        yield from _of_state(gpu)
    yield from _of_number(node)
    yield from _of_fabric(node)


def _mild(node: Node) -> Iterator[Finding]:
    if node.daemon is not None:
        yield from (_of_trouble(one) for one in node.daemon.incidents if one.severity == "warning")
    for gpu in node.gpus:
        if gpu.row_remap_pending:
            yield _about(gpu, "remap_pending", "row remap pending",
                         "a memory row waits to be remapped: drain, then reset when convenient",
                         f"nvidia-smi -q -d ROW_REMAPPER -i {gpu.pci}")  # fmt: skip
        if gpu.banks_without_rows and not gpu.row_remap_failed:
            yield _about(gpu, "spare_rows", "a bank has no spare row left", "a memory bank has no spare row left: the next "
                         "uncorrectable error there ends in an RMA", f"nvidia-smi -q -d ROW_REMAPPER -i {gpu.pci}")  # fmt: skip
        elif gpu.banks_with_one_row and not gpu.row_remap_failed:
            yield _about(gpu, "spare_rows", "a bank has one spare row left", "a memory bank has used 7 of its 8 spare rows: "
                         "plan for its replacement", f"nvidia-smi -q -d ROW_REMAPPER -i {gpu.pci}")  # fmt: skip
        if gpu.pages_pending:
            yield _about(gpu, "pages_pending", "page retirement pending", "a memory page waits to be retired at the next reset",
                         f"nvidia-smi -q -d PAGE_RETIREMENT -i {gpu.pci}")  # fmt: skip
        if gpu.sram_threshold_exceeded:
            yield _about(gpu, "sram_threshold", "SRAM error threshold passed", "on-chip memory failed at too many places: "
                         "run the field diagnostic", f"nvidia-smi -q -d ECC -i {gpu.pci}")  # fmt: skip
        yield from _of_speed(gpu, node.gpus)
        if gpu.recovery_action in ("drain_and_reset", "drain_p2p", "recover_imex"):
            yield _demand(gpu, gpu.recovery_action)


def _of_speed(gpu: Gpu, all_: Sequence[Gpu]) -> Iterator[Finding]:
    """It works, slower than the jobs on it reckon with."""
    if slowed := slowdown_text(gpu):
        yield _about(
            gpu,
            "slowdown",
            "slowed down by its hardware",
            slowed,
            f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {gpu.pci}",
        )
    if links := links_down(gpu, all_):
        short = "NVLink down" if len(links) == 1 else f"{len(links)} NVLinks down"
        yield _about(gpu, "nvlink_down", short, links_text(links, gpu.nvlinks), f"nvidia-smi nvlink -s -i {gpu.pci}")


def _of_trouble(one: Trouble) -> Finding:
    where = f"{one.gpus[0]}{f' +{len(one.gpus) - 1}' if len(one.gpus) > 1 else ''} " if one.gpus else ""
    step = "" if one.rung == "none" else f": {one.rung.replace('_', ' ')}"
    return Finding(
        id="incident", short=f"{where}{one.title}{step}", what=f"{one.sentence} ({one.severity} incident {one.id})",
        gpus=one.gpus, command=one.command or f"xidwatch incident show {one.id}",
    )  # fmt: skip


_ANSWERS = {
    "lost": ("lost", "NVML says that it is lost: it has fallen off the bus or is out of reach", "xidwatch explain 79"),
    "reset_required": ("needs a reset", "NVML says that it must be reset before it can be used",
                       "nvidia-smi --gpu-reset -i {pci}"),
    "unknown_error": ("NVML unknown error", "NVML answers 'unknown error', often the only sign of a dead GSP",
                      "nvidia-smi -q -i {pci}"),
    "driver_not_loaded": ("driver not loaded", "the NVIDIA kernel module is not loaded", "modprobe nvidia; dmesg | grep NVRM"),
    "version_mismatch": ("driver/library version mismatch", "the NVML library is not of the loaded module's version, so that "
                         "new programs cannot start: reload the driver or reboot", "cat /proc/driver/nvidia/version"),
    "not_found": ("not known to the driver", "it is on the bus, and NVML does not know it",
                  "dmesg | grep -i -e NVRM -e RmInit"),
}  # fmt: skip


def _of_answer(node: Node, gpu: Gpu) -> Iterator[Finding]:
    if gpu.missing:
        card = ", ".join(one for one in (gpu.gpu_uuid, f"serial {gpu.serial}" if gpu.serial else None, gpu.place) if one)
        yield _about(gpu, "gpu_missing", "missing", f"expected in this slot and not there{f' ({card})' if card else ''}",
                     "lspci -D -d 10de:")  # fmt: skip
    elif gpu.answer in _ANSWERS and not _is_others(node, gpu):
        short, what, command = _ANSWERS[gpu.answer]
        yield _about(gpu, f"gpu_{gpu.answer}", short, what, command.format(pci=gpu.pci))
    elif gpu.answer == "unresponsive" and (silent_s := _silent_s(node, gpu)) is not None:
        yield _about(gpu, "gpu_unresponsive", f"no answer for {_span(silent_s)}",
                     f"NVML has not answered for {_span(silent_s)}",
                     "ps -eo pid,stat,wchan:32,args | awk '$2 ~ /D/'")  # fmt: skip


def _silent_s(node: Node, gpu: Gpu) -> float | None:
    """For how long it has been silent; None while that is too short to mean anything, or not known."""
    if node.nvml == "silent" or gpu.since_us is None or node.now_us - gpu.since_us < _PATIENCE_US:
        return None
    return (node.now_us - gpu.since_us) / 1e6


def _of_state(gpu: Gpu) -> Iterator[Finding]:
    if gpu.config_space_dead and gpu.answer != "lost" and not gpu.missing:
        yield _about(gpu, "gpu_dead", "does not answer on the bus", "its PCI config space reads all ones: it does not answer",
                     "xidwatch explain 79")  # fmt: skip
    if gpu.row_remap_failed:
        yield _about(gpu, "remap_failed", "row remap failed", "a memory row could not be remapped: field diagnostic, then RMA",
                     f"nvidia-smi -q -d ROW_REMAPPER,ECC -i {gpu.pci}")  # fmt: skip
    if gpu.recovery_action in ("reset_gpu", "reboot_node", "bus_reset", "system_reboot"):
        yield _demand(gpu, gpu.recovery_action)


def _demand(gpu: Gpu, action: str) -> Finding:
    words = action.replace("_", " ")
    return _about(gpu, "driver_asks", f"driver asks: {words}", f"the driver's own recovery action is '{words}'",
                  f"nvidia-smi -q -i {gpu.pci} | grep -i 'recovery action'")  # fmt: skip


def _of_number(node: Node) -> Iterator[Finding]:
    """GPUs that are not there, or that nothing drives."""
    for bus in node.bus:
        if bus.driver is None and not _told(node, bus.pci):
            yield Finding(id="no_driver", short=f"{bus.pci} no driver bound",
                          what=f"{bus.pci}: no kernel driver is bound to it",
                          gpus=(bus.pci,), command="modprobe nvidia; dmesg | grep -i -e NVRM -e nvidia")  # fmt: skip
    if any(gpu.missing for gpu in node.gpus):
        return
    if node.expected_gpus is not None and len(node.bus) < node.expected_gpus:
        found = f"{len(node.bus)} of {node.expected_gpus} GPUs on the PCI bus"
        yield Finding(id="gpu_missing", short=found, what=f"{found}: {node.expected_gpus - len(node.bus)} missing",
                      command="lspci -D -d 10de:")  # fmt: skip


def _told(node: Node, pci: str) -> bool:
    """Another finding already says that nothing drives it."""
    return any(gpu.pci == pci and (gpu.missing or gpu.answer in _ANSWERS) for gpu in node.gpus)


def _is_others(node: Node, gpu: Gpu) -> bool:
    """It belongs to a guest or to another driver: NVML cannot know it."""
    return any(bus.pci == gpu.pci and bus.driver not in (None, "nvidia") for bus in node.bus)


def _of_fabric(node: Node) -> Iterator[Finding]:
    """With NVSwitch a GPU without its fabric refuses every CUDA program: a node that swallows the queue."""
    for gpu in node.gpus:
        if gpu.fabric == "in_progress":
            yield _about(gpu, "fabric", "NVLink fabric in progress",
                         "its registration with the NVLink fabric is in progress: no CUDA program starts before that is done",
                         f"nvidia-smi -q -i {gpu.pci} | grep -A3 Fabric")  # fmt: skip
        elif gpu.fabric == "completed" and gpu.fabric_status:
            yield _about(gpu, "fabric", f"NVLink fabric error {gpu.fabric_status}",
                         f"its registration with the NVLink fabric ended with error {gpu.fabric_status}",
                         f"nvidia-smi -q -i {gpu.pci} | grep -A3 Fabric")  # fmt: skip
    if fabric_manager_runs(node) is False and not any(gpu.fabric == "completed" for gpu in node.gpus):
        yield Finding(id="fabric_manager", short="NVSwitch without Fabric Manager",
                      what="NVSwitches are there and nv-fabricmanager does not run: no CUDA program starts",
                      command="systemctl status nvidia-fabricmanager")  # fmt: skip


def fabric_manager_runs(node: Node) -> bool | None:
    """Whether Fabric Manager runs; None without NVSwitches that the host drives, or where not all processes can be seen."""
    switches = [path for path, _ in node.tree.below(NVSWITCH) if ":" in path]
    if not switches or node.processes is None or node.tree.text("/proc/self/ns/pid") != HOST_PID_NAMESPACE:
        return None
    return FABRIC_MANAGER in node.processes


# what is not known


def _excuse(node: Node, finding: Finding) -> str | None:
    """Why this may look so without being so; None when there is no such reason."""
    up_s = _up_s(node)
    if up_s is not None and up_s < _STARTING_S and finding.id in _STARTS_LATE:
        return f"the node has been up for {_span(up_s)} and may still be starting"
    elsewhere = node.tree.text("/proc/self/ns/pid") not in (None, HOST_PID_NAMESPACE)
    if finding.id == "gpu_not_found" and node.nvml == "asked" and elsewhere:
        return "asked from inside a container, which may not see all GPUs"
    return None


def _up_s(node: Node) -> float | None:
    """Seconds since boot (proc(5), /proc/uptime)."""
    first = (node.tree.text("/proc/uptime") or "").split(" ")[0]
    return float(first) if first.replace(".", "", 1).isdecimal() else None


def _unknown(node: Node) -> Iterator[Finding]:
    if node.daemon is None and any(one.severity == "critical" for one in node.last_words):
        titles = ", ".join(dict.fromkeys(one.title for one in node.last_words if one.severity == "critical"))
        yield Finding(id="daemon", short=f"daemon gone; last: {titles}", command="systemctl status xidwatch",
                      what=f"the daemon no longer watches, and its last word was a critical incident: {titles}")  # fmt: skip
    if not node.has_gpus:
        return
    if node.daemon is not None and node.daemon.sources and not any(source.up for source in node.daemon.sources):
        yield Finding(id="source", short="no source of kernel lines is up", what="the daemon runs and can read no kernel lines",
                      command="xidwatch status")  # fmt: skip
    yield from _silence(node)
    for gpu in node.gpus:
        if gpu.answer == "unresponsive" and _silent_s(node, gpu) is None:
            why = f": {node.nvml_why}" if node.nvml_why else ""
            yield _about(gpu, "gpu_unresponsive", "NVML did not answer in time", f"NVML did not answer in time{why}",
                         "nvidia-smi -L")  # fmt: skip
        elif gpu.answer not in (None, "state", "unresponsive", *_ANSWERS) and not _is_others(node, gpu):
            words = (gpu.answer or "").replace("_", " ")
            yield _about(
                gpu, f"gpu_{gpu.answer}", f"NVML: {words}", f"NVML answers '{words}' instead of a state", "nvidia-smi -L"
            )


def _silence(node: Node) -> Iterator[Finding]:
    """NVML has said nothing: that matters where nobody reads the kernel's log either, or where it should have answered."""
    if not any(node.ours()):
        return
    why = f": {node.nvml_why}" if node.nvml_why else ""
    if node.nvml == "daemon" and node.daemon is not None and node.daemon.nvml_up is None:
        yield Finding(id="nvml", short="NVML has not answered the daemon yet", command="xidwatch status",
                      what="the daemon has begun to ask NVML and has no answer yet")  # fmt: skip
    elif node.nvml == "silent" and not any(gpu.answer == "unresponsive" for gpu in node.gpus):
        yield Finding(id="nvml", short="NVML did not answer in time", what=f"NVML did not answer in time{why}",
                      command="nvidia-smi -L")  # fmt: skip
    elif node.nvml in ("off", "asleep", "released") and node.daemon is None:
        yield Finding(id="nvml", short=f"no daemon, and NVML {_WAYS[node.nvml]}", command="systemctl status xidwatch",
                      what=f"no daemon reads the kernel's log, and NVML {_WAYS[node.nvml]}{why}")  # fmt: skip


_WAYS = {"off": "cannot be asked", "asleep": "is not asked: it would wake the GPU", "released": "is left alone"}


def _in_maintenance(maintenance: tuple[int, str], reasons: int) -> Finding:
    _, reason = maintenance
    why = f" ({reason})" if reason else ""
    return Finding(
        id="maintenance", short=f"in maintenance{why}",
        what=f"the node is in maintenance{why}: {reasons} reason{'s' if reasons != 1 else ''} against it are only told",
        command="xidwatch maintenance end",
    )  # fmt: skip


# words


def _about(gpu: Gpu, id_: str, short: str, what: str, command: str) -> Finding:
    return Finding(id=id_, short=f"{gpu.pci} {short}", what=f"{gpu.pci}: {what}", gpus=(gpu.pci,), command=command)


def _folded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same of several GPUs is one finding, that of the first and the number of the others; each incident stays its own."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        pci = one.gpus[0] if len(one.gpus) == 1 and one.id != "incident" else ""
        groups.setdefault((one.id, one.short.removeprefix(pci) if pci else one.short), []).append(one)
    return tuple(one[0] if len(one) == 1 else _joined(one) for one in groups.values())


def _joined(same: list[Finding]) -> Finding:
    first, gpus = same[0], tuple(dict.fromkeys(pci for one in same for pci in one.gpus))
    if len(gpus) < 2:
        return first
    pci = first.gpus[0]
    return Finding(
        id=first.id, gpus=gpus, command=first.command,
        short=first.short.replace(pci, f"{pci} +{len(gpus) - 1}", 1), what=first.what.replace(pci, ", ".join(gpus), 1),
    )  # fmt: skip


def _summary(node: Node) -> str:
    if not node.has_gpus:
        return "no NVIDIA GPU on the PCI bus"
    count = f"{len(node.bus)} GPU{'s' if len(node.bus) != 1 else ''}"
    if not any(node.ours()):
        return f"{count}, none driven by nvidia here"
    words = [count, "no critical incident" if node.daemon is not None else "no daemon: log not watched"]
    if node.daemon is not None and node.daemon.maintenance is not None:
        words.append("in maintenance")
    return ", ".join(words)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
