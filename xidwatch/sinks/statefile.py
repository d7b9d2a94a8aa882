"""state.json: what holds now, for those who read a file instead of a socket.

Written by its own thread, the latest state winning, so that a slow disk never holds up the loop.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LONGEST_REST_S = 2.0


class StateFile:
    """Replaces a file atomically whenever there is a newer state. The first failure of a row is told on standard error."""

    def __init__(self, path: Path) -> None:
        self._failing = False
        self._path = path
        self._latest: Callable[[], dict[str, Any]] | None = None
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="state-file", daemon=True)
        self._thread.start()

    def put(self, state: Callable[[], dict[str, Any]]) -> None:
        """Hand over what draws the state up, to be called in the thread; never waits.

        An older one that is not yet written is skipped. The thread rests four times as long as it worked, so that a storm of
        changes leaves most of a core to others.
        """
        with self._changed:
            self._latest = state
            self._changed.notify()

    def close(self, timeout_s: float = 2.0) -> bool:
        """Write what is left; False when the disk did not take it in time."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._latest is not None or self._ending)
                state, self._latest = self._latest, None
            if state is None:
                return
            began_s = time.monotonic()
            try:
                self._write(state())
                self._failing = False
            except Exception as error:  # noqa: BLE001
                # A mistake in drawing, too: were this thread gone, what held once would be shown as if it held for ever.
                if not self._failing:
                    sys.stderr.write(f"xidwatch: {self._path} is not up to date: {type(error).__name__}: {error}\n")
                self._failing = True
            rest_s = min(_LONGEST_REST_S, 4 * (time.monotonic() - began_s))
            with self._changed:
                self._changed.wait_for(lambda: self._ending, rest_s)

    def _write(self, state: dict[str, Any]) -> None:
        fresh = self._path.with_suffix(".new")
        with open(fresh, "w", encoding="utf-8") as out:
            out.write(json.dumps(state) + "\n")
        os.chmod(fresh, 0o644)
        os.replace(fresh, self._path)
