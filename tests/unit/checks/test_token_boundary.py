"""Where a cacheable prefix ends inside a token, and what that costs."""

import pytest
from ir_builder import RULES, Source, reading

from promptlint import tokenizers
from promptlint.analysis import Assumptions
from promptlint.catalog.rules import load_rules
from promptlint.checks import run
from promptlint.checks.token_boundary import at_stake
from promptlint.ir import Volatility


def found(*segments, s):
    result = run(reading(s.prompt(s.user(*segments))), load_rules(), Assumptions.default())
    return [finding for finding in result.findings if finding.rule == "unstable-token-boundary"]


def test_a_page_is_lost_only_where_the_token_was_its_last():
    assert at_stake(128) == {1: 1, 16: 16, 64: 64}
    assert at_stake(129) == {1: 1, 16: 0, 64: 0}
    assert at_stake(144) == {1: 1, 16: 16, 64: 0}


@pytest.mark.parametrize(("end", "flagged"), [("Question: ", 1), ("v", 1), ("Question:\n", 0), ("Question:", 0)])
def test_the_last_character_decides(end, flagged):
    s = Source()
    assert len(found(s.text(RULES * 10 + end), s.hole("request"), s=s)) == flagged


def test_only_the_end_of_the_cacheable_prefix_counts():
    s = Source()
    clock = s.hole("clock", Volatility.REQUEST)
    assert not found(clock, s.text(RULES * 10 + "Question: "), s.hole("request"), s=s)
    assert not found(s.text("Question: "), s.hole("request"), s=s)


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base", "llama3", "qwen3"])
def test_the_tokenizers_do_what_the_rule_says(name):
    encoding = tokenizers.get(name)
    for text, stable in (("The question: ", False), ("The question:\n", True)):
        alone, followed = encoding.encode(text), encoding.encode(text + "Which page")
        assert (followed[: len(alone)] == alone) is stable
