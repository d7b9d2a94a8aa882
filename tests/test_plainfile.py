"""Files that are none, that have no end, or that nobody delivers."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from xidwatch.plainfile import read_in_time, read_plain


def test_a_plain_file_is_read_whole(tmp_path: Path) -> None:
    """Both ways give every byte, also of more than a pipe holds."""
    content = os.urandom(1 << 20)
    (tmp_path / "file").write_bytes(content)
    assert content == read_plain(tmp_path / "file", 1 << 20)
    assert content == read_in_time(tmp_path / "file", 1 << 20, 20)


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    """A pipe, a device, a folder, a file that is too large and one that is not there: an error that says which, at once."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345")
    cases = [(tmp_path / "pipe", errno.EINVAL), (Path("/dev/zero"), errno.EINVAL), (tmp_path, errno.EINVAL),
             (tmp_path / "large", errno.EFBIG), (tmp_path / "none", errno.ENOENT)]  # fmt: skip
    for path, number in cases:
        with pytest.raises(OSError) as here:
            read_plain(path, 4)
        with pytest.raises(OSError) as apart:
            read_in_time(path, 4, 20)
        assert (number, number, type(here.value)) == (here.value.errno, apart.value.errno, type(apart.value))
        assert here.value.strerror == apart.value.strerror


def test_a_reader_that_does_not_come_back_is_left_behind(tmp_path: Path) -> None:
    """When the time is up the caller goes on, and no process or descriptor of it stays here."""
    (tmp_path / "file").write_bytes(b"x" * 1000)
    open_before = len(os.listdir("/proc/self/fd"))
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        read_in_time(tmp_path / "file", 1 << 20, 0.0)
    assert time.monotonic() - began_s < 5
    assert open_before == len(os.listdir("/proc/self/fd"))
