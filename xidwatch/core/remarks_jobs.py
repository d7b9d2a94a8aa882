"""What running GPU jobs have in their environment that hides a hang, slows them down, or was left behind by debugging.

Sources: PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp and c10/cuda/CUDAAllocatorConfig; NCCL user guide,
environment variables; CUDA programming guide, environment variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xidwatch.core.node import Node
from xidwatch.core.remark import MOST_NAMED, Check, listed

_ON = ("1", "y", "yes", "t", "true", "on")
_OFF = ("0", "n", "no", "f", "false", "off")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class _Wrong:
    """Names of one variable, newest first, and the values that are remarked upon."""

    names: tuple[str, ...]
    bad: Callable[[str], bool]


def _among(*words: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() in words


def _garbled(value: str) -> bool:
    """PyTorch wants `key:value,key:value`; with anything else the first allocation fails."""
    return any(part.strip() and ":" not in part for part in _parts(value))


def _parts(value: str) -> list[str]:
    """Split at commas outside brackets: `roundup_power2_divisions:[256:1,512:2]` is one part."""
    parts, depth = [""], 0
    for character in value:
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


_ASYNC = _Wrong(("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"), _among("0"))
_MONITOR = _Wrong(("TORCH_NCCL_ENABLE_MONITORING",), _among(*_OFF))
_BLOCKING = _Wrong(("CUDA_LAUNCH_BLOCKING",), _among("1"))
_WAITS = _Wrong(("CUDA_DEVICE_WAITS_ON_EXCEPTION",), _among("1"))
_NO_CACHE = _Wrong(("PYTORCH_NO_CUDA_MEMORY_CACHING",), lambda value: value != "")
_ALLOCATOR = _Wrong(("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), _garbled)
_TRANSPORTS = _Wrong(("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE"), _among(*_ON))
_LOUD = _Wrong(("NCCL_DEBUG",), _among("info", "trace"))
WATCHED = frozenset(
    name for one in (_ASYNC, _MONITOR, _BLOCKING, _WAITS, _NO_CACHE, _ALLOCATOR, _TRANSPORTS, _LOUD) for name in one.names
)
"""Only these are read out of an environment: the rest of it may hold secrets."""


def _seen(wrong: _Wrong) -> Callable[[Node], str | None]:
    def look(node: Node) -> str | None:
        pids: dict[str, list[int]] = {}
        for job in node.jobs:
            for setting in _settings(wrong, job.variables):
                pids.setdefault(setting, []).append(job.pid)
        told = [f"{setting} in {_jobs(of)}" for setting, of in sorted(pids.items())]
        return "; ".join(told[:MOST_NAMED]) or None

    return look


def _settings(wrong: _Wrong, variables: Mapping[str, str]) -> list[str]:
    return [
        f"{name}={variables[name][:_SHOWN_CHARACTERS]}"
        for name in wrong.names
        if name in variables and wrong.bad(variables[name])
    ]


def _jobs(pids: list[int]) -> str:
    return f"pid{'s' if len(pids) > 1 else ''} {listed(pids)}"


CHECKS = (
    Check(id="nccl_async_errors", look=_seen(_ASYNC), command="unset TORCH_NCCL_ASYNC_ERROR_HANDLING (default: 3) in the job",
          why="a collective that times out is not aborted: the job hangs for ever instead of ending with an error"),
    Check(id="nccl_monitoring", look=_seen(_MONITOR), command="unset TORCH_NCCL_ENABLE_MONITORING in the job",
          why="nobody notices when the watchdog thread itself is stuck, as it is behind a dead driver"),
    Check(id="cuda_launch_blocking", look=_seen(_BLOCKING), command="unset CUDA_LAUNCH_BLOCKING in the job",
          why="every kernel waits for the one before: for debugging only"),
    Check(id="cuda_waits_on_exception", look=_seen(_WAITS), command="unset CUDA_DEVICE_WAITS_ON_EXCEPTION in the job",
          why="after a fault of its own the job waits for a debugger and looks hung"),
    Check(id="allocator_no_cache", look=_seen(_NO_CACHE), command="unset PYTORCH_NO_CUDA_MEMORY_CACHING in the job",
          why="every tensor is a cudaMalloc: for debugging only (any value switches it on)"),
    Check(id="allocator_settings", look=_seen(_ALLOCATOR), command="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
          why="PyTorch wants key:value pairs there; the settings that were meant are not in force"),
    Check(id="nccl_transport_off", look=_seen(_TRANSPORTS), command="unset it, unless the site needs it for a reason",
          why="NCCL goes a slower way; often left behind after a search for a fault"),
    Check(id="nccl_debug", look=_seen(_LOUD), command="NCCL_DEBUG=WARN in the job",
          why="thousands of lines a rank bury the one that tells the fault"),
)  # fmt: skip
