"""What the hook's program is still to be told, and what it was told already. Decides; does nothing itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
"""One line of `xidwatch.follow/1`."""
_SEVERITIES = ("info", "warning", "critical")
_MOST_WAITING = 1_000
_MOST_TOLD = 10_000


@dataclass(slots=True)
class _Told:
    """What the program was told of one incident.

    Attributes:
        keys: (change, severity, state) of each telling, in order.
        last: The message of the latest telling; None once the incident has ended.
    """

    keys: list[tuple[str, str, str]] = field(default_factory=list)
    last: Message | None = None


class Ledger:
    """Tells each change of an incident once, one at a time for each incident, the newest state only.

    The program sees `opened` first, whatever the daemon calls the change by which an incident became worth telling, and
    `ended` also when it ended while nobody listened.

    Attributes:
        dropped_total: Tellings that found no room; the incident is told when the daemon next says what is present.
    """

    def __init__(self, min_severity: str = "warning", *, most_waiting: int = _MOST_WAITING) -> None:
        """An incident that has always been below `min_severity` is never told."""
        self.dropped_total = 0
        self._min, self._most = _SEVERITIES.index(min_severity), most_waiting
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._waiting: OrderedDict[str, Message] = OrderedDict()
        self._busy: dict[str, Message] = {}

    def take(self, message: Message) -> None:
        """Take one line of the daemon's socket; a kind that is not known is passed over."""
        if message.get("maintenance"):
            # Planned work tells nobody; the daemon says what is present when it is over.
            self._waiting.clear()
        elif message.get("change") == "watching":
            self._end_all_but(message)
        elif isinstance(message.get("incident"), dict):
            self._take_change(message)

    def next(self) -> Message | None:
        """What to tell now; None when nothing waits. Each must be answered with `done` or `failed`."""
        for id_, message in self._waiting.items():
            if id_ not in self._busy:
                del self._waiting[id_]
                self._busy[id_] = message
                return message
        return None

    def done(self, message: Message) -> None:
        """The program has been told."""
        id_ = _id(message)
        self._busy.pop(id_, None)
        told = self._told.setdefault(id_, _Told())
        told.keys.append(_key(message))
        told.last = None if message["change"] == "ended" else message
        self._told.move_to_end(id_)
        self._forget()

    def failed(self, message: Message) -> None:
        """The program could not be run, so that nothing was told."""
        self._busy.pop(_id(message), None)

    def as_json(self) -> dict[str, Any]:
        """What has to outlive a restart."""
        return {
            "schema": "xidwatch.hook/1",
            "told": {id_: {"keys": [list(key) for key in told.keys], "last": told.last} for id_, told in self._told.items()},
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take back what `as_json` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        if kept["schema"] != "xidwatch.hook/1":
            raise ValueError(f"schema {kept['schema']!r}")
        for id_, entry in kept["told"].items():
            keys = [(str(change), str(severity), str(state)) for change, severity, state in entry["keys"]]
            self._told[id_] = _Told(keys, entry["last"])

    def _take_change(self, message: Message) -> None:
        id_, told = _id(message), self._told.get(_id(message))
        known = told is not None or id_ in self._waiting or id_ in self._busy
        change = message["change"]
        if change == "ended":
            if not known:
                return
        elif not known:
            if _SEVERITIES.index(message["incident"]["severity"]) < self._min:
                return
            change = "opened"
        elif change == "present":
            before = self._waiting.get(id_) or self._busy.get(id_)
            latest = _key(before)[1:] if before is not None else told.keys[-1][1:] if told is not None else None
            if latest == _key(message)[1:]:
                return
            change = "changed"
        self._put({**message, "change": change})

    def _put(self, message: Message) -> None:
        id_, told = _id(message), self._told.get(_id(message))
        waiting = self._waiting.get(id_)
        if waiting is not None and waiting["change"] == "opened" and message["change"] == "changed":
            message = {**message, "change": "opened"}
        busy = self._busy.get(id_)
        if (told is not None and _key(message) in told.keys) or (busy is not None and _key(busy) == _key(message)):
            return
        if waiting is None and len(self._waiting) >= self._most and not self._made_room(message):
            return
        self._waiting[id_] = message

    def _made_room(self, message: Message) -> bool:
        """Whether a lesser one could be dropped for it."""
        self.dropped_total += 1
        least = min(self._waiting, key=lambda id_: _rank(self._waiting[id_]))
        if _rank(self._waiting[least]) >= _rank(message):
            return False
        del self._waiting[least]
        return True

    def _end_all_but(self, message: Message) -> None:
        """What was told and is not present any more has ended while nobody listened."""
        present = set(message.get("incidents", ()))
        open_ = {id_: told.last for id_, told in self._told.items() if told.last is not None}
        open_ |= {**self._waiting, **self._busy}
        for id_, last in open_.items():
            if id_ not in present and last["change"] != "ended":
                incident = {**last["incident"], "state": "resolved"}
                self._put({**last, "change": "ended", "time_us": message.get("time_us"), "incident": incident})

    def _forget(self) -> None:
        """Ended incidents first, then whichever was told longest ago."""
        while len(self._told) > _MOST_TOLD:
            ended = next((id_ for id_, told in self._told.items() if told.last is None), None)
            del self._told[next(iter(self._told)) if ended is None else ended]


def _id(message: Message) -> str:
    return str(message["incident"]["id"])


def _key(message: Message) -> tuple[str, str, str]:
    incident = message["incident"]
    return str(message["change"]), str(incident["severity"]), str(incident["state"])


def _rank(message: Message) -> int:
    return _SEVERITIES.index(message["incident"]["severity"])
