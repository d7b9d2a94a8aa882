"""The daemon's one loop: sources to the core, the core to its sinks.

    for record in source.read(): engine.feed(record)     # core: facts
    for settled in engine.settle(now): history.append()   # nothing lost, nothing twice
    for change in engine.changes(now): publish            # incidents that open, change and end

Nothing here may wait: disks have threads of their own, followers have bounded backlogs, scrapes read the last snapshot.
"""

from __future__ import annotations

import contextlib
import gc
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xidwatch.apart import apart
from xidwatch.clocks import Clocks
from xidwatch.config import Config
from xidwatch.core.census import Absences, Card, Slot, missed, noted, remembered, slot_object, standing, too_few
from xidwatch.core.classify import RuleTable
from xidwatch.core.codec import encode
from xidwatch.core.engine import Change, Engine, Settled, active
from xidwatch.core.event import Context, Event
from xidwatch.core.gpu import GpuState, Unresponsive
from xidwatch.core.gpumachine import told_by_gpus
from xidwatch.core.incident import Incident
from xidwatch.core.machine import UNKNOWN, Machine, merged
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.record import Record
from xidwatch.core.standing import Seen, checks, named_readings, was_reset, worth_keeping
from xidwatch.core.standing import noted as noted_check
from xidwatch.drawn import Drawn
from xidwatch.errors import XidwatchError
from xidwatch.gpus import SOURCE as GPUS
from xidwatch.gpus import Gpus
from xidwatch.sinks.claim import Claims
from xidwatch.sinks.followers import Followers
from xidwatch.sinks.history import Entry, History, Limits, Note, TotalKey
from xidwatch.sinks.metrics import (
    SeriesBudget,
    Snapshot,
    counters_for,
    early_counters,
    incident_counter,
    timestamp_of,
    zero_totals,
)
from xidwatch.sinks.service import Service
from xidwatch.sinks.statefile import StateFile
from xidwatch.sinks.web import WebServer
from xidwatch.sources.live import LiveSource
from xidwatch.sources.machine import read_machine
from xidwatch.sources.ringbuffer import running_boot_id
from xidwatch.sources.taskscan import Earlier
from xidwatch.stage import HOST, Stage
from xidwatch.tasks import SOURCE as TASKS
from xidwatch.tasks import Tasks
from xidwatch.workload import Served, read_workload

_HOUSEKEEPING_S = 5.0
_ADVANCE_S = 30.0
_STATE_S = 60.0
_MACHINE_S = 300.0
_CARDS_S = 86_400.0
_CLOSE_S = 5.0
_GROWTH_S = 1.0
"""An incident that only has another member is told no more often than this: a storm has hundreds."""
_BY_DRIVER = ("xid", "nvrm")
_MAKE_WAY_S = 0.02
"""How long the loop waits for a disk that is behind, before it reads on."""
_SWITCH_S = 0.0005
_FRESH_S, _NEWS_S = 0.05, 0.002
"""How old a snapshot may be while records pour in, and while there is something new to show."""


@dataclass(slots=True)
class _Reload:
    """The outcome of the latest reading of the rules. `mistakes` is empty when it went well."""

    success: bool = True
    at_us: int = 0
    mistakes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Maintenance:
    """`until_us` None: until it is ended."""

    running: bool = False
    until_us: int | None = None
    reason: str = ""

    def holds(self, now_us: int) -> bool:
        return self.running and (self.until_us is None or now_us < self.until_us)


class Watch:
    """One daemon. `run` returns when SIGTERM or SIGINT came."""

    def __init__(
        self,
        config: Config,
        load: Callable[[], tuple[RuleTable, str]],
        sources: Sequence[Callable[[dict[str, str]], LiveSource]],
        clocks: Clocks | None = None,
        stage: Stage | None = None,
    ) -> None:
        """Nothing is opened before `run`.

        Args:
            load: Reads the rules and says which they are; called at the start and on SIGHUP.
            sources: Each opens one source, given the positions to resume from.
            stage: What stands around the daemon instead of this machine; None for this machine.
        """
        self._stage, self._host = stage, HOST if stage is not None else socket.gethostname()
        self.config = config
        rules, self._rules_version = load()
        self.engine = Engine(rules)
        self._zeros = apart(lambda: zero_totals(rules))  # it reads every rule; most are never needed
        self._load, self._openers, self._clocks = load, sources, clocks or Clocks()
        self._selector = selectors.DefaultSelector()
        self._sources: list[LiveSource] = []
        self._safe: dict[str, str] = {}
        self._advanced: dict[str, str] = {}
        self._service = Service()
        self._maintenance = _Maintenance()
        self._held = False
        self._reload = _Reload(at_us=self._clocks.wall_us())
        self._loaded: list[tuple[RuleTable, str] | str] = []
        self._served: list[Served] = []
        self._machines: list[Machine] = []
        self._machine_read = UNKNOWN
        self._machine_reader: threading.Thread | None = None
        self._stopping = False
        self._gpus: Gpus | None = None
        self._cards: dict[PciAddress, Card] = {}
        self._cards_accepted = False
        self._baselines: dict[tuple[str, PciAddress], GpuState | None] = {}
        self._absences, self._noticed = Absences(), -1
        self._settled_old: set[str] = set()
        self._consulted = -1
        self._standings: list[tuple[object, ...] | None] = []
        self._nvml_released = False
        self._tasks: Tasks | None = None
        self._due: dict[str, float] = {}
        self._times: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._latencies: dict[str, Latencies] = {}
        self._web: WebServer | None = None
        self._drawn = Drawn()
        self._state_told = True
        self._told, self._told_s, self._growing = False, dict[str, float](), dict[str, float]()
        self._refreshed_s, self._news, self._stale = 0.0, False, False
        self.snapshot = Snapshot()

    def run(self) -> int:
        """Watch until told to stop. Returns the exit code."""
        self._open()
        # A thread that draws up a page or writes to the disk would keep the loop waiting for 5 ms at a time.
        sys.setswitchinterval(_SWITCH_S)
        # What is there now stays: looking through it for garbage would stop the loop for tens of milliseconds.
        gc.collect()
        gc.freeze()
        try:
            self._service.ready(f"watching {', '.join(source.name for source in self._sources)}")
            while not self._stopping:
                for key, mask in self._selector.select(self._timeout_s()):
                    key.data(mask)
                self._step()
        finally:
            self._close()
        return 0

    # opening and closing

    def _open(self) -> None:
        config = self.config
        for folder in (config.state_dir, config.run_dir):
            # Looked at first: on a frozen disk even the mkdir of what is there would wait.
            if not Path(folder).is_dir():
                with contextlib.suppress(OSError):
                    Path(folder).mkdir(parents=True, exist_ok=True)
        self._claims = Claims((Path(config.run_dir) / "watch.lock", Path(config.state_dir) / "history.lock"))
        self._history = History.open(
            Path(config.state_dir) / "history.db",
            Limits(age_s=config.history.max_age_days * 86400.0, size_bytes=config.history.max_mb * 1_000_000),
        )
        earlier = Earlier(boot_id=running_boot_id(), position=self._history.positions().get(TASKS))
        # On a stage nothing of this machine is looked at.
        looks = config.d_state if self._stage is None else replace(config.d_state, scan="off")
        self._tasks = Tasks(looks, earlier, self._wake, self._clocks)
        self.engine.whose = self._tasks.whose if self._stage is None else self._stage.whose
        self.engine.awaits = self._tasks.awaits
        self._remember()
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._catch_signals()
        positions = self._history.positions()
        for opener in self._openers:
            source = opener(positions)
            self._sources.append(source)
            self._selector.register(source.fileno(), selectors.EVENT_READ, _reader(self, source))
        self._followers = Followers(Path(config.run_dir) / "follow.sock", self._selector, self._greeting)
        stage = self._stage
        self._gpus = stage.gpus(self._selector) if stage else Gpus(self._selector, use_nvml=config.nvml == "auto")
        self._gpus.changed = self._wake
        for pci, card in self._cards.items():
            self._gpus.remember(pci, card)
        if self._cards_accepted:
            self._gpus.accept()
        self._obey_again()
        if config.workload is not None:
            # A model may lie on a file system that does not answer.
            threading.Thread(target=self._read_workload, name="workload", daemon=True).start()
        self._look_at_machine()
        self._state_file = StateFile(Path(config.run_dir) / "state.json")
        for source in self._sources:
            self._read(source)
        self._step()
        self._web = WebServer(config.listen, lambda: self.snapshot, config.web_config_file)
        self._web.start()
        self._tasks.start()
        self._write_state()

    def _remember(self) -> None:
        """Live through the stored past again, the operator's acts in their places."""
        notes = self._history.take_notes()
        for entry in self._history.recent_entries():
            while notes and notes[0].wall_us <= entry.stored_us:
                self._obey(notes.pop(0))
            if isinstance(entry.item, Context) and (known := remembered(entry.item)) is not None:
                self._cards[known[0]] = known[1]
                self._cards_accepted = False
            if entry.item is not None:
                self.engine.replay(entry.identity, entry.item, entry.stored_us)
                if self._tasks is not None:
                    self._tasks.replayed(entry.identity, entry.item)
        for note in notes:
            self._obey(note)
        self.engine.changes(self._clocks.wall_us())
        self._settled_old = {incident.id for incident in self.engine.incidents.values() if _is_old(incident)}
        self._budget = SeriesBudget(self._history.totals())

    def _close(self) -> None:
        self._service.stopping()
        for settled in self.engine.settle(self._clocks.wall_us(), everything=True):
            self._keep(settled)
        self._advance()
        self._announce()
        self._write_state()
        if self._web is not None:
            self._web.close()
        self._followers.close()
        if self._tasks is not None:
            self._tasks.close()
        if self._gpus is not None:
            self._gpus.close()
        for source in self._sources:
            source.close()
        self._state_file.close()
        if not self._history.close(_CLOSE_S):
            _complain("the disk did not take the last of the history in time; it will be read again from the sources")
        self._claims.close()

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)

    # the loop

    def _timeout_s(self) -> float:
        now = self._clocks.steady_s()
        waits = [due - now for due in (*self._due.values(), *self._growing.values())]
        if self._gpus is not None and (due_s := self._gpus.due_s()) is not None:
            waits.append(due_s)
        if self._gpus is not None and (missed_s := self._absences.due_s(now, self._gpus.patience_s)) is not None:
            waits.append(missed_s)
        if (deadline := self.engine.deadline_us()) is not None:
            waits.append((deadline - self._clocks.wall_us()) / 1e6)
        if self._stale:
            waits.append(self._refreshed_s + (_NEWS_S if self._news else _FRESH_S) - now)
        return max(0.0, min([_HOUSEKEEPING_S, *waits]))

    def _step(self) -> None:
        now_us = self._clocks.wall_us()
        for settled in self.engine.settle(now_us):
            self._keep(settled)
        for source in self._sources:
            self._rest(source)
        if self._gpus is not None:
            self._gpus.tick()
            # Entries age: all cards are kept anew at the start and each day, the missing ones too.
            news = self._gpus.news()
            self._keep_cards(self._gpus.cards() if self._is_due("cards", _CARDS_S) else news)
            self._miss(self._gpus, now_us)
        self._heed_tasks(now_us)
        if self._is_due("housekeeping", min(_HOUSEKEEPING_S, self._service.watchdog_s or _HOUSEKEEPING_S)):
            self._service.alive()
            self._take_notes()
            self._tell_maintenance()
            self._take_rules()
            self._take_workload()
            self._take_machine()
            for message in self._history.take_messages():
                _complain(message)
        if self._is_due("machine", _MACHINE_S):
            self._look_at_machine()
        if self._is_due("advance", _ADVANCE_S):
            self._advance()
        if self._news:
            self._refresh()  # drawing up what followers are told may take longer than counting
        self._announce()
        self._consult()
        if self._is_due("state", _STATE_S):
            self._put_state()
        self._refresh(at_once=not self._state_told)
        if not self._state_told:  # after the snapshot: whoever reads the file may scrape next
            self._write_state()

    def _heed_tasks(self, now_us: int) -> None:
        """Waits of tasks that have become events, or are over."""
        if self._tasks is None:
            return
        if self._gpus is not None:
            self._tasks.gpu_processes(self._gpus.processes())
        self._safe[TASKS] = self._tasks.position()
        for identity, item in self._tasks.news():
            if (settled := self.engine.observe(identity, TASKS, item, now_us)) is not None:
                self._keep(settled)
        if self._tasks.changed():
            self._put_state()

    def _is_due(self, what: str, every_s: float) -> bool:
        now = self._clocks.steady_s()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_s
        return True

    def _read(self, source: LiveSource) -> None:
        self._history.make_way(_MAKE_WAY_S)
        now_us = self._clocks.wall_us()
        for record in source.follow(lambda: self.engine.further(source.name)):
            injected = record.trusted == "no" and self.config.accept_injected
            born = self.engine.feed(source.name, replace(record, trusted="injected") if injected else record, now_us)
            for event in born:
                if self._tasks is not None:
                    self._tasks.heard(event)
                self._clock_in(source.name, event)

    def _clock_in(self, source: str, event: Event) -> None:
        """An event is born: what can be counted of it already is shown at once."""
        if early_counters(event):
            self._news = True
            self._count_delay(source, event)

    def _count_delay(self, source: str, event: Event) -> None:
        if event.record.wall_us is not None:
            late_s = (self._clocks.wall_us() - event.record.wall_us) / 1e6
            self._latencies.setdefault(source, Latencies()).add(late_s)

    def _rest(self, source: LiveSource) -> None:
        """A source whose events are all complete may be resumed behind what it has delivered."""
        if not self.engine.waits(source.name):
            self._safe[source.name] = source.position()

    def _advance(self) -> None:
        for name, position in self._safe.items():
            if position and self._advanced.get(name) != position:
                self._advanced[name] = position
                self._history.advance(name, position)

    def _keep(self, settled: Settled) -> None:
        record, item = settled.item.record, settled.item
        counts = self._budget.admit(counters_for(settled.finding)) if settled.finding is not None else ()
        new = self._history.append(
            Entry(
                identity=settled.identity,
                source=settled.source,
                position=self._safe.get(settled.source),
                wall_us=record.wall_us,
                boot_id=record.boot_id,
                item=encode(item),
                totals=counts,
            )
        )
        self._news = self._news or new
        if new and self._tasks is not None:
            self._tasks.replayed(settled.identity, item)
        if not new or not counts or record.wall_us is None:
            return
        for key in counts:
            if (last := timestamp_of(key)) is not None:
                self._times[last] = max(self._times.get(last, 0.0), record.wall_us / 1e6)
        if isinstance(item, Event):
            if self._gpus is not None:
                self._gpus.happened(item.kind)
            if not early_counters(item):
                self._count_delay(settled.source, item)

    def _keep_cards(self, cards: Iterable[tuple[PciAddress, Card]]) -> None:
        """Remember which card sits where: another one in a slot ends what the old one had, and one that is gone is missed."""
        now_us = self._clocks.wall_us()
        for pci, card in cards:
            until_us = self._gpus.other_until_us(pci) if self._gpus is not None else None
            self._keep_said(f"gpu/{pci}/{card.gpu_uuid}/{now_us}", noted(pci, card, now_us, self._host, until_us))

    def _keep_said(self, identity: str, context: Context) -> None:
        """What the GPUs said, beside what it belongs to and in the history."""
        self.engine.note(context)
        self._history.append(Entry(identity=identity, source=GPUS, wall_us=context.record.wall_us, item=encode(context)))

    def _miss(self, gpus: Gpus, now_us: int) -> None:
        """Tell of GPUs that are missing, also where no line does; not of those of which an open incident tells already."""
        if self._noticed == gpus.told() and self._absences.due_s(self._clocks.steady_s(), gpus.patience_s) != 0.0:
            return
        self._noticed = gpus.told()
        for slot, times in self._absences.news(gpus.slots(), self._clocks.steady_s(), gpus.patience_s):
            if any(incident.state == "active" and _is_lost(incident, slot) for incident in self.engine.incidents.values()):
                continue
            boot_id = (self._stage.boot_id if self._stage is not None else None) or running_boot_id()
            since_us = round(self._clocks.steady_s() * 1e6)
            record = Record(
                text="", seq=times, wall_us=now_us, since_boot_us=since_us, boot_id=boot_id, host=self._host, trusted="kernel",
                time_source="arrival", timed=True,
            )  # fmt: skip
            identity = f"missing/{slot.pci}/{slot.card.gpu_uuid if slot.card else ''}/{boot_id}/{times}"
            event = missed(slot, record)
            if (settled := self.engine.observe(identity, GPUS, event, now_us)) is not None:
                self._keep(settled)
                _complain(event.record.text.removeprefix("xidwatch: "))

    # incidents

    def _announce(self) -> None:
        now_s = self._clocks.steady_s()
        for change in self.engine.changes(self._clocks.wall_us()):
            incident = change.incident
            if change.before is None:
                self._history.append(Entry(identity=f"incident/{incident.id}", totals=(incident_counter(incident),)))
                self._note_regimes(incident)
                self._consulted = -1
            if change.before is None or _visible(change.before) != _visible(incident):
                self._tell(_kind(change), incident)
            elif len(change.before.members) != len(incident.members):
                self._growing.setdefault(incident.id, self._told_s.get(incident.id, now_s) + _GROWTH_S)
        for grown in [id_ for id_, due_s in self._growing.items() if due_s <= now_s]:
            if (known := self.engine.incidents.get(grown)) is not None:
                self._tell("changed", known)
            self._growing.pop(grown, None)
        if self._told:
            self._told = False
            self._news = True
            self._put_state()
            self._say_status()

    def _tell(self, kind: str, incident: Incident) -> None:
        self._told = True
        self._growing.pop(incident.id, None)
        self._told_s[incident.id] = self._clocks.steady_s()
        if self._followers.anybody():
            self._followers.publish(self._message(kind, incident))
        if incident.state == "resolved":
            self._drawn.forget(incident)
            del self._told_s[incident.id]

    def _consult(self) -> None:
        """Set what the GPUs have said since against the incidents that are not over; an answer that changed is kept."""
        if self._gpus is None or self._consulted == self._gpus.told():
            return
        self._consulted = self._gpus.told()
        slots = {slot.pci: slot for slot in self._gpus.slots()}
        if (standings := [self._gpus.standing(), *(standing(slot) for slot in slots.values())]) != self._standings:
            self._standings = standings
            self._put_state()
        doubtful = list(self._doubtful()) if slots else []
        heard = [self._ask(incident, pci, slot) for incident in doubtful for pci, slot in _own(incident, slots)]
        kept = {one.id for one in doubtful}
        self._baselines = {key: state for key, state in self._baselines.items() if key[0] in kept}
        if any(heard):
            self._announce()

    def _doubtful(self) -> Iterator[Incident]:
        """Incidents that a GPU's word may end, prove or bear out; of those that were too old to be believed the newest."""
        old: set[tuple[str, ...]] = set()
        for incident in reversed(list(self.engine.incidents.values())):
            if incident.state != "resolved":
                yield incident
            elif incident.id not in self._settled_old and _is_old(incident) and incident.gpus not in old:
                old.add(incident.gpus)
                yield incident

    def _ask(self, incident: Incident, pci: PciAddress, slot: Slot) -> bool:
        """Set what one GPU has said since against one incident; whether it said something new."""
        first = incident.members[0].finding.event.record
        if first.wall_us is None or self._gpus is None:
            return False
        names, links = named_readings(incident, pci)
        known = {(check.pci, dict(check.facts)["check"]): check for check in incident.checks}
        lines = [member.last.last_record.wall_us or 0 for member in incident.members if member.finding.event.kind in _BY_DRIVER]
        last_us = max(lines, default=first.wall_us)
        seen = Seen(
            slot=slot,
            before=self._baseline(incident.id, pci, first.wall_us),
            since_us=first.wall_us,
            last_us=last_us,
            reset=was_reset(self._gpus.states_since(pci, last_us)),
            links=links,
        )
        found = [
            check
            for check in checks(names, seen, self._clocks.wall_us())
            if worth_keeping(check, known.get((pci, check.name)))
            and (incident.state != "resolved" or (check.name in names and check.answer == "confirmed"))
        ]
        for check in found:
            said = noted_check(check, incident.hosts[0] if incident.hosts else "", first.boot_id)
            self._keep_said(f"check/{incident.id}/{check.pci}/{check.name}/{check.at_us}", said)
        if _is_old(incident) and not isinstance(slot.answer, Unresponsive | None):
            # Heard once: what the GPU shows later is another fault.
            self._settled_old.add(incident.id)
        return bool(found)

    def _baseline(self, id_: str, pci: PciAddress, start_us: int) -> GpuState | None:
        """What the GPU said before the incident, held fast: later samples must not take its place."""
        if (id_, pci) not in self._baselines and self._gpus is not None:
            self._baselines[id_, pci] = self._gpus.state_before(pci, start_us)
        return self._baselines.get((id_, pci))

    def _note_regimes(self, incident: Incident) -> None:
        """Keep what the GPUs did before it; it completes the incident at the next turn."""
        start = incident.members[0].finding.event.record
        if self._gpus is None or start.wall_us is None:
            return
        for pci in filter(None, map(parse_pci, incident.gpus)):
            seen = self._gpus.look_before(pci, start.wall_us)
            if seen is not None and seen.regime != "unknown":
                record = Record(text=f"{seen.regime}: {seen.why}", wall_us=seen.at_us, boot_id=start.boot_id, host=start.host)
                context = Context(kind="regime", record=record, pci=pci, facts=(("regime", seen.regime),))
                self._keep_said(f"regime/{incident.id}/{pci}", context)

    def _message(self, kind: str, incident: Incident) -> dict[str, Any]:
        return self._heading(kind) | {"incident": self._drawn.of(incident, self.engine.rules, self._hosts())}

    def _heading(self, kind: str) -> dict[str, Any]:
        now_us = self._clocks.wall_us()
        return {
            "schema": "xidwatch.follow/1",
            "change": kind,
            "time_us": now_us,
            "host": self._host,
            "demo": self._stage is not None,
            "maintenance": self._maintenance.holds(now_us),
        }

    def _greeting(self) -> list[dict[str, Any]]:
        """What is present, then the ids of all of it: what a follower knows besides has ended while it was away."""
        present = active(list(self.engine.incidents.values()))
        messages = [self._message("present", incident) for incident in present]
        return [*messages, self._heading("watching") | {"incidents": [incident.id for incident in present]}]

    def _hosts(self) -> tuple[Any, ...]:
        return self.engine.correlator.book.reports({})

    def _put_state(self) -> None:
        """Have state.json written at the end of this turn."""
        self._state_told = False

    def _write_state(self) -> None:
        self._state_told = True
        state, incidents = self._state(), active(list(self.engine.incidents.values()))
        drawn, rules, hosts = self._drawn, self.engine.rules, self._hosts()
        self._state_file.put(lambda: state | {"incidents": [drawn.of(incident, rules, hosts) for incident in incidents]})

    def _state(self) -> dict[str, Any]:
        """What state.json says but for the incidents, which take longest to draw up."""
        now_us, health = self._clocks.wall_us(), self._history.health()
        return {
            "schema": "xidwatch.state/1",
            "time_us": now_us,
            "host": self._host,
            "demo": self._stage is not None,
            "metrics_port": self._web.port if self._web is not None else None,
            "maintenance": {
                "active": self._maintenance.holds(now_us),
                "until_us": self._maintenance.until_us,
                "reason": self._maintenance.reason,
            },
            "sources": [
                {
                    "name": source.name,
                    "up": source.health().up,
                    "records": source.health().records_total,
                    "lost": source.health().lost_records_total,
                    "restarts": source.health().restarts_total,
                    "untrusted": source.health().untrusted_total,
                }
                for source in self._sources
            ],
            "injection_accepted": self.config.accept_injected,
            "rules": {"success": self._reload.success, "mistakes": list(self._reload.mistakes)},
            "history": {
                "up": health.up,
                "backlog": health.backlog,
                "write_failures": health.write_failures_total,
                "last_error": health.last_error,
            },
            **(self._gpu_state(self._gpus) if self._gpus is not None else {}),
            **(self._tasks.state(self.engine.rules) if self._tasks is not None else {}),
        }

    def _gpu_state(self, gpus: Gpus) -> dict[str, Any]:
        slots = gpus.slots()
        return {
            "gpus": [slot_object(slot) for slot in slots],
            "expected_gpus": self._expected(slots),
            "missing_without_a_name": too_few(slots, self.config.expected_gpus),
            "nvml": gpus.way(),
            "driver_version": gpus.driver_version(),
        }

    def _gpu_readings(self, gpus: Gpus) -> Mapping[TotalKey, float]:
        slots = gpus.slots()
        return {**gpus.readings(slots), ("xidwatch_gpus_expected", ()): float(self._expected(slots))}

    def _expected(self, slots: Sequence[Slot]) -> int:
        """How many GPUs the node should have."""
        known = sum(slot.expected for slot in slots)
        return self.config.expected_gpus if self.config.expected_gpus is not None else known

    def _say_status(self) -> None:
        incidents = active(list(self.engine.incidents.values()))
        worst = max(incidents, key=lambda one: ("info", "warning", "critical").index(one.severity), default=None)
        self._service.status(f"{len(incidents)} incidents; {worst.sentence}" if worst else "no incident")

    # notes, rules, signals

    def _take_notes(self) -> None:
        for note in self._history.take_notes():
            self._obey(note)

    def _tell_maintenance(self) -> None:
        """Followers hear of its begin and end, and then of what is present: what opened meanwhile told nobody."""
        holds = self._maintenance.holds(self._clocks.wall_us())
        if holds != self._held:
            self._held = holds
            for message in self._greeting():
                self._followers.publish(message)
            self._put_state()

    def _obey(self, note: Note) -> None:
        if note.kind == "incident_close":
            self.engine.close(str(note.data.get("id")))
        elif note.kind == "maintenance_start":
            until = note.data.get("until_us")
            self._maintenance = _Maintenance(True, until if isinstance(until, int) else None, str(note.data.get("reason", "")))
        elif note.kind == "maintenance_end":
            self._maintenance = _Maintenance()
        elif note.kind == "gpus_accept":
            self._cards.clear()
            self._cards_accepted = True
            if self._gpus is not None:
                self._gpus.accept()
                self._keep_cards(self._gpus.cards())
            for incident in [one for one in self.engine.incidents.values() if _is_of_missing(one)]:
                self.engine.close(incident.id)
        elif note.kind in ("nvml_release", "nvml_resume"):
            self._nvml_released = note.kind == "nvml_release"
            self._obey_again()

    def _obey_again(self) -> None:
        """Whether NVML may be asked is what the operator said last, also before this start."""
        if self._gpus is not None and self._nvml_released:
            self._gpus.release()
        elif self._gpus is not None:
            self._gpus.resume()

    def _on_stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True

    def _on_reload(self, _signal: int, _frame: object) -> None:
        # Reading files may block, so it does not happen here; the loop takes the table once it is there.
        threading.Thread(target=self._read_rules, name="rules", daemon=True).start()

    def _read_rules(self) -> None:
        try:
            self._loaded.append(self._load())
            if self._web is not None:
                self._web.reload()
        except XidwatchError as error:
            self._loaded.append(str(error))
        except Exception as error:  # noqa: BLE001  # whatever is wrong with a file, the old table stays in force
            self._loaded.append(f"the rules could not be read: {error}")
        self._due["housekeeping"] = 0.0
        self._wake()

    def _take_rules(self) -> None:
        while self._loaded:
            loaded = self._loaded.pop(0)
            if isinstance(loaded, str):
                self._reload = _Reload(False, self._reload.at_us, tuple(loaded.split("\n")))
                _complain(f"the old rules stay in force:\n{loaded}")
            else:
                self._reload = _Reload(True, self._clocks.wall_us())
                rules, self._rules_version = loaded
                self._zeros = zero_totals(rules)
                self.engine.rejudge(rules)

    def _look_at_machine(self) -> None:
        """Services come and go; their files may lie on a disk that does not answer, so a thread reads them."""
        if self._stage is not None:
            self._machines.append(self._stage.machine())
        elif self._machine_reader is None or not self._machine_reader.is_alive():
            self._machine_reader = threading.Thread(
                target=lambda: self._machines.append(read_machine()), name="machine", daemon=True
            )
            self._machine_reader.start()
        self._due["machine"] = self._clocks.steady_s() + _MACHINE_S

    def _take_machine(self) -> None:
        while self._machines:
            self._machine_read = self._machines.pop(0)
        answers = [slot.answer for slot in self._gpus.slots()] if self._gpus is not None else []
        machine = merged(told_by_gpus([answer for answer in answers if isinstance(answer, GpuState)]), self._machine_read)
        if machine != self.engine.machine:
            self.engine.machine = machine
            self.engine.rejudge(self.engine.rules)

    def _read_workload(self) -> None:
        try:
            if self.config.workload is not None:
                self._served.append(read_workload(self.config.workload))
        except XidwatchError as error:
            _complain(f"slow cannot be told from hung: {error}")

    def _take_workload(self) -> None:
        """Count as soon as the card is known."""
        if not self._served or self._gpus is None:
            return
        try:
            self.engine.floor = self._served[0].floor(self._gpus.card())
        except XidwatchError as error:
            _complain(f"slow cannot be told from hung: {error}")
            self._served.clear()
        if self.engine.floor is not None:
            self._served.clear()
            self.engine.rejudge(self.engine.rules)

    def _wake(self) -> None:
        """From another thread: there is something to do."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _woken(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(4096):
                continue

    # metrics

    def _refresh(self, *, at_once: bool = False) -> None:
        """Show what is known now; in a flood not at every turn, and what is no event's least of all."""
        now_s = self._clocks.steady_s()
        self._stale = not at_once and now_s - self._refreshed_s < (_NEWS_S if self._news else _FRESH_S)
        if not self._stale:
            self._refreshed_s, self._news = now_s, False
            self.snapshot = self._made_snapshot()

    def _made_snapshot(self) -> Snapshot:
        health, totals, times = self._history.health(), self._history.totals(), dict(self._times)
        for identity, event in self.engine.unfinished():
            if not self._history.knows(identity):
                for key in self._budget.admit(early_counters(event)):
                    totals[key] = totals.get(key, 0.0) + 1
                    if (last := timestamp_of(key)) is not None and event.record.wall_us is not None:
                        times[last] = max(times.get(last, 0.0), event.record.wall_us / 1e6)
        return Snapshot(
            totals=totals,
            times=times,
            incidents=tuple(active(list(self.engine.incidents.values()))),
            driver_actions=self._driver_actions(),
            sources={source.name: source.health() for source in self._sources},
            parse_failures={"malformed": self.engine.malformed_total()},
            maintenance=self._maintenance.holds(self._clocks.wall_us()),
            injection_accepted=self.config.accept_injected,
            rules_reload_success=self._reload.success,
            rules_reload_timestamp_s=self._reload.at_us / 1e6,
            rules_version=self._rules_version,
            zeros=self._zeros,
            history=health,
            readings={
                **(self._gpu_readings(self._gpus) if self._gpus is not None else {}),
                **(self._tasks.readings() if self._tasks is not None else {}),
                **(self._stage.readings() if self._stage is not None else {}),
            },
            latencies={name: latency.counts() for name, latency in self._latencies.items()},
        )

    def _driver_actions(self) -> dict[str, int]:
        actions: dict[str, int] = {}
        for case in self.engine.correlator.cases:
            for pci, finding in case.actions.items():
                value = getattr(finding.event.detail, "recovery_action", None)
                if pci is not None and value is not None and case.state == "active" and not finding.event.record.glued:
                    actions[str(pci)] = value
        return actions


@dataclass(slots=True)
class Latencies:
    """Seconds from the kernel's clock to our counters, in buckets."""

    bounds: tuple[float, ...] = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0)
    hits: list[int] = field(default_factory=lambda: [0] * 12)
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one; a clock that stepped back counts as no delay."""
        seconds = max(0.0, seconds)
        self.hits[next((i for i, bound in enumerate(self.bounds) if seconds <= bound), len(self.bounds))] += 1
        self.total_s += seconds

    def counts(self) -> tuple[tuple[tuple[float, int], ...], int, float]:
        """((upper bound, count in that bucket), ...), how many in all, their sum."""
        return tuple(zip(self.bounds, self.hits, strict=False)), sum(self.hits), self.total_s


def _is_old(incident: Incident) -> bool:
    """Whether it was too old to be believed when it was read."""
    return incident.state == "resolved" and incident.end_reason == "unconfirmed_old"


def _is_lost(incident: Incident, slot: Slot) -> bool:
    """Whether it tells that the GPU of this slot is gone."""
    findings = [member.finding for member in incident.members if member.finding.event.pci == slot.pci]
    return any(finding.rule.lost for finding in findings)


def _is_of_missing(incident: Incident) -> bool:
    """Whether it is about missing GPUs and nothing else."""
    kinds = {(member.finding.event.kind, member.finding.event.what) for member in incident.members}
    return incident.state != "resolved" and kinds == {("nvrm", "gpu_missing")}


def _own(incident: Incident, slots: Mapping[PciAddress, Slot]) -> Iterator[tuple[PciAddress, Slot]]:
    """The incident's GPUs that are known."""
    for pci in filter(None, map(parse_pci, incident.gpus)):
        if pci in slots:
            yield pci, slots[pci]


def _reader(watch: Watch, source: LiveSource) -> Callable[[int], None]:
    return lambda _mask: watch._read(source)


def _kind(change: Change) -> str:
    if change.before is None:
        return "opened"
    return "ended" if change.incident.state == "resolved" and change.before.state != "resolved" else "changed"


def _answers(incident: Incident) -> Iterator[tuple[object, ...]]:
    """What the GPUs say of it; that one worked when it was looked at is no news."""
    for check in incident.checks:
        name = dict(check.facts)["check"]
        yield from ((check.pci, name, fact) for fact in check.facts if fact[0] != "working")


def _visible(incident: Incident) -> tuple[object, ...]:
    """What a person would see; a storm that only counts on is not told again and again."""
    return (
        incident.state, incident.severity, incident.fault_class, incident.recovery, incident.investigate, incident.gpus,
        incident.members[incident.root].finding.rule.id, incident.scope, incident.confidence,
        frozenset(_answers(incident)),
    )  # fmt: skip


def _complain(text: str) -> None:
    sys.stderr.write(f"xidwatch: {text}\n")
    sys.stderr.flush()
