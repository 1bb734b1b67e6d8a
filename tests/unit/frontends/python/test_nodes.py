"""The quick walk sees what `ast.walk` sees."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import pytest

from promptlint.frontends.python.nodes import shape, walk

STDLIB = Path(sysconfig.get_path("stdlib"))
PROGRAM = """
import a.b as c
from d import *
@e.f(g=1)
async def h(i, /, j: int = 2, *k, l=None, **m) -> n:
    global o
    async with p as (q, r), s:
        t = {**u, "v": w, 1: [x for x in y if z if not z]}
        a = f"{b!r:>{c}}" if d else lambda e, *, f=1: (yield)
    try:
        del g[h:i, j]
    except* (k, l) as m:
        raise n from o
    match p:
        case {"q": [r, *s], **t} if u: pass
        case V(w, x=1) | None: pass
    return (y := 1) < z <= 2 and ~a or await b
"""


def beneath(root: ast.AST) -> list[ast.AST]:
    """The nodes of `ast.walk` but for uses of names and operators."""
    bare = ast.expr_context | ast.boolop | ast.operator | ast.unaryop | ast.cmpop
    return [node for node in ast.walk(root) if not isinstance(node, bare)]


@pytest.mark.parametrize("name", ["", "dataclasses.py", "typing.py", "asyncio/tasks.py", "test/test_patma.py"])
def test_the_same_nodes_in_the_same_order(name: str) -> None:
    if name and not (STDLIB / name).is_file():
        pytest.skip("this Python comes without it")
    tree = ast.parse((STDLIB / name).read_text("utf-8") if name else PROGRAM)
    assert list(map(id, walk(tree))) == list(map(id, beneath(tree)))


def test_every_kind_of_node_has_a_known_grammar() -> None:
    kinds = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
    for kind in kinds:
        if kind._fields and "Deprecated" not in (kind.__doc__ or ""):
            assert {name for name, _ in shape(kind)} <= set(kind._fields)
