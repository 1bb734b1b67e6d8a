"""Walking trees of `ast` without asking each value what it is: a grammar says which fields hold nodes.

`ast.walk` and `ast.iter_child_nodes` look at every field of every node, strings and operators included. Over hundreds of files that is a
good part of the time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

__all__ = ["SHAPES", "shape", "walk"]

# Kinds that hold nothing of interest beneath them: what a name is used for, and operators.
_BARE = frozenset({"expr_context", "boolop", "operator", "unaryop", "cmpop", "type_ignore"})
_NO_NODES = frozenset({"identifier", "int", "string", "constant"})
_FIELD = re.compile(r"(\w+)([?*]?) (\w+)")

SHAPES: dict[type[ast.AST], tuple[tuple[str, bool], ...]] = {}
"""The shapes that were asked for so far; `SHAPES.get(kind) or shape(kind)` is the quick way to one."""


def shape(kind: type[ast.AST]) -> tuple[tuple[str, bool], ...]:
    """The fields of a kind of node that hold nodes, in order, and whether each is a list (which may hold None: a key of `{**x}`).

    The grammar of a kind is its docstring: "Call(expr func, expr* args, keyword* keywords)".
    """
    found = SHAPES.get(kind)
    if found is None:
        grammar = _FIELD.findall((kind.__doc__ or "").partition("(")[2])
        assert {name for _, _, name in grammar} == set(kind._fields), f"the grammar of {kind.__name__} is not known"
        nodes = tuple((name, many == "*") for of, many, name in grammar if of not in _BARE and of not in _NO_NODES)
        found = SHAPES[kind] = nodes
    return found


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """Every node beneath a node and itself, in the order of `ast.walk`; uses of names (Load, Store) and operators are left out."""
    nodes: list[ast.AST] = [root]
    for node in nodes:  # grows while it is gone through
        yield node
        kind = type(node)
        for name, many in SHAPES.get(kind) or shape(kind):
            child = getattr(node, name, None)
            if not child:
                continue
            if many:
                nodes += [item for item in child if item is not None]
            else:
                nodes.append(child)
