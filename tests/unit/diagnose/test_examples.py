"""The sample logs of examples/traffic have exactly the divergences that their makers put in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from promptlint.cli import cli

FOLDER = Path(__file__).parents[3] / "examples" / "traffic"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "ticking_system",
            [
                (1, 2, "messages[0].content", 59, "clock-in-prefix"),
                (2, 3, "messages[0].content", 57, "clock-in-prefix"),
                (3, 4, "messages[0].content", 57, "clock-in-prefix"),
            ],
        ),
        (
            "wandering_tools",
            [(2, 3, "tools", 40, "tool-order-differs"), (3, 4, "tools", 454, "tools-built-per-request")],
        ),
        ("clean_dialogue", []),
    ],
)
def test_divergences(name, expected):
    done = CliRunner().invoke(cli, ["diagnose", str(FOLDER / f"{name}.jsonl"), "--output-format", "json"])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert [
        (one["relative"], one["request"], one["path"], one["char"], one["rule"]) for one in row["divergences"]
    ] == expected
    assert row["requests"] == 4
