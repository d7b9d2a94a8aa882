"""Which events belong together: findings in, cases out.

A case is an incident in the making.
`judge` turns one into an `Incident`; this module only decides what joins what, and when a case ends.
Order of evidence: a pointer in the text, the same process, the same link, the same GPU within a silence.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from xidwatch.core.answered import LASTING, OTHER_UNTIL, PROOF_S, STATE
from xidwatch.core.event import GPU_KINDS, PROGRAM_KINDS, Context, Event, HungTaskDetail, UserspaceDetail, XidDetail
from xidwatch.core.hosts import HostBook
from xidwatch.core.incident import EndReason, Finding, State
from xidwatch.core.nvlink import set_bits
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record, gap_s
from xidwatch.core.rule import RUNGS, SEVERITIES, WHENS, Rule, Scope, selected
from xidwatch.core.runs import Run, fold_key

if TYPE_CHECKING:
    from xidwatch.core.collective import Call

GPU_SILENCE_S = 180.0
"""Events of one GPU this far apart still belong together."""
HUNG_TASK_SILENCE_S = 600.0
"""Hung tasks are reported two minutes late and more."""
SAME_PROCESS_S = 3600.0
"""A pid is not reused within this time by a process of the same name."""
SAME_LINK_S = 86_400.0
"""The vendor counts the errors of one NVLink by the day."""
OLD_S = 600.0
"""From this age on an open incident is not the home of a worse fault of another kind."""
BANNER_S = 10.0
"""The driver's banner without an address and the Xid that it announces are this close."""
TOGETHER_S = 5.0
"""Several GPUs hit within this time have one cause; a PCIe error this shortly before a lost GPU explains it."""
FABRIC_S = 30.0
"""NVLink and NVSwitch errors of one host this close tell of one fabric fault."""
REGIME_S = 300.0
"""What a GPU did longer ago than this says nothing about its fault."""
_MOST_MEMBERS_PER_RULE = 300
_MOST_MEMBERS = 1000
_MOST_WISHES = 500
_MOST_CONTEXT = 10_000
_MOST_LATEST = 500
_MOST_CASE_CONTEXT = 200
_MOST_INDEXED = 20_000
_MOST_RECENT = 64
_ACTS = ("boot", "driver_load", "gpu_reset")
"""What is done about faults. The last is a program's word: it ends nothing, and only says what was tried."""
_LOCKUPS = ("soft_lockup", "hard_lockup", "rcu_stall")
_NCCL_NOTES = ("nccl_state", "nccl_lagging", "nccl_world")
_MOST_NOTES = 4096
_MOST_APART = 100
"""Of time-outs that are too many to be shown, so many collectives are kept apart: among them is the rank that differs."""
_MOST_CALLS = 100_000
_MOST_CALLS_AT_ONCE = 1024
"""Ranks that are compared, in a log and in the daemon, which compares them again at every change."""
_BRIDGES = ("pcieport", "nvidia", "pci", "vfio-pci", None)


@dataclass(slots=True, eq=False)
class Fold:
    """One distinct event of a case with its repeats."""

    finding: Finding
    count: int
    lines: int
    last: Event
    count_is_minimum: bool


@dataclass(slots=True)
class Wish:
    """What one rule demands for one GPU; `cleared` once something satisfied it."""

    finding: Finding
    cleared: bool = False


@dataclass(slots=True, eq=False)
class Case:
    """An incident in the making.

    Attributes:
        host: Node it happened on; "" when the log names none.
        folds: Distinct events by fold key, in order of their first occurrence.
        kinds: Of its events.
        wishes: By (rule id, GPU).
        actions: Latest Xid 154 of each GPU, the driver's own demand.
        widened: "node" or "fabric" once several GPUs were hit together.
        order, latest: Positions of its first and latest event among all that was fed.
        booted, loaded, reset: The host's latest boot and driver load before it, and the reset of its GPU that a tool told of.
        link_bits: How often each (GPU, link, register, bit) of an Xid 74 was set.
        released: Pids of its hung tasks that have gone on or ended.
        notes: What NCCL said of its ranks, where a collective timed out.
        calls: What each rank waited for when it gave up, also of those too many to be members of their own.
        hosts: Further nodes that it hit.
        cause: The context line that began it, where no event did: a link that went down before the time-outs.
        zone_hint: Hours by which a program's clock may be off for want of a zone, and the fault beside which it then stood.
        rivals: What may as well have begun it.
        flaps: Links by (host, interface) that were down for so many seconds only, about when it began.
        checks: What the GPUs say of it: latest answer by (GPU, reading).
        ill: GPUs that have said, since it began, that something is wrong with them.
        well: GPUs with which nothing is wrong now, and the answer since which that is so.
        proven: GPUs that have been well for long since it seemed over, and have worked.
        clock_spread_s: How far apart nodes wrote the same time-out; None on one node.
        changes: How often its events have changed; `digest` is what `judge` keeps of it until then.
    """

    host: str
    order: int
    first: Event
    last: Event
    latest: int = 0
    folds: dict[tuple[object, ...], Fold] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    wishes: dict[tuple[str, PciAddress | None], Wish] = field(default_factory=dict)
    actions: dict[PciAddress | None, Finding] = field(default_factory=dict)
    context: list[Context] = field(default_factory=list)
    widened: Scope | None = None
    state: State = "active"
    end_reason: EndReason | None = None
    end: Event | Context | None = None
    merged_into: Case | None = None
    booted: Record | None = None
    reset: Record | None = None
    loaded: Record | None = None
    per_rule: dict[str, int] = field(default_factory=dict)
    link_bits: Counter[tuple[PciAddress | None, int | None, int, int]] = field(default_factory=Counter)
    released: set[int] = field(default_factory=set)
    notes: list[Context] = field(default_factory=list)
    calls: dict[Call, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    cause: Context | None = None
    zone_hint: tuple[int, Event] | None = None
    rivals: list[Context | Event] = field(default_factory=list)
    flaps: dict[tuple[str, str], float] = field(default_factory=dict)
    clock_spread_s: float | None = None
    changes: int = 0
    digest: object = None
    checks: dict[tuple[PciAddress, str], Context] = field(default_factory=dict)
    ill: set[PciAddress] = field(default_factory=set)
    well: dict[PciAddress, Context] = field(default_factory=dict)
    proven: set[PciAddress] = field(default_factory=set)

    def needs(self) -> int:
        """Index in RUNGS of the strongest demand that nothing has cleared."""
        return max((RUNGS.index(w.finding.rule.recovery) for w in self.wishes.values() if not w.cleared), default=0)

    def has(self, rule_flag: str) -> bool:
        """Whether any member's rule has this flag (`lost`, `persistent`), or the GPU says what makes it so."""
        if rule_flag == "persistent" and any(
            name in LASTING and dict(check.facts).get("answer") == "confirmed" for (_, name), check in self.checks.items()
        ):
            return True
        return any(getattr(fold.finding.rule, rule_flag) for fold in self.folds.values())

    def gpus(self) -> tuple[PciAddress, ...]:
        """The GPUs that its lines name, in order of appearance."""
        events = [fold.finding.event for fold in self.folds.values() if fold.finding.event.kind in ("xid", "nvrm")]
        return tuple(dict.fromkeys(event.pci for event in events if event.pci is not None))


class Correlator:
    """Puts findings, in order of time, into cases.

    Attributes:
        loose: Findings that may open nothing (written by user space, or context without a case), folded.
        context: Context lines in order.
        timeouts: Whether a collective of NCCL has timed out anywhere.
    """

    def __init__(self, book: HostBook, *, endless: bool = False) -> None:
        """`endless`: there is no end at which all is told, so of context only the latest is kept, and nothing that is loose."""
        self._endless = endless
        self.book = book
        self._cases: dict[int, Case] = {}
        self._open_at: dict[str, dict[int, Case]] = {}
        self.loose: list[Fold] = []
        self.context: list[Context] = []
        self._by_card: dict[tuple[str, int, int, int], dict[tuple[PciAddress, int | None], Case]] = {}
        self._by_pid: dict[tuple[str, int], tuple[Case, str | None]] = {}
        self._by_topic: dict[tuple[str, str], Case] = {}
        self._by_code: dict[tuple[str, int], list[Case]] = {}
        self._missed: dict[str, Record] = {}
        self._acts: dict[tuple[str, str, PciAddress | None], Record] = {}
        self._stream_host: dict[int, str] = {}
        self._order = 0
        self._ended: list[Case] = []
        self._merged: list[Case] = []
        self._loose_by_key: dict[tuple[object, ...], Fold] = {}
        self._notes: dict[str, deque[Context]] = {}
        self.timeouts = False

    @property
    def cases(self) -> list[Case]:
        """Every case, open and ended, in order of its first event."""
        return list(self._cases.values())

    def feed(self, finding: Finding, run: Run) -> Case | None:
        """Put one finding, with its repeats, where it belongs; the case it went to, or None for a loose one."""
        self._order += 1
        event = finding.event
        host = self.host_of(event.record)
        if event.record.trusted == "no":
            self._keep_loose(finding, run)
            return None
        missed = self._missed.get(host)
        if missed is not None and _near(gap_s(missed, event.record)):
            run.count_is_minimum = True
        joined = self._matches(host, finding)
        if finding.rule.context and not joined:
            self._keep_loose(finding, run)
            return None
        case = joined[0] if joined else self._open(host, event)
        for other in joined[1:]:
            self.merge(case, other)
        self._add(case, finding, run)
        self._index(host, case, finding)
        if event.kind == "nccl_timeout":
            self.timeouts = True
            self._note_call(case, event)
            self._take_notes(host, case, event)
        return case

    def _bump(self, fold: Fold, run: Run) -> None:
        fold.count += run.count
        fold.lines += run.lines
        fold.count_is_minimum |= run.count_is_minimum
        if _not_before(run.last.record, fold.last.record):
            fold.last = run.last

    def note(self, context: Context) -> list[Case]:
        """Keep a context line; a boot or a driver load ends what it cures. Gives the cases whose picture it completes."""
        self._order += 1
        host = self.host_of(context.record)
        if context.kind in _NCCL_NOTES:
            return self._note_ranks(host, context)
        self._keep_context(context)
        if context.record.glued:
            # Text that a user can write into a kernel line proves nothing and ends nothing.
            return []
        if (changed := self.book.note(host, context)) is not None:
            return list(self._end_slot(host, changed, context))
        self._note_act(host, context)
        if context.kind == "boot":
            self.tick(context.record, host)
            self._end_host(host, context, "boot", ladder=len(RUNGS))
        elif context.kind == "driver_load":
            self._end_host(host, context, "driver_reload", ladder=RUNGS.index("reload_driver"))
        elif context.kind == "suppressed":
            self._note_missed(host, context)
        elif context.kind in ("pcie_dpc", "pcie_hotplug", "link_down", "iommu_fault", "storage_error", "panic", "segfault"):
            for case in self._open_cases(host):
                gap = gap_s(case.last.record, context.record)
                if gap is not None and 0 <= gap <= TOGETHER_S and len(case.context) < _MOST_CASE_CONTEXT:
                    case.context.append(context)
        elif context.kind == "task_released":
            return list(self._release(host, context))
        elif (completes := {"regime": self._note_regime, "gpu_check": self._note_check}.get(context.kind)) is not None:
            return list(completes(host, context))
        return []

    def _keep_context(self, context: Context) -> None:
        if self._endless and len(self.context) >= _MOST_LATEST:
            del self.context[: _MOST_LATEST // 2]
        if len(self.context) < _MOST_CONTEXT and context.kind != "machine":
            self.context.append(context)

    def _note_check(self, host: str, context: Context) -> Iterator[Case]:
        """What the GPU says of a case stands beside it, and may end it."""
        facts = dict(context.facts)
        for case in list(self._cases.values()):
            if case.host != host or context.pci is None or _later(case.first, context):
                continue
            if all(fold.finding.event.pci != context.pci for fold in case.folds.values()):
                continue
            if case.state == "resolved" and not (case.end_reason == "unconfirmed_old" and _is_borne_out(case, context)):
                continue
            key = (context.pci, facts.get("check", ""))
            case.checks[key] = _after(case.checks.get(key), context)
            if case.state == "resolved":
                self._revive(case)
            elif facts.get("check") == STATE:
                self._heed(case, context.pci, context)
            yield case

    def _heed(self, case: Case, pci: PciAddress, context: Context) -> None:
        """A GPU that was ill and is well again has been brought back; one that stays well and works is proven.

        One that never was ill for NVML is believed after a while only. Silence is neither.
        """
        facts = dict(context.facts)
        if facts.get("answer") != "contradicted":
            case.well.pop(pci, None)
            case.proven.discard(pci)
            case.ill |= {pci} if facts.get("answer") == "confirmed" else set()
            return
        well_s = gap_s(case.well.setdefault(pci, context).record, context.record) or 0.0
        if case.state == "awaiting_verification":
            over_s = gap_s(case.end.record, context.record) if case.end is not None else None
            if min(well_s, over_s or 0.0) >= PROOF_S and "working" in facts:
                case.proven.add(pci)
            if case.proven.issuperset(case.gpus()):
                self.end(case, "proven", context)
        elif pci in case.ill or (case.has("lost") and well_s >= PROOF_S):
            self._brought_back(case, context, "gpu_recovered", len(RUNGS))
        elif "reset" in facts:
            self._brought_back(case, context, "reset_seen", RUNGS.index("bus_reset"))

    def _brought_back(self, case: Case, context: Context, reason: EndReason, ladder: int) -> None:
        """What it was asked for is done, by whatever way; a task that still hangs asks on."""
        for wish in case.wishes.values():
            stuck = isinstance(wish.finding.event.detail, HungTaskDetail)
            if wish.finding.event.pci in (context.pci, None) and not stuck:
                wish.cleared |= RUNGS.index(wish.finding.rule.recovery) <= ladder
        if case.needs() == 0 and not case.has("persistent"):
            self.end(case, reason, context, "awaiting_verification" if case.has("lost") else "resolved")

    def _revive(self, case: Case) -> None:
        """It was too old to be believed, and the present state bears it out."""
        for wish in case.wishes.values():
            wish.cleared = False
        case.state, case.end_reason, case.end = "active", None, None
        self._open_at.setdefault(case.host, {})[id(case)] = case

    def _note_act(self, host: str, context: Context) -> None:
        if context.kind in _ACTS:
            _bounded(self._acts)
            self._acts[context.kind, host, context.pci] = context.record

    def _note_regime(self, host: str, context: Context) -> Iterator[Case]:
        """What a GPU did before its fault stands in the picture of the case that began after it."""
        for case in self._open_cases(host):
            slots = {fold.finding.event.pci for fold in case.folds.values()}
            gap = gap_s(context.record, case.first.record)
            if context.pci in slots and gap is not None and 0 <= gap <= REGIME_S and context not in case.context:
                case.context.insert(0, context)
                yield case

    def _release(self, host: str, context: Context) -> Iterator[Case]:
        """A task that was stuck is not any more: what was asked for its sake alone is not asked any longer."""
        pid = int(dict(context.facts)["pid"])
        for case in list(self._open_at.get(host, {}).values()):
            stuck = [fold.finding for fold in case.folds.values() if isinstance(fold.finding.event.detail, HungTaskDetail)]
            if pid not in {finding.event.pid for finding in stuck}:
                continue
            case.released.add(pid)
            left = {finding.rule.id for finding in stuck if finding.event.pid not in case.released}
            for wish in case.wishes.values():
                if isinstance(wish.finding.event.detail, HungTaskDetail) and wish.finding.rule.id not in left:
                    wish.cleared = True
            if not left and len(stuck) == len(case.folds):
                self.end(case, "released", context)
            yield case

    def _note_ranks(self, host: str, context: Context) -> list[Case]:
        """How far each rank had come stands beside the time-outs, before them or behind."""
        case = self._by_topic.get((host, "nccl_timeout"))
        case = alive(case) if case is not None else None
        if case is None or case.state != "active" or not _beside(case.last.record, context.record):
            self._notes.setdefault(host, deque(maxlen=_MOST_NOTES)).append(context)
            return []
        if len(case.notes) < _MOST_NOTES:
            case.notes.append(context)
        return [case]

    def _note_call(self, case: Case, event: Event) -> None:
        from xidwatch.core.collective import call_of

        if (call := call_of(event)) is not None and len(case.calls) < (_MOST_CALLS_AT_ONCE if self._endless else _MOST_CALLS):
            case.calls[call] = None

    def _take_notes(self, host: str, case: Case, event: Event) -> None:
        waiting = self._notes.pop(host, ())
        case.notes += [note for note in waiting if _beside(note.record, event.record) or note.kind == "nccl_world"]

    def _note_missed(self, host: str, context: Context) -> None:
        """Lines that are gone: what stands on either side of them happened at least as often as it was printed."""
        if dict(context.facts).get("of") == "other":
            return
        self._missed[host] = context.record
        for case in self._open_cases(host):
            for fold in case.folds.values():
                if _near(gap_s(fold.last.last_record, context.record)):
                    fold.count_is_minimum = True

    def tick(self, now: Record, host: str) -> None:
        """End what silence ends: a host's cases that ask for no more than an application restart."""
        for case in list(self._open_at.get(host, {}).values()):
            if case.needs() > RUNGS.index("restart_app") or case.has("persistent"):
                continue
            gap = gap_s(case.last.record, now)
            if gap is not None and gap >= GPU_SILENCE_S:
                self.end(case, "quiet", case.last)

    def end(self, case: Case, reason: EndReason, by: Event | Context | None = None, state: State = "resolved") -> None:
        """End a case. `by` is the line that ended it; what it asked for counts as done unless silence ended it."""
        if reason != "quiet":
            for wish in case.wishes.values():
                wish.cleared = True
        case.state, case.end_reason, case.end = state, reason, by
        self._open_at.get(case.host, {}).pop(id(case), None)
        self._ended.append(case)

    def take_ended(self) -> list[Case]:
        """Cases that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def has_news(self) -> bool:
        """Whether a case has ended or was swallowed since these were last taken."""
        return bool(self._ended or self._merged)

    def take_merged(self) -> list[Case]:
        """Cases that another one has swallowed since the last call."""
        merged, self._merged = self._merged, []
        return merged

    def forget(self, cases: Collection[Case]) -> None:
        """Drop ended cases; nothing joins them any more."""
        gone = {id(case) for case in cases}
        for case in cases:
            del self._cases[id(case)]
        self._by_pid = {key: known for key, known in self._by_pid.items() if id(alive(known[0])) not in gone}
        self._by_topic = {key: case for key, case in self._by_topic.items() if id(alive(case)) not in gone}
        for key, known in list(self._by_card.items()):
            if all(id(alive(case)) in gone for case in known.values()):
                del self._by_card[key]
        for code, of_code in list(self._by_code.items()):
            if not (left := [case for case in of_code if id(alive(case)) not in gone]):
                del self._by_code[code]
            elif len(left) < len(of_code):
                self._by_code[code] = left

    def gpu_tie(self, host: str, event: Event) -> str | None:
        """What ties a process to a GPU when its stack does not tell: it owned a channel there a short while ago."""
        case, _ = self._by_pid.get((host, event.pid), (None, None)) if event.pid is not None else (None, None)
        detail = event.detail
        if not isinstance(detail, HungTaskDetail) or detail.attribution != "unknown" or detail.gpu_related is not None:
            return None
        if case is None or not _within(alive(case).last, event, HUNG_TASK_SILENCE_S):
            return None
        for fold in alive(case).folds.values():
            owner = fold.finding.event
            if owner.pid == event.pid and owner.kind == "xid" and owner.pid_role == "owner":
                return f"its pid owned a channel of GPU {owner.pci or '?'} (Xid {owner.code})"
        return None

    # joining

    def _matches(self, host: str, finding: Finding) -> list[Case]:
        """Cases that this finding belongs to, best evidence first, without repeats."""
        found: list[Case] = []
        for candidate in self._candidates(host, finding):
            case = alive(candidate)
            if case not in found and case.state == "active":
                found.append(case)
        return found

    def _candidates(self, host: str, finding: Finding) -> Iterator[Case]:
        event, rule = finding.event, finding.rule
        if event.kind in PROGRAM_KINDS:
            yield from self._echoes(host, finding)
            return
        yield from self._pointed_at(host, event)
        for case in (*self._same_gpu(host, event), *self._same_process(host, event)):
            if not _outgrown(case, finding):
                yield case
        yield from self._same_link(host, event)
        if event.kind in ("xid", "nvrm") and event.pci is not None:
            yield from self._announced(host, event)
        if rule.widen:
            yield from self._struck_together(host, finding)
        if event.kind in ("xid", "sxid") or (event.kind == "nvrm" and not rule.context):
            yield from self._echoed(host, finding)
        if event.kind in ("hung_task", *_LOCKUPS):
            yield from self._stuck_with(host, event)
        elif event.kind == "aer":
            yield from self._topic(host, f"aer {event.pci}", event, GPU_SILENCE_S)
        elif event.kind == "mce":
            yield from self._topic(host, "mce", event, GPU_SILENCE_S)
        elif event.kind == "oom_kill":
            yield from self._topic(host, "oom", event, TOGETHER_S * 2)
        elif event.kind == "nvrm" and event.pci is None:
            yield from self._latest_gpu_case(host, event, GPU_SILENCE_S)

    def _same_gpu(self, host: str, event: Event) -> Iterator[Case]:
        if event.pci is None and event.kind == "xid":
            yield from self._latest_gpu_case(host, event, GPU_SILENCE_S)
            return
        if event.pci is None:
            return
        for (_, instance), indexed in list(self._by_card.get(_card(host, event.pci), {}).items()):
            case = alive(indexed)
            other_slice = None not in (instance, event.gpu_instance) and instance != event.gpu_instance
            if other_slice and case.needs() < RUNGS.index("reset_gpu"):
                continue
            if self._chained(case, event) or _within(case.last, event, GPU_SILENCE_S):
                yield case

    def _pointed_at(self, host: str, event: Event) -> Iterator[Case]:
        """The incident of the Xid that the text names as the cause."""
        if not isinstance(event.detail, XidDetail) or event.detail.caused_by is None:
            return
        for case in reversed(self._by_code.get((host, event.detail.caused_by), [])):
            slots = {f.finding.event.pci for f in alive(case).folds.values() if f.finding.event.code == event.detail.caused_by}
            if event.pci in slots or None in (event.pci, *slots):
                yield alive(case)
                return

    def _same_link(self, host: str, event: Event) -> Iterator[Case]:
        link = getattr(event.detail, "link", None)
        if link is not None and link >= 0 and event.pci is not None:
            yield from self._topic(host, f"link {event.pci} {link}", event, SAME_LINK_S)

    def _announced(self, host: str, event: Event) -> Iterator[Case]:
        """Driver lines without an address just before: the banner of a GSP crash, the news that the PMU halted."""
        for case in self._open_cases(host):
            nameless = all(f.finding.event.kind == "nvrm" and f.finding.event.pci is None for f in case.folds.values())
            if nameless and _within(case.last, event, BANNER_S):
                yield case

    def _chained(self, case: Case, event: Event) -> bool:
        """An Xid 154 that goes on from the value the last one left, whatever the silence between."""
        if not isinstance(event.detail, XidDetail) or event.detail.recovery_action is None:
            return False
        last = case.actions.get(event.pci)
        return (
            last is not None
            and isinstance(last.event.detail, XidDetail)
            and last.event.detail.recovery_action == event.detail.recovery_action_from
        )

    def _same_process(self, host: str, event: Event) -> Iterator[Case]:
        if event.pid is None or event.pid_role == "victim":
            return
        case, name = self._by_pid.get((host, event.pid), (None, None))
        if (
            case is None
            or event.kind not in ("xid", "hung_task")
            or (None not in (name, event.process) and name != event.process)
        ):
            return
        if _within(alive(case).last, event, SAME_PROCESS_S):
            yield case

    def _struck_together(self, host: str, finding: Finding) -> Iterator[Case]:
        rule, event = finding.rule, finding.event
        window = FABRIC_S if rule.widen == "fabric" else TOGETHER_S
        for case in self._open_cases(host):
            if not _within(case.last, event, window):
                continue
            if rule.widen == "fabric":
                kin = any(_fabric(f.finding.rule) or f.finding.rule.lost for f in case.folds.values())
            else:
                kin = any(f.finding.rule.widen == rule.widen and _alike(f.finding.rule, rule) for f in case.folds.values())
            if kin:
                yield case

    def _stuck_with(self, host: str, event: Event) -> Iterator[Case]:
        detail = event.detail
        if isinstance(detail, HungTaskDetail):
            related, owner = detail.gpu_related, detail.blocked_by
            if owner and owner.rpartition(":")[2].isdigit():
                held, _ = self._by_pid.get((host, int(owner.rpartition(":")[2])), (None, None))
                if held is not None and _within(alive(held).last, event, HUNG_TASK_SILENCE_S):
                    yield held
        else:
            related = getattr(detail, "gpu_related", None)
        if related:
            yield from self._latest_gpu_case(host, event, HUNG_TASK_SILENCE_S)
        topic = "lockup" if event.kind in _LOCKUPS else "hung"
        for case in self._topic(host, topic, event, HUNG_TASK_SILENCE_S if topic == "hung" else GPU_SILENCE_S):
            if related is None or _gpu_case(case) in (None, related):
                yield case

    def _echoes(self, host: str, finding: Finding) -> Iterator[Case]:
        """Where a program's own error belongs: to the kernel's fault that it tells of too, else to its own kind."""
        event, rule = finding.event, finding.rule
        if rule.follows != ():
            yield from self._fault_of_pid(host, event)
            for case in self._recent_first(host):
                if _may_echo(case, rule) and _within(case.last, event, _patience_s(event)):
                    yield case
                    break
        for case in self._topic(host, _topic_of(finding), event, GPU_SILENCE_S):
            alike = event.kind != "cuda_error" or rule.id in case.per_rule or case.last.record.stream == event.record.stream
            if alike:
                yield case

    def _fault_of_pid(self, host: str, event: Event) -> Iterator[Case]:
        """The kernel's fault of the same process, also where the program writes its times in a zone that it does not name."""
        case = self._by_pid.get((host, event.pid), (None, None))[0] if event.pid is not None else None
        if case is not None and any(f.finding.event.kind == "xid" for f in alive(case).folds.values()):
            gap = gap_s(alive(case).last.last_record, event.record)
            if gap is None or abs(gap) <= SAME_PROCESS_S or (event.record.utc_offset_s is None and _zones_apart(gap)):
                yield alive(case)

    def _echoed(self, host: str, finding: Finding) -> Iterator[Case]:
        """A program's errors that were read before the kernel's line: its clock runs a little ahead, or is unknown."""
        event, rule = finding.event, finding.rule
        for topic in ("cuda_error", "nccl_timeout"):
            case = alive(found) if (found := self._by_topic.get((host, topic))) is not None else None
            if case is None or any(f.finding.event.kind not in PROGRAM_KINDS for f in case.folds.values()):
                continue
            told = [f.finding.rule for f in case.folds.values()]
            gap = gap_s(case.first.record, event.record)
            near = gap is None or -_patience_s(case.first) <= gap <= TOGETHER_S
            if near and all(one.follows is None or any(selected(rule, name) for name in one.follows) for one in told):
                yield case

    def _topic(self, host: str, topic: str, event: Event, silence_s: float) -> Iterator[Case]:
        case = self._by_topic.get((host, topic))
        if case is not None and _within(alive(case).last, event, silence_s):
            yield alive(case)

    def _latest_gpu_case(self, host: str, event: Event, silence_s: float) -> Iterator[Case]:
        for case in self._recent_first(host):
            if _gpu_case(case) and _within(case.last, event, silence_s):
                yield case
                return

    def _recent_first(self, host: str) -> Iterator[Case]:
        return iter(sorted(self._open_cases(host), key=lambda case: case.latest, reverse=True))

    def _open_cases(self, host: str) -> list[Case]:
        """The active ones that began last."""
        return list(islice(reversed(self._open_at.get(host, {}).values()), _MOST_RECENT))[::-1]

    # growing

    def _open(self, host: str, event: Event) -> Case:
        case = Case(host=host, order=self._order, first=event, last=event)
        case.booted, case.loaded = (self._acts.get((kind, host, None)) for kind in ("boot", "driver_load"))
        case.reset = self._acts.get(("gpu_reset", host, event.pci)) if event.pci is not None else None
        self._cases[id(case)] = self._open_at.setdefault(host, {})[id(case)] = case
        return case

    def _add(self, case: Case, finding: Finding, run: Run) -> None:
        event, rule = finding.event, finding.rule
        key = fold_key(event)
        too_many = case.per_rule.get(rule.id, 0) >= _MOST_MEMBERS_PER_RULE or len(case.folds) >= _MOST_MEMBERS
        if key not in case.folds and too_many:
            # Too many to be told apart: what they differ in is dropped, the count goes on.
            key = ("many", rule.id if len(case.folds) < _MOST_MEMBERS else "")
            if isinstance(event.detail, UserspaceDetail) and event.detail.seq is not None:
                apart = (*key, event.detail.seq, event.detail.op)
                room = case.per_rule.get(rule.id, 0) < _MOST_MEMBERS_PER_RULE + _MOST_APART and len(case.folds) < _MOST_MEMBERS
                key = apart if room or apart in case.folds else key
            if (event.pid, event.process, event.pid_role) != (None, None, None):
                finding = replace(finding, event=replace(event, pid=None, process=None, pid_role=None))
        if event.pid is not None and isinstance(event.detail, HungTaskDetail):
            case.released.discard(event.pid)
        if (fold := case.folds.get(key)) is not None:
            self._bump(fold, replace(run, count=0) if _same_wait(fold.finding.event, event) else run)
            fold.finding = _richer(fold.finding, finding)
        else:
            if event.gpu_uuid is None and (uuid := self.book.uuid(case.host, event.pci)) is not None:
                finding = replace(finding, event=replace(event, gpu_uuid=uuid))
            case.folds[key] = Fold(finding, run.count, run.lines, run.last, run.count_is_minimum)
            case.kinds.add(event.kind)
            case.per_rule[rule.id] = case.per_rule.get(rule.id, 0) + 1
        if case.last is event or _not_before(run.last.record, case.last.record):
            case.last = run.last
        case.latest = self._order
        case.changes += 1
        if rule.decode == "nvlink4" and isinstance(event.detail, XidDetail):
            for register, bit in set_bits(event.detail.registers or ()):
                case.link_bits[event.pci, event.detail.link, register, bit] += run.count
        self._wish(case, finding)

    def _wish(self, case: Case, finding: Finding) -> None:
        event = finding.event
        if isinstance(event.detail, XidDetail) and event.detail.recovery_action is not None and not event.record.glued:
            if event.pci in case.actions or len(case.actions) < _MOST_WISHES:
                case.actions[event.pci] = finding
            for (rule_id, pci), wish in list(case.wishes.items()):
                if pci == event.pci and wish.finding.event.code == event.code:
                    del case.wishes[rule_id, pci]
            if event.detail.recovery_action == 0:
                self._recovered(case, event)
                return
        if len(case.wishes) >= _MOST_WISHES and (finding.rule.id, event.pci) not in case.wishes:
            return
        known = case.wishes.get((finding.rule.id, event.pci))
        if known is None or known.cleared or _asks(known.finding.rule) <= _asks(finding.rule):
            case.wishes[finding.rule.id, event.pci] = Wish(finding)

    def _recovered(self, case: Case, event: Event) -> None:
        for wish in case.wishes.values():
            if wish.finding.event.pci in (event.pci, None):
                wish.cleared = True
        if case.needs() == 0 and not case.has("persistent"):
            self.end(case, "recovered_154", event, "awaiting_verification" if case.has("lost") else "resolved")

    def _index(self, host: str, case: Case, finding: Finding) -> None:
        event = finding.event
        if event.code is not None:
            _bounded(self._by_code)
            cases = self._by_code.setdefault((host, event.code), [])
            if not cases or cases[-1] is not case:
                cases.append(case)
                del cases[:-16]
        link = getattr(event.detail, "link", None)
        if link is not None and event.pci is not None:
            self._by_topic[host, f"link {event.pci} {link}"] = case
        if event.kind in (*GPU_KINDS, "aer") and event.pci is not None:
            self._by_card.setdefault(_card(host, event.pci), {})[event.pci, event.gpu_instance] = case
        if event.pid is not None and event.pid_role != "victim":
            self._by_pid[host, event.pid] = case, event.process
        topic = {"hung_task": "hung", "mce": "mce", "oom_kill": "oom", "aer": f"aer {event.pci}"}.get(event.kind)
        topic = "lockup" if event.kind in _LOCKUPS else _topic_of(finding) if event.kind in PROGRAM_KINDS else topic
        if topic:
            self._by_topic[host, topic] = case
        if finding.rule.widen and self._cards(case) > 1:
            case.widened = finding.rule.widen
        if finding.rule.lost:
            self._pull_causes(host, case, event)
        _bounded(self._by_pid)
        _bounded(self._by_topic)
        _bounded(self._by_card, 4096)

    def _cards(self, case: Case) -> int:
        return len({f.finding.event.pci for f in case.folds.values() if f.finding.rule.widen and f.finding.event.pci})

    def _pull_causes(self, host: str, case: Case, event: Event) -> None:
        """PCIe errors, DPC and hot-plug lines just before a lost GPU stand in its picture."""
        for other in self._open_cases(host):
            only_aer = all(f.finding.event.kind == "aer" for f in other.folds.values())
            bridge = all(getattr(f.finding.event.detail, "driver", None) in _BRIDGES for f in other.folds.values())
            if other is not case and only_aer and bridge and _within(other.last, event, TOGETHER_S):
                self.merge(case, other)
        for context in reversed(self.context[-50:]):
            if context.kind in ("pcie_dpc", "pcie_hotplug", "sel") and context not in case.context:
                gap = gap_s(context.record, event.record)
                if self.host_of(context.record) == host and (gap is None or 0 <= gap <= TOGETHER_S):
                    case.context.insert(0, context)

    def merge(self, into: Case, other: Case) -> None:
        """Put one case's events into another; equal events of two nodes stay apart."""
        if other is into:
            return
        elsewhere = other.host != into.host
        for own_key, fold in other.folds.items():
            key = (("host", other.host), *own_key) if elsewhere else own_key
            if (kept := into.folds.get(key)) is None:
                into.folds[key] = fold
            else:
                kept.count, kept.lines = kept.count + fold.count, kept.lines + fold.lines
        for wish_key, wish in other.wishes.items():
            into.wishes.setdefault(wish_key, wish)
        into.actions.update({pci: action for pci, action in other.actions.items() if pci not in into.actions})
        into.context.extend(context for context in other.context if context not in into.context)
        into.widened = into.widened or other.widened
        into.kinds |= other.kinds
        into.notes += other.notes
        into.calls.update(other.calls)
        into.cause = into.cause or other.cause
        into.flaps.update(other.flaps)
        into.hosts.update(dict.fromkeys((other.host, *other.hosts) if elsewhere else other.hosts))
        into.link_bits.update(other.link_bits)
        into.released |= other.released
        into.checks.update({key: check for key, check in other.checks.items() if key not in into.checks})
        into.ill |= other.ill
        into.well.update({pci: check for pci, check in other.well.items() if pci not in into.well})
        if other.order < into.order and not elsewhere:
            into.order, into.first = other.order, other.first
        if _not_before(other.last.record, into.last.record):
            into.last = other.last
        other.merged_into, into.changes = into, into.changes + 1
        del self._cases[id(other)]
        self._open_at.get(other.host, {}).pop(id(other), None)
        self._merged.append(other)

    def _end_host(self, host: str, context: Context, reason: EndReason, *, ladder: int) -> None:
        for case in list(self._open_at.get(host, {}).values()):
            if reason == "boot" and _later(case.last, context):
                continue
            if case.has("persistent"):
                # A boot has reset the GPU; what is written in the InfoROM stands all the same.
                for wish in case.wishes.values():
                    wish.cleared = wish.cleared or RUNGS.index(wish.finding.rule.recovery) <= ladder
                self._ended.append(case)
                continue
            doubtful = case.has("lost") or any(RUNGS.index(w.finding.rule.recovery) > ladder for w in case.wishes.values())
            self.end(case, reason, context, "awaiting_verification" if doubtful else "resolved")

    def _end_slot(self, host: str, pci: PciAddress, context: Context) -> Iterator[Case]:
        """Another UUID in the slot ends what the old card had, and inherits nothing; gives the cases of the new card.

        A line since the slot was last heard of before is the new card's.
        """
        until = dict(context.facts).get(OTHER_UNTIL)
        since = replace(context.record, wall_us=int(until)) if until is not None and until.isdigit() else None
        for case in list(self._cases.values()):
            if case.host != host or case.state == "resolved":
                continue
            if {fold.finding.event.pci for fold in case.folds.values()} - {None} != {pci}:
                continue
            if since is None or not _is_since(case.last.last_record, since):
                self.end(case, "gpu_replaced", context)
            elif _is_since(case.first.record, since):
                uuid = self.book.uuid(host, pci)
                for fold in case.folds.values():
                    fold.finding = replace(fold.finding, event=replace(fold.finding.event, gpu_uuid=uuid))
                case.changes += 1
                yield case
            else:
                yield self._part(case, since)
                self.end(case, "gpu_replaced", context)

    def _part(self, case: Case, since: Record) -> Case:
        """A new case of what a case has had since then; what was counted together cannot be counted apart."""
        late = [(key, fold) for key, fold in case.folds.items() if _is_since(fold.last.last_record, since)]
        self._order += 1
        first = min((_first_since(fold, since) for _, fold in late), key=lambda event: event.record.wall_us or 0)
        new = self._open(case.host, first)
        for key, fold in late:
            event = _first_since(fold, since)
            whole = event is fold.finding.event
            run = Run(event, fold.last, fold.count if whole else 1, fold.lines if whole else fold.last.lines, not whole)
            finding = replace(fold.finding, event=replace(event, gpu_uuid=None))
            if whole:
                del case.folds[key]
            else:
                fold.count, fold.lines = max(1, fold.count - 1), max(1, fold.lines - fold.last.lines)
                fold.last = fold.finding.event
            self._add(new, finding, run)
            self._index(case.host, new, finding)
        case.last = max((fold.last for fold in case.folds.values()), key=lambda event: event.record.wall_us or 0)
        case.changes += 1
        return new

    def _keep_loose(self, finding: Finding, run: Run) -> None:
        key = (self.host_of(finding.event.record), *fold_key(finding.event))
        if (fold := self._loose_by_key.get(key)) is not None:
            self._bump(fold, run)
        elif len(self._loose_by_key) < 10_000 and not self._endless:
            fold = Fold(finding, run.count, run.lines, run.last, run.count_is_minimum)
            self._loose_by_key[key] = fold
            self.loose.append(fold)

    def host_of(self, record: Record) -> str:
        """Host of a record; a line without one belongs to the host that its stream named last."""
        if record.host:
            self._stream_host[record.stream] = record.host
            return record.host
        return self._stream_host.get(record.stream, "")


def _bounded(index: dict[Any, Any], most: int = _MOST_INDEXED) -> None:
    """Forget the older half of an index that hostile or endless input has filled."""
    if len(index) > most:
        for key in list(islice(index, most // 2)):
            del index[key]


def alive(case: Case) -> Case:
    """The case itself, or the one that has swallowed it."""
    while case.merged_into is not None:
        case = case.merged_into
    return case


def _after(before: Context | None, now: Context) -> Context:
    """The answer, with what it once was: a fault that the GPU bore out is none the less true for being over."""
    facts = dict(before.facts) if before is not None else {}
    if "confirmed" not in (facts.get("answer"), facts.get("was")) or dict(now.facts).get("answer") == "confirmed":
        return now
    return replace(now, facts=(*now.facts, ("was", "confirmed")))


def _is_borne_out(case: Case, context: Context) -> bool:
    """Whether this is a reading that one of its rules names, and it confirms the fault."""
    facts = dict(context.facts)
    findings = [fold.finding for fold in case.folds.values() if fold.finding.event.pci == context.pci]
    return facts.get("answer") == "confirmed" and any(facts.get("check") in finding.rule.confirm for finding in findings)


def _topic_of(finding: Finding) -> str:
    """What a program's error is joined by: its kind, or that memory ran out, which has nothing to do with any fault."""
    alone = finding.rule.follows == () and finding.event.kind in ("torch_oom", "cuda_error")
    return "out of memory" if alone else finding.event.kind


def _first_since(fold: Fold, since: Record) -> Event:
    """Its first occurrence since then, as far as single ones are kept."""
    return fold.finding.event if _is_since(fold.finding.event.record, since) else fold.last


def _is_since(record: Record, since: Record) -> bool:
    gap = gap_s(since, record)
    return gap is not None and gap > 0


def _may_echo(case: Case, rule: Rule) -> bool:
    """Whether the case holds a fault of a GPU of which such an error can tell."""
    if case.kinds.isdisjoint(GPU_KINDS):
        return False
    faults = [f.finding for f in case.folds.values() if f.finding.event.kind in GPU_KINDS]
    if rule.follows is None:
        return any(fault.event.pci is not None or fault.event.kind == "xid" for fault in faults)
    return any(selected(fault.rule, name) for fault in faults for name in rule.follows)


def _patience_s(event: Event) -> float:
    """How long after a fault a program may tell of it: a watchdog waits for its own limit first."""
    waited = event.detail.timeout_ms if isinstance(event.detail, UserspaceDetail) else None
    return GPU_SILENCE_S + (waited or 0) / 1000


def _zones_apart(gap: float) -> bool:
    """Whether two times differ by a time zone: a whole number of quarter hours, within a minute."""
    return abs(gap) <= 14 * 3600 + 60 and abs(gap - 900 * round(gap / 900)) <= 60


def _beside(one: Record, other: Record) -> bool:
    gap = gap_s(one, other)
    return gap is None or -GPU_SILENCE_S <= gap <= GPU_SILENCE_S


def _within(earlier: Event, later: Event, silence_s: float) -> bool:
    """Two events without a common clock stand next to each other as far as anyone can tell."""
    gap = gap_s(earlier.last_record, later.record)
    return gap is None or -silence_s <= gap <= silence_s


def _asks(rule: Rule) -> tuple[int, int, int]:
    return RUNGS.index(rule.recovery), WHENS.index(rule.when), SEVERITIES.index(rule.severity)


def _not_before(record: Record, other: Record) -> bool:
    gap = gap_s(other, record)
    return gap is None or gap >= 0


def _near(gap: float | None) -> bool:
    return gap is not None and -TOGETHER_S <= gap <= TOGETHER_S


def _outgrown(case: Case, finding: Finding) -> bool:
    """Whether an incident has been open for long and this is a worse fault of another kind: it gets its own."""
    gap = gap_s(case.first.record, finding.event.record)
    if gap is None or gap <= OLD_S or _gpu_case(case) is False:
        return False
    ranks = [fold.finding.rule.rank for fold in case.folds.values()]
    codes = {fold.finding.event.code for fold in case.folds.values()}
    return finding.rule.rank > max(ranks, default=100) and finding.event.code not in codes


def _later(event: Event, context: Context) -> bool:
    gap = gap_s(event.record, context.record)
    return gap is not None and gap < 0


def _card(host: str, pci: PciAddress) -> tuple[str, int, int, int]:
    """A card's functions (.1 is its sound device) are one card."""
    return host, pci.domain, pci.bus, pci.device


def _fabric(rule: Rule) -> bool:
    return rule.widen == "fabric" or rule.sxid is not None


def _alike(one: Rule, other: Rule) -> bool:
    return one.id == other.id or (one.lost and other.lost)


def _gpu_case(case: Case) -> bool | None:
    """True when the case is about a GPU, False when it is about something else, None when nobody knows."""
    answers: set[bool | None] = set()
    for fold in case.folds.values():
        event = fold.finding.event
        if event.kind in GPU_KINDS:
            return True
        answers.add(getattr(event.detail, "gpu_related", None) if event.kind in ("hung_task", *_LOCKUPS) else False)
    return True if True in answers else (False if answers == {False} else None)


def _same_wait(one: Event, other: Event) -> bool:
    """Whether two reports of a hung task are the kernel's and what /proc showed of the same wait."""
    seen = {detail.seen_by for detail in (one.detail, other.detail) if isinstance(detail, HungTaskDetail)}
    return seen == {None, "scan"}


def _richer(kept: Finding, again: Finding) -> Finding:
    """The folded finding after a repeat: places of an Xid 13 gathered, the latest value of a 154 or a running total.

    The kernel's report of a hung task takes the place of what /proc showed, at the time of the latter.
    """
    known, new = kept.event.detail, again.event.detail
    if isinstance(known, UserspaceDetail) and isinstance(new, UserspaceDetail) and new.cumulative is not None:
        return replace(
            kept, event=replace(kept.event, detail=replace(known, cumulative=max(known.cumulative or 0, new.cumulative)))
        )
    if isinstance(known, HungTaskDetail) and isinstance(new, HungTaskDetail) and (known.seen_by, new.seen_by) == ("scan", None):
        return replace(
            again, event=replace(kept.event, detail=new, lines=again.event.lines, job=again.event.job or kept.event.job)
        )
    if not isinstance(known, XidDetail) or not isinstance(new, XidDetail):
        return kept
    if new.recovery_action is not None:
        return replace(again, event=replace(kept.event, detail=new))
    if set(new.places) <= set(known.places) or len(known.places) > 64:
        return kept
    places = tuple(dict.fromkeys((*known.places, *new.places)))
    return replace(kept, event=replace(kept.event, detail=replace(known, places=places)))
