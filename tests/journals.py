"""Journal files made from entries, by systemd's own tool."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

_REMOTE = next((path for path in ("/lib/systemd/systemd-journal-remote",) if Path(path).exists()), None)
FIRST_US = 1_790_000_000_000_000
BOOTS = ("a" * 32, "b" * 32, "c" * 32)


def need_journals() -> None:
    """Skip the test where python-systemd or systemd-journal-remote is missing."""
    pytest.importorskip("systemd.journal")
    if _REMOTE is None:
        pytest.skip("systemd-journal-remote is not installed")


def kernel(text: str, at_s: float, boot: str = BOOTS[0], **fields: str) -> dict[str, str]:
    """One kernel entry, `at_s` seconds after that boot began; boots begin a day apart."""
    since_us = round(at_s * 1e6)
    start_us = FIRST_US + BOOTS.index(boot) * 86_400_000_000
    return {
        "__REALTIME_TIMESTAMP": str(start_us + since_us),
        "__MONOTONIC_TIMESTAMP": str(since_us + 5),
        "_BOOT_ID": boot,
        "_TRANSPORT": "kernel",
        "SYSLOG_FACILITY": "0",
        "SYSLOG_IDENTIFIER": "kernel",
        "PRIORITY": "4",
        "_SOURCE_MONOTONIC_TIMESTAMP": str(since_us),
        "_HOSTNAME": "node01",
        "MESSAGE": text,
        **fields,
    }


def program(text: str, at_s: float, boot: str = BOOTS[0], **fields: str) -> dict[str, str]:
    """One entry of PID 1, unless `fields` say otherwise."""
    own = {"_TRANSPORT": "journal", "SYSLOG_FACILITY": "3", "SYSLOG_IDENTIFIER": "systemd", "_PID": "1", "_COMM": "systemd"}
    return kernel(text, at_s, boot, **{**own, **fields})


def write_journal(path: Path, entries: Iterable[Mapping[str, str]]) -> None:
    """Make or replace a journal file; the name must end in `.journal`."""
    assert _REMOTE is not None
    made = path.with_name(f"made-{path.name}")
    export = "".join("".join(f"{name}={value}\n" for name, value in entry.items()) + "\n" for entry in entries)
    subprocess.run([_REMOTE, "-o", str(made), "-"], input=export.encode(), check=True, capture_output=True)
    shutil.move(made, path)
