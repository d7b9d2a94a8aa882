"""What a network link that went down is worth as an explanation: a fabric's port, a management interface, or no wire at all."""

from __future__ import annotations

from xidwatch.core.event import Context
from xidwatch.core.pattern import lazy

_VIRTUAL = lazy(r"(?:veth|docker|br-|virbr|cali|flannel|cni|lxc|tap|tun|lo$|usb|wl|vnet|kube|nodelocal)")
"""Interfaces over which no rank talks to another node."""
_FABRIC = lazy(r"\s*(?:mlx[45]_\w+|hfi1|bnxt_en|ionic|ice|irdma|efa|ena|gve|idpf|mana|cxgb4|qede)\b")
_SLOW = lazy(
    r"\s*(?:igbv?f?|igc|e1000e?|e100|tg3|bnx2|r8169|r8168|r8125|alx|atl1[ce]|sky2|forcedeth|jme|cdc_\w+|ax88179\w*|asix)\b"
)
_ON_BOARD = lazy(r"(?:eno|em|eth)\d")


def interface_of(context: Context) -> str:
    """Name of the interface; "" where the line names none."""
    return dict(context.facts).get("interface", "")


def is_virtual(context: Context) -> bool:
    """Whether it is an interface over which no rank talks to another node."""
    return _VIRTUAL.match(interface_of(context)) is not None


def is_ordinary(context: Context) -> bool:
    """Whether it is an ordinary Ethernet port: on most GPU nodes the one for management, over which no collective goes.

    The driver tells best (a Mellanox port may be called eth2); without one the name of an on-board port does.
    """
    if context.kind != "link_down" or _FABRIC.match(context.record.text):
        return False
    return _SLOW.match(context.record.text) is not None or _ON_BOARD.match(interface_of(context)) is not None
