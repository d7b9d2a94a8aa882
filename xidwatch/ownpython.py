"""How xidwatch starts a part of itself in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_PATH = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1))"


def own_python(statements: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs `statements` with `arguments` in sys.argv[1:].

    Neither the working folder nor the environment decides which code that is: this process's own path does.
    """
    path = json.dumps([where or str(Path.cwd()) for where in sys.path])
    return (sys.executable, "-I", "-c", f"{_PATH}; {statements}", path, *arguments)
