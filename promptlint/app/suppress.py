"""Suppressions: `# promptlint: allow[rule] reason` in Python and YAML, `{# promptlint: allow[rule] reason #}` in Jinja.

Where one may stand: in Python on the line before, the first or the last line of the statement that holds the finding; in a
template on the same or the previous line; in YAML on the line of the key whose value holds it. Comments are found by the language's own reader, so text
in a string that looks like one is none. A file without the word `promptlint:` costs one search.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

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
    comments = [(line, column, text) for line, column, text in _comments(source.text) if _MARK in text]
    if not comments:
        return
    statements = _statements(source.text)
    for line, column, text in comments:
        parsed = _parse(text)
        if parsed is None:
            continue
        span = Span(source.path, line, column + 1, line, column + 1 + len(text))
        alone = not source.line_text(line)[:column].strip()
        yield Suppression(span, *parsed, tuple(_covered(statements, line, alone=alone)))


def _covered(statements: Sequence[tuple[int, int]], line: int, *, alone: bool) -> Iterator[tuple[int, int]]:
    """Statements that begin or end on the line; for a comment alone on its line also those that begin on the next line of code."""
    yield line, line
    for first, last in statements:
        if line in (first, last) or (alone and first == line + 1):
            yield first, last


def _comments(text: str) -> list[tuple[int, int, str]]:
    """(line, 0-based column, text) of each comment."""
    try:
        return [
            (*token.start, token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
    except (tokenize.TokenError, SyntaxError):
        return _newer_comments(text)


def _newer_comments(text: str) -> list[tuple[int, int, str]]:
    """The same through libcst, which reads newer syntax than the running Python; none when it refuses too."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except Exception:  # noqa: BLE001  # libcst raises several kinds; a file that nothing reads is reported by the front end
        return []
    places = wrapper.resolve(PositionProvider)
    return sorted(
        (place.start.line, place.start.column, node.value)
        for node, place in places.items()
        if isinstance(node, cst.Comment)
    )


def _statements(text: str) -> list[tuple[int, int]]:
    """First and last line of each simple statement, and of each compound statement's head."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _newer_statements(text)
    rows = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = node.end_lineno or node.lineno
            if isinstance(body, list) and body:
                last = max(node.lineno, body[0].lineno - 1)
            rows.append((node.lineno, last))
    return rows


def _newer_statements(text: str) -> list[tuple[int, int]]:
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except Exception:  # noqa: BLE001  # as above
        return []
    rows = []
    for node, place in wrapper.resolve(PositionProvider).items():
        if isinstance(node, cst.SimpleStatementLine):
            rows.append((place.start.line, place.end.line))
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
