"""Events and context as plain JSON values and back, for history and for what is pushed to others.

The shape is the dataclasses' own: one key a field that is not at its default, a detail under its class name.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, cast

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
    values["uid"] = tuple(values["uid"])
    return Event(**values)


def _encode_fields(item: object) -> dict[str, Any]:
    coded: dict[str, Any] = {}
    for one in fields(cast("Any", item)):
        value = getattr(item, one.name)
        if one.default is MISSING or value != one.default:
            coded[one.name] = _encode_value(value)
    return coded


def _encode_value(value: object) -> Any:
    if isinstance(value, PciAddress):
        return str(value)
    if isinstance(value, Record | Job):
        return _encode_fields(value)
    if type(value).__name__ in _DETAILS:
        return [type(value).__name__, _encode_fields(value)]
    return list(value) if isinstance(value, tuple) else value


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
