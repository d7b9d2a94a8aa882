"""Who may ask: HTTP basic authentication against bcrypt hashes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping

_MOST_BYTES = 72
"""bcrypt looks at no more (htpasswd cuts there in silence, the library refuses)."""
_MOST_REMEMBERED = 100
_TURN_S = 0.5
"""How long a password waits for its turn to be checked. Who is remembered never waits."""


class Gate:
    """Lets in those who know a password. bcrypt is slow by design, so what was once right or wrong is remembered."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users` maps names to bcrypt hashes; there is at least one."""
        self._users = dict(users)
        # Remembered under a key of this run: what lies in memory is no password and tells nothing by its timing.
        self._key = secrets.token_bytes(32)
        self._right: set[bytes] = set()
        self._wrong: dict[bytes, None] = {}
        self._hashing = threading.Lock()

    def admits(self, authorization: str | None) -> bool | None:
        """Whether the header `Authorization` names a user and the user's password; None when too many ask at a time."""
        if (pair := _credentials(authorization)) is None:
            return False
        user, password = pair
        mark = hmac.digest(self._key, b"%d:%b%b" % (len(user), user, password), hashlib.sha256)
        if mark in self._right:
            return True
        # One at a time: guessing must not take every core from the node's work.
        if not self._hashing.acquire(timeout=_TURN_S):
            return None
        try:
            if mark not in self._right and mark not in self._wrong:
                self._remember(mark, right=self._check(user, password))
            return mark in self._right
        finally:
            self._hashing.release()

    def _remember(self, mark: bytes, *, right: bool) -> None:
        if right:
            self._right.add(mark)
            return
        if len(self._wrong) >= _MOST_REMEMBERED:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[mark] = None

    def _check(self, user: bytes, password: bytes) -> bool:
        import bcrypt

        known = self._users.get(user.decode("utf-8", "replace"))
        # An unknown name takes as long as a wrong password, so that names cannot be found out.
        against = known or next(iter(self._users.values()))
        try:
            right = bcrypt.checkpw(password[:_MOST_BYTES], against.encode())
        except ValueError:  # a hash that looks like one and is none
            right = False
        return right and known is not None


def _credentials(authorization: str | None) -> tuple[bytes, bytes] | None:
    scheme, _, encoded = (authorization or "").strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None
