"""`xidwatch floor`: the least time that prefill and decode can take on a card, what binds, and what helps."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from xidwatch.accelerators import find_accelerator
from xidwatch.core.floor import Accelerator, Floor, Load, Model, floor_of, judge_stall, kv_bytes_of
from xidwatch.errors import XidwatchError
from xidwatch.hfconfig import read_model
from xidwatch.quantity import read_bytes, read_count, read_tokens
from xidwatch.render.as_floor import render_floor_json, render_floor_text
from xidwatch.render.layout import in_ascii, visible
from xidwatch.render.roofline import plot_svg, plot_text, roofline_in_ascii

Figure = TypeVar("Figure", int, float)

_TERMINAL = "-"
_EXAMPLES = """\
examples:
  xidwatch floor --accelerator "H100 SXM" --params 70B --layers 80 --kv-heads 8 --head-dim 128 --context 16K --tp 4
  xidwatch floor --accelerator h200 --model ./Llama-3-8B/config.json --prompt 8K --batch 16 --plot
  xidwatch floor --peak-tflops 989 --bandwidth-gbs 3350 --weights-bytes 15GB --kv-bytes 0.27GB --format json

sizes: GB is 10^9 bytes, GiB 2^30. tokens: 8k is 8,000, 8K is 8,192. parameters: 70B is 70 x 10^9.
"""


@dataclass(slots=True)
class _Reader:
    """Reads figures from the arguments and collects every mistake, so that all are told at once."""

    args: argparse.Namespace
    mistakes: list[str] = field(default_factory=list)

    def figure(self, flag: str, read: Callable[[str], Figure], *, least: float | None = None) -> Figure | None:
        """The figure behind a flag, positive or no less than `least`; None when it is not given or wrong."""
        text: str | None = getattr(self.args, flag.removeprefix("--").replace("-", "_"))
        if text is None:
            return None
        try:
            found = read(text)
        except ValueError as error:
            self.mistakes.append(f"{flag} {visible(str(error))}.")
            return None
        if found > 0 if least is None else found >= least:
            return found
        bound = "more than 0" if least is None else f"{least:g} or more"
        self.mistakes.append(f"{flag} must be {bound}, not {visible(text)}.")
        return None

    def settle(self) -> None:
        """Raise XidwatchError with all mistakes, one a line."""
        if self.mistakes:
            raise XidwatchError("\n".join(self.mistakes))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; figures stay text here so that a wrong one gets a sentence."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    card = parser.add_argument_group("the card")
    card.add_argument("--accelerator", metavar="NAME", help="from the table, such as 'H100 SXM'")
    card.add_argument("--peak-tflops", metavar="N", help="dense peak, TFLOP/s; wins over the table's")
    card.add_argument("--bandwidth-gbs", metavar="N", help="memory bandwidth, GB/s; wins over the table's")
    card.add_argument("--memory-gb", metavar="N", help="memory, GB; wins over the table's")
    card.add_argument("--tp", metavar="N", default="1", help="tensor-parallel size, in cards (1)")
    card.add_argument("--overhead-us", metavar="N", help="launch and scheduling time of a step, microseconds")
    model = parser.add_argument_group("the model", "Flags win over --model.")
    model.add_argument("--model", metavar="PATH", help="Hugging Face config.json, or the folder with it")
    model.add_argument("--params", metavar="N", help="parameters: 70B")
    model.add_argument("--active-params", metavar="N", help="of a mixture of experts: parameters that a token uses")
    model.add_argument("--weights-bytes", metavar="SIZE", help="all weights: 140GB, 15.0GiB")
    model.add_argument("--dtype-bytes", metavar="N", help="bytes of a weight and of a KV element (2)")
    model.add_argument("--kv-dtype-bytes", metavar="N", help="bytes of a KV element where they differ")
    model.add_argument("--layers", metavar="N", help="layers")
    model.add_argument("--heads", metavar="N", help="query heads")
    model.add_argument("--kv-heads", metavar="N", help="key and value heads")
    model.add_argument("--head-dim", metavar="N", help="elements of one head")
    load = parser.add_argument_group("the load")
    load.add_argument("--batch", metavar="N", default="1", help="sequences at a time (1)")
    load.add_argument("--context", metavar="TOKENS", help="in the KV cache of each sequence (the prompt's)")
    load.add_argument("--prompt", metavar="TOKENS", help="of each prompt (the context's)")
    load.add_argument("--kv-bytes", metavar="SIZE", help="KV cache of one sequence, instead of context x shape")
    load.add_argument("--blocked-s", metavar="N", help="seconds that a task is blocked: slow or hung?")
    out = parser.add_argument_group("the answer")
    out.add_argument("--format", choices=("text", "json"), default="text", help="text or json (text)")
    out.add_argument("--plot", metavar="FILE.svg", nargs="?", const=_TERMINAL, help="draw the roofline: here, or as SVG")


def run(args: argparse.Namespace) -> int:
    """Print the floors; write the plot where asked. 0 when it could be worked out.

    Raises:
        XidwatchError: figures are missing or wrong, or a file cannot be read or written.
    """
    _check_plot(args)
    reader = _Reader(args)
    floor, notes = _floor(reader)
    blocked_s = reader.figure("--blocked-s", read_count)
    reader.settle()
    stall = None if blocked_s is None else _sentence(judge_stall(blocked_s, floor))
    if args.plot and args.plot != _TERMINAL:
        _write(Path(args.plot), plot_svg(floor))
    if args.format == "json":
        sys.stdout.write(render_floor_json(floor, notes, stall=stall))
        return 0
    text = render_floor_text(floor, notes, stall=stall)
    if args.plot == _TERMINAL:
        text = f"{plot_text(floor)}\n{text}"
    sys.stdout.write(text if _shows_all(text) else roofline_in_ascii(in_ascii(text)))
    return 0


def _floor(reader: _Reader) -> tuple[Floor, tuple[str, ...]]:
    """The floor that the arguments describe, and notes on what was assumed.

    Raises:
        XidwatchError: every figure that is missing or wrong.
    """
    card = _accelerator(reader)
    model, notes = _model(reader)
    load, assumed = _load(reader)
    if model is not None and load is not None and not reader.mistakes:
        reader.mistakes += _contradictions(model, load)
    reader.settle()
    if card is None or model is None or load is None:
        raise AssertionError("a figure is missing without a sentence that says so")
    return floor_of(card, model, load), (*notes, *assumed)


def _accelerator(reader: _Reader) -> Accelerator | None:
    peak = reader.figure("--peak-tflops", read_count)
    bandwidth = reader.figure("--bandwidth-gbs", lambda text: read_bytes(text.removesuffix("/s"), bare=1e9))
    memory = reader.figure("--memory-gb", lambda text: read_bytes(text, bare=1e9))
    name: str | None = reader.args.accelerator
    if name is None:
        given = {"--peak-tflops": reader.args.peak_tflops, "--bandwidth-gbs": reader.args.bandwidth_gbs}
        if missing := [flag for flag, text in given.items() if text is None]:
            reader.mistakes.append(f"No card: give --accelerator, or {' and '.join(missing)}.")
        if peak is None or bandwidth is None:
            return None
        return Accelerator(name="as given", peak_flop_s=peak * 1e12, bandwidth_bytes_s=bandwidth, memory_bytes=memory)
    try:
        card = find_accelerator(visible(name))
    except XidwatchError as error:
        reader.mistakes.append(str(error))
        return None
    changed = replace(
        card,
        peak_flop_s=peak * 1e12 if peak else card.peak_flop_s,
        bandwidth_bytes_s=bandwidth or card.bandwidth_bytes_s,
        memory_bytes=memory or card.memory_bytes,
    )
    return changed if changed == card else replace(changed, name=f"{card.name}, changed", source=None)


def _model(reader: _Reader) -> tuple[Model | None, tuple[str, ...]]:
    path: str | None = reader.args.model
    model = Model()
    notes: tuple[str, ...] = ()
    if path is not None:
        try:
            model, notes = read_model(Path(path))
        except XidwatchError as error:
            reader.mistakes.append(str(error))
            return None, ()
    params, stored = reader.figure("--params", read_count, least=1), reader.figure("--weights-bytes", read_bytes, least=1)
    active = reader.figure("--active-params", read_count, least=1)
    dtype, kv_dtype = reader.figure("--dtype-bytes", read_count), reader.figure("--kv-dtype-bytes", read_count)
    given = {
        "params": params,
        "active_params": active,
        "weights_bytes": stored,
        "dtype_bytes": dtype,
        "kv_dtype_bytes": kv_dtype or dtype,
        "layers": reader.figure("--layers", read_tokens),
        "heads": reader.figure("--heads", read_tokens),
        "kv_heads": reader.figure("--kv-heads", read_tokens),
        "head_dim": reader.figure("--head-dim", read_tokens),
    }
    known: dict[str, float | None] = {name: figure for name, figure in given.items() if figure is not None}
    if params is not None or dtype is not None:
        known.setdefault("weights_bytes", None)  # a config's own bytes do not belong to other parameters
    return replace(model, **known), notes  # type: ignore[arg-type]  # each figure has its field's type


def _load(reader: _Reader) -> tuple[Load | None, tuple[str, ...]]:
    batch, tp = reader.figure("--batch", read_tokens), reader.figure("--tp", read_tokens)
    context = reader.figure("--context", read_tokens, least=0)
    prompt = reader.figure("--prompt", read_tokens)
    kv_bytes = reader.figure("--kv-bytes", read_bytes, least=0)
    overhead = reader.figure("--overhead-us", read_count, least=0)
    if batch is None or tp is None:
        return None, ()
    notes = []
    if context is None and prompt is not None and kv_bytes is None:
        notes.append("No --context: decode is that of the first token after the prompt.")
    if prompt is None and context:
        notes.append("No --prompt: TTFT is that of a prompt as long as the context.")
    load = Load(
        batch=batch,
        context=(context if context is not None else prompt) or 0,
        prompt=prompt or context or None,
        kv_bytes=kv_bytes,
        tp=tp,
        overhead_s=(overhead or 0.0) * 1e-6,
    )
    return load, tuple(notes)


def _contradictions(model: Model, load: Load) -> list[str]:
    found = []
    known = model.params or model.weights_bytes
    if not known and not load.kv_bytes and not kv_bytes_of(model, load.context):
        found.append(
            "No model: give --model, --params or --weights-bytes; or for the KV cache alone --kv-bytes, "
            "or --layers, --kv-heads, --head-dim and --context."
        )
    if model.active_params and known:
        params = model.params or known / model.dtype_bytes
        if model.active_params > params:
            found.append(f"--active-params {model.active_params:,.0f} is more than all {params:,.0f} parameters.")
    if model.heads and model.kv_heads and model.heads % model.kv_heads:
        found.append(f"--heads {model.heads} is no multiple of --kv-heads {model.kv_heads}.")
    return found


def _check_plot(args: argparse.Namespace) -> None:
    if args.plot == _TERMINAL and args.format == "json":
        raise XidwatchError("--plot draws in the terminal, which --format json leaves to the JSON: give it a file, FILE.svg.")
    if args.plot and args.plot != _TERMINAL and not args.plot.lower().endswith(".svg"):
        raise XidwatchError(f"--plot {visible(args.plot)!r} must end in .svg: that is the format it writes.")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise XidwatchError(
            f"--plot {visible(str(file))}: {error.strerror or error}; name a file that can be written."
        ) from error


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _shows_all(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
