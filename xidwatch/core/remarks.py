"""The table of all set-up checks, and what they find on a node."""

from __future__ import annotations

from collections.abc import Collection

from xidwatch.core import remarks_daemon, remarks_driver, remarks_jobs, remarks_kernel
from xidwatch.core.node import Node
from xidwatch.core.remark import Check, Remark

CHECKS: tuple[Check, ...] = (*remarks_daemon.CHECKS, *remarks_driver.CHECKS, *remarks_kernel.CHECKS, *remarks_jobs.CHECKS)


def remarks_on(node: Node, ignored: Collection[str] = ()) -> tuple[Remark, ...]:
    """Everything that could be better, in the order of the table; `ignored` are ids that the site lives with."""
    found = ((check, check.look(node)) for check in CHECKS if check.id not in ignored)
    return tuple(
        Remark(id=check.id, what=what, why=check.why, command=check.command) for check, what in found if what is not None
    )
