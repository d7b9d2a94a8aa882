from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core import nvrm
from xidwatch.core.event import Event, NvrmDetail
from xidwatch.core.parse import Parser
from xidwatch.core.record import Record


def record(text: str, seq: int = 1, at_ms: int | None = None) -> Record:
    """A record of this text; without a time unless `at_ms` gives one."""
    return Record(text=text, seq=seq, timed=at_ms is not None, since_boot_us=None if at_ms is None else at_ms * 1000)


def timed(*texts: str) -> list[Record]:
    """Records a millisecond apart."""
    return [record(text, seq, seq) for seq, text in enumerate(texts, 1)]


def bare(*texts: str) -> list[Record]:
    """Records of a log without times."""
    return [record(text, seq) for seq, text in enumerate(texts, 1)]


def fold(records: Iterable[Record]) -> list[Event]:
    """Events of records that arrive one after another, each taken by the latest event that wants it."""
    events: list[Event] = []
    for item in records:
        for place in reversed(range(len(events))):
            if (richer := nvrm.extend(events[place], item)) is not None:
                events[place] = richer
                break
        else:
            events.extend(nvrm.start(item))
    return [event for event in events if not event.provisional]


def detail(event: Event) -> NvrmDetail:
    """The detail, known to be of the family."""
    assert isinstance(event.detail, NvrmDetail)
    return event.detail


ASSERT_OK = "nvAssertOkFailedNoLog: Assertion failed:"


@pytest.mark.parametrize(
    ("text", "what", "pci"),
    [
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:1958)", "rm_init_adapter_failed", "0000:3b:00.0"),
        ("NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 3", "rm_init_adapter_failed", "0000:3b:00.0"),
        ("NVRM: RmInitAdapter failed! (0x26:0xffff:1375)", "rm_init_adapter_failed", None),
        ("NVRM: rm_init_adapter failed for device bearing minor number 0", "rm_init_adapter_failed", None),
        ("NVRM: rm_init_adapter(0) failed", "rm_init_adapter_failed", None),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "fallen_off_bus", "0000:3b:00.0"),
        ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "fallen_off_bus", "0000:01:00.0"),
        ("NVRM: The NVIDIA probe routine was not called for 8 device(s).", "probe_failed", None),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "probe_failed", None),
        ("NVRM: None of the NVIDIA devices were initialized.", "probe_failed", None),
        ("NVRM: No NVIDIA devices probed.", "probe_failed", None),
        ("nvidia: probe of 0000:3b:00.0 failed with error -1", "probe_failed", "0000:3b:00.0"),
        ("nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1", "probe_failed", "0000:3b:00.0"),
        (f"NVRM: GPU0 {ASSERT_OK} Reset required [NV_ERR_RESET_REQUIRED]", "reset_required", None),
        ("NVRM: rpcRmApiAlloc_GSP: GspRmAlloc failed: hClass=0x0000c86f; status=0x00000062", "reset_required", None),
        (f"NVRM: {ASSERT_OK} GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)", "gpu_lost", None),
        ("NVRM: _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 78 sequence 7869!", "gpu_lost", None),
        ("Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot", "gpu_lost", "0000:03:00.0"),
        ("Unable to determine the device handle for GPU0000:4E:00.0: Unknown Error", "other", "0000:4e:00.0"),
        ("Unable to determine the device handle for GPU1: 0000:4E:00.0: Unknown Error", "other", "0000:4e:00.0"),
        ("NVRM: GPU6 _kgspLogRpcTimeout: ********* GSP Timeout *********", "gsp_timeout", None),
        ("NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 1 heartbeat 2", "gsp_timeout", None),
        ("NVRM: nvAssertFailedNoLog: Assertion failed: Back to back GSP RPC timeout detected! @ k.c:1", "gsp_timeout", None),
        ("NVRM: GPU0 GSP RPC buffer contains function 78 (DUMP_PROTOBUF_COMPONENT) ...", "gsp_timeout", None),
        ("NVRM: kgspHealthCheck_TU102: ******** GSP-CrashCat Report *******", "gsp_crash_report", None),
        ("NVRM: GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.", "pmu_halted", None),
        ("NVRM: kfspSendBootCommands_GH100: FSP boot cmds failed. RM cannot boot.", "fsp_boot_failed", None),
        ("NVRM kfspProcessCommandResponse_GH100: FSP response reported error. Task ID: 0x2", "fsp_boot_failed", None),
        ("NVRM: GPU3 kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x65", "gfw_boot_timeout", None),
        ("NVRM: RmFetchGspRmImages: No firmware image found", "firmware_missing", None),
        (
            "nvidia 0000:07:00.0: Direct firmware load for nvidia/570.144/gsp_ga10x.bin failed with error -2",
            "firmware_missing",
            "0000:07:00.0",
        ),
        ("NVRM: No NVIDIA GPU found.", "no_gpu_found", None),
        ("NVRM: No NVIDIA PCI devices found.", "no_gpu_found", None),
        ("NVRM: No NVIDIA graphics adapter found!", "no_gpu_found", None),
        ("NVRM: nvAssertFailedNoLog: Assertion failed: a == b @ file.c:123", "nvassert", None),
        ("NVRM nvAssertFailedNoLog: Assertion failed: a == b @ file.c:123", "nvassert", None),
        ("NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)", "nvassert", None),
        ("NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot", "uvm_fatal", None),
        ("nvidia-uvm: uvm_global.c:400 f[pid:2201] Encountered a global fatal error: x", "uvm_fatal", None),
        ("nvidia-uvm: uvm_channel.c:512 uvm_channel_check_errors[pid:2201] Detected a channel error", "other", None),
        (
            "nvidia-modeset: ERROR: GPU:0: Failed to query display engine channel state: 0x1:4:0:0x0000000f",
            "modeset_error",
            None,
        ),
        ("[drm:x [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00003b00] Failed to allocate", "modeset_error", "0000:3b:00.0"),
        ("NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", "nvlink_error", None),
        ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping", "peermem_error", None),
        ("NVRM: os_pci_init_handle: invalid context!", "other", None),
        ("NVRM: GPU 0000:3b:00.0: Device is currently unavailable", "other", "0000:3b:00.0"),
        ("NVRM-RC: RM has detected that 7 Seconds without a Vblank Counter Update on head:A0", "other", None),
        ("NVRM s_executeBooterUcode_TU102: Booter failed with non-zero error code: 0xa", "other", None),
        ("usb 1-1: newNVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "fallen_off_bus", "0000:3b:00.0"),
    ],
)
def test_each_complaint_has_its_name(text: str, what: str, pci: str | None) -> None:
    """Every wording of the driver is named, with the GPU where the line names it."""
    (event,) = nvrm.start(record(text))
    assert (what, pci) == (event.what, event.pci and str(event.pci))


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)  y",
        "NVRM: Persistence mode is deprecated and will be removed in a future release.",
        "NVRM: GPU at PCI:0000:3b:00: GPU-1b2c3d4e-0000-1111-2222-333344445555",
        "NVRM: GPU at PCI:0000:3b:00:",
        "NVRM: GPU at 0000:03:00: GPU-1b2c3d4e-0000-1111-2222-333344445555",
        "NVRM: GPU Board Serial Number: 1650123000001",
        "NVRM: GPU Board Serial Number:",
        "NVRM: GPU 0000:3b:00.0: GPU serial number is 1650123000001.",
        "NVRM: RmPowerManagement: 4",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "nvidia-uvm: Loaded the UVM driver, major device number 508.",
        "nvidia-modeset: WARNING: GPU:0: Unable to read EDID for display device DP-4",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 509",
        "nvidia-nvlink: Unregistered Nvlink Core, major device number 507",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "[drm] [nvidia-drm] [GPU ID 0x00003b00] Loading driver",
        "traps: python3[123] general protection fault ip:7f00 sp:7ffe error:0 in libcuda.so",
        "watchdog: BUG: soft lockup - CPU#9 stuck for 22s! [irq/162-nvidia:1307]",
        "journalctl -k | grep -i NVRM",
    ],
)
def test_notices_and_other_lines_are_no_events(text: str) -> None:
    """Loading, identity, persistence, taint, lockups and prose are not complaints of the driver."""
    assert () == nvrm.start(record(text))


@pytest.mark.parametrize(
    ("texts", "pci"),
    [
        (
            (
                "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:1958)",
                "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 3",
            ),
            "0000:3b:00.0",
        ),
        (
            (
                "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 3",
                "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:1958)",
            ),
            "0000:3b:00.0",
        ),
        (("NVRM: RmInitAdapter failed! (0x62:0xffffffff:1190)", "NVRM: rm_init_adapter(0) failed"), None),
        (
            (
                "NVRM: RmInitAdapter failed! (0x62:0xffff:1375)",
                "NVRM: rm_init_adapter failed for device bearing minor number 0",
                "NVRM: nvidia_frontend_open: minor 0, module->open() failed, error -5",
            ),
            None,
        ),
    ],
)
def test_a_failed_start_and_its_partner_are_one_event(texts: tuple[str, ...], pci: str | None) -> None:
    """The two modules that report a failed start tell of one failure, in the old wordings too."""
    (event,) = fold(timed(*texts))
    assert (len(texts), pci) == (event.lines, event.pci and str(event.pci))
    assert (0x62, "starting the GSP firmware") == (detail(event).init_step, detail(event).init_step_name)


def test_failed_starts_of_two_gpus_stay_apart() -> None:
    """A partner line of another GPU, and a second failure of the same, are further events."""
    first = "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x11:0x45:2525)"
    partner = "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0"
    other = "NVRM: GPU 0000:5e:00.0: rm_init_adapter failed, device minor number 1"
    events = fold(timed(first, other, partner, first, partner))
    expected = [("0000:3b:00.0", 2), ("0000:5e:00.0", 1), ("0000:3b:00.0", 2)]
    assert expected == [(str(event.pci), event.lines) for event in events]


def test_the_status_of_a_failed_start_is_kept() -> None:
    """Step and status of `RmInitAdapter failed!` are numbers; a step that the enum lacks has no name."""
    (event,) = nvrm.start(record("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x7f:0x65:1958)"))
    assert (0x7F, None, 0x65) == (detail(event).init_step, detail(event).init_step_name, detail(event).status)


@pytest.mark.parametrize(("serial", "expected"), [("1650123000001", "1650123000001"), ("0", None), ("0000000000000", None)])
def test_the_serial_number_belongs_to_the_lost_gpu(serial: str, expected: str | None) -> None:
    """The serial line extends the fallen-off-bus event; zeros are no serial."""
    (event,) = fold(
        timed("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", f"NVRM: GPU 0000:3b:00.0: GPU serial number is {serial}.")
    )
    assert (2, expected) == (event.lines, detail(event).serial)


LOST_AT_PROBE = (
    "NVRM: The NVIDIA GPU 0000:3b:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
UNSUPPORTED = (
    "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:1b80)",
    "NVRM: installed in this system is not supported by the",
    "NVRM: NVIDIA 580.95.05 driver release.",
)


@pytest.mark.parametrize(("texts", "what"), [(LOST_AT_PROBE, "fallen_off_bus"), (UNSUPPORTED[:2], "unsupported_gpu")])
def test_a_block_is_one_event_however_it_travels(texts: tuple[str, ...], what: str) -> None:
    """A text of several lines is the same event in one record, in lines with a time and in lines without."""
    for records in ([record("\n".join(texts))], timed(*texts), bare(*texts)):
        (event,) = fold(records)
        assert (what, "0000:3b:00.0") == (event.what, str(event.pci))


OLD_MISMATCH = (
    "NVRM: API mismatch: the client has the version 570.153.02, but",
    "NVRM: this kernel module has the version 570.144.  Please",
    "NVRM: make sure that this kernel module and all NVIDIA driver",
    "NVRM: components have the same version.",
)
NEW_MISMATCH = (
    "NVRM: API mismatch: the client 'my app' (pid 900)",
    "NVRM: has the version 595.84, but this kernel module has",
    "NVRM: the version 595.80.  Please make sure that this",
    "NVRM: kernel module and all NVIDIA driver components",
    "NVRM: have the same version.",
)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(OLD_MISMATCH, (None, None, "570.153.02", "570.144")), (NEW_MISMATCH, (900, "my app", "595.84", "595.80"))],
)
def test_an_api_mismatch_tells_client_and_versions(texts: tuple[str, ...], expected: tuple[object, ...]) -> None:
    """Client and both versions are read from either wording, joined by newlines, by `#012` or as lines."""
    for records in ([record("\n".join(texts))], [record("#012".join(texts))], timed(*texts), bare(*texts)):
        (event,) = fold(records)
        assert expected == (event.pid, event.process, detail(event).client_version, detail(event).module_version)


def test_two_mismatches_are_two_events() -> None:
    """A second block that follows at once is a second event."""
    assert [4, 4] == [event.lines for event in fold(timed(*OLD_MISMATCH, *OLD_MISMATCH))]


def test_a_history_block_without_its_xid_is_one_time_out() -> None:
    """The RPC history alone is one firmware time-out, and its rate limit makes the count a minimum."""
    (event,) = fold(
        timed(
            "NVRM: GPU0 GSP RPC buffer contains function 76 (GSP_RM_CONTROL) and data 0x0000000090cc0301 0x000000000000000c.",
            "NVRM: GPU0 RPC history (CPU -> GSP):",
            "NVRM:     entry function                   data0              data1              ts_start",
            "NVRM:     -1    103  GSP_RM_ALLOC          0x00000000000090cc 0x0000000000000000 0x00060ec47fc74b7c",
            "CPU: 7 PID: 2201 Comm: nvidia-smi Tainted: P           OE     5.15.0-112-generic",
            "Call Trace:",
            " dump_stack_lvl+0x4a/0x63",
            "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:3b:00 (printing 1 of every 30).",
        )
    )
    assert ("gsp_timeout", True) == (event.what, event.count_is_minimum)


def test_lines_of_one_function_at_one_moment_are_one_complaint() -> None:
    """The worst that a function says names its burst; the same line again is a repeat and counts anew."""
    (event,) = fold(
        timed(
            "NVRM kfspSendBootCommands_GH100: Sent following content to FSP:",
            "NVRM kfspSendBootCommands_GH100: version=0x1, size=0x35c",
            "NVRM kfspSendBootCommands_GH100: FSP boot cmds failed. RM cannot boot.",
        )
    )
    assert ("fsp_boot_failed", 3) == (event.what, event.lines)
    assert 2 == len(fold(timed("NVRM: f_IMPL: same text", "NVRM: f_IMPL: same text")))


def test_who_prints_is_kept() -> None:
    """The driver's own GPU number, its function and its status are read."""
    (event,) = nvrm.start(record(f"NVRM: GPU4 {ASSERT_OK} Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from x"))
    assert (4, "nvAssertOkFailedNoLog", 0x62) == (detail(event).gpu_index, detail(event).function, detail(event).status)


def oops(frame: str) -> list[Record]:
    """A kernel crash up to this frame."""
    return timed(
        "BUG: kernel NULL pointer dereference, address: 0000000000000088",
        "#PF: supervisor write access in kernel mode",
        "Oops: 0002 [#1] SMP NOPTI",
        "CPU: 3 PID: 899 Comm: KMS thread Tainted: P           OE     5.10.0 #83",
        frame,
    )


@pytest.mark.parametrize(
    "frame",
    [
        "RIP: 0010:_nv033456rm+0xac/0x130 [nvidia]",
        "RIP: 0010:uvm_va_block_map+0xac/0x130 [nvidia_uvm 0123abcd]",
        "pc : _nv033456rm+0xac/0x130 [nvidia]",
        " nvidia_unlocked_ioctl+0x21b/0x890 [nvidia]",
    ],
)
def test_a_crash_in_the_driver_is_an_event(frame: str) -> None:
    """A kernel crash whose instruction pointer or reliable frame is the driver's names the task that ran."""
    parser = Parser()
    (event,) = {found.uid: found for item in oops(frame) for found in parser.feed(item) if isinstance(found, Event)}.values()
    assert ("nvrm", "kernel_oops", 899, "KMS thread") == (event.kind, event.what, event.pid, event.process)


@pytest.mark.parametrize(
    "frame", ["RIP: 0010:ext4_foo+0xac/0x130 [ext4]", " ? _nv033456rm+0xac/0x130 [nvidia]", "Modules linked in: nvidia(POE)"]
)
def test_a_crash_elsewhere_is_none(frame: str) -> None:
    """Another driver's crash is never given out, though nvidia is loaded or a doubtful frame names it."""
    parser = Parser()
    assert [] == [
        found for item in oops(frame) for found in parser.feed(item) if isinstance(found, Event) and found.kind == "nvrm"
    ]


@given(st.text(max_size=200))
def test_any_text_is_an_event_or_none(text: str) -> None:
    """Whatever stands behind `NVRM:` is read or left, never an error, alone or behind another line."""
    nvrm.start(record("NVRM: " + text))
    for first in (
        "NVRM: API mismatch: the client",
        LOST_AT_PROBE[0],
        "NVRM: f: x,",
        "NVRM: RmInitAdapter failed! (0x62:0x1:1)",
    ):
        (event,) = nvrm.start(record(first))
        nvrm.extend(event, record(text, 2))
        nvrm.extend(event, record("NVRM: " + text, 2))
