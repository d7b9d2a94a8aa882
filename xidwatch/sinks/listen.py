"""`HOST:PORT` as a person writes it."""

from __future__ import annotations

import re

_FORM = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:\[\]/]*)):(?P<port>\d{1,5})")


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:19079`, `[::1]:19079`, `node7:19079` or `:19079` (host "": every address of the node).

    Port 0 lets the kernel choose.

    Raises:
        ValueError: what is wrong, to be put behind the name of the setting.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ValueError(f"{text!r} is not HOST:PORT, [IPV6]:PORT or :PORT")
    if int(form["port"]) > 65535:
        raise ValueError(f"port {form['port']} is beyond 65535")
    return form["v6"] or form["host"] or "", int(form["port"])
