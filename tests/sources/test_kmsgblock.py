"""Passing over what nobody wants gives what reading every record gives."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.postmortems import FIXTURES, case_names
from xidwatch.core.classify import RuleTable
from xidwatch.core.engine import Engine, Settled
from xidwatch.core.parse import NOTHING, Further
from xidwatch.core.record import Record
from xidwatch.sources.kmsg import KmsgSource
from xidwatch.sources.kmsgblock import Block
from xidwatch.sources.live import SourceHealth
from xidwatch.sources.printk_clock import PrintkClock

NOISE = (
    "docker0: port 1(veth5a3f21c) entered blocking state",
    "usb 1-1: new high-speed USB device number 4 using xhci_hcd",
    "python3 D 0000 some text that looks like a state",
    "caf\\xc3\\xa9 in a name",
    " ? looks_like_a_frame+0x12/0x34",
)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


class Still(PrintkClock):
    """Takes no notice of when a record arrives, which is another time for each way of reading."""

    def arrived(self, since_boot_us: int) -> None:
        """Nothing is learned."""


def raw(number: int, text: str, further: str = "") -> str:
    """One record as /dev/kmsg has it."""
    shown = "".join(
        letter if " " <= letter < "\x7f" and letter != "\\" else "".join(f"\\x{byte:02x}" for byte in letter.encode())
        for letter in text
    )
    return f"4,{number},{1_000_000 + 500 * number},-;{shown}\n{further}"


def stream(name: str, dice: random.Random) -> bytes:
    """A fixture's lines as records, noise between them, some numbers left out, dictionaries behind some."""
    lines = (FIXTURES / name / "input.log").read_text(encoding="utf-8", errors="replace").splitlines()
    number, records = 0, []
    for line in lines[:3000]:
        for _ in range(dice.choice((0, 0, 0, 1, 3))):
            number += 1
            records.append(raw(number, dice.choice(NOISE)))
        number += 1 + (dice.random() < 0.01) * dice.randrange(300)
        records.append(raw(number, line[line.find("]") + 1 :].strip(), dice.choice(("", "", " SUBSYSTEM=pci\n DEVICE=+pci\n"))))
    return "".join(records).encode()


def lived(path: Path, data: bytes, rules: RuleTable, *, every: bool) -> tuple[list[Settled], SourceHealth]:
    """What an engine makes of the stream, in pieces of a pipe; `every`: it sees all records."""
    dice, engine = random.Random(3), Engine(rules)
    source = KmsgSource(str(path), clock=Still(lambda: 1_790_000_000_000_000, lambda: 50_000_000))
    writer, found = os.open(path, os.O_WRONLY | os.O_NONBLOCK), list[Settled]()
    while data:
        size = os.write(writer, data[: dice.choice((20, 300, 4000, 60_000))])
        data = data[size:]
        while records := drained(source, engine, every=every):
            found += engine.settle(records[-1].wall_us or 0)
    found += engine.settle(0, everything=True)
    health = source.health()
    source.close()
    os.close(writer)
    return found, health


def drained(source: KmsgSource, engine: Engine, *, every: bool) -> list[Record]:
    """One reading, fed to the engine record by record."""
    records = []
    for record in source.read(50) if every else source.follow(lambda: engine.further("kmsg"), 50):
        engine.feed("kmsg", record, record.wall_us or 0)
        records.append(record)
    return records


@pytest.mark.parametrize("name", case_names())
def test_what_is_passed_over_changes_nothing(name: str, rules: RuleTable, tmp_path: Path) -> None:
    """Events, their lines and details, and the source's counters are the same as when every record is looked at."""
    data = stream(name, random.Random(name))
    os.mkfifo(tmp_path / "kmsg")
    seen, health = lived(tmp_path / "kmsg", data, rules, every=True)
    passed, same_health = lived(tmp_path / "kmsg", data, rules, every=False)
    assert [(one.identity, one.item) for one in seen] == [(one.identity, one.item) for one in passed]
    assert health == same_health


def test_first_record_is_always_handed_out(tmp_path: Path) -> None:
    """It tells which boot the source is in; of the others those with a word of ours."""
    os.mkfifo(tmp_path / "kmsg")
    source = KmsgSource(str(tmp_path / "kmsg"))
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, "".join(raw(number, NOISE[0]) for number in range(1, 900)).encode() + raw(900, XID).encode())
    assert [1, 900] == [record.seq for record in source.follow(lambda: NOTHING)]
    assert 900 == source.health().records_total
    os.write(writer, "".join(raw(number, NOISE[0]) for number in range(901, 1900)).encode())
    assert [] == list(source.follow(lambda: NOTHING))
    assert (1899, 0) == (source.health().records_total, source.health().lost_records_total)
    source.close()
    os.close(writer)


def test_position_is_behind_what_was_handed_out(tmp_path: Path) -> None:
    """A reading that stops in the middle of a block resumes behind the last record that it gave."""
    os.mkfifo(tmp_path / "kmsg")
    source = KmsgSource(str(tmp_path / "kmsg"))
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, raw(1, NOISE[0]).encode())
    list(source.follow(lambda: NOTHING))
    os.write(writer, "".join(raw(number, XID if number % 10 == 0 else NOISE[0]) for number in range(2, 100)).encode())
    assert [10, 20] == [record.seq for record in source.follow(lambda: NOTHING, 2)]
    assert source.position().endswith(":20")
    assert [30, 40, 50, 60, 70, 80, 90] == [record.seq for record in source.follow(lambda: NOTHING)]
    assert source.position().endswith(":99")
    source.close()
    os.close(writer)


@pytest.mark.parametrize(
    "text",
    ["nonsense\n", "4,2,x,-;text\n", raw(1, "a") + raw(3, "c"), raw(2, "b") + raw(1, "a"), raw(1, "a") + "\n", ""],
)
def test_block_that_is_not_in_order_is_read_record_by_record(text: str) -> None:
    """Whatever is not as the kernel writes it is looked at closely."""
    assert (None, None) == (Block(text.encode()).first, Block(text.encode()).last)


def test_what_an_open_event_wants_is_handed_out() -> None:
    """So many of the next whatever they say, so many more with a word of its own; beyond that only our words."""
    texts = [XID, "a", "b", "c frame", "d", "e frame", "f", XID, "g"]
    block = Block("".join(raw(number, text) for number, text in enumerate(texts)).encode())
    answers = iter([NOTHING, Further(1, 4, ("frame",)), Further(0, 3, ("frame",)), NOTHING, NOTHING])
    wanted = [int(line.split(b",")[1]) for line in block.wanted(lambda: next(answers), -1)]
    assert [0, 1, 3, 7] == wanted
