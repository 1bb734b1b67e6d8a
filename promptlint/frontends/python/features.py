"""What a function holds, at a glance: decides whether a call of it is worth following."""

from __future__ import annotations

import ast
from dataclasses import dataclass

__all__ = ["Features", "features_of", "noun"]

WORDY = 24  # characters from which a literal with a blank counts as text

_LOGGING = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "log", "print", "write", "echo"})
_VERBS = (
    "get_", "fetch_", "load_", "build_", "make_", "create_", "format_", "render_", "read_", "_get_", "compute_", "aget_", "async_", "retrieve_", "generate_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Features:
    """`statements` counts those of the body at all levels, `text` is whether it holds text that is no log line, `calls` are last names."""

    statements: int
    text: bool
    calls: frozenset[str]


def features_of(node: ast.AST) -> Features:
    """The features of a function; kept on its node."""
    found: Features | None = node.__dict__.get("_features")
    if found is None:
        found = node._features = _look(node)  # type: ignore[attr-defined]
    return found


def _look(root: ast.AST) -> Features:
    statements = 0
    text = False
    calls: set[str] = set()
    body = getattr(root, "body", [])
    stack: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            statements += 1
            if isinstance(node, ast.Raise | ast.Assert):
                continue
            if isinstance(node, ast.Expr):
                if isinstance(node.value, ast.Constant):
                    continue
                if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute | ast.Name) and _last(node.value.func) in _LOGGING:
                    continue
        elif isinstance(node, ast.Call):
            calls.add(_last(node.func))
        elif isinstance(node, ast.JoinedStr | ast.Set | ast.SetComp):
            text = True
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and (node.value in {"role", "system"} or (len(node.value) >= WORDY and " " in node.value)):
                text = True
            continue
        stack.extend(ast.iter_child_nodes(node))
    calls.discard("")
    return Features(statements, text, frozenset(calls))


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def noun(name: str) -> str:
    """What a getter's name says about its result: `get_today_str` is a today_str."""
    for verb in _VERBS:
        if name.startswith(verb):
            return name[len(verb) :]
    return name
