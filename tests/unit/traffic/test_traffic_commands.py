"""The commands: convert, stats, anonymize, synth and diagnose, and what hostile input does to them."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import traffic_samples as S
from click.testing import CliRunner

from promptlint.app import traffic as pipeline
from promptlint.cli import cli
from promptlint.errors import UserError
from promptlint.traffic.read import Traffic
from promptlint.traffic.readers.safe_yaml import load_yaml
from promptlint.traffic.record import CACHE_READ
from promptlint.traffic.synth import PRESETS, generate


def promptlint(*arguments, **options):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], standalone_mode=True, **options)


def simulate(path, *options):
    out = path.parent / "per_request.jsonl"
    done = promptlint("simulate", path, "--per-request", out, "--no-bounds", *options)
    assert done.exit_code == 0, done.output
    return [json.loads(line)["cached_tokens"] for line in out.read_text().splitlines()]


def synth(tmp_path, preset, *options):
    path = tmp_path / f"{preset}.jsonl"
    assert promptlint("traffic", "synth", preset, "-o", path, *options).exit_code == 0
    return path


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_are_seeded_and_say_so(preset):
    first = [record.to_json() for record in generate(preset, requests=20, groups=2, prompts_per_group=3, system=50)]
    again = [record.to_json() for record in generate(preset, requests=20, groups=2, prompts_per_group=3, system=50)]
    other = [
        record.to_json() for record in generate(preset, requests=20, groups=2, prompts_per_group=3, system=50, seed=2)
    ]
    assert first == again != other
    assert all(row["synthetic"] == {"preset": preset, "seed": 1} for row in first)
    assert [row["timestamp"] for row in first] == sorted(row["timestamp"] for row in first)


def test_shared_prefix_has_sglangs_defaults():
    rows = list(generate("shared-prefix"))
    assert len(rows) == 64 * 16
    assert {len(row.token_ids) for row in rows} == {2048 + 128}
    assert {len(row.output_tokens) for row in rows} == {256}
    assert len({tuple(row.token_ids[:2048]) for row in rows}) == 64


def test_tree_hit_rate_follows_from_its_shape(tmp_path):
    """3 levels of 4 branches, nodes of 32 tokens: 1 + 4 + 16 + 64 nodes are computed once, the last token of each prompt always."""
    path = synth(tmp_path, "tree", "--system", 32, "--question", 8, "--requests", 64)
    cached = simulate(path)
    prompt = 32 * 4 + 8
    assert sum(cached) == 64 * prompt - (1 + 4 + 16 + 64) * 32 - 64 * 8


@pytest.mark.parametrize("preset", ["agent", "chat"])
@pytest.mark.parametrize("engine", [("sglang", "--page-size"), ("vllm", "--block-size")])
@pytest.mark.parametrize("page", [1, 16, 64])
def test_anonymous_traffic_hits_as_the_text_does(tmp_path, preset, engine, page):
    path = synth(tmp_path, preset, "--requests", 40, "--system", 120, "--document", 80)
    name, size = engine
    hidden = tmp_path / "hidden.jsonl"
    done = promptlint(
        "traffic",
        "anonymize",
        path,
        "--page",
        page,
        "--render",
        "plain-tags",
        "--tokenizer",
        "o200k_base",
        "-o",
        hidden,
    )
    assert done.exit_code == 0, done.output
    text = hidden.read_text()
    assert not any(word in text for word in ("people", "school", "tool_0", "call_0"))
    expected = simulate(path, "--engine", name, size, page)
    assert sum(expected) > 0
    assert simulate(hidden, "--engine", name, size, page) == expected


def test_anonymous_names_are_salted(tmp_path):
    path = synth(tmp_path, "chat", "--requests", 4)
    same = [promptlint("traffic", "anonymize", path, "--salt", "s").stdout for _ in range(2)]
    other = promptlint("traffic", "anonymize", path).stdout
    assert same[0] == same[1]
    assert json.loads(other.splitlines()[0])["hash_ids"] != json.loads(same[0].splitlines()[0])["hash_ids"]
    assert "session-" not in same[0]


def test_convert_and_stats(tmp_path):
    (tmp_path / "a.jsonl").write_text(S.CHAT["litellm"] + S.CHAT["langsmith"])
    out = tmp_path / "out.jsonl"
    assert promptlint("traffic", "convert", tmp_path / "a.jsonl", "-o", out).exit_code == 0
    records = list(Traffic([out]))
    assert [record.messages for record in records] == [S.MESSAGES] * 2
    assert records[0].usage[CACHE_READ] == 512
    row = json.loads(promptlint("traffic", "stats", out, "--output-format", "json").stdout)
    assert (row["requests"], row["observed"]["hit_rate"]) == (2, round(512 / 900, 6))
    assert "observed hit rate: 56.9%" in promptlint("traffic", "stats", out).stdout


def test_gzip_zstd_and_standard_input(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    data = S.CHAT["openai"].encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    assert len(list(Traffic([tmp_path]))) == 2
    done = promptlint("traffic", "convert", "-", input=data)
    assert json.loads(done.stdout)["messages"] == S.MESSAGES


def test_zstd_frames_and_a_truncated_one(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    rows = [json.dumps({"prompt": f"prompt {number}"}).encode() + b"\n" for number in range(3000)]
    frames = [
        zstandard.compress(b"".join(rows[:1000])),
        b"\x50\x2a\x4d\x18\x04\0\0\0skip",
        zstandard.compress(b"".join(rows[1000:])),
    ]
    (tmp_path / "whole.jsonl.zst").write_bytes(b"".join(frames))
    traffic = Traffic([tmp_path / "whole.jsonl.zst"])
    assert [record.prompt for record in traffic] == [f"prompt {number}" for number in range(3000)]
    assert traffic.problems == []
    (tmp_path / "cut.jsonl.zst").write_bytes(b"".join(frames)[:-30])
    traffic = Traffic([tmp_path / "cut.jsonl.zst"])
    assert len(list(traffic)) >= 1000
    assert [one.reason for one in traffic.problems] == ["compressed file is truncated"]


def test_a_line_that_is_no_json_is_a_problem_where_the_name_promises_json(tmp_path):
    text = json.dumps({"prompt": "one"}) + "\n\0\0\0\n" + '"content": "cut"}]}\n' + json.dumps({"prompt": "two"}) + "\n"
    for name, problems, skipped in (("log.jsonl", [2, 3], 0), ("server.log", [], 2)):
        (tmp_path / name).write_text(text)
        traffic = Traffic([tmp_path / name])
        assert [record.prompt for record in traffic] == ["one", "two"]
        assert ([one.line for one in traffic.problems], traffic.skipped) == (problems, skipped)


def test_what_was_lost_is_said_before_what_is_only_odd(tmp_path):
    rows = [json.dumps({"prompt": "one", "id": "same"})] * 60
    (tmp_path / "log.jsonl").write_text("\n".join([*rows, '{"prompt": "cut']))
    done = CliRunner().invoke(cli, ["simulate", str(tmp_path / "log.jsonl")])
    assert done.exit_code == 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert "log.jsonl:61: not valid JSON" in warnings[0]
    assert "repeats the id" in warnings[1]


def test_a_truncated_gzip_gives_all_lines_before_the_break(tmp_path):
    rows = "".join(S.line({"prompt": f"{n} {os.urandom(40).hex()}"}) for n in range(2000))
    data = gzip.compress(rows.encode())
    (tmp_path / "a.jsonl.gz").write_bytes(data[: len(data) // 2])
    (tmp_path / "b.jsonl").write_text(S.CHAT["openai"])
    traffic = Traffic([tmp_path])
    records = list(traffic)
    whole = zlib.decompressobj(31).decompress(data[: len(data) // 2]).count(b"\n")
    assert len(records) == whole + 1 > 500
    assert records[-1].messages == S.MESSAGES
    assert "truncated" in traffic.problems[-1].reason
    assert traffic.problems[-1].line == whole + 1


def test_gzip_members_padding_and_damage_behind_them(tmp_path):
    data = gzip.compress(S.line({"prompt": "a"}).encode())
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data + data + bytes(5000) + data)
    traffic = Traffic([path])
    assert len(list(traffic)) == 3
    assert traffic.problems == []
    path.write_bytes(data + data + b"more")
    assert len(list(traffic)) == 2
    assert "damaged" in traffic.problems[0].reason
    path.write_bytes(data[:2])
    assert list(traffic) == []
    assert "truncated" in traffic.problems[0].reason


def test_a_line_without_end_is_named_and_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("promptlint.traffic.files.MAX_LINE", 1000)
    monkeypatch.setattr("promptlint.traffic.files.lines.__kwdefaults__", {"first": 1, "limit": 1000}, raising=False)
    (tmp_path / "a.jsonl").write_text(
        S.line({"prompt": "a"}) + '{"prompt": "' + "x" * 5000 + '"}\n' + S.line({"prompt": "b"})
    )
    traffic = Traffic([tmp_path / "a.jsonl"])
    assert [record.prompt for record in traffic] == ["a", "b"]
    (problem,) = traffic.problems
    assert (problem.line, "longer than" in problem.reason) == (2, True)


def test_a_pickle_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path}/pwned",))

    request = {"text": S.PROMPT, "rid": "r1", "trouble": Evil()}
    dump = {
        "server_args": Evil(),
        "requests": [(request, {"text": " yes", "meta_info": {"prompt_tokens": 9, "cached_tokens": 3}}, 5.0, 6.0)],
    }
    (tmp_path / "dump.pkl").write_bytes(pickle.dumps(dump))
    traffic = Traffic([tmp_path / "dump.pkl"])
    (record,) = traffic
    assert traffic.problems == []
    assert (record.prompt, record.usage[CACHE_READ], record.timestamp) == (S.PROMPT, 3, 5000.0)
    assert not (tmp_path / "pwned").exists()
    (tmp_path / "dump.pkl").write_bytes(pickle.dumps({"requests": [(Evil(), {}, 5.0, 6.0)]}))
    assert list(traffic) == []
    (problem,) = traffic.problems
    assert (problem.field, problem.reason) == (
        "requests[0]",
        f"no request but a call of {os.name}.system, which was not run",
    )
    assert not (tmp_path / "pwned").exists()


def test_a_dump_of_request_objects_is_read_without_their_class(tmp_path):
    code = f"""
import dataclasses, pickle, sys, types
module = types.ModuleType("sglang_like"); sys.modules["sglang_like"] = module
@dataclasses.dataclass
class GenerateReqInput:
    text: str = None
    input_ids: list = None
    rid: str = None
GenerateReqInput.__module__ = "sglang_like"; module.GenerateReqInput = GenerateReqInput
rows = [(GenerateReqInput(input_ids=[1, 2, 3], rid="r"), [{{"output_ids": [4], "meta_info": {{"prompt_tokens": 3, "cached_tokens": 0}}}}], 1.0, 2.0)]
open({str(tmp_path / "d.pkl")!r}, "wb").write(pickle.dumps({{"requests": rows}}))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    (record,) = Traffic([tmp_path / "d.pkl"])
    assert (record.token_ids, record.output_tokens, record.id) == ([1, 2, 3], [4], "r")


@pytest.mark.parametrize("data", [b"\x80\x04garbage", pickle.dumps([1, 2])[:-3], pickle.dumps(5)])
def test_broken_pickles_are_problems(tmp_path, data):
    (tmp_path / "d.pkl").write_bytes(data)
    traffic = Traffic([tmp_path / "d.pkl"])
    assert list(traffic) == []
    assert len(traffic.problems) == 1


def test_billion_laughs(tmp_path):
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)
    ]
    with pytest.raises(UserError, match=r"bomb.yaml:\d+: aliases unfold to more than"):
        load_yaml("\n".join(rows), "bomb.yaml")
    with pytest.raises(UserError, match="contains itself"):
        load_yaml("a: &a [*a]", "loop.yaml")
    assert load_yaml("a: &a [1]\nb: *a", "fine.yaml") == {"a": [1], "b": [1]}
    (tmp_path / "cassette.yaml").write_text("interactions: []\n" + "\n".join(rows))
    (tmp_path / "z.jsonl").write_text(S.CHAT["openai"])
    traffic = Traffic([tmp_path])
    assert len(list(traffic)) == 1
    assert "aliases" in traffic.problems[0].reason


@pytest.mark.parametrize("data", [b"\xff\xfe\x00bad", b"[" * 100_000, b"{\n" * 50_000, b'{"messages": ' + b"[" * 5000 + b"\n", b"\x00\x01\x02", b'"text"\n', b"PAR1nonsense", b'{"prompt": "\xff"}\n'])  # fmt: skip
def test_nonsense_is_a_problem_and_nothing_else_is_lost(tmp_path, data):
    (tmp_path / "a.bin").write_bytes(data)
    (tmp_path / "b.jsonl").write_text(S.CHAT["openai"])
    traffic = Traffic([tmp_path])
    assert [record.messages for record in traffic] == [S.MESSAGES]
    assert traffic.problems
    assert all(problem.file.endswith("a.bin") for problem in traffic.problems)


def test_diagnose_command(tmp_path):
    rows = [{"model": "m", "messages": [{"role": "system", "content": f"Now 09:00:{n:02}. api_key=sk-abcdefghijklmnop1234 " + "Rule. " * 100}, {"role": "user", "content": "Hi"}]} for n in (1, 2)]  # fmt: skip
    path = tmp_path / "t.jsonl"
    path.write_text("".join(map(S.line, rows)) + "{broken\n")
    shared = tmp_path / "share.md"
    done = promptlint("diagnose", path, "--output-format", "json", "--share", shared)
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert list(row)[:5] == ["schema", "requests", "divergences", "causes", "likely_causes"]
    (one,) = row["divergences"]
    assert list(one) == [
        "request",
        "id",
        "relative",
        "path",
        "char",
        "token",
        "rule",
        "cause",
        "was",
        "now",
        "tokens_lost",
        "call_site",
        "observed_cached_tokens",
    ]
    assert (one["rule"], one["char"]) == ("clock-in-prefix", 11)
    assert len(row["likely_causes"]) == 3
    assert all(reason["confirm_with"].startswith("promptlint ") for reason in row["likely_causes"])
    assert row["summary"]["unreadable"][0]["line"] == 3
    for text in (done.stdout, shared.read_text(), promptlint("diagnose", path).output):
        assert "sk-abcdef" not in text
    assert "Now 09" not in shared.read_text()
    assert "Now 09" not in promptlint("diagnose", path, "--redact", "--output-format", "json").stdout
    assert promptlint("diagnose", path, "--strict").exit_code == 2


def test_errors_are_one_line(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    for arguments in (("diagnose", tmp_path / "none.jsonl"), ("diagnose", tmp_path / "empty.jsonl"), ("traffic", "convert", tmp_path / "empty.jsonl"), ("traffic", "synth", "nonsense"), ("diagnose", tmp_path / "empty.jsonl", "--format", "nope")):  # fmt: skip
        done = promptlint(*arguments)
        assert done.exit_code == 2
        assert done.output.count("\n") == 1
        assert "Traceback" not in done.output


def test_traffic_from_code(tmp_path):
    (tmp_path / "app.py").write_text('import openai\nRULES = "Answer from the manual only. " * 60\n\n\ndef ask(question: str) -> str:\n    return openai.OpenAI().chat.completions.create(model="gpt-4o", messages=[{"role": "system", "content": RULES}, {"role": "user", "content": question}])\n')  # fmt: skip
    rows = list(pipeline.from_code([tmp_path / "app.py"], "low", requests=12, seed=3))
    assert len(rows) == 12
    assert {row.call_site.rpartition("::")[0].rpartition("/")[2] for row in rows} == {"app.py::ask"}
    assert len({row.messages[0]["content"] for row in rows}) == 1
    assert len({row.messages[-1]["content"] for row in rows}) == 12


def test_traffic_from_a_workload(tmp_path):
    (tmp_path / "w.yaml").write_text("model: Llama-3.1-8B\ngpu: H100\narrivals: 4\noutput: 20\nrequests: 30\nprompt:\n  - {block: system, tokens: 64}\n  - {block: question, tokens: 8, varies: request}\n")  # fmt: skip
    path = tmp_path / "t.jsonl"
    assert promptlint("traffic", "synth", "--workload", tmp_path / "w.yaml", "-o", path).exit_code == 0
    assert len(set(simulate(path)[1:])) == 1


def test_stats_measure_the_holes_of_code():
    folder = Path(__file__).parents[3] / "examples" / "support_bot"
    text = promptlint("traffic", "stats", folder / "traffic.jsonl", "--code", folder).stdout
    assert "datetime.now().isoformat(): 18 values in 18 requests, 4.2 bits: request" in text
    row = json.loads(
        promptlint("traffic", "stats", folder / "traffic.jsonl", "--code", folder, "--output-format", "json").stdout
    )
    assert row["code"]["call_sites"][0]["requests"] == 18


@pytest.mark.parametrize("options", [("--engine", "sglang", "--page-size", 16), ("--engine", "block-lru")])
def test_anonymous_prompts_shorter_than_a_page_are_replayed_too(tmp_path, options):
    long = "hello there my friend, how are you today? I am fine and the weather is good too, so let us go out and walk in the park"
    path, hidden = tmp_path / "short.jsonl", tmp_path / "hidden.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("hi", long, "hi", long + " or not")))
    assert promptlint("traffic", "anonymize", path, "--page", 16, "-o", hidden).exit_code == 0
    assert simulate(hidden, *options) == [0, 0, 0, 16]


def test_usage_that_contradicts_itself_is_in_no_rate(tmp_path):
    """More cached tokens than prompt tokens: no command prints a hit rate of 500 %."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    lies = body | {"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 50}}}
    true = body | {"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}}
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in (lies, true)))
    said = {
        name: CliRunner().invoke(cli, [*name.split(), str(log)]).stdout
        for name in ("traffic stats", "diagnose", "simulate")
    }
    assert "40.0% (4 of 10 prompt tokens in 1 records)" in said["traffic stats"]
    assert "40.0" in said["diagnose"]
    assert "40.00 %" in said["simulate"]
    assert not any("500" in text for text in said.values())
