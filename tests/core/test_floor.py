from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.floor import (
    Accelerator,
    Load,
    Model,
    attainable,
    attention_intensity,
    floor_of,
    judge_stall,
    kv_bytes_of,
    kv_bytes_per_token,
    largest_step,
    regime_of,
    ridge,
    weights_read,
)

H100 = Accelerator(name="H100 SXM", peak_flop_s=989e12, bandwidth_bytes_s=3350e9, memory_bytes=80e9)
AT_500 = replace(H100, peak_flop_s=500e12)
DENSE_70B = Model(params=70e9)
SHAPE_70B = Model(layers=80, kv_heads=8, head_dim=128)
LLAMA_8B = Model(weights_bytes=15.0e9)

positive = st.floats(1e-3, 1e3)


def test_the_ridge_of_an_h100() -> None:
    """989 TFLOP/s over 3.35 TB/s is a ridge at 295 FLOP/byte."""
    assert 295 == round(ridge(H100))


def test_the_roof_is_the_lower_of_slope_and_peak() -> None:
    """Left of the ridge the bandwidth limits what is attainable, right of it the peak."""
    assert 3350e9 == attainable(H100, 1.0)
    assert 989e12 == attainable(H100, 8192.0)


def test_prefill_by_weights_alone_has_the_intensity_of_its_tokens() -> None:
    """4 prompts of 2,048 tokens at two bytes a weight are 8,192 FLOP/byte, compute-bound on an H100."""
    prefill = floor_of(H100, Model(params=8.03e9), Load(batch=4, prompt=2048)).prefill
    assert prefill is not None
    assert 8192 == pytest.approx(prefill.intensity)
    assert "compute_bound" == prefill.regime


def test_decode_of_one_sequence_has_intensity_one() -> None:
    """Each two-byte weight serves one multiply-add: 1 FLOP/byte, memory-bound."""
    decode = floor_of(H100, DENSE_70B, Load()).decode
    assert 1.0 == pytest.approx(decode.intensity)
    assert "memory_bound" == decode.regime


@pytest.mark.parametrize(("products", "shared", "expected"), [(1, 1, 0.5), (2, 1, 1.0), (2, 8, 8.0)])
def test_attention_while_decoding_by_convention(products: int, shared: float, expected: float) -> None:
    """2 FLOP for each pair of K and V is 0.5 FLOP/byte; both products counted is 1, times the heads that share the pair."""
    assert expected == attention_intensity(products=products, queries_per_kv=shared)


def test_one_sequence_of_an_8b_model() -> None:
    """15.0 GB of weights and 0.27 GB of KV at 3,350 GB/s: 4.56 ms, 219 tokens/s."""
    floor = floor_of(H100, LLAMA_8B, Load(kv_bytes=0.27e9))
    assert 4.56 == round(floor.decode.seconds * 1e3, 2)
    assert 219 == round(floor.tokens_per_second)


def test_64_sequences_of_an_8b_model() -> None:
    """17.28 GB of KV beside 15.0 GB: 9.63 ms cut after two decimals, and 64 / 9.63 ms cut is 6,645 tokens/s (6,642 uncut)."""
    floor = floor_of(H100, LLAMA_8B, Load(batch=64, kv_bytes=0.27e9))
    cut_ms = int(floor.decode.seconds * 1e5) / 100
    assert 9.63 == cut_ms
    assert 6645 == int(64 / (cut_ms / 1e3))
    assert 6645 == pytest.approx(floor.tokens_per_second, rel=6e-4)
    assert 17.28e9 == pytest.approx(floor.decode.bytes - floor.decode.weight_bytes)


def test_70b_one_sequence() -> None:
    """140 GB at 3.35 TB/s: 41.8 ms, 23.9 tokens/s; 140 GFLOP at 500 TFLOP/s are 0.28 ms; it does not fit on one card."""
    floor = floor_of(AT_500, DENSE_70B, Load())
    assert 41.8 == round(floor.decode.seconds * 1e3, 1)
    assert 23.9 == round(floor.tokens_per_second, 1)
    assert 140e9 == floor.decode.flop
    assert 0.28 == round(floor.decode.compute_s * 1e3, 2)
    assert floor.fits is False
    assert 2 == floor.cards


def test_70b_32_sequences() -> None:
    """The same traffic serves 32: 765 tokens/s, intensity 32; 4.48 TFLOP at 500 TFLOP/s are 8.96 ms."""
    floor = floor_of(AT_500, DENSE_70B, Load(batch=32))
    assert 765 == int(floor.tokens_per_second)
    assert 41.8 == round(floor.decode.seconds * 1e3, 1)
    assert 4.48e12 == pytest.approx(floor.decode.flop)
    assert 8.96 == round(floor.decode.compute_s * 1e3, 2)
    assert 32 == pytest.approx(floor.decode.intensity)


def test_the_kv_cache_of_a_70b_shape() -> None:
    """80 layers, 8 KV heads of 128 in FP16: 327,680 bytes per token; 16,384 tokens are 5.37 GB, 1.60 ms at 3.35 TB/s."""
    floor = floor_of(H100, SHAPE_70B, Load(context=16384))
    assert 327_680 == kv_bytes_per_token(SHAPE_70B)
    assert 5.37 == round(floor.kv_bytes_per_sequence / 1e9, 2)
    assert 1.60 == round(floor.decode.seconds * 1e3, 2)
    assert floor.fits is None


def test_gb_against_gib() -> None:
    """8.03e9 parameters of two bytes are 16.06 GB, which is 14.96 GiB."""
    weights = floor_of(H100, Model(params=8.03e9), Load()).weights_bytes
    assert weights is not None
    assert (16.06, 14.96) == (round(weights / 1e9, 2), round(weights / 2**30, 2))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((1.0, 2.0, 0.5), "memory_bound"),
        ((2.0, 1.0, 0.5), "compute_bound"),
        ((1.0, 2.0, 3.0), "overhead_bound"),
        ((2.0, 2.0, 1.0), "compute_bound"),
        ((1.0, 2.0, 2.0), "memory_bound"),
        ((2.0, 2.0, 2.0), "compute_bound"),
    ],
)
def test_regimes_and_their_ties(times: tuple[float, float, float], expected: str) -> None:
    """The ridge itself counts as compute; overhead must exceed both to bind."""
    assert expected == regime_of(*times)


def test_overhead_is_a_floor_of_its_own() -> None:
    """A step cannot be shorter than its launch and scheduling time."""
    floor = floor_of(H100, Model(params=1e8), Load(overhead_s=200e-6))
    assert 200e-6 == floor.decode.seconds
    assert "overhead_bound" == floor.decode.regime


def test_tensor_parallelism_divides_work_and_traffic() -> None:
    """Four cards: a quarter of the time, the memory of four."""
    one, four = (floor_of(H100, DENSE_70B, Load(tp=tp)) for tp in (1, 4))
    assert one.decode.seconds / 4 == pytest.approx(four.decode.seconds)
    assert four.fits is True


def test_kv_heads_are_copied_beyond_one_a_card() -> None:
    """Eight KV heads on sixteen cards: each card still reads an eighth of the cache."""
    eight, sixteen = (floor_of(H100, SHAPE_70B, Load(tp=tp, context=4096)) for tp in (8, 16))
    assert eight.decode.bytes == sixteen.decode.bytes
    assert 2 * eight.needed_bytes == sixteen.needed_bytes


def test_causal_attention_grows_with_the_square_of_the_prompt() -> None:
    """Beside the weights a prompt costs 2 x layers x heads x head_dim x prompt^2 FLOP."""
    model = replace(SHAPE_70B, params=70e9, heads=64)
    prefill = floor_of(H100, model, Load(prompt=32768)).prefill
    assert prefill is not None
    assert 2 * 70e9 * 32768 + 2 * 80 * 64 * 128 * 32768**2 == pytest.approx(prefill.flop)
    assert 140e9 + 327_680 * 32768 == pytest.approx(prefill.bytes)


def test_a_sliding_window_bounds_the_cache() -> None:
    """A layer with a window keeps no more than its window; the others keep all."""
    model = replace(SHAPE_70B, window=1024, window_layers=40)
    assert 327_680 * (4096 + 1024) / 2 == kv_bytes_of(model, 4096)


def test_experts_read_and_computed() -> None:
    """One token of 2 in 8 experts computes and reads the active part; many tokens read all but compute no more each."""
    model = Model(params=46.7e9, active_params=12.9e9, expert_ratio=0.25)
    assert 2 * 12.9e9 == pytest.approx(weights_read(model, 1))
    assert 2 * 46.7e9 == pytest.approx(weights_read(model, 4096))
    assert 2 * 12.9e9 * 4 == pytest.approx(floor_of(H100, model, Load(batch=4)).decode.flop)


def test_the_batch_at_which_compute_binds() -> None:
    """A dense two-byte model without KV crosses the ridge at 296; reading a long KV cache it never does."""
    assert 296 == floor_of(H100, DENSE_70B, Load()).ridge_batch
    assert floor_of(H100, replace(SHAPE_70B, params=70e9), Load(context=32768)).ridge_batch is None


def test_the_largest_batch_that_fits() -> None:
    """65 GB beside 15 GB of weights hold 240 caches of 0.27 GB; without a known memory there is no answer."""
    load = Load(kv_bytes=0.27e9)
    assert 240 == floor_of(H100, LLAMA_8B, load).max_batch
    unknown = floor_of(replace(H100, memory_bytes=None), LLAMA_8B, load)
    assert (None, None, None) == (unknown.fits, unknown.max_batch, unknown.cards)


def test_without_weights_there_is_no_ttft() -> None:
    """A prompt alone says nothing of a model whose weights are unknown."""
    assert floor_of(H100, SHAPE_70B, Load(context=16, prompt=16)).prefill is None


@pytest.mark.parametrize(
    ("card", "model", "load"),
    [
        (H100, Model(), Load()),
        (H100, DENSE_70B, Load(batch=0)),
        (H100, DENSE_70B, Load(tp=-1)),
        (replace(H100, bandwidth_bytes_s=0.0), DENSE_70B, Load()),
        (replace(H100, peak_flop_s=float("nan")), DENSE_70B, Load()),
        (H100, replace(DENSE_70B, dtype_bytes=0.0), Load()),
    ],
)
def test_figures_that_make_no_sense(card: Accelerator, model: Model, load: Load) -> None:
    """Nothing to read, or a figure that is not positive, is refused and never divided by."""
    with pytest.raises(ValueError, match=r"must be|nothing to read"):
        floor_of(card, model, load)


def test_slow_or_hung() -> None:
    """A task blocked far beyond the longest step waits for no slow kernel; within ten times it may."""
    model, load = replace(SHAPE_70B, params=70e9, heads=64), Load(prompt=32768, context=32768, tp=4)
    floor = floor_of(H100, model, load)
    least = largest_step(floor).seconds
    assert floor.prefill is not None
    assert floor.prefill.seconds == least
    assert (
        "a prefill of 32,768 tokens of this model needs at least 1.5 s on this node: 120 s is not a slow kernel"
        == judge_stall(120, floor)
    )
    assert judge_stall(5, floor).endswith("which a slow kernel may take")
    assert judge_stall(1, floor).endswith("may be that work itself")


@given(positive, positive, positive)
def test_a_step_is_never_below_any_of_its_floors(peak: float, bandwidth: float, params: float) -> None:
    """The floor is the highest of the three, and the rate it implies stays under the roof."""
    card = Accelerator(name="any", peak_flop_s=peak * 1e12, bandwidth_bytes_s=bandwidth * 1e9)
    step = floor_of(card, Model(params=params * 1e9), Load(batch=7)).decode
    assert step.seconds == max(step.compute_s, step.memory_s, step.overhead_s)
    assert step.flop / step.seconds <= attainable(card, step.intensity) * (1 + 1e-9)
