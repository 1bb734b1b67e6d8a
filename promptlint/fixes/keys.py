"""Routing keys and salts that are new with each request, derived from a value that the requests share. Unsafe: who meets whose cache changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from promptlint.catalog.names import load_names
from promptlint.finding import Finding, Fix
from promptlint.fixes.code import Code, Desk, Function
from promptlint.ir import Volatility

__all__ = ["stable_key"]

_RANDOM = frozenset(
    {
        "uuid1",
        "uuid4",
        "uuid6",
        "uuid7",
        "token_hex",
        "token_urlsafe",
        "time",
        "time_ns",
        "now",
        "utcnow",
        "random",
        "randint",
    }
)
_PREFERRED = ("session", "conversation", "thread", "chat", "tenant", "organisation", "organization", "account", "user")


def stable_key(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """The random part of the key replaced by an argument of the function that says whose conversation it is. Nothing where there is none."""
    for span in dict.fromkeys([finding.span, *(note.span for note in finding.trace)]):
        found = desk.at(span) if span.path.endswith(".py") else None
        if found is None:
            continue
        code, node = found
        for inner, call in _random_in(code, node):
            name = _stable_name(inner, call)
            if name is None:
                continue
            whole = _outermost(inner, call)
            start, end = inner.range(whole)
            text = name if inner.outer is not None or _is_text(inner, name, call) else f"str({name})"
            yield Fix(
                f"use `{name}`, which the requests of one conversation share", "unsafe", (inner.edit(start, end, text),)
            )
            return


def _random_in(code: Code, node: ast.expr) -> Iterator[tuple[Code, ast.Call]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and _attribute(each) in _RANDOM and (each in code.parents or each is code.tree):
            yield code, each


def _attribute(call: ast.Call) -> str:
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )


def _outermost(code: Code, call: ast.Call) -> ast.expr:
    """The call with what only spells it: `str(...)`, `.hex`, a slice."""
    current: ast.expr = call
    while True:
        parent = code.parents.get(current)
        if (
            (isinstance(parent, ast.Attribute) and parent.attr in {"hex", "int"})
            or (isinstance(parent, ast.Subscript) and parent.value is current)
            or (
                isinstance(parent, ast.Call)
                and _attribute(parent) in {"str", "int", "repr"}
                and parent.args == [current]
            )
        ):
            current = parent
        else:
            return current


def _stable_name(code: Code, node: ast.AST) -> str | None:
    """An argument of the function, or an attribute that it uses, that names the conversation, the tenant or the user."""
    function = code.function_of(node)
    if function is None:
        return None
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [ast.unparse(each) for each in _attributes(function)]
    ranked = []
    for position, name in enumerate(dict.fromkeys(names)):
        last = name.rsplit(".", 1)[-1]
        fact = load_names().fact(last)
        lives = Volatility.TENANT <= fact.volatility <= Volatility.SESSION
        words = [number for number, word in enumerate(_PREFERRED) if word in last.lower()]
        if lives and words and last.lower().endswith(("id", "key", "name", *_PREFERRED)):
            ranked.append((words[0], position, name))
    return min(ranked)[2] if ranked else None


def _attributes(function: Function) -> Iterator[ast.Attribute]:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node


def _is_text(code: Code, name: str, node: ast.AST) -> bool:
    """Whether the argument is declared as a string."""
    function = code.function_of(node)
    if function is None:
        return False
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.arg == name:
            return isinstance(each.annotation, ast.Name) and each.annotation.id == "str"
    return False
