"""Lines that the driver prints behind a fault of its firmware processor (GSP): they belong to that fault and say nothing new.

Source: NVIDIA open-gpu-kernel-modules, 515.43.04 to 595.45.04, src/nvidia/src/kernel/gpu/gsp/kernel_gsp.c (RPC history) and
src/nvidia/src/libraries/crashcat/v1/impl/crashcat_report_v1_*.c (registers and stack of a firmware crash).
"""

from __future__ import annotations

from xidwatch.core.pattern import lazy

_RPC_DUMP = lazy(
    r"NVRM:? ?\s*(?:GPU\d+ )?(?:\w+: )?(?:GSP RPC buffer contains|RPC (?:event )?history |entry +function |-?\d+ +\d+ +\w"
    r"|\*{4,}|={3,} *GSP|Note: Please also check logs above)|NVRM:? {4,}-?\d+ "
)
_CRASH_DUMP = lazy(
    r"NVRM:? ?(?:GPU\d+ )?(?:(?:\w+: )?GSP: | {2,}\S|Reported by libos|RISC-V CSR State|Stack "
    r"|(?:\w+: )?RC all (?:user )?channels|(?:\w+: )?\*{10,}|(?:\w+: )?-{10,})"
)
_STACK = lazy(  # os_dump_stack
    r"\s*(?:CPU: \d+ |Hardware name: |Call [Tt]race:|</?(?:TASK|IRQ|NMI)>|\[<[0-9a-f]+>\]"
    r"|(?:\? )?[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+|RIP: |RSP: |Code: |[RC][A-Z0-9]{2}: )"
)


def in_rpc_dump(text: str) -> bool:
    """Whether a line belongs to the RPC history, or to the stack behind it, that follow a firmware time-out."""
    return (_RPC_DUMP.search(text) if "NVRM" in text else _STACK.match(text)) is not None


def in_crash_dump(text: str) -> bool:
    """Whether a line belongs to the dump that follows a firmware crash."""
    return "NVRM" in text and _CRASH_DUMP.search(text) is not None


def rate_limited(text: str) -> bool:
    """Whether the driver says that from here on it prints only one of thirty of its RPC errors."""
    return "Rate limiting GSP RPC error prints" in text
