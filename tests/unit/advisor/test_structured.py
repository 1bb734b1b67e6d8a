"""Schemas that are found, example answers, and what a grammar forces of an answer (with llguidance, where it is installed)."""

import json

import pytest

from promptlint.advisor.structured import example, forced_tokens, installed, schema_in

needs_grammar = pytest.mark.skipif(not installed(), reason="not run: llguidance is not installed (extra structured)")

INVOICE = {
    "type": "object",
    "properties": {
        "number": {"type": "string"},
        "total": {"type": "number"},
        "currency": {"type": "string", "enum": ["EUR", "USD"]},
    },
    "required": ["number", "total", "currency"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "spelled",
    [
        {"type": "json_schema", "json_schema": {"name": "invoice", "strict": True, "schema": INVOICE}},
        {"format": {"type": "json_schema", "name": "invoice", "schema": INVOICE}},
        json.dumps({"type": "json_schema", "json_schema": {"name": "invoice", "schema": INVOICE}}),
    ],
)
def test_schemas_as_the_sdks_spell_them(spelled):
    assert schema_in(spelled) == ("invoice", INVOICE)


@pytest.mark.parametrize("other", [None, "", "{", [], {"type": "json_object"}, {"type": "text"}, 5])
def test_what_is_no_schema(other):
    assert schema_in(other) is None


def test_examples_have_the_shape():
    nested = {
        "type": "object",
        "properties": {
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "$defs": {"line": {"type": "object", "properties": {"count": {"type": "integer"}}}},
    }
    assert example(nested, 3) == {"lines": [{"count": 42}] * 2, "note": "word word word"}
    assert example(INVOICE, 1) == {"number": "word", "total": 12.5, "currency": "EUR"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"type": "string", "pattern": "^a+$"},
        {"type": "string", "format": "date"},
        {"type": "array"},
        {"$ref": "#/$defs/none"},
    ],
)
def test_no_example_is_made_up_where_the_shape_is_not_known(schema):
    with pytest.raises(ValueError, match=r"."):
        example(schema, 1)


@needs_grammar
def test_keys_are_forced_and_values_are_not():
    found = forced_tokens(INVOICE, '{"number": "A-17", "total": 12.5, "currency": "EUR"}')
    assert found is not None
    assert 4 <= found.forced <= 8 < found.tokens
    longer = forced_tokens(INVOICE, json.dumps(example(INVOICE, 40)))
    assert longer is not None
    assert longer.forced == found.forced
    assert longer.share < found.share


@needs_grammar
def test_optional_keys_are_not_forced():
    loose = {"type": "object", "properties": INVOICE["properties"]}
    answer = '{"number":"A-17","total":12.5,"currency":"EUR"}'
    assert forced_tokens(loose, answer).forced < forced_tokens(INVOICE, answer).forced


@needs_grammar
@pytest.mark.parametrize("answer", ['{"no": 1}', "no json", "", '{"number":"A","total":1,"currency":"GBP"}'])
def test_an_answer_that_does_not_follow_its_schema_has_no_share(answer):
    assert forced_tokens(INVOICE, answer) is None
