"""What a vendor asks for about one GPU after a fault, gathered item by item; none of them may hold up the rest."""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from xidwatch import __version__
from xidwatch.core.classify import RuleTable
from xidwatch.core.codec import encode
from xidwatch.core.engine import Engine
from xidwatch.core.event import Event
from xidwatch.core.evidence import Item
from xidwatch.core.gpu import GpuAnswer, NotFound, Refused, Unresponsive
from xidwatch.core.incident import Incident, Postmortem
from xidwatch.core.machine import Machine
from xidwatch.core.pci import PciAddress
from xidwatch.errors import XidwatchError
from xidwatch.nvml.client import Means, NvmlClient, Timing
from xidwatch.nvml.protocol import Told, write
from xidwatch.render.as_json import incident_object
from xidwatch.sinks.history_read import StoredEntry, read_history
from xidwatch.sources.program import Said, ask
from xidwatch.times import rfc3339

BUG_REPORT = "nvidia-bug-report.sh"
_FILE_S, _LSPCI_S, _NVML_S = 5.0, 10.0, 10.0
_SETTINGS = (
    "hung_task_timeout_secs", "hung_task_warnings", "hung_task_panic", "hung_task_detect_count", "panic", "panic_on_oops",
    "softlockup_panic", "sysrq", "tainted", "dmesg_restrict", "printk", "osrelease", "version",
)  # fmt: skip
_SYSFS = (
    "vendor device class revision subsystem_vendor subsystem_device current_link_speed current_link_width max_link_speed "
    "max_link_width numa_node power_state reset_method aer_dev_correctable aer_dev_nonfatal aer_dev_fatal"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose evidence it is.

    Attributes:
        pci, uuid: The GPU; None for a UUID that is not known.
        here: It is, or was, in this machine, so that the machine can be asked.
    """

    pci: PciAddress
    uuid: str | None
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the history tells. `why`: why it tells nothing."""

    incidents: tuple[Incident, ...] = ()
    postmortem: Postmortem = field(default_factory=lambda: Postmortem(inputs=(), hosts=(), incidents=()))
    entries: tuple[StoredEntry, ...] = ()
    why: str | None = None


def read_past(path: Path, rules: RuleTable, machine: Machine) -> Past:
    """Live through the whole history again, as the daemon does at its start."""
    engine = Engine(rules)
    engine.machine = machine
    entries = []
    try:
        for entry in read_history(path):
            entries.append(entry)
            if entry.item is not None:
                engine.replay(entry.identity, entry.item, entry.stored_us)
    except XidwatchError as error:
        return Past(why=str(error))
    engine.changes(time.time_ns() // 1000)
    incidents = tuple(engine.incidents.values())
    told = Postmortem(inputs=(), hosts=engine.correlator.book.reports({}), incidents=incidents, records=len(entries))
    return Past(incidents=incidents, postmortem=told, entries=tuple(entries))


def of_gpu(postmortem: Postmortem, pci: PciAddress) -> Postmortem:
    """The incidents of one GPU."""
    return replace(postmortem, incidents=tuple(one for one in postmortem.incidents if str(pci) in one.gpus))


# the items


def reports(postmortem: Postmortem, rules: RuleTable, how: str) -> Iterator[Item]:
    """The report in every form."""
    from xidwatch.render.as_json import render_json
    from xidwatch.render.as_markdown import render_markdown
    from xidwatch.render.as_text import render_text

    yield _text("report.txt", how, render_text(postmortem, rules, color=False, width=110), masked=True)
    yield _text("report.md", how, render_markdown(postmortem, rules), masked=True)
    yield _text("report.json", how, render_json(postmortem, rules), masked=True)
    try:
        from xidwatch.render.as_html import render_html

        yield _text("report.html", how, render_html(postmortem, rules), masked=True)
    except (ImportError, XidwatchError) as reason:
        yield Item(name="report.html", how=how, outcome="not there", why=str(reason))


def lines(postmortem: Postmortem, how: str) -> Item:
    """The log lines of the incidents, with where they stand."""
    members = [member for one in postmortem.incidents for member in one.members]
    records = [record for member in members for record in (member.finding.event.record, member.last.record)]
    records += [context.record for one in postmortem.incidents for context in one.context]
    records = list({(record.stream, record.seq): record for record in records}.values())
    records.sort(key=lambda record: (record.stream, record.seq))
    told = [" ".join(part for part in (f"line {record.line}:" if record.line else "", rfc3339(record) or "", record.host or "",
                                       record.text) if part) for record in records]  # fmt: skip
    return _text("log.txt", how, "\n".join(told) + "\n" if told else "", masked=True)


def history(past: Past, subject: Subject, path: Path, rules: RuleTable) -> Iterator[Item]:
    """Every stored event of this GPU, by slot or by UUID, and its incidents."""
    if past.why is not None:
        yield Item(
            name="history.jsonl",
            how=str(path),
            outcome="not permitted" if "not allowed" in past.why else "not there",
            why=past.why,
        )
        return
    own = [entry for entry in past.entries if _is_of(entry, subject)]
    rows = [json.dumps({"stored_us": entry.stored_us, "wall_us": entry.wall_us, "boot_id": entry.boot_id, "gpu": entry.gpu,
                        "item": encode(entry.item) if entry.item is not None else None}) for entry in own]  # fmt: skip
    found = [incident_object(one, rules, past.postmortem.hosts) for one in past.incidents if str(subject.pci) in one.gpus]
    yield _text("incidents.json", f"{path}: every incident of this GPU", json.dumps(found, indent=1) + "\n")
    yield _text("history.jsonl", f"xidwatch history --gpu {subject.pci} --format json", "".join(row + "\n" for row in rows))


def _is_of(entry: StoredEntry, subject: Subject) -> bool:
    uuid = entry.item.gpu_uuid if isinstance(entry.item, Event) else None
    if uuid is not None and subject.uuid is not None:
        return uuid == subject.uuid
    return entry.gpu == str(subject.pci)


def nvml(subject: Subject, *, released: bool, deadline_s: float = _NVML_S, means: Means | None = None) -> Item:
    """What NVML says of the GPU, asked in a process of its own, which is left alone if it does not answer."""
    name, how = "nvml.json", f"NVML; same as: nvidia-smi -q -i {subject.pci}"
    if not subject.here:
        return _elsewhere(name, how)
    if released:
        return Item(name=name, how=how, outcome="not there", why="NVML is released by an operator: xidwatch nvml resume")
    if importlib.util.find_spec("pynvml") is None:
        return Item(name=name, how=how, outcome="not there", why="nvidia-ml-py is not installed")
    answer, why = _ask_nvml(subject.pci, deadline_s, means)
    data = write(Told(number=0, pci=subject.pci, answer=answer)) if answer is not None else None
    if answer is None or isinstance(answer, Unresponsive):
        return Item(name=name, how=how, outcome="timed out", why=why or "NVML did not answer", data=data)
    word = "NVML does not find this GPU" if isinstance(answer, NotFound) else None
    return Item(name=name, how=how, outcome="got", why=answer.text if isinstance(answer, Refused) else word, data=data)


def _ask_nvml(pci: PciAddress, deadline_s: float, means: Means | None) -> tuple[GpuAnswer | None, str | None]:
    """The answer, and what is wrong with the way to it."""
    client = NvmlClient(Timing(deadline_s=deadline_s, interval_s=3600.0, apart_s=0.0), means=means)
    client.expect([pci])
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ)
            until_s = time.monotonic() + deadline_s + 1.0
            while time.monotonic() < until_s:
                client.tick()
                if client.health().over:
                    break
                ready.select(0.1)
        return client.answers().gpus.get(pci), client.health().why
    finally:
        client.close()


def machine_items(subject: Subject, root: str = "/") -> Iterator[Item]:
    """Driver files, PCI, kernel settings, versions; `root` is where the file system begins."""
    yield _text("versions/xidwatch", "xidwatch --version", f"xidwatch {__version__}, Python {sys.version.split()[0]}\n")
    top = root.rstrip("/")
    if not subject.here:
        yield from (_elsewhere(name, how) for name, how in (("driver/", f"{top}/proc/driver/nvidia"), ("pci/", "lspci -vvv"),
                    ("kernel/", f"{top}/proc/sys/kernel, dmesg"), ("versions/", "uname -a")))  # fmt: skip
        return
    yield from _driver_files(subject, f"{top}/proc/driver/nvidia")
    slot = f"{top}/sys/bus/pci/devices/{subject.pci}"
    yield _shell("pci/sysfs.txt", slot, f"cd {slot} && grep -sH '' {_SYSFS}; test -e vendor")
    note = None if os.geteuid() == 0 else "as root it tells the capabilities too"
    item = _asked("pci/lspci.txt", ("lspci", "-vvv", "-s", str(subject.pci)), _LSPCI_S)
    yield replace(item, why=item.why or note)
    settings = " ".join([*(f"{top}/proc/sys/kernel/{name}" for name in _SETTINGS), f"{top}/proc/cmdline"])
    yield _shell("kernel/settings.txt", f"{top}/proc/sys/kernel", f"grep -sH '' {settings}; true")
    yield _shell("kernel/modprobe.txt", f"{top}/etc/modprobe.d", f"grep -srH '' {top}/etc/modprobe.d; true")
    yield _shell("kernel/modules.txt", f"{top}/proc/modules", f"grep -si nvidia {top}/proc/modules; true")
    yield _asked("kernel/dmesg.txt", ("dmesg", "--time-format", "iso"), _LSPCI_S)
    yield _asked("versions/os-release", ("cat", f"{top}/etc/os-release"), _FILE_S)
    yield _asked("versions/uname", ("uname", "-a"), _FILE_S)


def _driver_files(subject: Subject, folder: str) -> Iterator[Item]:
    """What the driver tells in /proc; once one of its files hangs, the others would hang on the same lock."""
    names = ["version", "params", "registry", *(f"gpus/{subject.pci}/{part}" for part in ("information", "power", "registry"))]
    hung = False
    for name in names:
        item = Item(
            name=f"driver/{name.replace(':', '_')}", how=f"{folder}/{name}", outcome="timed out", why="one before it hung"
        )
        if not hung:
            item = _from_said(item, ask(("cat", item.how), _FILE_S))
            hung = item.outcome == "timed out"
        yield item


def vendor_commands(subject: Subject) -> Item:
    """What the vendor asks for, to be run by a person.

    Source: https://docs.nvidia.com/deploy/xid-errors/working-with-xid-errors.html, gathering with nvidia-bug-report.sh.
    """
    text = f"""\
The vendor asks for this with every report; run it as root BEFORE the GPU is reset or the node rebooted:

    {BUG_REPORT}

It may take up to an hour. If it hangs, end it and run:

    {BUG_REPORT} --safe-mode --extra-system-data

Either writes nvidia-bug-report.log.gz into the present folder. Where the replacement of the card is asked for (RMA) the
report of the field diagnostic goes with it. The card: {subject.pci}{f", {subject.uuid}" if subject.uuid else ""}.
"""
    return _text("VENDOR-COLLECTION.txt", "xidwatch", text)


def bug_report(deadline_s: float, program: str = BUG_REPORT) -> Item:
    """Run the vendor's script; one that is stuck at the deadline is left alone."""
    how = f"{program} --safe-mode --extra-system-data"
    with tempfile.TemporaryDirectory(prefix="xidwatch-", ignore_cleanup_errors=True) as folder:
        target = Path(folder, "nvidia-bug-report.log")
        said = ask((program, "--safe-mode", "--extra-system-data", "--output-file", str(target)), deadline_s)
        for written in (target.with_name(target.name + ".gz"), target):
            if written.is_file():
                partial = said.why if said.outcome != "got" else None
                return Item(name=written.name, how=how, outcome=said.outcome, why=partial, data=written.read_bytes())
    why = said.why or "it wrote no log" if said.outcome == "got" else said.why
    return Item(name="nvidia-bug-report.log.gz", how=how, outcome="failed" if said.outcome == "got" else said.outcome, why=why)


def slot_state(state: dict[str, object] | None, subject: Subject, path: Path) -> Item:
    """What the daemon holds of this GPU at present."""
    how = f"{path}: gpus[]"
    gpus = state.get("gpus") if state is not None else None
    own = (
        [one for one in gpus if isinstance(one, dict) and one.get("pci") == str(subject.pci)] if isinstance(gpus, list) else []
    )
    if not own:
        return Item(name="daemon.json", how=how, outcome="not there", why="no daemon watches this GPU here")
    return _text("daemon.json", how, json.dumps(own[0], indent=1) + "\n")


def uuid_of(pci: PciAddress, root: str = "/") -> str | None:
    """The UUID that the driver gives for a slot. Same as: nvidia-smi -L."""
    said = ask(("cat", f"{root.rstrip('/')}/proc/driver/nvidia/gpus/{pci}/information"), _FILE_S)
    found = [
        line.split(":", 1)[1].strip()
        for line in said.output.decode("utf-8", "replace").splitlines()
        if line.startswith("GPU UUID:")
    ]
    return found[0] if found and found[0].startswith("GPU-") and "?" not in found[0] else None


def summary(items: Sequence[Item]) -> str:
    """What is missing, in one line; "" when nothing is."""
    missing = [f"{item.name} ({item.outcome})" for item in items if item.outcome != "got"]
    return f"missing: {', '.join(missing)}; the MANIFEST says why" if missing else ""


def archive_name(host: str, subject: Subject, now_s: float) -> str:
    """`xidwatch-evidence-node7-0000_3b_00.0-20261201T021305Z`."""
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    clean = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in f"{host}-{subject.pci}")
    return f"xidwatch-evidence-{clean}-{at}"


def here() -> str:
    """This machine's name."""
    return socket.gethostname()


def _text(name: str, how: str, text: str, *, masked: bool = False) -> Item:
    return Item(name=name, how=how, outcome="got", data=text.encode("utf-8", "surrogateescape"), secret_free=masked)


def _asked(name: str, argv: Sequence[str], deadline_s: float) -> Item:
    return _from_said(Item(name=name, how=" ".join(argv), outcome="got"), ask(argv, deadline_s))


def _shell(name: str, how: str, script: str) -> Item:
    """The paths in the script are ours: nothing of a log is in it."""
    return _from_said(Item(name=name, how=how, outcome="got"), ask(("sh", "-c", script), _FILE_S))


def _from_said(item: Item, said: Said) -> Item:
    return replace(item, outcome=said.outcome, why=said.why, data=said.output if said.output or said.outcome == "got" else None)


def _elsewhere(name: str, how: str) -> Item:
    return Item(name=name, how=how, outcome="not there", why="this GPU is not in this machine")
