"""A real Prometheus and Alertmanager on the loopback, fed by a stand-in for xidwatch; and what a query may speak of."""

from __future__ import annotations

import json
import queue
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import pytest

from xidwatch.sinks.families import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 60.0
"""How long anything here may take on a busy machine before a test gives up."""
ADDED_BY_PROMETHEUS = frozenset({"instance", "job"})
_FAMILY = {family.name: family for family in FAMILIES}
_SELECTOR = re.compile(r"(?<![\w$])(xidwatch_\w+|up)\b(?!\s*\()\s*(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^()]*)\)")


def needs(program: str) -> pytest.MarkDecorator:
    """Skip, and say so, where a program is not installed."""
    packages = {"amtool": "prometheus-alertmanager", "prometheus-alertmanager": "prometheus-alertmanager"}
    reason = f"{program} is missing: apt-get install {packages.get(program, 'prometheus')}"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def unknown_words(expr: str) -> list[str]:
    """Metrics, and labels of them, that a query uses and that xidwatch does not export."""
    wrong = []
    for name, matchers in _SELECTOR.findall(expr):
        family = _FAMILY.get(name) or _FAMILY.get(name.removesuffix("_bucket"))
        if family is None and name != "up":
            wrong.append(name)
            continue
        known = ADDED_BY_PROMETHEUS | set(family.labels if family else ())
        wrong += [f"{name}{{{label}}}" for label in _MATCHER.findall(matchers) if label not in known]
    exported = {label for family in FAMILIES for label in family.labels} | ADDED_BY_PROMETHEUS | {"le"}
    grouped = {label.strip() for labels in _GROUPING.findall(expr) for label in labels.split(",")} - {""}
    return wrong + sorted(grouped - exported)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Exporter:
    """A stand-in for the daemon: answers each scrape with what stands in a file, and with 503 when there is no file.

    Attributes:
        scrapes: One entry for each scrape that was answered.
    """

    page: Path
    port: int = 0
    scrapes: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)

    def wait_for_scrapes(self, count: int) -> None:
        """Return when so many more have been answered; all but the last are then in Prometheus."""
        while not self.scrapes.empty():
            self.scrapes.get()
        for _ in range(count):
            self.scrapes.get(timeout=DEADLINE_S)


@contextmanager
def exporting(page: Path) -> Iterator[Exporter]:
    """Serve a file as metrics."""
    exporter = Exporter(page)

    class Scrape(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = page.read_bytes() if page.exists() else b""
            self.send_response(200 if text else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text)
            exporter.scrapes.put(1)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with _serving(Scrape) as exporter.port:
        yield exporter


@contextmanager
def receiving() -> Iterator[tuple[int, queue.SimpleQueue[tuple[str, dict[str, Any]]]]]:
    """A webhook: its port, and what it was sent as (path, message)."""
    received: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            received.put((self.path, json.loads(body)))

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with _serving(Hook) as port:
        yield port, received


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def running_prometheus(folder: Path, config: str) -> Iterator[str]:
    """Prometheus with this configuration; gives its address."""
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    with _running(command, "Server is ready to receive web requests"):
        yield f"http://{address}"


@contextmanager
def running_alertmanager(folder: Path, config: str) -> Iterator[str]:
    """Alertmanager with this configuration, alone in its cluster; gives its address."""
    (folder / "alertmanager.yml").write_text(config, encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus-alertmanager", f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}", f"--web.listen-address={address}", "--cluster.listen-address=",
    ]  # fmt: skip
    with _running(command, "Listening on"):
        yield f"http://{address}"


@contextmanager
def _running(command: Sequence[str], ready: str) -> Iterator[None]:
    """A program from the line that says it is ready to the end of the block."""
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert program.stderr is not None
    reader = threading.Thread(target=_drain, args=(program.stderr, lines))
    reader.start()
    try:
        said: list[str] = []
        while not said or ready not in said[-1]:
            said.append(lines.get(timeout=DEADLINE_S))
            assert said[-1], f"{command[0]} ended: {said}"
        yield
    finally:
        program.terminate()
        program.wait(timeout=DEADLINE_S)
        reader.join()
        program.stderr.close()


def _drain(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    """Every line, then an empty one at the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def ask(address: str, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers to an instant query; an error of the query is an error of the test."""
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result
    except urllib.error.HTTPError as error:
        message = json.load(error)["error"]
        error.close()
        raise AssertionError(f"{query}: {message}") from error
