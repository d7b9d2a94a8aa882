"""Whose a log is that names no host: the one host that other logs of the same folder name, else the folder's own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from xidwatch.core.event import Context
from xidwatch.core.runs import Run

Item = Run | Context


class Homes:
    """Hosts by folder, learnt from what was read. `folders` gives each stream's folder and the node it is named after."""

    def __init__(self, folders: Mapping[int, tuple[str, str | None]]) -> None:
        self._folders = folders
        self._named: dict[str, set[str]] = {}
        self._streams: dict[str, set[int]] = {}

    def see(self, stream: int, items: Iterable[Item]) -> None:
        """Learn which hosts the lines of a stream name themselves."""
        folder, node = self._folders.get(stream, ("", None))
        self._streams.setdefault(folder, set()).add(stream)
        named = self._named.setdefault(folder, set())
        for item in items:
            host = _host(item)
            if host is not None and host != node:
                named.add(host)

    def host(self, stream: int, host: str | None) -> str | None:
        """The host of a line of that stream which names this one, or None."""
        folder, node = self._folders.get(stream, ("", None))
        named = self._named.get(folder, set())
        unnamed = host is None or host == node
        alone = host is None and len(self._streams.get(folder, ())) < 2
        return next(iter(named)) if unnamed and not alone and len(named) == 1 else host

    def move(self, stream: int, item: Item) -> Item:
        """The item with its host."""
        host = _host(item)
        known = self.host(stream, host)
        if known == host:
            return item
        if isinstance(item, Context):
            return replace(item, record=replace(item.record, host=known))
        for name in ("event", "last"):
            event = getattr(item, name)
            records = {at: replace(getattr(event, at), host=known) for at in ("record", "last_record")}
            setattr(item, name, replace(event, **records))
        return item


def _host(item: Item) -> str | None:
    return (item if isinstance(item, Context) else item.event).record.host
