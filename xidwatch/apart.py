"""Work whose libraries shall not stay: pydantic checks the settings once, and a daemon would keep its 9 MiB for ever."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import TypeVar

Given = TypeVar("Given")


def apart(work: Callable[[], Given]) -> Given:
    """What `work` gives, made in a process of its own that ends with it.

    Where that cannot be done, or fails, it is done here, so that an error is the caller's. For the start only: a process with
    several threads is not divided.
    """
    made = _made_apart(work) if threading.active_count() == 1 else None
    return work() if made is None else made[0]


def _made_apart(work: Callable[[], Given]) -> tuple[Given] | None:
    read, write = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        return None
    if child == 0:
        status = 1
        try:
            os.close(read)  # else the pipe never breaks, and this process outlives a parent that is killed
            with open(write, "wb") as out:
                pickle.dump(work(), out)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with open(read, "rb") as answer:
        made = answer.read()
    _, status = os.waitpid(child, 0)
    return (pickle.loads(made),) if status == 0 else None
