"""Roofline: the least time that a step of an LLM can take on an accelerator. Formulas only.

    attainable P  = min(peak, bandwidth x intensity)
    ridge         = peak / bandwidth
    step t        = max(FLOP / peak, bytes / bandwidth, overhead)

What is counted, so that every time is a lower bound:

- Weights: 2 FLOP per active parameter and token (embedding and output layer included), each weight read once per step.
- Decode: the KV cache of each sequence read once; 2 FLOP per query head for each K and each V element, that is 4 per pair.
- Prefill: K and V written once; causal attention, half of the square: 2 x layers x heads x head_dim x prompt^2 FLOP.
- Tensor parallelism divides FLOP and bytes among the cards. Activations and traffic between cards are not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Regime = Literal["memory_bound", "compute_bound", "overhead_bound"]

SLOW_FACTOR = 10.0
"""How far above its floor a kernel may run and still pass for slow: kernels reach a tenth of the roof or better."""
_TIE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One card.

    Attributes:
        peak_flop_s: Dense peak in FLOP per second, FP16/BF16 unless its owner says otherwise.
        bandwidth_bytes_s: Of its own memory, in bytes per second.
        memory_bytes: None when unknown.
        memory: Kind of memory, `HBM3`.
        source: Where the figures were read.
    """

    name: str
    peak_flop_s: float
    bandwidth_bytes_s: float
    memory_bytes: float | None = None
    memory: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer as far as its traffic goes. None means: not known.

    Attributes:
        params: All parameters; without them the bytes of the weights tell.
        active_params: Parameters that one token passes through; None for a dense model.
        expert_ratio: Share of the experts that one token visits (2 of 8: 0.25); None: active over all parameters.
        weights_bytes: All weights as stored; without them `params` x `dtype_bytes`.
        heads: Query heads; without them as many as `kv_heads`, which counts too little attention, never too much.
        dtype_bytes: Bytes of one weight; 0.5 for 4 bit.
        kv_dtype_bytes: Bytes of one element of the KV cache.
        window: Tokens that a sliding-window layer looks back.
        window_layers: How many of the layers do so.
    """

    params: float | None = None
    active_params: float | None = None
    expert_ratio: float | None = None
    weights_bytes: float | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    dtype_bytes: float = 2.0
    kv_dtype_bytes: float = 2.0
    window: int | None = None
    window_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of the model.

    Attributes:
        batch: Sequences that are decoded, or prefilled, together.
        context: Tokens in the KV cache of each sequence when the decode step runs.
        prompt: Tokens of each prompt; None: no prefill.
        kv_bytes: KV cache of one sequence where it is known in bytes; wins over `context` times the model's shape.
        tp: Tensor-parallel size.
        overhead_s: Launch and scheduling time of a step, in seconds; 0 when unknown.
    """

    batch: int = 1
    context: int = 0
    prompt: int | None = None
    kv_bytes: float | None = None
    tp: int = 1
    overhead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward pass on one card of the group.

    Attributes:
        flop, bytes: What this card computes and moves.
        weight_bytes: The part of `bytes` that is weights.
        compute_s, memory_s, overhead_s: The three floors, in seconds.
        seconds: The highest of the three.
        intensity: FLOP per byte.
    """

    flop: float
    bytes: float
    weight_bytes: float
    compute_s: float
    memory_s: float
    overhead_s: float
    seconds: float
    intensity: float
    regime: Regime


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What the roofline says of a model under a load.

    Attributes:
        prefill: None when no prompt or no weights are known. Its `seconds` are the floor of TTFT.
        decode: Its `seconds` are the floor of TPOT.
        weights_bytes: As stored, all cards together; None when unknown.
        kv_bytes_per_token: Of one sequence, all layers, all cards together; None when the model's shape is unknown.
        kv_bytes_per_sequence: At the load's context.
        needed_bytes: Weights and the KV cache of the whole batch, all cards together.
        fits: `needed_bytes` against the memory of all cards; None when the memory or the weights are unknown.
        tokens_per_second: Upper bound of the whole batch while decoding.
        ridge_batch: Smallest batch at which decode is compute-bound; None: the KV cache keeps it memory-bound at any batch.
        max_batch: Largest batch whose KV cache fits beside the weights; None when unknown or without a KV cache.
        cards: Fewest cards whose memory holds `needed_bytes`; None when unknown.
    """

    accelerator: Accelerator
    model: Model
    load: Load
    ridge_flop_per_byte: float
    decode: Step
    prefill: Step | None
    weights_bytes: float | None
    kv_bytes_per_token: float | None
    kv_bytes_per_sequence: float
    needed_bytes: float
    fits: bool | None
    tokens_per_second: float
    ridge_batch: int | None
    max_batch: int | None
    cards: int | None


def ridge(accelerator: Accelerator) -> float:
    """FLOP per byte from which on the compute peak binds and no longer the memory."""
    return accelerator.peak_flop_s / accelerator.bandwidth_bytes_s


def attainable(accelerator: Accelerator, intensity: float) -> float:
    """FLOP per second that the roof allows at an intensity in FLOP per byte."""
    return min(accelerator.peak_flop_s, accelerator.bandwidth_bytes_s * intensity)


def regime_of(compute_s: float, memory_s: float, overhead_s: float) -> Regime:
    """Which of the three floors is highest.

    On the ridge itself the peak is reached, so memory against compute ties as compute.
    Overhead must exceed both: as long as it only equals one of them, removing it saves nothing.
    """
    busy_s = max(compute_s, memory_s)
    if overhead_s > busy_s * (1 + _TIE):
        return "overhead_bound"
    return "compute_bound" if compute_s >= memory_s * (1 - _TIE) else "memory_bound"


def attention_intensity(*, kv_dtype_bytes: float = 2.0, queries_per_kv: float = 1.0, products: int = 2) -> float:
    """FLOP per byte of KV cache in decode attention; the batch cancels out.

    Each K and V element takes part in one multiply-add (2 FLOP) per query head that shares it.
    `products` 2 counts both, query x key and weight x value: 1.0 at 2 bytes without sharing.
    `products` 1 counts 2 FLOP against the 4 bytes of a pair, as some texts do: 0.5.
    """
    return products * queries_per_kv / kv_dtype_bytes


def parameters(model: Model) -> float | None:
    """All parameters, given or from the bytes of the weights."""
    if model.params is not None:
        return model.params
    return None if model.weights_bytes is None else model.weights_bytes / model.dtype_bytes


def stored_weights(model: Model) -> float | None:
    """Bytes of all weights, given or from the parameters."""
    if model.weights_bytes is not None:
        return model.weights_bytes
    return None if model.params is None else model.params * model.dtype_bytes


def weights_read(model: Model, tokens: int) -> float:
    """Bytes of weights that a step over so many tokens reads; 0 when the weights are unknown.

    Of a mixture of experts: those that the tokens visit when the router spreads them evenly.
    """
    stored, params = stored_weights(model), parameters(model)
    if stored is None or params is None or model.active_params is None or model.active_params >= params:
        return stored or 0.0
    ratio = model.expert_ratio or model.active_params / params
    if ratio >= 1:
        return stored
    expert_params = (params - model.active_params) / (1 - ratio)
    visited = -math.expm1(tokens * math.log1p(-ratio))  # 1 - (1 - ratio)^tokens, exact for few of many experts too
    return stored * (max(0.0, params - expert_params) + expert_params * visited) / params


def kv_bytes_per_token(model: Model) -> float | None:
    """Bytes that one token adds to the KV cache: 2 x layers x kv_heads x head_dim x bytes per element."""
    if model.layers is None or model.kv_heads is None or model.head_dim is None:
        return None
    return 2 * model.layers * model.kv_heads * model.head_dim * model.kv_dtype_bytes


def kv_bytes_of(model: Model, tokens: int) -> float:
    """Bytes of the KV cache of one sequence with so many tokens; 0 when the model's shape is unknown."""
    per_token = kv_bytes_per_token(model)
    if per_token is None or not model.layers:
        return 0.0
    seen = min(tokens, model.window) if model.window else tokens
    return per_token * (tokens * (model.layers - model.window_layers) + seen * model.window_layers) / model.layers


def largest_step(floor: Floor) -> Step:
    """The step, prefill or decode, that needs the most time."""
    return floor.prefill if floor.prefill and floor.prefill.seconds >= floor.decode.seconds else floor.decode


def judge_stall(blocked_s: float, floor: Floor) -> str:
    """One sentence: can a task that is blocked this long be waiting for a kernel that is merely slow?"""
    step = largest_step(floor)
    seconds = step.seconds
    if step is floor.prefill:
        work = f"a prefill of {_sequences(floor.load, floor.load.prompt or 0)}"
    else:
        work = _decode_words(floor)
    said = f"{work} of this model needs at least {_seconds(seconds)} on this node: {_seconds(blocked_s)}"
    if blocked_s >= SLOW_FACTOR * seconds:
        return f"{said} is not a slow kernel"
    if blocked_s > seconds:
        return f"{said} is {blocked_s / seconds:.1f} times that, which a slow kernel may take"
    return f"{said} may be that work itself"


def floor_of(accelerator: Accelerator, model: Model, load: Load) -> Floor:
    """The floors of prefill and decode, and whether weights and KV cache fit.

    Raises:
        ValueError: a figure is not positive, or there is nothing to read: neither weights nor KV cache are known.
    """
    _check(accelerator, model, load)
    kv_sequence = load.kv_bytes if load.kv_bytes is not None else kv_bytes_of(model, load.context)
    decode = _decode(accelerator, model, load, kv_sequence)
    stored = stored_weights(model)
    prefill = _prefill(accelerator, model, load) if load.prompt and stored is not None else None
    held = load.batch * max(kv_sequence, kv_bytes_of(model, load.prompt or 0)) * load.tp / _kv_split(model, load)
    needed = (stored or 0.0) + held
    memory = accelerator.memory_bytes
    return Floor(
        accelerator=accelerator,
        model=model,
        load=load,
        ridge_flop_per_byte=ridge(accelerator),
        decode=decode,
        prefill=prefill,
        weights_bytes=stored,
        kv_bytes_per_token=_per_token(model, load),
        kv_bytes_per_sequence=kv_sequence,
        needed_bytes=needed,
        fits=_fits(needed, memory, load.tp, weights_known=stored is not None),
        tokens_per_second=load.batch / decode.seconds,
        ridge_batch=_ridge_batch(accelerator, model, load, kv_sequence),
        max_batch=_max_batch(memory, load.tp, stored, held / load.batch),
        cards=None if memory is None or stored is None else math.ceil(needed / memory),
    )


def _check(accelerator: Accelerator, model: Model, load: Load) -> None:
    figures = {
        "peak": accelerator.peak_flop_s,
        "bandwidth": accelerator.bandwidth_bytes_s,
        "batch": load.batch,
        "tensor-parallel size": load.tp,
        "bytes per weight": model.dtype_bytes,
        "bytes per KV element": model.kv_dtype_bytes,
    }
    for name, figure in figures.items():
        if not 0 < figure < math.inf:
            raise ValueError(f"{name} must be a positive number, not {figure}")
    if stored_weights(model) is None and not load.kv_bytes and not kv_bytes_of(model, load.context):
        raise ValueError("neither weights nor a KV cache are known: there is nothing to read")


def _decode(accelerator: Accelerator, model: Model, load: Load, kv_sequence: float) -> Step:
    flop = load.batch * (_weight_flop(model) + _attention_flop(model, kv_sequence))
    return _step(accelerator, load, flop, weights_read(model, load.batch), load.batch * kv_sequence / _kv_split(model, load))


def _prefill(accelerator: Accelerator, model: Model, load: Load) -> Step:
    prompt = load.prompt or 0
    tokens = load.batch * prompt
    flop = tokens * _weight_flop(model) + load.batch * _prefill_attention_flop(model, prompt)
    written = tokens * (_per_token(model, load) or 0.0)
    return _step(accelerator, load, flop, weights_read(model, tokens), written / _kv_split(model, load))


def _step(accelerator: Accelerator, load: Load, flop: float, weights: float, kv_per_card: float) -> Step:
    flop, weight_bytes = flop / load.tp, weights / load.tp
    moved = weight_bytes + kv_per_card
    compute_s, memory_s = flop / accelerator.peak_flop_s, moved / accelerator.bandwidth_bytes_s
    return Step(
        flop=flop,
        bytes=moved,
        weight_bytes=weight_bytes,
        compute_s=compute_s,
        memory_s=memory_s,
        overhead_s=load.overhead_s,
        seconds=max(compute_s, memory_s, load.overhead_s),
        intensity=flop / moved if moved else math.inf,
        regime=regime_of(compute_s, memory_s, load.overhead_s),
    )


def _weight_flop(model: Model) -> float:
    """FLOP of one token in the weights."""
    active = model.active_params if model.active_params is not None else parameters(model)
    return 2 * (active or 0.0)


def _queries_per_kv(model: Model) -> float:
    return model.heads / model.kv_heads if model.heads and model.kv_heads else 1.0


def _attention_flop(model: Model, kv_sequence: float) -> float:
    """FLOP of one decoded token in the attention over a KV cache of so many bytes."""
    return kv_sequence * attention_intensity(kv_dtype_bytes=model.kv_dtype_bytes, queries_per_kv=_queries_per_kv(model))


def _prefill_attention_flop(model: Model, prompt: int) -> float:
    """FLOP of the causal attention over one prompt; 0 when the model's shape is unknown."""
    heads = model.heads or model.kv_heads
    if not (model.layers and heads and model.head_dim):
        return 0.0
    whole = prompt**2 / 2
    window = min(prompt, model.window) if model.window else prompt
    windowed = window * prompt - window**2 / 2
    pairs = whole * (model.layers - model.window_layers) + windowed * model.window_layers
    return 4 * heads * model.head_dim * pairs


def _kv_split(model: Model, load: Load) -> int:
    """Among how many cards the KV cache is divided: beyond one KV head per card the heads are copied."""
    return min(load.tp, model.kv_heads) if model.kv_heads else load.tp


def _per_token(model: Model, load: Load) -> float | None:
    shape = kv_bytes_per_token(model)
    if shape is None and load.kv_bytes is not None and load.context:
        return load.kv_bytes / load.context
    return shape


def _fits(needed: float, memory: float | None, tp: int, *, weights_known: bool) -> bool | None:
    if memory is None:
        return None
    if needed > memory * tp:
        return False
    return True if weights_known else None


def _ridge_batch(accelerator: Accelerator, model: Model, load: Load, kv_sequence: float) -> int | None:
    token_flop = _weight_flop(model) + _attention_flop(model, kv_sequence)
    compute_s = token_flop / load.tp / accelerator.peak_flop_s
    kv_s = kv_sequence / _kv_split(model, load) / accelerator.bandwidth_bytes_s
    weights_s = (stored_weights(model) or 0.0) / load.tp / accelerator.bandwidth_bytes_s
    if compute_s <= kv_s:
        return None
    return max(1, math.ceil(weights_s / (compute_s - kv_s) * (1 - _TIE)))


def _max_batch(memory: float | None, tp: int, weights: float | None, kv_sequence: float) -> int | None:
    if memory is None or weights is None or not kv_sequence:
        return None
    return max(0, int((memory * tp - weights) // kv_sequence))


def _decode_words(floor: Floor) -> str:
    """What the decode step reads: its context where that is known, else whether there is a KV cache at all."""
    load = floor.load
    if load.context:
        return f"a decode step over {_sequences(load, load.context)}"
    batch = "" if load.batch == 1 else f" of {load.batch} sequences"
    cache = "with the KV cache given" if floor.kv_bytes_per_sequence else "without a KV cache (no context is given)"
    return f"a decode step{batch} {cache}"


def _sequences(load: Load, tokens: int) -> str:
    each = f"{tokens:,} tokens"
    return each if load.batch == 1 else f"{load.batch} x {each}"


def _seconds(seconds: float) -> str:
    if seconds >= 0.1:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"
    return f"{seconds * 1e3:.2g} ms"
