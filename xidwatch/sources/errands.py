"""Work that may never return, done by a thread that may be lost: files of a stuck task, a name service that is away."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

GIVEN_UP_S = 10.0
MOST_LOST = 3
"""So many threads may be stuck at a time; then nothing more is asked, and that is said."""
_MOST_WAITING = 512


class Errands:
    """Runs one errand after the other; one that does not return is left to itself and another thread goes on."""

    def __init__(self, done: Callable[[], None], clock_s: Callable[[], float] = time.monotonic) -> None:
        """`done` is called from the thread after each errand."""
        self._done, self._clock_s = done, clock_s
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._busy_since: dict[threading.Thread, float | None] = {}
        self._lost: set[threading.Thread] = set()
        self._sent = self._returned = 0
        self._ending = False
        self._lock = threading.Lock()

    def send(self, errand: Callable[[], None]) -> bool:
        """Have it done; False when there is no thread left, or too much waits. From any thread."""
        with self._lock:
            return self._send(errand)

    def _send(self, errand: Callable[[], None]) -> bool:
        self._check()
        if len(self._lost) >= MOST_LOST:
            return False
        if not any(thread.is_alive() for thread in self._busy_since.keys() - self._lost):
            self._start()
        try:
            self._waiting.put_nowait(errand)
        except queue.Full:
            return False
        self._sent += 1
        return True

    def check(self) -> None:
        """Give up the errand that has taken too long, and let another thread take the next ones. From any thread."""
        with self._lock:
            self._check()

    def _check(self) -> None:
        now_s = self._clock_s()
        for thread, since_s in list(self._busy_since.items()):
            if thread in self._lost:
                if not thread.is_alive():
                    self._lost.discard(thread)
                    del self._busy_since[thread]
            elif since_s is not None and now_s - since_s > GIVEN_UP_S:
                self._lost.add(thread)
                if not self._waiting.empty() and len(self._lost) < MOST_LOST:
                    self._start()

    def under_way(self) -> int:
        """How many have been sent and have not returned."""
        return self._sent - self._returned

    def stuck(self) -> int:
        """How many threads wait for something that does not come."""
        return len(self._lost)

    def close(self) -> None:
        """End the thread that is free; nobody waits for the others."""
        self._ending = True
        for _ in self._busy_since:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                break

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="errands", daemon=True)
        self._busy_since[thread] = None
        thread.start()

    def _work(self) -> None:
        me = threading.current_thread()
        while (errand := self._waiting.get()) is not None and not self._ending:
            self._busy_since[me] = self._clock_s()
            errand()
            self._returned += 1
            self._done()
            if me in self._lost:
                return
            self._busy_since[me] = None
