"""A value taken out of the system text and put into the newest message, behind the conversation.

Two places change, in one file or in two: the text that loses the value, and the list of messages that gets it. Both change or none. When another place
uses the same text, nothing is offered, because the value would be lost there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.finding import Edit, Finding, Fix
from promptlint.fixes.canvas import Canvas
from promptlint.fixes.canvases import canvas_at, literal_at
from promptlint.fixes.code import Code, Desk
from promptlint.fixes.known import bindings, is_string
from promptlint.fixes.move import prose_of
from promptlint.fixes.prose import stretch

__all__ = ["into_newest_message"]

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_TITLE = "move the value into the newest message"


@dataclass(frozen=True, slots=True)
class _Taken:
    """What leaves the text: the edits that remove it, and the literal that spells it in the function that sends the messages."""

    edits: tuple[Edit, ...]
    literal: str
    opening: str


def into_newest_message(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """The value with its label or sentence as the end of the last user message, or as a user message of its own."""
    listed = _messages(finding, desk)
    canvas = canvas_at(desk, finding.span)
    code = desk.code(finding.span.path)
    if listed is None or canvas is None or code is None:
        return
    source = desk.sources[finding.span.path]
    start = source.offset(finding.span.line, finding.span.column)
    end = source.offset(finding.span.end_line, finding.span.end_column)
    taken = _take(canvas, start, end, code, listed, desk)
    if taken is None:
        return
    target, messages = listed
    edit = _give(target, messages, taken)
    if edit is not None:
        yield Fix(_TITLE, "display-only", (*taken.edits, edit))


def _messages(finding: Finding, desk: Desk) -> tuple[Code, ast.List] | None:
    """The list of messages that the finding's call sends."""
    for note in reversed(finding.trace):
        found = desk.at(note.span) if note.note == "sent here" and note.span.path.endswith(".py") else None
        if found is None:
            continue
        code, node = found
        call = node if isinstance(node, ast.Call) else None
        if call is None or code.outer is not None:
            return None
        given = [keyword.value for keyword in call.keywords if keyword.arg in {"messages", "input"}] + call.args[:1]
        for value in given:
            if isinstance(value, ast.Name):
                values, _ = bindings(code, value)
                if _grows(code, value):
                    return None  # its last element is not the newest message
                value = values[0] if len(values) == 1 else value
            if isinstance(value, ast.List) and value.elts and any(map(_is_message, value.elts)):
                return code, value
    return None


def _grows(code: Code, name: ast.Name) -> bool:
    """Whether messages are put into a list after it was made."""
    top: ast.AST = code.function_of(name) or code.file.tree
    for node in ast.walk(top):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name.id:
            return True
        called = node.value if isinstance(node, ast.Attribute) and node.attr in {"append", "extend", "insert"} else None
        if isinstance(called, ast.Name) and called.id == name.id:
            return True
    return False


def _is_message(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred | ast.Name) or (isinstance(node, ast.Dict) and _entry(node, "role") is not None)


def _entry(node: ast.Dict, key: str) -> ast.expr | None:
    for name, value in zip(node.keys, node.values, strict=True):
        if isinstance(name, ast.Constant) and name.value == key:
            return value
    return None


def _take(canvas: Canvas, start: int, end: int, code: Code, listed: tuple[Code, ast.List], desk: Desk) -> _Taken | None:
    found = canvas.text_range(start, end)
    literal = literal_at(code, start, end)
    if found is None or literal is None or len(canvas.tokens) != 1:
        return None
    slots = [each for each in canvas.slots if each[0] < found[1] and found[0] < each[1]]
    low, high = (min(slots)[0], max(slots)[1]) if slots else found
    unit = stretch(prose_of(canvas, found), low, high)
    if unit is None or any(a < unit[1] and unit[0] < b for a, b in (*canvas.sections, *canvas.fixed)):
        return None
    first, last, whole = unit
    rest = canvas.text[:first] + canvas.text[last:]
    if not any(map(str.isalnum, rest)):
        return None
    bare = last - 1 if whole and canvas.text[first:last].endswith("\n") else last
    removal = (first, last)
    if whole and canvas.text[last : last + 1] == "\n" and (first == 0 or canvas.text[:first].endswith("\n\n")):
        removal = (first, last + 1)
    elif first and not canvas.text[last:].strip() and canvas.text[first - 1] in "\n ":
        removal = (len(canvas.text[:first].rstrip()), last)
    elif canvas.text[first - 1 : first] == " " and not whole:
        removal = (first - 1, last)
    token = canvas.tokens[0]
    spelled = canvas.copied(first, bare, token.flavour)
    removed = canvas.removed(*removal)
    opening = canvas.source.text[token.start : token.inner[0]]
    if spelled is None or removed is None:
        return None
    spelled = spelled.strip(" \t")
    target, messages = listed
    if "f" in opening.lower():
        if not _in_scope(code, literal, target, messages):
            return None
    else:
        filled = _filled(spelled, canvas, (first, bare), code, literal, listed, desk)
        if filled is None:
            return None
        spelled, opening = filled, f"f{opening}"
    quote = canvas.source.text[token.inner[1] : token.end]
    if spelled.endswith(quote[0]) and len(quote) == 3:
        spelled += "\n"
    return _Taken(tuple(removed), f"{opening}{{}}{spelled}{quote}", opening)


def _in_scope(code: Code, literal: ast.expr, target: Code, messages: ast.List) -> bool:
    """Whether what the literal's slots name means the same where the messages are put together."""
    if code is not target or code.function_of(literal) is not code.function_of(messages):
        return False
    around = set(code.above(messages))
    for above in code.above(literal):
        if above is code.function_of(literal):
            return True
        branches = isinstance(
            above,
            ast.If
            | ast.For
            | ast.AsyncFor
            | ast.While
            | ast.Try
            | ast.comprehension
            | ast.ListComp
            | ast.GeneratorExp
            | ast.Lambda
            | ast.ClassDef,
        )
        if branches and above not in around:
            return False
    return False


def _filled(
    spelled: str,
    canvas: Canvas,
    unit: tuple[int, int],
    code: Code,
    literal: ast.expr,
    listed: tuple[Code, ast.List],
    desk: Desk,
) -> str | None:
    """The unit of a template with the values that the `.format` call beside the messages gives its slots."""
    name = _constant_name(code, literal)
    target, messages = listed
    if name is None:
        return None
    function = target.function_of(messages)
    calls = [each for each in ast.walk(function or target.tree) if _formats(each, name)]
    if len(calls) != 1 or not _used_once(name, desk):
        return None
    call = calls[0]
    assert isinstance(call, ast.Call)
    values = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    for low, high in canvas.slots:
        if not (unit[0] <= low and high <= unit[1]):
            continue
        slot = canvas.text[low:high]
        value = values.get(slot.strip("{}"))
        shown = target.spelled(value) if value is not None else ""
        if slot != f"{{{slot.strip('{}')}}}" or not _NAME.fullmatch(shown):
            return None
        spelled = spelled.replace(slot, f"{{{shown}}}")
    return spelled


def _constant_name(code: Code, literal: ast.expr) -> str | None:
    """The name of the module's constant that a literal is the value of."""
    parent = code.parents.get(literal)
    if isinstance(parent, ast.Assign) and code.parents.get(parent) is code.tree and len(parent.targets) == 1:
        target = parent.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def _formats(node: ast.AST, name: str) -> bool:
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Attribute)
        or node.func.attr != "format"
        or node.args
    ):
        return False
    owner = node.func.value
    return (owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else "") == name


def _used_once(name: str, desk: Desk) -> bool:
    """Whether a constant is mentioned where it is defined, where it is imported, and at one place more."""
    uses = 0
    for source in desk.everything():
        if name not in source.text:
            continue
        lines = source.text.splitlines()
        if not source.path.endswith(".py"):
            return False
        for line in lines:
            if re.search(rf"\b{re.escape(name)}\b", line) and not re.match(
                rf"\s*(?:from\s|import\s|{re.escape(name)}\s*(?::[^=]*)?=|{re.escape(name)},?\s*$|#)", line
            ):
                uses += 1
    return uses == 1


def _give(code: Code, messages: ast.List, taken: _Taken) -> Edit | None:
    """The edit that adds the text to the list."""
    last = messages.elts[-1]
    raw = "r" in taken.opening.lower()
    gap = "\n\n" if len(taken.opening.lower().lstrip("fr")) == 3 else "\\n\\n"
    role = _entry(last, "role") if isinstance(last, ast.Dict) else None
    is_user = isinstance(role, ast.Constant) and role.value == "user"
    content = _entry(last, "content") if isinstance(last, ast.Dict) and is_user else None
    if content is not None and not raw:
        end = code.range(content)[1]
        if isinstance(content, ast.JoinedStr) or (isinstance(content, ast.Constant) and isinstance(content.value, str)):
            return code.edit(end, end, " " + taken.literal.replace("{}", gap, 1))
        if is_string(code, content) and isinstance(content, ast.Name | ast.Attribute | ast.Call):
            return code.edit(end, end, " + " + taken.literal.replace("{}", gap, 1))
    message = f'{{"role": "user", "content": {taken.literal.replace("{}", "", 1)}}}'
    start, end = code.range(last)
    line, column = code.source.place(start)
    blanks = code.source.line_text(line)[: column - 1]
    ending = "\r\n" if "\r\n" in code.source.text else "\n"
    between = f",{ending}{blanks}" if not blanks.strip() else ", "
    return code.edit(start, start, message + between) if content is not None else code.edit(end, end, between + message)
