"""state.json, the daemon's own account of what holds now, read back into values. Pure; an older daemon's lacks parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from xidwatch.core.gpu import hardware_slowdown
from xidwatch.core.node import Daemon, DaemonSource, Gpu, Trouble
from xidwatch.core.rule import Severity

Kind = TypeVar("Kind", bound=object)


def read_daemon(state: object, now_us: int) -> Daemon:
    """What it says, and how old it is.

    Raises:
        ValueError: it is not what the daemon writes.
    """
    whole = _table(state, "state.json")
    written_us = _must(whole, "time_us", int)
    maintenance = _table(whole.get("maintenance") or {}, "maintenance")
    rules = _table(whole.get("rules") or {}, "rules")
    history = _table(whole.get("history") or {}, "history")
    nvml = _table(whole.get("nvml") or {}, "nvml")
    gpus = _list(whole, "gpus")
    return Daemon(
        age_s=(now_us - written_us) / 1e6,
        incidents=tuple(read_trouble(one) for one in _items(whole, "incidents")),
        maintenance=_maintenance(maintenance),
        sources=tuple(_source(one) for one in _items(whole, "sources")),
        injection_accepted=_may(whole, "injection_accepted", bool) or False,
        rules_mistakes=_mistakes(rules),
        history_error=_may(history, "last_error", str),
        nvml_asks=_may(nvml, "asked", bool) is True,
        nvml_up=_may(nvml, "up", bool),
        nvml_released=_may(nvml, "released", bool) or False,
        expected_gpus=_may(whole, "expected_gpus", int),
        gpus=None if gpus is None else tuple(map(read_gpu, gpus)),
    )


def stuck_s(nvml: Mapping[str, Any], age_s: float) -> float:
    """For how long NVML has been silent at present, by a state that was written `age_s` ago; 0.0 when it was not.

    Raises:
        ValueError: it is no number.
    """
    then_s = _may(nvml, "stuck_s", float) or 0.0
    # The daemon writes anew when the silence ends: until then it grows.
    return then_s + max(0.0, age_s) if then_s > 0 else 0.0


def read_trouble(incident: object) -> Trouble:
    """One incident, as `incidents[]` has it.

    Raises:
        ValueError: it is none.
    """
    one = _table(incident, "incident")
    severity = _must(one, "severity", str)
    if severity not in get_args(Severity):
        raise ValueError(f"severity {severity!r} is no word of xidwatch's")
    recovery = _table(one.get("recovery") or {}, "recovery")
    commands = [command for command in _items(recovery, "commands") if isinstance(command, str)]
    return Trouble(
        id=_must(one, "id", str),
        title=_may(one, "title", str) or "incident",
        sentence=_may(one, "sentence", str) or _may(one, "title", str) or "",
        severity=severity,  # type: ignore[arg-type]  # it is one of them: looked at above
        gpus=tuple(gpu for gpu in _items(one, "gpus") if isinstance(gpu, str)),
        rung=_may(recovery, "rung", str) or "none",
        command=commands[0] if commands else None,
    )


def read_gpu(slot: object) -> Gpu:
    """One GPU, as `gpus[]` has it.

    Raises:
        ValueError: it is none.
    """
    one = _table(slot, "gpu")
    fabric = _table(one.get("fabric") or {}, "fabric")
    banks = _table(one.get("banks_without_spare_rows") or {}, "banks_without_spare_rows")
    return Gpu(
        pci=_must(one, "pci", str),
        on_bus=_may(one, "on_bus", bool),
        driver=_may(one, "driver", str),
        answer=_may(one, "answer", str),
        config_space_dead=_may(one, "config_space_dead", bool),
        banks_without_rows=_may(banks, "none_left", int),
        banks_with_one_row=_may(banks, "one_left", int),
        since_us=_may(one, "since_us", int),
        missing=_may(one, "missing", bool) or False,
        gpu_uuid=_may(one, "gpu_uuid", str),
        serial=_may(one, "serial", str),
        place=_may(one, "place", str),
        recovery_action=_may(one, "recovery_action", str),
        row_remap_pending=_may(one, "row_remap_pending", bool),
        row_remap_failed=_may(one, "row_remap_failed", bool),
        pages_pending=_may(one, "pages_pending", bool),
        sram_threshold_exceeded=_may(one, "sram_threshold_exceeded", bool),
        ecc_enabled=_may(one, "ecc_enabled", bool),
        mig_enabled=_may(one, "mig_enabled", bool),
        mig_pending=_may(one, "mig_pending", bool),
        persistence_mode=_may(one, "persistence_mode", bool),
        fabric=_may(fabric, "probe", str),
        fabric_status=_may(fabric, "status", int),
        slowed_by=hardware_slowdown(_list(one, "clock_reasons")),
        temperature_celsius=_may(one, "temperature_celsius", int),
        nvlinks=_may(one, "nvlinks", int),
        nvlinks_down=_links_down(one),
        pcie_width=_may(one, "pcie_width", int),
        pcie_max_width=_may(one, "pcie_max_width", int),
    )


def _links_down(gpu: Mapping[str, Any]) -> tuple[int, ...] | None:
    links = _list(gpu, "nvlinks_down")
    return None if links is None else tuple(link for link in links if type(link) is int)


def _maintenance(one: Mapping[str, Any]) -> tuple[int, str] | None:
    if not _may(one, "active", bool):
        return None
    return _may(one, "until_us", int) or 0, _may(one, "reason", str) or ""


def _source(source: object) -> DaemonSource:
    one = _table(source, "source")
    return DaemonSource(name=_must(one, "name", str), up=_must(one, "up", bool))


def _mistakes(rules: Mapping[str, Any]) -> tuple[str, ...]:
    if _may(rules, "success", bool) is not False:
        return ()
    return tuple(str(mistake) for mistake in _items(rules, "mistakes")) or ("the reload failed",)


def _table(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _items(table: Mapping[str, Any], key: str) -> list[Any]:
    return _list(table, key) or []


def _list(table: Mapping[str, Any], key: str) -> list[Any] | None:
    found = table.get(key)
    if found is not None and not isinstance(found, list):
        raise ValueError(f"{key} is not a list")
    return found


def _may(table: Mapping[str, Any], key: str, kind: type[Kind]) -> Kind | None:
    """The value, or None where there is none; a whole number does for a fraction, truth for neither."""
    found = table.get(key)
    if found is None:
        return None
    if kind is float and type(found) is int:
        return float(found)  # type: ignore[return-value]
    if type(found) is not kind:
        raise ValueError(f"{key} is {found!r}")
    return found


def _must(table: Mapping[str, Any], key: str, kind: type[Kind]) -> Kind:
    found = _may(table, key, kind)
    if found is None:
        raise ValueError(f"{key} is missing")
    return found
