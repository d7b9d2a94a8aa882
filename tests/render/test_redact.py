"""Redaction: no original survives, and what belongs together stays together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.render.conftest import GPU, HOST, SERIAL, UUID, record
from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import Postmortem
from xidwatch.render.as_json import render_json
from xidwatch.render.as_text import render_text
from xidwatch.render.redact import Redactor

SECRETS = (HOST, "train-a3-018", UUID, UUID.removeprefix("GPU-"), SERIAL, "alice", "10.11.12.13", "fe80::1234:5678:9abc:def0",
           "b8:ce:f6:01:02:03", "cluster.example.edu", "506b:4b03:00c1:e2f4")  # fmt: skip
LINE = (
    f"peer {HOST}.cluster.example.edu and train-a3-018 (10.11.12.13, fe80::1234:5678:9abc:def0, b8:ce:f6:01:02:03, "
    f"506b:4b03:00c1:e2f4): GPU at PCI:0000:4e:00: {UUID} GPU serial number is {SERIAL}. "
    f"file:///home/alice/run.py by alice@{HOST}"
)


@pytest.fixture
def revealing(off_the_bus: Postmortem) -> Postmortem:
    """A postmortem with every kind of secret in every kind of place."""
    incident = off_the_bus.incidents[0]
    context = replace(incident.context[0], record=record(LINE, 784.5, 1), facts=(("serial", SERIAL), ("uuid", UUID)))
    incident = replace(
        incident, context=(context,), sentence=f"On {HOST}: {incident.sentence}", unknowns=(LINE,), excluded=(LINE,)
    )
    return replace(off_the_bus, incidents=(incident,), context=(context,), malformed=(LINE,))


def test_no_original_survives(revealing: Postmortem, few_rules: RuleTable) -> None:
    """Neither text nor JSON has a host, UUID, serial, address or user left."""
    masked = Redactor().postmortem(revealing)
    for rendered in (render_text(masked, few_rules, color=False, width=100), render_json(masked, few_rules)):
        assert [] == [secret for secret in SECRETS if secret in rendered]


def test_what_a_reader_needs_stays(revealing: Postmortem, few_rules: RuleTable) -> None:
    """Addresses of slots, codes, pids, process names and times are no secrets."""
    plain, masked = (render_json(one, few_rules) for one in (revealing, Redactor().postmortem(revealing)))
    for kept in (str(GPU), "Xid (PCI:0000:4e:00): 79", "vllm_worker", "7711", "02:13:05.123", "580.95.05", "6.8.0-60"):
        assert plain.count(kept) == masked.count(kept)


def test_masks_are_consistent() -> None:
    """The same name has the same mask wherever it stands, another name another one."""
    redactor = Redactor()
    first, second = redactor.text(f"{UUID} {UUID.upper()}").split()
    assert first.removeprefix("GPU-") == second.removeprefix("GPU-")
    assert first != redactor.text(UUID.replace("1b2c", "1b2d"))


def test_host_is_the_same_in_fields_and_text(revealing: Postmortem) -> None:
    """A host's field and its name inside a line get one mask."""
    masked = Redactor().postmortem(revealing)
    host = masked.hosts[0].host
    assert host
    assert (host,) == masked.incidents[0].hosts
    assert f"On {host}:" in masked.incidents[0].sentence


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=2201, name=python3, Ch 00000012",
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:1958)",
        "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "driver 580.95.05, kernel 5.15.0-101-generic #111-Ubuntu, at 12:34:56.789012",
        "nvidia_unlocked_ioctl+0x1d/0x2d [nvidia]",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """Numbers that only look like addresses are not touched."""
    assert text == Redactor().text(text)
