"""What a case's `expected.json` says, compared with the events that `explain` reports.

An expected event is written as the log prints it (`0000:3b:00`, `1.70 GiB`, `count` in printed lines for an Xid);
the report follows the JSON contract. This module knows how the two correspond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from xidwatch.core.pci import parse_pci

Fields = Mapping[str, Any]

DOUBTFUL = frozenset({"optional", "partial", "source", "note"})
"""An expected event with one of these is second-hand, cut off or doubtful: it may be reported and may be left out."""
SAME_WORD = (
    "pid",
    "process",
    "cpu",
    "bank",
    "op",
    "seq",
    "rank",
    "timeout_ms",
    "gpu_instance",
    "compute_instance",
    "io_wait",
    "memcg",
)
SIZES = ("tried", "total", "free", "allocated", "reserved_unallocated")
EXACTLY_COUNTED = frozenset({"xid", "sxid", "hung_task", "oom_kill", "torch_oom", "nccl_timeout"})
COUNTED_IN_LINES = frozenset({"xid", "sxid"})
BESIDE_NVRM = frozenset({"nvrm", "xid", "sxid", "hung_task"})
"""Further driver lines beside one of these are welcome detail, not a false report."""
NAMED_WHAT = frozenset({"rm_init_adapter_failed", "fallen_off_bus", "api_mismatch"})
"""The nvrm kinds whose name must agree; the other names are finer than a reader of the log would make them."""
NOT_THE_DRIVER = ("windows_", "xorg_", "esxi_", "tegra_", "smi_", "kernel_oops_", "module_load_failed", "vgpu_init_failed")
"""Expected `what` names of text that the Linux driver did not print; it may be left out."""
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about; events with the same subject are counted together. `place` is (domain, bus, device)."""

    kind: str
    code: int | None
    what: str | None
    place: tuple[int, int, int] | None


def subject_of(event: Fields) -> Subject:
    """The subject of an expected or a reported event."""
    kind = "hard_lockup" if event.get("what") == "hard_lockup" else str(event["kind"])
    what = event.get("what")
    address = parse_pci(str(event.get("pci") or ""))
    return Subject(
        kind,
        event.get("code") if kind in COUNTED_IN_LINES else None,
        what if kind == "nvrm" and what in NAMED_WHAT else None,
        (address.domain, address.bus, address.device) if address else None,
    )


def differences(expected: Iterable[Fields], reported: Iterable[Fields]) -> list[str]:
    """Everything that keeps the report from being exact, one sentence each; empty when it says what the log says."""
    wanted = _by_subject(event for event in expected if event["kind"] != "none")
    got = _by_subject(reported)
    remarks: list[str] = []
    answered: set[Subject] = set()
    for subject in sorted(wanted, key=lambda s: s.place is None):  # those with an address choose first
        answers = _answers_to(subject, [s for s in got if s not in answered])
        answered.update(answers)
        if answers:
            remarks += _compare(subject, wanted[subject], [event for s in answers for event in got[s]])
        elif not all(_may_be_left_out(event) for event in wanted[subject]):
            remarks.append(f"missed: {subject}")
    driver_in_focus = any(subject.kind in BESIDE_NVRM for subject in wanted)
    for subject in got:
        if subject not in answered and not (subject.kind == "nvrm" and driver_in_focus):
            remarks.append(f"not in the log: {subject}")
    return remarks


def _by_subject(events: Iterable[Fields]) -> dict[Subject, list[Fields]]:
    groups: dict[Subject, list[Fields]] = {}
    for event in events:
        groups.setdefault(subject_of(event), []).append(event)
    return groups


def _answers_to(wanted: Subject, free: list[Subject]) -> list[Subject]:
    """The reported subjects that speak of the wanted one; several only where the log gave no address."""
    if wanted in free:
        return [wanted]
    loose = wanted.kind == "nvrm" or wanted.place is None
    if not loose:
        return []
    near = [s for s in free if (s.kind, s.code) == (wanted.kind, wanted.code) and wanted.place in (None, s.place)]
    return near[:1] if wanted.kind == "nvrm" else near


def _compare(subject: Subject, wanted: list[Fields], got: list[Fields]) -> list[str]:
    remarks = []
    in_log, in_report = sum(event.get("count", 1) for event in wanted), sum(_times(event) for event in got)
    doubtful = any(_may_be_left_out(event) for event in wanted)
    if in_log != in_report and subject.kind in EXACTLY_COUNTED and not doubtful:
        remarks.append(f"{subject}: {in_report} counted, {in_log} in the log")
    unmatched = list(got)
    for event in wanted:
        nearest = min(unmatched or got, key=lambda candidate: len(_unequal(event, candidate)))
        unequal = _unequal(event, nearest)
        if unequal and not _may_be_left_out(event):
            remarks.append(f"{subject}: " + "; ".join(unequal))
        elif nearest in unmatched:
            unmatched.remove(nearest)
    return remarks


def _times(event: Fields) -> int:
    counted = event["lines"] if event["kind"] in COUNTED_IN_LINES else event["count"]
    return int(counted)


def _may_be_left_out(event: Fields) -> bool:
    return not DOUBTFUL.isdisjoint(event) or str(event.get("what")).startswith(NOT_THE_DRIVER)


def _unequal(wanted: Fields, got: Fields) -> list[str]:
    pairs = [(name, wanted[name], got.get(name)) for name in SAME_WORD if name in wanted]
    if wanted.get("gpu_related") in ("yes", "no"):
        pairs.append(("gpu_related", wanted["gpu_related"] == "yes", got.get("gpu_related")))
    found = [f"{name} is {seen!r}, the log says {said!r}" for name, said, seen in pairs if seen != said]
    if wanted["kind"] == "torch_oom":
        found += [
            f"{name} is {got.get(name)!r} bytes, the log says {wanted[name]}"
            for name in SIZES
            if name in wanted and not _same_size(wanted[name], got.get(name))
        ]
    return found


def _same_size(printed: str | float, reported: object) -> bool:
    """Within one per cent or 20 KiB: the log prints two decimals."""
    if not isinstance(reported, int | float):
        return False
    if isinstance(printed, str):
        number, unit = printed.split()
        printed = float(number) * UNITS[unit]
    return abs(printed - reported) <= 0.01 * max(printed, UNITS["MiB"] * 2)
