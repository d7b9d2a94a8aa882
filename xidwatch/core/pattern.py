"""Regular expressions compiled when they are first used.

Compiling all of them costs a fifth of the start of `xidwatch explain`; one log needs a tenth of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split", "pattern", "groupindex")


class _Lazy:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._source)
        # From now on these are found on the instance, so that a pattern in a hot loop costs nothing extra.
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but the work is done at the first use; a mistake in the pattern shows only then."""
    return cast("re.Pattern[AnyStr]", _Lazy(pattern, flags))
