"""Suppressions: `# promptlint: allow[rule] reason` in Python and YAML, `{# promptlint: allow[rule] reason #}` in Jinja.

Where one may stand: in Python on the line before, the first or the last line of the statement that holds the finding; in a
template on the same or the previous line; in YAML on the line of the key whose value holds it. Comments are found by the language's own reader, so text
in a string that looks like one is none. A file without the word `promptlint:` costs one search.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from promptlint.frontends.python.literals import strings_and_comments
from promptlint.frontends.python.newer_syntax import parse_newer
from promptlint.source import SourceFile, Span

__all__ = ["Suppression", "read_suppressions"]

_MARK = "promptlint:"
# The comment's own small language; the comment itself was found by the host language's reader.
_ALLOW = re.compile(r"promptlint:\s*allow\[(?P<rules>[^\]\n]*)\](?P<reason>[^\n]*)")


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment. `covers` holds the inclusive line ranges whose findings it allows."""

    span: Span
    rules: tuple[str, ...]
    reason: str
    covers: tuple[tuple[int, int], ...]

    def allows(self, line: int) -> bool:
        """Whether a finding whose primary place begins on that line is covered."""
        return any(first <= line <= last for first, last in self.covers)


def read_suppressions(source: SourceFile) -> list[Suppression]:
    """The suppressions of one file, in order. A file that its language's reader refuses has none."""
    if _MARK not in source.text:
        return []
    suffix = PurePosixPath(source.path).suffix.lower()
    if suffix == ".py":
        return list(_python(source))
    if suffix in (".yaml", ".yml"):
        return list(_yaml(source))
    if suffix == ".json":
        return []
    return list(_jinja(source))


def _parse(comment: str) -> tuple[tuple[str, ...], str] | None:
    """Rules and reason of a comment's text, or None when it is no suppression."""
    found = _ALLOW.search(comment)
    if found is None:
        return None
    rules = tuple(name for name in (part.strip() for part in found["rules"].split(",")) if name)
    return rules, found["reason"].strip(" \t:-#")


def _python(source: SourceFile) -> Iterator[Suppression]:
    text = source.text
    comments = [(start, text[start:end]) for start, end in strings_and_comments(text) if text.startswith("#", start)]
    comments = [(start, comment) for start, comment in comments if _MARK in comment]
    tree = _tree(text) if comments else None
    if tree is None:
        return
    statements = _statements(tree)
    for start, comment in comments:
        parsed = _parse(comment)
        if parsed is None:
            continue
        span = source.span(start, start + len(comment))
        alone = not source.line_text(span.line)[: span.column - 1].strip()
        yield Suppression(span, *parsed, tuple(_covered(statements, span.line, alone=alone)))


def _covered(statements: Sequence[tuple[int, int]], line: int, *, alone: bool) -> Iterator[tuple[int, int]]:
    """Statements that begin or end on the line; for a comment alone on its line also those that begin on the next line of code."""
    yield line, line
    for first, last in statements:
        if line in (first, last) or (alone and first == line + 1):
            yield first, last


def _tree(text: str) -> ast.Module | None:
    """The program, also in newer syntax than the running Python's; None when it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError:
        return parse_newer(text)
    except (ValueError, RecursionError, MemoryError):
        return None


def _statements(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last line of each simple statement, and of each compound statement's head."""
    rows = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = node.end_lineno or node.lineno
            if isinstance(body, list) and body:
                last = max(node.lineno, body[0].lineno - 1)
            rows.append((node.lineno, last))
    return rows


def _jinja(source: SourceFile) -> Iterator[Suppression]:
    import jinja2

    try:
        tokens = list(jinja2.Environment(autoescape=False).lex(source.text))  # noqa: S701  # nothing is rendered
    except jinja2.TemplateSyntaxError:
        return
    for index, (line, kind, value) in enumerate(tokens):
        if kind != "comment":
            continue
        parsed = _parse(value)
        if parsed is None:
            continue
        opening = tokens[index - 1]
        first = opening[0]
        last = line + value.count("\n")
        row = source.line_text(first)
        column = max(row.find(_MARK), 0) + 1
        span = Span(source.path, first, column, first, column + len(_MARK))
        yield Suppression(span, *parsed, ((first, last + 1),))


def _yaml(source: SourceFile) -> Iterator[Suppression]:
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        scalars = [node for root in yaml.compose_all(source.text, Loader=loader) for node in _scalars(root)]
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    for number in range(1, len(source.starts) + 1):
        row = source.line_text(number)
        if _MARK not in row:
            continue
        column = row.find("#")
        parsed = _parse(row[column:]) if column >= 0 else None
        inside = any(_holds(node, number, row.find(_MARK)) for node in scalars)
        if parsed is None or inside:
            continue
        covers = [(number, number)]
        covers += [_lines(node) for node in scalars if node.start_mark.line + 1 == number]
        yield Suppression(Span(source.path, number, column + 1, number, len(row) + 1), *parsed, tuple(covers))


def _scalars(root: Any) -> Iterator[Any]:
    """The scalar nodes of a composed document; an anchor's node counts once."""
    import yaml

    stack = [root]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield node
        elif isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            stack.extend(part for pair in node.value for part in pair)


def _lines(node: Any) -> tuple[int, int]:
    """First and last line of a scalar; the end mark of a block scalar stands at the beginning of the line behind it."""
    end = node.end_mark
    return node.start_mark.line + 1, max(end.line if end.column == 0 else end.line + 1, node.start_mark.line + 1)


def _holds(node: Any, line: int, column: int) -> bool:
    """Whether a place (1-based line, 0-based column) is text of a scalar; a block scalar's text begins below its head."""
    start, end = node.start_mark, node.end_mark
    first = start.line + 1
    if node.style in ("|", ">"):
        return bool(first < line <= end.line or (line == end.line + 1 and column < end.column))
    return bool((first, start.column) <= (line, column) < (end.line + 1, end.column))
