"""The answer of `xidwatch check`: as text for a person, as JSON, and as one line for a scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from xidwatch.core.fitness import Finding, Fitness
from xidwatch.core.node import Node
from xidwatch.core.remark import Remark
from xidwatch.render.layout import Line, columns, in_ascii, paint, wrap

LINE_CHARACTERS = 80
"""node-problem-detector cuts a message there (max_output_length)."""
_WORDS = {"fit": "fit", "not_fit": "not fit", "not_known": "not known"}
_STYLES = {"fit": "info", "not_fit": "critical", "not_known": "warning"}


def render_line(fitness: Fitness, remarks: Sequence[Remark]) -> str:
    """One line of at most 80 printable ASCII characters, without its newline; whatever was read cannot act in it."""
    against = fitness.reasons or fitness.unknowns
    text = against[0].short if against else fitness.summary
    more = len(against) - 1
    tail = f" (+{more} more)" if more > 0 else ""
    if not against and (fitness.warnings or remarks):
        counts = ((len(fitness.warnings), "warning"), (len(remarks), "remark"))
        tail = "; " + ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count)
    head = f"{_WORDS[fitness.verdict]}: "
    room = LINE_CHARACTERS - len(head) - len(tail)
    plain = _printable(text)
    return head + (plain if len(plain) <= room else plain[: room - 3].rstrip() + "...") + tail


def _printable(text: str) -> str:
    return "".join(character if " " <= character <= "~" else "?" for character in " ".join(in_ascii(text).split()))


def render_json(node: Node, fitness: Fitness, remarks: Sequence[Remark], exit_code: int) -> str:
    """One object, `xidwatch.check/1`; null is what is not known."""
    document = {
        "schema": "xidwatch.check/1",
        "time_us": node.now_us,
        "host": node.host,
        "verdict": fitness.verdict,
        "exit": exit_code,
        "line": render_line(fitness, remarks),
        "reasons": [_finding(one) for one in fitness.reasons],
        "unknowns": [_finding(one) for one in fitness.unknowns],
        "warnings": [_finding(one) for one in fitness.warnings],
        "remarks": [{"id": one.id, "what": one.what, "why": one.why, "command": one.command} for one in remarks],
        "not_read": [{"path": path, "why": why} for path, why in sorted(node.tree.unread.items())],
        "daemon_age_s": node.daemon.age_s if node.daemon is not None else None,
        "nvml": node.nvml,
        "gpus": [{"pci": gpu.pci, "driver": gpu.driver} for gpu in node.bus],
    }
    return json.dumps(document, indent=1) + "\n"


def _finding(one: Finding) -> dict[str, object]:
    return {"id": one.id, "short": one.short, "what": one.what, "gpus": list(one.gpus), "command": one.command}


def render_text(node: Node, fitness: Fitness, remarks: Sequence[Remark], width: int, *, color: bool) -> str:
    """The verdict first, then what speaks against the node, then how it could be set up better."""
    return paint(_lines(node, fitness, remarks, width), color=color)


def _lines(node: Node, fitness: Fitness, remarks: Sequence[Remark], width: int) -> Iterator[Line]:
    head = f"{node.host}: {_WORDS[fitness.verdict]}"
    yield _STYLES[fitness.verdict], head if fitness.reasons or fitness.unknowns else f"{head} ({fitness.summary})"
    for style, label, findings in (
        ("critical", "", fitness.reasons), ("warning", "", fitness.unknowns), ("plain", "warning: ", fitness.warnings),
    ):  # fmt: skip
        for one in findings:
            yield from ((style, line) for line in wrap(label + one.what, width, first="  ", rest="    "))
            if one.command is not None:
                yield "command", f"    do:  {one.command}"
    yield "quiet", f"  By: {_known_from(node)}."
    if remarks:
        yield "plain", ""
        yield "strong", f"Set-up: {len(remarks)} remark{'s' if len(remarks) != 1 else ''}; they count with --strict"
    for remark in remarks:
        yield from (("plain", line) for line in wrap(f"{remark.id}: {remark.what}", width, first="  ", rest="    "))
        yield from (("quiet", line) for line in wrap(remark.why, width, first="    why: ", rest="         "))
        yield "command", f"    do:  {remark.command}"
    if node.tree.unread:
        yield "plain", ""
        yield "quiet", "Not looked at:"
        yield from (("quiet", f"  {line}") for line in columns(sorted(node.tree.unread.items()), width - 2))


def _known_from(node: Node) -> str:
    """Whose word it is."""
    log = (
        f"the daemon, {max(0.0, node.daemon.age_s):.0f} s ago"
        if node.daemon is not None
        else "no daemon reads the kernel's log"
    )
    ways = {
        "daemon": "", "asked": "; NVML, asked now", "silent": "; NVML, which did not answer",
        "blocked": "; NVML, which is stuck",
        "off": "; NVML not asked", "asleep": "; NVML not asked, so as not to wake a GPU", "released": "; NVML released",
        "needless": "",
    }  # fmt: skip
    return log + ways[node.nvml]
