"""Published traffic with known hit rates (cl100k, cache without limit, one request at a time), four digits at four block sizes.

Reads public data that is not part of the project: set PROMPTLINT_DATA to its folder. Without it the test is not run.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from promptlint.advisor.diagnose import diagnose
from promptlint.app.traffic import Tokens, open_traffic, token_counter
from promptlint.cli import cli
from promptlint.tokenizers import get
from promptlint.tokenizers.render import Conversation, plain_tags
from promptlint.tokenizers.segments import SegmentTokenizer
from promptlint.traffic.read import load

pytestmark = pytest.mark.data
BLOCKS = (1, 16, 64, 128)


@pytest.fixture
def data():
    folder = os.environ.get("PROMPTLINT_DATA")
    if not folder:
        pytest.skip("not run: PROMPTLINT_DATA names no folder")
    return Path(folder)


def rates(path, *options):
    found = []
    for block in BLOCKS:
        done = CliRunner().invoke(cli, ["simulate", str(path), "--engine", "sglang", "--page-size", str(block), "--no-bounds", "--tokenizer", "cl100k_base", "--render", "plain-tags", "--output-format", "json", *map(str, options)])  # fmt: skip
        assert done.exit_code == 0, done.output
        found.append(round(json.loads(done.stdout)["hit_rate"], 4))
    return found, json.loads(done.stdout)


def airline(data):
    return open_traffic(
        [data / "tau_airline_trajectories.jsonl.gz"], form="conversations", tools=data / "tau_airline_tools.json"
    )


def ticking(data):
    """The airline traffic with the policy's clock one second further in every request."""
    for number, record in enumerate(airline(data)):
        seconds = 15 * 3600 + number
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        head = record.messages[0]
        record.messages = [{**head, "content": head["content"].replace("15:00:00", clock)}, *record.messages[1:]]
        yield record


def as_tokens(tmp_path, records, *, swap=False, shuffle=False):
    """The records as token ids; with `swap` the system message stands ahead of the tools."""
    segments = SegmentTokenizer(get("cl100k_base"))
    order = random.Random(0)
    path = tmp_path / "tokens.jsonl"
    with path.open("w") as file:
        for record in records:
            tools = order.sample(record.tools, len(record.tools)) if shuffle else record.tools
            rendered = plain_tags(Conversation(record.messages, tools, None, record.output))
            runs, kept = rendered.prompt, rendered.stored
            if swap:
                runs[:2], kept[:2] = runs[1::-1], kept[1::-1]
            prompt, stored = segments.ids(runs), segments.ids(kept)
            assert stored[: len(prompt)] == prompt
            file.write(json.dumps({"token_ids": prompt, "output_tokens": [*stored[len(prompt) :], 0]}) + "\n")
    return path


def test_airline(data):
    found, report = rates(
        data / "tau_airline_trajectories.jsonl.gz",
        "--format",
        "conversations",
        "--tools",
        data / "tau_airline_tools.json",
    )
    assert found == [0.9720, 0.9704, 0.9652, 0.9587]
    assert (report["requests"], report["prompt_tokens"]) == (1229, 6058951)


def test_airline_with_a_ticking_clock_and_the_system_text_first(data, tmp_path):
    assert rates(as_tokens(tmp_path, ticking(data)))[0] == [0.4051, 0.4021, 0.4021, 0.3891]
    assert rates(as_tokens(tmp_path, ticking(data), swap=True))[0] == [0.0055, 0.0032, 0.0, 0.0]
    shuffled = rates(as_tokens(tmp_path, airline(data), shuffle=True))[0]
    assert shuffled == pytest.approx([0.06, 0.06, 0.06, 0.05], abs=0.01)


def test_the_diagnosis_names_the_clock_and_what_it_costs(data):
    count = token_counter(Tokens().segments("cl100k_base"))
    calm, found = diagnose(load(airline(data)), count), diagnose(load(ticking(data)), count)
    assert calm.divergences == []
    assert [cause.rule for cause in found.causes] == ["clock-in-prefix"]
    assert len(found.divergences) == 1228
    assert {one.path for one in found.divergences} == {"messages[0].content"}
    assert found.causes[0].hit_rate_if_fixed == pytest.approx(calm.hit_rate, abs=1e-4)


def test_coding_agents(data):
    found, report = rates(data / "sweagent_demos.jsonl.gz", "--format", "conversations")
    assert found == [0.8865, 0.8849, 0.8802, 0.8740]
    assert (report["requests"], report["prompt_tokens"]) == (230, 1164210)


@pytest.mark.parametrize(
    ("first", "expected"), [(True, [0.9489, 0.9407, 0.9138, 0.8601]), (False, [0.0024, 0.0, 0.0, 0.0])]
)
def test_few_shot_questions(data, tmp_path, first, expected):
    shots = [json.loads(line) for line in (data / "gsm8k_train_head64.jsonl").read_text().splitlines()[:8]]
    head = "".join(f"Question: {shot['question']}\nAnswer: {shot['answer']}\n\n" for shot in shots)
    path = tmp_path / "gsm8k.jsonl"
    with gzip.open(data / "gsm8k_test.jsonl.gz", "rt") as source, path.open("w") as file:
        for line in source:
            row = json.loads(line)
            text = (
                f"{head}Question: {row['question']}\nAnswer:"
                if first
                else f"Question: {row['question']}\n\n{head}Answer:"
            )
            file.write(json.dumps({"prompt": text, "output": " " + row["answer"]}) + "\n")
    assert rates(path)[0] == expected
