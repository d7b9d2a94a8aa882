"""What systemd wants to hear: ready, reloading, alive, stopping. Silent where nobody listens."""

from __future__ import annotations

import os
import socket


class Service:
    """The notify socket of systemd (sd_notify(3)).

    Attributes:
        watchdog_s: How often the loop has to say that it is alive: half of WatchdogSec; None when nobody asks.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        environment = dict(os.environ) if environment is None else environment
        self._address = environment.get("NOTIFY_SOCKET", "")
        microseconds = environment.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(microseconds) / 2e6 if microseconds.isdigit() and int(microseconds) else None

    def ready(self, status: str) -> None:
        """The daemon watches."""
        self._say(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog. Only the loop may call it: a daemon whose loop hangs must be restarted."""
        self._say("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._say(f"STATUS={text}")

    def stopping(self) -> None:
        """The daemon ends by itself."""
        self._say("STOPPING=1")

    def _say(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto(text.encode(), address)
        except OSError:
            # systemd may be gone or slow; the daemon's work does not depend on it.
            return
