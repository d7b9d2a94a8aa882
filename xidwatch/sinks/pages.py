"""What the web server answers to a path: /metrics, /healthz and a page that leads there."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus

from xidwatch.sinks.metrics import exposition
from xidwatch.sinks.snapshot import Snapshot
from xidwatch.sinks.webauth import Gate

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_FRONT = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>xidwatch</title></head>
<body><h1>xidwatch</h1>
<p><a href="metrics">metrics</a> for Prometheus, <a href="healthz">health</a> of xidwatch itself</p></body></html>
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. Without a body the status says all. `more` are further headers."""

    status: HTTPStatus
    content_type: str = "text/plain; charset=utf-8"
    content: bytes | None = None
    more: tuple[tuple[str, str], ...] = ()

    @property
    def body(self) -> bytes:
        """What is sent behind the headers."""
        return self.content if self.content is not None else f"{self.status.value} {self.status.phrase}\n".encode()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Those that go with it."""
        length = "Content-Length", str(len(self.body))
        return ("Content-Type", self.content_type), length, ("X-Content-Type-Options", "nosniff"), *self.more


_UNKNOWN = Reply(HTTPStatus.UNAUTHORIZED, more=(("WWW-Authenticate", 'Basic realm="xidwatch"'),))
_BUSY = Reply(HTTPStatus.SERVICE_UNAVAILABLE, more=(("Retry-After", "1"),))


class Pages:
    """Answers requests. A snapshot is written out once for each form that is asked for."""

    def __init__(self, get_snapshot: Callable[[], Snapshot], gate: Gate | None) -> None:
        """`gate` None: everybody may ask."""
        self._get_snapshot = get_snapshot
        self._gate = gate
        self._written: dict[tuple[bool, bool], tuple[Snapshot, bytes]] = {}
        self._writing = threading.Lock()

    def answer(self, target: str, headers: Message) -> Reply:
        """The answer to GET."""
        if self._gate is not None and not (admitted := self._gate.admits(headers.get("Authorization", ""))):
            return _UNKNOWN if admitted is False else _BUSY
        path = target.partition("?")[0]
        if path == "/metrics":
            return self._metrics(headers)
        if path == "/healthz":
            return health(self._get_snapshot())
        if path == "/":
            return Reply(HTTPStatus.OK, "text/html; charset=utf-8", _FRONT.encode())
        return Reply(HTTPStatus.NOT_FOUND)

    def _metrics(self, headers: Message) -> Reply:
        openmetrics = prefers_openmetrics(headers.get("Accept", ""))
        packed = _weights(headers.get("Accept-Encoding", "")).get("gzip", 0.0) > 0
        more = ("Vary", "Accept, Accept-Encoding"), *((("Content-Encoding", "gzip"),) if packed else ())
        content = self._content(self._get_snapshot(), openmetrics=openmetrics, packed=packed)
        return Reply(HTTPStatus.OK, _OPENMETRICS if openmetrics else _TEXT, content, more)

    def _content(self, snapshot: Snapshot, *, openmetrics: bool, packed: bool) -> bytes:
        with self._writing:
            of, content = self._written.get((openmetrics, packed), (None, b""))
            if of is not snapshot:
                if packed:
                    of, content = self._written.get((openmetrics, False), (None, b""))
                if of is not snapshot:
                    content = exposition(snapshot, openmetrics=openmetrics)
                    self._written[openmetrics, False] = snapshot, content
                if packed:
                    content = gzip.compress(content, compresslevel=1)
                    self._written[openmetrics, True] = snapshot, content
        return content


def health(snapshot: Snapshot) -> Reply:
    """200 while every source is read; 503 with the reason when xidwatch is blind."""
    dead = {name: source.why or "down" for name, source in snapshot.sources.items() if not source.up}
    if not snapshot.sources:
        dead = {"none": "no source is open yet"}
    told: Mapping[str, object] = {
        "status": "blind" if dead else "ok",
        "dead_sources": dead,
        "sources": sorted(snapshot.sources),
        "history_up": snapshot.history.up if snapshot.history is not None else None,
    }
    status = HTTPStatus.SERVICE_UNAVAILABLE if dead else HTTPStatus.OK
    return Reply(status, "application/json", (json.dumps(told) + "\n").encode())


def prefers_openmetrics(accept: str) -> bool:
    """Whether the header `Accept` asks for OpenMetrics at least as much as for the text format."""
    weights = _weights(accept)
    wanted = weights.get("application/openmetrics-text", 0.0)
    return wanted > 0 and wanted >= weights.get("text/plain", 0.0)


def _weights(header: str) -> dict[str, float]:
    """Each choice of a header with its `q`, 1 without one (RFC 9110, 12.4.2); the best where one is named twice."""
    weights: dict[str, float] = {}
    for choice in header.lower().split(","):
        name, *parameters = (part.strip() for part in choice.split(";"))
        given = next((parameter.removeprefix("q=") for parameter in parameters if parameter.startswith("q=")), "1")
        try:
            weights[name] = max(float(given), weights.get(name, 0.0))
        except ValueError:
            continue
    return weights
