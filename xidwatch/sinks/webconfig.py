"""TLS and passwords of the web server, in the form of the Prometheus exporter toolkit (docs/web-configuration.md there)."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from xidwatch.core.rule import STRICT
from xidwatch.errors import XidwatchError

_HASH = re.compile(r"\$2[abxy]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_DEMANDS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_EXTRA = "install xidwatch[watch], which brings what it needs"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The part `tls_server_config`. Relative paths start at the file they stand in."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    cert_file: str
    key_file: str
    client_auth_type: Literal["", "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = ""
    client_ca_file: str = ""
    min_version: Literal["TLS12", "TLS13"] = "TLS12"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    tls_server_config: TlsSettings | None = None
    basic_auth_users: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """How the server protects itself. `tls` None: plain HTTP; `users` maps a name to a bcrypt hash, empty: everybody."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=dict)


def read_web_config(path: Path) -> WebConfig:
    """Read the YAML file and the certificates that it names.

    Raises:
        XidwatchError: it cannot be read, or says what it must not; every mistake, one a line.
    """
    from xidwatch.configcheck import checked, dotted

    values = _yaml(path)
    known, found = checked(_File, values)
    mistakes = [f"{dotted(place) or 'the file'}: {what}" for place, what in found]
    if known is not None:
        mistakes += _mistakes(known)
    if known is None or mistakes:
        raise XidwatchError("\n".join(f"{path}: {mistake}" for mistake in mistakes))
    if known.basic_auth_users:
        _need_bcrypt(path)
    tls = known.tls_server_config
    return WebConfig(_context(tls, path) if tls else None, known.basic_auth_users)


def _yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise XidwatchError(f"{path}: PyYAML is missing; {_EXTRA}") from error

    class Loader(yaml.SafeLoader):
        """YAML without its two traps: of two equal keys the last wins, and the user `no` is the value false."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  # PyYAML's
            seen = set()
            for key, _ in node.value:
                if key.tag != "tag:yaml.org,2002:str":
                    raise yaml.MarkedYAMLError(problem=f"put the key {key.value!r} in quotes", problem_mark=key.start_mark)
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} stands here twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise XidwatchError(f"{path}: {' '.join(str(error).split())}") from error
    if values is None:
        return {}
    try:
        json.dumps(values, default=str)
    except ValueError as error:
        raise XidwatchError(f"{path}: a table contains itself") from error
    if not isinstance(values, dict):
        raise XidwatchError(f"{path}: is not a table of settings; there are tls_server_config and basic_auth_users")
    return values


def _mistakes(file: _File) -> Iterator[str]:
    tls = file.tls_server_config
    if tls is not None:
        asks = tls.client_auth_type not in ("", "NoClientCert")
        if asks and not tls.client_ca_file:
            yield f"tls_server_config.client_auth_type: {tls.client_auth_type} needs client_ca_file"
        if tls.client_ca_file and not asks:
            yield "tls_server_config.client_ca_file: goes with client_auth_type only"
    for user, hash_ in file.basic_auth_users.items():
        if not user or ":" in user:
            yield f"basic_auth_users.{user}: a name has at least one character and no colon"
        if not _HASH.fullmatch(hash_):
            yield f"basic_auth_users.{user}: is no bcrypt hash; make one with `htpasswd -nBC 10 {user or 'NAME'}`"


def _context(settings: TlsSettings, path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    certificate, key = (path.parent / name for name in (settings.cert_file, settings.key_file))
    try:
        # A key that is locked must fail here and not ask for its password on a terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise XidwatchError(f"{path}: tls_server_config: cannot use {certificate} with {key}: {error}") from error
    context.verify_mode = _DEMANDS[settings.client_auth_type or "NoClientCert"]
    if settings.client_ca_file:
        authority = path.parent / settings.client_ca_file
        try:
            context.load_verify_locations(cafile=authority)
        except OSError as error:
            raise XidwatchError(f"{path}: tls_server_config: cannot use {authority}: {error}") from error
    return context


def _need_bcrypt(path: Path) -> None:
    try:
        import bcrypt  # noqa: F401  # only to know that it is there
    except ImportError as error:
        raise XidwatchError(f"{path}: basic_auth_users: bcrypt is missing; {_EXTRA}") from error
