"""The metrics over HTTP, from the latest snapshot. A client that is slow, wrong or too many harms nobody but itself."""

from __future__ import annotations

import contextlib
import errno
import io
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from xidwatch.errors import XidwatchError
from xidwatch.sinks.listen import parse_listen
from xidwatch.sinks.pages import Pages, Reply
from xidwatch.sinks.snapshot import Snapshot
from xidwatch.sinks.webauth import Gate
from xidwatch.sinks.webconfig import WebConfig, read_web_config

_MOST_CONNECTIONS = 32
_BACKLOG = 256
"""Connections that the kernel keeps for us while all threads are busy."""
_DEADLINE_S = 10.0
"""For a whole connection, from its first byte to the last of the answer."""
_PATIENCE_S = 0.25
"""When every thread is taken, a client that keeps one waiting for this long has to go."""
_MOST_REQUEST_BYTES = 16_384
_MOST_DRAINED_BYTES = 262_144
_COMMANDS = ("GET", "HEAD")


class WebServer:
    """A server in threads of its own. None of them touches anything but the snapshot."""

    def __init__(self, address: str, get_snapshot: Callable[[], Snapshot], web_config: Path | None = None) -> None:
        """Bind, so that a port already taken is told at the start; `start` begins to answer.

        Args:
            address: As `listen.parse_listen` reads it.
            get_snapshot: Called from many threads; gives the latest one at once.
            web_config: File with TLS and passwords.

        Raises:
            XidwatchError: the address cannot be listened on, or the file cannot be used.
        """
        self._web_config = web_config
        config = _config(web_config)
        try:
            host, port = parse_listen(address)
            self._server = _bound(host, port, get_snapshot, config)
        except ValueError as error:
            raise XidwatchError(f"listen: {error}") from error
        except OSError as error:
            raise XidwatchError(f"cannot listen on {address}: {error.strerror or error}; choose another with listen") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(2.0,), name="web", daemon=True)

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def alive(self) -> bool:
        """Whether new connections are taken."""
        return self._thread.is_alive()

    def reload(self) -> None:
        """Read the file with TLS and passwords anew, for connections from now on.

        Raises:
            XidwatchError: it cannot be used; what was in force stays so.
        """
        self._server.protect(_config(self._web_config))

    def close(self) -> None:
        """Take no more connections and cut off those that are open."""
        self._server.stopping = True
        if self._thread.is_alive():
            # The thread looks only every two seconds, so that an idle daemon sleeps; this wakes it.
            self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.cut_off(older_than_s=-1.0)


@dataclass(slots=True)
class _Visit:
    """A connection. `waiting_since_s` None: it is we who keep the client waiting."""

    since_s: float
    waiting_since_s: float | None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _BACKLOG

    def __init__(self, family: int, address: tuple[Any, ...], get_snapshot: Callable[[], Snapshot], config: WebConfig) -> None:
        self.address_family = family
        self.stopping = False
        self._get_snapshot = get_snapshot
        self._visits: dict[socket.socket, _Visit] = {}
        self._left = threading.Condition()
        self.protect(config)
        super().__init__(address, _Handler)

    def protect(self, config: WebConfig) -> None:
        """Put TLS and passwords in force."""
        self._tls = config.tls
        self.pages = Pages(self._get_snapshot, Gate(config.users) if config.users else None)

    def server_bind(self) -> None:
        # The inherited one asks DNS for our own name, which may take long.
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "xidwatch", self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            connection, client = self.socket.accept()
        except OSError:
            time.sleep(0.05)  # out of descriptors: the connection stays in the queue, and so would we in a tight loop
            raise
        connection.settimeout(_DEADLINE_S)
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Wait for a free thread; make one free when a client is slow."""
        with self._left:
            while len(self._visits) >= _MOST_CONNECTIONS and not self.stopping:
                self._cut_off(_DEADLINE_S, _PATIENCE_S)
                self._left.wait(0.02)
            now = time.monotonic()
            self._visits[request] = _Visit(now, now)
        return not self.stopping

    def service_actions(self) -> None:
        self.cut_off(older_than_s=_DEADLINE_S)

    def shutdown_request(self, request: Any) -> None:
        with self._left:
            self._visits.pop(request, None)
            self._left.notify()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(request, socket.SHUT_WR)
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes away or is cut off (in the middle of TLS: ValueError) and a thread too many are no news.
        if not isinstance(sys.exc_info()[1], OSError | ValueError | RuntimeError):
            traceback.print_exc()

    def client_waits(self, request: socket.socket) -> None:
        """From here on it is we who work."""
        self._note(request, None)

    def we_wait(self, request: socket.socket) -> None:
        """From here on the client has to read."""
        self._note(request, time.monotonic())

    def _note(self, request: socket.socket, waiting_since_s: float | None) -> None:
        with self._left:
            if request in self._visits:
                self._visits[request].waiting_since_s = waiting_since_s

    def cut_off(self, *, older_than_s: float) -> None:
        """End the connections that are older; their threads then see the end."""
        with self._left:
            self._cut_off(older_than_s, None)

    def _cut_off(self, older_than_s: float, waiting_longer_than_s: float | None) -> None:
        now = time.monotonic()
        for request, visit in self._visits.items():
            slow = None not in (waiting_longer_than_s, visit.waiting_since_s) and (
                now - (visit.waiting_since_s or now) > (waiting_longer_than_s or 0)
            )
            if slow or now - visit.since_s > older_than_s:
                # The base class's: an SSLSocket's own would pull its state away under the thread that uses it.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(request, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _DEADLINE_S

    def setup(self) -> None:
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()

    def handle(self) -> None:
        head = self._head()
        if not head:
            return
        if len(head) > _MOST_REQUEST_BYTES:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            self._drain()
            return
        self.server.client_waits(self.connection)
        self.rfile.close()
        self.rfile = io.BytesIO(head)
        self.raw_requestline = self.rfile.readline(_MOST_REQUEST_BYTES + 1)
        if self.parse_request():
            self._reply(self._answer())
            if self.command not in _COMMANDS:
                self._drain()

    def _drain(self) -> None:
        """Read what the client still sends: closing before would take the answer away from it (TCP reset)."""
        socket.socket.shutdown(self.connection, socket.SHUT_WR)
        for _ in range(_MOST_DRAINED_BYTES // 4096):
            if not self.connection.recv(4096):
                return

    def _head(self) -> bytes:
        """What the client sends up to the first empty line; more than it may when it never comes."""
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= _MOST_REQUEST_BYTES:
            if not (more := self.connection.recv(4096)):
                break
            head += more
        return head

    def _answer(self) -> Reply:
        if self.request_version == "HTTP/0.9" or self.command not in _COMMANDS:
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, more=(("Allow", ", ".join(_COMMANDS)),))
        try:
            return self.server.pages.answer(self.path, self.headers)
        except Exception:  # noqa: BLE001  # a bug: told, and the next scrape is answered again
            traceback.print_exc()
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Tell the code alone: the texts given here quote the request."""
        self._reply(Reply(HTTPStatus(code)))

    def _reply(self, reply: Reply) -> None:
        self.close_connection = True
        self.request_version = self.protocol_version  # also to what was no HTTP at all
        self.send_response_only(reply.status)
        for name, value in (*reply.headers(), ("Connection", "close")):
            self.send_header(name, value)
        self.server.we_wait(self.connection)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)


def _config(path: Path | None) -> WebConfig:
    return read_web_config(path) if path is not None else WebConfig()


def _bound(host: str, port: int, get_snapshot: Callable[[], Snapshot], config: WebConfig) -> _Server:
    if not host and socket.has_dualstack_ipv6():
        try:
            return _Server(socket.AF_INET6, ("::", port), get_snapshot, config)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # IPv6 switched off
                raise
    found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return _Server(family, address, get_snapshot, config)
