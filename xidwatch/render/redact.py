"""Masks in place of host names, UUIDs, serials, addresses and users, before anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from xidwatch.core.incident import Postmortem
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.core.rule import Rule

_UUID = lazy(r"\b(?:(GPU|MIG|SWX|GPU-MIG)-)?([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})\b", re.I)
_SHORT_UUID = lazy(r"\b(GPU|MIG)-([0-9a-f]{8}[0-9a-f-]*)", re.I)
_SERIAL = lazy(r"\bserial(?:[ _-]?number)?(?: is|[:=])*\s*['\"]?([A-Za-z0-9-]*\d[A-Za-z0-9-]*)", re.I)
_MAC = lazy(r"(?<![0-9a-f:.-])(?:[0-9a-f]{2}[:-]){5,19}[0-9a-f]{2}(?![0-9a-f:-])", re.I)
_GUID = lazy(r"\b[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}\b", re.I)
_IPV4 = lazy(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.]*\d)")
_IPV6 = lazy(r"(?<![0-9a-z:.])(?=[0-9a-f:]*:[0-9a-f:]*:)[0-9a-f:]{2,39}(?:%\w+)?(?![0-9a-z:.])", re.I)
_EMAIL = lazy(r"[\w.+-]+@(?![\w.-]*\.(?:service|slice|socket|mount|scope|timer))[\w-]+(?:\.[\w-]+)*")
_FQDN = lazy(
    r"\b(?:[a-z0-9-]+\.)+(?:local|lan|internal|intra|corp|home|cluster|edu|com|net|org|gov|mil|io|ai|cloud)\b\.?", re.I
)
_HOME = lazy(r"(/(?:home|Users|users|homes)/)([^/\s:'\",;)\]]+)")
_USER = lazy(r"\b(user(?:name)?[=:] ?|LOGNAME=|for user )['\"]?([a-z_][a-z0-9_.-]{1,31})", re.I)
_WORDS = frozenset({
    "localhost", "kernel", "node", "host", "gpu", "cpu", "user", "users", "root", "nvidia", "server", "linux", "ubuntu",
    "debian", "none", "unknown", "for", "by", "and", "is", "the", "a", "an", "of", "on", "in", "space", "mode", "data",
    "process", "name", "id", "test",
})  # fmt: skip
"""Words too common to be masked wherever they stand."""
_FIXED = frozenset({
    "kind", "what", "fault_class", "origin", "severity", "scope", "rung", "when", "role", "state", "end_reason", "confidence",
    "trusted", "time_source", "pid_role", "attribution", "format", "constraint", "lock", "mode", "engine", "fault_type",
    "access", "unit", "severity_word", "subcode", "error_type", "module_flavour", "driver_version",
})  # fmt: skip
"""Fields whose words come from a closed list or from a driver's table: nothing in them names a place or a person."""


class Redactor:
    """Gives every secret the same mask wherever it stands: `host-1`, `198.18.0.1`, `user-1`.

    A name learnt once (as a host, a serial, a user) is masked in every text, also where nothing says what it is.
    """

    def __init__(self) -> None:
        self._masks: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}
        self._learnt: list[tuple[re.Pattern[str], str]] = []
        self._done: dict[str, str] = {}

    def postmortem(self, postmortem: Postmortem) -> Postmortem:
        """The same postmortem without a name that says where or whose it was."""
        texts = list(dict.fromkeys(_texts(postmortem)))
        self._learn(postmortem, texts)
        masked: Postmortem = self._masked(postmortem)
        return masked

    def text(self, text: str) -> str:
        """One text with its secrets masked."""
        if (done := self._done.get(text)) is None:
            done = self._done[text] = self._rewritten(text)
        return done

    def _rewritten(self, text: str) -> str:
        text = _EMAIL.sub(lambda found: f"{self._mask('user', found[0].lower())}@example.net", text)
        text = _UUID.sub(lambda found: self._uuid(found[1], found[2]), text)
        text = _SHORT_UUID.sub(self._short, text)
        text = _MAC.sub(lambda found: self._mask("mac", found[0].lower()), text)
        text = _GUID.sub(lambda found: self._mask("guid", found[0].lower()), text)
        text = _IPV4.sub(lambda found: self._mask("ip", found[0]), text)
        text = _IPV6.sub(self._ipv6, text)
        text = _HOME.sub(lambda found: found[1] + self._mask("user", found[2]), text)
        text = _SERIAL.sub(lambda found: found[0].replace(found[1], self._mask("serial", found[1])), text)
        for pattern, kind in self._learnt:
            text = pattern.sub(self._masker(kind), text)
        return _FQDN.sub(lambda found: self._mask("host", found[0].lower().rstrip(".")), text)

    # learning

    def _learn(self, postmortem: Postmortem, texts: list[str]) -> None:
        hosts = {report.host for report in postmortem.hosts} | {host for one in postmortem.incidents for host in one.hosts}
        hosts |= {record.host for record in _records(postmortem)}
        for host in sorted((host for host in hosts if host), key=lambda host: (-len(host), host)):
            self._learn_host(host)
        serials = {serial for report in postmortem.hosts for _, serial in report.gpus.values() if serial}
        users: set[str] = set()
        for text in texts:
            serials.update(found[1] for found in _SERIAL.finditer(text))
            users.update(found[2] for found in (*_HOME.finditer(text), *_USER.finditer(text)))
        for kind, words in (("serial", serials), ("user", users)):
            for word in sorted(words, key=lambda word: (-len(word), word)):
                if word.lower() not in _WORDS and len(word) > 1 and not self._is_mask(word):
                    self._learnt.append((_whole(re.escape(word)), kind))

    def _learn_host(self, host: str) -> None:
        short = host.partition(".")[0]
        for name in dict.fromkeys((host, short)):
            if name.lower() in ("localhost", "kernel") or (name.lower() in _WORDS and name != host):
                continue
            flags = re.IGNORECASE if re.search(r"[\d-]", name) else 0
            self._learnt.append((_whole(_siblings(name) + r"(?:\.[A-Za-z][\w-]*)*", flags), "host"))

    def _masker(self, kind: str) -> Callable[[re.Match[str]], str]:
        return (lambda found: self._host(found[0])) if kind == "host" else (lambda found: self._mask(kind, found[0]))

    def _host(self, found: str) -> str:
        name, _, ending = found.partition(".")
        file_ending = "." + ending if ending in ("log", "txt", "gz", "json", "xz", "zst", "bz2", "log.gz", "log.1") else ""
        return self._mask("host", name.lower()) + file_ending

    # masks

    def _mask(self, kind: str, original: str) -> str:
        if self._is_mask(original):
            return original
        key = (kind, original)
        if key not in self._masks:
            number = self._count[kind] = self._count.get(kind, 0) + 1
            self._masks[key] = _SHAPES[kind](number)
        return self._masks[key]

    def _is_mask(self, text: str) -> bool:
        return text in self._masks.values() or bool(re.fullmatch(r"(?:host|user|serial)-\d+", text))

    def _uuid(self, prefix: str | None, digits: str) -> str:
        mask = self._mask("uuid", digits.lower().replace("_", "-"))
        return f"{prefix}-{mask}" if prefix else mask

    def _short(self, found: re.Match[str]) -> str:
        if found[2].startswith("00000000-0000-0000-0000-"):
            return found[0]
        whole = next(
            (mask for (kind, text), mask in self._masks.items() if kind == "uuid" and text.startswith(found[2].lower())), None
        )
        return f"{found[1]}-{whole or self._mask('uuid', found[2].lower())}"

    def _ipv6(self, found: re.Match[str]) -> str:
        from ipaddress import AddressValueError, IPv6Address

        try:
            address = IPv6Address(found[0].partition("%")[0])
        except AddressValueError:
            return found[0]
        return found[0] if address.is_unspecified or address.is_loopback else self._mask("ipv6", str(address))

    # walking

    def _masked(self, value: Any, name: str = "") -> Any:
        result = value
        if isinstance(value, str):
            result = value if name in _FIXED else self.text(value)
        elif isinstance(value, tuple):
            result = tuple(self._masked(item, name) for item in value)
        elif isinstance(value, dict):
            result = {self._masked(key): self._masked(item) for key, item in value.items()}
        elif is_dataclass(value) and not isinstance(value, (type, Rule)):
            changed = {
                field.name: new
                for field in fields(value)
                if (new := self._masked(old := getattr(value, field.name), field.name)) is not old and new != old
            }
            changed |= {"host": self._named("host", changed["host"])} if isinstance(changed.get("host"), str) else {}
            if changed.get("serial"):
                changed["serial"] = self._mask("serial", changed["serial"])
            result = replace(value, **changed) if changed else value
        return result

    def _named(self, kind: str, value: str) -> str:
        return value if self._is_mask(value) else self._mask(kind, value)


_SHAPES: dict[str, Callable[[int], str]] = {
    "host": lambda number: f"host-{number}",
    "user": lambda number: f"user-{number}",
    "serial": lambda number: f"serial-{number}",
    "uuid": lambda number: f"00000000-0000-0000-0000-{number:012d}",
    "mac": lambda number: f"02:00:00:00:{number >> 8 & 255:02x}:{number & 255:02x}",
    "guid": lambda number: f"0000:0000:0000:{number:04x}",
    "ip": lambda number: f"198.18.{number >> 8 & 255}.{number & 255}",
    "ipv6": lambda number: f"2001:db8::{number:x}",
}
"""Ranges of RFC 2544 and 3849, and locally administered hardware addresses, so that no mask can be somebody's address."""


def _whole(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return lazy(rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])", flags)


def _siblings(name: str) -> str:
    """The name with any number for its last one: a log of node01 that speaks of node07 names that too."""
    pieces = re.split(r"(\d+)", name)
    stem = re.sub(r"[^A-Za-z]", "", name)
    if len(pieces) < 3 or len(stem) < 3 or stem.lower() in _WORDS - {"node"}:
        return re.escape(name)
    place = len(pieces) - 2
    return "".join(r"\d+" if i == place else re.escape(piece) for i, piece in enumerate(pieces))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif is_dataclass(value) and not isinstance(value, (type, Rule)):
        for field in fields(value):
            yield from _texts(getattr(value, field.name))


def _records(value: object) -> Iterator[Record]:
    if isinstance(value, Record):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _records(item)
    elif is_dataclass(value) and not isinstance(value, (type, Rule)):
        for field in fields(value):
            yield from _records(getattr(value, field.name))
