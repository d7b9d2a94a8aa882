"""The web server, over real sockets of the loopback."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path

import bcrypt
import pytest

from bench.scrape import Source
from xidwatch.errors import XidwatchError
from xidwatch.sinks.listen import parse_listen
from xidwatch.sinks.metrics import Snapshot
from xidwatch.sinks.pages import Pages, prefers_openmetrics
from xidwatch.sinks.web import WebServer
from xidwatch.sinks.webauth import Gate
from xidwatch.sinks.webconfig import read_web_config

WELL = Snapshot(sources={"kmsg": Source()})
BIG = replace(WELL, readings={("xidwatch_row_remap_pending", (("gpu", f"{n:08x}" * 20),)): 1.0 for n in range(40_000)})
"""Eight megabytes: more than any socket buffer takes."""
PROMETHEUS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5"
Start = Callable[..., WebServer]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers and closes them at the end."""
    with ExitStack() as stack:

        def begin(
            snapshot: Snapshot | Callable[[], Snapshot] = WELL, address: str = "127.0.0.1:0", config: Path | None = None
        ) -> WebServer:
            server = WebServer(address, snapshot if callable(snapshot) else lambda: snapshot, config)
            stack.callback(server.close)
            server.start()
            return server

        yield begin


def get(
    server: WebServer, path: str = "/metrics", headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[HTTPResponse, bytes]:
    """One request; the answer and its body."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def raw(server: WebServer, request: bytes) -> bytes:
    """What comes back for these bytes, up to the end."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while more := connection.recv(65536):
            answer += more
        return answer


def idle(server: WebServer, number: int, sent: bytes, stack: ExitStack) -> None:
    """That many clients who begin and go no further."""
    for _ in range(number):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
        connection.sendall(sent)


# what is answered


def test_a_scrape_gets_the_text_format(start: Start) -> None:
    """Who says nothing about formats gets the one that everybody reads."""
    response, body = get(start())
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (response.status, response.headers["Content-Type"])
    assert b'xidwatch_source_up{source="kmsg"} 1.0\n' in body


def test_prometheus_gets_openmetrics_packed(start: Start) -> None:
    """What Prometheus asks for by itself."""
    response, body = get(start(), headers={"Accept": PROMETHEUS, "Accept-Encoding": "gzip"})
    told = response.headers["Content-Type"], response.headers["Content-Encoding"]
    assert ("application/openmetrics-text; version=1.0.0; charset=utf-8", "gzip") == told
    assert gzip.decompress(body).endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        (PROMETHEUS, True),
        ("application/openmetrics-text;q=0, */*", False),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.9", False),
        ("application/openmetrics-text; version=1.0.0; q=nonsense", False),
    ],
)
def test_the_format_follows_the_clients_weights(accept: str, openmetrics: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """OpenMetrics only for those who prefer it."""
    assert openmetrics == prefers_openmetrics(accept)


def test_health_is_ok_while_every_source_is_read(start: Start) -> None:
    """Probes need nothing but the status."""
    response, body = get(start(), "/healthz")
    assert (200, "ok") == (response.status, json.loads(body)["status"])


def test_health_names_the_dead_source(start: Start) -> None:
    """A blind xidwatch says so, and why."""
    dead = Source(up=False, why="cannot open /dev/kmsg: Permission denied")
    response, body = get(start(Snapshot(sources={"journal": Source(), "kmsg": dead})), "/healthz")
    assert (503, {"kmsg": "cannot open /dev/kmsg: Permission denied"}) == (response.status, json.loads(body)["dead_sources"])


def test_health_is_bad_before_anything_is_read(start: Start) -> None:
    """No source is no health."""
    assert 503 == get(start(Snapshot()), "/healthz")[0].status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/metrics?name[]=x", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/nothing", 404),
        ("GET", "//metrics/../etc/passwd", 404),
        ("POST", "/metrics", 405),
        ("BREW", "/metrics", 405),
    ],
)
def test_paths_and_methods(start: Start, method: str, path: str, status: int) -> None:
    """There are three pages, to be read only."""
    response, body = get(start(), path, method=method)
    assert (status, method == "HEAD") == (response.status, body == b"")


def test_a_snapshot_is_written_out_once(start: Start) -> None:
    """Any number of scrapers cost one rendering of each snapshot."""
    latest = [WELL]
    pages = Pages(lambda: latest[0], None)
    first = pages.answer("/metrics", Message()).body
    assert pages.answer("/metrics", Message()).body is first
    latest[0] = Snapshot()
    assert first != pages.answer("/metrics", Message()).body


def test_a_bug_costs_one_scrape(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """It is answered with 500 and told on standard error; the next scrape is answered again."""
    answers: Iterator[Exception | Snapshot] = iter([ZeroDivisionError("bug"), WELL])

    def latest() -> Snapshot:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    server = start(latest)
    assert [500, 200] == [get(server)[0].status, get(server)[0].status]
    assert "ZeroDivisionError: bug" in capfd.readouterr().err


# who asks badly


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\n\n", b"200"),
        (b"GET /metrics\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03<script>\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /metrics HTTP/1.1\r\nA: " + 40_000 * b"a", b"431"),
        (b"GET /" + 40_000 * b"a" + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\n" + 200 * b"A: b\r\n" + b"\r\n", b"431"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + 100_000 * b"x", b"405"),
    ],
)
def test_odd_requests_get_their_status(start: Start, request_: bytes, status: bytes) -> None:
    """Old clients are served, garbage gets a number and no echo of itself, and the server goes on."""
    server = start()
    answer = raw(server, request_)
    assert status == answer.split(b" ")[1]
    assert b"script" not in answer
    assert 200 == get(server)[0].status


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nA: b"])
def test_slow_clients_do_not_shut_prometheus_out(start: Start, sent: bytes) -> None:
    """With a hundred clients that never finish their request, a scrape is still answered in time."""
    server = start()
    with ExitStack() as stack:
        idle(server, 100, sent, stack)
        began = time.monotonic()
        assert 200 == get(server)[0].status
        assert time.monotonic() - began < 5


def test_clients_that_do_not_read_do_not_shut_prometheus_out(start: Start) -> None:
    """With fifty clients that ask for much and take nothing, a scrape is still answered in time."""
    server = start(BIG)
    get(server)
    with ExitStack() as stack:
        idle(server, 50, b"GET /metrics HTTP/1.1\r\n\r\n", stack)
        began = time.monotonic()
        assert 200 == get(server, "/healthz")[0].status
        assert time.monotonic() - began < 5


def test_many_clients_are_all_served_by_few_threads(start: Start) -> None:
    """200 at a time get their answer, and never more than 32 threads work for them."""
    server = start()
    before, most = threading.active_count(), 0

    def scrape(_: int) -> int:
        nonlocal most
        status = get(server)[0].status
        most = max(most, sum(thread.name.startswith("Thread-") for thread in threading.enumerate()))
        return status

    with ThreadPoolExecutor(200, thread_name_prefix="client") as pool:
        assert [200] * 400 == list(pool.map(scrape, range(400)))
    assert most <= 32 + before


def test_closing_cuts_off_who_is_there() -> None:
    """The daemon's end waits for no client."""
    server = WebServer("127.0.0.1:0", lambda: WELL)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET /met")
        server.close()
        with suppress(ConnectionResetError):
            assert b"" == client.recv(1)
    assert not server.alive()


# where it listens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:19079", ("127.0.0.1", 19079)),
        ("[::1]:0", ("::1", 0)),
        (":19079", ("", 19079)),
        ("node-7.example:80", ("node-7.example", 80)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """The forms that Go programs take."""
    assert expected == parse_listen(text)


@pytest.mark.parametrize("text", ["", "19079", "::1:19079", "127.0.0.1", "127.0.0.1:65536", "http://x:1", "a b:1"])
def test_addresses_that_are_none(text: str) -> None:
    """What cannot be meant is refused."""
    with pytest.raises(ValueError, match=r"is not HOST:PORT|beyond"):
        parse_listen(text)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the machine has no IPv6")
@pytest.mark.parametrize(("address", "asked"), [("[::1]:0", "::1"), (":0", "127.0.0.1"), (":0", "::1")])
def test_ipv6(start: Start, address: str, asked: str) -> None:
    """An IPv6 address is served, and an empty host is every address of both kinds."""
    connection = HTTPConnection(asked, start(address=address).port, timeout=10)
    connection.request("GET", "/healthz")
    assert 200 == connection.getresponse().status
    connection.close()


def test_a_port_that_is_taken_is_told_at_the_start(start: Start) -> None:
    """Two daemons on one node: the second says what to change."""
    server = start()
    with pytest.raises(XidwatchError, match="cannot listen on"):
        WebServer(f"127.0.0.1:{server.port}", lambda: WELL)


# TLS and passwords


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with node.crt for localhost and node.key."""
    folder = tmp_path_factory.mktemp("certificate")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        " -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout node.key -out node.crt"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


def hashed(password: str) -> str:
    """A hash that is quick to check."""
    # The same salt every time: it stands in the names of tests, which must be the same in every worker.
    return bcrypt.hashpw(password.encode(), b"$2b$04$VRszZovV59iTEJClBooSk.").decode()


def web_config(folder: Path, text: str) -> Path:
    """A web configuration."""
    path = folder / "web.yml"
    path.write_text(text, encoding="utf-8")
    return path


def basic(user: str, password: str) -> dict[str, str]:
    """The header for a name and a password."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def secure(server: WebServer, trust: ssl.SSLContext) -> int:
    """Status of a scrape over TLS."""
    connection = HTTPSConnection("localhost", server.port, timeout=10, context=trust)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status
    finally:
        connection.close()


TLS = "tls_server_config: {cert_file: node.crt, key_file: node.key"


def test_tls(start: Start, certificate: Path) -> None:
    """Over TLS a scrape is answered; plain HTTP to the same port gets nothing."""
    server = start(config=web_config(certificate, f"{TLS}, min_version: TLS13}}"))
    trust = ssl.create_default_context(cafile=str(certificate / "node.crt"))
    assert 200 == secure(server, trust)
    with pytest.raises((HTTPException, ConnectionError)):
        get(server)
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        secure(server, trust)
    assert server.alive()


def test_a_client_may_have_to_show_a_certificate(start: Start, certificate: Path) -> None:
    """Only who has one of the authority's is answered."""
    text = f"{TLS}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: node.crt}}"
    server = start(config=web_config(certificate, text))
    trust = ssl.create_default_context(cafile=str(certificate / "node.crt"))
    with pytest.raises((ssl.SSLError, ConnectionError, HTTPException)):
        secure(server, trust)
    trust.load_cert_chain(certificate / "node.crt", certificate / "node.key")
    assert 200 == secure(server, trust)


def test_clients_stuck_in_the_handshake_do_not_shut_prometheus_out(start: Start, certificate: Path) -> None:
    """With a hundred clients that never speak TLS, a scrape is still answered in time."""
    server = start(config=web_config(certificate, TLS + "}"))
    trust = ssl.create_default_context(cafile=str(certificate / "node.crt"))
    with ExitStack() as stack:
        idle(server, 100, b"", stack)
        began = time.monotonic()
        assert 200 == secure(server, trust)
        assert time.monotonic() - began < 5


def test_passwords(start: Start, tmp_path: Path) -> None:
    """Every page needs the password; a wrong one, none and an unknown name are refused alike."""
    server = start(config=web_config(tmp_path, f"basic_auth_users: {{prometheus: '{hashed('right')}'}}"))
    headers = [{}, basic("prometheus", "wrong"), basic("nobody", "right"), {"Authorization": "Basic %%%"}]
    for path in ("/metrics", "/healthz", "/"):
        refused = [get(server, path, header)[0] for header in headers]
        assert [(401, 'Basic realm="xidwatch"')] * 4 == [(r.status, r.headers["WWW-Authenticate"]) for r in refused]
        assert 200 == get(server, path, basic("prometheus", "right"))[0].status


def test_a_password_costs_its_hash_once() -> None:
    """A hash of a tenth of a second is not paid at each scrape."""
    gate = Gate({"prometheus": bcrypt.hashpw(b"right", bcrypt.gensalt(10)).decode()})
    began = time.monotonic()
    for password, admitted in (("right", True), ("wrong", False)):
        header = basic("prometheus", password)["Authorization"]
        assert [admitted] * 300 == [gate.admits(header) for _ in range(300)]
    assert time.monotonic() - began < 8


def test_guessing_does_not_shut_prometheus_out(start: Start, tmp_path: Path) -> None:
    """Who was let in once is answered at once, whatever others try meanwhile."""
    slow = bcrypt.hashpw(b"right", bcrypt.gensalt(11)).decode()
    server = start(config=web_config(tmp_path, f"basic_auth_users: {{prometheus: '{slow}'}}"))
    assert 200 == get(server, headers=basic("prometheus", "right"))[0].status
    with ThreadPoolExecutor(40) as pool:
        guesses = [pool.submit(get, server, "/metrics", basic("prometheus", f"guess {n}")) for n in range(40)]
        began = time.monotonic()
        assert 200 == get(server, headers=basic("prometheus", "right"))[0].status
        assert time.monotonic() - began < 5
        assert {401, 503} >= {guess.result()[0].status for guess in guesses}


def test_a_reload_takes_new_passwords_and_keeps_the_old_when_the_file_is_wrong(start: Start, tmp_path: Path) -> None:
    """What was in force stays until something better can be read."""
    path = web_config(tmp_path, f"basic_auth_users: {{prometheus: '{hashed('old')}'}}")
    server = start(config=path)
    web_config(tmp_path, "basic_auth_users: [")
    with pytest.raises(XidwatchError):
        server.reload()
    assert 200 == get(server, headers=basic("prometheus", "old"))[0].status
    web_config(tmp_path, f"basic_auth_users: {{prometheus: '{hashed('new')}'}}")
    server.reload()
    statuses = [get(server, headers=basic("prometheus", password))[0].status for password in ("old", "new")]
    assert [401, 200] == statuses


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("basic_auth_user: {}", "basic_auth_user: there is no such key"),
        ("http_server_config: {http2: false}", "there is no such key"),
        ("basic_auth_users: {a: secret}", "is no bcrypt hash"),
        (f"basic_auth_users: {{no: '{hashed('x')}'}}", "in quotes"),
        ("basic_auth_users:\n  a: x\n  a: y", "twice"),
        ("tls_server_config: {cert_file: a.crt}", "key_file: is missing"),
        ("tls_server_config: {cert_file: a.crt, key_file: a.key}", "cannot use"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}", "min_version"),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}",
            "needs client_ca_file",
        ),
        ("tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}", "goes with client_auth_type"),
        ("- a", "not a table"),
        ("a: [", "web.yml"),
        ("[a]", "not a table"),
        ("basic_auth_users: &a {x: *a}", "contains itself"),
    ],
)
def test_a_wrong_web_configuration_is_told(tmp_path: Path, text: str, word: str) -> None:
    """A key that nobody reads would leave the door open."""
    with pytest.raises(XidwatchError, match=word):
        read_web_config(web_config(tmp_path, text))


def test_an_empty_web_configuration_protects_nothing(tmp_path: Path) -> None:
    """As with every exporter."""
    config = read_web_config(web_config(tmp_path, "# nothing yet\n"))
    assert (None, {}) == (config.tls, config.users)
