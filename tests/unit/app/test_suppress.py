"""Where an allow comment counts, and where the same characters are only text."""

from __future__ import annotations

import textwrap

import pytest

from promptlint.app.suppress import read_suppressions
from promptlint.source import SourceFile


def read(path: str, text: str):
    return read_suppressions(SourceFile(path, textwrap.dedent(text)))


def covered(path: str, text: str) -> list[set[int]]:
    lines = len(textwrap.dedent(text).splitlines())
    return [{line for line in range(1, lines + 2) if note.allows(line)} for note in read(path, text)]


def test_rules_and_reason():
    (note,) = read("a.py", "x = 1  # promptlint: allow[clock-in-prefix, unsorted-json] audit wants it first\n")
    assert note.rules == ("clock-in-prefix", "unsorted-json")
    assert note.reason == "audit wants it first"
    assert (note.span.line, note.span.column) == (1, 8)
    (bare,) = read("a.py", "x = 1  # promptlint: allow[a]\n")
    assert bare.reason == ""
    assert read("a.py", "x = 1  # promptlint: something else\n") == []


def test_line_before_a_statement_of_several_lines():
    assert covered("a.py", """\
        # promptlint: allow[a] r
        client.create(
            system=f"{now}",
        )
        other()
        """) == [{1, 2, 3, 4}]  # fmt: skip


def test_first_and_last_line_of_a_statement():
    note = "  # promptlint: allow[a] r"
    text = 'client.create({}\n    system=f"{{now}}",\n){}\nother()\n'
    assert covered("a.py", text.format(note, "")) == [{1, 2, 3}]
    assert covered("a.py", text.format("", note)) == [{1, 2, 3}]


def test_a_comment_inside_a_statement_covers_its_own_line_only():
    assert covered("a.py", """\
        client.create(
            system=f"{now}",  # promptlint: allow[a] r
            user=f"{now}",
        )
        """) == [{2}]  # fmt: skip


def test_the_head_of_a_compound_statement_is_not_its_body():
    assert covered("a.py", """\
        # promptlint: allow[a] r
        def f(
            x,
        ):
            return x
        """) == [{1, 2, 3, 4}]  # fmt: skip


def test_a_trailing_comment_says_nothing_about_the_next_statement():
    assert covered("a.py", """\
        a = 1  # promptlint: allow[a] r
        b = 2
        """) == [{1}]  # fmt: skip


def test_strings_are_no_comments():
    assert read("a.py", 'x = "# promptlint: allow[a] r"\n') == []
    assert read("a.py", '"""\n# promptlint: allow[a] r\n"""\n') == []


def test_newer_syntax_than_the_running_python():
    text = 'type A[T] = list[T]\n\ndef f[T](x: T):\n    # promptlint: allow[a] r\n    return send(\n        f"{x["key"]}",\n    )\n'
    (note,) = read("a.py", text)
    assert note.allows(6)
    assert not note.allows(1)


def test_a_string_right_behind_a_word_is_none_either():
    assert read("a.py", 'def f():\n    return"# promptlint: allow[a] r"\n') == []
    (note,) = read("a.py", 'x = 1 or"# it\'s" # promptlint: allow[a] r\n')
    assert note.span.column == 18


@pytest.mark.parametrize("text", ["# promptlint: allow[a]\0 r\nx = 1\n", "# promptlint: allow[a] r\n i\n\0", "# promptlint: allow[a] r\n" + '{"a":' * 2500, "type X = int\n# promptlint: allow[a] r\ny = f'{" + "(" * 5000 + "x" + ")" * 5000 + "}'\n"])  # fmt: skip
def test_what_ends_the_process_in_other_readers_has_none(text):
    # The tokenizer of Python 3.12 and 3.13 raises SystemError at a NUL behind an indented line (python/cpython#140576); libcst exhausts the stack.
    assert read("a.py", text) == []


def test_unreadable_python_has_none():
    assert read("a.py", "def (:\n  '''  # promptlint: allow[a] r\n") == []


def test_jinja_same_and_next_line():
    assert covered("p.jinja", """\
        {{ before }}
        {# promptlint: allow[a] r #}
        {{ now() }}
        {{ after }}
        """) == [{2, 3}]  # fmt: skip
    assert covered("p.jinja", "{{ now() }} {#- promptlint: allow[a] r -#}\n{{ x }}\n{{ y }}\n") == [{1, 2}]
    assert [note.reason for note in read("p.j2", "{#- promptlint: allow[a] my reason -#}")] == ["my reason"]
    assert read("p.jinja", "{% raw %}{# promptlint: allow[a] r #}{% endraw %}") == []
    assert read("p.jinja", "{% broken {# promptlint: allow[a] r #}") == []


def test_yaml_comment_on_the_line_of_the_key():
    text = """\
        title: x
        prompt: |  # promptlint: allow[a] r
          Hello {{ name }}
          rules
        next: "{{ y }}"  # promptlint: allow[b] s
        """
    assert covered("p.yaml", text) == [{2, 3, 4}, {5}]
    assert [note.rules for note in read("p.yaml", text)] == [("a",), ("b",)]


def test_yaml_text_is_no_comment():
    assert read("p.yaml", "a: |\n  # promptlint: allow[a] r\nb: '# promptlint: allow[a] r'\n") == []
    assert read("p.yaml", "a: [\n# promptlint: allow[a] r\n") == []


def test_json_has_no_comments():
    assert read("p.json", '{"a": "# promptlint: allow[a] r"}') == []
