"""What a function holds, at a glance: decides whether a call of it is worth following."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from promptlint.catalog.names import words

__all__ = ["PROMPTISH", "SENT", "Features", "features_of", "noun", "worth_executing"]

WORDY = 60  # characters from which a literal with blanks counts as text: shorter ones are mostly status and error lines

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
                if (
                    isinstance(node.value, ast.Call)
                    and isinstance(node.value.func, ast.Attribute | ast.Name)
                    and _last(node.value.func) in _LOGGING
                ):
                    continue
        elif isinstance(node, ast.Name):
            text = text or (isinstance(node.ctx, ast.Store) and not PROMPTISH.isdisjoint(words(node.id)))
            continue
        elif isinstance(node, ast.Call):
            calls.add(_last(node.func))
            text = text or any(keyword.arg in SENT for keyword in node.keywords)
        elif isinstance(node, ast.SetComp):
            text = True
        elif isinstance(node, ast.JoinedStr):
            text = text or sum(len(str(part.value)) for part in node.values if isinstance(part, ast.Constant)) >= WORDY
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and (
                node.value in {"role", "system"} or (len(node.value) >= WORDY and " " in node.value)
            ):
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
