"""Which rule speaks for which verdict on a chat template."""

import pytest
from ir_builder import reading

from promptlint.analysis import Assumptions
from promptlint.catalog.rules import load_rules
from promptlint.checks import run
from promptlint.ir import TemplateVerdict


def found(verdict="stable", reasoning=False, tools=False, system=False, date="never", **more):
    template = TemplateVerdict("chat.jinja", verdict, reasoning, tools, system, date, 7, 0.25, 3, 0.5, **more)
    return list(run(reading(templates=(template,)), load_rules(), Assumptions.default()).findings)


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ({}, []),
        ({"verdict": "stable-in-serving"}, []),
        ({"verdict": "generation-prompt-not-replayed"}, ["generation-prompt-not-replayed"]),
        ({"verdict": "rewrites-history"}, ["chat-template-rewrites-history"]),
        ({"verdict": "rewrites-history", "reasoning": True}, ["chat-template-drops-reasoning"]),
        ({"verdict": "rewrites-history", "tools": True}, ["chat-template-moves-tools"]),
        ({"verdict": "rewrites-history", "system": True}, ["chat-template-moves-tools"]),
        (
            {"verdict": "rewrites-history", "reasoning": True, "tools": True},
            ["chat-template-drops-reasoning", "chat-template-moves-tools"],
        ),
        ({"date": "always"}, ["chat-template-date"]),
        ({"date": "without-system"}, ["chat-template-date"]),
    ],
)
def test_the_narrowest_name_speaks(given, rules):
    assert sorted(finding.rule for finding in found(**given)) == rules


def test_a_fault_stands_at_its_own_line_with_what_it_costs():
    date, rewrites = sorted(found("rewrites-history", date="always"), key=lambda finding: finding.span.line)
    assert (date.rule, date.span.line, date.severity) == ("chat-template-date", 3, "low")
    assert (rewrites.rule, rewrites.span.line, rewrites.severity) == ("chat-template-rewrites-history", 7, "high")
    assert rewrites.tokens_behind == 750  # half of the profile's 1,500 tokens of history
    assert rewrites.tokens_lost == 510  # of them, what a session would have reused: 1 - 2 x 1,600 / 10,000
    assert "25% of the next request" in rewrites.message


def test_the_system_message_is_named_when_it_moves():
    (finding,) = found("rewrites-history", tools=True, system=True)
    assert "the tools and the system message" in finding.message
    (finding,) = found("rewrites-history", system=True)
    assert "moves the system message" in finding.message


def test_one_of_several_templates_is_named():
    (finding,) = found("rewrites-history", name="tool_use")
    assert finding.message.startswith("the chat template `tool_use` writes earlier messages")
    (finding,) = found(date="always", name="rag")
    assert finding.message.startswith("the chat template `rag` prints")
