"""KV bytes and pools: exact figures, and the ways in which dividing by the number of GPUs is wrong."""

import pytest

from promptlint.catalog.hardware import resolve_gpu
from promptlint.catalog.models import resolve_model
from promptlint.errors import UserError
from promptlint.serving.capacity import capacity, explain_capacity, kv_bytes, kv_bytes_per_token

H100 = resolve_gpu("H100")


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("Llama-3.1-8B", 131_072),
        ("Llama-3.1-70B", 327_680),
        ("Llama-2-7B", 524_288),
        ("Qwen3-8B", 147_456),
        ("Qwen3-0.6B", 114_688),
        ("DeepSeek-V3", 70_272),
    ],
)
def test_bytes_per_token(name, per_token):
    model = resolve_model(name)
    assert kv_bytes_per_token(model) == per_token
    assert kv_bytes_per_token(model, kv_dtype="fp8") == per_token / 2


def test_a_prefix_of_2000_tokens():
    assert kv_bytes(resolve_model("Llama-3.1-8B"), 2000) == 262_144_000


@pytest.mark.parametrize(
    ("gpu", "thousand_tokens"),
    [
        ("H100", 414),
        ("A100-80", 414),
        ("H200", 824),
        ("B200", 1086),
        ("L40S", 200),
        ("RTX 4090", 39),
        ("RTX 5090", 92),
        ("MI300X", 1167),
    ],
)
def test_pool_of_an_8b_model(gpu, thousand_tokens):
    assert capacity(resolve_model("Llama-3.1-8B"), resolve_gpu(gpu)).tokens / 1000 == pytest.approx(
        thousand_tokens, abs=1
    )


def test_pool_of_70b_over_four():
    assert capacity(resolve_model("Llama-3.1-70B"), H100, tensor_parallel=4).tokens / 1000 == pytest.approx(428, abs=1)


def test_a_latent_is_whole_on_every_rank():
    found = capacity(resolve_model("DeepSeek-V3"), H100, tensor_parallel=16)
    divided = found.pool_bytes / (70_272 / 16)  # what dividing everything by tp would give
    assert found.tokens == pytest.approx(divided / 16, rel=1e-5)


def test_data_parallel_attention_makes_caches_of_their_own():
    model, gpu = resolve_model("DeepSeek-V3"), resolve_gpu("H200")
    whole = capacity(model, gpu, tensor_parallel=8)
    apart = capacity(model, gpu, tensor_parallel=8, data_parallel=8, dp_attention=True)
    assert (whole.replicas, apart.replicas, whole.gpus, apart.gpus) == (1, 8, 8, 8)
    assert (
        apart.tokens < whole.tokens < 8 * apart.tokens
    )  # each rank also holds all attention weights, but eight latents differ
    assert apart.kv_bytes_per_token == whole.kv_bytes_per_token


def test_more_ranks_than_kv_heads_repeat_them():
    model = resolve_model("Llama-3.1-70B")
    assert kv_bytes_per_token(model, parallel=8) == 327_680 / 8
    assert kv_bytes_per_token(model, parallel=16) == 327_680 / 8  # 8 KV heads: one a rank at most


def test_data_parallel_multiplies_replicas_not_tokens():
    one = capacity(resolve_model("Llama-3.1-8B"), H100)
    four = capacity(resolve_model("Llama-3.1-8B"), H100, data_parallel=4)
    assert (four.tokens, four.replicas, four.gpus) == (one.tokens, 4, 4)


def test_windows_hold_no_more_than_their_window():
    model = resolve_model("gpt-oss-20b")  # 12 full layers, 12 with a window of 128; 8 KV heads of 64
    layer = 2 * 8 * 64 * 2
    assert kv_bytes(model, 100) == 24 * 100 * layer
    assert kv_bytes(model, 10_000) == 12 * 10_000 * layer + 12 * 128 * layer
    assert kv_bytes_per_token(model, context=10_000) == kv_bytes(model, 10_000) / 10_000


def test_a_state_does_not_grow():
    model = resolve_model("Qwen3.5-27B")
    growth = kv_bytes(model, 2000) - kv_bytes(model, 1000)
    assert growth == 1000 * 16 * 2 * 4 * 256 * 2  # only the 16 full layers
    assert kv_bytes(model, 1) > 100_000_000
    assert kv_bytes(model, 0) == 0


def test_indexer_keys_come_on_top():
    dense, sparse = resolve_model("DeepSeek-V3"), resolve_model("DeepSeek-V3.2")
    assert kv_bytes_per_token(sparse) - kv_bytes_per_token(dense) == 61 * 132


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("Llama-3.1-70B", {}, "fits from tensor parallel 4 on"),
        ("Llama-3.1-8B", {"tensor_parallel": 3}, "does not divide the 32 heads"),
        ("phi-4", {"tensor_parallel": 4}, "10 KV heads"),
        ("Llama-3.1-8B", {"tensor_parallel": 0}, "at least 1"),
        ("Llama-3.1-8B", {"data_parallel": 0}, "at least 1"),
        ("Llama-3.1-8B", {"kv_dtype": "fp7"}, "fp7"),
        ("Llama-3.1-8B", {"memory_fraction": 1.2}, "memory fraction"),
    ],
)
def test_impossible_input_is_refused(model, options, message):
    with pytest.raises(UserError, match=message):
        capacity(resolve_model(model), H100, **options)


def test_explained():
    text = explain_capacity(capacity(resolve_model("Llama-3.1-8B"), H100))
    assert "32 layers x 8 KV heads (max(1, 8 / 1)) x 2 x 128 x 2 bytes" in text
    assert "262,144,000 bytes once, 4,194,304,000 bytes for 16 sequences without reuse" in text
    assert "80 GB x 0.88 - 16.06 GB weights = 54.34 GB" in text
    assert "whole on each of 16 rank(s)" in explain_capacity(
        capacity(resolve_model("DeepSeek-V3"), H100, tensor_parallel=16)
    )
