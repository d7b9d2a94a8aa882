"""Rules as data: what an event means. Their files are read by `rulefiles`; here are the types and the look-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from xidwatch.core.machine import FabricManager, Flavour, Generation, Scheduler, Setting

FaultClass = Literal["memory", "compute", "interconnect", "platform", "software", "unknown"]
Origin = Literal["application", "driver", "firmware", "hardware", "host", "network", "operator", "unknown"]
Severity = Literal["info", "warning", "critical"]
Scope = Literal["process", "gpu", "node", "fabric"]
When = Literal["now", "after_drain", "when_idle"]
Done = Literal["restart_app", "reload_driver", "reset_gpu", "reboot_node"]
Scalar = str | int | bool

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
WHENS: tuple[When, ...] = ("when_idle", "after_drain", "now")
RUNGS = (
    "none", "restart_app", "restart_fabric_manager", "drain_p2p", "recover_imex", "reload_driver", "reset_gpu", "bus_reset",
    "reset_fabric", "restart_vm", "reboot_node", "power_cycle",
)  # fmt: skip
"""Recovery rungs, weakest first; the rungs beside the ladder stand where their reach belongs."""
INVESTIGATIONS = (
    "check_app", "run_diagnostic", "field_diagnostic", "check_seating", "check_link", "check_power_thermal", "check_peer",
    "check_host", "check_storage", "check_network", "update_software", "contact_support",
)  # fmt: skip
DONE: tuple[Done, ...] = ("restart_app", "reload_driver", "reset_gpu", "reboot_node")
"""What may have been done about a fault, weakest first."""
LEAST_CAUSE = 20
"""Rank below which a member only follows (45, 154, a hung task)."""
STRICT: dict[str, object] = {"extra": "forbid", "strict": True}
"""How `rulefiles` has the tables of a site checked: no unknown key, no silent conversion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a rule's fact was read: address or document, and the day it was checked (YYYY-MM-DD)."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    url: str
    checked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one code, wording or state means.

    Attributes:
        id: `xid-79`, `xid-94-reset`, `sxid-20034`, `hung-task-gpu`.
        xid, sxid: Number it is about; or `kind` (and `what`) for the other families.
        where: Event or detail fields that must equal a value (a tuple: one of them), e.g. {"recovery_action": 1}.
        match: Regular expression searched in the event's text, tried after the literal `hint`.
        title: Noun phrase, `contained memory error`.
        phrase: Verb phrase that follows the subject in the verdict, `fell off the PCIe bus`; subject by `scope`:
            process -> the process, gpu -> the GPU, node -> the host, fabric -> the fabric.
        fault_class: The TOML key is `class`.
        recovery, when, investigate: The demand; two answers, never mixed.
        rank: How far upstream it stands when several meet in one incident (0 to 100).
        widen: The scope that two or more of these on different GPUs within 5 s make one incident of; None for none.
        persistent: Lives in the GPU's InfoROM: no boot, reset or silence ends it.
        lost: The GPU is gone; that it came back must be proven.
        context: Never root, opens no incident of its own.
        follows: Of a program's error: selectors of the faults that it may be an echo of; None for any fault of a GPU.
        drivers: First and last driver branch (535, 555) that it holds for; it needs a driver version in the log.
        decode: Table that refines it: "nvlink5" (144 to 150) or "nvlink4" (74).
        confirm: What NVML must show before the hint is called sure.
        vendor_immediate, vendor_investigate: The catalogue's own classes.
        departs: Why the rule differs from the vendor, or None.
        explain: Plain words: what it means, what to look at first, what not to do.
        tenant: What the owner of the job can do when that differs from the node's admin; or None.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    id: str
    title: str
    phrase: str
    fault_class: FaultClass
    origin: Origin
    severity: Severity
    scope: Scope
    recovery: str
    rank: int
    explain: str
    sources: tuple[Source, ...]
    examples: tuple[str, ...]
    xid: int | None = None
    sxid: int | None = None
    kind: str | None = None
    what: str | None = None
    where: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()
    match: str | None = None
    hint: str | None = None
    when: When = "now"
    investigate: tuple[str, ...] = ()
    widen: Scope | None = None
    follows: tuple[str, ...] | None = None
    persistent: bool = False
    lost: bool = False
    context: bool = False
    decode: Literal["nvlink5", "nvlink4"] | None = None
    drivers: tuple[int, int] | None = None
    confirm: tuple[str, ...] = ()
    vendor_immediate: str | None = None
    vendor_investigate: str | None = None
    departs: str | None = None
    tenant: str | None = None
    file: str = ""


def selected(rule: Rule, selector: str) -> bool:
    """Whether a rule falls under a selector: its id, or the id it is a variant of (`xid-64` covers `xid-64-full`)."""
    return rule.id == selector or rule.id.startswith(selector + "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A rule's demand changed by the company it keeps: 48 with 63 drains before it resets.

    Attributes:
        id: `xid-48-with-63`.
        member: Selector of the changed member: a rule id; `xid-48` covers `xid-48-*` too.
        together: Selectors of which one must be in the same incident.
        without: Selectors none of which may be in it.
        signs: Instead of `together`, one of these must hold of the incident: the kind of the context line that began it
            (`link_down`), or what NCCL's lines tell of the ranks (`ranks_apart`, `ranks_idle`).
        fault_class: The TOML key is `class`.
        recovery, when, severity, investigate: The new demand; None leaves the rule's own.
        explain: Why, in one sentence.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    id: str
    member: str
    explain: str
    sources: tuple[Source, ...]
    together: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    fault_class: FaultClass | None = None
    recovery: str | None = None
    when: When | None = None
    severity: Severity | None = None
    origin: Origin | None = None
    investigate: tuple[str, ...] | None = None
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What repetition means: 13 on one TPC over several jobs is hardware.

    Attributes:
        members: Selectors of the rules that count.
        same: Event or detail fields that agree among the counted (`pci`, `gpc`, `tpc`, `link`, `process`).
        distinct: Fields of which `count` different values are needed (`pid`, `pci`, `boot_id`); empty: `count` incidents.
        count: How many it takes.
        counts: What is counted: incidents (runs, when `distinct` is given), or every occurrence.
        within_s: In how many seconds; 0 for the whole log.
        recovery, when, severity, origin, investigate: What the incident's answer becomes; None leaves it.
        phrase: What to say, `has faulted on the same TPC for three jobs`.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    id: str
    members: tuple[str, ...]
    count: int
    phrase: str
    explain: str
    sources: tuple[Source, ...]
    counts: Literal["incidents", "events"] = "incidents"
    same: tuple[str, ...] = ("pci",)
    distinct: tuple[str, ...] = ()
    within_s: int = 0
    recovery: str | None = None
    when: When | None = None
    severity: Severity | None = None
    origin: Origin | None = None
    investigate: tuple[str, ...] | None = None
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What follows when the GPU itself confirms something (`row_remap_failure`), beside what the lines ask for.

    Attributes:
        id: The reading, as rules name it in `confirm`.
        severity, investigate: As in a pattern.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    id: str
    explain: str
    sources: tuple[Source, ...]
    severity: Severity | None = None
    investigate: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """The same fault on the same card again, although something had been done about it: what is next.

    The same: code or wording, GPU, MIG instance and link. Faults of an application or an operator never count.

    Attributes:
        after: What had been done.
        asked: Rungs of which the present incident asks for one.
        origins: Whose faults; of the present root.
        members: Selectors of the roots; empty: every rule.
        without: Selectors of members that speak against it: a repair that waits for the next reset explains the fault.
        distinct: Fields that must differ from the fault before (`process`).
        within_s: How long after it, in seconds; without a common clock it counts.
        recovery, when: The next rung; None leaves the incident's own. A weaker one changes nothing.
        severity, investigate: As in a pattern.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    id: str
    after: Done
    asked: tuple[str, ...]
    within_s: int
    explain: str
    sources: tuple[Source, ...]
    origins: tuple[Origin, ...] = ("hardware", "firmware", "driver", "unknown")
    members: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    distinct: tuple[Literal["pid", "process"], ...] = ()
    recovery: str | None = None
    when: When | None = None
    severity: Severity | None = None
    investigate: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """A vendor guidance class in our words: RESET_GPU, INVESTIGATE_LINK_SI. None: the class does not speak of it."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    id: str
    explain: str
    recovery: str | None = None
    when: When | None = None
    investigate: tuple[str, ...] = ()
    severity: Severity | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applies:
    """Where a command or a precondition holds. A field that is not given asks for nothing; a tuple: one of them.

    Attributes:
        flavour, generation, nvswitch, fabric_manager, mig, vgpu, setting, hypervisor, container, bmc, persistence, nvidia_drm,
        scheduler: As `core.machine.Machine` has them.
        lost: Whether the incident's GPU is gone from the bus.
        xids: The incident has one of these.
        shortage: Whether it began with memory that a program did not get.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    flavour: tuple[Flavour, ...] = ()
    generation: tuple[Generation, ...] = ()
    fabric_manager: tuple[FabricManager, ...] = ()
    setting: tuple[Setting, ...] = ()
    hypervisor: tuple[str, ...] = ()
    scheduler: tuple[Scheduler, ...] = ()
    xids: tuple[int, ...] = ()
    nvswitch: bool | None = None
    mig: bool | None = None
    vgpu: bool | None = None
    container: bool | None = None
    bmc: bool | None = None
    persistence: bool | None = None
    nvidia_drm: bool | None = None
    lost: bool | None = None
    shortage: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of an action: an argument list with <placeholders>, never passed to a shell by xidwatch.

    Attributes:
        applies: Left out where this is known not to hold.
        only: Shown only where this is known to hold.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    argv: tuple[str, ...]
    destructive: bool = False
    needs_root: bool = False
    note: str | None = None
    applies: Applies | None = None
    only: Applies | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """What must hold before an action; `applies` and `only` as in `Command`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    say: str
    applies: Applies | None = None
    only: Applies | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A recovery rung or an investigation: how it is done, what must hold before, what it costs, how to verify.

    Attributes:
        id: The rung; `power_cycle-guest` takes the place of `power_cycle` where its `only` is known to hold.
        say: Imperative sentence part, `reset the GPU`.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    id: str
    say: str
    explain: str
    commands: tuple[Command, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    cost: str = ""
    verify: tuple[Command, ...] = ()
    only: Applies | None = None
    file: str = ""
