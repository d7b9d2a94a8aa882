"""Events and context as plain JSON values and back, for history and for what is pushed to others.

The shape is the dataclasses' own: one key a field that is not at its default, a detail under its class name; an event of one
record has no `last_record`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from xidwatch.core import event as events
from xidwatch.core.event import Context, Detail, Event
from xidwatch.core.job import Job
from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.core.record import Record

_DETAILS = {
    kind.__name__: kind
    for kind in (
        events.XidDetail, events.SxidDetail, events.NvrmDetail, events.HungTaskDetail, events.LockupDetail,
        events.OomDetail, events.AerDetail, events.MceDetail, events.UserspaceDetail,
    )
}  # fmt: skip


def encode(item: Event | Context) -> dict[str, Any]:
    """An event or context line as a JSON object; `type` is "event" or "context"."""
    coded = _encode_fields(item)
    coded["type"] = "event" if isinstance(item, Event) else "context"
    if isinstance(item, Event) and item.last_record is item.record:
        del coded["last_record"]
    return coded


def decode(coded: dict[str, Any]) -> Event | Context:
    """The value that `encode` was given.

    Raises:
        ValueError, TypeError, KeyError: the object is not one that `encode` makes.
    """
    values = dict(coded)
    kind = values.pop("type")
    for name in ("record", "last_record"):
        if name in values:
            values[name] = Record(**values[name])
    if "pci" in values:
        values["pci"] = _pci(values["pci"])
    if kind == "context":
        values["facts"] = tuple((str(name), str(value)) for name, value in values.get("facts", ()))
        return Context(**values)
    if "job" in values:
        values["job"] = Job(**values["job"])
    if "detail" in values:
        name, inside = values["detail"]
        values["detail"] = _decode_detail(name, inside)
    values.setdefault("last_record", values["record"])
    values["uid"] = tuple(values["uid"])
    return Event(**values)


def _encode_fields(item: Any) -> dict[str, Any]:
    coded: dict[str, Any] = {}
    for name, default in _fields_of(type(item)):
        value = getattr(item, name)
        if value is not default and (default is MISSING or value != default):
            encoder = _ENCODERS.get(type(value))
            coded[name] = value if encoder is None else encoder(value)
    return coded


_FIELDS: dict[Any, tuple[tuple[str, object], ...]] = {}


def _fields_of(kind: Any) -> tuple[tuple[str, object], ...]:
    """Names and defaults."""
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple((one.name, one.default) for one in fields(kind))
    return _FIELDS[kind]


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    PciAddress: str, Record: _encode_fields, Job: _encode_fields, tuple: list,
    **{kind: lambda value: [type(value).__name__, _encode_fields(value)] for kind in _DETAILS.values()},
}  # fmt: skip


def _decode_detail(name: str, inside: dict[str, Any]) -> Detail:
    values = {key: _tupled(value) for key, value in inside.items()}
    if "received_from" in values:
        values["received_from"] = _pci(values["received_from"])
    return _DETAILS[name](**values)


def _tupled(value: Any) -> Any:
    return tuple(_tupled(one) for one in value) if isinstance(value, list) else value


def _pci(text: str) -> PciAddress:
    found = parse_pci(text)
    if found is None:
        raise ValueError(f"not a PCI address: {text!r}")
    return found
