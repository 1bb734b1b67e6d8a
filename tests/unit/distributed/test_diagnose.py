"""Requests that workers have read are diagnosed as those that one process reads."""

import json

import pytest

pytest.importorskip("pyarrow", reason="the samples are parquet too (extra ray)")

from unit.distributed import samples

from promptlint.app import diagnose as pipeline
from promptlint.app.traffic import open_traffic
from promptlint.distributed import diagnose as distributed
from promptlint.distributed import inputs as inputs_module
from promptlint.distributed.runner import Here, Job
from promptlint.errors import UserError
from promptlint.report.diagnose import to_json
from promptlint.traffic.read import load


def both(path, tmp_path, **options):
    alone = open_traffic([str(path)])
    expected = pipeline.run(alone, **options)
    source = open_traffic([str(path)])
    read = distributed.read(source, Job(tmp_path / "work", Here()))
    found = pipeline.run(source, read=read, **options)
    assert found == expected
    assert to_json(found.diagnosis, found.problems) == to_json(expected.diagnosis, expected.problems)
    return found


def test_the_numbers_are_those_of_one_process(tmp_path, monkeypatch):
    rows = list(samples.rows(300))
    for number, row in enumerate(rows[::7]):  # a clock ahead of the system prompt
        head, *rest = row["messages"]
        row["messages"] = [{**head, "content": f"Now: 12:{number:02}. {head['content']}"}, *rest]
    log = samples.write(tmp_path / "log", rows)
    monkeypatch.setattr(inputs_module.inputs, "__kwdefaults__", {"size": 20_000})
    found = both(log, tmp_path)
    assert found.diagnosis.requests == 300
    assert found.diagnosis.divergences
    assert len(found.problems) == 2
    assert len(list((tmp_path / "work").iterdir())) > 4
    both(log, tmp_path, observed=0.2, tokenizer="o200k_base")


def test_records_are_read_back_as_they_were(tmp_path):
    rows = [
        {"id": 7, "messages": [{"role": "user", "content": [{"type": "text", "text": "a\\ud800", "cache_control": {"type": "ephemeral"}}]}], "priority": 1.5},
        {"model": "claude-sonnet-4-5", "system": [{"text": "x"}], "messages": [], "max_tokens": 3, "tool_choice": {"b": 1, "a": 2}, "usage": {"input_tokens": 3}},
        {"timestamp": 0.5, "hash_ids": [1, "two"], "input_length": 9, "cache_salt": ""},
        {"prompt": "é\u2028 "},
        {"tokens": [1, 2], "output": {"content": "x"}},
        {"messages": json.loads("[" * 400 + "]" * 400)},
    ]  # fmt: skip
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_traffic([str(log)])
    assert load(distributed.read(source, Job(tmp_path / "work", Here()))) == load(open_traffic([str(log)]))


def test_what_one_process_calls_nested_too_deeply_is_called_so(tmp_path):
    log = tmp_path / "log.jsonl"
    fine = json.dumps({"messages": [{"role": "user", "content": "x"}]})
    deep = '{"messages": [{"role": "user", "content": ' + "[" * 960 + "]" * 960 + "}]}"
    log.write_text(f"{fine}\n{deep}\n{fine}\n")
    both(log, tmp_path)


def test_a_second_run_reads_nothing_again(tmp_path, monkeypatch):
    log = samples.write(tmp_path / "log", samples.rows(40))
    first = both(log, tmp_path)
    monkeypatch.setattr(distributed.Read, "_write", None)
    source = open_traffic([str(log)])
    assert pipeline.run(source, read=distributed.read(source, Job(tmp_path / "work", Here()))) == first


def test_strict_ends_the_run(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt": "a"}\n{\n')
    with pytest.raises(UserError, match=r"log\.jsonl:2"):
        distributed.read(open_traffic([str(log)], strict=True), Job(tmp_path / "work", Here()))
