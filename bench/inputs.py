"""Logs to measure with, the same bytes every time: packed, in a journal, in a bug report, in many files, all look-alikes."""

from __future__ import annotations

import gzip
import itertools
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import zstandard

from bench.gen_syslog import Syslog

MIB = 1 << 20
ALMOST = (
    "kernel: [86400.500000] Lustre: 1234:0:(client.c:2289) Request sent has timed out for slow reply: [sent 1772431200/real 0]",
    "vllm[4711]: CUDA error handling initialised, 0 pending",
    "NetworkManager[801]: <info> device (eno1): link is up, carrier",
    "trainer[5123]: rank 3 not ready yet, waiting for the data loader",
    "dcgm-exporter[901]: NVRM Xid statistics: none since start",
    "kernel: [86400.500000] usb 1-1: device not ready for commands",
)
"""Lines with words of ours in them that tell of no fault."""
REMOTE = Path("/lib/systemd/systemd-journal-remote")
_RULE = "_" * 44


def gzipped(log: Path) -> Path:
    """The same log beside it as .gz."""
    packed = log.with_name(f"{log.name}.gz")
    with log.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as sink:
        shutil.copyfileobj(plain, sink, MIB)
    return packed


def zstandarded(log: Path) -> Path:
    """The same log beside it as .zst."""
    packed = log.with_name(f"{log.name}.zst")
    with log.open("rb") as plain, packed.open("wb") as sink:
        zstandard.ZstdCompressor(level=3).copy_stream(plain, sink)
    return packed


def look_alikes(out: Path, size: int, every: int) -> None:
    """A syslog of which each so manieth line has words of ours."""
    log, dice = Syslog(fault_every=30_000), random.Random(5)
    with out.open("w", encoding="ascii") as file:
        numbers, written = itertools.count(1), 0
        while written < size:
            for line in log.second().splitlines():
                head = line[: line.index(" ", 16) + 1]
                written += file.write(f"{head}{dice.choice(ALMOST)}\n" if next(numbers) % every == 0 else f"{line}\n")


def small_files(folder: Path, files: int) -> None:
    """So many logs of forty lines, every tenth with a fault."""
    folder.mkdir(parents=True)
    for number in range(files):
        log = Syslog(fault_every=0)
        text = log.second() + ("".join(log.storm(1)) if number % 10 == 0 else "")
        (folder / f"node-{number:04d}.log").write_text(text.replace("gpu-node-17", f"gpu-node-{number}"), encoding="ascii")


def nodes(folder: Path, count: int) -> None:
    """A folder for each of so many nodes, each with a kernel log and a fault of its own."""
    for number in range(count):
        log = Syslog(fault_every=0)
        text = "".join(itertools.chain((log.second() for _ in range(20)), log.storm(1), (log.second() for _ in range(5))))
        own = folder / f"gpu-node-{number}"
        own.mkdir(parents=True)
        (own / "kern.log").write_text(text.replace("gpu-node-17", own.name), encoding="ascii")


def incidents(out: Path, count: int) -> None:
    """So many faults, each twenty minutes after the one before."""
    out.write_text("".join(_xids(count, every_s=1200, code=79)), encoding="ascii")


def events(out: Path, count: int) -> None:
    """So many distinct faults within little time: each has another pid."""
    out.write_text("".join(_xids(count, every_s=0, code=31)), encoding="ascii")


def _xids(count: int, every_s: int, code: int) -> Iterator[str]:
    for number in range(count):
        since_s = 86_400 + number * every_s + number // 20
        yield (
            f"[{since_s:>12}.500000] NVRM: Xid (PCI:0000:{0x07 + number % 4:02x}:00): {code}, pid={1000 + number}, "
            f"name=python3, Ch 00000010\n"
        )


def bug_report(out: Path, size: int) -> None:
    """A packed nvidia-bug-report whose kernel log has about so many bytes."""
    log, written = Syslog(fault_every=30_000), 0
    with gzip.open(out, "wt", compresslevel=6, encoding="ascii") as file:
        file.write(f"{_RULE}\n\nStart of NVIDIA bug report log file.  Please include this file, along\n")
        file.write(f"\nnvidia-bug-report.sh Version: 36134301\n{_RULE}\n\n*** /var/log/kern.log\n")
        while written < size:
            written += file.write(log.second())
        file.write(f"{_RULE}\n\n")


def journal(out: Path, entries: int) -> None:
    """A journal file, every fifth entry from the kernel, one Xid in thirty thousand. Needs systemd-journal-remote."""
    with subprocess.Popen([str(REMOTE), "-o", str(out), "-"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as maker:
        assert maker.stdin is not None
        for number in range(entries):
            maker.stdin.write(_entry(number).encode())
        maker.stdin.close()
        if maker.wait() != 0:
            raise RuntimeError(f"{REMOTE} answered {maker.returncode}")


def _entry(number: int) -> str:
    kernel = number % 5 == 0
    text = (
        f"docker0: port 1(veth{number:06x}) entered disabled state" if kernel else f"Disconnected from 192.0.2.{number % 250}"
    )
    if number % 30_000 == 15_000:
        text = f"NVRM: Xid (PCI:0000:07:00): 31, pid={number}, name=python3, Ch 00000008"
    sender = (
        "_TRANSPORT=kernel\nSYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=kernel"
        if kernel
        else "_TRANSPORT=syslog\nSYSLOG_IDENTIFIER=sshd"
    )
    return (
        f"__REALTIME_TIMESTAMP={1_772_000_000_000_000 + number * 1000}\n__MONOTONIC_TIMESTAMP={number * 1000}\n"
        f"_BOOT_ID={'ab' * 16}\n{sender}\n_HOSTNAME=gpu-node-17\nPRIORITY=6\nMESSAGE={text}\n\n"
    )
