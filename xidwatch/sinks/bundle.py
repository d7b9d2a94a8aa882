"""One .tar.gz of many small files with a MANIFEST, written whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from xidwatch.core.evidence import Item
from xidwatch.errors import XidwatchError


def write_bundle(path: Path, folder: str, items: Sequence[Item], text: str, written_s: float) -> None:
    """Write the archive; `folder` is what it unpacks to, `text` its MANIFEST. Only its owner may read it.

    Raises:
        XidwatchError: it is there already, or cannot be written; nothing is left behind then.
    """
    if os.path.lexists(path):
        raise XidwatchError(f"{path}: already there; nothing was written. Give another folder, or move it away")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _new(part) as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=int(written_s)) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for name, data in (("MANIFEST", text.encode()), *((item.name, item.data) for item in items)):
                    if data is not None:
                        _add(tar, f"{folder}/{name}", data, written_s)
            packed.close()
            raw.flush()
            os.fsync(raw.fileno())
        os.rename(part, path)
    except OSError as reason:
        raise XidwatchError(f"{path}: cannot be written: {reason.strerror or reason}; nothing was left behind") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _new(path: Path) -> io.BufferedWriter:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _add(tar: tarfile.TarFile, name: str, data: bytes, written_s: float) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), int(written_s), 0o600
    tar.addfile(entry, io.BytesIO(data))
