"""Names of the system calls in which tasks get stuck, by machine.

Sources: linux, arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 9: "mmap", 10: "mprotect",
    11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 26: "msync",
    28: "madvise", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 60: "exit",
    61: "wait4", 72: "fcntl", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 78: "getdents", 80: "chdir",
    82: "rename", 83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 89: "readlink", 90: "chmod", 91: "fchmod", 92: "chown",
    93: "fchown", 137: "statfs", 138: "fstatfs", 162: "sync", 165: "mount", 166: "umount2", 175: "init_module",
    176: "delete_module", 202: "futex", 209: "io_submit", 217: "getdents64", 231: "exit_group", 257: "openat", 258: "mkdirat",
    262: "newfstatat", 263: "unlinkat", 264: "renameat", 277: "sync_file_range", 285: "fallocate", 295: "preadv",
    296: "pwritev", 306: "syncfs", 313: "finit_module", 316: "renameat2", 326: "copy_file_range", 332: "statx",
    426: "io_uring_enter", 435: "clone3", 437: "openat2",
}  # fmt: skip
_GENERIC = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 34: "mkdirat", 35: "unlinkat", 38: "renameat", 39: "umount2", 40: "mount",
    43: "statfs", 44: "fstatfs", 45: "truncate", 46: "ftruncate", 47: "fallocate", 49: "chdir", 52: "fchmod", 55: "fchown",
    56: "openat", 57: "close", 61: "getdents64", 63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64",
    68: "pwrite64", 69: "preadv", 70: "pwritev", 73: "ppoll", 79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync",
    83: "fdatasync", 84: "sync_file_range", 93: "exit", 94: "exit_group", 98: "futex", 105: "init_module",
    106: "delete_module", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 215: "munmap", 220: "clone", 221: "execve",
    222: "mmap", 226: "mprotect", 227: "msync", 233: "madvise", 260: "wait4", 267: "syncfs", 273: "finit_module",
    276: "renameat2", 285: "copy_file_range", 291: "statx", 426: "io_uring_enter", 435: "clone3", 437: "openat2",
}  # fmt: skip
_BY_MACHINE = {"x86_64": _X86_64, "aarch64": _GENERIC, "riscv64": _GENERIC, "loongarch64": _GENERIC}
_ON_A_DESCRIPTOR = frozenset((
    "read", "write", "close", "fstat", "ioctl", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "recvfrom",
    "sendmsg", "recvmsg", "fcntl", "fsync", "fdatasync", "ftruncate", "getdents", "getdents64", "fchmod", "fchown", "fstatfs",
    "sync_file_range", "fallocate", "syncfs", "finit_module", "copy_file_range", "io_uring_enter",
))  # fmt: skip


def syscall_name(number: int, machine: str) -> str:
    """`ioctl`; `syscall 452` for a rarer one, or on a machine that is not known."""
    return _BY_MACHINE.get(machine, {}).get(number, f"syscall {number}")


def takes_descriptor(name: str) -> bool:
    """Whether its first argument is a descriptor."""
    return name in _ON_A_DESCRIPTOR
