"""Python source as a tree whose nodes know their places, the expressions inside f-strings included.

The parser of Python 3.11 gives wrong places inside f-strings. So an expression in a slot is parsed on its own, where the scanner of literals found it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from promptlint.finding import Edit
from promptlint.frontends.python.literals import Slot, scan
from promptlint.source import SourceFile, Span

__all__ = ["Code", "Desk", "calls_in", "parsed"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class Code:
    """Parsed code: a file, or the expression of a slot that begins at offset `base` of the file.

    `outer` is the code around a slot and `holder` the f-string in it.
    """

    source: SourceFile
    text: str
    base: int
    tree: ast.AST
    outer: Code | None = None
    holder: ast.JoinedStr | None = None
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lines = SourceFile("", self.text)
        self._ascii = self.text.isascii()
        pending = [self.tree]
        while pending:
            node = pending.pop()
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                if not isinstance(node, ast.JoinedStr):  # places in it are not to be relied on
                    pending.append(child)

    def _offset(self, line: int, column: int) -> int:
        begin = self._lines.starts[line - 1]
        if self._ascii:
            return self.base + begin + column
        starts = self._lines.starts
        end = starts[line] if line < len(starts) else len(self.text)
        shown = self.text[begin:end].encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace")
        return self.base + begin + len(shown)

    def range(self, node: ast.AST) -> tuple[int, int]:
        """Offsets of a node in the file."""
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword | ast.arg | ast.excepthandler)
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
        )

    def spelled(self, node: ast.AST) -> str:
        """The source of a node."""
        start, end = self.range(node)
        return self.source.text[start:end]

    def nodes(self) -> Iterator[ast.AST]:
        """Every node with a reliable place, the tree itself included."""
        yield self.tree
        yield from self.parents

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first; of a slot's expression also those around its f-string."""
        code: Code | None = self
        current: ast.AST | None = node
        while code is not None and current is not None:
            while (parent := code.parents.get(current)) is not None:
                yield parent
                current = parent
            current, code = code.holder, code.outer
            if current is not None:
                yield current

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        return next((each for each in self.above(node) if isinstance(each, Function)), None)

    @property
    def file(self) -> Code:
        """The code of the whole file."""
        return self if self.outer is None else self.outer.file

    def edit(self, start: int, end: int, text: str) -> Edit:
        """An edit between two offsets of the file."""
        return Edit(self.source.span(start, end), text)

    def smallest(self, start: int, end: int) -> ast.expr | None:
        """The smallest expression whose place holds the offsets."""
        best: ast.expr | None = None
        size = 0
        for node in self.nodes():
            if not isinstance(node, ast.expr) or not hasattr(node, "lineno"):
                continue
            if isinstance(self.parents.get(node), ast.JoinedStr):
                continue
            first, last = self.range(node)
            if first <= start and end <= last and (best is None or last - first <= size):
                best, size = node, last - first
        return best

    def statement(self, start: int, end: int) -> ast.stmt | None:
        """The smallest statement whose place holds the offsets."""
        holding = [
            node
            for node in self.nodes()
            if isinstance(node, ast.stmt) and self.range(node)[0] <= start and end <= self.range(node)[1]
        ]
        return min(holding, key=lambda node: self.range(node)[1] - self.range(node)[0]) if holding else None


def parsed(source: SourceFile) -> Code | None:
    """The file as a tree, or None when this Python cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Code(source, source.text, 0, tree)


@dataclass
class Desk:
    """The sources that a fixer looks at, by printed path, each parsed once. `everything` gives all files of the project that could be read."""

    sources: dict[str, SourceFile]
    everything: Callable[[], Iterable[SourceFile]] = tuple
    _codes: dict[str, Code | None] = field(default_factory=dict)

    def code(self, path: str) -> Code | None:
        """A Python file as a tree."""
        if path not in self._codes:
            source = self.sources.get(path)
            self._codes[path] = parsed(source) if source is not None and path.endswith(".py") else None
        return self._codes[path]

    def at(self, span: Span) -> tuple[Code, ast.expr] | None:
        """The smallest expression at a place of a Python file, and the code that knows its place. A place in a slot lies in the slot's own code."""
        code = self.code(span.path)
        if code is None:
            return None
        source = code.source
        start = source.offset(span.line, span.column)
        end = source.offset(span.end_line, span.end_column)
        while True:
            node = code.smallest(start, end)
            if not isinstance(node, ast.JoinedStr):
                return (code, node) if node is not None else None
            inner = _slot_code(code, node, start, end)
            if inner is None:
                return code, node
            code = inner
            start, end = max(start, code.base + 1), min(end, code.base + len(code.text))


def _slot_code(code: Code, node: ast.JoinedStr, start: int, end: int) -> Code | None:
    """The code of the slot that holds the offsets; a place that is the slot with its braces counts as in it."""
    first, last = code.range(node)
    for part in scan(code.source, first, last) or ():
        if isinstance(part, Slot) and part.start <= start and end <= part.end:
            text = code.source.text[part.expression_start : part.expression_end]
            blanks = len(text) - len(text.lstrip())
            text = text.strip()
            try:
                tree = ast.parse(f"({text}\n)", mode="eval").body
            except (SyntaxError, ValueError):
                return None
            base = part.expression_start + blanks
            # The bracket in front makes the first line one column longer; so does its offset.
            return Code(code.source, f"({text}", base - 1, tree, code, node)
    return None


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Every call at or below a node."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))
