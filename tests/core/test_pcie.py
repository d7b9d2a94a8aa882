from __future__ import annotations

import pytest

from tests.core.reading import read_events
from xidwatch.core.event import AerDetail, Event, MceDetail


def told(event: Event) -> AerDetail:
    """The event's detail, which is a PCIe error's."""
    assert isinstance(event.detail, AerDetail)
    return event.detail


def checked(text: str) -> MceDetail:
    """Detail of the one machine check in the text."""
    (event,) = read_events(text)
    assert isinstance(event.detail, MceDetail)
    return event.detail


@pytest.mark.parametrize(
    ("line", "pci", "severity", "layer", "agent"),
    [
        (
            "nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "0000:17:00.0", "Corrected", "Physical Layer", "Receiver ID",
        ),
        (
            "nvme 0000:03:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
            "0000:03:00.0", "Uncorrected (Fatal)", "Transaction Layer", "Requester ID",
        ),
        (
            "pcieport 10000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, id=00e0(Transmitter ID)",
            "10000:00:1c.0", "Corrected", "Data Link Layer", "Transmitter ID",
        ),
        (
            "snd_hda_intel 0000:63:00.1: PCIe Bus Error: Uncorrectable (Non-Fatal), type=Transaction Layer",
            "0000:63:00.1", "Uncorrectable (Non-Fatal)", "Transaction Layer", None,
        ),
    ],
)  # fmt: skip
def test_bus_error(line: str, pci: str, severity: str, layer: str, agent: str | None) -> None:
    """Device, severity, layer and agent are read in every wording of `PCIe Bus Error`."""
    (event,) = read_events(line)
    detail = told(event)
    assert (pci, severity, layer, agent) == (str(event.pci), detail.severity_word, detail.error_type, detail.agent)


def test_received_then_bus_error() -> None:
    """The root port's line begins the event; the device of the `PCIe Bus Error` line behind it is the one that counts."""
    text = """
pcieport 0000:00:01.2: AER: Uncorrectable (Non-Fatal) error message received from 0000:63:00.0
snd_hda_intel 0000:63:00.1: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Receiver ID)
snd_hda_intel 0000:63:00.1:   device [10de:1aef] error status/mask=00040000/00000000
snd_hda_intel 0000:63:00.1:    [14] CmpltTO                (First)
snd_hda_intel 0000:63:00.1:    [18] MalfTLP
nvidia 0000:63:00.0: AER: can't recover (no error_detected callback)
"""
    (event,) = read_events(text)
    detail = told(event)
    assert ("0000:63:00.1", "0000:63:00.0") == (str(event.pci), str(detail.received_from))
    assert (("CmpltTO", "MalfTLP"), False, False) == (detail.errors, detail.recovered, detail.corrected)


def test_received_alone() -> None:
    """Where no `PCIe Bus Error` line follows, the device that the root port heard is the event's."""
    (event,) = read_events("pcieport 0000:16:01.0: AER: Multiple Corrected error received: 0000:17:00.0")
    assert ("0000:17:00.0", False, True) == (str(event.pci), told(event).confirmed, told(event).corrected)


def test_each_bus_error_counts() -> None:
    """A second `PCIe Bus Error` line is a second event."""
    text = "\n".join(["pcieport 0000:00:1d.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"] * 2)
    assert 2 == len(read_events(text))


def test_late_bus_error() -> None:
    """A bus error that comes seconds after a `received` line is not the one that it announced."""
    text = """
pcieport 0000:16:01.0: AER: Corrected error message received from 0000:17:00.0
nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
"""
    assert 2 == len(read_events(text, step_us=3_000_000))


def test_firmware_first() -> None:
    """An APEI block about a PCIe device is a PCIe error of that device."""
    text = """
{2}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0
{2}[Hardware Error]: event severity: corrected
{2}[Hardware Error]:  Error 0, type: corrected
{2}[Hardware Error]:   section_type: PCIe error
{2}[Hardware Error]:   device_id: 0000:3b:00.0
nvidia 0000:3b:00.0: aer_status: 0x00000040, aer_mask: 0x00000000
nvidia 0000:3b:00.0:    [ 6] BadTLP
nvidia 0000:3b:00.0: aer_layer=Data Link Layer, aer_agent=Receiver ID
"""
    (event,) = read_events(text)
    detail = told(event)
    assert ("aer", "0000:3b:00.0", ("BadTLP",)) == (event.kind, str(event.pci), detail.errors)
    assert ("corrected", True, "Data Link Layer") == (detail.severity_word, detail.corrected, detail.error_type)


@pytest.mark.parametrize(
    ("text", "cpu", "bank", "corrected"),
    [
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400", 3, 7, False),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004f000800c2", 3, 7, True),
        ("CPU 0: Machine Check Exception: 0000000000000007\nBank 3: b40000000000083b at 000000fdfc000cfc", 0, 3, False),
        ("mce: [Hardware Error]: Machine check events logged", None, None, None),
        ("EDAC sbridge MC1: CPU 1: Machine Check Event: 0 Bank 11: 8c00004f000800c2", 1, 11, True),
        (
            "mce: [Hardware Error]: Machine check events logged\nEDAC skx MC3: HANDLING MCE MEMORY ERROR\n"
            "EDAC skx MC3: CPU 10: Machine Check Event: 0 Bank 8: fc00010001010092\nEDAC skx MC3: TSC e6ee62e90fe6",
            10, 8, False,
        ),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", None, None, True),
        ("EDAC MC0: 1 UE on mc#0csrow#1channel#0 (csrow:1 channel:0 page:0x0)", None, None, False),
        ("EDAC MC0: CE page 0x1, offset 0x0, grain 8, syndrome 0x1, row 0, channel 1, label \"\": x", None, None, True),
        (
            "[Hardware Error]: Corrected error, no action required.\n"
            "[Hardware Error]: CPU:2 (17:31:0) MC15_STATUS[Over|CE|MiscV|-]: 0xdc2040000000011b\n[Hardware Error]: IPID: 0x0",
            2, 15, True,
        ),
        ("Hardware event. This is not a software error.\nMCE 0\nCPU 4 BANK 8 TSC 1\nSTATUS 8c00004f000800c2 MCGSTATUS "
         "0", 4, 8, True),
        ("{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4\n{1}[Hardware Error]: event "
         "severity: fatal", None, None, False),
    ],
)  # fmt: skip
def test_machine_check(text: str, cpu: int | None, bank: int | None, corrected: bool | None) -> None:  # noqa: FBT001 a row
    """One machine check is one event in every form, and its status register says whether it was corrected."""
    detail = checked(text)
    assert (cpu, bank, corrected) == (detail.cpu, detail.bank, detail.corrected)


def test_each_edac_line_counts() -> None:
    """Of several reports of a memory controller only the first belongs to the notice before it."""
    line = "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0 page:0x0)"
    text = "\n".join(["mce: [Hardware Error]: Machine check events logged", line, line, line])
    assert 3 == len(read_events(text))


def test_poisoned_process() -> None:
    """The process that the kernel kills for a memory error is the machine check's."""
    text = """
{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
{1}[Hardware Error]: DIMM location: CPU 1 DIMM 5
Memory failure: 0xe16677: Killing python3:2201 due to hardware memory corruption
"""
    (event,) = read_events(text)
    assert isinstance(event.detail, MceDetail)
    assert ("python3", 2201, "CPU 1 DIMM 5") == (event.process, event.pid, event.detail.location)


@pytest.mark.parametrize(
    "line",
    [
        "mce: Using 22 MCE banks",
        "Machine check injector initialized",
        "Starting machine check poll CPU 0",
        "Machine check poll done on CPU 0",
        "RAS KERNEL FATAL Machine State Register: 0x0002f900",
        "CMCI storm detected: switching to poll mode",
        "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0 (INTERRUPT)",
    ],
)
def test_no_machine_check(line: str) -> None:
    """Notices of the subsystem, and registers of the same name, are no machine checks."""
    assert [] == read_events(line)
