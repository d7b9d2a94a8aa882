"""A mount that never answers, as that of a dead file server: FUSE without anybody who serves it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def impossible() -> str | None:
    """Why it cannot be had here; None when it can."""
    if os.geteuid() != 0:
        return "needs root"
    if not Path("/dev/fuse").exists() or shutil.which("mount") is None:
        return "needs /dev/fuse and mount"
    return None


@contextmanager
def dead(folder: Path) -> Iterator[None]:
    """Whoever looks into the folder waits, until the end of the block."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    try:
        subprocess.run(["mount", "-i", "-t", "fuse", "-o", options, "dead", str(folder)], pass_fds=[device], check=True)
        try:
            yield
        finally:
            # Closing the device ends every wait with an error.
            os.close(device)
            device = -1
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        if device >= 0:
            os.close(device)
