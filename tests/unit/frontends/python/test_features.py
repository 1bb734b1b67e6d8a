"""What a function holds, at a glance."""

from __future__ import annotations

import ast
import textwrap

import pytest

from promptlint.frontends.python.features import SMALL, features_of, is_small

NESTED = """
    def run(self, items):
        try:
            for item in items:
                if item:
                    a = 1
                else:
                    b = 2
        except ValueError:
            c = 3
        finally:
            match items:
                case []:
                    {last}
"""


@pytest.mark.parametrize(
    ("source", "small"),
    [
        ("f = lambda items: [len(item) for item in items]", True),
        ("def f():\n" + "    x = 1\n" * SMALL, True),
        ("def f():\n" + "    x = 1\n" * (SMALL + 1), False),
        (textwrap.dedent(NESTED).format(last="pass"), True),
        (textwrap.dedent(NESTED).format(last="d = 4; e = 5"), False),
        ("def f():\n    def g():\n" + "        x = 1\n" * SMALL, False),
    ],
)
def test_a_small_function_is_known_without_a_look_at_its_expressions(source: str, small: bool) -> None:
    (node,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.Lambda) and getattr(node, "name", "f") != "g"
    )
    assert is_small(node) is small
    assert (features_of(node).statements <= SMALL) is small
    assert is_small(node) is small  # from what is known now
