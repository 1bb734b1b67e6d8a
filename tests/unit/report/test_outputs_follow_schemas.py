"""Every JSON output follows the schema that is published for it, and the schemas are tight: a field that is lost or made up is refused."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from desk_project import promptlint

from promptlint.app.schemas import PUBLISHED
from promptlint.recording.measured import Measurement, Varying
from promptlint.report import perturb

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "promptlint" / "schemas"
TRAFFIC = "examples/support_bot/traffic.jsonl"
CODE = "examples/support_bot"

# Schema, command, and places that the output must fill so that the test means something.
OUTPUTS = [
    ("check", ("check", CODE, "--no-cache", "--output-format", "json"), ("findings", "call_sites")),
    ("check", ("check", CODE, "--no-cache", "--persona", "auditor", "--traffic", TRAFFIC, "--output-format", "json"), ("findings",)),
    ("check", ("show", CODE, "--no-cache", "--output-format", "json"), ("call_sites",)),
    ("diff", ("diff", CODE, CODE + "_fixed", "--traffic", TRAFFIC, "--output-format", "json"), ("call_sites", "fixed_findings", "replay")),
    ("simulate", ("simulate", TRAFFIC, "--curve", "--capacity-tokens", "9000", "--output-format", "json"), ("groups", "replicas", "curve", "bounds")),
    ("simulate", ("simulate", TRAFFIC, "--schedule", "lpm", "--sample", "0.5", "--output-format", "json"), ("stats", "sampling")),
    ("simulate", ("simulate", TRAFFIC, "--engine", "openai", "--output-format", "json"), ("cost",)),
    ("simulate", ("simulate", "odd.jsonl", "--output-format", "json"), ("problems", "observed")),
    ("diagnose", ("diagnose", TRAFFIC, "--code", CODE, "--output-format", "json"), ("divergences", "causes")),
    ("diagnose", ("diagnose", "odd.jsonl", "--redact", "--output-format", "json"), ("summary",)),
    ("diagnose", ("diagnose", "--observed", "0.08", "--output-format", "json"), ("likely_causes",)),
    ("traffic-stats", ("traffic", "stats", TRAFFIC, "--code", CODE, "--output-format", "json"), ("code", "turns")),
    ("traffic-stats", ("traffic", "stats", "odd.jsonl", "--output-format", "json"), ("unreadable", "observed")),
    ("advise", ("advise", CODE, "--output-format", "json"), ("reordering", "verdicts")),
    ("advise", ("advise", "--workload", "examples/workloads/json_extraction.yaml", "--output-format", "json"), ("levers", "engines")),
    ("providers", ("providers", "--output-format", "json"), ("providers",)),
    ("rules", ("rules", "--output-format", "json"), ("rules",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A log with a line that cannot be read, usage that was reported, and an id that is a number."""
    path = tmp_path_factory.mktemp("log") / "odd.jsonl"
    usage = {"gen_ai.usage.input_tokens": 400, "gen_ai.usage.cache_read.input_tokens": 64}
    rows = [
        {"id": number, "timestamp": number * 1000, "messages": [{"role": "system", "content": f"{number % 2} " + "be kind " * 200}], "usage": usage}
        for number in range(4)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"messages": 3}\n')
    return path


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(PUBLISHED[name]())


@cache
def output(command: tuple[str, ...], odd: Path) -> dict:
    """What a command prints as JSON; each runs once."""
    done = promptlint(*(odd if word == "odd.jsonl" else word for word in command), cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_schemas_are_current(name, request):
    schema = PUBLISHED[name]()
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(schema, indent=2) + "\n"
    if request.config.getoption("--update-golden"):
        (FOLDER / f"{name}.json").write_text(text, "utf-8")
    assert (FOLDER / f"{name}.json").read_text("utf-8") == text, "run pytest --update-golden"


def test_every_schema_that_the_code_names_is_published():
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(PUBLISHED)
    code = "".join(path.read_text("utf-8") for path in (ROOT / "promptlint").rglob("*.py"))
    named = set(re.findall(r'"(promptlint\.[a-z.]+/\d+)"', code))
    known = {schema.get("properties", {}).get("schema", {}).get("const") for schema in (make() for make in PUBLISHED.values())}  # fmt: skip
    assert named == known - {None}


@pytest.mark.parametrize(
    ("name", "command", "filled"), OUTPUTS, ids=[" ".join(command[:3]) for _, command, _ in OUTPUTS]
)
def test_real_output(name, command, filled, odd):
    data = output(command, odd)
    check = validator(name)
    check.validate(data)
    assert all(data[key] for key in filled)
    for key in data:  # each key is required, and no other one is allowed
        spoiled = {other: value for other, value in data.items() if other != key}
        assert key in ("code", "baseline") or not check.is_valid(spoiled)
    assert not check.is_valid({**data, "extra": 1})


@pytest.mark.parametrize("name", ["advise", "diagnose", "diff", "providers", "rules", "simulate"])
def test_objects_inside_are_tight(name, odd):
    command = next(command for other, command, _ in OUTPUTS if other == name)
    data = output(command, odd)
    check = validator(name)
    key = next(key for key, value in data.items() if isinstance(value, list) and value and isinstance(value[0], dict))
    for field in data[key][0]:
        spoiled = copy.deepcopy(data)
        value = spoiled[key][0].pop(field)
        assert field == "hole" or not check.is_valid(spoiled), field
        spoiled[key][0][field + "s"] = value
        assert not check.is_valid(spoiled), field


def test_lines(tmp_path, odd):
    lines = promptlint("check", CODE, "--no-cache", "--output-format", "json-lines", cwd=ROOT).stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        validator("check-line").validate(json.loads(line))
    for log in (ROOT / TRAFFIC, odd):
        promptlint("simulate", log, "--per-request", tmp_path / "rows.jsonl", cwd=ROOT)
        rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
        assert rows
        for row in rows:
            validator("simulate-request").validate(row)


def test_a_measurement_of_perturb():
    place = Varying(
        "clock",
        "app.py::ask",
        "messages[0].content",
        3,
        1,
        2,
        "at 9",
        "at 10",
        "hour",
        4,
        5,
        "now()",
        "request",
        ("clock-in-prefix",),
    )
    found = Measurement(
        ("pytest",),
        2,
        1,
        0,
        9,
        ("clock", "user"),
        [place],
        [replace(place, factor="")],
        {"user": "1 call more"},
        {"host": "ended with 1"},
    )
    for compared in (True, False):
        data = json.loads(perturb.to_json(replace(found, compared_with_code=compared)))
        validator("perturb").validate(data)
        assert data["varying"][0]["agrees"] is (True if compared else None)
        assert data["varying"][0]["found_by"] == (["clock-in-prefix"] if compared else None)
        for key in data:
            assert not validator("perturb").is_valid({name: value for name, value in data.items() if name != key})
        assert not validator("perturb").is_valid({**data, "varying": [{**data["varying"][0], "extra": 1}]})
    texts = [replace(place, found_by=(), guessed=word) for word in ("request", "process", "day", "static", "")]
    assert [one.agrees for one in texts] == [True, True, False, False, False]
    assert replace(place, shift="day", found_by=(), guessed="day").agrees
    text = perturb.to_text(replace(found, varying=texts, compared_with_code=True))
    assert "code: agrees on 2 of 5 places, of which it reports 0" in text
    assert text.count("agrees, no finding") == 2
    hostile = replace(place, call_site="a\x1b[31m\nb", pointer="\u202e", hole="\x00")
    assert not re.search(
        r"[\x00\x1b\u202e]", perturb.to_text(replace(found, varying=[hostile], compared_with_code=True))
    )
