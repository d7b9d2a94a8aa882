"""Masks in place of host names, UUIDs, serials, addresses and users, before anything is rendered."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from xidwatch.core.event import Event
from xidwatch.core.incident import Postmortem
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record
from xidwatch.core.rule import Rule

_UUID = lazy(r"\b(?:(GPU|MIG|SWX|GPU-MIG)-)?([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})\b", re.I)
_SHORT_UUID = lazy(r"\b(GPU|MIG)-([0-9a-f]{8}[0-9a-f-]*)", re.I)
_HEX32 = lazy(r"(?<![0-9a-z])([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})(?![0-9a-z])", re.I)
"""A boot id or a machine id as the journal spells it."""
_SERIAL = lazy(
    r"(?:\b(?:serial(?:[ _-]?(?:number|num|no\.?))?|s/n|service[ _-]?tag|asset[ _-]?tag)(?:\s+is\b)?[\s:=#]+|\bsn\s*[:=#]\s*)"
    r"['\"]?((?=[A-Za-z0-9-]*\d)[A-Za-z0-9][A-Za-z0-9-]{4,}(?![A-Za-z0-9/-]))",
    re.I,
)
_MAC = lazy(r"(?<![0-9a-f:.-])(?:[0-9a-f]{2}[:-]){5,19}[0-9a-f]{2}(?![0-9a-f:-])", re.I)
_GUID = lazy(r"\b[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}:[0-9a-f]{4}\b", re.I)
_GUID16 = lazy(
    r"(?:(?<=guid )|(?<=guid: )|(?<=guid:)|(?<=guid=)|(?<=guid 0x)|(?<=guid: 0x)|(?<=guid:0x)|(?<=guid=0x)|(?<=lid )"
    r"|(?:(?<=0x)|(?<![0-9a-z]))(?=[0-9a-f]{6}(?:0300|fffe)|001175))"
    r"(?!ffff|0000000)[0-9a-f]{16}(?![0-9a-z])",
    re.I,
)
"""A port, node or switch of InfiniBand or NVLink: by the word before it, or by the maker's address with 0300 or fffe in it."""
_URL = lazy(
    r"\b([a-z][a-z0-9+.-]{0,20}://)(?:([^\s/@:'\"]*):((?!\d{1,5}/)[^\s@'\"]*)@|([^\s/@'\"]+)@)?(\[[0-9a-f:.%]+\]|[\w.-]+)?",
    re.I,
)
_SECRET = lazy(
    r"((?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key)\s{0,4}[=:]\s{0,4}['\"]?)((?!\d+\b)[^\s'\"&,;]{4,})",
    re.I,
)
_NID = lazy(r"([\w.-]{1,255})(@(?:o2ib|tcp|gni|kfi)\d*)(?![\w.-])(:/[^\s'\",;:)]+)?", re.I)
_TARGET = lazy(
    r"(?<![A-Za-z0-9])([A-Za-z0-9]\w{0,31}(?:-\w{1,31}){0,3}?)-(?=(?:MDT|OST|MGT|MDS|OSS)[0-9a-f]{1,4}(?![0-9a-z]))", re.I
)
_TARGET_NAME = lazy(r"(?<![A-Za-z0-9])((?:mdt|ost|mgt|mds|oss|mgs)-)(?!ffff|\d)(\w+(?:-\w+)*)", re.I)
"""Lustre: the node that serves, the file system, `scratch-MDT0000`."""
_SERVER = lazy(r"\b(nfs4?: server )([\w.-]+)", re.I)
_IPV4 = lazy(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.]*\d)")
_IPV6 = lazy(r"(?<![0-9a-z:.])(?=[0-9a-f:]*:[0-9a-f:]*:)[0-9a-f:]{2,39}(?:%\w+)?(?![0-9a-z:.])", re.I)
_EMAIL = lazy(
    r"([\w.+-]{1,128})@(?!(?:o2ib|tcp|gni|kfi|lo)\d*\b)(?![\w.-]*\.(?:service|slice|socket|mount|scope|timer))[\w-]+(?:\.[\w-]+)*"
)
_FQDN = lazy(
    r"\b(?:[a-z0-9-]{1,63}\.){1,8}(?:local|lan|internal|intra|corp|home|cluster|edu|com|net|org|gov|mil|io|ai|cloud)\b\.?", re.I
)
_HOME = lazy(r"/(?:home|Users|users|homes)/|\b[A-Za-z]:\\+Users\\+")
_PIECE = r"(?:\\ |[^\s:'\"`<>|;,)\]}])"
_PATH = lazy(rf"{_PIECE}*")
_PATH_GOES_ON = lazy(rf"(?: [^\s/:'\"`<>|;,()\]}}=]+){{0,4}}? [^\s/:'\"`<>|;,()\]}}=]+(?:/{_PIECE}*|\.[A-Za-z]\w{{0,4}}(?!\w))")
"""Words behind a blank that belong to a path: a slash or a file's ending follows."""
_NAMED_FILE = lazy(r"\.[A-Za-z]\w{0,10}$")
_USER = lazy(r"\b(user(?:name)?[=:] ?|LOGNAME=|for user )['\"]?([a-z_][a-z0-9_.-]{1,31})", re.I)
_WORDS = frozenset({
    "localhost", "kernel", "node", "host", "gpu", "cpu", "user", "users", "root", "nvidia", "server", "linux", "ubuntu",
    "debian", "none", "unknown", "for", "by", "and", "is", "the", "a", "an", "of", "on", "in", "space", "mode", "data",
    "process", "name", "id", "test", "lustre", "scratch", "work", "home", "projects",
})  # fmt: skip
"""Words too common to be masked wherever they stand."""
_NOBODYS = "example.net"
_WAYS = r"(?:ib|opa|hsn|eth|roce|bmc|ipmi|ilo|idrac|mgmt)"
"""A host's second name for one of its networks: `node01-ib0`, `ibnode01`."""
_WAY = lazy(rf"({_WAYS}[-_]?)?(.+?)([-_]?{_WAYS}\d*)?", re.I)
_FIXED = frozenset({
    "kind", "fault_class", "origin", "severity", "scope", "rung", "when", "role", "state", "end_reason", "confidence",
    "trusted", "time_source", "pid_role", "attribution", "format", "constraint", "lock", "mode", "engine", "fault_type",
    "access", "unit", "severity_word", "subcode", "error_type", "module_flavour", "driver_version",
})  # fmt: skip
"""Fields whose words come from a closed list or from a driver's table: nothing in them names a place or a person."""


class Redactor:
    """Gives every secret the same mask wherever it stands: `host-1`, `198.18.0.1`, `user-1`.

    A name learnt once (as a host, a serial, a user) is masked in every text, also where nothing says what it is.
    """

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._hosts: set[str] = set()
        self._masks: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}
        self._learnt: list[tuple[re.Pattern[str], str]] = []
        self._done: dict[str, str] = {}

    def postmortem(self, postmortem: Postmortem) -> Postmortem:
        """The same postmortem without a name that says where or whose it was."""
        texts = list(dict.fromkeys(_texts(postmortem)))
        self._learn(postmortem, texts)
        masked: Postmortem = self._masked(postmortem)
        return replace(masked, incidents=tuple(replace(one, id=self._incident_id(one.id)) for one in masked.incidents))

    def _incident_id(self, original: str) -> str:
        """An id tells its host to whoever tries names; behind a salt that nobody keeps it only tells incidents apart."""
        return hashlib.sha256(self._salt + original.encode()).hexdigest()[: len(original)]

    def text(self, text: str) -> str:
        """One text with its secrets masked."""
        if (done := self._done.get(text)) is None:
            done = self._done[text] = self._rewritten(text)
        return done

    def _rewritten(self, text: str) -> str:
        text = _URL.sub(self._url, text)
        text = _SECRET.sub(lambda found: found[1] + self._mask("secret", found[2]), text)
        text = _NID.sub(self._nid, text)
        text = _TARGET.sub(lambda found: self._mask("fs", found[1].lower()) + "-", text)
        text = _TARGET_NAME.sub(lambda found: found[1] + self._mask("fs", found[2].lower()), text)
        text = _SERVER.sub(lambda found: found[1] + self._place(found[2]), text)
        text = _EMAIL.sub(self._email, text)
        text = _UUID.sub(lambda found: self._uuid(found[1], found[2]), text)
        text = _SHORT_UUID.sub(self._short, text)
        text = _HEX32.sub(lambda found: self._uuid(None, "-".join(found.groups())), text)
        text = _MAC.sub(lambda found: self._mask("mac", found[0].lower()), text)
        text = _GUID.sub(lambda found: ":".join(re.findall("....", self._guid(found[0]))), text)
        text = _GUID16.sub(lambda found: self._guid(found[0]), text)
        text = _IPV4.sub(lambda found: self._mask("ip", found[0]), text)
        text = _IPV6.sub(self._ipv6, text)
        text = self._without_homes(text)
        text = _SERIAL.sub(lambda found: found[0].replace(found[1], self._mask("serial", found[1])), text)
        for pattern, kind in self._learnt:
            text = pattern.sub(self._masker(kind), text)
        return _FQDN.sub(self._domain, text)

    # learning

    def _learn(self, postmortem: Postmortem, texts: list[str]) -> None:
        hosts = {report.host for report in postmortem.hosts} | {host for one in postmortem.incidents for host in one.hosts}
        hosts |= {record.host for record in _records(postmortem)}
        for host in sorted((host for host in hosts if host), key=lambda host: (-len(host), host)):
            self._learn_host(host)
        serials = {serial for report in postmortem.hosts for _, serial in report.gpus.values() if serial}
        jobs = [event.job for event in _events(postmortem) if event.job is not None]
        users = {job.user for job in jobs if job.user}
        pods = {job.pod_name for job in jobs if job.pod_name}
        for text in texts:
            serials.update(found[1] for found in _SERIAL.finditer(text))
            users.update(found[2] for found in _USER.finditer(text))
            users.update(user for _, _, user, _ in _homes(text))
        for kind, words in (("serial", serials), ("pod", pods), ("user", users)):
            for word in sorted(words, key=lambda word: (-len(word), word)):
                if word.lower() not in _WORDS and len(word) > 1 and not self._is_mask(word):
                    self._learnt.append((_whole(re.escape(word)), kind))

    def _learn_host(self, host: str) -> None:
        short = host.partition(".")[0]
        way = _WAY.fullmatch(short)
        base = way[2] if way is not None and len(way[2]) > 2 and re.search(r"[\d-]", way[2]) else short
        for name in dict.fromkeys((host, short, base)):
            if name.lower() in ("localhost", "kernel") or (name.lower() in _WORDS and name != host):
                continue
            self._hosts.add(name.lower())
            pattern = rf"(?:{_WAYS}[-_]?)?{_siblings(name)}(?:[-_]?{_WAYS}\d*)?(?:\.[A-Za-z][\w-]*)*"
            self._learnt.append((_whole(pattern, re.IGNORECASE), "host"))

    def _masker(self, kind: str) -> Callable[[re.Match[str]], str]:
        return (lambda found: self._host(found[0])) if kind == "host" else (lambda found: self._mask(kind, found[0]))

    def _host(self, found: str) -> str:
        name, _, ending = found.partition(".")
        file_ending = "." + ending if ending in ("log", "txt", "gz", "json", "xz", "zst", "bz2", "log.gz", "log.1") else ""
        way = _WAY.fullmatch(name)
        if way is None or name.lower() in self._hosts or name.lower() == way[2].lower():
            return self._mask("host", name.lower()) + file_ending
        return f"{way[1] or ''}{self._mask('host', way[2].lower())}{way[3] or ''}{file_ending}"

    def _place(self, name: str) -> str:
        """A host or an address where nothing else can stand."""
        if name.lower() == "localhost" or not re.search("[A-Za-z]", name) or self._is_mask(name):
            return name
        return self._host(name) if name.lower().partition(".")[0] in self._hosts else self._mask("host", name.lower())

    def _url(self, found: re.Match[str]) -> str:
        user, password, host = found[2] or found[4], found[3], found[5]
        login = self._mask("user", user.lower()) if user else ""
        login += f":{self._mask('secret', password)}" if password else ""
        place = host if host is None or host.startswith("[") else self._place(host)
        return f"{found[1]}{login}{'@' if user or password else ''}{place or ''}"

    def _email(self, found: re.Match[str]) -> str:
        # What is masked already is a URL's login.
        return found[0] if self._is_mask(found[1]) else f"{self._mask('user', found[0].lower())}@{_NOBODYS}"

    def _domain(self, found: re.Match[str]) -> str:
        name = found[0].lower().rstrip(".")
        return found[0] if name == _NOBODYS else self._mask("host", name)

    def _nid(self, found: re.Match[str]) -> str:
        file_system = ":/" + self._mask("fs", found[3][2:].lower()) if found[3] else ""
        return f"{self._place(found[1])}{found[2]}{file_system}"

    def _guid(self, found: str) -> str:
        return self._mask("guid", found.lower().replace(":", ""))

    def _without_homes(self, text: str) -> str:
        done, at = [], 0
        for start, end, user, rest in _homes(text):
            done += [text[at:start], self._mask("user", user), "/" + self._mask("path", rest) if rest else ""]
            at = end
        return "".join([*done, text[at:]])

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
        return text in self._masks.values() or bool(re.fullmatch(r"(?:host|user|serial|secret|path|pod|fs)-\d+", text))

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
            result = value if name in _FIXED or (name == "what" and re.fullmatch("[a-z_]+", value)) else self.text(value)
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
    "secret": lambda number: f"secret-{number}",
    "pod": lambda number: f"pod-{number}",
    "path": lambda number: f"path-{number}",
    "fs": lambda number: f"fs-{number}",
    "guid": lambda number: f"{number:016x}",
    "ip": lambda number: f"198.18.{number >> 8 & 255}.{number & 255}",
    "ipv6": lambda number: f"2001:db8::{number:x}",
}
"""Ranges of RFC 2544 and 3849, and locally administered hardware addresses, so that no mask can be somebody's address."""


def _homes(text: str) -> Iterator[tuple[int, int, str, str]]:
    """(start, end, user, the path below) of what stands behind each `/home/`; in quotes it may have blanks."""
    at = 0
    while (found := _HOME.search(text, at)) is not None:
        start = found.end()
        at = end = _path_end(text, found.start(), start)
        user, slash, rest = text[start:end].replace("\\", "/").partition("/")
        if user.strip():
            yield start, end, user, rest.strip("/") if slash else ""


def _path_end(text: str, begin: int, start: int) -> int:
    before = re.search(r"[^\s'\"`(\[<=,;]*$", text[:begin])
    quote = text[before.start() - 1 : before.start()] if before is not None and before.start() else ""
    if quote in ("'", '"', "`") and (closing := text.find(quote, start)) >= 0:
        return closing
    path = _PATH.match(text, start)
    end = path.end() if path is not None else start
    while not _NAMED_FILE.search(text, start, end) and (more := _PATH_GOES_ON.match(text, end)) is not None:
        end = more.end()
    return end


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


def _events(postmortem: Postmortem) -> Iterator[Event]:
    for member in (*postmortem.loose, *(member for one in postmortem.incidents for member in one.members)):
        yield member.finding.event
        yield member.last


def _records(value: object) -> Iterator[Record]:
    if isinstance(value, Record):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _records(item)
    elif is_dataclass(value) and not isinstance(value, (type, Rule)):
        for field in fields(value):
            yield from _records(getattr(value, field.name))
