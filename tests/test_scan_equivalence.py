"""Scanning a big log gives what reading every line of it gives."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.postmortems import FIXTURES, SAME_EVERYWHERE, case_names
from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import InputReport, Postmortem
from xidwatch.core.logtext import LogLine, parse_line
from xidwatch.core.parse import NOTHING, Further
from xidwatch.explain import explain_records
from xidwatch.sources.logfile import LogInputs
from xidwatch.sources.probe import HEAD_BYTES
from xidwatch.sources.scan import SMALL_BYTES

ORDINARY = (
    "systemd[1]: Started Session 2 of user svc.",
    'kubelet[77]: I0412 11:22:33.123456 prober.go:107] "Probe succeeded" probeType="Liveness"',
    "dhclient[5]: DHCPREQUEST for 10.0.0.9 on eno1 to 10.0.0.1 port 67 (xid=0x5c9a51e7)",
    "sshd[612]: Accepted publickey for svc from 10.0.0.7 port 51234 ssh2",
)
LOG = "input.log"


def read(paths: list[Path], rules: RuleTable, *, whole: bool) -> Postmortem:
    """The postmortem of these files; `whole` gives every line to the parsers."""
    options = SAME_EVERYWHERE
    assert options.tz is not None
    assert options.now_us is not None
    inputs = LogInputs([str(path) for path in paths], tz=options.tz, year=options.year, now_us=options.now_us, whole=whole)
    return explain_records(inputs, options, rules, reports=lambda: tuple(map(comparable, inputs.reports)))


def comparable(report: InputReport) -> InputReport:
    """Without the notes: how often the clock ran backwards is counted over the lines that were read."""
    return replace(report, notes=())


def filler(lines: int, second: int) -> bytes:
    """Ordinary syslog lines, ten a second, of the days before a case's own."""
    day, hour, minute = 1 + second // 86400 % 28, second // 3600 % 24, second // 60 % 60
    head = f"Jan {day:2d} {hour:02d}:{minute:02d}:{second % 60:02d} node01 "
    return "".join(f"{head}{ORDINARY[at % len(ORDINARY)]}\n" for at in range(lines)).encode()


def pad(size: int, second: int = 0) -> bytes:
    """At least so many bytes of ordinary lines."""
    text = bytearray()
    while len(text) < size:
        text += filler(400, second)
        second += 40
    return bytes(text)


def bare(size: int) -> bytes:
    """Lines without a time."""
    return b"an ordinary line of some program, nothing to see\n" * (size // 49 + 1)


PAD = pad(SMALL_BYTES)
BARE = bare(SMALL_BYTES)
HEAD = pad(HEAD_BYTES)


def agree(log: Path, content: bytes, rules: RuleTable) -> None:
    """Scanning and plain reading of these bytes agree."""
    log.write_bytes(content)
    assert read([log], rules, whole=True) == read([log], rules, whole=False)


def lines_of(name: str) -> list[LogLine]:
    """The lines of a case without their decoration."""
    return [parse_line(line) for line in (FIXTURES / name / LOG).read_text("utf-8", "replace").splitlines()]


@pytest.mark.parametrize("name", case_names())
def test_scan_equals_plain_reading_of_a_case(name: str, tmp_path: Path, rules: RuleTable) -> None:
    """A case with ordinary lines behind it, or before and behind, has the same events, incidents, context and report."""
    case = (FIXTURES / name / LOG).read_bytes()
    case += b"" if case.endswith(b"\n") else b"\n"
    agree(tmp_path / "before", case + PAD, rules)
    agree(tmp_path / "amid", BARE[: 49 * 400] + case + BARE[: 49 * 100] + PAD, rules)
    # Times that count from the line before need that line: such a log is read whole when its first lines are of that kind.
    if not any(line.delta_us is not None for line in lines_of(name)):
        agree(tmp_path / "behind", PAD + case + filler(3, 900_000), rules)


STORM = (
    "NVRM: Xid (PCI:0000:07:00): 45, pid=4711, name=python3, Ch {channel:08x}",
    "NVRM: Xid (PCI:0000:0f:00): 45, pid=4712, name=python3, Ch {channel:08x}",
    "NVRM: Xid (PCI:0000:07:00): 95, pid=4711, name=vllm, Uncontained: LTC (0x{slice:x},0x1). RST: Yes, D-RST: No",
    "NVRM: Xid (PCI:0000:07:00): 31, pid=4711, name=vllm, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_2 "
    "faulted @ 0x7f21_4a00{channel:04x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    "NVRM: Xid (PCI:0000:07:00): 13, pid=4711, name=vllm, Graphics SM Warp Exception on (GPC {slice}, TPC 1, SM 0): Out Of Range",
    "NVRM: Xid (PCI:0000:07:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x00000000012a{channel:04x}) marked",
    "NVRM: Xid (PCI:0000:07:00): 154, GPU recovery action changed from 0x0 (None) to 0x{slice:x} (Reset)",
    "NVRM: Xid (broken): x",
    "eth0: link becomes ready",
    "Linux version 6.8.0",
    "INFO: task python3:{channel} blocked for more than 122 seconds.",
)
DECORATIONS = (
    "Mar  1 {h:02d}:{m:02d}:{s:02d} node{node} kernel: [{up:>12}] ",
    "2026-03-01T{h:02d}:{m:02d}:{s:02d}.{late:06d}+00:00 node{node} kernel: [{up:>12}] ",
    "2026-03-01T{h:02d}:{m:02d}:{s:02d}.{late:06d}+00:00 node{node} kernel: ",
    "Mar  1 {h:02d}:{m:02d}:{s:02d} node{node} kernel: ",
    "[{up:>12}] ",
    "",
)


def storm(dice: random.Random, lines: int) -> bytes:
    """Faults by the dozen a second, mostly of one or two kinds, each second with delays of its own."""
    decoration = dice.choice(DECORATIONS)
    clock_us = dice.randrange(10**10) if dice.random() < 0.8 else 0
    step_us = dice.choice((0, 7, 1000, 30_000, 400_000, 7_000_000))
    kinds = dice.sample(STORM[:6], 2) if dice.random() < 0.7 else list(STORM)
    text = []
    for _ in range(lines):
        clock_us += dice.choice((0, 1, 1, 2)) * step_us
        line = dice.choice(kinds if dice.random() < 0.99 else STORM)
        late = 10**10 + clock_us + dice.randrange(2) * dice.randrange(200_000)
        second = late // 10**6
        times = {"h": second // 3600 % 24, "m": second // 60 % 60, "s": second % 60, "late": late % 10**6}
        node = 1 + (dice.random() < 0.02)
        head = decoration.format(**times, up=f"{clock_us // 10**6}.{clock_us % 10**6:06d}", node=node)
        text.append(head + line.format(channel=dice.randrange(40), slice=dice.randrange(3)))
    return "\n".join(text).encode() + b"\n"


@pytest.mark.parametrize("seed", range(30))
def test_storms_are_counted_as_if_every_line_were_read(seed: int, tmp_path: Path, rules: RuleTable) -> None:
    """However the lines of a storm differ, the same events with the same counts, first and last lines and times come out."""
    dice = random.Random(seed)
    parts = [storm(dice, dice.choice((3, 50, 700))) for _ in range(4)]
    log = tmp_path / "storm"
    agree(log, parts[0] + parts[1] + PAD + parts[2] + filler(30, 7) + parts[3], rules)
    agree(log, b"".join(parts), rules)


def mixes(name: str) -> bool:
    """Whether a case may stand in the middle of another log: its dates name their year, and no time counts from the line before.

    A log's dates ascend; where they name no year and are put together at random, each line would decide the year of the next.
    """
    return not any(line.delta_us is not None or (line.stamp is not None and line.stamp.year is None) for line in lines_of(name))


MIXED = [name for name in case_names() if mixes(name)]


@pytest.mark.parametrize("seed", range(16))
def test_scan_equals_plain_reading_of_mixed_cases(seed: int, tmp_path: Path, rules: RuleTable) -> None:
    """Cases one behind the other, with ordinary lines between their lines, and cut at any place."""
    dice = random.Random(seed)
    second = 0
    parts = [PAD if seed % 2 else BARE[: 49 * 400] + PAD]
    for name in dice.sample(MIXED, 8):
        lines = (FIXTURES / name / LOG).read_bytes().split(b"\n")
        if dice.random() < 0.5:
            at = dice.randrange(len(lines))
            lines[at:at] = filler(dice.choice((1, 3, 8, 40, 300)), second).split(b"\n")
        second += dice.randrange(10**5)
        parts += [b"\n".join(lines), b"\n", filler(dice.choice((1, 20, 600)), second)]
    content = b"".join(parts)
    agree(tmp_path / "whole", content, rules)
    agree(tmp_path / "cut", content[dice.randrange(2000) : -dice.randrange(1, 2000)], rules)


@pytest.mark.parametrize("seed", range(8))
def test_odd_bytes_change_nothing(seed: int, tmp_path: Path, rules: RuleTable) -> None:
    """Carriage returns, NUL bytes, bytes that are no UTF-8 and lines of many pieces are read alike by both."""
    dice = random.Random(seed)
    end = dice.choice((b"\r\n", b"\n", b"\0\n"))
    lines = PAD.split(b"\n")
    for name in dice.sample(MIXED, 6):
        lines += (FIXTURES / name / LOG).read_bytes().split(b"\n")
        lines += [dice.choice((b"\0" * 40, b"\xff\xfe\x80 odd", b"x" * 200_000, b"", b"\r")), *filler(30, 7).split(b"\n")]
    content = end.join(lines)
    agree(tmp_path / "log", content if dice.random() < 0.5 else content + end, rules)


@pytest.mark.parametrize("seed", range(6))
def test_several_logs_are_scanned_as_they_are_read(seed: int, tmp_path: Path, rules: RuleTable) -> None:
    """Several big logs together, the same case in some of them, give what reading every line of each gives."""
    dice = random.Random(seed)
    paths = []
    shared = [(FIXTURES / name / LOG).read_bytes() for name in dice.sample(MIXED, 2)]
    for at in range(3):
        parts = [
            pad(SMALL_BYTES, 50_000 * at),
            *((FIXTURES / name / LOG).read_bytes() for name in dice.sample(MIXED, 3)),
            *shared[: dice.randrange(3)],
        ]
        paths.append(tmp_path / f"log{at}")
        paths[-1].write_bytes(b"\n".join(parts) + b"\n" + filler(dice.choice((2, 400)), 900_000 + 50 * at))
    assert read(paths, rules, whole=True) == read(paths, rules, whole=False)


def entry(message: str, second: int) -> bytes:
    """A line of `journalctl -o json` up to its text; `message` is JSON."""
    return f'{{"__REALTIME_TIMESTAMP":"{1_772_000_000 + second}000000","_TRANSPORT":"kernel","MESSAGE":{message}}}\n'.encode()


def json_pad(second: int) -> bytes:
    """Ordinary lines of `journalctl -o json`."""
    return b"".join(entry(json.dumps(ORDINARY[at % len(ORDINARY)]), second + at // 10) for at in range(500))


def as_bytes(text: str) -> str:
    """A text as journald's JSON has one that is not UTF-8."""
    return json.dumps([*text.encode(), 0xFF], separators=(",", ":"))


def web_safe(text: str) -> str:
    """A JSON string as PHP and Go write it for a web page."""
    escapes = {"'": r"\u0027", "&": r"\u0026", "<": r"\u003c", ">": r"\u003E", "/": r"\/"}
    return "".join(escapes.get(letter, letter) for letter in json.dumps(text))


def all_escaped(text: str) -> str:
    """A JSON string without one plain letter."""
    return '"' + "".join(rf"\u{ord(letter):04x}" for letter in text if ord(letter) < 1 << 16) + '"'


@pytest.mark.parametrize("name", case_names())
def test_spellings_of_json_are_scanned_as_they_are_read(name: str, tmp_path: Path, rules: RuleTable) -> None:
    """A case's texts as an array of bytes, and with characters escaped, in a big JSON log are found as if each line were read."""
    texts = [line.text for line in lines_of(name) if line.text.strip()]
    parts = [json_pad(0)]
    for nth, spelt in enumerate((as_bytes, web_safe, all_escaped), 1):
        parts += [*(entry(spelt(text), 3600 * nth + at) for at, text in enumerate(texts)), json_pad(3600 * nth + 1800)]
    agree(tmp_path / "log", b"".join(parts), rules)


@pytest.mark.parametrize("width", range(12, 60, 2))
def test_a_hung_task_in_a_narrow_box_is_found(width: int, tmp_path: Path, rules: RuleTable) -> None:
    """Wherever a terminal breaks the line, the scan finds what reading every line finds."""
    line = "[ 1234.567890] INFO: task python3:4711 blocked for more than 122 seconds."
    box = f"{line[: width + 15]}\n{line[width + 15 :]}\n".encode()
    agree(tmp_path / "box", PAD + box + filler(400, 900_000), rules)


class Content:
    """A reader that wants no line behind the latest."""

    def further(self) -> Further:
        """Nothing."""
        return NOTHING

    def told(self) -> None:
        """Nothing."""


def test_a_line_as_long_as_its_file_is_not_parsed_whole(tmp_path: Path) -> None:
    """In a line of 24 MiB hardly more than the first two are looked at for a time, and the fault behind it is found."""
    log = tmp_path / "log"
    log.write_bytes(b"some words of a program " * (16 << 20 >> 4) + b"\nNVRM: Xid (PCI:0000:07:00): 79, fallen off the bus.\n")
    options = SAME_EVERYWHERE
    assert options.tz is not None
    assert options.now_us is not None
    inputs = LogInputs([str(log)], tz=options.tz, year=options.year, now_us=options.now_us)
    inputs.reader = Content()
    texts = [record.text for record in inputs]
    assert sum(map(len, texts)) < 4 << 20
    assert any("Xid (" in text for text in texts)


def test_new_years_pass_between_faults(tmp_path: Path, rules: RuleTable) -> None:
    """Dates that name no year are put into the right one though no line near New Year is of ours."""
    months = ("Oct", "Nov", "Dec", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan")
    text = []
    for nth, month in enumerate(months):
        for line in range(12_000):
            clock = f"{month} {1 + line * 28 // 12_000:2d} {line // 500:02d}:{line // 60 % 60:02d}:{line % 60:02d}"
            fault = line == 100 and nth in (0, 8, 15)
            said = "NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus." if fault else "usb 1-1: new device"
            text.append(f"{clock} node01 kernel: {said}\n")
    agree(tmp_path / "long", "".join(text).encode(), rules)


def test_all_cases_in_one_log(tmp_path: Path, rules: RuleTable) -> None:
    """Faults that lie across the blocks in which a big log is read are whole."""
    parts = []
    for nth, name in enumerate(MIXED):
        parts += [filler(150 + nth, nth * 4000), (FIXTURES / name / LOG).read_bytes(), b"\n"]
    log = b"".join(parts)
    agree(tmp_path / "all", log * (1 + (5 << 20) // len(log)), rules)


def packed_agree(log: Path, content: bytes, rules: RuleTable) -> None:
    """A packed log gives what the same bytes give when every line is read; its own size and name aside."""
    log.write_bytes(content)
    packed = log.with_suffix(".gz")
    packed.write_bytes(gzip.compress(content, compresslevel=1))
    told, expected = read([packed], rules, whole=False), read([log], rules, whole=True)
    assert expected.inputs[0].records == told.inputs[0].records
    assert replace(expected, inputs=()) == replace(told, inputs=())


@pytest.mark.parametrize("seed", range(12))
def test_packed_logs_without_years_are_searched_once(seed: int, tmp_path: Path, rules: RuleTable) -> None:
    """Where a packed log's end tells the year, what is kept until then is what is wanted: faults, neighbours, dates, ends."""
    dice = random.Random(seed)
    parts = [HEAD]
    for at, name in enumerate(dice.sample(MIXED, 6)):
        case = (FIXTURES / name / LOG).read_bytes()
        parts += [case, b"\n", filler(dice.choice((1, 2, 40, 290, 20_000)), 1000 * at)]
    parts += [b"x" * dice.choice((1, 70_000, 300_000)), b"\n"] if dice.random() < 0.4 else []
    packed_agree(tmp_path / "log", b"".join(parts), rules)


def test_packed_storms_are_read_twice(tmp_path: Path, rules: RuleTable) -> None:
    """What is too much to be kept until the end has been seen is unpacked once more."""
    line = b"Jan  3 10:00:00 node01 kernel: [  100.000000] NVRM: Xid (PCI:0000:07:00): 45, pid=4711, name=python3, Ch %08x\n"
    packed_agree(tmp_path / "log", HEAD + b"".join(line % (n % 512) for n in range(170_000)) + PAD, rules)
