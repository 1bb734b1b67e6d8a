"""The canvas around a place: the literal, template file or scalar that spells the text in which it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from promptlint.fixes.canvas import EXPRESSION, Canvas, Cell, Token, cells_of_file, cells_of_map
from promptlint.fixes.code import Code, Desk
from promptlint.frontends import scalars, slots
from promptlint.frontends.python.literals import Literal, Slot, scan, string_end
from promptlint.source import SourceFile, Span

__all__ = ["canvas_at", "literal_at", "literal_canvas"]

_DATA = {
    ".yaml": scalars.yaml_strings,
    ".yml": scalars.yaml_strings,
    ".json": scalars.json_strings,
    ".toml": scalars.toml_strings,
}
_JINJA = frozenset({".jinja", ".jinja2", ".j2"})
_ROLE = re.compile(
    r"^[ \t]*(?:(?:system|user|assistant|developer|tool|function)[ \t]*:[ \t]*|\{\{[ \t]*role[ \t][^}]*\}\}[ \t]*)\r?$",
    re.MULTILINE,
)
_FRONT = re.compile(r"\A---[ \t]*\r?\n.*?^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)
_BETWEEN = re.compile(r"(?:[\s()]|\\\r?\n|#[^\r\n]*)*")
_PLUS = re.compile(r"(?:\s|\\\r?\n)*\+(?:\s|\\\r?\n)*")
_MOVABLE = frozenset({"if", "elif", "else", "endif", "for", "endfor"})
_OPENING = frozenset({"if", "for", "block", "macro", "call", "filter", "with", "autoescape", "trans", "raw"})


def canvas_at(desk: Desk, span: Span) -> Canvas | None:
    """The text around a place, or None when nothing spells it that we could edit."""
    source = desk.sources.get(span.path)
    if source is None:
        return None
    start, end = source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)
    suffix = f".{span.path.rsplit('.', 1)[-1].lower()}"
    if suffix == ".py":
        code = desk.code(span.path)
        return _python_canvas(code, start, end) if code is not None else None
    if suffix in _DATA:
        return _scalar_canvas(source, suffix, start)
    return _file_canvas(source, start, end, jinja=suffix in _JINJA)


def literal_at(code: Code, start: int, end: int) -> ast.expr | None:
    """The string literal around a place that stands in no other literal."""
    for node in code.nodes():
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            if isinstance(code.parents.get(node), ast.JoinedStr):
                continue
            first, last = code.range(node)
            if first <= start and end <= last:
                return node
    return None


def _python_canvas(code: Code, start: int, end: int) -> Canvas | None:
    """The literal around a place, or the concatenation of which it is an operand."""
    node = literal_at(code, start, end) or code.smallest(start, end)
    if node is None:
        return None
    top = node
    while isinstance(above := code.parents.get(top), ast.BinOp) and isinstance(above.op, ast.Add):
        top = above
    if isinstance(top, ast.BinOp) and isinstance(top.op, ast.Add):
        return _chain_canvas(code, top)
    return literal_canvas(code, node) if _is_text(node) else None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def literal_canvas(code: Code, node: ast.expr) -> Canvas | None:
    """The canvas of a literal, or run of adjacent literals."""
    canvas = Canvas(code.source, "", [], [])
    if not _add_literals(canvas, *code.range(node)):
        return None
    if not canvas.slots:
        _template_slots(canvas, syntax=_syntax_of(code, node))
    return canvas


def _add_literals(canvas: Canvas, first: int, last: int, joiner: str = "") -> bool:
    text = canvas.source.text
    at = first
    while at < last:
        gap = _BETWEEN.match(text, at, last)
        at = gap.end() if gap else at
        if at >= last:
            break
        stop = string_end(text, at)
        if stop is None or not _add_token(canvas, canvas.source, at, stop, joiner):
            return False
        at, joiner = stop, ""
    return True


def _chain_canvas(code: Code, top: ast.BinOp) -> Canvas | None:
    """The canvas of a concatenation: its literals, and its other operands as slots. None where an operand stands in brackets."""
    operands: list[ast.expr] = []
    pending: list[ast.expr] = [top]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            pending += [node.right, node.left]
        else:
            operands.append(node)
    if not any(map(_is_text, operands)):
        return None
    canvas = Canvas(code.source, "", [], [])
    text = code.source.text
    at = code.range(operands[0])[0]
    for number, operand in enumerate(operands):
        first, last = code.range(operand)
        if number and not _PLUS.fullmatch(text, at, first):
            return None
        at = last
        joiner = "+" if number else ""
        if _is_text(operand):
            if not _add_literals(canvas, first, last, joiner):
                return None
            continue
        begin = len(canvas.text)
        canvas.text += text[first:last].replace("\r\n", "\n")
        canvas.cells.append(Cell(begin, len(canvas.text), first, last, len(canvas.tokens)))
        canvas.tokens.append(Token(first, last, (first, last), EXPRESSION, None, joiner))
        canvas.slots.append((begin, len(canvas.text)))
    return canvas


def _syntax_of(code: Code, node: ast.expr) -> str | None:
    """How a literal is filled, where that is written beside it."""
    above = code.parents.get(node)
    if isinstance(above, ast.Attribute) and above.attr in {"format", "format_map"}:
        return "format"
    if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mod) and above.left is node:
        return "percent"
    return None


def _add_token(canvas: Canvas, source: SourceFile, start: int, stop: int, joiner: str = "") -> bool:
    opening = re.compile(r"([A-Za-z]{0,2})('''|\"\"\"|'|\")").match(source.text, start)
    parts = scan(source, start, stop)
    if opening is None or parts is None:
        return False
    prefix, quote = opening[1].lower(), opening[2]
    inner = (opening.end(), stop - len(quote))
    ending = "\r\n" if "\r\n" in source.text else "\n"
    newline = ending if len(quote) == 3 else None if "r" in prefix else "\\n"
    flavour = f"{''.join(sorted(prefix.replace('u', '').replace('t', 'f')))}{quote}"
    number = len(canvas.tokens)
    canvas.tokens.append(Token(start, stop, inner, flavour, newline, joiner))
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        limit = _begin(following, inner[1])
        if isinstance(part, Slot):
            begin = len(canvas.text)
            canvas.text += source.text[part.start : part.end].replace("\r\n", "\n").replace("\r", "\n")
            # A slot stands or falls as a whole.
            canvas.cells.append(Cell(begin, len(canvas.text), part.start, part.end, number))
            canvas.slots.append((begin, len(canvas.text)))
        else:
            if isinstance(following, Slot) and part.map.runs and part.map.runs[0][1] > following.start:
                return False  # `{x=}`: the text is a part of the slot
            canvas.cells += cells_of_map(part.map, len(part.value), limit, offset=len(canvas.text), token=number)
            canvas.text += part.value
    return True


def _begin(part: Literal | Slot | None, end: int) -> int:
    if part is None:
        return end
    if isinstance(part, Slot):
        return part.start
    return part.map.runs[0][1] if part.map.runs else end


def _template_slots(canvas: Canvas, *, syntax: str | None = None) -> None:
    """Slots of the template that the text is, if it is one. Fields without a name count as slots of str.format."""
    syntax = syntax or slots.guess(canvas.text) or "format"
    if syntax == "jinja2":
        _jinja_slots(canvas)
    else:
        canvas.slots += [(slot.start, slot.end) for slot in slots.slots(canvas.text, syntax)]


def _jinja_slots(canvas: Canvas) -> None:
    import jinja2

    from promptlint.frontends.jinja.lex import Data, Output, lex

    try:
        parts = lex(canvas.text)
    except jinja2.TemplateSyntaxError:
        canvas.fixed.append((0, len(canvas.text)))
        return
    opened: list[int] = []
    movable = True
    end = 0
    for part in parts:
        if isinstance(part, Data):
            pass
        elif isinstance(part, Output):
            if not opened:
                canvas.slots.append((part.start, part.end))
        else:
            if not opened:
                movable = True
            movable = movable and part.name in _MOVABLE
            if part.name in _OPENING or (part.name == "set" and not part.assigns):
                opened.append(part.start)
            elif part.name.startswith("end") and opened:
                begin = opened.pop()
                if not opened:
                    (canvas.sections if movable else canvas.fixed).append((begin, part.end))
            elif not opened:
                canvas.fixed.append((part.start, part.end))
        end = max(end, part.end)
    if opened:
        canvas.fixed.append((0, len(canvas.text)))
    canvas.sections += [(start, stop) for start, stop in _comments(canvas.text) if not _inside(start, canvas.sections)]


def _comments(text: str) -> Iterator[tuple[int, int]]:
    return ((match.start(), match.end()) for match in re.finditer(r"\{#.*?#\}", text, re.DOTALL))


def _inside(at: int, ranges: list[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in ranges)


def _scalar_canvas(source: SourceFile, suffix: str, start: int) -> Canvas | None:
    """The canvas of the string of a data file that holds a place."""
    try:
        strings = _DATA[suffix](source)
    except scalars.BrokenDataError:
        return None
    for scalar in strings:
        if not scalar.where.runs or abs(scalar.line - source.place(start)[0]) > scalar.value.count("\n") + 200:
            continue
        runs = scalar.where.runs
        if not runs[0][1] <= start <= runs[-1][1] + runs[-1][2] or not all(run[3] or run[2] <= 2 for run in runs):
            continue
        last = runs[-1]
        stop = last[1] + (last[2] if last[3] else _escape_width(source.text, last[1]))
        begin = runs[0][1]
        token = Token(begin, stop, (begin, stop), "", _scalar_newline(source, suffix, begin))
        canvas = Canvas(source, scalar.value, cells_of_map(scalar.where, len(scalar.value), stop), [token])
        _template_slots(canvas)
        return canvas
    return None


def _escape_width(text: str, at: int) -> int:
    return 2 if text[at : at + 1] in {"\\", "'"} else 2 if text.startswith("\r\n", at) else 1


def _scalar_newline(source: SourceFile, suffix: str, begin: int) -> str | None:
    """How a line end is written in the scalar whose text begins there."""
    before = source.text[begin - 1 : begin]
    if suffix == ".json" or before == '"':
        return "\\n"
    if suffix == ".toml" or before == "'":
        return None
    line, column = source.place(begin)
    indent = source.line_text(line)[: column - 1]
    if indent.strip():
        return None  # a plain scalar behind its key
    above = source.line_text(line - 1).rstrip()
    ending = "\r\n" if "\r\n" in source.text else "\n"
    return ending + indent if re.search(r"\|[-+\d]*(?:\s+#.*)?$", above) else None


def _file_canvas(source: SourceFile, start: int, end: int, *, jinja: bool) -> Canvas | None:
    """The canvas of a template file, or of the part of it that becomes one message."""
    front = _FRONT.match(source.text)
    low, high = front.end() if front else 0, len(source.text)
    if not jinja:
        for match in _ROLE.finditer(source.text, low):
            if match.end() <= start:
                low = min(match.end() + 1, high)
            elif match.start() >= end:
                high = match.start()
                break
    text, cells = cells_of_file(source, low)
    cells = [cell for cell in cells if cell.source_end <= high]
    ending = "\r\n" if "\r\n" in source.text else "\n"
    canvas = Canvas(source, text[: len(cells)], cells, [Token(low, high, (low, high), "", ending)])
    _template_slots(canvas, syntax="jinja2" if jinja else None)
    return canvas
