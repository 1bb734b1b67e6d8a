"""rules/models: shapes against the sizes that their publishers print."""

import json

import pytest

from promptlint.catalog.models import load_models, model_from_config, resolve_model
from promptlint.errors import UserError

# Parameter counts as the model cards print them, in billions. Each follows from the row's shape, so a wrong width or layer count shows here.
PUBLISHED = {
    "Llama-2-7B": 6.74,
    "Llama-2-13B": 13.02,
    "Llama-2-70B": 68.98,
    "Llama-3.2-1B": 1.236,
    "Llama-3.2-3B": 3.21,
    "Llama-3.1-8B": 8.03,
    "Llama-3.1-70B": 70.55,
    "Llama-3.1-405B": 405.85,
    "Llama-4-Scout": 107.77,
    "Llama-4-Maverick": 400.71,
    "Qwen2.5-7B": 7.62,
    "Qwen2.5-14B": 14.77,
    "Qwen2.5-32B": 32.76,
    "Qwen2.5-72B": 72.71,
    "Qwen3-0.6B": 0.596,
    "Qwen3-4B": 4.02,
    "Qwen3-8B": 8.19,
    "Qwen3-14B": 14.77,
    "Qwen3-32B": 32.76,
    "Qwen3-30B-A3B": 30.53,
    "Qwen3-235B-A22B": 235.09,
    "Mistral-7B": 7.25,
    "Mistral-Small-24B": 23.57,
    "Mixtral-8x7B": 46.70,
    "Mixtral-8x22B": 140.62,
    "DeepSeek-V2-Lite": 15.71,
    "DeepSeek-V3": 671.03,
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "phi-4": 14.66,
    "gemma-2-9b": 9.24,
    "gemma-3-12b": 11.77,
    "gemma-3-27b": 27.01,
    "Nemotron-3-Nano-30B-A3B": 31.58,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_shape_gives_the_published_size(name):
    assert resolve_model(name).params / 1e9 == pytest.approx(PUBLISHED[name], rel=2e-3)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("deepseek-ai/DeepSeek-V3", "DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-V3.2", "DeepSeek-V3.2"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("LLAMA-3.1-8b", "Llama-3.1-8B"),
    ],
)
def test_names_are_found_however_hubs_spell_them(spelling, name):
    assert resolve_model(spelling).name == name


def test_an_unknown_name_is_refused_with_the_closest():
    with pytest.raises(UserError, match=r"Llama-3\.1-8B"):
        resolve_model("Llama-3.1-9B")


def test_moe_multiplies_only_the_chosen_experts():
    model = resolve_model("DeepSeek-V3")
    assert model.matmul_params / 1e9 == pytest.approx(
        35.7, rel=0.01
    )  # 37 B active, less both embeddings and the router's share
    assert resolve_model("Llama-3.1-8B").matmul_params == 6_979_321_856


def test_every_row_is_whole():
    for model in set(load_models().values()):
        assert model.layers > 0
        assert model.hidden > 0
        assert model.vocab > 1000
        assert model.source
        assert model.heads % model.kv_heads == 0
        assert not model.window_layers or model.window > 0
        assert not model.linear_layers or model.state_bytes > 0
        assert not model.is_moe or (model.experts_per_token and model.expert_width)


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def _config(tmp_path, **changes):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return path


def test_config_json_equals_the_row(tmp_path):
    _config(tmp_path)
    model = resolve_model(str(tmp_path))
    row = resolve_model("Llama-3.1-8B")
    assert (model.params, model.matmul_params, model.kv_heads, model.head_dim) == (
        row.params,
        row.matmul_params,
        row.kv_heads,
        row.head_dim,
    )


def test_config_json_with_windows_and_states(tmp_path):
    layers = ["sliding_attention", "full_attention"] * 16
    model = model_from_config(_config(tmp_path, layer_types=layers, sliding_window=128))
    assert (model.full_layers, model.window_layers, model.window, model.special_attention) == (
        16,
        16,
        128,
        "sliding-window",
    )
    layers = ["linear_attention"] * 24 + ["full_attention"] * 8
    gated = {
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    model = model_from_config(_config(tmp_path, layer_types=layers, **gated))
    assert model.special_attention == "hybrid"
    assert model.state_bytes == 24 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)


def test_config_json_of_a_multimodal_model_reads_its_text_part(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "x", "text_config": LLAMA, "vision_config": {"hidden_size": 7}}))
    assert model_from_config(path).hidden == 4096


def test_config_json_quantised(tmp_path):
    model = model_from_config(_config(tmp_path, quantization_config={"quant_method": "awq", "bits": 4}))
    assert model.weights == "int4"
    assert model.weight_bytes() / 1e9 == pytest.approx(5.73, abs=0.05)  # the size of the published AWQ checkpoint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"vocab_size": -1}, "vocab_size"),
        ({"compress_ratios": [0, 4]}, "compressed attention not modelled"),
        ({"layer_types": ["moonlight"] * 32}, "moonlight"),
        ({"quantization_config": {"quant_method": "magic"}}, "magic"),
    ],
)
def test_config_json_that_does_not_fit_is_refused_by_field(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        model_from_config(_config(tmp_path, **change))


@pytest.mark.parametrize("text", ["", "[]", "{", "3"])
def test_broken_config_json(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"config\.json"):
        model_from_config(path)
