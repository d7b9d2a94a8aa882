"""Redaction: no original survives, and what belongs together stays together."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from tests.render.conftest import GPU, HOST, SERIAL, UUID, record
from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import Postmortem
from xidwatch.core.job import Job
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
    ("text", "secrets"),
    [
        ("store at tcp://alice:S3cr3t!@login7:29500/x", ["alice", "S3cr3t", "login7"]),
        ("redis://:pa/ss@cache/0 and https://bob@files.example/x", ["pa/ss", "cache", "bob", "files"]),
        ("WANDB_API_KEY=0123abcd password: hunter22", ["0123abcd", "hunter22"]),
        (f"{HOST.upper()} {HOST}-ib0 {HOST}ib0 ib-{HOST} {HOST.upper()}-IB1.fabric", ["train", "TRAIN", "fabric"]),
        ("open /home/carol/My Secret Project/run.py failed", ["carol", "My", "Secret", "Project", "run.py"]),
        ('File "/home/carol/Top Secret/my model", line 3', ["carol", "Top", "Secret", "model"]),
        ("file:///mnt/home/John Doe/x.txt: gone", ["John", "Doe", "x.txt"]),
        ("C:\\Users\\dave\\secret.txt", ["dave", "secret.txt"]),
        (
            "nvme0: SN: S5XYNG0N123456 S/N 7654321AB Serial: PHLN0123 Service Tag: 4XYZ123",
            ["S5XYNG", "7654321", "PHLN", "4XYZ"],
        ),
        ("port GUID: 0x506b4b0300c1e2f4, hca 0xb83fd203006ca0d8, guid 248a070300aabbcc", ["506b4b", "b83fd2", "248a07"]),
        ("Lustre: tank7-MDT0000-mdc-ffff88: Connection to tank7-MDT0000 (at 10.1.2.3@o2ib) was lost", ["tank7", "10.1.2.3"]),
        ("mount mgs1@o2ib:mgs2@o2ib:/vault on mdt-vault, tank7-OST0012_UUID", ["mgs", "vault", "tank7"]),
        ("boot 0123456789abcdef0123456789abcdef", ["0123456789abcdef"]),
    ],
)
def test_secrets_of_every_kind(off_the_bus: Postmortem, text: str, secrets: list[str]) -> None:
    """A kind of secret is masked in each of its spellings, in a message and in what an error says of itself."""
    member = off_the_bus.incidents[0].members[1]
    event = replace(member.finding.event, kind="cuda_error", what=text, record=record(text, 1, 9))
    member = replace(member, finding=replace(member.finding, event=event), last=event)
    masked = Redactor().postmortem(replace(off_the_bus, loose=(member,), malformed=(text,)))
    for shown in (masked.malformed[0], masked.loose[0].finding.event.what, masked.loose[0].finding.event.record.text):
        assert [] == [secret for secret in secrets if shown is None or secret in shown], shown


def test_a_serial_learnt_is_masked_everywhere(off_the_bus: Postmortem) -> None:
    """What one line calls a serial is masked in the lines that do not."""
    masked = Redactor().postmortem(replace(off_the_bus, malformed=("disk SN: S5XYNG0N123456", "lost S5XYNG0N123456")))
    assert ("disk SN: serial-2", "lost serial-2") == masked.malformed


def test_a_jobs_owner_and_pod_are_masked(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """Whose work it was is a name too; the number of the Slurm job is none, and is needed."""
    incident = off_the_bus.incidents[0]
    job = Job(
        slurm_job="88123", user="bmueller", uid=4242, pod="7d9e1c50-2f3b-4a6e-9b1d-0c2f4e6a8b10", pod_name="acme-research/llm-0"
    )
    members = tuple(
        replace(one, finding=replace(one.finding, event=replace(one.finding.event, job=job))) for one in incident.members
    )
    masked = Redactor().postmortem(replace(off_the_bus, incidents=(replace(incident, members=members),)))
    text = render_json(masked, few_rules) + render_text(masked, few_rules, color=False, width=100)
    assert [] == [word for word in ("bmueller", "acme-research", "llm-0", "7d9e1c50") if word in text]
    assert "88123" in text


def test_an_incident_id_tells_no_host(off_the_bus: Postmortem, few_rules: RuleTable) -> None:
    """The id is another one in every run, the same wherever it stands in one."""
    one, other = (Redactor().postmortem(off_the_bus) for _ in range(2))
    ids = {off_the_bus.incidents[0].id, one.incidents[0].id, other.incidents[0].id}
    assert (3, {12}) == (len(ids), {len(text) for text in ids})
    report = json.loads(render_json(one, few_rules))
    assert {one.incidents[0].id} == {event["incident"] for event in report["events"]} - {None}


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=2201, name=python3, Ch 00000012",
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:1958)",
        "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "driver 580.95.05, kernel 5.15.0-101-generic #111-Ubuntu, at 12:34:56.789012",
        "nvidia_unlocked_ioctl+0x1d/0x2d [nvidia]",
        "Serial: 8250/16550 driver, 32 ports; serial8250: ttyS0 at I/O 0x3f8",
        "MC5_STATUS[Over|UE]: 0xbaa0000000060150, RAX: ffff888103001234, num_token=55 max_tokens=4096",
        "torch.OutOfMemoryError: Tried to allocate 20.00 GiB on GPU/device 0 at 12:30",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """Numbers that only look like addresses are not touched."""
    assert text == Redactor().text(text)


@pytest.mark.parametrize("piece", ["a", "a-", "a.", "mdt-", "-token", "/home/a b", "sn ", "1", "x@", "ib", "0300"])
def test_hostile_lines_cost_no_more_than_their_length(piece: str) -> None:
    """A line of one thing again and again, as long as a line may get, is masked in the time of a line."""
    text = piece * (60_000 // len(piece))
    began = time.process_time()
    Redactor().text(text)
    assert 5 > time.process_time() - began
