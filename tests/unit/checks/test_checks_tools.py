"""Tool lists are compared tool by tool."""

from ir_builder import Source, reading

from promptlint.analysis import Assumptions
from promptlint.catalog.rules import load_rules
from promptlint.checks import run

FIND = '{"name": "find", "description": "Finds a record, by its number or by \\"words\\", in the store."}'
NOTE = '{"name": "note", "description": "Writes a note that the next clerk will read: [a, b], {c}."}'


def rules_of(*lists):
    s = Source()
    prompts = [
        s.prompt(s.tools(s.text(text)), s.user(s.hole("request")), function=f"f{n}") for n, text in enumerate(lists)
    ]
    return [
        (each.rule, each.call_site) for each in run(reading(*prompts), load_rules(), Assumptions.default()).findings
    ]


def test_another_order_of_the_same_tools():
    [(rule, site)] = rules_of(f"[{FIND}, {NOTE}]", f"[{NOTE}, {FIND}]")
    assert (rule, "::f1::" in site) == ("tool-order-differs", True)


def test_the_same_order_with_one_tool_more():
    other = FIND.replace("find", "drop")
    assert rules_of(f"[{FIND}, {NOTE}]", f"[{FIND}, {other}, {NOTE}]") == []


def test_quotes_and_brackets_inside_a_description_split_nothing():
    assert rules_of(f"[{FIND}, {NOTE}]", f"[{FIND}, {NOTE}]", f"[{NOTE}]") == []
