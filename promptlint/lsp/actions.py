"""Code actions: edits that repair a finding, and the comment that allows it.

An edit is offered only after it was tried: with it the file still parses, the finding is gone and no new one appears, as `check --fix` demands. A comment is
offered only when the reader of suppressions finds it and it covers the finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from promptlint.app.discovery import absolute
from promptlint.app.fix import objection, proposals
from promptlint.app.live import Live, Look
from promptlint.app.suppress import Suppression, read_suppressions
from promptlint.finding import Edit, Finding, Fix
from promptlint.fixes.splice import apply
from promptlint.report.model import FindingItem
from promptlint.source import SourceFile, Span

__all__ = ["REASON", "allowing", "finding_of", "repairs"]

REASON = "TODO: say why"
MAX_TRIED = 4  # edits of one finding that are tried
_JINJA = frozenset({".jinja", ".jinja2", ".j2"})
_YAML = frozenset({".yaml", ".yml"})


def finding_of(look: Look, item: FindingItem) -> Finding | None:
    """The finding behind a row of the report."""
    place = Span(item.path, item.line, item.column, item.end_line, item.end_column)
    return next((one for one in look.analysis.result.findings if one.rule == item.rule and one.span == place), None)


def repairs(live: Live, look: Look, finding: Finding) -> list[tuple[Fix, dict[Path, str]]]:
    """The edits that help a finding, the best first, each with the new texts of the files that it changes."""
    found: list[tuple[Fix, dict[Path, str]]] = []
    project = look.analysis.project
    for fix in proposals(look.analysis, finding)[:MAX_TRIED]:
        texts: dict[Path, str] = {}
        for shown in sorted({edit.span.path for edit in fix.edits}):
            path = absolute(project.working_directory / shown)
            source = look.source(path)
            if source is None or path not in project.given:
                break
            try:
                texts[path] = apply(source, [edit for edit in fix.edits if edit.span.path == shown])
            except ValueError:
                break
        else:
            after = live.fork().look({**project.overlay, **texts}, quick=True)
            if not objection((look.analysis, look.report), (after.analysis, after.report), finding, fix):
                found.append((fix, texts))
    return found


def allowing(source: SourceFile, finding: FindingItem, reason: str = REASON) -> tuple[Edit, Span | None] | None:
    """The edit that allows a finding by a comment, and the place of the reason in the new text; None where no comment can stand.

    A comment that already covers the finding's line gets the rule's name added.
    """
    suffix = PurePosixPath(source.path).suffix.lower()
    for edit in (*_added(source, finding), *_written(source, finding, suffix, reason)):
        after = SourceFile(source.path, apply(source, [edit]))
        note = _covering(after, finding, finding.line + edit.text.count("\n"))
        if note is not None:
            column = after.line_text(note.span.line).find(reason) + 1
            place = Span(source.path, note.span.line, column, note.span.line, column + len(reason))
            return edit, place if reason in edit.text else None
    return None


def _covering(source: SourceFile, finding: FindingItem, line: int) -> Suppression | None:
    return next((note for note in read_suppressions(source) if finding.rule in note.rules and note.allows(line)), None)


def _added(source: SourceFile, finding: FindingItem) -> Iterator[Edit]:
    """The rule's name in a comment that stands there already."""
    for note in read_suppressions(source):
        if note.rules and note.allows(finding.line):
            row = source.line_text(note.span.line)
            column = row.find("]", note.span.column - 1) + 1
            if column:
                place = Span(source.path, note.span.line, column, note.span.line, column)
                yield Edit(place, f", {finding.rule}")


def _written(source: SourceFile, finding: FindingItem, suffix: str, reason: str) -> Iterator[Edit]:
    """A new comment, in the ways that the language knows."""
    comment = f"promptlint: allow[{finding.rule}] {reason}"
    if suffix == ".py":
        for line in _statement_lines(source.text, finding.line):
            row = source.line_text(line)
            indent = row[: len(row) - len(row.lstrip())]
            end = "\r\n" if "\r\n" in source.text else "\n"
            place = Span(source.path, line, 1, line, 1)
            yield Edit(place, f"{indent}# {comment}{end}")
    elif suffix in _JINJA:
        yield from _at_end(source, finding.line, f"{{# {comment} #}}")
    elif suffix in _YAML:
        for line in range(finding.line, 0, -1):  # the key's line: the nearest one at which a comment covers the finding
            yield from _at_end(source, line, f"  # {comment}")


def _at_end(source: SourceFile, line: int, text: str) -> Iterator[Edit]:
    column = len(source.line_text(line).rstrip()) + 1
    yield Edit(Span(source.path, line, column, line, column), text)


def _statement_lines(text: str, line: int) -> list[int]:
    """First lines of the statements that hold a line, the innermost first."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return [line]
    holding = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return sorted({node.lineno for node in holding}, reverse=True)
