"""Where our words stand in a block of bytes, and how many lines end in it: the two questions asked of every byte of a log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

Hits = Callable[[bytes], list[int]]
"""Where the words stand in these bytes, ascending."""
_MOST_PATTERNS = 64
_BUCKETS = 16
_FINGERPRINT = 4
_SHORTEST_END = 10
_ORDINARY = b"""\
Mar  2 06:00:00 node-17 kernel: [86400.500000] docker0: port 1(veth0a1b2c) entered forwarding state
Nov 30 23:59:59 node-17 systemd[1]: Started Session 42 of User root. Finished Rotate log files. Stopping service, reached target
2026-05-01T00:00:00.123456+00:00 node-17 kubelet[1234]: I0501 00:00:00.123456 1234 prober.go:107] "Probe succeeded" pod="vllm-0"
containerd[77]: time="2026-05-01T00:00:00Z" level=info msg="ExecSync for container returns with exit code 0" id=0a1b2c
sshd[612]: Accepted publickey for ops from 10.0.0.7 port 51234 ssh2; Disconnected from user ops; session closed for user
kernel: audit: type=1400 audit(1700000.1:23): apparmor="ALLOWED" operation="open" profile="/usr/bin/man" comm="python3" pid=4711
kernel: perf: interrupt took too long (2519 > 2500), lowering kernel.perf_event_max_sample_rate to 79000
kernel: IPv6: ADDRCONF(NETDEV_CHANGE): veth0a1b2c: link becomes ready; eth0: renamed from veth; device entered promiscuous mode
kernel: r8169 0000:05:00.0 eth0: RTL8168h/8111h, 04:d9:f5:00:00:01, XID 541, IRQ 134
CRON[901]: (root) CMD (command -v debian-sa1 > /dev/null && debian-sa1 1 1)
dhclient[5]: DHCPREQUEST for 10.0.0.9 on eno1 to 10.0.0.1 port 67 (xid=0x5c9a51e7)
postgres[88]: WARNING: database "jobs" must be vacuumed within 8000000 transactions, oldest xmin is far in the past
vllm[99]: INFO 05-01 00:00:00 metrics.py:460] Avg prompt throughput: 512.3 tokens/s, Running: 3 reqs, GPU KV cache usage: 71.2%
dockerd[7]: level=error msg="failed to connect to server, retrying: connection refused" error="context deadline exceeded"
NetworkManager[801]: <info>  [1700000000.1234] dhcp4 (eno1): state changed bound -> bound; device not ready, no such file
trainer[5]: step 120: loss 2.31, process blocked on the data loader for 3 s, memory 71 GiB of 80 GiB, warning: request not found
"""
"""What most lines of most logs look like."""


def find_hits(literals: Sequence[str]) -> Hits:
    """A function that gives where the literals begin, by the fastest library at hand; case matters.

    A literal that contains another is left to that one.
    """
    return together(_searches([literal.encode() for literal in _needed(literals)]))


def find_hits_slowly(literals: Sequence[str]) -> Hits:
    """The same with the standard library alone."""
    return _slow_search([literal.encode() for literal in _needed(literals)])


@lru_cache(maxsize=4)
def line_searches(literals: tuple[str, ...]) -> tuple[Hits, ...]:
    """Searches that together hit every line with a literal, inside that literal, and hardly any other line.

    A literal is looked for from where it differs most from ordinary text; a few lines that have but its end are hit too.
    """
    ends = {_rarest_end(literal.encode()) for literal in _needed(literals)}
    return tuple(_searches([end for end in ends if not any(other != end and other in end for other in ends)]))


def together(searches: Sequence[Hits]) -> Hits:
    """All searches as one."""

    def hits(block: bytes) -> list[int]:
        return sorted(start for search in searches for start in search(block))

    return searches[0] if len(searches) == 1 else hits


def count_lines(block: bytes, start: int, stop: int) -> int:
    """How many lines end between two places of a block, by the fastest library at hand."""
    return _newline_counter()(block, b"\n", start, stop)


@lru_cache(maxsize=1)
def _newline_counter() -> Callable[[bytes, bytes, int, int], int]:
    """`bytes.count` looks at one byte after the other before CPython 3.13; StringZilla takes a quarter of its time."""
    try:
        from stringzilla import count
    except ImportError:
        return bytes.count
    counter: Callable[[bytes, bytes, int, int], int] = count
    return counter


def _searches(patterns: Sequence[bytes]) -> list[Hits]:
    """The patterns in as few groups as can be searched well.

    Beyond 64 patterns aho-corasick drops its vectorised search and becomes five times slower. That search compares the first
    four bytes, by half-bytes, with sixteen sets of patterns at once, and deals the patterns out to the sets in turn: so they
    are put in an order that makes each set's patterns alike, since a set takes any mixture of their half-bytes for a match.
    Source: aho-corasick 1.1, src/packed/teddy/README.md and generic.rs, Teddy::new.
    """
    try:
        from ahocorasick_rs import BytesAhoCorasick, MatchKind
    except ImportError:
        return [_slow_search(patterns)]
    alike = sorted(patterns, key=lambda pattern: ([byte >> 4 for byte in pattern[:_FINGERPRINT]], pattern))
    groups = -(-len(alike) // _MOST_PATTERNS)
    size = -(-len(alike) // max(1, groups))
    dealt = [_dealt(alike[at : at + size]) for at in range(0, len(alike), size or 1)]
    automata = [BytesAhoCorasick(group, matchkind=MatchKind.LeftmostFirst) for group in dealt or [[]]]

    def search(automaton: BytesAhoCorasick) -> Hits:
        return lambda block: [start for _, start, _ in automaton.find_matches_as_indexes(block)]

    return [search(automaton) for automaton in automata]


def _dealt(patterns: Sequence[bytes]) -> list[bytes]:
    """In an order in which every sixteenth was a neighbour."""
    size, longer = divmod(len(patterns), _BUCKETS)
    starts = [nth * size + min(nth, longer) for nth in range(_BUCKETS + 1)]
    sets = [patterns[start:stop] for start, stop in pairwise(starts)]
    return [members[turn] for turn in range(size + 1) for members in sets if turn < len(members)]


def _slow_search(patterns: Sequence[bytes]) -> Hits:
    pattern = re.compile(b"|".join(map(re.escape, patterns)) or rb"(?!)")
    return lambda block: [match.start() for match in pattern.finditer(block)]


def _needed(literals: Sequence[str]) -> list[str]:
    distinct = list(dict.fromkeys(literals))
    return [one for one in distinct if not any(other != one and other in one for other in distinct)]


def _rarest_end(literal: bytes) -> bytes:
    """The end of the literal whose first four bytes ordinary text has least often, piece by piece if not as a whole."""
    two, three, four = _pieces(2), _pieces(3), _pieces(4)

    def commonness(end: bytes) -> tuple[int, int, int, int]:
        halves = two[end[:2]] * two[end[2:4]]
        return four[end[:4]], three[end[:3]] + three[end[1:4]], halves, -len(end)

    return min((literal[at:] for at in range(max(1, len(literal) - _SHORTEST_END + 1))), key=commonness)


@lru_cache(maxsize=3)
def _pieces(length: int) -> Counter[bytes]:
    return Counter(_ORDINARY[at : at + length] for at in range(len(_ORDINARY) - length + 1))
