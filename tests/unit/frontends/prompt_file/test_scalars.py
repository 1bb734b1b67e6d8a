"""Strings of YAML and JSON files with their places."""

from __future__ import annotations

import json
import tomllib

import pytest
import yaml

from promptlint.frontends.scalars import BrokenDataError, Scalar, json_strings, toml_strings, yaml_strings
from promptlint.source import SourceFile

YAML = """\
# a comment
system: |
  You are here.
    Indented {x}.

  Last.
folded: >-
  one two
  three

  four
double: "a\\tb \\u00e9 \\
  c {y}"
single: 'it''s {z}'
plain: some words
  that go on
list:
  - role: user
    content: |2
        kept
  - &a text {a}
  - *a
"""


def check(strings: tuple[Scalar, ...], source: SourceFile) -> None:
    """Runs have no gaps, cover the value, and exact ones spell it."""
    for string in strings:
        at = 0
        for start, place, length, exact in string.where.runs:
            assert start == at
            at += length
            if exact:
                assert source.text[place : place + length] == string.value[start:at]
        assert at == len(string.value)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_yaml(newline: str) -> None:
    source = SourceFile("a.yaml", YAML.replace("\n", newline))
    strings = yaml_strings(source)
    check(strings, source)
    loaded = yaml.safe_load(YAML)
    by_path = {string.path: string for string in strings}
    assert by_path["system"].value == loaded["system"]
    assert by_path["folded"].value == loaded["folded"] == "one two three\nfour"
    assert by_path["double"].value == loaded["double"]
    assert by_path["list[0].content"].value == loaded["list"][0]["content"] == "  kept\n"
    assert "list[2]" not in by_path
    for path, slot in (("system", "{x}"), ("double", "{y}"), ("single", "{z}"), ("list[1]", "{a}")):
        string = by_path[path]
        at = string.value.index(slot)
        span = string.where.span(at, at + len(slot))
        assert span.exact
        assert source.slice(span) == slot
    assert by_path["system"].line == 2


def test_json() -> None:
    text = json.dumps({"a": [{"b": 'x\ty {q}\n\u00e9\U0001f600 "z" {r}'}, "s", 1, None], "c": {"d": ""}}, indent=2)
    source = SourceFile("a.json", text)
    strings = json_strings(source)
    check(strings, source)
    assert [(string.path, string.line) for string in strings] == [("a[0].b", 4), ("a[1]", 6), ("c.d", 11)]
    value = strings[0]
    assert value.value == json.loads(text)["a"][0]["b"]
    for slot in ("{q}", "{r}"):
        at = value.value.index(slot)
        assert source.slice(value.where.span(at, at + 3)) == slot


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t- x", "? - a"[:3] + "\n- b\nc"])
def test_broken_yaml(text: str) -> None:
    with pytest.raises(BrokenDataError):
        yaml_strings(SourceFile("a.yaml", text))


@pytest.mark.parametrize("text, line", [("{\n 'a': 1}", 2), ("[" * 100_000, 1), ("// no", 1)])
def test_broken_json(text: str, line: int) -> None:
    with pytest.raises(BrokenDataError) as caught:
        json_strings(SourceFile("a.json", text))
    assert caught.value.line == line


def test_aliases_are_not_expanded() -> None:
    rows = ["a0: &a0 [boom]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert len(yaml_strings(SourceFile("a.yaml", "\n".join(rows)))) == 1


def test_deep_yaml_is_refused_or_read() -> None:
    with pytest.raises(BrokenDataError):
        yaml_strings(SourceFile("a.yaml", "[" * 5000 + "]" * 5000))


TOML = '''\
# key = "no"
top = "a\\tb {x}" # said
[prompts."a.b".more]
system = """
You are [here].
name = "not a key"
  Caf\\u00e9 \\
    joined {y}."""
plain = 'it is {z}'
literal = \'\'\'
two
lines\'\'\'
n = 3
list = ["left out"]

[[steps]]
text = "one"
[[steps]]
text = "two"
[steps.deep]
text = "three"
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_toml(newline: str) -> None:
    source = SourceFile("a.toml", TOML.replace("\n", newline))
    strings = toml_strings(source)
    check(strings, source)
    found = {string.key: string.value for string in strings}
    loaded = tomllib.loads(TOML)
    more = loaded["prompts"]["a.b"]["more"]
    assert found == {
        ("top",): loaded["top"],
        ("prompts", "a.b", "more", "system"): more["system"],
        ("prompts", "a.b", "more", "plain"): more["plain"],
        ("prompts", "a.b", "more", "literal"): more["literal"],
        ("steps", 0, "text"): "one",
        ("steps", 1, "text"): "two",
        ("steps", 1, "deep", "text"): "three",
    }
    system = next(string for string in strings if string.key[-1] == "system")
    assert "joined {y}." in source.text
    at = system.value.index("{y}")
    assert source.slice(system.where.span(at, at + 3)) == "{y}"
    assert system.where.span(at, at + 3).exact


def test_broken_toml_says_where() -> None:
    with pytest.raises(BrokenDataError) as caught:
        toml_strings(SourceFile("a.toml", "a = 1\nb = = 2\n"))
    assert caught.value.line == 2
