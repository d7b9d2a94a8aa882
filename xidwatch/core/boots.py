"""Where one boot ends and the next begins in a row of records."""

from __future__ import annotations

from xidwatch.core.event import Context
from xidwatch.core.record import Record


class BootTurns:
    """Notices that a record belongs to another boot than the one before it, also where the kernel's first lines are missing."""

    def __init__(self) -> None:
        self._boots: dict[object, str] = {}

    def turn(self, key: object, record: Record) -> Context | None:
        """A boot as context, where this record is the first of another one; None else.

        Args:
            key: What has boots of its own: a host, or a host within a file.
        """
        before = self._boots.get(key)
        if record.boot_id is None or record.boot_id == before:
            return None
        self._boots[key] = record.boot_id
        # The kernel's own first line is context by itself.
        said = before is None or record.text.startswith("Linux version ")
        return None if said else Context(kind="boot", record=record)
