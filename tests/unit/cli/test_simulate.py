"""`promptlint simulate` as a command."""

import gzip
import json
import os
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from promptlint.cli import cli

CONFORMANCE = Path(__file__).parents[2] / "conformance"


def run(*args, **more):
    return CliRunner().invoke(cli, ["simulate", *map(str, args)], **more)


def answers(name, engine, label):
    return json.loads((CONFORMANCE / f"{name}.{engine}.json").read_text())["answers"][label]["cached"]


@pytest.mark.parametrize(
    ("options", "engine", "label"),
    [
        ((), "sglang", "unified-rust page=1 lru ample"),
        (("--page-size", 16, "--capacity-tokens", 692), "sglang", "unified-rust page=16 lru tight"),
        (("--eviction", "slru", "--capacity-tokens", 692), "sglang", "unified-rust page=1 slru tight"),
        (("--tree", "radix-nosplit", "--eviction", "priority", "--capacity-tokens", 692), "sglang", "radix-nosplit page=1 priority tight"),
        (("--chunk", 32, "--capacity-tokens", 692), "sglang", "unified-rust page=1 lru tight chunk=32"),
        (
            ("--schedule", "lpm", "--window", 64, "--batch-tokens", 1024, "--capacity-tokens", 692),
            "sglang",
            "unified-rust page=1 lru tight lpm window=64 batch=1024",
        ),
        (("--engine", "vllm", "--capacity-tokens", 692), "vllm", "manager block=16 tight"),
        (
            ("--engine", "vllm", "--schedule", "fcfs", "--batch-tokens", 128, "--capacity-tokens", 692),
            "vllm",
            "scheduler block=16 tight window=64 budget=128",
        ),
    ],
)  # fmt: skip
def test_the_command_gives_the_engines_answers(tmp_path, options, engine, label):
    out = tmp_path / "requests.jsonl"
    result = run(CONFORMANCE / "mixed_b.jsonl", *options, "--per-request", out, "--output-format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["cached_tokens"] for row in rows] == answers("mixed_b", engine, label)
    assert [row["id"] for row in rows] == list(range(120))
    report = json.loads(result.stdout)
    assert report["cached_tokens"] == sum(row["cached_tokens"] for row in rows)


def test_namespaces_on_the_command_line(tmp_path):
    out = tmp_path / "requests.jsonl"
    result = run(CONFORMANCE / "namespaces.jsonl", "--per-request", out, "--output-format", "json")
    cached = [json.loads(line)["cached_tokens"] for line in out.read_text().splitlines()]
    assert cached == answers("namespaces", "sglang", "unified-rust page=1 lru ample")
    assert {row["by"] for row in json.loads(result.stdout)["groups"]} == {"namespace"}


def test_standard_input_compressed_files_and_output_file(tmp_path):
    data = (CONFORMANCE / "mixed_a.jsonl").read_bytes()
    packed = tmp_path / "trace.jsonl.gz"
    packed.write_bytes(gzip.compress(data))
    out = tmp_path / "report.json"
    assert run(packed, "--output-format", "json", "-o", out).exit_code == 0
    piped = run("-", "--output-format", "json", input=data)
    assert json.loads(piped.stdout)["cached_tokens"] == json.loads(out.read_text())["cached_tokens"] == 1591


@pytest.mark.parametrize("curve", [[], ["--curve"]])
def test_a_pipe_is_read_once(tmp_path, curve):
    """As `promptlint simulate <(zcat log.gz)` gives one: what was looked at to choose an engine is gone from it, and so is all of it for a second pass."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=((CONFORMANCE / "mixed_a.jsonl").read_bytes(),))
    writer.start()
    report = json.loads(run(pipe, "--output-format", "json", *curve).stdout)
    writer.join()
    assert report["cached_tokens"] == 1591
    assert not curve or report["curve"][-1]["hit_rate"] == report["hit_rate"]


def test_hashed_blocks_default_to_block_lru(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "hash_ids": [1, 2], "input_length": 600, "output_length": 1}\n' * 2)
    report = json.loads(run(path, "--curve", "--output-format", "json").stdout)
    assert (report["engine"], report["unit"], report["hit_rate"], report["block_hit_rate"]) == (
        "block-lru",
        512,
        0.5,
        0.5,
    )
    assert report["curve"][0]["capacity_tokens"] == 512
    piped = run("-", "--output-format", "json", input=path.read_bytes())
    assert (json.loads(piped.stdout)["engine"], json.loads(piped.stdout)["requests"]) == ("block-lru", 2)
    report = json.loads(run(path, "--engine", "vllm", "--output-format", "json").stdout)
    assert report["cached_tokens"] == 592


def test_bad_lines_are_named_and_the_rest_is_replayed(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"id": 1, "tokens": [1, 2, 3]}\n{"id": 2, "tokens": [1, -2]}\n{"id": 3, "tokens": [1, 2, 3, 4, 5]}\n{"id": 4, "tokens": [1, 2, 3]}\n'
    )
    result = run(path, "--capacity-tokens", 4, "--output-format", "json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["requests"], report["refused"], report["cached_tokens"]) == (2, 1, 2)
    assert [(row["line"], row["field"]) for row in report["problems"]] == [(2, "tokens[1]"), (3, "tokens")]
    assert f"{path}:2: tokens[1]: expected a token id" in result.stderr
    assert f"{path}:3: tokens: needs 5 tokens of KV memory" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        (), ("nowhere.jsonl",), ("{empty}",), ("{bad}",), ("{good}", "--capacity-tokens", "many"), ("{good}", "--engine", "nope"),
        ("{good}", "--pace", "arrivals"), ("{good}", "--model", "Llama-3.1-8B", "--gpu", "abacus"),
        ("{good}", "--engine", "vllm", "--schedule", "lpm"), ("{good}", "--strict", "{bad}"), ("--explain-capacity",),
        ("{good}", "--per-request", "/nowhere/at/all"), ("{good}", "--tools", "{empty}"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_status_2(tmp_path, options):
    files = {"empty": "", "bad": '{"tokens": "x"}\n', "good": '{"tokens": [1, 2]}\n'}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    result = run(*[str(option).format(**{name: tmp_path / name for name in files}) for option in options])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_capacity_from_model_and_gpu():
    result = run("--explain-capacity", "--model", "Llama-3.1-8B", "--gpu", "H100")
    assert result.exit_code == 0
    assert "262,144,000 bytes once" in result.stdout
    result = run(
        CONFORMANCE / "mixed_a.jsonl",
        "--model",
        "Llama-3.1-8B",
        "--gpu",
        "H100",
        "--data-parallel",
        2,
        "--output-format",
        "json",
    )
    report = json.loads(result.stdout)
    assert report["capacity_tokens"] > 300_000
    assert len(report["replicas"]) == 2


def test_text_traffic_is_rendered_and_tokenised(tmp_path):
    path = tmp_path / "log.jsonl"
    system = {"role": "system", "content": "Answer from the manual only. " * 30}
    rows = [{"messages": [system, {"role": "user", "content": question}]} for question in ("Why?", "How?")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = json.loads(run(path, "--output-format", "json").stdout)
    assert report["cached_tokens"] > 150
    report = json.loads(run(path, "--engine", "anthropic", "--output-format", "json").stdout)
    assert report["cached_tokens"] == 0  # nothing is marked


def test_anthropic_marks_in_text_traffic(tmp_path):
    path = tmp_path / "log.jsonl"
    system = [{"type": "text", "text": "Answer from the manual only. " * 300, "cache_control": {"type": "ephemeral"}}]
    rows = [
        {
            "timestamp": at,
            "model": "claude-sonnet-4-5",
            "system": system,
            "messages": [{"role": "user", "content": "Why?"}],
        }
        for at in (0, 1_000, 1_000_000)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "requests.jsonl"
    assert run(path, "--engine", "anthropic", "--per-request", out).exit_code == 0
    cached = [json.loads(line)["cached_tokens"] for line in out.read_text().splitlines()]
    assert cached[0] == cached[2] == 0  # the third comes after five minutes
    assert cached[1] > 1_500


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--engine", "vllm", "--page-size", 4, "--eviction", "lfu"), ["--page-size", "--eviction"]),
        (("--window", 5, "--max-running", 2, "--router", "cache-aware"), ["--window", "--max-running", "--router"]),
        (("--model", "Llama-3.1-8B", "--kv-dtype", "fp8", "--delay", 3), ["--delay", "--model", "--kv-dtype"]),
        (("--engine", "openai", "--capacity-tokens", 50), ["--capacity-tokens"]),
        (("--schedule", "lpm", "--window", 5, "--page-size", 4, "--replicas", 2, "--router", "cache-aware"), []),
    ],
)
def test_options_without_effect_are_named(options, warned):
    result = run(CONFORMANCE / "mixed_a.jsonl", *options)
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert sorted(line.split()[1] for line in lines) == sorted(warned)
    assert all("has no effect: " in line for line in lines)


def test_an_unwritable_per_request_file_is_found_before_the_run(tmp_path, monkeypatch):
    def replayed(*_, **__):
        pytest.fail("the run began")

    monkeypatch.setattr("promptlint.app.simulate_command.simulate", replayed)
    assert run(CONFORMANCE / "mixed_a.jsonl", "--per-request", tmp_path).exit_code == 2


def test_no_rate_is_printed_for_no_request():
    result = run(CONFORMANCE / "mixed_a.jsonl", "--capacity-tokens", 5, "--page-size", 16)
    assert result.exit_code == 0
    assert "hit rate   none: no request was counted" in result.stdout
    assert "120 requests do not fit the capacity: left out of every rate" in result.stdout


def test_only_a_provider_needs_the_settings_of_a_project(tmp_path, monkeypatch):
    """Of what they say, a replay takes the terms of providers alone: a fault in them is none of an engine's."""
    monkeypatch.chdir(tmp_path)
    Path("promptlint.toml").write_text("no = toml = at all\n")
    Path("log.jsonl").write_text('{"token_ids": [1, 2, 3]}\n')
    assert run("log.jsonl").exit_code == run("log.jsonl", "--engine", "vllm").exit_code == 0
    told = run("log.jsonl", "--engine", "anthropic")
    assert told.exit_code == 2
    assert "promptlint.toml" in told.stderr
