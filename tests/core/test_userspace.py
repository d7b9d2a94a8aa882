from __future__ import annotations

import pytest

from tests.core.reading import read_events
from xidwatch.core.event import Event, UserspaceDetail
from xidwatch.core.record import Record

MIB, GIB = 2.0**20, 2.0**30
PROGRAM = Record(text="")


def told(event: Event) -> UserspaceDetail:
    """The event's detail, which is a program's."""
    assert isinstance(event.detail, UserspaceDetail)
    return event.detail


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of "
            "31.00 GiB of which "
            "12.00 MiB is free. Including non-PyTorch memory, this process has 18.00 GiB memory in use. Of the "
            "allocated memory 9.00 GiB "
            "is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
            (2.5 * GIB, 31 * GIB, 12 * MIB, 9 * GIB, GIB, None),
        ),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacty "
            "of 14.75 GiB of "
            "which 512 bytes is free. Of the allocated memory 984.50 MiB is allocated by PyTorch",
            (496 * MIB, 14.75 * GIB, 512, 984.5 * MIB, None, None),
        ),
        (
            "RuntimeError:CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 5.75 GiB total capacity; 4.50 GiB "
            "already allocated; "
            "6.50 MiB free; 4.75 GiB reserved in total by PyTorch",
            (20 * MIB, 5.75 * GIB, 6.5 * MIB, 4.5 * GIB, None, 4.75 * GIB),
        ),
        (
            "Tried to allocate 8.00 GiB (GPU 0; 10.75 GiB total capacity; 643.50 MiB already allocated; 8.25 GiB free; "
            "32.50 MiB cached)",
            (8 * GIB, 10.75 * GIB, 8.25 * GIB, 643.5 * MIB, None, 32.5 * MIB),
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB (GPU 3; 79.25 GiB total capacity; 68.25 GiB "
            "already allocated; "
            "1.25 GiB free; 9.75 GiB reserved in cache)",
            (2.5 * GIB, 79.25 * GIB, 1.25 * GIB, 68.25 * GIB, None, 9.75 * GIB),
        ),
        (
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 TiB. GPU 1 has a total capacity of "
            "2.00 TiB of which "
            "1.00 KiB is free.",
            (1024 * GIB, 2048 * GIB, 1024, None, None, None),
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total\n"
            "capacity of 31.00 GiB of which 12.00 MiB is free. Including non-PyTorch memory, this process\n"
            "has 18.00 GiB memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and\n"
            "1.00 GiB is reserved by PyTorch but unallocated.",
            (2.5 * GIB, 31 * GIB, 12 * MIB, 9 * GIB, GIB, None),
        ),
        (
            "RuntimeError: CUDA out of memory.\nTried to allocate 2.50 GiB (GPU 0; 8.00 GiB total capacity)",
            (2.5 * GIB, 8 * GIB, *[None] * 4),
        ),
    ],
)
def test_torch_out_of_memory(text: str, sizes: tuple[float | None, ...]) -> None:
    """Sizes come as bytes from every wording of PyTorch, also where it was wrapped."""
    (event,) = read_events(text, PROGRAM, None)
    found = told(event)
    got = (found.tried, found.total, found.free, found.allocated, found.reserved_unallocated, found.reserved)
    assert ("torch_oom", sizes) == (event.kind, got)


@pytest.mark.parametrize(
    ("holders", "pid"),
    [
        ("Process 20398 has 14.50 GiB memory in use.", 20398),
        ("Process 1 has 14.50 GiB memory in use. Process 2 has 1.50 GiB memory in use.", None),
        ("Process 5 has 1.50 GiB memory in use. Including non-PyTorch memory, this process has 18.73 GiB memory in use.", None),
    ],
)
def test_whose_memory(holders: str, pid: int | None) -> None:
    """The only `Process N` is the one that failed; beside `this process`, or one of several, it is another."""
    text = (
        f"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 2.00 GiB of which 0 bytes is "
        f"free. {holders}"
    )
    (event,) = read_events(text, PROGRAM)
    assert pid == event.pid


@pytest.mark.parametrize(
    ("holders", "pid", "others"),
    [
        ("Process 7 has 60.00 GiB memory in use. Process 8 has 17.80 GiB memory in use.", 8, ((7, 60 * GIB),)),
        ("Process 7 has 60.00 GiB memory in use.", None, ((7, 60 * GIB),)),
        ("Process 7 has 1.00 GiB memory in use. this process has 17.80 GiB memory in use.", None, ((7, GIB),)),
    ],
)
def test_which_process_is_which(holders: str, pid: int | None, others: tuple[tuple[int, float], ...]) -> None:
    """The process that holds what PyTorch has reserved is the one that failed; who holds much more or less is another."""
    text = (
        f"CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 1.20 GiB is free. "
        f"{holders} Of the allocated memory 17.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but "
        "unallocated."
    )
    (event,) = read_events(text, PROGRAM)
    assert (pid, others) == (event.pid, told(event).others)


@pytest.mark.parametrize(
    ("text", "tried", "shortage"),
    [
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", None, "unknown"),
        (
            "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
            None,
            "unknown",
        ),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.", 16 * GIB, "unknown"),
        (
            "ResourceExhaustedError: {{function_node __wrapped__Mul}} OOM when allocating tensor with shape[32768,131072] and "
            "type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
            None,
            "unknown",
        ),
        ("ValueError: No available memory for the cache blocks.", None, "kv_cache"),
        (
            "ValueError: To serve one request (10.00 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(1.25 GiB).",
            10 * GIB,
            "kv_cache",
        ),
        (
            "ValueError: Free memory on device cuda:0 (31.20/79.00 GiB) on startup is less than desired GPU memory utilization "
            "(0.9, 71.10 GiB).",
            71.1 * GIB,
            "shared",
        ),
    ],
)
def test_memory_of_other_frameworks(text: str, tried: float | None, shortage: str) -> None:
    """JAX, TensorFlow, vLLM and old PyTorch run out of memory in words of their own."""
    (event,) = read_events(text, PROGRAM)
    assert ("torch_oom", tried, shortage) == (event.kind, told(event).tried, told(event).shortage)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: cuda runtime error (39) : uncorrectable ECC error at THCStream.cu:12",
        "W bfc_allocator.cc:482] Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB (rounded to 17179869184)",
        "INFO loggers.py:118] Engine 000: Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 91.2%, Prefix cache hit rate: 0.0%",
        "INFO loggers.py:127] Engine 000: Running: 8 reqs, Waiting: 0 reqs, Preemptions: 0, GPU KV cache usage: 91.2%",
        "Available KV cache memory: 41.25 GiB",
        "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda for more information.",
        "except pynvml.NVMLError_NotSupported: Not Supported",
    ],
)
def test_no_shortage(line: str) -> None:
    """Warnings, statistics and advice are no failures."""
    assert [] == read_events(line, PROGRAM)


def test_said_by_log_and_exception() -> None:
    """JAX says it in its log and again in the exception that ends the program: one event of two lines."""
    said = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4096 bytes."
    between = "\n".join(f"  File {number}" for number in range(50))
    (event,) = read_events(f"E Execution of replica 0 failed: {said}\n{between}\njaxlib.XlaRuntimeError: {said}", PROGRAM)
    assert 2 == event.lines


def test_two_failures() -> None:
    """Two exceptions that follow each other are two events."""
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 31.00 GiB"
    assert 2 == len(read_events(f"{line}\n{line}", PROGRAM))


CALL = (
    "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds "
    "before timing out."
)
LINE = (
    f"[rank4]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught collective operation timeout: {CALL}"
)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (LINE, ("ALLREDUCE", 1580, 4, 600000, 600060)),
        (
            "[rank0]:[E810 15:46:05.7 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout:\n"
            "WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, NumelIn=5, NumelOut=5, Timeout(ms)=600000)\nran for 600072 "
            "milliseconds before timing out.",
            ("_ALLGATHER_BASE", 5, 0, 600000, 600072),
        ),
        (
            "loss=2.6][E ProcessGroupNCCL.cpp:458] [Rank 7] Watchdog caught collective operation timeout: "
            "WorkNCCL(OpType=BROADCAST, TensorShape=[1], Timeout(ms)=1800000) ran for 1802710 milliseconds before timing out.",
            ("BROADCAST", None, 7, 1800000, 1802710),
        ),
        (
            "  what():  [PG 3 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] Watchdog "
            "caught collective "
            "operation timeout: WorkNCCL(SeqNum=9141, OpType=SEND, Timeout(ms)=600000) ran for 600020 milliseconds "
            "before timing out.",
            ("SEND", 9141, 5, 600000, 600020),
        ),
    ],
)
def test_nccl_timeout(text: str, fields: tuple[object, ...]) -> None:
    """Operation, sequence number, rank and times are read in every wording of the watchdog."""
    (event,) = read_events(text, PROGRAM, None)
    found = told(event)
    assert ("nccl_timeout", fields) == (event.kind, (found.op, found.seq, found.rank, found.timeout_ms, found.ran_ms))


def test_nccl_timeout_once_a_rank() -> None:
    """What follows a watchdog line, and the exception that repeats it, is the same event; another rank's is another."""
    ends = "[PG 1 Rank 4] Process group watchdog thread terminated with exception: [Rank 4] Watchdog caught"
    lines = (
        LINE,
        LINE.replace("rank4", "rank0").replace("Rank 4", "Rank 0"),
        "[rank4]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 4] Exception (either an error or timeout) detected",
        f"  what():  {ends} collective operation timeout: {CALL}",
    )
    assert [4, 0] == [told(event).rank for event in read_events("\n".join(lines), PROGRAM)]


def test_watchdog_that_stands_still() -> None:
    """The monitor's two lines are one event of its own; behind a time-out they are none."""
    first = "[rank1]:[E1130 10:10:03.1 ProcessGroupNCCL.cpp:1405] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated"
    second = (
        first[:55]
        + "1413] [PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring"
    )
    (event,) = read_events(f"{first}\n{second}", PROGRAM)
    assert ("watchdog stuck", 1, 600_000) == (event.what, told(event).rank, told(event).timeout_ms)
    (event,) = read_events(f"{LINE}\n{first}\n{second}", PROGRAM)
    assert (None, 4) == (event.what, told(event).rank)


def test_nccl_timeout_again() -> None:
    """The watchdog's own line printed twice counts twice."""
    assert 2 == len(read_events(f"{LINE}\n{LINE}", PROGRAM))


@pytest.mark.parametrize(
    ("line", "group", "mode", "cumulative"),
    [
        (
            "Sequence group 221 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
            "total_num_cumulative_preemption=101",
            "221", "RECOMPUTE", 101,
        ),
        (
            "WARNING 05-09 00:49:33 scheduler.py:1057 Sequence group cmpl-0 is preempted by PreemptionMode.SWAP mode "
            "because there is "
            "not enough KV cache space. total_cumulative_preemption_cnt=1",
            "cmpl-0", "SWAP", 1,
        ),
        ("WARNING Sequence group 12 is preempted by PreemptionMode.RECOMPUTE", "12", "RECOMPUTE", None),
        ("INFO 08-21 07:17:09 [scheduler.py:495] Preempted request cmpl-e5-0 has been resumed!", "cmpl-e5-0", None, None),
    ],
)  # fmt: skip
def test_vllm_preemption(line: str, group: str, mode: str | None, cumulative: int | None) -> None:
    """The line says which request lost its cache, how, and how often that has happened."""
    (event,) = read_events(line, PROGRAM)
    found = told(event)
    assert ("vllm_preemption", group, mode, cumulative) == (event.kind, found.group, found.mode, found.cumulative)


ILLEGAL = "an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "uncorrectable ECC error encountered"),
        (f"CUDA error: {ILLEGAL} Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com", ILLEGAL),
        (f"Worker failed with error 'CUDA error: {ILLEGAL}", ILLEGAL),
        (f"RuntimeError: Worker failed with error 'CUDA error: {ILLEGAL}\\nCUDA kernel errors might be", ILLEGAL),
        ("RuntimeError: CUDA error: device-side assert triggered", "device-side assert"),
        ("CUDA Error: no CUDA-capable device is detected: No error", "no CUDA-capable device is detected"),
        (f"CUDA error 700 at ggml-cuda.cu:7200: {ILLEGAL}", ILLEGAL),
        (f"failed to synchronize: CUDA_ERROR_ILLEGAL_ADDRESS: {ILLEGAL}", ILLEGAL),
        ("numba: Call to cuMemFree results in CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_LAUNCH_FAILED"),
        (f"n1:7:7 [0] transport.cc:154 NCCL WARN Cuda failure 700 '{ILLEGAL}'", ILLEGAL),
        ("CUDA error: out of memory", "out of memory"),
        ("alloc_buffer: allocating 12345.00 MiB on device 0: cudaMalloc failed: out of memory", "out of memory"),
        ("driver.Error: cuMemAlloc failed: out of memory", "out of memory"),
        (f"what():  CUDA free failed: cudaErrorIllegalAddress: {ILLEGAL}", ILLEGAL),
        ("pynvml.NVMLError_GpuIsLost: GPU is lost", "GPU is lost"),
        (
            "/pytorch/aten/Indexing.cu:1231: indexSelectSmallIndex: block: [31,0,0], thread: [29,0,0] Assertion `a < b` "
            "failed.",
            "device-side assert",
        ),
    ],
)
def test_cuda_error(line: str, what: str) -> None:
    """The error's own words are `what`, without the advice that PyTorch prints behind them."""
    (event,) = read_events(line, PROGRAM)
    assert ("cuda_error", what) == (event.kind, event.what)


@pytest.mark.parametrize(
    "line",
    [
        "CUDA kernel errors might be asynchronously reported at some other API call",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
        "/home/user1/ggml-cuda.cu:110: CUDA error",
        '    raise RuntimeError(f"CUDA error: {text}")',
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
        "root cause.",
    ],
)
def test_no_cuda_error(line: str) -> None:
    """Advice, source code and consequences are no errors of their own."""
    assert [] == read_events(line, PROGRAM)


@pytest.mark.parametrize(
    ("prefix", "process", "pid", "rank"),
    [
        ("(EngineCore pid=12244) ERROR 07-15 21:01:01 [core.py:1240] ", "EngineCore", 12244, None),
        ("(VllmWorker rank=2 pid=267) ", "VllmWorker", 267, 2),
        ("(RayWorkerWrapper pid=31, ip=10.0.0.7) ", "RayWorkerWrapper", 31, None),
        ("[rank3]: ", "llama-swap", 80783, 3),
        ("", "llama-swap", 80783, None),
    ],
)
def test_who_speaks(prefix: str, process: str, pid: int, rank: int | None) -> None:
    """The program names itself in front of its line; else the record's own program is taken."""
    like = Record(text="", program="llama-swap", program_pid=80783)
    (event,) = read_events(f"{prefix}RuntimeError: CUDA error: {ILLEGAL}", like)
    assert (process, pid, rank) == (event.process, event.pid, told(event).rank)


def test_header_and_message_apart() -> None:
    """PyTorch's header gives the rank of the message that a wrapped line brings; alone it is no event."""
    header = "[rank1]:[E810 15:36:05.9 ProcessGroupNCCL.cpp:1899] [PG ID 0 PG GUID 0(default_pg) Rank 1]"
    text = f"{header}\nProcess group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered"
    (event,) = read_events(text, PROGRAM)
    assert (1, "uncorrectable ECC error encountered") == (told(event).rank, event.what)
    assert [] == read_events(header, PROGRAM)


@pytest.mark.parametrize(
    "line",
    [
        "[PG 0 Rank 1] " * 4000 + "last enqueued NCCL work: ",
        "NCCL WARN " * 6000,
        "NCCL INFO rank 3 " * 4000 + " nranks ",
        "OOM when allocating tensor with shape " * 1500,
        "Free memory on device " * 3000,
        "Running: 1 reqs, Waiting: 1 reqs, " * 2000 + "Preemptions: ",
    ],
)
def test_long_lines_made_to_delay(line: str) -> None:
    """A line of one wording's beginning over and over is read at once: no pattern looks at it again from each beginning."""
    assert [] == read_events(line, PROGRAM)


@pytest.mark.parametrize(
    "line",
    [
        'Our docs say: "RuntimeError: CUDA out of memory. Tried to allocate" may appear',
        'assert "CUDA error: an illegal memory access" not in text',
        'if "CUDA out of memory. Tried to allocate" in str(e):',
        "with pytest.raises(RuntimeError, match='CUDA error: invalid device ordinal'):",
        "grep -c 'CUDA error: unspecified launch failure' train.log",
        "The FAQ explains “CUDA out of memory. Tried to allocate” and more",
        "the string 'CUDA error: device-side assert triggered' means that an index was wrong",
    ],
)
def test_words_about_an_error(line: str) -> None:
    """What documentation, a test or a person says about such a message is no error."""
    assert [] == read_events(line, PROGRAM)


@pytest.mark.parametrize(
    "line",
    [
        '{"level":"error","msg":"CUDA out of memory. Tried to allocate 2.00 GiB","rank":3}',
        'level=error msg="RuntimeError: CUDA error: an illegal memory access was encountered" rank=3',
        '"RuntimeError: CUDA error: an illegal memory access was encountered"',
        "ray::Worker failed: RuntimeError('CUDA error: an illegal memory access was encountered') in worker 3",
        'It says: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"',
        "  what():  'CUDA error: unspecified launch failure'",
        "worker 3 exited with 'CUDA error: unspecified launch failure' on rank 3",
        'RuntimeError: CUDA error: invalid argument; the docs say "CUDA error: invalid argument" may follow from it',
    ],
)
def test_errors_in_quotes(line: str) -> None:
    """A message in a field, an exception in brackets and a line that a person quotes are errors all the same."""
    assert 1 == len(read_events(line, PROGRAM))
