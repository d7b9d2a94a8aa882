"""A roofline's Floor as text for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from xidwatch.core.floor import Floor, Regime, Step, attention_intensity, kv_bytes_per_token, parameters
from xidwatch.render.figures import (
    both_bytes,
    bytes_text,
    capacity_text,
    count_text,
    flop_text,
    intensity_text,
    rate_text,
    time_text,
)
from xidwatch.render.layout import wrap

_SAY: dict[Regime, str] = {
    "memory_bound": "memory-bound",
    "compute_bound": "compute-bound",
    "overhead_bound": "overhead-bound",
}
_BINDS: dict[Regime, str] = {
    "memory_bound": "memory bandwidth",
    "compute_bound": "arithmetic",
    "overhead_bound": "launch and scheduling overhead",
}


def render_floor_text(floor: Floor, notes: Sequence[str], *, stall: str | None = None, width: int = 80) -> str:
    """The report: the answer in the first lines, then the figures, what binds and helps, and what was assumed.

    `stall` is the sentence on a blocked task, where one was asked about.
    """
    answers = (_answer(floor), _room(floor), *((stall,) if stall else ()))
    lines = [*(line for answer in answers for line in wrap(answer, width)), ""]
    for label, text in _asked(floor):
        lines += wrap(text, width, first=f"  {label:8}", rest=" " * 10)
    lines += ["", *_table(floor), ""]
    for label, text in _results(floor):
        lines += wrap(text, width, first=f"  {label:8}", rest=" " * 10)
    lines.append("")
    for label, text in (("Binds:", _binds(floor)), ("Helps:", _helps(floor)), ("No help:", _no_help(floor))):
        lines += wrap(text, width, first=f"{label:10}", rest=" " * 10)
    lines += ["", "Counted as follows:"]
    for note in (*notes, *floor_notes(floor)):
        lines += wrap(note, width, first="- ", rest="  ")
    return "\n".join(lines) + "\n"


def render_floor_json(floor: Floor, notes: Sequence[str], *, stall: str | None = None) -> str:
    """One object, `xidwatch.floor/1`; times in seconds, null where something is not known.

    `regime` is decode's; step figures are per card, KV and weight figures those of all cards together.
    """
    decode, prefill = floor.decode, floor.prefill
    known = {
        "schema": "xidwatch.floor/1",
        "accelerator": asdict(floor.accelerator),
        "load": asdict(floor.load),
        "params": parameters(floor.model),
        "active_params": floor.model.active_params,
        "step_seconds": decode.seconds,
        "tokens_per_second": floor.tokens_per_second,
        "tokens_per_second_per_sequence": 1 / decode.seconds,
        "ttft_seconds": prefill.seconds if prefill else None,
        "regime": decode.regime,
        "prefill_regime": prefill.regime if prefill else None,
        "ridge_flop_per_byte": floor.ridge_flop_per_byte,
        "intensity_flop_per_byte": decode.intensity,
        "prefill_intensity_flop_per_byte": prefill.intensity if prefill else None,
        "attention_flop_per_byte": _attention(floor, products=2),
        "attention_flop_per_byte_one_product": _attention(floor, products=1),
        "decode": asdict(decode),
        "prefill": asdict(prefill) if prefill else None,
        "weights_bytes": floor.weights_bytes,
        "kv_bytes_per_token": _whole(floor.kv_bytes_per_token),
        "kv_bytes_per_sequence": _whole(floor.kv_bytes_per_sequence),
        "kv_bytes": _whole(floor.kv_bytes_per_sequence * floor.load.batch),
        "needed_bytes": floor.needed_bytes,
        "fits": floor.fits,
        "max_batch": floor.max_batch,
        "ridge_batch": floor.ridge_batch,
        "cards": floor.cards,
        "binds": _BINDS[decode.regime],
        "helps": _helps(floor),
        "stall": stall,
        "notes": [*notes, *floor_notes(floor)],
    }
    return json.dumps(known, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def floor_notes(floor: Floor) -> list[str]:
    """What was counted, what was not, and what was not known; one sentence or two each."""
    return [note for group in (_memory_notes(floor), _unknown_notes(floor), _counting_notes(floor)) for note in group]


def _memory_notes(floor: Floor) -> list[str]:
    model, weights, memory = floor.model, floor.weights_bytes, floor.accelerator.memory_bytes
    notes = []
    if floor.fits is False and memory:
        cards = "one card" if floor.load.tp == 1 else f"{floor.load.tp} cards"
        notes.append(
            f"{bytes_text(floor.needed_bytes)} does not fit on {cards} of {capacity_text(memory)}: "
            "the floor is that of the total traffic, as if it did."
        )
    if weights and model.params and model.weights_bytes:
        whole = model.params * model.dtype_bytes
        if abs(weights * 2**30 / 1e9 - whole) < 0.01 * whole:
            notes.append(
                f"{count_text(model.params)} parameters of {model.dtype_bytes:g} bytes are {both_bytes(whole)}: "
                f"the {bytes_text(weights)} given look like GiB."
            )
    notes.append("1 GB is 10^9 bytes, 1 GiB 2^30: nvidia-smi and PyTorch count in MiB and GiB.")
    return notes


def _unknown_notes(floor: Floor) -> list[str]:
    model, load = floor.model, floor.load
    notes = []
    if floor.weights_bytes is None:
        notes.append("The weights are not known: the KV cache alone is counted.")
    elif model.params is None and model.weights_bytes is not None:
        notes.append(f"Parameters from the bytes of the weights: {model.dtype_bytes:g} bytes each.")
    if not floor.kv_bytes_per_sequence:
        notes.append("No KV cache is counted: give --context with the model's shape, or --kv-bytes.")
    if not load.overhead_s:
        notes.append("Overhead is unknown and counted as 0: --overhead-us adds the launch and scheduling time of a step.")
    if floor.accelerator.memory_bytes is None:
        notes.append("The card's memory is not known: give --memory-gb to see whether it fits.")
    return notes


def _split_notes(floor: Floor) -> list[str]:
    """Heads that the cards cannot share alike: the floor counts as if they could, and stays a floor."""
    tp, heads, kv_heads = floor.load.tp, floor.model.heads, floor.model.kv_heads
    notes = []
    if heads and heads % tp:
        notes.append(f"{heads} query heads cannot be shared alike by {tp} cards: serving engines refuse that.")
    if kv_heads and kv_heads % tp and tp % kv_heads:
        notes.append(
            f"{kv_heads} KV heads cannot be shared alike by {tp} cards: engines refuse that or copy heads; a card then reads "
            "more KV than is counted here."
        )
    return notes


def _counting_notes(floor: Floor) -> list[str]:
    model = floor.model
    notes = [
        "2 FLOP per active parameter and token; decode attention 2 FLOP per query head for each K and V element: "
        f"{intensity_text(_attention(floor, products=2))} FLOP/byte of KV cache at any batch "
        f"({intensity_text(_attention(floor, products=1))} if only one of its two products is counted)."
    ]
    if floor.prefill:
        shape = model.layers and model.head_dim and (model.heads or model.kv_heads)
        notes.append(
            "Prefill: weights read once, KV written once, causal attention "
            + ("2 x layers x heads x head_dim x prompt^2 FLOP." if shape else "not counted (the shape is not known).")
        )
    if model.kv_heads and model.heads is None:
        notes.append("Query heads are not known: as many as KV heads are counted, which may be too few (--heads).")
    if model.active_params is not None:
        notes.append("Experts: a step reads those that its tokens visit when the router spreads them evenly.")
    if floor.weights_bytes and floor.weights_bytes < 1.5 * (parameters(model) or 0):
        notes.append("The card's peak is FP16/BF16's; if the arithmetic is FP8 or INT8 too, give its --peak-tflops.")
    if floor.load.tp > 1:
        notes.append("Tensor parallelism: FLOP and bytes divided by the cards; the traffic between them is not counted.")
    notes += _split_notes(floor)
    if model.kv_heads and floor.load.tp > model.kv_heads:
        notes.append(f"There are {model.kv_heads} KV heads for {floor.load.tp} cards: beyond one a card they are copied.")
    if floor.accelerator.source:
        notes.append(
            f"{floor.accelerator.name}: dense peak and bandwidth by the {floor.accelerator.source}; measured are less."
        )
    return notes


def _attention(floor: Floor, *, products: int) -> float:
    model = floor.model
    shared = model.heads / model.kv_heads if model.heads and model.kv_heads else 1.0
    return attention_intensity(kv_dtype_bytes=model.kv_dtype_bytes, queries_per_kv=shared, products=products)


def _whole(size: float | None) -> float | int | None:
    return int(size) if size is not None and size == int(size) else size


def _answer(floor: Floor) -> str:
    return (
        f"Decode is {_SAY[floor.decode.regime]}: at least {time_text(floor.decode.seconds)} a step, "
        f"at most {rate_text(floor.tokens_per_second)} tokens/s."
    )


def _room(floor: Floor) -> str:
    memory, tp = floor.accelerator.memory_bytes, floor.load.tp
    what = "weights and KV cache" if floor.kv_bytes_per_sequence else "weights"
    needed = f"{what} {both_bytes(floor.needed_bytes)}"
    if memory is None:
        return f"Memory not given, so whether it fits is not known: {both_bytes(floor.needed_bytes)} are needed."
    have = f"{capacity_text(memory)} on one card" if tp == 1 else f"{tp} x {capacity_text(memory)}"
    if floor.fits is None:
        return f"Weights not given, so whether it fits is not known: KV cache {both_bytes(floor.needed_bytes)}, {have}."
    if floor.fits:
        return f"It fits: {needed}, {have}."
    more = f": {floor.cards} cards at least" if floor.cards else ""
    return f"It does not fit: {needed}, {have}{more}."


def _asked(floor: Floor) -> list[tuple[str, str]]:
    card, model, load, params = floor.accelerator, floor.model, floor.load, parameters(floor.model)
    memory = f" · {capacity_text(card.memory_bytes)} {card.memory or ''}".rstrip() if card.memory_bytes else ""
    rows = [
        ("card", f"{card.name} · {flop_text(card.peak_flop_s, '/s')} · {card.bandwidth_bytes_s / 1e9:,.4g} GB/s{memory}"),
        ("ridge", f"{intensity_text(floor.ridge_flop_per_byte)} FLOP/byte: below it memory binds, from it on compute"),
    ]
    if params and floor.weights_bytes:
        active = f", {count_text(model.active_params)} active" if model.active_params else ""
        each = f"{floor.weights_bytes / params:.3g}"
        each += " byte each" if each == "1" else " bytes each"
        rows.append(("model", f"{count_text(params)} parameters{active} · {each} · weights {both_bytes(floor.weights_bytes)}"))
    if model.layers and model.kv_heads and model.head_dim:
        heads = f"{model.heads} heads, " if model.heads else ""
        window = f" · {model.window_layers} with a window of {model.window:,} tokens" if model.window_layers else ""
        rows.append(("shape", f"{model.layers} layers, {heads}{model.kv_heads} KV heads of {model.head_dim}{window}"))
    context = f" · context {load.context:,} tokens" if load.context else ""
    prompt = f" · prompt {load.prompt:,} tokens" if load.prompt else ""
    rows.append(("load", f"batch {load.batch:,}{context}{prompt}{f' · TP {load.tp}' if load.tp > 1 else ''}"))
    return rows


def _table(floor: Floor) -> list[str]:
    lines = [f"  {'':8}{'regime':15}{'compute':>11}{'memory':>11}{'overhead':>11}{'floor':>11}{'FLOP/byte':>11}"]
    lines += [_row("prefill", floor.prefill)] if floor.prefill else []
    return [*lines, _row("decode", floor.decode)]


def _row(name: str, step: Step) -> str:
    overhead = time_text(step.overhead_s) if step.overhead_s else "unknown"
    times = f"{time_text(step.compute_s):>11}{time_text(step.memory_s):>11}{overhead:>11}{time_text(step.seconds):>11}"
    return f"  {name:8}{_SAY[step.regime]:15}{times}{intensity_text(step.intensity):>11}"


def _results(floor: Floor) -> list[tuple[str, str]]:
    load, decode = floor.load, floor.decode
    each = "" if load.batch == 1 else f" in all, {rate_text(1 / decode.seconds)} each"
    rows = [("TPOT", f"at least {time_text(decode.seconds)}, at most {rate_text(floor.tokens_per_second)} tokens/s{each}")]
    if floor.prefill:
        whose = f"{load.prompt:,} tokens" if load.batch == 1 else f"{load.batch} x {load.prompt:,} tokens in one pass"
        rows.insert(0, ("TTFT", f"at least {time_text(floor.prefill.seconds)} for {whose}"))
    if kv := floor.kv_bytes_per_sequence:
        token = f"{floor.kv_bytes_per_token:,.0f} bytes per token, " if floor.kv_bytes_per_token else ""
        batch = f", {bytes_text(kv * load.batch)} in all" if load.batch > 1 else ""
        reading = (decode.bytes - decode.weight_bytes) / floor.accelerator.bandwidth_bytes_s
        rows.append(("KV", f"{token}{bytes_text(kv)} a sequence{batch}"))
        rows.append(("", f"reading it takes {time_text(reading)} of a step"))
    elif per_token := kv_bytes_per_token(floor.model):
        rows.append(("KV", f"{per_token:,.0f} bytes per token"))
    return rows


def _binds(floor: Floor) -> str:
    share = floor.decode.weight_bytes / floor.decode.bytes
    of = f" ({share:.0%} of the bytes weights, {1 - share:.0%} KV cache)"
    decode = f"{_BINDS[floor.decode.regime]}{of if floor.decode.regime == 'memory_bound' and 0 < share < 1 else ''}"
    return f"decode {decode}; prefill {_BINDS[floor.prefill.regime]}." if floor.prefill else f"{decode}."


def _helps(floor: Floor) -> str:
    match floor.decode.regime:
        case "overhead_bound":
            return "CUDA graphs, fused kernels, fewer synchronisations, a larger batch."
        case "compute_bound":
            return "FP8 arithmetic, more cards (--tp), a smaller batch for the latency of a step."
        case "memory_bound":
            return _memory_helps(floor)


def _memory_helps(floor: Floor) -> str:
    weights_lead = floor.decode.weight_bytes >= floor.decode.bytes / 2
    helps = "fewer bits per weight" if weights_lead else "a smaller KV cache: FP8, fewer KV heads, shorter contexts"
    said = f"{helps}; more bandwidth, more cards (--tp)."
    if weights_lead:
        said += " For tokens/s a larger batch"
        bounds = [f"compute binds from {floor.ridge_batch:,} on"] if floor.ridge_batch else []
        bounds += [f"memory holds {floor.max_batch:,}"] if floor.max_batch else []
        said += f" ({', '.join(bounds)})." if bounds else "."
    return said


def _no_help(floor: Floor) -> str:
    match floor.decode.regime:
        case "overhead_bound":
            return "a faster card, fewer bytes: the card waits for the host."
        case "compute_bound":
            return "more bandwidth, fewer bits per weight with the same arithmetic."
        case "memory_bound":
            return "more TFLOP/s: the cores already wait for memory."
