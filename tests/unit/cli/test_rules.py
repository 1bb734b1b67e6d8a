"""`promptlint rules` and `promptlint explain`."""

from __future__ import annotations

import json

from click.testing import CliRunner

from promptlint.catalog.rules import load_rules
from promptlint.cli import cli


def run(*args: str):
    return CliRunner().invoke(cli, args)


def test_every_rule_is_listed_with_its_category():
    output = run("rules").stdout
    for rule in load_rules().values():
        assert f"  {rule.name} " in output
        assert f"{rule.category}:\n" in output
    only = run("rules", "--category", "housekeeping").stdout
    assert only.splitlines()[0] == "housekeeping:"
    assert len(only.splitlines()) == 3
    assert run("rules", "--category", "nope").exit_code == 2


def test_rules_as_json():
    data = json.loads(run("rules", "--output-format", "json").stdout)
    assert data["schema"] == "promptlint.rules/1"
    assert [row["name"] for row in data["rules"]] == list(load_rules())


def test_explain_prints_the_page():
    result = run("explain", "unused-suppression")
    page = load_rules()["unused-suppression"]
    assert result.exit_code == 0
    assert page.body in result.stdout
    assert page.help in result.stdout
    assert result.stdout.startswith("# unused-suppression\n")


def test_explain_suggests():
    result = run("explain", "unused-supression")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "promptlint: error: there is no rule 'unused-supression'; did you mean unused-suppression"
    )
    assert result.stderr.count("\n") == 1
    assert "`promptlint rules` lists them" in run("explain", "zzzzzz").stderr
    assert "did you mean clock-in-prefix or " in run("explain", "clock").stderr
