"""Earlier boots of this machine: their records out of its journal, and whether they ended as a shutdown should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from xidwatch.core.journal import parse_journal
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.errors import XidwatchError
from xidwatch.sources.journalread import Boot, Entry, boot_entries, journal_boots, last_entries
from xidwatch.sources.ringbuffer import running_boot_id

_LAST_ENTRIES = 500
_JOURNAL_STOP = "d93fb3c9c24d451a97cea615ce59c00b"  # SD_MESSAGE_JOURNAL_STOP in sd-messages.h
_JOURNAL_START = "f77379a8490b408bbe5f6940505a777b"  # SD_MESSAGE_JOURNAL_START
_TARGET = r"Reached target (?:\S+\.target - )?(?:System )?"
_ENDED = lazy(_TARGET + r"(?:Power[- ]Off|Reboot|Halt|Late Shutdown Services|Final Step|Unmount All Filesystems)", re.I)
_BEGUN = lazy(_TARGET + r"Shutdown|System is (?:powering down|rebooting|halting)|Shutting down\.", re.I)
_PANIC = lazy(r"Kernel panic - not syncing|---\[ end Kernel panic|Rebooting in \d+ seconds")


def boot_records(which: str, directory: str | None = None) -> Iterator[Record]:
    """All records of one boot, kernel and programs, oldest first. Same as: journalctl -b WHICH.

    Args:
        which: `0` the running boot, `-1` the one before, ...; `1` the oldest that is kept, `2` the next; or the (beginning of
            the) boot id.
        directory: A folder of journal files in place of this machine's.

    Raises:
        XidwatchError: the journal cannot be read or has no such boot; the text names the next step.
    """
    boot = find_boot(which, directory)
    return _records(boot, directory)


def ended_cleanly(which: str, directory: str | None = None) -> tuple[bool | None, str]:
    """Whether a boot ended by a shutdown that came to its end, and what shows it; None when it cannot be told.

    Arguments and errors as for `boot_records`.
    """
    boot = find_boot(which, directory)
    if boot.boot_id == running_boot_id():
        return None, "it is still running"
    return judge_end(last_entries(boot.boot_id, _LAST_ENTRIES, directory))


def find_boot(which: str, directory: str | None = None) -> Boot:
    """The boot that a person means; arguments and errors as for `boot_records`."""
    where = directory or "this machine's journal"
    try:
        boots = journal_boots(directory)
    except OSError as reason:
        raise XidwatchError(f"{where}: {reason.strerror or reason}; try: sudo xidwatch explain --boot {which}") from None
    found = _chosen(boots, which.strip())
    if found is None:
        kept = f"it keeps {len(boots)}" if boots else "none is readable by you"
        raise XidwatchError(
            f"no boot {which!r} in {where}: {kept}; journalctl --list-boots shows them, "
            "Storage=persistent in journald.conf keeps them from now on"
        )
    return found


def _chosen(boots: Sequence[Boot], which: str) -> Boot | None:
    """The boot named by its number or by its id."""
    if re.fullmatch(r"[+-]?\d{1,4}", which):
        number, ordered = int(which), _up_to_now(boots)
        index = number - 1 if number > 0 else len(ordered) - 1 + number
        return ordered[index] if 0 <= index < len(ordered) else None
    named = which.replace("-", "").lower()
    found = [boot for boot in boots if len(named) >= 8 and boot.boot_id.startswith(named)]
    return found[0] if len(found) == 1 else None


def _up_to_now(boots: Sequence[Boot]) -> list[Boot]:
    """The boots with the running one last."""
    running = running_boot_id()
    return sorted(boots, key=lambda boot: boot.boot_id == running)


def _records(boot: Boot, directory: str | None) -> Iterator[Record]:
    try:
        for seq, entry in enumerate(boot_entries(boot.boot_id, directory), 1):
            if (record := parse_journal(entry, kernel_trust="kernel")) is not None:
                yield replace(record, seq=seq, line=seq)
    except OSError as reason:
        raise XidwatchError(f"journal of boot {boot.boot_id}: {reason.strerror or reason}; try journalctl --verify") from None


def judge_end(newest_first: Sequence[Entry]) -> tuple[bool | None, str]:
    """Whether a boot whose journal ends with these entries was shut down, and what shows it.

    Only what systemd, journald and the kernel wrote counts: any program can write the same words.
    """
    begun: str | None = None
    for entry in newest_first:
        writer, text = _writer(entry), str(entry.get("MESSAGE", ""))
        if writer == "journald" and _message_id(entry) == _JOURNAL_START:
            break  # what stands before a restart of journald does not end the boot
        if (proof := _proof(writer, entry, text)) is not None:
            return proof
        if writer in ("systemd", "logind") and _BEGUN.match(text):
            begun = text
    if begun is not None:
        return False, f"a shutdown was begun ({begun}) but the log stops before its end"
    if not any(_writer(entry) in ("systemd", "journald") for entry in newest_first):
        return None, "no word of systemd at its end"
    return False, f"the log stops without a shutdown; its last line: {newest_first[0].get('MESSAGE', '')}"


def _proof(writer: str | None, entry: Entry, text: str) -> tuple[bool, str] | None:
    """What one entry proves by itself."""
    match writer:
        case "journald" if _message_id(entry) == _JOURNAL_STOP:
            return True, f"the journal was stopped in order: {text}"
        case "shutdown":
            return True, f"systemd-shutdown was at work: {text}"
        case "systemd" if _ENDED.match(text):
            return True, text
        case "kernel" if _PANIC.search(text):
            return False, f"the kernel panicked: {text}"
        case _:
            return None


def _writer(entry: Entry) -> str | None:
    """Who wrote it, by the fields that the writer cannot choose."""
    transport, tag = entry.get("_TRANSPORT"), entry.get("SYSLOG_IDENTIFIER")
    if transport == "driver":
        return "journald"
    if transport == "kernel":
        if entry.get("SYSLOG_FACILITY") in (0, "0"):
            return "kernel"
        return {"systemd-shutdown": "shutdown", "systemd": "systemd"}.get(str(tag))
    if str(entry.get("_PID")) == "1":
        return "systemd"
    return {"systemd-logind": "logind", "systemd-journald": "journald", "systemd-journal": "journald"}.get(
        str(entry.get("_COMM"))
    )


def _message_id(entry: Entry) -> str:
    found = entry.get("MESSAGE_ID", "")
    return str(getattr(found, "hex", found))
