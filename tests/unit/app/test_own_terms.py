"""A user's own provider terms in `check` and `show`."""

from pathlib import Path

import pytest

from promptlint.app.check import Request, check
from promptlint.config import Settings
from promptlint.errors import UserError

CODE = """
import anthropic

RULES = "Answer from the manual only, in short sentences, and never guess. " * 40
client = anthropic.Anthropic()


def ask(question):
    return client.messages.create(
        model="claude-sonnet-4-5", max_tokens=9, system=RULES, messages=[{"role": "user", "content": question}]
    )
"""
TERMS = """name = "anthropic"
[source]
us = { url = "https://example.com/contract", date = "2026-12-01" }
[fact]
minimum = { value = MINIMUM, source = "us" }
"""


def rules(tmp_path: Path, minimum: int) -> set[str]:
    folder = tmp_path / str(minimum) / "providers"
    folder.mkdir(parents=True)
    (folder / "ours.toml").write_text(TERMS.replace("MINIMUM", str(minimum)))
    (tmp_path / "ask.py").write_text(CODE)
    settings = Settings(tmp_path, extra_rules=(folder.parent,))
    report = check(settings, Request((tmp_path / "ask.py",), tmp_path), use_cache=False)
    assert report.assumptions["provider_terms"]["anthropic"]["minimum_tokens"] == minimum
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize("key", ["source", "fact"])
def test_what_has_to_be_a_table_is_named(tmp_path, key):
    folder = tmp_path / "providers"
    folder.mkdir()
    (folder / "ours.toml").write_text(f'name = "anthropic"\n{key} = "price_map"\n')
    (tmp_path / "ask.py").write_text(CODE)
    with pytest.raises(UserError, match=rf"ours.toml: {key}: a table is expected"):
        check(Settings(tmp_path, extra_rules=(tmp_path,)), Request((tmp_path,), tmp_path), use_cache=False)


def test_another_minimum_decides_whether_a_marker_is_missing(tmp_path):
    assert "breakpoint-missing" in rules(tmp_path, 64)
    assert "breakpoint-missing" not in rules(tmp_path, 9000)
