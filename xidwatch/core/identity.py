"""The same kernel line is the same whichever source brought it.

The journal keeps no kernel sequence number, but its `_SOURCE_MONOTONIC_TIMESTAMP` equals the microseconds of the
/dev/kmsg record (systemd 252, tried), so a line is known by boot, microseconds, text and its ordinal among equals.
"""

from __future__ import annotations

import hashlib

from xidwatch.core.record import Record


class Identities:
    """Gives every record of one source its identity. Records must come in the source's order."""

    def __init__(self) -> None:
        self._moment: tuple[str | None, int | None] = (None, None)
        self._equals: dict[str, int] = {}

    def of(self, record: Record) -> str:
        """Sixteen hex digits; equal texts within one microsecond are told apart by their order."""
        clock = record.since_boot_us if record.since_boot_us is not None else record.wall_us
        moment = (record.boot_id, clock)
        if moment != self._moment:
            self._moment, self._equals = moment, {}
        text = record.text.rstrip()
        ordinal = self._equals[text] = self._equals.get(text, -1) + 1
        identity = f"{record.boot_id}\0{clock}\0{ordinal}\0{text}"
        return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class LatestNames:
    """Names had lately, in little memory: the latest `most` for sure, and up to as many before them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[int] = set()
        self._older: set[int] = set()

    def __contains__(self, name: str) -> bool:
        digest = _digest(name)
        return digest in self._names or digest in self._older

    def add(self, name: str) -> bool:
        """Remember one; True when it was not known."""
        digest = _digest(name)
        new = digest not in self._names and digest not in self._older
        if len(self._names) >= self._most:
            self._names, self._older = set(), self._names
        self._names.add(digest)
        return new


def _digest(name: str) -> int:
    """Sixty-three bits of it, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big") >> 1
