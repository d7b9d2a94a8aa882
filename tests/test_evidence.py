"""`xidwatch evidence`: one archive about one GPU, whole or not at all."""

from __future__ import annotations

import json
import os
import resource
import socket
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from xidwatch.core.codec import encode
from xidwatch.core.parse import Parser
from xidwatch.core.record import Record
from xidwatch.sinks.history import Entry, History, Limits

ROOT = Path(__file__).parent.parent
UUID = "GPU-1b2c3d4e-aaaa-1111-2222-333344445555"
LOG = (
    f"2026-11-20T00:59:00+00:00 node7 kernel: NVRM: GPU at PCI:0000:3b:00: {UUID}\n"
    "2026-11-20T01:00:00+00:00 node7 kernel: NVRM: Xid (PCI:0000:3b:00): 64, pid='<unknown>', name=<unknown>, "
    "Row Remapper: All reserved rows for bank are remapped\n"
    "2026-11-20T01:10:00+00:00 node7 kernel: NVRM: Xid (PCI:0000:9b:00): 31, pid=77, name=train.py, Ch 0000000a, MMU Fault\n"
)


def run(*arguments: str, folder: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """One call as a user makes it, with a state folder of its own."""
    own = ("--state-dir", str(folder / "state"), "--run-dir", str(folder / "run"))
    return subprocess.run(
        [sys.executable, "-m", "xidwatch", "evidence", *arguments, *own],
        capture_output=True, text=True, cwd=folder, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **({"PATH": path} if path is not None else {})},
    )  # fmt: skip


def archive(done: subprocess.CompletedProcess[str]) -> Path:
    """The file that a call says it has written; it ran in the folder above --out."""
    return Path(done.args[-3]).parent / done.stdout.splitlines()[0]


def unpacked(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Every file of the archive that was written, by its name inside."""
    with tarfile.open(archive(done)) as tar:
        return {member.name.partition("/")[2]: file.read().decode() for member in tar if (file := tar.extractfile(member))}


def store(folder: Path, host: str) -> None:
    """A daemon's history of the log's lines."""
    history = History.open(folder / "state" / "history.db", Limits())
    parser = Parser()
    for number, line in enumerate(LOG.splitlines()):
        text, wall_us = line.split(": ", 1)[1], 1_796_000_000_000_000 + number * 600_000_000
        record = Record(text=text, seq=number + 1, wall_us=wall_us, host=host, boot_id="b1", trusted="kernel")
        for item in parser.feed(record):
            history.append(Entry(identity=f"b1/{number}", source="kmsg", wall_us=wall_us, boot_id="b1", item=encode(item)))
    assert history.close(10.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A node's log with two GPUs."""
    path = tmp_path / "kern.log"
    path.write_text(LOG, encoding="utf-8")
    return path


def test_a_log_becomes_an_archive(log: Path, tmp_path: Path) -> None:
    """Report in four forms, the lines, the vendor's command; the other GPU's fault is not in it, and what is missing is told."""
    done = run("--gpu", "3b:00", "--log", str(log), "--out", "out", folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    files = unpacked(done)
    report = json.loads(files["report.json"])
    assert [["0000:3b:00.0"]] == [incident["gpus"] for incident in report["incidents"]]
    assert "field_diagnostic" in {one["rung"] for one in report["incidents"][0]["investigate"]}
    assert {"report.txt", "report.md", "report.html", "log.txt", "VENDOR-COLLECTION.txt", "MANIFEST"} <= set(files)
    assert "All reserved rows" in files["log.txt"] and "train.py" not in files["log.txt"]
    assert "nvidia-bug-report.sh --safe-mode --extra-system-data" in files["VENDOR-COLLECTION.txt"]
    assert UUID in files["MANIFEST"] and "node7" in files["MANIFEST"]
    rows = [line for line in files["MANIFEST"].splitlines() if line.startswith("not there")]
    assert ["history.jsonl", "daemon.json", "nvml.json"] == [row.split()[2] for row in rows][:3]
    assert "missing: history.jsonl (not there)" in done.stdout
    assert 0o600 == stat.S_IMODE(os.stat(archive(done)).st_mode)


@pytest.mark.parametrize("asked", ["0000:3b:00.0", "3b", UUID, "1b2c3d4e", "PCI:0000:3b:00"])
def test_a_gpu_is_named_as_people_name_it(asked: str, log: Path, tmp_path: Path) -> None:
    """Address, its end, UUID or its beginning."""
    done = run("--gpu", asked, "--log", str(log), "--out", "out", folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    assert "0000_3b_00.0" in done.stdout


def test_secrets_are_masked_everywhere(log: Path, tmp_path: Path) -> None:
    """Host and UUID are in no file and not in the archive's name."""
    done = run("--gpu", "3b", "--log", str(log), "--out", "out", "--redact", folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    everything = done.stdout + "\n".join(unpacked(done).values())
    for secret in ("node7", UUID, UUID[4:], socket.gethostname() + ":"):
        assert secret not in everything


def test_what_the_history_names_is_masked_too(tmp_path: Path) -> None:
    """Hosts of stored events, and the card's UUID, in JSON as in text."""
    store(tmp_path, "gpu-rack-17")
    done = run("--gpu", "3b:00", "--out", "out", "--redact", folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    everything = done.stdout + "\n".join(unpacked(done).values())
    assert "history.jsonl" in everything and "gpu-rack-17" not in everything and UUID not in everything


def test_an_index_is_the_daemons(tmp_path: Path) -> None:
    """NVML's index, as state.json has it, means its slot; one that no GPU has, and a damaged file, are told as that."""
    (tmp_path / "run").mkdir()
    (tmp_path / "out").mkdir()
    gpus = [{"pci": "0000:61:00.0", "index": 93, "gpu_uuid": UUID}, {"pci": "0000:1b:00.0", "index": None}, 7]
    (tmp_path / "run" / "state.json").write_text(json.dumps({"gpus": gpus}), encoding="utf-8")
    done = run("--gpu", "93", "--out", "out", folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    assert ("0000:61:00.0", 93) == tuple(json.loads(unpacked(done)["daemon.json"])[name] for name in ("pci", "index"))
    assert 2 == run("--gpu", "94", "--out", "out", folder=tmp_path).returncode


def test_history_is_told_by_slot_and_card(tmp_path: Path) -> None:
    """What the daemon kept of this GPU, with its incidents, without a log."""
    store(tmp_path, socket.gethostname())
    done = run("--gpu", "3b:00", "--out", "out", folder=tmp_path)
    assert 0 == done.returncode, done.stderr
    files = unpacked(done)
    (incident,) = json.loads(files["incidents.json"])
    assert ["0000:3b:00.0"] == incident["gpus"]
    rows = [json.loads(line) for line in files["history.jsonl"].splitlines()]
    assert {"0000:3b:00.0"} == {row["gpu"] for row in rows}
    assert [64] == [row["item"]["code"] for row in rows if "code" in row["item"]]
    assert "the daemon's history" in files["MANIFEST"]
    assert "kernel/settings.txt" in files


def test_the_vendors_script_runs_when_asked_and_may_hang(log: Path, tmp_path: Path) -> None:
    """Its log goes in; one that ignores SIGTERM is left alone, and the archive is written all the same."""
    script = tmp_path / "bin" / "nvidia-bug-report.sh"
    script.parent.mkdir()
    path = f"{script.parent}:{os.environ['PATH']}"
    script.write_text('#!/bin/sh\necho "$@" > "$4.gz"\n', encoding="utf-8")
    script.chmod(0o755)
    arguments = ("--gpu", "3b", "--log", str(log), "--run-bug-report", "--deadline", "1")
    files = unpacked(run(*arguments, "--out", "out", folder=tmp_path, path=path))
    assert files["nvidia-bug-report.log.gz"].startswith("--safe-mode --extra-system-data --output-file /")

    script.write_text(f'#!/bin/sh\ntrap "" TERM\necho $$ > {tmp_path}/pid\nexec {sys.executable} -c "import signal; '
                      'signal.signal(15, signal.SIG_IGN); signal.sigwait([10])"\n', encoding="utf-8")  # fmt: skip
    done = run(*arguments, "--out", "again", folder=tmp_path, path=path)
    os.kill(int((tmp_path / "pid").read_text()), 10)
    assert 0 == done.returncode, done.stderr
    (row,) = [line for line in unpacked(done)["MANIFEST"].splitlines() if "nvidia-bug-report.log" in line]
    assert row.startswith("timed out") and "is left alone" in row


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpu", "5e", "--out", "out"), "no GPU '5e'"),
        (("--gpu", "3b", "--out", "kern.log"), "no folder"),
        (("--gpu", "3b", "--out", "kern.log/out"), "Not a directory"),
        (("--gpu", "3b", "--out", "nowhere/out"), "nowhere is no folder"),
        (("--gpu", "3b", "--out", "out", "--redact", "--run-bug-report"), "give one of"),
        (("--gpu", "3b", "--out", "out", "--deadline", "0"), "more than 0"),
    ],
)
def test_wrong_usage_is_a_sentence(arguments: tuple[str, ...], sentence: str, log: Path, tmp_path: Path) -> None:
    """Exit status 2, no traceback, nothing written."""
    done = run(*arguments, "--log", str(log), folder=tmp_path)
    assert 2 == done.returncode
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_disk_that_takes_no_more_leaves_nothing_behind(log: Path, tmp_path: Path) -> None:
    """A write that fails half way removes what was written."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, {resource.RLIM_INFINITY})); "
    done = subprocess.run(
        [sys.executable, "-c", code + "from xidwatch.cli import run; run()", "evidence", "--gpu", "3b", "--log", str(log),
         "--out", "out", "--state-dir", "state", "--run-dir", "run"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert 2 == done.returncode, done.stderr
    assert "cannot be written: File too large; nothing was left behind" in done.stderr
    assert [] == list((tmp_path / "out").iterdir())
