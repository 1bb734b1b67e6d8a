"""What a run leaves becomes records: answers joined, order of time, broken lines counted."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from promptlint.app.record import summary
from promptlint.recording import session
from promptlint.recording.session import Recording, merge, replace
from promptlint.traffic.read import Traffic, load
from promptlint.traffic.record import CACHE_READ, INPUT


def merged(*lines):
    found = Recording()
    merge(iter([line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]), found)
    return found


def request(number, at, **more):
    return {
        "timestamp": at,
        "id": f"p-{number}",
        "model": "m",
        "messages": [{"role": "user", "content": str(number)}],
        "recorded": {"library": "httpx"},
        **more,
    }


def answer(number, **more):
    return {
        "id": f"p-{number}",
        "usage": {"input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 2},
        "recorded": {"status": 200, **more},
    }


def test_order_usage_and_broken_lines():
    found = merged(request(2, 20), answer(2), request(1, 10), b'{"timestamp": 3, "id": "x', b"\n", answer(9), b"[1]")
    assert [row["id"] for row in found.rows] == ["p-1", "p-2"]
    assert found.rows[1]["usage"][INPUT] == 5
    assert found.rows[1]["usage"][CACHE_READ] == 4
    assert found.rows[1]["recorded"] == {"library": "httpx", "status": 200}
    assert found.broken == 2


def test_the_last_attempt_tells_how_it_ended():
    found = merged(request(1, 1), {"id": "p-1", "recorded": {"status": 500, "error": "X"}}, answer(1, attempts=2))
    assert found.rows[0]["recorded"] == {"library": "httpx", "status": 200, "attempts": 2}
    assert not found.failed
    assert merged(request(1, 1), {"id": "p-1", "recorded": {"status": 429}}).failed == {"status 429": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "a"}], "system": "s"},
        {"input": "a", "instructions": "s"},
        {"prompt": "a"},
        {"contents": [{"parts": [{"text": "a"}]}]},
        {"text": "a", "sampling_params": {}},
        {"prompt": [1, 2, 3]},
    ],
)
@pytest.mark.parametrize("answered", [True, False])
def test_every_shape_is_read_as_one_request(tmp_path: Path, body, answered):
    line = {
        "timestamp": 1796077333185.839,
        "id": "p-1",
        "call_site": "app.py::ask",
        "model": "m",
        **body,
        "recorded": {"library": "httpx", "url": "http://x/v1", "pid": 3},
    }
    file = tmp_path / "out.jsonl"
    assert replace(file, merged(line, *([answer(1)] if answered else [])).rows)
    traffic = Traffic([file])
    records = load(traffic)
    assert not traffic.problems
    assert [(record.id, record.call_site, record.model, record.is_request) for record in records] == [
        ("p-1", "app.py::ask", "m", True)
    ]
    assert records[0].usage.get(INPUT) == (5 if answered else None)


def test_a_file_that_was_not_put_in_order_is_readable(tmp_path: Path):
    file = tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in (request(1, 1), answer(1), request(2, 2))))
    assert [record.usage.get(INPUT) for record in load(Traffic([file]))] == [5, None]


def test_lone_surrogates_survive(tmp_path: Path):
    file = tmp_path / "out.jsonl"
    assert replace(file, [{"id": "1", "timestamp": 1, "prompt": "\ud83d"}])
    assert json.loads(file.read_bytes())["prompt"] == "\ud83d"


def test_the_summary_says_what_is_missing():
    found = Recording([request(1, 1)], loaded=True, lost=True, broken=1, error="KeyError: 'x'")
    text = "\n".join(summary(found, "out.jsonl", ("pytest",)))
    assert "recorded 1 request from 0 call sites in out.jsonl" in text
    assert "could not be written" in text
    assert "1 record broken off" in text
    assert "KeyError: 'x'" in text


def test_the_recorder_is_spelled_for_older_pythons():
    """The command's Python may be 3.9 and has no promptlint: our files parse there and import nothing but the standard library."""
    folder = Path(session.__file__).parent / "child"
    files = sorted(folder.rglob("*.py"))
    assert len(files) >= 10
    for file in files:
        tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), file
