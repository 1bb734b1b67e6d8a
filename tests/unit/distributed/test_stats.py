"""Counting by inputs gives the numbers of one pass over all of them."""

import json

import pytest

pytest.importorskip("pyarrow", reason="the stages keep parquet (extra ray)")

from unit.distributed import samples

from promptlint.app.traffic import Tokens, measure, open_traffic
from promptlint.distributed import inputs as inputs_module
from promptlint.distributed.runner import Here, Job
from promptlint.distributed.stats import run
from promptlint.errors import UserError
from promptlint.report.traffic import to_json
from promptlint.traffic.stats import Stats


def both(path, tmp_path, **options):
    alone = open_traffic([str(path)], **options)
    expected = measure(alone, Tokens())
    source = open_traffic([str(path)], **options)
    found = run(source, None, None, Job(tmp_path / "work", Here()))
    assert to_json(found, source.problems, source.skipped) == to_json(expected, alone.problems, alone.skipped)
    assert found == expected
    assert source.notes == alone.notes
    assert source.formats == alone.formats
    return found


def test_the_numbers_are_those_of_one_pass(tmp_path, monkeypatch):
    log = samples.write(tmp_path / "log", samples.rows(300))
    (log / "metrics.prom").write_text("# TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total 3\n")
    monkeypatch.setattr(inputs_module.inputs, "__kwdefaults__", {"size": 20_000})
    found = both(log, tmp_path)
    assert found.requests == 300
    assert found.usage_records == 100
    assert len(list((tmp_path / "work").iterdir())) > 4


def test_a_second_run_counts_nothing_again(tmp_path, monkeypatch):
    log = samples.write(tmp_path / "log", samples.rows(40))
    both(log, tmp_path)
    monkeypatch.setattr("promptlint.distributed.stats.measured", None)
    both(log, tmp_path)


def test_strict_and_empty(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"tokens": [1]}) + "\n{\n[1]\n")
    both(log, tmp_path)
    with pytest.raises(UserError, match=r"log\.jsonl:2"):
        run(open_traffic([str(log)], strict=True), None, None, Job(tmp_path / "work", Here()))
    found = Stats()
    found.merge(Stats())
    assert found == Stats()
