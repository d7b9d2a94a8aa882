"""Events that belong together, with a root cause: the types. `correlate` puts them together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from xidwatch.core.event import Context, Event
from xidwatch.core.machine import UNKNOWN, Machine
from xidwatch.core.record import Record
from xidwatch.core.rule import FaultClass, Origin, Rule, Scope, Severity, When

if TYPE_CHECKING:
    from xidwatch.core.collective import Lag

Role = Literal["root", "consequence", "context"]
State = Literal["active", "awaiting_verification", "resolved"]
EndReason = Literal[
    "quiet",
    "reset_seen",
    "driver_reload",
    "boot",
    "gpu_replaced",
    "gpu_recovered",
    "proven",
    "recovered_154",
    "operator",
    "unconfirmed_old",
    "merged",
    "released",
]
Confidence = Literal["sure", "likely", "unconfirmed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An event and the rule that judges it (already refined by its decode table)."""

    event: Event
    rule: Rule
    decoded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A finding inside an incident; repeats are folded.

    Attributes:
        finding: The first occurrence, in its latest extension.
        count, lines: Occurrences and printed lines.
        last: The latest event folded into it.
        role: Root, consequence or context.
        count_is_minimum: The log says that some were suppressed.
    """

    finding: Finding
    count: int
    lines: int
    last: Event
    role: Role
    count_is_minimum: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be done: a rung, a time, the reason, and what must hold first.

    Attributes:
        rung: Recovery or investigation rung.
        when: now, after_drain, when_idle; None for an investigation.
        why: One sentence.
    """

    rung: str
    when: When | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """How often the same kind of incident was seen before on this GPU. `since` is the first event of the first one."""

    count: int
    since: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident, as the contract in docs/ARCHITECTURE.md describes it.

    Attributes:
        id: Twelve hex digits from (host, boot id, first event); never moves.
        members: In order of time; `members[root]` is the cause.
        gpus: PCI addresses, in order of appearance.
        hosts: Nodes that it hit; where one of them is at fault, that one first.
        context: Context lines that stood near it (link down before NCCL time-outs, AER before a lost GPU).
        excluded: Other explanations and what rules them out.
        unknowns: What is not known, and the one reading that would settle it.
        cause: The context line that began it, where no event did.
        rivals: What may as well have begun it: faults and links of other nodes as near in time.
        lag: Which rank the others waited for, where time-outs are the root.
        ranks: Those that gave up waiting for a collective, as far as the lines name them.
        figures: Clause that a program's own figures add to the sentence; "" without any.
        sentence: The verdict's one sentence about it.
        checks: Readings of the GPUs that confirm or contradict it, oldest first.
        driver_word: What the driver itself asks for, where that can be set beside the recovery.
        machine: The node that it happened on, which decides which commands are right.
    """

    id: str
    title: str
    state: State
    fault_class: FaultClass
    origin: Origin
    severity: Severity
    confidence: Confidence
    scope: Scope
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    members: tuple[Member, ...]
    root: int
    recovery: Demand
    investigate: tuple[Demand, ...]
    end_reason: EndReason | None = None
    end: Event | Context | None = None
    recurrence: Recurrence | None = None
    patterns: tuple[str, ...] = ()
    context: tuple[Context, ...] = ()
    excluded: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()
    cause: Context | None = None
    rivals: tuple[Context | Event, ...] = ()
    lag: Lag | None = None
    ranks: frozenset[int] = frozenset()
    figures: str = ""
    sentence: str = ""
    machine: Machine = UNKNOWN
    checks: tuple[Context, ...] = ()
    driver_word: str | None = None

    @property
    def at_fault(self) -> tuple[str, ...]:
        """The nodes that something is to be done to: the one at fault, or all where none is known to be."""
        blameless = self.cause is None and self.members[self.root].finding.event.kind == "nccl_timeout"
        return self.hosts if blameless else self.hosts[:1]

    @property
    def began_us(self) -> int | None:
        """Wall clock of its cause; None when that has no such time."""
        cause = self.cause.record if self.cause is not None else self.members[self.root].finding.event.record
        return cause.wall_us


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReport:
    """What was read of one input, as the JSON contract lists it. Times are records, None when the log has none.

    Attributes:
        unread: It should have been read and could not be, or not to its end; the notes say why.
    """

    path: str
    format: str
    bytes: int
    records: int
    first: Record | None = None
    last: Record | None = None
    lost_records: int = 0
    boot_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """What was left out because the person asked for a part only.

    Attributes:
        options: As on the command line: `--class memory`.
        incidents: How many were left out; one that crosses a limit of time counts too.
        worst: Severity of the worst of them; None without any.
        undated: Occurrences without a date, which no limit of time leaves out.
    """

    options: tuple[str, ...]
    incidents: int
    worst: Severity | None = None
    undated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """A host as the log describes it. `gpus` maps a PCI address to (uuid, serial), None where not given."""

    host: str | None
    driver_version: str | None = None
    module_flavour: Literal["open", "proprietary"] | None = None
    kernel: str | None = None
    gpus: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    machine: Machine = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmortem:
    """Everything `explain` found: what the renderers turn into text, Markdown, HTML or JSON.

    Attributes:
        incidents: Worst first.
        loose: Members that belong to no incident (untrusted or unclassifiable events), in order of time.
        malformed: Lines that are certainly ours but unreadable.
        records: Lines read in all inputs together.
        filtered: None when everything was asked for.
    """

    inputs: tuple[InputReport, ...]
    hosts: tuple[HostReport, ...]
    incidents: tuple[Incident, ...]
    loose: tuple[Member, ...] = ()
    context: tuple[Context, ...] = ()
    malformed: tuple[str, ...] = ()
    records: int = 0
    gpu_lines: int = 0
    filtered: Filtered | None = None

    @property
    def first_fault(self) -> Incident | None:
        """Of several incidents on several nodes, the one whose cause came first; None without a clock that orders them."""
        dated = [(at, place) for place, one in enumerate(self.incidents) if (at := one.began_us) is not None]
        nodes = {host for one in self.incidents for host in one.hosts}
        if len(nodes) < 2 or len(dated) < 2 or len(dated) < len(self.incidents):
            return None
        return self.incidents[min(dated)[1]]
