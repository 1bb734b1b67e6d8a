"""`promptlint advise` from end to end: the contract's JSON, traffic that is replayed in its new order, the decision record, and errors."""

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from promptlint.advisor.structured import installed
from promptlint.cli import cli

ROOT = Path(__file__).resolve().parents[3]
RULES = " ".join(f"Rule {n}: answer from the manual and quote the paragraph that you used." for n in range(30))


def run(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as ended:
        cli.main(["advise", *map(str, arguments)])
    out = capsys.readouterr()
    assert ended.value.code == status, out.err
    return out.out if status == 0 else out.err


def run_json(capsys, *arguments):
    return json.loads(run(capsys, *arguments, "--output-format", "json"))


def small(tmp_path, **changes):
    fields = {
        "model": "Llama-3.1-8B",
        "gpu": "H100",
        "current": "vllm",
        "output": "20",
        "requests": "80",
        "concurrency": "16",
        **changes,
    }
    text = "\n".join(f"{key}: {value}" for key, value in fields.items())
    path = tmp_path / "small.yaml"
    path.write_text(
        text + "\nprompt:\n  - {block: system, tokens: 600}\n  - {block: question, tokens: 40, varies: request}\n"
    )
    return path


def test_json_of_a_workload(capsys, tmp_path):
    data = run_json(capsys, "--workload", small(tmp_path, arrivals=5, ttft_ms=400), "--record", tmp_path / "record.md")
    assert data["schema"] == "promptlint.advise/1"
    (verdict,) = data["verdicts"]
    assert set(verdict) >= {"pool", "model", "verdict", "reasons", "would_change_if", "caveats"}
    assert verdict["model"] == "Llama-3.1-8B"
    assert all(set(reason) == {"fact", "value", "unit", "source"} for reason in verdict["reasons"])
    assert [lever["lever"] for lever in data["levers"]] == ["prompts", "routing", "capacity", "settings", "engine"]
    assert all(lever["alone"]["gpus"] == 1 for lever in data["levers"])
    assert {(row["engine"], row["schedule"]) for row in data["engines"]} == {
        ("sglang", "fcfs"),
        ("sglang", "lpm"),
        ("sglang", "dfs-weight"),
        ("vllm", "fcfs"),
    }
    for row in data["engines"]:
        assert set(row) >= {"hit_rate", "prefill_tokens", "requests_per_second", "ttft_p50_ms", "ttft_p99_ms"}
        assert sum(row["share"].values()) == pytest.approx(1, abs=1e-4)
        low, high = row["requests_per_second_range"]
        assert (low < row["requests_per_second"] < high) == (row["engine"] == "sglang")
    record = (tmp_path / "record.md").read_text()
    assert f"**Decision: {verdict['verdict']}.**" in record
    assert "Look at this again when:" in record
    assert "- an engine is upgraded beyond the version named under Inputs" in record
    assert "points away from the" in record
    assert "## Inputs" in record


def test_text_of_a_workload_begins_with_the_verdict(capsys, tmp_path):
    text = run(capsys, "--workload", small(tmp_path), "--no-tipping")
    assert text.splitlines()[0].startswith("small: ")
    assert "Rule, first match decides" in text
    assert "Assumptions:" in text
    assert re.search(r"seconds of a request, sglang \S+ less vllm fcfs: prefill [+-]\d", text)
    assert "SGLang faster by 8 % or more" in text
    assert not re.search(
        r"[a-z_]+\.[a-z_]+ >= ", text.split("Would change if:")[1].split("Caveats:")[0]
    )  # words, no names of facts


def test_measured_and_current_are_inputs(capsys, tmp_path):
    measured = tmp_path / "measured.json"
    measured.write_text('{"sglang": 12.0, "vllm": 10.0}')
    data = run_json(capsys, "--workload", small(tmp_path), "--measured", measured, "--no-tipping")
    assert data["verdicts"][0]["verdict"] == "adopt-sglang"
    data = run_json(
        capsys, "--workload", small(tmp_path), "--measured", measured, "--current", "sglang", "--no-tipping"
    )
    assert data["verdicts"][0]["verdict"] == "stay-on-sglang"


def test_own_gpus_and_thresholds(capsys, tmp_path):
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.toml").write_text(
        '[[gpu]]\nname = "Abacus"\ntflops = 500\nbandwidth = 2000\nmemory = 64\neff_compute = 0.5\neff_memory = 0.7\nsource = "our own measurement"\n'
    )
    (tmp_path / "verdict.toml").write_text("[verdict]\npays = 1.0\n")
    data = run_json(capsys, "--workload", small(tmp_path, gpu="Abacus"), "--extra-rules", tmp_path, "--no-tipping")
    assert "Abacus" in data["assumptions"]["pool"]


def test_an_api_is_judged_by_its_own_terms(capsys, tmp_path):
    path = tmp_path / "api.yaml"
    path.write_text(
        "current: provider\nprovider: anthropic\nmodel: claude-sonnet-4-6\noutput: 100\nrequests: 60\nprompt:\n"
        "  - {block: other, tokens: 20, varies: request, name: clock}\n  - {block: system, tokens: 3000}\n  - {block: question, tokens: 40, varies: request}\n"
    )
    data = run_json(capsys, "--workload", path)
    (verdict,) = data["verdicts"]
    facts = {reason["fact"]: reason["value"] for reason in verdict["reasons"]}
    assert verdict["verdict"] == "fix-prompts-first"
    assert (facts["hit_rate"], facts["break_even"]) == (0, 2)
    # 3 $ per million input tokens of 3,060 a request.
    assert facts["input_dollars"] == pytest.approx(facts["input_cost"] * 3060 * 3 / 1000, rel=1e-4)
    assert facts["input_dollars_then"] < facts["input_dollars"]
    assert facts["input_cost"] > 1.2  # everything that is marked is written again and never read
    assert data["reordering"][0]["to"] == ["system", "clock", "question"]
    saved = facts["input_dollars"] - facts["input_dollars_then"]
    assert data["reordering"][0]["money_saved"] == pytest.approx(saved, abs=1e-4)
    assert verdict["would_change_if"]
    assert "engines" not in data["assumptions"]
    assert "throughput" not in run(capsys, "--workload", path).split("Rule, first")[0]
    path.write_text(path.read_text().replace("  - {block: other, tokens: 20, varies: request, name: clock}\n", ""))
    assert run_json(capsys, "--workload", path)["verdicts"][0]["verdict"] == "stay-on-provider"


def write_chats(path, count=12):
    with path.open("w") as file:
        for n in range(count):
            system = f"You help.\nIt is 12:00:{n:02}.\n{RULES}\n"
            messages = [{"role": "system", "content": system}, {"role": "user", "content": f"question number {n}"}]
            file.write(
                json.dumps(
                    {
                        "id": f"r{n}",
                        "model": "gpt-4o",
                        "messages": messages,
                        "output": {"role": "assistant", "content": "fine"},
                    }
                )
                + "\n"
            )


def simulated(capsys, path):
    with pytest.raises(SystemExit):
        cli.main(["simulate", str(path), "--no-bounds", "--output-format", "json"])
    return json.loads(capsys.readouterr().out)["hit_rate"]


def test_the_promised_rate_is_that_of_the_moved_traffic(capsys, tmp_path):
    write_chats(tmp_path / "log.jsonl")
    data = run_json(capsys, "--traffic", tmp_path / "log.jsonl", "--write-traffic", tmp_path / "moved.jsonl")
    (row,) = data["reordering"]
    assert "It is 12:00:00." in row["moved"][0]
    assert row["hit_rate_now"] == pytest.approx(simulated(capsys, tmp_path / "log.jsonl"), abs=5e-4)
    assert row["hit_rate_then"] == pytest.approx(simulated(capsys, tmp_path / "moved.jsonl"), abs=5e-4)
    assert row["hit_rate_then"] > 0.7 > 0.1 > row["hit_rate_now"]
    assert row["money_saved"] > 0
    assert row["meaning_risk"].startswith("unsafe")


def test_engines_run_on_the_given_traffic(capsys, tmp_path):
    write_chats(tmp_path / "log.jsonl", 40)
    pool = tmp_path / "pool.yaml"
    pool.write_text("model: Llama-3.1-8B\ngpu: RTX 4090\ncurrent: vllm\nconcurrency: 8\n")
    data = run_json(capsys, "--traffic", tmp_path / "log.jsonl", "--workload", pool, "--no-tipping")
    (verdict,) = data["verdicts"]
    assert verdict["verdict"] == "fix-prompts-first"
    assert data["assumptions"]["prompts"] == "the given traffic"
    prompts = data["levers"][0]
    assert prompts["alone"]["hit_rate"] == pytest.approx(
        data["reordering"][0]["hit_rate_then"], abs=0.06
    )  # blocks of 16, several at once
    assert prompts["alone"]["gain"] > 1.1
    assert len({row["prefill_tokens"] for row in data["engines"]}) > 1


def test_traffic_without_answers_needs_their_length(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"prompt": f"{RULES}\nquestion {n}"}) + "\n" for n in range(8)))
    pool = tmp_path / "pool.yaml"
    pool.write_text("model: Llama-3.1-8B\ngpu: H100\ncurrent: vllm\nconcurrency: 8\n")
    assert "output: the traffic does not say" in run(
        capsys, "--traffic", log, "--workload", pool, "--no-tipping", status=2
    )
    pool.write_text(pool.read_text() + "output: 50\n")
    assert run_json(capsys, "--traffic", log, "--workload", pool, "--no-tipping")["verdicts"]


def test_any_order_can_be_tried(capsys, tmp_path):
    write_chats(tmp_path / "log.jsonl")
    (row,) = run_json(capsys, "--traffic", tmp_path / "log.jsonl", "--apply-order", "question,system")["reordering"]
    assert row["to"] == ["question", "system"]
    assert row["hit_rate_then"] <= row["hit_rate_now"] + 0.01


def test_rows_of_a_batch_job_change_places(capsys, tmp_path):
    log = tmp_path / "rows.jsonl"
    films = [f"film {n} " * 60 for n in range(4)]
    rows = [{"id": n, "film": films[n * 7 % 4], "review": f"review number {n}"} for n in range(40)]
    log.write_text(
        "".join(
            json.dumps({"id": f"r{row['id']}", "prompt": f"Judge.\n{json.dumps(row)}\nAnswer:"}) + "\n" for row in rows
        )
    )
    (row,) = run_json(capsys, "--traffic", log, "--batch", "--write-traffic", tmp_path / "moved.jsonl")["reordering"]
    assert row["to"] == ["film", "id", "review"]
    assert row["hit_rate_then"] > 0.75 > 0.2 > row["hit_rate_now"]
    assert row["hit_rate_then"] == pytest.approx(simulated(capsys, tmp_path / "moved.jsonl"), abs=5e-4)
    written = [json.loads(line)["id"] for line in (tmp_path / "moved.jsonl").read_text().splitlines()]
    assert sorted(written) == sorted(f"r{n}" for n in range(40))


def test_a_fleet_file_gets_a_verdict_for_each_pool(capsys, tmp_path):
    path = small(tmp_path)
    path.write_text(path.read_text() + "pools:\n  - {name: a}\n  - {name: b, gpu: L40S, current: sglang}\n")
    data = run_json(capsys, "--workload", path, "--no-tipping")
    assert [(row["pool"], row["current"]) for row in data["verdicts"]] == [("a", "vllm"), ("b", "sglang")]
    assert {row["pool"] for row in data["engines"]} == {"a", "b"}


def test_the_workload_of_the_guide_runs(capsys, tmp_path):
    guide = (ROOT / "examples" / "skill-radix-scheduler-advisor.md").read_text()
    text = guide.split("```yaml\n", 1)[1].split("```", 1)[0]
    (tmp_path / "workload.yaml").write_text(text + "requests: 60\n")
    data = run_json(capsys, "--workload", tmp_path / "workload.yaml", "--no-tipping")
    assert data["verdicts"][0]["pool"] == "support agent"


def test_code_alone_works_from_the_profile_and_says_so(capsys):
    data = run_json(capsys, ROOT / "examples" / "support_bot")
    assert data["assumptions"]["profile"] == "typical"
    assert "inferred from the sinks" in data["assumptions"]["current"]
    (verdict,) = data["verdicts"]
    assert (verdict["model"], verdict["current"], verdict["verdict"]) == (
        "gpt-4o-mini",
        "provider",
        "fix-prompts-first",
    )
    assert all("profile typical" in reason["source"] for reason in verdict["reasons"][:2])
    facts = {reason["fact"]: reason["value"] for reason in verdict["reasons"]}
    # The saving formula: a cached token costs half of an uncached one with this model.
    assert facts["input_cost"] == pytest.approx(1 - facts["hit_rate"] / 2, abs=1e-5)
    assert facts["input_dollars_then"] < facts["input_dollars"]
    fixed = run_json(capsys, ROOT / "examples" / "support_bot_fixed")["verdicts"]
    assert [row["verdict"] for row in fixed] == ["stay-on-provider"]
    own = run_json(capsys, ROOT / "examples" / "support_bot_fixed", "--current", "vllm")["verdicts"]
    assert [(row["verdict"], row["rule"]) for row in own] == [
        ("measure-first", "prompts alone say nothing about engines")
    ]
    assert any(row["hit_rate_then"] > row["hit_rate_now"] + 0.3 for row in data["reordering"])


def test_breakpoints_that_are_missing_come_first(capsys, tmp_path):
    call = "anthropic.Anthropic().messages.create(model='claude-sonnet-4-6', max_tokens=9, system={system}, messages=[{{'role': 'user', 'content': text}}])"
    head = f"import anthropic\nRULES = {RULES * 6!r}\ndef ask(text):\n    return "
    path = tmp_path / "app.py"
    path.write_text(head + call.format(system="RULES"))
    (verdict,) = run_json(capsys, path)["verdicts"]
    assert (verdict["verdict"], verdict["rule"]) == ("tune-first", "mark the prefixes")
    facts = {reason["fact"]: reason["value"] for reason in verdict["reasons"]}
    assert (facts["hit_rate"], facts["prompts.hit_rate_gain"]) == (0, 0)
    assert facts["breakpoints.hit_rate_gain"] > 0.8
    # A server of one's own behind the same client needs no marks.
    assert run_json(capsys, path, "--current", "vllm")["verdicts"][0]["reasons"][0]["value"] > 0.8
    marked = "[{'type': 'text', 'text': RULES, 'cache_control': {'type': 'ephemeral'}}]"
    path.write_text(head + call.format(system=marked))
    assert run_json(capsys, path)["verdicts"][0]["verdict"] == "stay-on-provider"


def test_prompts_of_an_unknown_client_are_judged_too(capsys, tmp_path):
    (tmp_path / "app.py").write_text(
        f"import uuid\nRULES = {RULES!r}\ndef ask(llm, text):\n"
        "    return llm.chat([{'role': 'system', 'content': f'id {uuid.uuid4()}\\n{RULES}'}, {'role': 'user', 'content': text}])\n"
    )
    (verdict,) = run_json(capsys, tmp_path / "app.py")["verdicts"]
    assert (verdict["current"], verdict["rule"]) == ("none", "fix the prompts, by code or traffic alone")


def test_schemas_are_counted_and_their_grammars_are_potential_only(capsys, tmp_path):
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    schema["additionalProperties"] = False
    spelled = {"type": "json_schema", "json_schema": {"name": "invoice", "strict": True, "schema": schema}}
    (tmp_path / "app.py").write_text(
        f"import openai\nclient = openai.OpenAI()\nRULES = {RULES!r}\nSCHEMA = {spelled!r}\n"
        "def ask(text):\n"
        "    messages = [{'role': 'system', 'content': RULES}, {'role': 'user', 'content': text}]\n"
        "    return client.chat.completions.create(model='gpt-4o-mini', messages=messages, response_format=SCHEMA)\n"
    )
    log = tmp_path / "log.jsonl"
    row = {"model": "gpt-4o-mini", "prompt": RULES, "response_format": spelled, "output": '{"total": 12.5}'}
    log.write_text("".join(json.dumps({**row, "id": str(n)}) + "\n" for n in range(5)))
    code, traffic = run_json(capsys, tmp_path / "app.py"), run_json(capsys, "--traffic", log)
    assert code["assumptions"]["structured_output"] == "1 of 1 call sites use a schema"
    assert traffic["assumptions"]["structured_output"] == "5 of 5 requests use a schema"
    if not installed():
        assert code["structured"] == traffic["structured"] == []
        assert "promptlint-cache[structured]" in run(capsys, tmp_path / "app.py")
        return
    for data, basis in ((code, "an example answer"), (traffic, "5 answers of the traffic")):
        (found,) = data["structured"]
        assert (found["schema"], found["realised"]) == ("invoice", False)
        assert found["basis"].startswith(basis)
        assert 0 < found["forced_share"][0] <= found["forced_share"][1] < 1


def test_with_nothing_read_it_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = run(capsys)
    assert "No call site was read" in text
    assert "gains" not in text


def test_eight_percent_ends_with_causes_and_commands(capsys, tmp_path):
    data = run_json(capsys, "--workload", small(tmp_path, observed_hit_rate=0.08), "--no-tipping")
    assert len(data["likely_causes"]) >= 3
    assert all(cause["confirm_with"].startswith("promptlint") for cause in data["likely_causes"])
    write_chats(tmp_path / "log.jsonl")
    data = run_json(capsys, "--traffic", tmp_path / "log.jsonl", "--observed", "0.08")
    assert data["likely_causes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "nowhere.yaml"], "nowhere.yaml"),
        (["--traffic", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--apply-order", "system", "."], "need --traffic"),
        (["--current", "trt"], "trt"),
    ],
)
def test_what_does_not_fit_gets_one_line(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in run(capsys, *arguments, status=2)


def test_broken_measurements_are_refused(capsys, tmp_path):
    for text in ("{", "[]", '{"sglang": 3}', '{"sglang": 0, "vllm": 3}', '{"sglang": "fast", "vllm": 3}'):
        (tmp_path / "measured.json").write_text(text)
        assert "measured.json" in run(
            capsys, "--workload", small(tmp_path), "--measured", tmp_path / "measured.json", status=2
        )


# --- public data, where it is present


def data_file(name):
    folder = os.environ.get("PROMPTLINT_DATA", "")
    path = Path(folder) / name
    if not folder or not path.is_file():
        pytest.skip(f"not run: PROMPTLINT_DATA has no {name}")
    return path


@pytest.mark.data
def test_airline_with_its_clock_line(capsys, tmp_path):
    tools = json.loads(data_file("tau_airline_tools.json").read_text())
    log = tmp_path / "tau.jsonl"
    count = 0
    with gzip.open(data_file("tau_airline_trajectories.jsonl.gz"), "rt") as source, log.open("w") as file:
        for line in source:
            conversation = json.loads(line)
            for index, answer in enumerate(conversation["messages"]):
                if answer["role"] != "assistant":
                    continue
                clock = f"{15 + count // 3600}:{count // 60 % 60:02}:{count % 60:02}"
                sent = [
                    {**message, "content": message["content"].replace("15:00:00", clock)}
                    if message["role"] == "system"
                    else message
                    for message in conversation["messages"][:index]
                ]
                record = {
                    "id": f"r{count}",
                    "session_id": conversation["session"],
                    "tools": tools,
                    "messages": sent,
                    "output": answer,
                }
                file.write(json.dumps(record) + "\n")
                count += 1
    data = run_json(capsys, "--traffic", log, "--tokenizer", "cl100k_base", "--write-traffic", tmp_path / "moved.jsonl")
    (row,) = data["reordering"]
    assert "The current time is 2024-05-15 15:00:00 EST." in row["moved"][0]
    assert row["hit_rate_now"] == pytest.approx(0.4051, abs=1e-3)
    assert row["hit_rate_then"] > 0.94
    with pytest.raises(SystemExit):
        cli.main(
            [
                "simulate",
                str(tmp_path / "moved.jsonl"),
                "--tokenizer",
                "cl100k_base",
                "--no-bounds",
                "--output-format",
                "json",
            ]
        )
    assert row["hit_rate_then"] == pytest.approx(json.loads(capsys.readouterr().out)["hit_rate"], abs=5e-4)


@pytest.mark.data
def test_gsm8k_with_the_question_first(capsys, tmp_path):
    items = [json.loads(line) for line in data_file("gsm8k_train_head64.jsonl").read_text().splitlines()[:8]]
    shots = "".join(f"Question: {item['question']}\nAnswer: {item['answer']}\n\n" for item in items)
    log = tmp_path / "gsm8k.jsonl"
    with gzip.open(data_file("gsm8k_test.jsonl.gz"), "rt") as source, log.open("w") as file:
        for line in source:
            item = json.loads(line)
            file.write(
                json.dumps({"prompt": f"Question: {item['question']}\nAnswer:{shots}", "output": f" {item['answer']}"})
                + "\n"
            )
    (row,) = run_json(capsys, "--traffic", log, "--tokenizer", "cl100k_base")["reordering"]
    assert row["hit_rate_now"] == pytest.approx(0.0024, abs=1e-4)
    assert row["hit_rate_then"] == pytest.approx(0.9489, abs=2e-4)


def test_advice_is_for_the_given_paths(capsys, tmp_path, monkeypatch):
    """The rest of the project is context, as for `check`: its own prompts get no advice."""
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("mine", "other"):
        (tmp_path / f"{name}.py").write_text(
            "import datetime\nfrom openai import OpenAI\n"
            f"RULES = {(name + RULES)!r}\n"
            "def ask(q):\n"
            "    return OpenAI().chat.completions.create(model='gpt-4o', messages=[\n"
            "        {'role': 'system', 'content': f'{datetime.datetime.now()} {RULES}'}, {'role': 'user', 'content': q}])\n"
        )
    monkeypatch.chdir(tmp_path)
    both = run_json(capsys, ".")
    assert {row["call_site"].partition(".py")[0] for row in both["reordering"]} == {"mine", "other"}
    one = run_json(capsys, "mine.py")
    assert {row["call_site"].partition(".py")[0] for row in one["reordering"]} == {"mine"}
    assert one["assumptions"]["call_sites"] == 1
