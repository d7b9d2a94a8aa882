"""Whatever a log says and however long it goes on, the engine's memory and the cost of one more line stay what they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import Engine, active
from xidwatch.core.record import Record

START_US = 1_790_000_000_000_000
LINES = 2500
_SLOT = "PCI:{high:04x}:{low:02x}:00"
ENDLESS = {
    "programs on slots that are not there": f"NVRM: Xid ({_SLOT}): 43, pid={{n}}, name=x, Ch 00000008",
    "GPUs lost that are not there": f"NVRM: Xid ({_SLOT}): 79, pid={{n}}, name=x, GPU has fallen off the bus.",
    "rumours": f"process 'NVRM: Xid ({_SLOT}): 79, pid={{n}}, name=x, GPU has fallen off the bus.' started with executable stack",
    "processes": "NVRM: Xid (PCI:0000:3b:00): 43, pid={n}, name=p{n}, Ch 00000008",
    "numbers": "NVRM: Xid (PCI:0000:3b:00): {n}, pid=7, name=x, Ch 00000008",
    "hung tasks": "INFO: task p{n}:{n} blocked for more than 120 seconds.",
    "bridges": "pcieport {high:04x}:{low:02x}:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
    "crashes": "python3[{n}]: segfault at 0 ip 000055d0c0ffee00 sp 00007ffd00000000 error 4 in python3[55d0c0ff0000+1000]",
}


@pytest.fixture
def lived(rules: RuleTable) -> Callable[[str], Engine]:
    """An engine that has seen one line again and again, each time with another number."""

    def live(text: str) -> Engine:
        engine = Engine(rules)
        for n in range(LINES):
            now_us = START_US + n * 2000
            line = text.format(n=n, high=n >> 8, low=n & 0xFF)
            record = Record(
                text=line, seq=n, wall_us=now_us, since_boot_us=n * 2000, boot_id="b", host="h", trusted="kernel", timed=True
            )
            engine.feed("kmsg", record, now_us)
            if n % 50 == 49:
                engine.settle(now_us, everything=True)
                engine.changes(now_us)
        return engine

    return live


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_endless_text_fills_no_memory(text: str, lived: Callable[[str], Engine]) -> None:
    """Cases, their members and demands, incidents and context are bounded."""
    engine = lived(text)
    cases = engine.correlator.cases
    assert len(cases) <= 700
    assert len(engine.incidents) <= 700
    assert all(len(case.folds) <= 1001 and len(case.wishes) <= 500 for case in cases)
    assert len(engine.correlator.context) <= 500
    assert len(engine.correlator.loose) == 0


def test_what_is_endless_does_not_push_out_what_is_grave(rules: RuleTable) -> None:
    """A lost GPU stays active under endless programs' faults on slots that are not there."""
    engine = Engine(rules)
    lines = ["NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=x, GPU has fallen off the bus."]
    lines += [f"NVRM: Xid (PCI:{n >> 8:04x}:{n & 0xFF:02x}:01): 43, pid={n}, name=x, Ch 00000008" for n in range(1500)]
    for n, line in enumerate(lines):
        now_us = START_US + n * 2000
        record = Record(
            text=line, seq=n, wall_us=now_us, since_boot_us=n * 2000, boot_id="b", host="h", trusted="kernel", timed=True
        )
        engine.feed("kmsg", record, now_us)
        engine.settle(now_us, everything=True)
        if n % 50 == 0:
            engine.changes(now_us)
    engine.changes(START_US + 10_000_000)
    assert "0000:3b:00.0" in {gpu for incident in active(list(engine.incidents.values())) for gpu in incident.gpus}


def test_end_of_what_is_too_many_is_told(rules: RuleTable) -> None:
    """What is dropped because there is too much of it ends for followers too: nothing stays open that nobody watches."""
    engine, open_ = Engine(rules), set[str]()
    for n in range(1500):
        now_us = START_US + n * 2000
        line = f"NVRM: Xid (PCI:{n >> 8:04x}:{n & 0xFF:02x}:01): 43, pid={n}, name=x, Ch 00000008"
        record = Record(
            text=line, seq=n, wall_us=now_us, since_boot_us=n * 2000, boot_id="b", host="h", trusted="kernel", timed=True
        )
        engine.feed("kmsg", record, now_us)
        engine.settle(now_us, everything=True)
        for change in engine.changes(now_us):
            (open_.discard if change.incident.state == "resolved" else open_.add)(change.incident.id)
    for change in engine.changes(START_US + 3_000_000):
        (open_.discard if change.incident.state == "resolved" else open_.add)(change.incident.id)
    assert open_ == {incident.id for incident in active(list(engine.incidents.values()))}
