"""What a function holds, at a glance: decides whether a call of it is worth following."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from promptlint.catalog.names import words
from promptlint.frontends.python.nodes import SHAPES, shape

__all__ = ["PROMPTISH", "SENT", "SMALL", "Features", "features_of", "is_small", "noun", "worth_executing"]

WORDY = 60  # characters from which a literal with blanks counts as text: shorter ones are mostly status and error lines

SMALL = 8  # statements up to which a function is followed whatever it does
PROMPTISH = frozenset(
    {
        "prompt",
        "prompts",
        "template",
        "instruction",
        "instructions",
        "system",
        "message",
        "messages",
        "history",
        "context",
        "persona",
    }
)
SENT = frozenset(
    {"messages", "prompt", "system", "contents", "system_prompt", "instructions", "system_message", "prompts"}
)
_LOGGING = frozenset(
    {"debug", "info", "warning", "warn", "error", "exception", "critical", "log", "print", "write", "echo"}
)
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")  # fields that hold statements
_VERBS = (
    "get_", "fetch_", "load_", "build_", "make_", "create_", "format_", "render_", "read_", "_get_", "compute_", "aget_", "async_", "retrieve_", "generate_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Features:
    """`statements` counts those of the body at all levels, `text` is whether it holds text that is no log line, `calls` are last names.

    `declared`: the body is left to subclasses (`...`, `pass`, `raise NotImplementedError`).
    """

    statements: int
    text: bool
    calls: frozenset[str]
    declared: bool = False


def features_of(node: ast.AST) -> Features:
    """The features of a function; kept on its node."""
    found: Features | None = node.__dict__.get("_features")
    if found is None:
        found = node._features = _look(node)  # type: ignore[attr-defined]
    return found


def is_small(node: ast.AST) -> bool:
    """Whether a function has at most `SMALL` statements at all levels; without a look at its expressions, which are most of a tree."""
    known: Features | None = node.__dict__.get("_features")
    if known is not None:
        return known.statements <= SMALL
    body = getattr(node, "body", [])
    pending: list[Sequence[ast.AST]] = [body] if isinstance(body, list) else []
    statements = 0
    while pending:
        for part in pending.pop():  # a statement, or the arm of a `try` or a `match`
            statements += isinstance(part, ast.stmt)
            if statements > SMALL:
                return False
            pending += [inner for name in _BODIES if (inner := getattr(part, name, None))]
    return True


def _look(root: ast.AST) -> Features:
    statements = 0
    text = False
    calls: set[str] = set()
    body = getattr(root, "body", [])
    stack: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind is ast.Name:
            if not text and type(node.ctx) is ast.Store:  # type: ignore[attr-defined]
                text = not PROMPTISH.isdisjoint(words(node.id))  # type: ignore[attr-defined]
            continue
        if kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined]
            if type(value) is str and (value in {"role", "system"} or (len(value) >= WORDY and " " in value)):
                text = True
            continue
        if kind is ast.Call:
            calls.add(_last(node.func))  # type: ignore[attr-defined]
            text = text or any(keyword.arg in SENT for keyword in node.keywords)  # type: ignore[attr-defined]
        elif kind is ast.SetComp:
            text = True
        elif kind is ast.JoinedStr:
            fixed = (part.value for part in node.values if isinstance(part, ast.Constant))  # type: ignore[attr-defined]
            text = text or sum(len(str(value)) for value in fixed) >= WORDY
        elif isinstance(node, ast.stmt):
            statements += 1
            if kind is ast.Raise or kind is ast.Assert or (kind is ast.Expr and _says_little(node.value)):  # type: ignore[attr-defined]
                continue
        for name, many in SHAPES.get(kind) or shape(kind):
            child = getattr(node, name, None)
            if not child:
                continue
            if many:
                stack += [item for item in child if item is not None]
            else:
                stack.append(child)
    calls.discard("")
    return Features(statements, text, frozenset(calls), isinstance(body, list) and all(map(_is_left_out, body)))


def _is_left_out(statement: ast.stmt) -> bool:
    """Whether a statement says no more than that something else has to be written."""
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return raised is not None and _last(raised) == "NotImplementedError"
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _says_little(value: ast.expr) -> bool:
    """Whether an expression that stands alone is a docstring or a log line."""
    if isinstance(value, ast.Constant):
        return True
    return isinstance(value, ast.Call) and _last(value.func) in _LOGGING


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def noun(name: str) -> str:
    """What a getter's name says about its result: `get_today_str` is a today_str."""
    for verb in _VERBS:
        if name.startswith(verb):
            return name[len(verb) :]
    return name


_CHANGING = frozenset(
    {
        "append",
        "extend",
        "insert",
        "pop",
        "clear",
        "remove",
        "reverse",
        "sort",
        "update",
        "setdefault",
        "add",
        "appendleft",
        "popleft",
        "shuffle",
        "put",
    }
)


def worth_executing(node: ast.Call, sends: frozenset[str] | set[str], small: bool) -> bool:
    """Whether a call that stands alone as a statement may matter: it changes a list, sends something, or is handed text or messages."""
    name = _last(node.func)
    if (
        name in _CHANGING
        or name in sends
        or small
        or (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Call)
            and _last(node.func.value.func) == "super"
        )
    ):
        return True
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        last = argument.value if isinstance(argument, ast.Starred) else argument
        if isinstance(last, ast.Name | ast.Attribute) and PROMPTISH & set(words(_last(last))):
            return True
        if isinstance(last, ast.JoinedStr | ast.BinOp | ast.Dict | ast.List):
            return name not in _LOGGING
    return bool(PROMPTISH & set(words(name)))
