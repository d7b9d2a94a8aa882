"""What the text of an Xid says beyond its number, code by code.

Most of these texts are written by closed GSP firmware and only relayed by the open driver; where the open driver writes
them its file is named at the pattern (NVIDIA open-gpu-kernel-modules, 515.43.04 to 595.45.04).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from xidwatch.core.event import XidDetail
from xidwatch.core.pattern import lazy

_Fields = dict[str, Any]

_CHANNEL = lazy(r"\b(?:[Cc]hannel ID|[Cc]hannel|ChI[Dd]|Ch) (?:0x)?([0-9a-f]+)\b")
_CAUSE = lazy(r"caused by previous Xid (\d+)")
_PLACE = lazy(r"\(GPC\s+(\d+),\s*TPC\s+(\d+),\s*SM\s+(\d+)\)")
_OLD_GRAPHICS = lazy(r"([0-9a-f]{4}) [0-9a-f]{8} [0-9a-f]{8}\b")
_ENGINE = lazy(r"\bENGINE (\w+)|\bEngine=(\w+)")
_FAULT = lazy(r"\b(FAULT_\w+)|\bFault_Type=(\w+)")
_ACCESS = lazy(r"\bACCESS_TYPE_(\w+)|\bAccess(?:_Type)?=(\w+)")
_ADDRESS = lazy(r"(?:faulted @ |Virtual_Address=|\bAddress )0x([0-9a-f]+)(?:_([0-9a-f]+))?", re.IGNORECASE)
_PHYSICAL = lazy(r"\bphysAddr:? *(?:0x)?([0-9a-f]+)", re.IGNORECASE)
_ROW = lazy(r"\((?:0x)?([0-9a-f]{6,16})\)|\bat 0x([0-9a-f]+)", re.IGNORECASE)
_RESET = lazy(r"(?<![\w-])(D-RST|RST): *(Yes|No)\b", re.IGNORECASE)
_COUNTS = lazy(r"\b(DRAM|LTC|MMU|PCIE): *(-?\d+)")
_WORDS = lazy(r"[0-9a-f]{4,8}(?:\([0-9a-f]{4,8}\))?(?: [0-9a-f]{4,8})*$", re.IGNORECASE)
_LINK = lazy(r"\blink[: ]*(-?\d+)\b(?!x)", re.IGNORECASE)
_HEX_LIST = lazy(r"\(\s*((?:0x[0-9a-f]+[,\s]*)+)", re.IGNORECASE)
_NVLINK5 = lazy(
    r"(?P<subcode>[A-Z][A-Z0-9_]*(?: \w+)?)\s+(?P<word>Fatal|Non-?fatal)\b(?:\s+XC(?P<cross>\d+))?(?:\s+i\d+)?"
    r"(?:\s+Link\s+(?P<link>-?\d+))?",
    re.IGNORECASE,
)
_SUBCODE_ALONE = lazy(r"([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b")
_CROSS = lazy(r"\bXC(\d+)\b")
_ACTION_FROM = lazy(r"\bfrom\s+(?:0x)?([0-9a-f]+)\b", re.IGNORECASE)
_ACTION_TO = lazy(r"\bto\s+(?:0x)?([0-9a-f]+)\b", re.IGNORECASE)
_FUNCTION = lazy(r"Expected function (?:\d+ \()?([A-Z]\w*)")
_RETIRED = lazy(r"\bTPC (\d+)(?: from| in| of) GPC (\d+)")


@lru_cache(maxsize=1024)
def read_message(code: int, message: str) -> XidDetail:
    """The details in the text behind number, pid and name. Kept for equal texts: a storm repeats itself."""
    fields: _Fields = {"message": message}
    if code not in _NO_CHANNEL and (channel := _CHANNEL.search(message)):
        fields["channel"] = int(channel[1], 16)
    if "caused by" in message and (cause := _CAUSE.search(message)):
        fields["caused_by"] = int(cause[1])
    if read := _BY_CODE.get(code):
        fields.update(read(message))
    if "ault" in message or "Address 0x" in message:
        fields.update(_mmu_fault(message))
    return XidDetail(**fields)


def _mmu_fault(message: str) -> _Fields:
    """`MMU Fault: ENGINE GRAPHICS ... faulted @ 0x7f12_3a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ`."""
    fields: _Fields = {}
    for field, pattern in (("engine", _ENGINE), ("fault_type", _FAULT), ("access", _ACCESS)):
        if found := pattern.search(message):
            fields[field] = found[1] or found[2]
    if found := _ADDRESS.search(message):
        high, low = found.groups()
        fields["address"] = int(high, 16) if low is None else int(high, 16) << 32 | int(low, 16)
    return fields


def _graphics(message: str) -> _Fields:
    """13; before 2013 six bare words: channel, subchannel, class, method, data."""
    places = tuple((int(gpc), int(tpc), int(sm)) for gpc, tpc, sm in _PLACE.findall(message))
    if places:
        gpc, tpc, sm = places[0]
        return {"places": places, "gpc": gpc, "tpc": tpc, "sm": sm}
    if old := _OLD_GRAPHICS.match(message):
        return {"channel": int(old[1], 16)}
    return {}


def _unit(message: str) -> str | None:
    if "SRAM" in message:
        return "sram"
    if "DRAM" in message or "framebuffer" in message or "FBPA" in message:
        return "dram"
    return None


def _ecc(message: str) -> _Fields:
    """48, 92, 171, 172."""
    fields: _Fields = {"unit": _unit(message)}
    if found := _PHYSICAL.search(message):
        fields["physical_address"] = int(found[1], 16)
    return fields


def _row(message: str) -> _Fields:
    """63, 64, 177."""
    if found := _ROW.search(message):
        return {"physical_address": int(found[1] or found[2], 16)}
    return {}


def _contained(message: str) -> _Fields:
    """94, 95: src/nvidia/src/kernel/gpu/error_cont/arch/ampere/kern_gpu_error_cont_ga100.c.

    RST asks for a reset now, D-RST for one after a drain. FB is the frame buffer, so DRAM.
    """
    fields: _Fields = {}
    if re.match(r"(?:Unc|C)ontained: *FB\b", message):
        fields["unit"] = "dram"
    if found := _PHYSICAL.search(message):
        fields["physical_address"] = int(found[1], 16)
    flags = {name.upper(): answer.lower() == "yes" for name, answer in _RESET.findall(message)}
    if any(flags.values()) or len(flags) == 2:
        fields["reset_flags"] = tuple(name for name in ("RST", "D-RST") if flags.get(name))
    return fields


def _counted_ecc(message: str) -> _Fields:
    """140: `DRAM:1, LTC:0, MMU:0, PCIE:0`; the numbers are signed."""
    counts = {name: int(number) for name, number in _COUNTS.findall(message)}
    if counts.get("DRAM"):
        return {"unit": "dram"}
    return {"unit": "sram"} if counts.get("LTC") or counts.get("MMU") else {}


def _pmu_words(message: str) -> _Fields:
    """62: seven or more words, or three of which the first has a second in parentheses."""
    if _WORDS.match(message):
        return {"registers": tuple(int(word, 16) for word in re.findall(r"[0-9a-fA-F]+", message))}
    return {}


def _registers(message: str) -> _Fields:
    if (found := _HEX_LIST.search(message)) and len(words := re.findall(r"0x[0-9a-fA-F]+", found[1])) > 1:
        return {"registers": tuple(int(word, 16) for word in words)}
    return {}


def _nvlink(message: str) -> _Fields:
    """74, 136: `link 7(0x0, ...)` with seven registers; `links 0x3f000(...)` is a mask and names no single link."""
    fields = _registers(message)
    if found := _LINK.search(message):
        fields["link"] = int(found[1])
    return fields


def _nvlink5(message: str) -> _Fields:
    """144 to 150: `<SUBCODE> <Fatal|Nonfatal> XC<0/1> i<0/1> Link <nn> (intrInfo errorStatus ...)`; any tail may be cut."""
    if not (found := _NVLINK5.match(message)):
        return {"subcode": alone[1]} if (alone := _SUBCODE_ALONE.match(message)) else {}
    fields = _registers(message)
    fields.update(subcode=found["subcode"], severity_word=found["word"])
    if found["cross"]:
        fields["cross_contained"] = int(found["cross"])
    if found["link"]:
        fields["link"] = int(found["link"])
    if found["subcode"] in ("NETIR_LINK_EVT", "NETIR_LINK_DOWN") and "registers" in fields:
        fields["link_down_reason"] = fields["registers"][0] >> 20 & 0x3F
    return fields


def _software_defined(message: str) -> _Fields:
    """155: `NVLINK_SW_DEFINED_ERROR <name> XC0 i0 Link 05 : Link Down While Active.`."""
    fields = _nvlink(message)
    if found := _CROSS.search(message):
        fields["cross_contained"] = int(found[1])
    return fields


def _recovery_action(message: str) -> _Fields:
    """154, by number: the labels differ between driver branches (src/nvidia/src/kernel/gpu/gpu.c)."""
    fields: _Fields = {}
    if old := _ACTION_FROM.search(message):
        fields["recovery_action_from"] = int(old[1], 16)
        if new := _ACTION_TO.search(message, old.end()):
            fields["recovery_action"] = int(new[1], 16)
    return fields


def _rpc(message: str) -> _Fields:
    """119, and 175 where it is a 119 under another number (kernel_gsp.c)."""
    return {"function": found[1]} if (found := _FUNCTION.search(message)) else {}


def _retired(message: str) -> _Fields:
    """156, 157: `Retiring TPC 1 from GPC 3`."""
    return {"tpc": int(found[1]), "gpc": int(found[2])} if (found := _RETIRED.search(message)) else {}


_NO_CHANNEL = frozenset({*range(144, 151), 154, 155, 160, 161})  # 160 and 161 speak of memory channels
_BY_CODE: dict[int, Callable[[str], _Fields]] = {
    13: _graphics,
    48: _ecc, 92: _ecc, 171: _ecc, 172: _ecc,
    62: _pmu_words,
    63: _row, 64: _row, 177: _row,
    74: _nvlink, 136: _nvlink,
    94: _contained, 95: _contained,
    119: _rpc, 175: _rpc,
    140: _counted_ecc,
    154: _recovery_action,
    155: _software_defined,
    144: _nvlink5, 145: _nvlink5, 146: _nvlink5, 147: _nvlink5, 148: _nvlink5, 149: _nvlink5, 150: _nvlink5,
    156: _retired, 157: _retired,
}  # fmt: skip
