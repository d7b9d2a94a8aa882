"""The units: what they grant, what they cost, and that systemd has nothing to say against them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postmortems import ROOT
from xidwatch.installer import DROP_INS, UNITS

UNIT_FOLDER = ROOT / "systemd"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: apt-get install systemd"
)


def settings(*files: str) -> list[tuple[str, str]]:
    """(key, value) of the units, as they stand."""
    lines = [line for file in files for line in (UNIT_FOLDER / file).read_text(encoding="utf-8").splitlines()]
    pairs = [line.partition("=") for line in lines if "=" in line and not line.startswith("#")]
    return [(key, value) for key, _, value in pairs]


def values(unit: str, key: str) -> list[str]:
    """Every value that a unit gives a key."""
    return [value for name, value in settings(unit) if name == key]


def exposure(folder: Path, *files: str) -> float:
    """What `systemd-analyze security` thinks of a unit with these drop-ins: 0 is shut, 10 is open."""
    unit = folder / "measured.service"
    unit.write_text("\n".join((UNIT_FOLDER / file).read_text(encoding="utf-8") for file in files), encoding="utf-8")
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)], capture_output=True, text=True, check=False
    )
    if "unrecognized option" in said.stderr or "Unknown option" in said.stderr:
        pytest.skip("systemd-analyze is older than 250: it cannot judge a unit that is not loaded")
    found = re.search(r"exposure level for .*?: ([\d.]+)", said.stdout)
    assert found, said.stdout + said.stderr
    return float(found[1])


@needs_systemd
@pytest.mark.parametrize(
    ("files", "most"),
    [
        (("xidwatch.service",), 2.0),
        (("xidwatch.service", "drop-ins/remote-scrape.conf"), 2.0),
        (("xidwatch.service", "drop-ins/d-state.conf"), 2.4),
        (("xidwatch.service", "drop-ins/d-state.conf", "drop-ins/d-state-stack.conf"), 2.7),
        (("xidwatch-hook.service",), 2.0),
    ],
)
def test_exposure(tmp_path: Path, files: tuple[str, ...], most: float) -> None:
    """What xidwatch could do if it were taken over stays little; a drop-in costs what it says."""
    assert most >= exposure(tmp_path, *files)


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_has_nothing_to_say(tmp_path: Path, unit: str) -> None:
    """Every key and value is known to systemd."""
    (tmp_path / unit).write_text(
        (UNIT_FOLDER / unit).read_text(encoding="utf-8").replace("/opt/xidwatch/bin/xidwatch", "/bin/true")
    )
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit)], capture_output=True, text=True, check=False
    )
    assert [] == [line for line in said.stderr.splitlines() if unit in line]


def capabilities() -> Iterator[tuple[str, set[str]]]:
    """(file, capabilities that it grants)."""
    for file in (*UNITS, *(f"drop-ins/{name}.conf" for name in DROP_INS)):
        yield (
            file,
            {word for key, value in settings(file) if key.endswith(("Capabilities", "BoundingSet")) for word in value.split()},
        )


def test_no_right_but_what_the_work_needs() -> None:
    """Reading the kernel's log is the one capability; the hook has none; D state evidence is asked for by the operator."""
    expected = {
        "xidwatch.service": {"CAP_SYSLOG"},
        "xidwatch-hook.service": set(),
        "drop-ins/d-state.conf": {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"},
        "drop-ins/d-state-stack.conf": {"CAP_SYS_ADMIN"},
        "drop-ins/remote-scrape.conf": set(),
    }
    assert expected == dict(capabilities())
    assert [["yes"], ["yes"]] == [values(unit, "DynamicUser") for unit in UNITS]


def test_no_drop_in_is_granted_by_copying_the_folder() -> None:
    """What lies beside the units as `*.d/` would be in force; what an operator has to choose must not."""
    assert [] == [path.name for path in UNIT_FOLDER.iterdir() if path.name.endswith(".d")]
    assert sorted(DROP_INS) == sorted(path.stem for path in (UNIT_FOLDER / "drop-ins").iterdir())


def test_watcher_comes_back_for_ever_and_outlives_what_it_reports() -> None:
    """No start limit, a watchdog, and the last to be killed for want of memory."""
    unit = dict(settings("xidwatch.service"))
    expected = {
        "Restart": "always",
        "StartLimitIntervalSec": "0",
        "OOMScoreAdjust": "-900",
        "Type": "notify",
        "WatchdogSec": "30",
    }
    assert expected == {key: unit[key] for key in expected}


def test_stop_waits_longer_than_the_daemon_takes() -> None:
    """The daemon gives the disk 5 s for the history and 2 s for state.json before it ends; systemd waits for that."""
    from xidwatch.watch import _CLOSE_S

    assert _CLOSE_S + 2 + 5 <= float(dict(settings("xidwatch.service"))["TimeoutStopSec"])


def test_only_the_kernel_log_and_the_gpus_are_seen() -> None:
    """Of the devices, nothing else; /dev/kmsg for reading only."""
    assert ["closed"] == values("xidwatch.service", "DevicePolicy")
    assert ["/dev/kmsg r", "char-195 rw", "char-nvidia* rw"] == values("xidwatch.service", "DeviceAllow")


def test_scraped_from_this_node_only_unless_told_otherwise() -> None:
    """The unit allows the loopback; the drop-in allows the rest."""
    assert ["any"] == values("xidwatch.service", "IPAddressDeny")
    assert ["localhost"] == values("xidwatch.service", "IPAddressAllow")
    assert ["any"] == values("drop-ins/remote-scrape.conf", "IPAddressAllow")
