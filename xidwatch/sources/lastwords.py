"""Inputs that are no log files: a boot out of the journal, and what the firmware kept of a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator

from xidwatch.core.incident import InputReport
from xidwatch.core.record import Record

PSTORE = "/sys/fs/pstore"


class Boot:
    """One boot of this machine (or of a folder of journal files) and how it ended.

    Attributes:
        reports: One report, complete when the records have been read.
    """

    def __init__(self, which: str, directory: str | None = None) -> None:
        """Arguments as for `boots.boot_records`."""
        self.reports: list[InputReport] = []
        self._which, self._directory = which, directory

    def __iter__(self) -> Iterator[Record]:
        """Its records.

        Raises:
            XidwatchError: the journal cannot be read or has no such boot.
        """
        from xidwatch.sources.boots import boot_records, ended_cleanly

        records = boot_records(self._which, self._directory)
        clean, why = ended_cleanly(self._which, self._directory)
        word = {True: "it was shut down", False: "it did not end by a shutdown", None: "how it ended is not known"}[clean]
        notes = [f"{word}: {why}"]
        if self._directory is None and is_pstore(PSTORE):
            notes.append(f"the firmware kept a dump of a crash: xidwatch explain {PSTORE}")
        yield from _counted(records, self.reports, f"boot {self._which}", "journal", notes)


class PstoreInput:
    """The dumps that pstore kept. `reports` as for `Boot`."""

    def __init__(self, folder: str) -> None:
        self.reports: list[InputReport] = []
        self._folder = folder

    def __iter__(self) -> Iterator[Record]:
        """Their records, in the order in which the kernel wrote them."""
        from xidwatch.sources.pstore import PstoreDumps

        dumps = PstoreDumps(None if self._folder.rstrip("/") == PSTORE else self._folder)
        notes: list[str] = []
        yield from _counted(iter(dumps), self.reports, self._folder, "pstore", notes)
        found = [f"kept because of: {', '.join(dumps.reasons)}"] if dumps.reasons else []
        last = self.reports[-1]
        self.reports[-1] = InputReport(
            path=last.path, format=last.format, bytes=0, records=last.records, first=last.first, last=last.last,
            boot_ids=last.boot_ids, notes=(*found, *dumps.notes),
        )  # fmt: skip


def is_pstore(path: str) -> bool:
    """Whether a folder holds dumps as pstore names them, `dmesg-efi-…`, and nothing else."""
    try:
        names = [name for name in os.listdir(path) if not name.startswith(".")]
    except OSError:
        return False
    return (
        bool(names)
        and all(name.startswith(("dmesg-", "console-", "pmsg-", "ftrace-")) for name in names)
        and any(name.startswith("dmesg-") and "-" in name[6:] for name in names)
    )


def _counted(records: Iterator[Record], reports: list[InputReport], path: str, form: str, notes: list[str]) -> Iterator[Record]:
    count, first, last, boots = 0, None, None, dict[str, None]()
    for record in records:
        count += 1
        first, last = first or record, record
        if record.boot_id is not None:
            boots[record.boot_id] = None
        yield record
    reports.append(
        InputReport(
            path=path, format=form, bytes=0, records=count, first=first, last=last, boot_ids=tuple(boots), notes=tuple(notes)
        )
    )
