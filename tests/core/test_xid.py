from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core import xid
from xidwatch.core.event import Event, MalformedLine, XidDetail
from xidwatch.core.pci import PciAddress
from xidwatch.core.record import Record

GPU = PciAddress(0, 0x3B, 0)
HEAD = "NVRM: Xid (PCI:0000:3b:00): "


def record(text: str, seq: int = 1, at_ms: int | None = None) -> Record:
    """A record of this text; without a time unless `at_ms` gives one."""
    return Record(text=text, seq=seq, timed=at_ms is not None, since_boot_us=None if at_ms is None else at_ms * 1000)


def only(text: str) -> Event:
    """The one event that a text starts."""
    (event,) = xid.start(record(text))
    return event


def detail(text: str) -> XidDetail:
    """The detail, known to be of the family."""
    found = only(HEAD + text).detail
    assert isinstance(found, XidDetail)
    return found


def fold(records: Iterable[Record]) -> list[Event]:
    """Events of records that arrive one after another, each taken by the latest event that wants it."""
    events: list[Event] = []
    for item in records:
        for place in reversed(range(len(events))):
            if (richer := xid.extend(events[place], item)) is not None:
                events[place] = richer
                break
        else:
            events.extend(xid.start(item))
    return events


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("NVRM: Xid (0000:3b:00): 79, GPU has fallen off the bus.", "0000:3b:00.0"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "0000:3b:00.0"),
        ("NVRM: Xid (PCI:00000000:3B:00): 79, GPU has fallen off the bus.", "0000:3b:00.0"),
        ("NVRM: Xid (PCI:0009:01:00): 79, GPU has fallen off the bus.", "0009:01:00.0"),
        ("NVRM: Xid (PCI:10000:01:00): 79, GPU has fallen off the bus.", "10000:01:00.0"),
        ("NVRM: Xid (0001:00): 79, GPU has fallen off the bus.", "0000:01:00.0"),
        ("NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.", "0000:10:1c.0"),
        ("NVRM: Xid (PCI:...): 79, GPU has fallen off the bus.", "None"),
    ],
)
def test_every_spelling_of_the_address_is_read(text: str, pci: str) -> None:
    """Each driver's way to write the PCI address gives the same address, an elided one gives none."""
    event = only(text)
    assert (79, pci) == (event.code, str(event.pci))


@pytest.mark.parametrize(
    ("instances", "expected"),
    [("", (None, None)), (" GPU-I:05", (5, None)), (" GPU-I:05 GPU-CI:00", (5, 0)), (" GPU-I:13 GPU-CI:02", (13, 2))],
)
def test_mig_instances_are_read(instances: str, expected: tuple[int | None, int | None]) -> None:
    """A MIG suffix gives the GPU instance and the compute instance as numbers."""
    event = only(f"NVRM: Xid (PCI:0000:3b:00{instances}): 43, pid=2201, name=python3, Ch 00000012")
    assert expected == (event.gpu_instance, event.compute_instance)
    assert (GPU, 2201, "python3") == (event.pci, event.pid, event.process)


@pytest.mark.parametrize(
    ("owner", "pid", "name"),
    [
        ("", None, None),
        ("pid=2201, ", 2201, None),
        ("pid=2201, name=python3, ", 2201, "python3"),
        ("pid='<unknown>', name=<unknown>, ", None, None),
        ("pid=<unknown>, name=<unknown>, ", None, None),
        ("pid=..., name=python3, ", None, "python3"),
        ("name=plasmashell, ", None, "plasmashell"),
        ("pid=7, name=nvc:[driver], ", 7, "nvc:[driver]"),
        ("pid=7, name=VLLM::Worker, ", 7, "VLLM::Worker"),
        ("pid=7, name=KMS thread, ", 7, "KMS thread"),
        ("pid=7, name=a, b, ", 7, "a, b"),
    ],
)
def test_every_form_of_pid_and_name_is_read(owner: str, pid: int | None, name: str | None) -> None:
    """Pid and name may each be missing, unknown or redacted, and a name may hold blanks, colons, brackets and commas."""
    event = only(f"{HEAD}43, {owner}Ch 0000000a")
    assert (pid, name) == (event.pid, event.process)
    assert XidDetail(message="Ch 0000000a", channel=10) == event.detail
    assert ("owner" if pid else None) == event.pid_role


@pytest.mark.parametrize("code", [119, 175])
def test_whoever_asked_the_firmware_is_a_victim(code: int) -> None:
    """The process in a firmware time-out merely asked."""
    assert "victim" == only(f"{HEAD}{code}, pid=9, name=nvidia-smi, Timeout after 6s of waiting for RPC").pid_role


@pytest.mark.parametrize(
    "text", ["46, ", "46,", "46", "46, pid=2201", "46, pid=2201, name=python3", "46, pid=2201, name=python3, "]
)
def test_the_message_may_be_empty(text: str) -> None:
    """A driver that has nothing to say, and a log that strips trailing blanks, still give the number."""
    event = only(HEAD + text)
    assert (46, XidDetail()) == (event.code, event.detail)


@pytest.mark.parametrize(
    "text",
    [
        "XID 641, IRQ 126",
        "BOOTP/DHCP, Request from 02:00:00:00:00:03, xid 0x1758c71e",
        "sessionid:0x34 type:create cxid:0x55b8bb0f zxid:0x100000010",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Non-fatal, Link 52 Minion",
        "Xid errors on instance: node-1",
        "Xid 79 errors were seen",
        "we call Xid (number 79) a lost GPU",
    ],
)
def test_what_only_looks_like_an_xid_is_none(text: str) -> None:
    """Transaction ids, network chips, NVSwitch errors and prose are no Xids."""
    assert () == xid.start(record(text))


@pytest.mark.parametrize(
    "text", ["NVRM: Xid (garbage): 79", "NVRM: Xid (PCI:0000:3b:00): ", "NVRM: Xid (PCI:0000:3b", HEAD + "x"]
)
def test_an_unreadable_xid_line_is_malformed(text: str) -> None:
    """A line that is certainly an Xid and cannot be read is told, not dropped."""
    with pytest.raises(MalformedLine):
        xid.start(record(text))


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        '[XID found] (5 minutes ago) "{}"',
        "diff:371;{}",
        "nvme nvme0: resetting{}",
        "Xid errors on instance: node-1, Error: {}",
        "process '{}' started with executable stack",
    ],
)
def test_an_xid_inside_a_longer_line_is_found(around: str) -> None:
    """Text before and behind the Xid changes nothing in it."""
    event = only(around.format(HEAD + "79, pid=1, name=x, GPU has fallen off the bus."))
    assert (79, 1, "x") == (event.code, event.pid, event.process)
    assert XidDetail(message="GPU has fallen off the bus.") == event.detail


def test_several_xids_on_one_line_are_several_events() -> None:
    """A node condition that quotes two kernel lines gives two events with ids of their own."""
    quoted = (
        "ErrorCode:119 kernel: [1.5] NVRM: Xid (PCI:0002:00:00): 119, pid=15, name=nvc:[driver], Timeout after 6s of waiting "
        "for RPC response from GPU1 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8). Recommended Action=RESET;"
        "ErrorCode:94 kernel: [1.5] NVRM: Xid (PCI:0002:00:00): 94, pid=7, name=x, Contained ECC error. Recommended Action=X;"
    )
    first, second = xid.start(record(quoted))
    assert [(119, 15, "nvc:[driver]"), (94, 7, "x")] == [(e.code, e.pid, e.process) for e in (first, second)]
    assert first.uid != second.uid
    assert XidDetail(message="Contained ECC error.") == second.detail


def test_one_printk_of_several_lines_is_one_event() -> None:
    """A newline inside the record ends the message, or carries it on where it was empty."""
    assert "GPU has fallen off the bus." == detail("79, GPU has fallen off the bus.\nNVRM: GPU 0000:3b:00.0: more").message
    assert "Head 00000001 Count 00001f2a" == detail("16, \nHead 00000001 Count 00001f2a").message


@pytest.mark.parametrize(
    ("text", "code", "gpu_uuid"),
    [
        (
            "XidCriticalError: Xid=69 on Device=GPU-00000000-1111-2222-3333-000000000027, the device will go unhealthy.",
            69,
            "GPU-00000000-1111-2222-3333-000000000027",
        ),
        ("XidCriticalError: Xid=48 on Device=GPU-00000000-...; marking device as unhealthy.", 48, None),
        ('XidCriticalError     True    Mon, 23 Jun 2025   {"31":true}     6e43a052', 31, None),
    ],
)
def test_second_hand_reports_give_the_number(text: str, code: int, gpu_uuid: str | None) -> None:
    """What a device plugin says has a number, at best a UUID, and never an address."""
    event = only(text)
    assert (code, gpu_uuid, None) == (event.code, event.gpu_uuid, event.pci)


def test_lines_of_one_exception_are_one_event() -> None:
    """Xid 13 prints a line for every SM; the same GPU and pid within a second are one event with all places."""
    head = HEAD + "13, pid=1, name=x, "
    (event,) = fold(
        [
            record(head + "Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range Address", 1, 0),
            record(head + "Graphics SM Global Exception on (GPC 3, TPC 1, SM 0): Multiple Warp Errors", 2, 1),
            record(head + "Graphics Exception: ESR 0x51b730=0xc01000e 0x51b734=0x24", 3, 2),
            record(head + "Graphics SM Warp Exception on (GPC 4, TPC 0, SM 1): Out Of Range Address", 4, 3),
        ]
    )
    assert 4 == event.lines
    assert isinstance(event.detail, XidDetail)
    assert ((3, 1, 0), (4, 0, 1)) == event.detail.places
    assert (3, 1, 0) == (event.detail.gpc, event.detail.tpc, event.detail.sm)
    assert (0, 1, 0) == event.uid


@pytest.mark.parametrize(
    "second",
    [
        record("NVRM: Xid (PCI:0000:5e:00): 13, pid=1, name=x, Graphics Exception: ESR 0x1=0x2", 2, 1),
        record(HEAD + "13, pid=2, name=x, Graphics Exception: ESR 0x1=0x2", 2, 1),
        record(HEAD + "13, pid=1, name=x, Graphics Exception: ESR 0x1=0x2", 2, 1500),
        record("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 13, pid=1, name=x, Graphics Exception: ESR 0x1=0x2", 2, 1),
        record(HEAD + "43, pid=1, name=x, Ch 0000000a", 2, 1),
    ],
)
def test_other_gpus_pids_and_times_are_other_events(second: Record) -> None:
    """Another address, MIG instance, pid, number or second does not join an exception."""
    assert 2 == len(fold([record(HEAD + "13, pid=1, name=x, Graphics Exception: ESR 0x1=0x1", 1, 0), second]))


@pytest.mark.parametrize(
    ("first", "rest", "message"),
    [
        ("79, pid=982, GPU has fallen", "off the bus.", "GPU has fallen off the bus."),
        ("16,", "Head 00000000 Count 00006e2e", "Head 00000000 Count 00006e2e"),
        ("69, pid=..., name=p, Class Error:", "      channel 0x9, Class 0000cec0", "Class Error: channel 0x9, Class 0000cec0"),
        (
            "154, GPU recovery action changed from 0x0 (None)",
            "to 0x2 (X)",
            "GPU recovery action changed from 0x0 (None) to 0x2 (X)",
        ),
    ],
)
@pytest.mark.parametrize("at_ms", [0, None])
def test_a_wrapped_message_is_joined(first: str, rest: str, message: str, at_ms: int | None) -> None:
    """The next physical line without a time carries a cut message on, in a log with times and in one without."""
    (event,) = fold([record(HEAD + first, 1, at_ms), record(rest, 2)])
    assert isinstance(event.detail, XidDetail)
    assert (1, message) == (event.lines, event.detail.message)


def test_what_was_wrapped_is_read_in_full() -> None:
    """Details that stand behind the break are read as well."""
    (event,) = fold(
        [record(HEAD + "13, Graphics SM Warp Exception on", 1, 0), record("(GPC 5, TPC 4, SM 0): Out Of Range Address", 2)]
    )
    assert isinstance(event.detail, XidDetail)
    assert ((5, 4, 0),) == event.detail.places


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (record(HEAD + "79, GPU has fallen off the bus.", 1, 0), record("off the bus.", 2)),
        (record(HEAD + "69, name=X, Class Error: channel 0x00000003", 1), record("RuntimeError: CUDA error", 2)),
        (record(HEAD + "79, GPU has fallen", 1, 0), record("off the bus.", 2, 1)),
        (record(HEAD + "79, GPU has fallen", 1, 0), record("off the bus.", 5)),
        (record(HEAD + "79, GPU has fallen", 1, 0), record("NVRM: GPU 0000:3b:00.0: more", 2)),
    ],
)
def test_other_lines_do_not_join(first: Record, second: Record) -> None:
    """A whole message, a line with its own time, a distant line and another program's line are left alone."""
    assert None is xid.extend(only(first.text) if first.since_boot_us is None else xid.start(first)[0], second)


DUMP = [
    "NVRM: GPU0 GSP RPC buffer contains function 76 (GSP_RM_CONTROL) sequence 12 and data 0x0000000020808513 0x4.",
    "NVRM: GPU0 RPC history (CPU -> GSP):",
    "NVRM:     entry function                   data0              data1              ts_start           ts_end",
    "NVRM:      0    76   GSP_RM_CONTROL        0x0000000020808513 0x0000000000000004 0x00062ed1a6bd61fa 0x0000000000000000 y",
    "NVRM:     -1    103  GSP_RM_ALLOC          0x00000000000090cc 0x0000000000000000 0x00060ec47fc74b7c 0x00060ec47fc74e3e",
    "NVRM: GPU0 RPC event history (CPU <- GSP):",
    "NVRM: _kgspLogXid119: ********************************* GSP Timeout **********************************",
    "NVRM: _kgspLogXid119: Note: Please also check logs above.",
    "CPU: 7 PID: 2201 Comm: nvidia-smi Tainted: P           OE     5.15.0-112-generic #122-Ubuntu",
    "Call Trace:",
    " <TASK>",
    " dump_stack_lvl+0x4a/0x63",
    " ? rm_ioctl+0x54/0xb0 [nvidia]",
    " </TASK>",
]


@pytest.mark.parametrize("text", DUMP)
def test_the_dump_behind_a_time_out_belongs_to_it(text: str) -> None:
    """RPC history and stack behind a 119 are the same event and count no lines."""
    asked = (
        HEAD + "119, pid=3, name=nvidia-smi, Timeout waiting for RPC from GSP! Expected function 76 (GSP_RM_CONTROL) (0x0 0x1)."
    )
    (event,) = fold([record(asked, 1, 0), record(text, 2, 1)])
    assert (1, False) == (event.lines, event.count_is_minimum)


def test_rate_limiting_makes_the_count_a_minimum() -> None:
    """When the driver says that it prints one time-out of thirty, the count is a lower bound."""
    limit = "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:3b:00 (printing 1 of every 30).  The GPU likely needs"
    (event,) = fold([record(HEAD + "119, pid=3, name=x, Timeout waiting for RPC from GSP!", 1, 0), record(limit, 2, 1)])
    assert event.count_is_minimum


@pytest.mark.parametrize("code", [120, 1])
def test_the_dump_behind_a_firmware_crash_belongs_to_it(code: int) -> None:
    """Registers behind a 120, or the 1 that some drivers print in its place, are the same event."""
    crash = f"{HEAD}{code}, GSP task exception: load access page fault (cause:0xd) @ pc:0x13636b2, partition:2#0, task:3"
    dump = ["NVRM:     Reported by libos partition:4#5 kernel v3.1 [0] @ ts:2", "NVRM: GPU0 GSP:     mstatus:0x0 mscratch:0x0"]
    assert 1 == len(fold([record(crash, 1, 0), *(record(text, 2 + n, 1) for n, text in enumerate(dump))]))


def test_other_lines_stay_with_their_own_families() -> None:
    """A hung task, an assertion and a late stack behind a 119 are not its dump."""
    (asked,) = xid.start(record(HEAD + "119, pid=3, name=x, Timeout waiting for RPC from GSP!", 1, 0))
    assert None is xid.extend(asked, record("INFO: task python3:2201 blocked for more than 122 seconds.", 2, 1))
    assert None is xid.extend(asked, record("NVRM: nvAssertFailedNoLog: Assertion failed: a == b @ c.c:1", 2, 1))
    assert None is xid.extend(asked, record(" schedule+0x33/0x110", 2, 60_000))


def test_whole_channel_messages_wait_for_nothing() -> None:
    """The common short line is closed at once, so a storm of them stays cheap."""
    assert 0 == xid.open_for(only(HEAD + "45, pid=1, name=x, Ch 0000000a"))
    assert 0 == xid.open_for(only(HEAD + "45, pid=1, name=x, channel 0x0000000a"))
    assert 0 < xid.open_for(only(HEAD + "13, Graphics Exception: ESR 0x1=0x1"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13, 0003 00000000 00008297 00000f10 00000000 00000040", {"channel": 3}),
        ("13, Graphics Exception: ChID 000a, Class 0000cbc0, Offset 00000000, Data 00000000", {"channel": 10}),
        ("8, Channel 00000020", {"channel": 32}),
        ("32, Channel ID 0000000d intr0 00040000", {"channel": 13}),
        ("32, pid=1, name=x, channel 0x00000023 intr 00040000", {"channel": 35}),
        (
            "69, pid=1, name=x, Class Error: ChId 0005, Class 0000a097, Offset 00000d9c, Data ffffffff, ErrorCode 0000000c",
            {"channel": 5},
        ),
        ("109, pid=1, name=x, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x38000", {"channel": 8}),
        ("45, pid=1, name=x, channel 0x0000000a caused by previous Xid 13", {"channel": 10, "caused_by": 13}),
        ("160, Marking Channel 3 in FBPA 1 along with its pair for repair.", {"channel": None}),
        (
            "31, pid=1, name=x, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ "
            "0x7f12_3a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
            {"engine": "GRAPHICS", "fault_type": "FAULT_PDE", "access": "VIRT_READ", "address": 0x7F123A000000, "channel": 10},
        ),
        (
            "31, pid=1, name=x, Engine=GRAPHICS, Fault_Type=PTE_MISS, Virtual_Address=0x7fa2b0000000",
            {"engine": "GRAPHICS", "fault_type": "PTE_MISS", "address": 0x7FA2B0000000},
        ),
        ("31, pid=1, name=x, PTE 0x00000000 Address 0x7fa2b0000000", {"address": 0x7FA2B0000000}),
        (
            "108, NVLink remote translation error: faulted @ 0x0_0abe0000. Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_WRITE",
            {"fault_type": "FAULT_PTE", "access": "VIRT_WRITE", "address": 0x0ABE0000},
        ),
        (
            "48, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x18f31d80 "
            "partition 9, subpartition 1.",
            {"unit": "dram", "physical_address": 0x18F31D80},
        ),
        ("48, pid=1, name=x, channel 0x00000002", {"unit": None, "channel": 2}),
        (
            "171, HBM, Uncorrectable DRAM error in FBPA 3 subpartition 0 physAddr 0x1e9b9107e0",
            {"unit": "dram", "physical_address": 0x1E9B9107E0},
        ),
        (
            "172, pid=1, name=x, GSP-RISCV, Uncorrectable SRAM error",
            {"unit": "sram", "message": "GSP-RISCV, Uncorrectable SRAM error"},
        ),
        (
            "63, Row Remapper: New row (0x00000000a4c1e000) marked for remapping, reset gpu to activate.",
            {"physical_address": 0xA4C1E000},
        ),
        ("64, Row Remapper Error: (0x00000000a4c1e000) - Row Remapping table is full", {"physical_address": 0xA4C1E000}),
        ("64, DRAM Retirement failed due to no space at 0x1f2c11", {"physical_address": 0x1F2C11}),
        ("94, pid=1, name=x, Contained: CE User Channel (0x9). RST: No, D-RST: No", {"reset_flags": (), "unit": None}),
        (
            "94, Contained: FB (0x3, 0x1). physAddr: 0x1e9b9107 RST: No, D-RST: Yes",
            {"reset_flags": ("D-RST",), "unit": "dram", "physical_address": 0x1E9B9107},
        ),
        ("95, Uncontained: LTC (0x2, 0x1). RST: Yes, D-RST: No", {"reset_flags": ("RST",)}),
        ("95, Uncontained: X (0x2). RST: Yes, D-RST: Yes", {"reset_flags": ("RST", "D-RST")}),
        ("94, Contained ECC error.", {"reset_flags": None}),
        (
            "140, An uncorrectable ECC error detected (possible firmware handling failure) DRAM:0, LTC:-1, MMU:0, PCIE:0",
            {"unit": "sram"},
        ),
        ("62, 32260b5e 000154b0 00000000 2026da96", {"registers": (0x32260B5E, 0x154B0, 0, 0x2026DA96)}),
        ("62, 0c83(1870) 00000000 00000000", {"registers": (0x0C83, 0x1870, 0, 0)}),
        (
            "74, NVLink: fatal error detected on link 7(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            {"link": 7, "registers": (0, 0, 0x10000, 0, 0, 0, 0)},
        ),
        ("74, NVLink: failed to train link 3 to remote PCI:0000:c1:00", {"link": 3, "registers": None}),
        (
            "136, NVLink: Link training failed for links 0x3f000(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            {"link": None, "registers": (1, 0, 0, 0, 0, 0, 0)},
        ),
        ("155, NVLINK_SW_DEFINED_ERROR X XC0 i0 Link 05 : Link Down While Active.", {"link": 5, "cross_contained": 0}),
        (
            "119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 "
            "(GSP_RM_CONTROL) (0x20808513 0x4). sequence 1234",
            {"function": "GSP_RM_CONTROL"},
        ),
        (
            "119, pid=1, name=x, Timeout waiting for RPC from GSP! Expected function GSP_RM_ALLOC (0x2080 0x1).",
            {"function": "GSP_RM_ALLOC"},
        ),
        ("156, Retiring TPC 1 from GPC 3 with a spare from the same GPC.", {"gpc": 3, "tpc": 1}),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)", {"recovery_action": 1, "recovery_action_from": 0}),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", {"recovery_action": 0}),
        ("154, GPU recovery action changed from 0x4 (Drain and", {"recovery_action": None, "recovery_action_from": 4}),
    ],
)
def test_the_text_is_read_code_by_code(text: str, expected: dict[str, object]) -> None:
    """Each code's text gives the details that it holds, in every wording."""
    found = detail(text)
    assert expected == {field: getattr(found, field) for field in expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "149, NETIR_LINK_EVT Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            ("NETIR_LINK_EVT", "Fatal", 0, 8, (0x004505C6, 0, 0, 0, 0, 0), 4),
        ),
        (
            "145, pid='<unknown>', name=<unknown>, RLW_REMAP Nonfatal XC1 i0 Link -1 (0x00000004 0x00000001)",
            ("RLW_REMAP", "Nonfatal", 1, -1, (4, 1), None),
        ),
        (
            "150, MSE degraded  Fatal   XC0 i0 Link -1 (0x0 0xffffffff 0x0)",
            ("MSE degraded", "Fatal", 0, -1, (0, 0xFFFFFFFF, 0), None),
        ),
        ("149, NETIR_LINK_DOWN Fatal XC0 i0 Link 08 (0x02600", ("NETIR_LINK_DOWN", "Fatal", 0, 8, None, None)),
        ("149, NETIR_INT  Fatal   XC0 i0 Link -1", ("NETIR_INT", "Fatal", 0, -1, None, None)),
        ("145, RLW_REMAP Nonfatal XC0 i0", ("RLW_REMAP", "Nonfatal", 0, None, None, None)),
        ("144, SAW_MVB Nonfatal", ("SAW_MVB", "Nonfatal", None, None, None, None)),
        ("144, SAW_MVB Nonf", ("SAW_MVB", None, None, None, None, None)),
        ("144, key rotation", (None, None, None, None, None, None)),
    ],
)
def test_nvlink5_text_is_read_wherever_it_was_cut(text: str, expected: tuple[object, ...]) -> None:
    """144 to 150 give subcode, severity, containment, link and registers as far as the text goes."""
    found = detail(text)
    read = (found.subcode, found.severity_word, found.cross_contained, found.link, found.registers, found.link_down_reason)
    assert expected == read


@given(st.text(max_size=60), st.integers(0, 999), st.text(max_size=60))
def test_any_text_behind_the_number_is_an_event(name: str, code: int, message: str) -> None:
    """No name and no message, however strange, makes a readable Xid head unreadable."""
    (event, *_) = xid.start(record(f"{HEAD}{code}, pid=5, name={name}, {message}"))
    assert (code, GPU, 5) == (event.code, event.pci, event.pid)
    xid.open_for(event)


@given(st.text(max_size=200), st.booleans())
def test_extending_never_fails(text: str, timed: bool) -> None:  # noqa: FBT001 (hypothesis hands it over)
    """Whatever follows an Xid line is taken or refused, never an error."""
    for first in ("13, Graphics Exception: ESR", "119, Timeout", "120, GSP", "79, GPU has fallen", "154, GPU"):
        found = xid.extend(only(HEAD + first), Record(text=text, seq=2, timed=timed))
        assert found is None or found.code == int(first.split(",")[0])
