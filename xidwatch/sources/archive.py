"""Open what a log may be packed in: plain, gzip, xz, bzip2, zstd, told apart by their first bytes; `-` is standard input."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from xidwatch.errors import XidwatchError
from xidwatch.sources.blocks import CHUNK_BYTES

if TYPE_CHECKING:
    import zstandard

Waiting = Callable[[str], None]
"""Told the name of an input that has been silent for two seconds and is waited for."""

_PACKED_CHUNK = 1 << 16
_SILENCE_MS = 2000
_SLICE_BYTES = {"gzip": 4096, "xz": 4096, "bzip2": 4096, "zstd": 256}
"""What is unpacked at once: what a broken slice gave before it broke is lost, and zstandard knows no upper limit of output."""


class _Unpacker(Protocol):
    """What zlib, bz2, lzma and isal have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Archive:
    """One input as a stream of plain bytes.

    Attributes:
        path: As given; `-` for standard input.
        packing: "gzip", "xz", "bzip2", "zstd", or "" for a plain file.
        size: Bytes on disk; None for a pipe.
        notes: What went wrong while unpacking.
        taken: Bytes read from the disk so far.
    """

    def __init__(self, path: str, file: BinaryIO | None = None, waiting: Waiting | None = None) -> None:
        """Open `path`, or take a file that is open already.

        Raises:
            XidwatchError: it cannot be opened; the text names the next step.
        """
        self.path = path
        self.notes: list[str] = []
        self.taken = 0
        self._file = file or _open(path)
        if file is not None:
            file.seek(0)
        mode = os.fstat(self._file.fileno())
        self.seekable = stat.S_ISREG(mode.st_mode)
        self.size = mode.st_size if self.seekable else None
        if not self.seekable:
            _await(self._file, path, waiting)
        self._first = _read(self._file, _PACKED_CHUNK, path)
        self.taken = len(self._first)
        self.packing = _packing(self._first)

    @property
    def plain(self) -> bool:
        """A plain file that can be read from any place."""
        return self.seekable and not self.packing

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self.path != "-":
            self._file.close()

    def chunks(self) -> Iterator[bytes]:
        """The plain bytes from the beginning, in chunks of at most CHUNK_BYTES; can be asked again where `seekable`.

        Packed bytes that end early or are broken give what could be read and a note.
        """
        if self.seekable:
            self._file.seek(0)
            self.taken, first = 0, b""
        else:
            first, self._first = self._first, b""
        packed = self._packed(first, _PACKED_CHUNK if self.packing else CHUNK_BYTES)
        return self._unpacked(packed) if self.packing else packed

    def tail(self, size: int, *, behind: int = 0) -> bytes:
        """The last bytes of a plain file, none of its first `behind`; reading goes on where it was."""
        start = max(behind, (self.size or 0) - size)
        return self._at(start, size)

    def backwards(self) -> Iterator[bytes]:
        """Chunks of a plain file from its end to its beginning; their lines stand in the order of the file."""
        end = self.size or 0
        while end > 0:
            start = max(0, end - CHUNK_BYTES)
            yield self._at(start, end - start)
            end = start

    def _at(self, start: int, size: int) -> bytes:
        try:
            return os.pread(self._file.fileno(), size, start)
        except OSError as reason:
            raise XidwatchError(_while_reading(self.path, reason)) from None

    def _packed(self, first: bytes, size: int) -> Iterator[bytes]:
        if first:
            yield first
        while chunk := _read(self._file, size, self.path):
            self.taken += len(chunk)
            yield chunk

    def _unpacked(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        make = _unpacker(self.packing, self.path)
        unpacker = make()
        size = _SLICE_BYTES[self.packing]
        given = False
        try:
            for chunk in packed:
                for at in range(0, len(chunk), size):
                    rest = chunk[at : at + size]
                    while rest:
                        if unpacker.eof:  # members, one behind the other
                            unpacker = make()
                        for plain in _drained(unpacker, rest):
                            given = True
                            yield plain
                        rest = unpacker.unused_data.lstrip(b"\0") if unpacker.eof else b""
            if not unpacker.eof:
                yield from _drained(unpacker, b"")
        except _broken() as broken:
            was_read = "what stood before it was read" if given else "nothing could be read"
            self.notes.append(f"the {self.packing} data is broken ({broken}); {was_read}")
            return
        if not unpacker.eof:
            self.notes.append(
                f"the {self.packing} data ends early; {'what is there was read' if given else 'nothing could be read'}"
            )


def _drained(unpacker: _Unpacker, packed: bytes) -> Iterator[bytes]:
    """Everything that these packed bytes give, in chunks."""
    while not unpacker.eof:
        plain = unpacker.decompress(packed, CHUNK_BYTES)
        if plain:
            yield plain
        packed = getattr(unpacker, "unconsumed_tail", b"")
        if not packed and len(plain) < CHUNK_BYTES:
            return


class _Zstd:
    """zstandard's unpacker with the manners of the others."""

    def __init__(self, unpacker: zstandard.ZstdDecompressionObj) -> None:
        self._unpacker = unpacker

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data

    def decompress(self, data: bytes, _max_length: int, /) -> bytes:
        return self._unpacker.decompress(data) if data else b""


def _unpacker(packing: str, path: str) -> Callable[[], _Unpacker]:
    """What makes an unpacker; each library is loaded only where it is needed."""
    if packing == "zstd":
        try:
            import zstandard
        except ImportError:
            raise XidwatchError(
                f"{path}: zstd data needs the package zstandard; or: zstdcat {path} | xidwatch explain -"
            ) from None
        return lambda: _Zstd(zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj())
    if packing == "xz":
        import lzma

        return lzma.LZMADecompressor
    if packing == "bzip2":
        import bz2

        return bz2.BZ2Decompressor
    try:
        from isal import isal_zlib
    except ImportError:
        return lambda: zlib.decompressobj(wbits=31)
    return lambda: isal_zlib.decompressobj(wbits=31)


def _broken() -> tuple[type[Exception], ...]:
    """How the libraries in use say that the bytes are no good."""
    named = (("isal.isal_zlib", "error"), ("lzma", "LZMAError"), ("zstandard", "ZstdError"))
    own = [getattr(sys.modules[module], error) for module, error in named if module in sys.modules]
    return (OSError, EOFError, ValueError, zlib.error, *own)


_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}


def _packing(first: bytes) -> str:
    return next((packing for magic, packing in _MAGIC.items() if first.startswith(magic)), "")


def _open(path: str) -> BinaryIO:
    if path == "-":
        # With `<&-` Python has no standard input at all.
        if (stdin := sys.stdin) is None:
            raise XidwatchError("-: standard input is closed; pipe a log into it, or give a file")
        # Unbuffered: who is interrupted while another thread reads would find the buffer's lock taken.
        return getattr(stdin.buffer, "raw", stdin.buffer)
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            return _open_fifo(path)
        return Path(path).open("rb", buffering=0)
    except OSError as reason:
        raise XidwatchError(f"{path}: {why_unreadable(path, reason)}") from None


def why_unreadable(path: str, reason: OSError) -> str:
    """What keeps a path from being opened, and the next step."""
    if isinstance(reason, FileNotFoundError):
        if os.path.islink(path):
            return f"a symbolic link to {os.readlink(path)}, which is not there"
        return "no such file; check the name, or give - to read standard input"
    if isinstance(reason, PermissionError):
        from shlex import quote

        return f"not readable by you; try: sudo xidwatch explain {quote(path)}"
    if reason.errno == errno.ELOOP:
        return "a loop of symbolic links; it leads to no file"
    return f"{reason.strerror or reason}; check the path and the disk it is on"


def _open_fifo(path: str) -> BinaryIO:
    """Open it although no one writes yet: open() itself would wait without a word."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    return open(descriptor, "rb", buffering=0)


def _await(file: BinaryIO, path: str, waiting: Waiting | None) -> None:
    """Wait for the first bytes of a named pipe or a terminal, or for its end."""
    if path == "-" and not file.isatty():
        return  # a pipe's writer is at work, or the shell would not have made it
    poll = select.poll()
    poll.register(file, select.POLLIN)
    if not poll.poll(_SILENCE_MS):
        if waiting is not None:
            waiting(path)
        poll.poll()


def _read(file: BinaryIO, size: int, path: str) -> bytes:
    try:
        return file.read(size) or b""
    except OSError as reason:
        raise XidwatchError(_while_reading(path, reason)) from None


def _while_reading(path: str, reason: OSError) -> str:
    return f"{path}: {reason.strerror or reason} while reading; copy it elsewhere and try again"
