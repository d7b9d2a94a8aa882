from __future__ import annotations

import json
from typing import Any

import pytest

from xidwatch.hookledger import Ledger, Message


def told(change: str, id_: str = "a", severity: str = "critical", **more: Any) -> Message:
    """One line of the daemon's socket."""
    state = more.pop("state", "resolved" if change == "ended" else "active")
    incident = {"id": id_, "severity": severity, "state": state, "title": more.pop("title", "")}
    return {"schema": "xidwatch.follow/1", "change": change, "maintenance": False, "incident": incident, **more}


def watching(*ids: str, maintenance: bool = False) -> Message:
    """The end of what the daemon says first."""
    return {"schema": "xidwatch.follow/1", "change": "watching", "maintenance": maintenance, "incidents": list(ids)}


def tell_all(ledger: Ledger) -> list[tuple[str, str]]:
    """(change, id) of everything that is to be told now, told."""
    found = []
    while (message := ledger.next()) is not None:
        found.append((message["change"], message["incident"]["id"]))
        ledger.done(message)
    return found


def take(ledger: Ledger, *messages: Message) -> list[tuple[str, str]]:
    """What is told of each message in turn, with nothing waiting in between."""
    found = []
    for message in messages:
        ledger.take(message)
        found += tell_all(ledger)
    return found


def test_life_of_an_incident_is_told_once() -> None:
    """It opens, changes and ends: three tellings; the same change again is none."""
    changes = [told("opened", severity="warning"), told("changed"), told("changed"), told("ended"), told("ended")]
    assert [("opened", "a"), ("changed", "a"), ("ended", "a")] == take(Ledger(), *changes)


def test_restart_of_the_daemon_tells_nothing_again() -> None:
    """What was told and is merely present is not told again, also when the hook itself was restarted."""
    ledger = Ledger()
    assert [("opened", "a")] == take(ledger, told("opened"))
    assert [] == take(ledger, told("present"), watching("a"))
    restarted = Ledger()
    restarted.restore(json.loads(json.dumps(ledger.as_json())))
    assert [] == take(restarted, told("present"), watching("a"))


def test_what_happened_while_nobody_listened_is_told() -> None:
    """Present and never told: opened. Present with another severity: changed. Told and not present: ended, in its last state."""
    ledger = Ledger()
    take(ledger, told("opened", "a", "warning"), told("opened", "b"))
    ledger.take(told("present", "a"))
    ledger.take(told("present", "c"))
    ledger.take(watching("a", "c"))
    assert [("changed", "a"), ("opened", "c"), ("ended", "b")] == tell_all(ledger)
    assert [] == take(ledger, told("present", "a"), told("present", "c"), watching("a", "c"))


def test_lesser_incidents_are_not_told_until_they_rise() -> None:
    """Below the least severity nothing is told; the first that the program hears is `opened`, and of an end only after that."""
    ledger = Ledger("critical")
    assert [] == take(ledger, told("opened", severity="warning"), told("ended", "b", "warning"))
    rises = take(ledger, told("changed"), told("changed", severity="warning"), told("ended", severity="warning"))
    assert [("opened", "a"), ("changed", "a"), ("ended", "a")] == rises


def test_nothing_is_told_during_maintenance_and_what_is_left_after_it() -> None:
    """What opens and ends in planned work tells nobody; what is still there afterwards does, and what ended in it is ended."""
    ledger = Ledger()
    take(ledger, told("opened", "before"))
    during = [
        told("opened", "b", maintenance=True),
        told("opened", "c", maintenance=True),
        told("ended", "before", maintenance=True),
        told("ended", "c", maintenance=True),
        watching("b", maintenance=True),
    ]
    assert [] == take(ledger, *during)
    assert [("opened", "b"), ("ended", "before")] == take(ledger, told("present", "b"), watching("b"))


def test_what_waits_when_maintenance_begins_is_not_told() -> None:
    """A queue is no reason to page into planned work."""
    ledger = Ledger()
    ledger.take(told("opened"))
    ledger.take(watching("a", maintenance=True))
    assert [] == tell_all(ledger)


def test_changes_that_wait_become_one() -> None:
    """Of several changes of one incident the program is told the newest state, as what it has not heard yet."""
    ledger = Ledger()
    ledger.take(told("opened", "z"))
    ledger.take(told("opened", title="old"))
    ledger.take(told("changed", title="new", severity="warning"))
    assert "z" == (ledger.next() or {})["incident"]["id"]
    message = ledger.next() or {}
    assert ("opened", "new") == (message["change"], message["incident"]["title"])


def test_one_at_a_time_for_each_incident() -> None:
    """While the program is told of an incident, its next change waits and others do not."""
    ledger = Ledger()
    ledger.take(told("opened"))
    first = ledger.next()
    assert first is not None
    ledger.take(told("ended"))
    ledger.take(told("opened", "b"))
    assert [("opened", "b")] == tell_all(ledger)
    ledger.done(first)
    assert [("ended", "a")] == tell_all(ledger)


def test_what_could_not_be_told_is_told_when_present_again() -> None:
    """A program that cannot be started was told nothing."""
    ledger = Ledger()
    ledger.take(told("opened"))
    ledger.failed(ledger.next() or {})
    assert [("opened", "a")] == take(ledger, told("present"), watching("a"))


def test_a_full_queue_keeps_the_worst() -> None:
    """A storm of incidents is told in bounded memory, and what is dropped is counted."""
    ledger = Ledger("info", most_waiting=2)
    for number, severity in enumerate(["info", "warning", "critical", "info"]):
        ledger.take(told("opened", str(number), severity))
    assert 2 == ledger.dropped_total
    assert [("opened", "1"), ("opened", "2")] == tell_all(ledger)


def test_memory_is_bounded() -> None:
    """Ended incidents are forgotten first."""
    ledger = Ledger()
    take(ledger, told("opened", "stays"))
    for number in range(10_050):
        take(ledger, told("opened", str(number)), told("ended", str(number)))
    kept = ledger.as_json()["told"]
    assert 10_000 == len(kept)
    assert "stays" in kept


@pytest.mark.parametrize(
    "kept", [{}, {"schema": "xidwatch.hook/9"}, {"schema": "xidwatch.hook/1", "told": {"a": {"keys": [1]}}}]
)
def test_a_torn_memory_is_an_error(kept: dict[str, Any]) -> None:
    """What is not its own is not taken for it."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        Ledger().restore(kept)
