"""The stories: what the kernel and the GPUs say, in the vendor's own words, and what must come of it.

The lines are those of driver 580 (`fixtures/` holds real ones); a story says in three words what it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xidwatch.demo.telling import Awaited, Play
from xidwatch.demo.theatre import NotAsTold

JOB = ("node job.41213 88123",)
"""The process on every GPU belongs to this Slurm job."""
HEALTHY = ("include healthy.txt", *JOB)
WELL = ("recovered_154", "gpu_recovered")
"""How an incident ends whose GPU is well again: the driver's line and the GPU's own word race."""
PAGES = "XidwatchIncidentCritical"
"""The alert on a critical incident."""
ALERTS: dict[str, str] = {
    PAGES: "xidwatch_incident_active", "XidwatchNvmlStuck": "xidwatch_nvml_stuck_seconds",
}  # fmt: skip
"""By alert that a story names: the metric it stands on."""
_NVML_MOST_S = 1.0


@dataclass(frozen=True, slots=True)
class Story:
    """One of them. `begins` is the scenario at the start."""

    name: str
    about: str
    play: Callable[[Play], None]
    begins: tuple[str, ...] = HEALTHY


def _xid(gpu: str, code: int, text: str, *, pid: bool = True) -> str:
    who = "pid=41213, name=python3, " if pid else ""
    return f"NVRM: Xid (PCI:{gpu}): {code}, {who}{text}"


def _action(gpu: str, before: str, now: str) -> str:
    return _xid(gpu, 154, f"GPU recovery action changed from {before} to {now}", pid=False)


def _begin(play: Play) -> None:
    play.tell("A node of 8 H100 runs a job. xidwatch watches it.")
    play.healthy(8)
    play.pause()


def memory(play: Play) -> None:
    """Xid 48, 63 and 94: drained, reset, and the row is remapped."""
    gpu, pci = "0000:c3:00", "0000:c3:00.0"
    _begin(play)
    play.gpus("include remap_pending.txt", *JOB)
    play.tell("An uncorrectable error hits the memory of GPU 5. The kernel prints:")
    play.kernel(
        _xid(gpu, 48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr "
                      "0x18f31d80 partition 6, subpartition 0.", pid=False),
        _xid(gpu, 63, "Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate."),
        _xid(gpu, 94, "Contained: SM (0x1). RST: No, D-RST: No"),
        _action(gpu, "0x0 (None)", "0x4 (Drain and Reset)"),
    )  # fmt: skip
    play.pause()
    play.tell("The job's process dies, and each of its channels with it:")
    play.kernel(*(_xid(gpu, 45, f"channel 0x{number:08x}") for number in range(8, 40)))
    play.pause()
    play.tell("xidwatch makes one incident of it:")
    wanted = Awaited("xid 48", "critical", "reset_gpu", "after_drain", (pci,), frozenset({48, 63, 94, 154, 45}), 36)
    incident = play.incident(wanted)
    play.pause(3)
    play.tell("The GPU itself, asked through NVML:")
    play.confirmed(incident, "row_remap_pending")
    play.pause(2)
    play.tell("Prometheus scrapes, and the site's hook runs:")
    play.metrics(
        ("xidwatch_incident_active", 1, {"gpu": pci, "root": "xid 48"}),
        ("xidwatch_recovery_needed", 1, {"gpu": pci, "rung": "reset_gpu", "when": "after_drain"}),
        ("xidwatch_row_remap_pending", 1, {"gpu": pci}),
        ("xidwatch_driver_recovery_action", 1, {"gpu": pci, "action": "drain_and_reset", "source": "nvml"}),
    )
    play.hook(incident, "opened", PAGES)
    play.pause(2.5)
    idle = ("5 process.compute.0", "5 utilization 0 0", "5 power_mw 71000")
    play.gpus("include remap_pending.txt", *idle, "5 field.230 1", *JOB)
    play.tell("The operator drains the node. The driver now wants the reset:")
    play.kernel(_action(gpu, "0x4 (Drain and Reset)", "0x1 (GPU Reset Required)"))
    play.metrics(("xidwatch_driver_recovery_action", 1, {"gpu": pci, "action": "reset_gpu", "source": "nvml"}))
    play.pause()
    play.gpus(
        *HEALTHY, *idle, "5 remapped_rows 0 1 0 0", "5 spare_rows 2559 1 0 0 0", "5 ecc.aggregate.uncorrected 1 0 0 1 0 0 0 0 0"
    )
    play.tell("The operator resets the GPU: nvidia-smi --gpu-reset -i 5. The row is replaced.")
    play.kernel(_action(gpu, "0x1 (GPU Reset Required)", "0x0 (None)"))
    play.pause(1)
    play.tell("Verified by the GPU's own word:")
    play.metrics(
        ("xidwatch_row_remap_pending", 0, {"gpu": pci}),
        ("xidwatch_driver_recovery_action", 1, {"gpu": pci, "action": "none", "source": "nvml"}),
    )
    play.ended(incident, *WELL)
    play.hook(incident, "ended")
    play.no_metrics("xidwatch_incident_active", "xidwatch_recovery_needed")


def lost(play: Play) -> None:
    """Xid 79 and its flood: one incident, remembered over the reboot."""
    gpu, pci = "0000:61:00", "0000:61:00.0"
    _begin(play)
    play.gpus("include lost.txt", *JOB)
    play.tell("GPU 3 falls off the bus. The kernel prints:")
    play.kernel(
        _xid(gpu, 79, "GPU has fallen off the bus."),
        f"NVRM: GPU {pci}: GPU has fallen off the bus.",
        f"NVRM: GPU {pci}: GPU serial number is 1652923000103.",
        _action(gpu, "0x0 (None)", "0x2 (Node Reboot Required)"),
    )
    play.pause()
    play.tell("4,000 channels follow, and two minutes later a process that nobody can kill:")
    play.kernel(*(_xid(gpu, 45, f"channel 0x{number:08x} caused by previous Xid 79") for number in range(4000)))
    play.kernel(*_HUNG)
    play.pause()
    play.tell("xidwatch makes one incident of it:")
    wanted = Awaited("xid 79", "critical", "reboot_node", "now", (pci,), frozenset({79, 154, 45}), 4004)
    incident = play.incident(wanted)
    play.pause(3)
    play.tell("The GPU, asked through NVML:")
    play.confirmed(incident, "gpu_not_found")
    play.pause(1)
    play.tell("Prometheus scrapes, and the site's hook runs:")
    play.metrics(
        ("xidwatch_incident_active", 1, {"gpu": pci, "root": "xid 79"}),
        ("xidwatch_xid_events_total", 4000, {"gpu": pci, "xid": "45"}),
        ("xidwatch_gpus", 8, {"source": "pci"}),
        ("xidwatch_gpus", 7, {"source": "nvml"}),
    )
    play.hook(incident, "opened", PAGES)
    play.pause(2.5)
    play.tell("Which card is it?")
    play.command("status")
    play.pause(2.5)
    play.tell("The operator reboots the node. All 8 GPUs answer again.")
    play.theatre.reboot(*HEALTHY)
    play.kernel(_BOOT)
    play.metrics(("xidwatch_gpus", 8, {"source": "nvml"}))
    play.awaits_verification(incident)
    play.note("A lost GPU that came back is not proven well: somebody has to look.")
    play.pause(2)
    play.tell("The diagnostics pass (dcgmi diag -r 3), and the operator says so:")
    play.command("incident", "close", incident["id"], "--reason", "dcgmi diag -r 3 passed")
    play.ended(incident, "operator")
    play.no_metrics("xidwatch_incident_active", "xidwatch_recovery_needed")


_BOOT = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@build)"
_HUNG = (
    "INFO: task python3:41213 blocked for more than 122 seconds.",
    "      Tainted: P           OE     6.8.0-60-generic #63-Ubuntu",
    '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    "task:python3         state:D stack:0     pid:41213 tgid:41213 ppid:41190  flags:0x00004006",
    "Call Trace:",
    " <TASK>",
    " __schedule+0x27c/0x6b0",
    " schedule+0x33/0x110",
    " schedule_timeout+0x157/0x170",
    " os_acquire_rwlock_write+0x2e/0x40 [nvidia]",
    " nvidia_unlocked_ioctl+0x1ff/0x8a0 [nvidia]",
    " __x64_sys_ioctl+0xa3/0xf0",
    " </TASK>",
)


def gsp(play: Play) -> None:
    """Xid 119 through every victim: the GPU's own processor is gone."""
    gpu, pci = "0000:d1:00", "0000:d1:00.0"
    _begin(play)
    play.gpus("include unknown_error.txt", *JOB)
    play.tell("The firmware of GPU 6 stops answering. Whoever asks it next is named, and is no culprit:")
    says = (
        "Timeout after 45s of waiting for RPC response from GPU6 GSP! Expected function 76 (GSP_RM_CONTROL) "
        "sequence {} (0x{} 0x4)."
    )
    play.kernel(
        *(
            f"NVRM: Xid (PCI:{gpu}): 119, pid={pid}, name={name}, {says.format(sequence, command)}"
            for pid, name, sequence, command in (
                (41213, "python3", 16171, "2080a7d7"), (2357, "nv-hostengine", 16172, "20808513"),
                (52001, "nvidia-smi", 16173, "2080852e"),
            )
        ),
        _action(gpu, "0x0 (None)", "0x1 (GPU Reset Required)"),
    )  # fmt: skip
    play.pause()
    play.tell("xidwatch makes one incident of it:")
    incident = play.incident(Awaited("xid 119", "critical", "reset_gpu", "now", (pci,), frozenset({119, 154}), 4))
    play.pause(3)
    play.tell("NVML answers for seven GPUs; the eighth fails at everything it is asked:")
    play.confirmed(incident, "nvml_stuck")
    play.pause(1)
    play.tell("Prometheus scrapes, and the site's hook runs:")
    play.metrics(
        ("xidwatch_incident_active", 1, {"gpu": pci, "root": "xid 119"}),
        ("xidwatch_gpus", 7, {"source": "nvml"}),
        ("xidwatch_nvml_up", 1, {}),
    )
    play.hook(incident, "opened", PAGES)
    play.pause(2)
    play.gpus(*HEALTHY)
    play.tell("The operator ends what holds the GPU and resets it: nvidia-smi --gpu-reset -i 6")
    play.kernel(_action(gpu, "0x1 (GPU Reset Required)", "0x0 (None)"))
    play.metrics(("xidwatch_gpus", 8, {"source": "nvml"}))
    play.ended(incident, *WELL)
    play.hook(incident, "ended")


def storm(play: Play) -> None:
    """Xid 95 five thousand times: one incident, one page."""
    gpu, pci, many = "0000:52:00", "0000:52:00.0", 5_000
    _begin(play)
    play.gpus(*HEALTHY, "2 field.230 1", "2 ecc.volatile.uncorrected 3 0 0 0 0 0 0 0 3")
    play.tell(f"An error in GPU 2 that could not be contained, printed {many:,} times:")
    play.kernel(
        *[_xid(gpu, 95, "Uncontained: FBHUB. RST: Yes, D-RST: No")] * many,
        _action(gpu, "0x0 (None)", "0x1 (GPU Reset Required)"),
    )
    play.pause()
    play.tell("xidwatch makes one incident of it:")
    incident = play.incident(Awaited("xid 95", "critical", "reset_gpu", "now", (pci,), frozenset({95, 154}), many))
    play.pause(2)
    play.tell("Every line was counted, and one page was sent. Prometheus scrapes:")
    play.metrics(
        ("xidwatch_xid_events_total", many, {"gpu": pci, "xid": "95"}),
        ("xidwatch_source_lost_records_total", 0, {"source": "kmsg"}),
        ("xidwatch_incidents_total", 1, {"class": "memory", "severity": "critical"}),
    )
    play.hook(incident, "opened", PAGES)
    play.pause(2)
    play.gpus(*HEALTHY)
    play.tell("The operator resets the GPU now, since its jobs would compute wrong results: nvidia-smi --gpu-reset -i 2")
    play.kernel(_action(gpu, "0x1 (GPU Reset Required)", "0x0 (None)"))
    play.ended(incident, *WELL)
    play.hook(incident, "ended")


def nvml_stuck(play: Play) -> None:
    """A call into the driver never returns: the daemon goes on."""
    _begin(play)
    play.gpus("include d_state.txt", *JOB)
    play.tell("A call into the driver does not return: the process that asks NVML waits in D state, where no signal ends it.")
    (child,) = play.theatre.until(play.theatre.nvml_children, "a process asks NVML")
    play.metrics(("xidwatch_nvml_up", 0, {}))
    play.quote([f"$ ps -o pid,stat,comm -p {child}"], "command")
    play.quote([_ps(child)])
    play.pause()
    play.tell("The daemon answers all the same, says for how long, and starts no second process beside the stuck one:")
    play.theatre.until(
        lambda: [one for one in play.theatre.series("xidwatch_nvml_stuck_seconds") if one.value > 1], "it is stuck"
    )
    took_s, text = play.scraped("xidwatch_nvml_stuck_seconds")
    if took_s > _NVML_MOST_S or play.theatre.nvml_children() != [child]:
        raise NotAsTold(f"a scrape took {took_s:.1f} s, with {len(play.theatre.nvml_children())} processes at NVML")
    play.series_shown(text)
    play.note(f"scraped in {took_s * 1000:.0f} ms; after two minutes Prometheus would fire XidwatchNvmlStuck")
    play.pause(2)
    play.tell("The log is read as ever:")
    play.kernel(
        _xid("0000:43:00", 13, "Graphics Exception: ESR 0x505730=0x10009 0x505734=0x4 0x505728=0x4c1eb72 0x50572c=0x174")
    )
    play.metrics(("xidwatch_xid_events_total", 1, {"gpu": "0000:43:00.0", "xid": "13"}))
    play.note("Being blind to the GPUs is no fault of theirs:")
    play.nobody_is_paged()
    play.pause(2)
    play.gpus(*HEALTHY)
    play.tell("The driver lets go; the next sample is complete:")
    play.metrics(("xidwatch_nvml_up", 1, {}), ("xidwatch_nvml_stuck_seconds", 0, {}), ("xidwatch_gpus", 8, {"source": "nvml"}))


def _ps(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
    if (letter := rest.split()[0]) != "D":
        raise NotAsTold(f"process {pid} is in state {letter}, not D")
    return f"{pid} {letter} {name}"


def replaced(play: Play) -> None:
    """Xid 64: a bank without a spare row, and the card that takes the other's place."""
    gpu, pci = "0000:c3:00", "0000:c3:00.0"
    _begin(play)
    play.gpus("include remap_failure.txt", *JOB)
    play.tell("GPU 5 cannot replace a bad row any more. The kernel prints:")
    play.kernel(_xid(gpu, 64, "Row Remapper Error: (0x00000000a4c1e000) - All reserved rows for bank are remapped"))
    play.pause()
    play.tell("xidwatch makes an incident of it:")
    incident = play.incident(Awaited("xid 64", "critical", "reset_gpu", "now", (pci,), frozenset({64})))
    play.asks(incident, "field_diagnostic")
    play.pause(2)
    play.tell("The GPU itself, asked through NVML:")
    play.confirmed(incident, "row_remap_failure")
    play.metrics(
        ("xidwatch_row_remap_failure", 1, {"gpu": pci}), ("xidwatch_investigation_needed", 1, {"rung": "field_diagnostic"})
    )
    play.hook(incident, "opened", PAGES)
    play.pause(2.5)
    play.tell("The node is booted with the same card. That heals nothing: the flag lives in the card.")
    play.theatre.reboot("include remap_failure.txt", *JOB)
    play.kernel(_BOOT)
    play.metrics(("xidwatch_row_remap_failure", 1, {"gpu": pci}))
    play.remains(incident)
    play.pause(2)
    play.tell("The field diagnostic fails, the vendor sends another card, and the node comes up with it:")
    play.theatre.reboot(*HEALTHY, "5 uuid GPU-00000000-0000-4000-8000-0000000000ff", "5 serial 1652923000999")
    play.kernel(_BOOT)
    play.metrics(
        ("xidwatch_gpu_info", 1, {"gpu": pci, "serial": "1652923000999"}), ("xidwatch_row_remap_failure", 0, {"gpu": pci})
    )
    play.over(incident)


def missing(play: Play) -> None:
    """A GPU that is not there after a boot: no line of the kernel tells it."""
    pci = "0000:df:00.0"
    _begin(play)
    play.tell("The node is booted for another reason, and comes up with seven GPUs. Nothing in the log says so:")
    play.theatre.reboot("include gone.txt", *JOB)
    play.kernel(_BOOT)
    play.metrics(("xidwatch_gpus", 7, {"source": "pci"}), ("xidwatch_gpus", 7, {"source": "nvml"}))
    play.pause()
    play.tell("xidwatch remembers which card was in which slot:")
    gone = play.theatre.until(
        lambda: [gpu["pci"] for gpu in play.theatre.state()["gpus"] if gpu["missing"]], "a GPU is missing"
    )
    if gone != [pci]:
        raise NotAsTold(f"missing is told of {', '.join(gone)}")
    play.command("status")
    play.pause(3)
    play.tell("The card is seated anew, and the node booted:")
    play.theatre.reboot(*HEALTHY)
    play.kernel(_BOOT)
    play.metrics(("xidwatch_gpus", 8, {"source": "nvml"}))
    play.theatre.until(
        lambda: not [gpu for gpu in play.theatre.state()["gpus"] if gpu["missing"]], "nothing is missed any more"
    )
    play.note("nothing is missed any more")


def application(play: Play) -> None:
    """Xid 31 and 43: the program's own fault, and nobody is woken."""
    pci = "0000:9d:00.0"
    _begin(play)
    play.tell("A program reads where it may not. The kernel prints:")
    play.kernel(
        _xid("0000:9d:00", 31, "channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ "
                               "0x7f12_3a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"),
        _xid("0000:9d:00", 43, "channel 0x0000000a"),
    )  # fmt: skip
    play.pause()
    play.tell("xidwatch says whose it is:")
    play.incident(Awaited("xid 31", "info", "restart_app", "now", (pci,), frozenset({31, 43}), 2))
    play.nobody_is_paged()
    play.metrics(("xidwatch_incident_active", 1, {"gpu": pci, "severity": "info", "origin": "application"}))
    play.note("It ends by itself after three minutes of silence.")


STORIES = tuple(
    Story(function.__name__.replace("_", "-"), (function.__doc__ or "").rstrip("."), function)
    for function in (memory, lost, replaced, missing, gsp, storm, nvml_stuck, application)
)
