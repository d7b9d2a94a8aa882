"""Scanning a big log gives what reading every line of it gives."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.postmortems import FIXTURES, SAME_EVERYWHERE, case_names
from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import InputReport, Postmortem
from xidwatch.explain import explain_records
from xidwatch.sources.logfile import LogInputs
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


def agree(log: Path, content: bytes, rules: RuleTable) -> None:
    """Scanning and plain reading of these bytes agree."""
    log.write_bytes(content)
    assert read([log], rules, whole=True) == read([log], rules, whole=False)


@pytest.mark.parametrize("name", case_names())
def test_scan_equals_plain_reading_of_a_case(name: str, tmp_path: Path, rules: RuleTable) -> None:
    """A case with ordinary lines behind it, or before and behind, has the same events, incidents, context and report."""
    case = (FIXTURES / name / LOG).read_bytes()
    case += b"" if case.endswith(b"\n") else b"\n"
    agree(tmp_path / "a", case + PAD, rules)
    agree(tmp_path / "b", PAD + case + BARE[: 49 * 100], rules)


@pytest.mark.parametrize("seed", range(16))
def test_scan_equals_plain_reading_of_mixed_cases(seed: int, tmp_path: Path, rules: RuleTable) -> None:
    """Cases one behind the other, with ordinary lines between their lines, and cut at any place."""
    dice = random.Random(seed)
    parts = [PAD if seed % 2 else BARE[: 49 * 400] + PAD]
    for name in dice.sample(case_names(), 8):
        lines = (FIXTURES / name / LOG).read_bytes().split(b"\n")
        if dice.random() < 0.5:
            at = dice.randrange(len(lines))
            lines[at:at] = filler(dice.choice((1, 3, 8, 40, 300)), dice.randrange(10**6)).split(b"\n")
        parts += [b"\n".join(lines), b"\n", filler(dice.choice((1, 20, 600)), dice.randrange(10**6))]
    content = b"".join(parts)
    agree(tmp_path / "whole", content, rules)
    agree(tmp_path / "cut", content[dice.randrange(2000) : -dice.randrange(1, 2000)], rules)
