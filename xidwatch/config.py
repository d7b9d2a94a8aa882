"""/etc/xidwatch/config.toml -> Config. Every mistake is told at once, with file and line; options of the command line win."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_type_hints

from xidwatch.core.rule import STRICT, Severity
from xidwatch.errors import XidwatchError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_FILE = Path("/etc/xidwatch/config.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A command of the operator's that is run when an incident opens, changes or ends.

    Attributes:
        command: Argument list, run without a shell; the first is an absolute path.
        user: Whom it runs as; None for the daemon's own user.
        timeout_s: Seconds that one run may take.
        min_severity: Lesser incidents do not run it.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    command: tuple[str, ...]
    user: str | None = None
    timeout_s: float = 30.0
    min_severity: Severity = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """How much history is kept: days, and megabytes (10^6 bytes) on the disk. Totals never fall."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    max_age_days: float = 90.0
    max_mb: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the node serves, for telling slow from hung; the same words as the options of `xidwatch floor`.

    Attributes:
        accelerator: A card's name, `H100 SXM`; None takes what NVML says.
        model: A Hugging Face config.json, or the folder with it.
        params, active_params: Parameters, `70B`.
        weights_bytes: All weights, `140GB`.
        dtype_bytes: Bytes of a weight and of a KV element.
        tp: Tensor-parallel size, in cards.
        batch: Sequences at a time.
        context: Tokens in the KV cache of each sequence, `8k`.
        prompt: Tokens of the longest prompt that is computed in one piece, `32K`; None takes the context's.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    accelerator: str | None = None
    model: Path | None = None
    params: str | None = None
    active_params: str | None = None
    weights_bytes: str | None = None
    dtype_bytes: float | None = None
    tp: int = 1
    batch: int = 1
    context: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DState:
    """How tasks in D state are looked for in /proc.

    Attributes:
        scan: Whether they are; "off" leaves what the kernel itself reports.
        gpu_after_s: Seconds without a break after which a task that holds a GPU is told.
        others_after_s: The same for any other.
        incident_after_s: Seconds after which it is an incident.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    scan: Literal["auto", "off"] = "auto"
    gpu_after_s: float = 30.0
    others_after_s: float = 60.0
    incident_after_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPolicy:
    """What `xidwatch check` makes of what it finds.

    Attributes:
        not_fit_from: From which severity on an incident, or a warning, takes the node out of service.
        ignore: Remarks on the set-up, by id, that the site lives with.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    not_fit_from: Literal["warning", "critical"] = "critical"
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What an operator can set. Every path is absolute.

    Attributes:
        source: Where the kernel's lines come from; "auto" takes what can be read.
        kmsg: The kernel's log device.
        state_dir: What outlives a reboot: the history. Without a setting systemd's $STATE_DIRECTORY.
        run_dir: What need not: state.json and the socket for followers. Without a setting systemd's $RUNTIME_DIRECTORY.
        listen: `HOST:PORT` of the metrics; `:19079` is every address of the node.
        web_config_file: TLS and passwords for it, in the form of the Prometheus exporter toolkit.
        rules: Folders with rules of the site's own, besides /etc/xidwatch/rules.d; later ones win.
        accept_injected: Believe lines that user space wrote into the kernel's log. For tests only.
        nvml: Whether the GPUs are asked through NVML; "auto" does so where there are any and nvidia-ml-py is installed.
        expected_gpus: How many GPUs the node should have; None takes what was seen before.
        workload: What the node serves.
        check: What takes the node out of service.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    source: Literal["auto", "kmsg", "journal"] = "auto"
    kmsg: Path = Path("/dev/kmsg")
    state_dir: Path = Path("/var/lib/xidwatch")
    run_dir: Path = Path("/run/xidwatch")
    listen: str = "127.0.0.1:19079"
    web_config_file: Path | None = None
    rules: tuple[Path, ...] = ()
    hook: Hook | None = None
    history: HistoryLimits = field(default_factory=HistoryLimits)
    accept_injected: bool = False
    nvml: Literal["auto", "off"] = "auto"
    expected_gpus: int | None = None
    workload: Workload | None = None
    d_state: DState = field(default_factory=DState)
    check: CheckPolicy = field(default_factory=CheckPolicy)


class ConfigError(XidwatchError):
    """Settings that cannot be used. `mistakes` has one line for each: file and line or option, key, what is wrong."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        """Keep the mistakes and make the message of all of them."""
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(self.mistakes))


def load_config(
    path: Path | None = None, options: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """The settings in force: options, then the file, then systemd's folders, then the defaults.

    Args:
        path: The file; None takes /etc/xidwatch/config.toml, which need not be there.
        options: What the command line says, by key (`state_dir`); None for what it does not. Relative paths are the caller's.
        environ: For $STATE_DIRECTORY and $RUNTIME_DIRECTORY; the process's own when None.

    Raises:
        ConfigError: with every mistake.
    """
    file = path or CONFIG_FILE
    text = _read(file, may_lack=path is None)
    try:
        stated = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{file}: {error}"]) from error
    given = {key: value for key, value in (options or {}).items() if value is not None}
    config = _checked(stated, given, (text, file)) if stated or given else Config()
    folders = _systemd_folders(os.environ if environ is None else environ)
    return replace(config, **{key: folder for key, folder in folders.items() if key not in {**stated, **given}})


def _checked(stated: Mapping[str, Any], given: Mapping[str, object], source: tuple[str, Path]) -> Config:
    from xidwatch.configcheck import NO_SUCH_KEY, PATHS, Place, checked, dotted, line_of, value_mistakes

    def told(place: Place, what: str) -> tuple[int, str]:
        if place and place[0] in given:
            return 0, f"--{str(place[0]).replace('_', '-')}: {what}"
        text, file = source
        line = line_of(text, place)
        meant = _meant(dotted(place)) if what == NO_SUCH_KEY else ""
        return line or 0, f"{file}{f':{line}' if line else ''}: {dotted(place)}: {what}{meant}"

    values = {**stated, **{key: _as_toml(value, is_path=key in PATHS) for key, value in given.items()}}
    config, found = checked(Config, values)
    found += value_mistakes(values, found)
    if config is None or found:
        raise ConfigError([mistake for _, mistake in sorted(told(place, what) for place, what in found)])
    return config


def _read(file: Path, *, may_lack: bool) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if may_lack:
            return ""
        raise ConfigError([f"{file}: no such file"]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: {error}"]) from error


def _systemd_folders(environ: Mapping[str, str]) -> dict[str, Any]:
    """The folders that systemd made for the service; of several the first (systemd.exec(5))."""
    named = {"state_dir": environ.get("STATE_DIRECTORY"), "run_dir": environ.get("RUNTIME_DIRECTORY")}
    return {key: Path(value.split(":")[0]) for key, value in named.items() if value}


def _as_toml(value: object, *, is_path: bool) -> object:
    """An option as it would stand in the file."""
    if isinstance(value, list | tuple):
        return [_as_toml(item, is_path=is_path) for item in value]
    return os.path.abspath(value) if is_path and isinstance(value, str | Path) else value


def _meant(key: str) -> str:
    import difflib  # a mistake in a configuration is rare, and the module stays in the daemon's memory

    near = difflib.get_close_matches(key, _keys(Config), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _keys(kind: Any, above: str = "") -> list[str]:
    """Every key that may stand in the file, `hook.user` for one inside a table."""
    found = []
    hints = get_type_hints(kind)
    for one in fields(kind):
        inner = next((part for part in (hints[one.name], *get_args(hints[one.name])) if is_dataclass(part)), None)
        found += [above + one.name, *(_keys(inner, f"{above}{one.name}.") if inner else [])]
    return found
