"""Lists of messages and blocks: what is inserted at the front is appended, blocks take the order that most call sites use, cache markers stand behind what stays.

All of it is display-only, because a model reads the parts in another order or in other messages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from promptlint.finding import Edit, Finding, Fix
from promptlint.fixes.canvases import literal_canvas
from promptlint.fixes.code import Code, Desk
from promptlint.fixes.known import bindings, is_call, is_string

__all__ = ["appended", "marked", "split_at_marker", "split_message", "swapped"]

_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.ListComp)
"""Expressions that mean the same on either side of a `+`, without brackets of their own."""
_MARK = '"cache_control": {"type": "ephemeral"}'


def appended(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """`messages.insert(0, m)` as `messages.append(m)`, `[m, *messages]` as `[*messages, m]`, `[m] + messages` as `messages + [m]`."""
    code = desk.code(finding.span.path)
    if code is None:
        return
    span = finding.span
    start = code.source.offset(span.line, span.column)
    end = code.source.offset(span.end_line, span.end_column)
    for node in (code.smallest(start, end), code.statement(start, end)):
        edits = _appended(code, node) if node is not None else ()
        if edits:
            yield Fix("append the message", "display-only", edits)
            return


def _appended(code: Code, node: ast.AST) -> tuple[Edit, ...]:
    if isinstance(node, ast.Expr | ast.Assign | ast.Return):
        value = node.value
        return _appended(code, value) if isinstance(value, ast.Call | ast.List | ast.BinOp) else ()
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "insert"
        and len(node.args) == 2
    ):
        index, message = node.args
        if not (isinstance(index, ast.Constant) and index.value == 0):
            return ()
        end = code.range(node.func)[1]
        if "#" in code.source.text[code.range(index)[1] : code.range(message)[0]]:
            return ()  # a comment would be lost
        return (
            code.edit(end - len("insert"), end, "append"),
            code.edit(code.range(index)[0], code.range(message)[0], ""),
        )
    if (
        isinstance(node, ast.List)
        and len(node.elts) == 2
        and isinstance(node.elts[1], ast.Starred)
        and not isinstance(node.elts[0], ast.Starred)
    ):
        return _exchange(code, node.elts[0], node.elts[1])
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and isinstance(node.left, ast.List)
        and isinstance(node.right, _ATOMS)
    ):
        return _exchange(code, node.left, node.right)
    return ()


def _exchange(code: Code, one: ast.expr, other: ast.expr) -> tuple[Edit, ...]:
    first, second = code.range(one), code.range(other)
    text = code.source.text
    return (code.edit(*first, text[slice(*second)]), code.edit(*second, text[slice(*first)]))


def swapped(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """The two blocks that stand the other way round than at most call sites, exchanged. They must be elements of one list."""
    places = [note.span for note in finding.trace if note.note == "this block"]
    for span in (finding.span, *places):
        found = desk.at(span)
        if found is None:
            continue
        code, node = found
        elements = [
            each
            for each in (_element(code, node), *(_element_at(code, desk, place) for place in places))
            if each is not None
        ]
        for one in elements:
            for other in elements:
                parent = code.parents.get(one)
                if (
                    one is other
                    or parent is None
                    or parent is not code.parents.get(other)
                    or not isinstance(parent, ast.List | ast.Tuple)
                ):
                    continue
                ends = [code.range(each) for each in (one, other)]
                if ends[0][0] < ends[1][0]:
                    yield Fix(
                        "put the blocks into the order that most call sites use",
                        "display-only",
                        _exchange(code, one, other),
                    )
                    return
        # The second block is the next element.
        first = elements[0] if elements else None
        parent = code.parents.get(first) if first is not None else None
        if first is not None and isinstance(parent, ast.List) and first in parent.elts:
            at = parent.elts.index(first)
            if at + 1 < len(parent.elts) and not isinstance(parent.elts[at + 1], ast.Starred):
                yield Fix(
                    "put the blocks into the order that most call sites use",
                    "display-only",
                    _exchange(code, first, parent.elts[at + 1]),
                )
        return


def _element(code: Code, node: ast.expr) -> ast.expr | None:
    current: ast.AST = node
    for above in code.above(node):
        if isinstance(above, ast.List | ast.Tuple) and isinstance(
            current, ast.Dict | ast.Name | ast.Call | ast.Constant | ast.JoinedStr | ast.Attribute
        ):
            return current
        if isinstance(above, ast.stmt):
            return None
        current = above
    return None


def _element_at(code: Code, desk: Desk, span: object) -> ast.expr | None:
    found = desk.at(span)  # type: ignore[arg-type]
    return _element(code, found[1]) if found is not None and found[0] is code else None


def marked(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """A marker on the system text of a call to Anthropic, whose last block ends the stable prefix."""
    found = desk.at(finding.span)
    if found is None:
        return
    code, node = found
    call = next((each for each in (node, *code.above(node)) if isinstance(each, ast.Call)), None)
    system = next((each.value for each in call.keywords if each.arg == "system"), None) if call is not None else None
    if system is None:
        return
    if isinstance(system, ast.List) and system.elts and isinstance(system.elts[-1], ast.Dict):
        last = system.elts[-1]
        start, end = code.range(last)
        inner = code.source.text[start : end - 1].rstrip()
        comma = " " if inner.endswith(",") else ", "
        place = start + len(inner)
        yield Fix("mark the end of the stable prefix", "display-only", (code.edit(place, place, comma + _MARK),))
    elif isinstance(
        system, ast.Constant | ast.JoinedStr | ast.Name | ast.Attribute | ast.Call | ast.BinOp
    ) and not _may_be_list(code, system):
        start, end = code.range(system)
        opening = '[{"type": "text", "text": '
        yield Fix(
            "mark the end of the stable prefix",
            "display-only",
            (code.edit(start, start, opening), code.edit(end, end, f", {_MARK}}}]")),
        )


def _may_be_list(code: Code, node: ast.expr) -> bool:
    """Whether what is sent as system text is, or may well be, a list of blocks already."""
    if isinstance(node, ast.BinOp):
        return not any(is_string(code, each) for each in (node, node.left, node.right)) and any(
            _may_be_list(code, each) for each in (node.left, node.right)
        )
    if isinstance(node, ast.Name):
        values, annotation = bindings(code, node)
        if annotation is not None:
            return "str" not in {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}
        return any(_may_be_list(code, value) for value in values if not isinstance(value, ast.Name))
    return isinstance(node, ast.List | ast.ListComp | ast.Tuple) or (
        isinstance(node, ast.Call) and is_call(node, {"list"})
    )


def split_at_marker(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """A marked block whose text ends with a changing value, in two: the marker stays with the part that stays the same."""
    found = desk.at(finding.span)
    if found is None:
        return
    code, node = found
    block = next(
        (each for each in (node, *code.above(node)) if isinstance(each, ast.Dict) and _value(each, "text") is not None),
        None,
    )
    text = _value(block, "text") if block is not None else None
    if block is None or not isinstance(text, ast.JoinedStr) or not isinstance(code.parents.get(block), ast.List):
        return
    halves = _halves(code, text, finding)
    if halves is None:
        return
    head, tail = halves
    start, end = code.range(text)
    _, last = code.range(block)
    yield Fix(
        "split the block, and keep the marker at what stays the same",
        "display-only",
        (code.edit(start, end, head), code.edit(last, last, f', {{"type": "text", "text": {tail}}}')),
    )


def split_message(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """A user message with a stable head and a changing tail, in two: the head becomes a system message."""
    found = desk.at(finding.span)
    if found is None:
        return
    code, node = found
    outer = code.file
    holder = code.holder if code.outer is not None else node
    if not isinstance(holder, ast.JoinedStr):
        return
    message = outer.parents.get(holder)
    if not isinstance(message, ast.Dict) or not isinstance(outer.parents.get(message), ast.List):
        return
    listed = outer.parents[message]
    assert isinstance(listed, ast.List)
    role = _value(message, "role")
    if listed.elts[0] is not message or not (isinstance(role, ast.Constant) and role.value == "user"):
        return
    halves = _halves(outer, holder, finding)
    if halves is None:
        return
    head, tail = halves
    start, end = outer.range(holder)
    first, _ = outer.range(message)
    edits = (outer.edit(first, first, f'{{"role": "system", "content": {head}}}, '), outer.edit(start, end, tail))
    yield Fix("send what stays the same as a message of its own", "display-only", edits)


def _value(node: ast.Dict, key: str) -> ast.expr | None:
    return next(
        (
            value
            for name, value in zip(node.keys, node.values, strict=True)
            if isinstance(name, ast.Constant) and name.value == key
        ),
        None,
    )


def _halves(code: Code, literal: ast.JoinedStr, finding: Finding) -> tuple[str, str] | None:
    """The literal as two: what stands ahead of the sentence or label of the finding's value, and the rest."""
    canvas = literal_canvas(code, literal)
    if canvas is None or len(canvas.tokens) != 1:
        return None
    slots = [(low, high) for low, high in canvas.slots if _same(finding.expression, canvas.text[low:high])]
    if not slots:
        return None
    cut = _begin_of(canvas.text, slots[0][0], canvas.slots)
    number = canvas.index(cut)
    if not cut or number is None or number >= len(canvas.cells):
        return None
    token = canvas.tokens[0]
    text = canvas.source.text
    opening, closing = text[token.start : token.inner[0]], text[token.inner[1] : token.end]
    middle = canvas.cells[number].source_start
    head, tail = text[token.inner[0] : middle].rstrip(" "), text[middle : token.inner[1]].lstrip(" ")
    only = [each for each in canvas.slots if each[1] <= cut]
    if len(only) == 1 and canvas.text[:cut].strip() == canvas.text[slice(*only[0])]:
        return canvas.text[slice(*only[0])].strip("{}"), f"{opening}{tail}{closing}"
    return f"{opening}{head}{closing}", f"{opening}{tail}{closing}"


def _same(expression: str, slot: str) -> bool:
    return "".join(expression.split()) in "".join(slot.split())


def _begin_of(text: str, at: int, slots: list[tuple[int, int]]) -> int:
    """Where the label or the sentence of a slot begins: behind the last end of a line, of a sentence or of another slot."""
    floor = max((high for _, high in slots if high <= at), default=0)
    found = floor
    for mark in ("\n", ". ", "! ", "? "):
        place = text.rfind(mark, floor, at)
        if place >= 0:
            found = max(found, place + len(mark))
    return found
