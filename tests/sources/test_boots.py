"""Earlier boots: finding them, reading them, and how they ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journals import BOOTS, kernel, need_journals, program, write_journal
from xidwatch.errors import XidwatchError
from xidwatch.sources.boots import boot_records, ended_cleanly, find_boot, judge_end
from xidwatch.sources.journalread import Entry

STOP = "d93fb3c9c24d451a97cea615ce59c00b"
START = "f77379a8490b408bbe5f6940505a777b"


def journald(text: str, message_id: str) -> Entry:
    """One entry of journald itself."""
    return {"_TRANSPORT": "driver", "MESSAGE": text, "MESSAGE_ID": message_id, "SYSLOG_IDENTIFIER": "systemd-journald"}


def systemd(text: str) -> Entry:
    """One entry of PID 1."""
    return {"_TRANSPORT": "journal", "_PID": "1", "_COMM": "systemd", "MESSAGE": text}


def shutdown(text: str) -> Entry:
    """One line that systemd-shutdown wrote into the kernel's log."""
    return {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "3", "SYSLOG_IDENTIFIER": "systemd-shutdown", "MESSAGE": text}


def from_kernel(text: str) -> Entry:
    """One entry of the kernel."""
    return {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": text}


@pytest.mark.parametrize(
    "last",
    [
        [systemd("Started x."), journald("Journal stopped", STOP)],
        [shutdown("Sending SIGTERM to remaining processes...")],
        [systemd("Reached target reboot.target - System Reboot.")],
        [systemd("Reached target poweroff.target - System Power Off.")],
        [systemd("Reached target Power-Off.")],
        [systemd("Reached target Reboot.")],
        [systemd("Reached target Final Step."), from_kernel("ixgbe: link down")],
    ],
)
def test_orderly_ends(last: list[Entry]) -> None:
    """Shutdowns of old and new systemd are known, also with a line of the kernel behind."""
    assert True is judge_end(last[::-1])[0]


@pytest.mark.parametrize(
    ("last", "word"),
    [
        ([systemd("Started x."), from_kernel("NVRM: Xid (PCI:0000:3b:00): 79, x")], "without a shutdown"),
        ([systemd("Started x."), from_kernel("Kernel panic - not syncing: Fatal")], "panicked"),
        ([systemd("Reached target shutdown.target - System Shutdown."), from_kernel("x blocked")], "before its end"),
        ([journald("Journal stopped", STOP), journald("Journal started", START), systemd("Started x.")], "without a shutdown"),
        ([systemd("x"), {"_PID": "42", "_COMM": "evil", "MESSAGE": "Reached target Reboot."}], "without a shutdown"),
        ([systemd("Startup finished."), {"_TRANSPORT": "syslog", "MESSAGE": "x", "MESSAGE_ID": STOP}], "without a shutdown"),
    ],
)
def test_ends_that_were_not_orderly(last: list[Entry], word: str) -> None:
    """A cut, a panic, a shutdown that hung, a journald that came back, and another program's words are no shutdown."""
    clean, why = judge_end(last[::-1])
    assert False is clean
    assert word in why


def test_ends_that_nobody_can_tell() -> None:
    """No entry at all, and a journal in which systemd never speaks, tell nothing."""
    assert None is judge_end([])[0]
    assert None is judge_end([from_kernel("x")])[0]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """A journal of three boots; the second was cut."""
    need_journals()
    entries = [
        kernel("Linux version 6.1", 0.0, BOOTS[0]),
        program("Reached target reboot.target - System Reboot.", 50.0, BOOTS[0]),
        kernel("Linux version 6.1", 0.0, BOOTS[1]),
        kernel("NVRM: Xid (PCI:0000:3b:00): 79, x", 40.0, BOOTS[1]),
        program("user word", 41.0, BOOTS[1], _PID="77", _COMM="vllm", SYSLOG_IDENTIFIER="vllm"),
        program("Started x.", 42.0, BOOTS[1]),
        kernel("Linux version 6.1", 0.0, BOOTS[2]),
    ]
    write_journal(tmp_path / "system.journal", entries)
    yield str(tmp_path)


def test_boots_are_found_by_number_and_by_id(folder: str) -> None:
    """0 is the newest, -1 the one before, 1 the oldest; the beginning of an id will do."""
    found = [find_boot(which, folder).boot_id for which in ("0", "-1", "-2", "1", "3", "bbbbbbbb", BOOTS[2].upper())]
    assert [BOOTS[2], BOOTS[1], BOOTS[0], BOOTS[0], BOOTS[2], BOOTS[1], BOOTS[2]] == found


@pytest.mark.parametrize("which", ["-3", "4", "dddddddd", "b", "", "what"])
def test_boot_that_is_not_kept(folder: str, which: str) -> None:
    """Asking for another one says how many there are and how to keep more."""
    with pytest.raises(XidwatchError, match="keeps 3"):
        find_boot(which, folder)


def test_records_of_one_boot(folder: str) -> None:
    """Kernel and programs, in order, nothing of the boots around it; the kernel's are believed."""
    read = list(boot_records("-1", folder))
    assert ["Linux version 6.1", "NVRM: Xid (PCI:0000:3b:00): 79, x", "user word", "Started x."] == [one.text for one in read]
    assert ("kernel", "vllm") == (read[1].trusted, read[2].program)


def test_how_boots_ended(folder: str) -> None:
    """The first was shut down, the second was not."""
    assert True is ended_cleanly("-2", folder)[0]
    assert False is ended_cleanly("-1", folder)[0]
