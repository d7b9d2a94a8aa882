"""A scenario: what the GPUs of a node that is not there would answer, as a text file.

    include FILE                      another scenario first, beside this one or shipped; later lines win
    at SECONDS                        the lines below hold from so long after the start on
    count N                           how many GPUs
    WHO KEY VALUE...                  WHO: a GPU's number, * for all, or node
    WHO fail FUNCTION CODE            FUNCTION: its name in nvml.h, or * for every function that takes a device
    WHO slow FUNCTION MILLISECONDS
    WHO block FUNCTION                never returns
    WHO dstate FUNCTION               D state, deaf to SIGTERM, for as long as the scenario says so
    WHO crash FUNCTION
    node lacks FUNCTION               the driver's library is too old to have it
    kernel TEXT                       `xidwatch demo --scenario` prints the line into its kernel's log

What a GPU has no KEY for is not supported. `scenarios/` holds those that ship; `scenarios/healthy.txt` has every key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from xidwatch.core.pci import PciAddress, parse_pci
from xidwatch.errors import XidwatchError
from xidwatch.plainfile import read_plain

DEEDS = frozenset({"fail", "slow", "block", "dstate", "crash", "lacks"})
NODE, ALL = -2, -1
_MOST_GPUS = 16
_DEEPEST = 8
_MOST_BYTES = 1 << 20


def shipped_scenarios() -> Path:
    """The folder of the scenarios that came with xidwatch: in the wheel, else beside the package (editable install)."""
    inside = Path(__file__).parent.parent / "_scenarios"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "scenarios"


@dataclass(slots=True)
class Scenario:
    """What holds at one moment.

    Attributes:
        count: GPUs that NVML counts.
        changes: Whether something is said to hold only later.
        kernel: Lines that the kernel has printed up to now.
    """

    count: int = 0
    changes: bool = False
    kernel: list[str] = field(default_factory=list)
    _said: dict[tuple[int, str], tuple[int, str]] = field(default_factory=dict)
    _lines: int = 0

    def say(self, who: int, key: str, value: str) -> None:
        """Add a line; it wins over what was said before."""
        self._lines += 1
        self._said[who, key] = (self._lines, value)

    def value(self, who: int, key: str) -> str | None:
        """What was said last of a GPU, by its number or for all, or of the node; None when nothing was."""
        found = [self._said[one, key] for one in ((who, ALL) if who >= 0 else (who,)) if (one, key) in self._said]
        return max(found)[1] if found else None

    def deed(self, who: int, what: str, function: str) -> str | None:
        """What was said of one function, for a GPU also of all functions."""
        found = self.value(who, f"{what} {function}")
        return found if found is not None or who < 0 else self.value(who, f"{what} *")

    def slots(self) -> tuple[PciAddress, ...]:
        """Where its GPUs are on the bus."""
        found = (parse_pci(self.value(gpu, "pci") or "") for gpu in range(self.count))
        return tuple(slot for slot in found if slot is not None)


def read_scenario(path: Path, elapsed_s: float = 0.0) -> Scenario:
    """The scenario of a file, as it is `elapsed_s` after its start.

    Raises:
        XidwatchError: it cannot be read, or not be understood; every mistake at once.
    """
    scenario, mistakes = Scenario(), list[str]()
    _read(path, elapsed_s, scenario, mistakes)
    if mistakes:
        raise XidwatchError("\n".join(mistakes))
    return scenario


def _read(path: Path, elapsed_s: float, scenario: Scenario, mistakes: list[str], depth: int = 0) -> None:
    try:
        text = read_plain(path, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        mistakes.append(f"{path}: {error.strerror if isinstance(error, OSError) else error}")
        return
    begins_s = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split(None, 1)
        if not words:
            continue
        word, rest = words[0], words[1].strip() if len(words) > 1 else ""
        try:
            if word == "at":
                begins_s = _seconds(rest)
            elif word == "include" and depth >= _DEEPEST:
                mistakes.append(f"{path}:{number}: include: it includes itself")
            elif begins_s > elapsed_s:
                scenario.changes = True
            elif word == "kernel":
                scenario.kernel.append(line.partition("kernel ")[2])
            elif word == "include":
                _read(_included(path, rest), elapsed_s, scenario, mistakes, depth + 1)
            else:
                _say(scenario, word, rest)
        except ValueError as error:
            mistakes.append(f"{path}:{number}: {line.strip()!r}: {error}")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError("a number of seconds from 0 on")
    return seconds


def _included(path: Path, name: str) -> Path:
    beside = path.parent / name
    return beside if beside.exists() else shipped_scenarios() / name


def _say(scenario: Scenario, word: str, rest: str) -> None:
    if word == "count":
        scenario.count = int(rest)
        if not 0 <= scenario.count <= _MOST_GPUS:
            raise ValueError(f"0 to {_MOST_GPUS} GPUs")
        return
    who = {"*": ALL, "node": NODE}.get(word, int(word) if word.isdecimal() else _MOST_GPUS)
    if who >= _MOST_GPUS:
        raise ValueError(f"a line begins with include, at, count, node, * or a GPU's number below {_MOST_GPUS}")
    key, _, value = rest.partition(" ")
    if not key:
        raise ValueError("what of it?")
    value = value.strip()
    if key in DEEDS:
        function, _, value = value.partition(" ")
        if not function:
            raise ValueError(f"{key} which function?")
        key, value = f"{key} {function}", value.strip()
    scenario.say(who, key, value)
