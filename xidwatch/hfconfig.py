"""A Hugging Face config.json on disk, read for what the roofline needs: shape, parameters, bytes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xidwatch.core.floor import Model
from xidwatch.errors import XidwatchError
from xidwatch.plainfile import read_plain

_INDEX = "model.safetensors.index.json"
_MOST_BYTES = 64 << 20
_MOST = 10**9
"""No shape of a model has a larger number; products of several stay far below what a float holds."""
_MOST_STORED = 1e18
_DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0, "int8": 1.0}
_QUANT_BITS = {"fp8": 8.0, "fbgemm_fp8": 8.0, "mxfp4": 4.25}
_UNGATED = {"gpt2", "gpt_neox", "gptj", "gpt_bigcode", "opt", "falcon", "phi", "bloom", "starcoder2"}
_WINDOWED = {"mistral", "mixtral", "phi3", "starcoder2"}
_GEMMA_PATTERN = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Experts:
    """A mixture of experts: how many there are and are visited, the width of one and of the shared part, dense layers."""

    count: int
    visited: int
    width: int
    shared_width: int
    dense_layers: int


def read_model(path: Path) -> tuple[Model, tuple[str, ...]]:
    """The model of a config.json, or of the folder that holds one, and notes on what was estimated.

    Parameters are estimated from the shape: embedding, attention, MLP or experts, norms, output layer; biases are left out.
    The bytes of the weights come from the safetensors index beside it where there is one.

    Raises:
        XidwatchError: it cannot be read, lacks a field, or describes attention that these formulas do not know.
    """
    file = path / "config.json" if os.path.isdir(path) else path
    config = _read_json(file)
    text = config.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, dict) and "hidden_size" in text else config
    try:
        model, notes = model_of({**config, **inner})
    except ValueError as error:
        raise XidwatchError(f"{file}: {error}; give --params and --kv-bytes instead of --model.") from error
    if inner is not config:
        notes = (*notes, "Only the text part of the model is counted.")
    index = file.parent / _INDEX
    if os.path.lexists(index) and (total := _stored_bytes(index)) is not None:
        return replace(model, weights_bytes=total), (*notes, f"Bytes of the weights from {_INDEX}.")
    return model, notes


def model_of(config: Mapping[str, Any]) -> tuple[Model, tuple[str, ...]]:
    """The model that a config describes, and notes.

    Raises:
        ValueError: a field is missing or not a positive number, or the attention keeps no plain KV cache.
    """
    _refuse_unknown(config)
    hidden, layers = _whole(config, "hidden_size", "n_embd"), _whole(config, "num_hidden_layers", "n_layer")
    heads = _whole(config, "num_attention_heads", "n_head")
    kv_heads = _whole(config, "num_key_value_heads", default=heads)
    head_dim = _whole(config, "head_dim", default=max(1, hidden // heads))
    vocab = _whole(config, "vocab_size")
    tied = config.get("tie_word_embeddings", _family(config) in ("gpt2", "gemma", "gemma2", "gemma3", "gemma3_text"))
    outside = vocab * hidden * (1 if tied else 2) + hidden
    attention = 2 * hidden * head_dim * (heads + kv_heads) + 2 * hidden
    experts = _experts(config, layers)
    inner, active = _mlp(config, hidden, layers, experts)
    params = outside + layers * attention + inner
    dtype_bytes, kv_dtype_bytes, notes = _dtypes(config)
    window, window_layers = _window(config, layers)
    model = Model(
        params=float(params),
        active_params=float(params - inner + active) if experts else None,
        expert_ratio=experts.visited / experts.count if experts else None,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype_bytes=dtype_bytes,
        kv_dtype_bytes=kv_dtype_bytes,
        window=window,
        window_layers=window_layers,
    )
    return model, (f"Parameters are estimated from the config's shape: {params / 1e9:.2f} B.", *notes)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_plain(file, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise XidwatchError(f"--model {file}: {error.strerror or error}; name a config.json or the folder with it.") from error
    except ValueError as error:
        raise XidwatchError(f"--model {file} is not JSON: {error}.") from error
    except RecursionError as error:
        raise XidwatchError(f"--model {file} is not a model's config: it is nested too deep.") from error
    if not isinstance(content, dict):
        raise XidwatchError(f"--model {file} is not a model's config: it holds no JSON object.")
    return content


def _stored_bytes(index: Path) -> float | None:
    """What the index says that all weights take; None where it does not say.

    Raises:
        XidwatchError: it cannot be read, or says something that is no size.
    """
    metadata = _read_json(index).get("metadata", {})
    if not isinstance(metadata, dict):
        raise XidwatchError(f"--model {index}: metadata must be an object, not {_shown(metadata)}.")
    total = metadata.get("total_size")
    if total is None and "total_size" not in metadata:
        return None
    if isinstance(total, bool) or not isinstance(total, (int, float)) or not 1 <= total <= _MOST_STORED:
        raise XidwatchError(f"--model {index}: total_size must be the bytes of all weights, not {_shown(total)}.")
    return float(total)


def _shown(value: object) -> str:
    """As JSON writes it, control characters escaped, and not too much of it."""
    words = json.dumps(value) if not isinstance(value, float) or math.isfinite(value) else "a number beyond all bounds"
    return words if len(words) <= 60 else f"{words[:57]}..."


def _family(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type"))


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    if config.get("kv_lora_rank"):
        raise ValueError("multi-head latent attention keeps no plain KV cache")
    other = [kind for kind in _listed(config, "layer_types") if kind not in ("full_attention", "sliding_attention")]
    if other:
        kinds = dict.fromkeys(kind if isinstance(kind, str) and kind.isidentifier() else _shown(kind) for kind in other)
        raise ValueError(f"layers of the kind {', '.join(sorted(kinds)[:5])} keep no plain KV cache")
    if (config.get("interleave_moe_layer_step") or 1) != 1 or (config.get("decoder_sparse_step") or 1) != 1:
        raise ValueError("experts in only some of the layers are not counted here")


def _whole(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        if (found := config.get(name)) is not None:
            if isinstance(found, bool) or not isinstance(found, int) or found <= 0:
                raise ValueError(f"{name} must be a positive whole number, not {_shown(found)}")
            if found > _MOST:
                raise ValueError(f"{name} is {_shown(found)}, beyond every model")
            return found
    if default is None:
        raise ValueError(f"no {names[0]}")
    return default


def _whole_or_none(config: Mapping[str, Any], name: str) -> int:
    """A whole number that may be left out, null, false or 0: all of them mean none."""
    return _whole(config, name) if config.get(name) else 0


def _listed(config: Mapping[str, Any], name: str) -> list[Any]:
    found = config.get(name) or []
    if not isinstance(found, list):
        raise ValueError(f"{name} must be a list, not {_shown(found)}")
    return found


def _experts(config: Mapping[str, Any], layers: int) -> _Experts | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    if all(not config.get(name) for name in names):
        return None
    count = _whole(config, *names)
    visited = _whole(config, "num_experts_per_tok", "experts_per_token")
    if visited > count:
        raise ValueError(f"num_experts_per_tok is {visited}, of only {count} experts")
    width = _whole(config, "moe_intermediate_size", "intermediate_size")
    shared = _whole_or_none(config, "shared_expert_intermediate_size") or width * _whole_or_none(config, "n_shared_experts")
    dense = _whole_or_none(config, "first_k_dense_replace") or len(_listed(config, "mlp_only_layers"))
    if dense > layers:
        raise ValueError(f"{dense:,} layers without experts, of only {layers:,} layers")
    return _Experts(count=count, visited=visited, width=width, shared_width=shared, dense_layers=dense)


def _mlp(config: Mapping[str, Any], hidden: int, layers: int, experts: _Experts | None) -> tuple[int, int]:
    """Parameters of the MLP of all layers: all of them, and those that one token passes through."""
    matrices = 2 if _family(config) in _UNGATED else 3
    if experts is None:
        width = _whole(config, "intermediate_size", "n_inner", default=4 * hidden)
        return (layers * matrices * hidden * width,) * 2
    dense = experts.dense_layers and experts.dense_layers * matrices * hidden * _whole(config, "intermediate_size")
    sparse = layers - experts.dense_layers
    common = hidden * (experts.count + matrices * experts.shared_width)
    one = matrices * hidden * experts.width
    return dense + sparse * (common + experts.count * one), dense + sparse * (common + experts.visited * one)


def _dtypes(config: Mapping[str, Any]) -> tuple[float, float, tuple[str, ...]]:
    """Bytes of a weight, bytes of an element of the KV cache, notes."""
    name = str(config.get("torch_dtype") or config.get("dtype") or "").removeprefix("torch.")
    plain = _DTYPE_BYTES.get(name)
    notes = (
        ()
        if plain
        else (f"Data type {_shown(name)} is not known: 2 bytes assumed." if name else "No data type: 2 bytes assumed.",)
    )
    plain = plain or 2.0
    quantized = config.get("quantization_config")
    if not isinstance(quantized, dict):
        return plain, max(plain, 2.0), notes
    if (bits := _quant_bits(quantized)) is None:
        return plain, plain, (*notes, "The quantization is not known: give --dtype-bytes.")
    return bits / 8, plain, (*notes, f"Weights of {bits:g} bits, all of them; scales and unquantized layers are not counted.")


def _quant_bits(quantized: Mapping[str, Any]) -> float | None:
    groups = quantized.get("config_groups")
    weights = [group.get("weights") for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []
    stated = [quantized.get("bits"), *(each.get("num_bits") for each in weights if isinstance(each, dict))]
    for bits in stated:
        if isinstance(bits, int) and not isinstance(bits, bool) and 0 < bits <= 16:
            return float(bits)
    if quantized.get("load_in_4bit"):
        return 4.0
    return 8.0 if quantized.get("load_in_8bit") else _QUANT_BITS.get(str(quantized.get("quant_method")))


def _window(config: Mapping[str, Any], layers: int) -> tuple[int | None, int]:
    """Width of the sliding window, and how many layers have it."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None, 0
    width = _whole(config, "sliding_window")
    if kinds := _listed(config, "layer_types"):
        if len(kinds) > layers:
            raise ValueError(f"layer_types names {len(kinds):,} layers, num_hidden_layers only {layers:,}")
        return width, sum(kind == "sliding_attention" for kind in kinds)
    family = _family(config)
    if family in _GEMMA_PATTERN:
        return width, layers - layers // _GEMMA_PATTERN[family]
    return (width, layers) if family in _WINDOWED else (None, 0)
