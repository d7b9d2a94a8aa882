"""One record of /dev/kmsg -> Record."""

from __future__ import annotations

from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record

_HEAD = lazy(r"(\d{1,10}),(\d{1,20}),(\d{1,20}),([^;,]*)(?:,[^;]*)?;")
_ESCAPE = lazy(rb"\\x([0-9a-fA-F]{2})")


def parse_kmsg(record: str | bytes) -> Record | None:
    r"""Read `prio,seq,usec,flags[,more];text`; None when it is not one.

    The text is unescaped (`\x0a` becomes a newline); further comma fields (`caller=T123`) and the ` KEY=value`
    lines behind the text are left out. Only facility 0 is the kernel; everything else was written by user space.

    Source: linux Documentation/ABI/testing/dev-kmsg.
    """
    raw = record.decode("utf-8", "replace") if isinstance(record, bytes) else record
    head = _HEAD.match(raw)
    if head is None:
        return None
    text = raw[head.end() :].split("\n", 1)[0].rstrip()
    return Record(
        text=unescape(text).rstrip(),
        seq=int(head[2]),
        line=int(head[2]),
        since_boot_us=int(head[3]),
        trusted="kernel" if int(head[1]) >> 3 == 0 else "no",
        timed=True,
    )


def unescape(text: str) -> str:
    r"""Undo printk's `\xNN`, which stands for one byte: several may make one UTF-8 character."""
    if "\\x" not in text:
        return text
    raw = _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), text.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "replace")
