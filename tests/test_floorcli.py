from __future__ import annotations

import argparse
import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xidwatch import floorcli
from xidwatch.accelerators import find_accelerator, load_accelerators
from xidwatch.core.floor import ridge
from xidwatch.errors import XidwatchError
from xidwatch.hfconfig import model_of
from xidwatch.quantity import read_bytes, read_count, read_tokens

Run = Callable[..., str]

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_3_70B = LLAMA_3_8B | {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "intermediate_size": 28672,
}  # fmt: skip
MIXTRAL_8X7B = LLAMA_3_8B | {
    "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `xidwatch floor` with these arguments and gives what it prints."""

    def _run(*arguments: str) -> str:
        parser = argparse.ArgumentParser()
        floorcli.add_arguments(parser)
        assert 0 == floorcli.run(parser.parse_args(arguments))
        return capsys.readouterr().out

    return _run


def answer(run: Run, *arguments: str) -> dict[str, Any]:
    """The JSON that these arguments give."""
    found: dict[str, Any] = json.loads(run(*arguments, "--format", "json"))
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--weights-bytes 15.0GB --kv-bytes 0.27GB", {"step_seconds": 4.56e-3, "tokens_per_second": 219}),
        ("--weights-bytes 15.0GB --kv-bytes 0.27GB --batch 64", {"step_seconds": 9.63e-3, "tokens_per_second": 6645}),
        ("--params 70B", {"step_seconds": 41.8e-3, "tokens_per_second": 23.9, "intensity_flop_per_byte": 1}),
        ("--params 70B --batch 32", {"tokens_per_second": 765, "intensity_flop_per_byte": 32}),
        (
            "--layers 80 --kv-heads 8 --head-dim 128 --context 16,384",
            {"kv_bytes_per_token": 327_680, "kv_bytes_per_sequence": 5.37e9, "step_seconds": 1.60e-3},
        ),
        ("--params 8.03B --batch 4 --prompt 2048", {"prefill_intensity_flop_per_byte": 8192, "ridge_flop_per_byte": 295}),
        ("--params 70B", {"attention_flop_per_byte_one_product": 0.5, "attention_flop_per_byte": 1.0}),
    ],
)
def test_known_figures_in_json(run: Run, arguments: str, expected: dict[str, float]) -> None:
    """Figures worked out by hand come out of the command with its defaults."""
    found = answer(run, "--accelerator", "H100 SXM", *arguments.split())
    assert expected == pytest.approx({name: found[name] for name in expected}, rel=2e-3)
    assert "memory_bound" == found["regime"]


def test_compute_time_at_an_effective_peak(run: Run) -> None:
    """At 500 TFLOP/s one sequence of a 70B model computes 0.28 ms, 32 of them 8.96 ms."""
    given = ("--peak-tflops", "500", "--bandwidth-gbs", "3350", "--params", "70B")
    assert 0.28e-3 == pytest.approx(answer(run, *given)["decode"]["compute_s"])
    assert 8.96e-3 == pytest.approx(answer(run, *given, "--batch", "32")["decode"]["compute_s"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--memory-gb 80 --params 70B", False),
        ("--memory-gb 80 --params 70B --tp 2", True),
        ("--memory-gb 80 --params 8B --kv-bytes 70GB", False),
        ("--params 70B", None),
    ],
)
def test_whether_it_fits(run: Run, arguments: str, expected: object) -> None:
    """Weights and KV cache against the memory of all cards; null when no memory is known."""
    found = answer(run, "--peak-tflops", "989", "--bandwidth-gbs", "3350", *arguments.split())
    assert expected is found["fits"]


def test_all_three_regimes(run: Run) -> None:
    """One sequence is memory-bound, a huge batch compute-bound, a tiny model with overhead overhead-bound."""
    card = ("--accelerator", "h200")
    assert "memory_bound" == answer(run, *card, "--params", "8B")["regime"]
    assert "compute_bound" == answer(run, *card, "--params", "8B", "--batch", "1000")["regime"]
    assert "overhead_bound" == answer(run, *card, "--params", "100M", "--overhead-us", "500")["regime"]


def test_the_report_fits_80_columns(run: Run) -> None:
    """Every line of the report and of the plot is at most 80 columns wide, and the answer is in the first line."""
    shape = "--params 70B --layers 80 --heads 64 --kv-heads 8 --head-dim 128 --context 16384 --batch 32 --tp 4"
    text = run("--accelerator", "H100 SXM", *shape.split(), "--blocked-s", "500")
    drawn = run("--accelerator", "H100 SXM", *shape.split(), "--plot")
    assert text.startswith("Decode is memory-bound: at least 23.3 ms a step, at most 1,375 tokens/s.\n")
    assert [] == [line for line in (text + drawn).splitlines() if len(line) > 80]
    assert drawn.endswith(run("--accelerator", "H100 SXM", *shape.split()))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--params 70B", "140.0 GB does not fit on one card of 80 GB: the floor is that of the total traffic"),
        ("--params 8.03B --weights-bytes 15.0GB", "16.06 GB (14.96 GiB): the 15.00 GB given look like GiB"),
        ("--params 8B", "Overhead is unknown and counted as 0"),
        ("--params 8B --prompt 1000 --blocked-s 120", "120 s is not a slow kernel."),
        ("--params 8B --dtype-bytes 1", "give its --peak-tflops"),
        ("--params 8B --tp 3 --layers 32 --kv-heads 8 --head-dim 128", "8 KV heads cannot be shared alike by 3 cards"),
        ("--params 8B --tp 3 --heads 32", "32 query heads cannot be shared alike by 3 cards"),
        ("--params 8B --blocked-s 120", "A decode step without a KV cache (no context is given) of this model needs at least"),
        (
            "--params 8B --batch 4 --kv-bytes 1GB --blocked-s 120",
            "A decode step of 4 sequences with the KV cache given of this",
        ),
    ],
)
def test_what_the_report_admits(run: Run, arguments: str, expected: str) -> None:
    """What does not fit, is not known or was likely meant otherwise is said in words."""
    text = run("--accelerator", "H100 SXM", *arguments.split())
    assert expected in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "No card: give --accelerator, or --peak-tflops and --bandwidth-gbs"),
        ("--peak-tflops 989 --params 7B", "or --bandwidth-gbs."),
        ("--accelerator h200", "No model: give --model, --params or --weights-bytes"),
        ("--accelerator h100 --params 7B", "H100 PCIe, H100 NVL or H100 SXM: name one of them"),
        ("--accelerator h900 --params 7B", "is not in the table, which has V100 SXM2"),
        ("--accelerator h200 --params 0", "--params must be 1 or more, not 0"),
        ("--accelerator h200 --params=-7B", "--params must be 1 or more, not -7B"),
        ("--accelerator h200 --params 7B --batch 0", "--batch must be more than 0"),
        ("--accelerator h200 --params 7B --batch 1.5", "--batch must be a whole number"),
        ("--accelerator h200 --params 7B --overhead-us=-1", "--overhead-us must be 0 or more"),
        ("--accelerator h200 --params 7B --memory-gb 0", "--memory-gb must be more than 0"),
        ("--accelerator h200 --params 7B --bandwidth-gbs=-1", "--bandwidth-gbs must be more than 0"),
        ("--accelerator h200 --params nan", "--params is not a number: 'nan'"),
        ("--accelerator h200 --params 1e999", "is beyond every machine"),
        ("--accelerator h200 --weights-bytes 14XB", "--weights-bytes has an unknown unit"),
        ("--accelerator h200 --params 7B --active-params 8B", "is more than all 7,000,000,000 parameters"),
        ("--accelerator h200 --params 7B --heads 30 --kv-heads 8", "--heads 30 is no multiple of --kv-heads 8"),
        ("--accelerator h200 --params 7B --plot --format json", "give it a file, FILE.svg"),
        ("--accelerator h200 --params 7B --plot roof.png", "must end in .svg"),
        ("--accelerator h200 --params 7B --plot /nonexistent/roof.svg", "name a file that can be written"),
        ("--accelerator h200 --model /nonexistent/config.json", "name a config.json or the folder with it"),
    ],
)
def test_wrong_input_gets_a_sentence(run: Run, arguments: str, expected: str) -> None:
    """What is missing or wrong is an XidwatchError that names the flag and the next step."""
    with pytest.raises(XidwatchError) as told:
        run(*arguments.split())
    assert expected in str(told.value)


def test_all_mistakes_at_once(run: Run) -> None:
    """Three wrong figures are three lines, so that they can be mended in one go."""
    with pytest.raises(XidwatchError) as told:
        run("--accelerator", "h200", "--params", "x", "--tp", "0", "--context=-1")
    assert 3 == len(str(told.value).splitlines())


def test_the_svg_is_well_formed_and_names_its_points(run: Run, tmp_path: Path) -> None:
    """The plot is one SVG with a title, both points by name and the ridge."""
    file = tmp_path / "roof.svg"
    run("--accelerator", "h200", "--params", "8B", "--prompt", "2048", "--plot", str(file))
    words = " ".join(ET.fromstring(file.read_text(encoding="utf-8")).itertext())
    assert [] == [word for word in ("Roofline of H200 SXM", "prefill", "decode", "ridge 206", "FLOP/byte") if word not in words]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("H100 SXM", "H100 SXM"),
        ("h100sxm", "H100 SXM"),
        ("H100-SXM5-80GB", "H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("a100 40 gb", "A100 40GB"),
        ("NVIDIA H200", "H200 SXM"),
        ("l4", "L4"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2"),
    ],
)
def test_a_card_is_found_as_people_and_nvidia_smi_call_it(asked: str, expected: str) -> None:
    """Case, dashes, the maker's name and SXM's number do not matter."""
    assert expected == find_accelerator(asked).name


def test_the_table_has_whole_rows_and_unique_names() -> None:
    """Every shipped card has positive figures, a source, a ridge one would believe, and names of its own."""
    table = load_accelerators()
    names = [name for row in table for name in row]
    assert len(names) == len(set(names))
    assert all(card.source and card.memory and card.memory_bytes for card in table.values())
    assert all(30 < ridge(card) < 500 for card in table.values())
    assert 295 == round(ridge(find_accelerator("H100 SXM")))


@pytest.mark.parametrize(
    ("config", "params", "active"),
    [(LLAMA_3_8B, 8_030_261_248, None), (LLAMA_3_70B, 70_553_706_496, None), (MIXTRAL_8X7B, 46_702_792_704, 12_879_925_248)],
)
def test_parameters_from_a_config(config: dict[str, Any], params: float, active: float | None) -> None:
    """The estimate for models whose size is published is that size to the last parameter."""
    model, notes = model_of(config)
    assert (params, active) == (model.params, model.active_params)
    assert "estimated" in notes[0]


def test_a_model_from_disk(run: Run, tmp_path: Path) -> None:
    """A folder with a config.json is enough: 131,072 bytes of KV per token, 16.06 GB of weights; flags win over it."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B), encoding="utf-8")
    given = ("--accelerator", "H100 SXM", "--model", str(tmp_path), "--context", "2048")
    found = answer(run, *given)
    assert 131_072 == found["kv_bytes_per_token"]
    assert 16.06 == round(found["weights_bytes"] / 1e9, 2)
    assert 7e9 == answer(run, *given, "--params", "7B")["params"]


def test_weights_from_the_index_beside_a_config(run: Run, tmp_path: Path) -> None:
    """Where the safetensors index gives the bytes they are taken from it."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B), encoding="utf-8")
    index = {"metadata": {"total_size": 16_060_522_496}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert 16_060_522_496 == answer(run, "--accelerator", "h200", "--model", str(tmp_path))["weights_bytes"]


def told_of_model(run: Run, path: Path) -> str:
    """The sentence that this model's path gets."""
    with pytest.raises(XidwatchError) as told:
        run("--accelerator", "h200", "--model", str(path))
    (sentence,) = str(told.value).splitlines()
    return sentence


@pytest.mark.parametrize(
    "text",
    ['{"metadata": null}', '{"metadata": [1]}', '{"metadata": 7}', "[]", "null", "", "[" * 100_000, '{"metadata": ' * 100_000,
     *(f'{{"metadata": {{"total_size": {size}}}}}'
       for size in ('"x"', "[1]", "{}", "null", "true", "1e400", "-1e400", "NaN", "-5", "0", "0.5", "9" * 5000, "1" + "0" * 30))],
)  # fmt: skip
def test_an_index_that_says_no_size_gets_a_sentence(run: Run, tmp_path: Path, text: str) -> None:
    """Whatever stands in the index in place of a size is named in one sentence."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B), encoding="utf-8")
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    assert "model.safetensors.index.json" in told_of_model(run, tmp_path)


def test_an_index_without_a_size_is_passed_over(run: Run, tmp_path: Path) -> None:
    """An index may leave the size out: the bytes are then estimated as without it."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B), encoding="utf-8")
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {}, "weight_map": {}}', encoding="utf-8")
    assert 16.06 == round(answer(run, "--accelerator", "h200", "--model", str(tmp_path))["weights_bytes"] / 1e9, 2)


def test_only_a_plain_file_of_a_sane_size_is_read(run: Run, tmp_path: Path) -> None:
    """Devices and pipes are refused at once, and what is too large or nested too deep for a config, too."""
    os.mkfifo(tmp_path / "pipe.json")
    with open(tmp_path / "huge.json", "wb") as huge:
        huge.truncate((64 << 20) + 1)
    (tmp_path / "deep.json").write_text("[" * 100_000, encoding="utf-8")
    for path in (Path("/dev/zero"), tmp_path / "pipe.json"):
        assert "not a regular file" in told_of_model(run, path)
    assert "larger than 64 MiB" in told_of_model(run, tmp_path / "huge.json")
    assert "nested too deep" in told_of_model(run, tmp_path / "deep.json")


JUNK: tuple[Any, ...] = (None, True, -1, 0, 0.5, 1e400, 10**30, "x", "\x1b[2J", [], [1], [[]], {}, {"a": 1})


@pytest.mark.parametrize("base", [LLAMA_3_8B, MIXTRAL_8X7B], ids=["dense", "experts"])
def test_no_field_of_a_config_can_break_it(base: dict[str, Any]) -> None:
    """Whatever stands in any field that is read: a model with counts above zero, or a sentence."""
    fields = (
        *base, "n_embd", "head_dim", "kv_lora_rank", "layer_types", "interleave_moe_layer_step", "decoder_sparse_step",
        "num_experts", "n_routed_experts", "experts_per_token", "moe_intermediate_size", "shared_expert_intermediate_size",
        "n_shared_experts", "first_k_dense_replace", "mlp_only_layers", "n_inner", "dtype", "quantization_config",
        "sliding_window", "use_sliding_window", "text_config",
    )  # fmt: skip
    for name in fields:
        for value in JUNK:
            try:
                model, notes = model_of({**base, name: value})
            except ValueError as error:
                assert str(error).isprintable(), (name, value)
            else:
                assert model.params and model.params > 0, (name, value)
                assert all(map(str.isprintable, notes)), (name, value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"vocab_size": -1}, "vocab_size must be a positive whole number"),
        ({"kv_lora_rank": 512}, "multi-head latent attention"),
        ({"layer_types": ["linear_attention"]}, "linear_attention keep no plain KV cache"),
        ({"num_local_experts": 8}, "no num_experts_per_tok"),
        ({"hidden_size": 10**400}, "hidden_size is 10+\\.\\.\\., beyond every model"),
        ({"layer_types": 7}, "layer_types must be a list, not 7"),
        ({"layer_types": [["full_attention"]]}, "keep no plain KV cache"),
        ({"sliding_window": 128, "layer_types": ["sliding_attention"] * 33}, "names 33 layers, num_hidden_layers only 32"),
        ({"num_local_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": "two"}, "n_shared_experts must be a positive"),
        ({"num_local_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": 3}, "mlp_only_layers must be a list"),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 33},
            "33 layers without experts, of only 32",
        ),
    ],
)
def test_a_config_that_these_formulas_do_not_know(changes: dict[str, Any], expected: str) -> None:
    """A missing field or another kind of attention is refused, never guessed."""
    with pytest.raises(ValueError, match=expected):
        model_of(LLAMA_3_8B | changes)


@pytest.mark.parametrize(
    ("changes", "dtype", "kv_dtype"),
    [
        ({}, 2.0, 2.0),
        ({"torch_dtype": "float32"}, 4.0, 4.0),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, 0.5, 2.0),
        ({"quantization_config": {"quant_method": "fp8"}}, 1.0, 2.0),
        ({"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 8}}}}}, 1.0, 2.0),
    ],
)
def test_bytes_of_weights_and_cache_from_a_config(changes: dict[str, Any], dtype: float, kv_dtype: float) -> None:
    """Quantized weights shrink, the KV cache keeps the data type of the model."""
    model, _ = model_of(LLAMA_3_8B | changes)
    assert (dtype, kv_dtype) == (model.dtype_bytes, model.kv_dtype_bytes)


def test_sliding_windows_from_a_config() -> None:
    """`layer_types` says which layers look back no further than the window."""
    kinds = ["sliding_attention", "full_attention"] * 16
    model, _ = model_of(LLAMA_3_8B | {"sliding_window": 128, "layer_types": kinds})
    assert (128, 16) == (model.window, model.window_layers)


def test_units() -> None:
    """Counts are decimal, GB and GiB differ, k is 1,000 tokens and K 1,024."""
    assert (70e9, 1.5e12, 8500.0) == (read_count("70B"), read_count("1.5T"), read_count("8.5k"))
    assert (140e9, 15 * 2**30, 512.0) == (read_bytes("140 GB"), read_bytes("15.0GiB"), read_bytes("512"))
    assert (3.35e12, 3.35e12) == (read_bytes("3350", bare=1e9), read_bytes("3.35TB", bare=1e9))
    assert (8000, 8192, 16384) == (read_tokens("8k"), read_tokens("8K"), read_tokens("16,384"))
