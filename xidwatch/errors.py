"""The one error that is the caller's to mend: a wrong argument, an unreadable file, a mistaken rule."""

from __future__ import annotations


class XidwatchError(Exception):
    """A mistake of the operator or the surroundings, told in one sentence: what, where, and the next step.

    `cli` prints it without a traceback and exits with 2; any other exception is a bug.
    """
