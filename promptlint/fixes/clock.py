"""Clocks printed to the day: one miss a day in place of one a request. Unsafe, because the text says less."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from promptlint.finding import Edit, Finding, Fix
from promptlint.fixes.code import Code, Desk
from promptlint.fixes.known import bindings
from promptlint.frontends.python.literals import Literal, Slot, scan

__all__ = ["coarsened", "time_of_day"]

_TITLE = "print no more than the date"
_TIME = "HIMSfpXZzTRrsckl"
"""Directives of strftime that print a time of day (`%c` a whole date with one; `%Z` and `%z` say nothing of a date)."""
_DIRECTIVE = re.compile(r"%[-_0^#]?([A-Za-z%])")
_JOINTS = re.compile(r"(?:[\s:,.;|@/()_\-–—T'\"]|\bat\b|\bUTC\b|\bGMT\b)*\Z")
_TEMPLATE = re.compile(r"\{\{-?\s*(?:now|strftime_now|utcnow)\s*\(")
_NOW = frozenset({"now", "utcnow", "today"})


def coarsened(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """The clock of a finding, printed to the day."""
    for span in dict.fromkeys([finding.span, *(note.span for note in finding.trace)]):
        if span.path.endswith(".py"):
            found = desk.at(span)
            edits = _edits(*found) if found is not None else ()
        else:
            edits = _in_template(desk, finding)
        if edits:
            yield Fix(_TITLE, "unsafe", edits)
            return


def _edits(code: Code, node: ast.expr) -> tuple[Edit, ...]:
    for each in (node, *ast.walk(node)):
        if isinstance(each, ast.Call):
            edits = _of_call(code, each)
            if edits:
                return edits
    if isinstance(node, ast.Name):
        values, _ = bindings(code, node)
        if len(values) == 1 and isinstance(values[0], ast.Call):
            if _is_clock(values[0]):
                return _printed(code, node)
            return _of_call(code.file, values[0]) if _read_once(code, node) else ()
    return ()


def _read_once(code: Code, name: ast.Name) -> bool:
    """Whether a text is used at one place: elsewhere (a file's name, a log) its time of day may be needed."""
    top: ast.AST = code.function_of(name) or code.file.tree
    return (
        sum(
            isinstance(each, ast.Name) and each.id == name.id and isinstance(each.ctx, ast.Load)
            for each in ast.walk(top)
        )
        == 1
    )


def _taken_apart(code: Code, call: ast.Call) -> bool:
    """Whether the printed clock is split or indexed: what is looked for there may be the time of day."""
    parent = code.parents.get(call)
    return isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Subscript) and parent.value is call)


def _of_call(code: Code, call: ast.Call) -> tuple[Edit, ...]:
    function = call.func
    if not isinstance(function, ast.Attribute) or (not _is_clock(call) and _taken_apart(code, call)):
        return ()
    if function.attr == "strftime" and call.args:
        literal = call.args[0]
        is_text = isinstance(literal, ast.Constant) and isinstance(literal.value, str)
        return _shorter_format(code, literal) if is_text else ()
    if function.attr == "isoformat" and isinstance(function.value, ast.Call) and _is_clock(function.value):
        start, end = code.range(call)
        inner = code.range(function.value)[1]
        return (
            (code.edit(inner, end, ".date().isoformat()"),)
            if not _has_comment(code, inner, end) and start < inner
            else ()
        )
    if _is_clock(call):
        return _printed(code, call)
    return ()


def _has_comment(code: Code, start: int, end: int) -> bool:
    return "#" in code.source.text[start:end]


def _is_clock(call: ast.Call) -> bool:
    """`datetime.now()` and the like; what it is called on is known from the finding."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _NOW:
        return False
    owner = call.func.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name == "datetime"


def _printed(code: Code, node: ast.expr) -> tuple[Edit, ...]:
    """A datetime that is printed where it stands: `{now}` becomes `{now.date()}`, and `str(now)` `str(now.date())`; a format loses the time."""
    _, end = code.range(node)
    parent = code.parents.get(node)
    if (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id == "str"
        and len(parent.args) == 1
    ):
        return (code.edit(end, end, ".date()"),)
    if code.outer is None or code.tree is not node or code.holder is None:
        return ()
    first, last = code.outer.range(code.holder)
    for part in scan(code.source, first, last) or ():
        if isinstance(part, Slot) and part.expression_start <= end <= part.expression_end:
            if not part.spec:
                return (code.edit(end, end, ".date()"),)
            if len(part.spec) == 1 and isinstance(part.spec[0], Literal) and part.spec[0].value:
                text = part.spec[0]
                cut = time_of_day(text.value)
                if cut is not None and len(text.map.runs) == 1:
                    base = text.map.runs[0][1]
                    return (code.edit(base + cut[0], base + cut[1], ""),)
    return ()


def _shorter_format(code: Code, literal: ast.expr) -> tuple[Edit, ...]:
    start, end = code.range(literal)
    parts = scan(code.source, start, end)
    if not parts or len(parts) != 1 or not isinstance(parts[0], Literal) or len(parts[0].map.runs) != 1:
        return ()
    cut = time_of_day(parts[0].value)
    base = parts[0].map.runs[0][1]
    return (code.edit(base + cut[0], base + cut[1], ""),) if cut is not None else ()


def time_of_day(pattern: str) -> tuple[int, int] | None:
    """The stretch of a strftime format that prints the time of day with what joins it to the date; None where no date is left or none goes."""
    directives = [(match.start(), match.end(), match[1]) for match in _DIRECTIVE.finditer(pattern)]
    times = [each for each in directives if each[2] in _TIME]
    dates = [each for each in directives if each[2] not in _TIME and each[2] != "%"]
    if not times or not dates or any(each[2] == "c" for each in times):
        return None
    start, end = times[0][0], times[-1][1]
    if any(start < each[0] < end for each in dates):
        return None
    if dates[-1][1] <= start:  # the date comes first
        joint = _JOINTS.search(pattern, dates[-1][1], start)
        start = joint.start() if joint else start
        tail = re.compile(r"(?:\s*(?:UTC|GMT|Z|o'clock))?").match(pattern, end)
        return start, tail.end() if tail else end
    following = re.compile(r"(?:[\s:,.;|@/_\-–—]|\bon\b)*").match(pattern, end)
    return start, following.end() if following else end


def _in_template(desk: Desk, finding: Finding) -> tuple[Edit, ...]:
    """`{{ now() }}`, `{{ now().strftime("…") }}` and `{{ strftime_now("…") }}` in a template."""
    source = desk.sources.get(finding.span.path)
    if source is None:
        return ()
    start = source.offset(finding.span.line, finding.span.column)
    end = source.offset(finding.span.end_line, finding.span.end_column)
    text = source.text[start:end]
    if not _TEMPLATE.match(text):
        return ()
    quoted = re.search(r"\(\s*(['\"])((?:(?!\1)[^\\])*%(?:(?!\1)[^\\])*)\1\s*\)", text)
    if quoted is not None:
        cut = time_of_day(quoted[2])
        base = start + quoted.start(2)
        return (Edit(source.span(base + cut[0], base + cut[1]), ""),) if cut is not None else ()
    plain = re.match(r"\{\{-?\s*(?:now|utcnow)\s*\(\s*\)(?=\s*-?\}\})", text)
    if plain is None:
        return ()
    return (Edit(source.span(start + plain.end(), start + plain.end()), ".date()"),)
