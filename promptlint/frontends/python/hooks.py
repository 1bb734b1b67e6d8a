"""Functions that a framework calls for each request to build its system text: they are roots, and a conversation stands behind their result."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from promptlint.catalog.sdk import Hook
from promptlint.frontends.python.frameworks import hook_of, with_conversation
from promptlint.frontends.python.index import FunctionInfo, Module
from promptlint.frontends.python.pipes import Pipes
from promptlint.frontends.python.values import Frame, Lib, Value
from promptlint.ir import BlockKind, Confidence
from promptlint.source import Span

__all__ = ["Hooks"]


@dataclass(frozen=True, slots=True)
class Root:
    """One hook to evaluate: the line that it begins on, its name, and the evaluation."""

    line: int
    name: str
    run: Callable[[], None]


class Hooks(Pipes):
    """Finds the hooks of a module and evaluates them."""

    def hook_roots(self, module: Module, receivers: Callable[[FunctionInfo], list[Value | None]]) -> list[Root]:
        """The hooks whose result is system text, once for each class that they may run on."""
        result = []
        for info in module.functions:
            if isinstance(info.node, ast.Lambda) or not (info.decorators or info.cls):
                continue
            if info.outer is not None:
                self.note(info.unit)
            bases = self.library_bases(info.cls) if info.cls is not None else []
            hook = hook_of(self.sdk, info.name, bases, self._decorator_paths(info))
            if hook is None or hook.edits != "system" or "__doc__" in hook.method:
                continue
            for receiver in receivers(info):
                result.append(Root(info.node.lineno, info.qualname, self._hook(info, receiver, hook)))
        return result

    def _decorator_paths(self, info: FunctionInfo) -> list[str]:
        """Dotted names of a function's decorators, as far as they are a library's."""
        frame = self.module_frame(info.module)
        paths = []
        self.silent += 1
        try:
            for decorator in getattr(info.node, "decorator_list", ()):
                value = self.eval(decorator.func if isinstance(decorator, ast.Call) else decorator, frame)
                if isinstance(value, Lib):
                    paths.append(value.path)
        finally:
            self.silent -= 1
        return paths

    def _hook(self, info: FunctionInfo, receiver: Value | None, hook: Hook) -> Callable[[], None]:
        def run() -> None:
            frame, value = self.enter(info, receiver)
            self.stack = [frame]
            self._hangs = False
            self._send(info, frame, value, hook)

        return run

    def _send(self, info: FunctionInfo, frame: Frame, value: Value, hook: Hook) -> None:
        whole = self.span_of(info.node, frame)
        place = Span(
            whole.path, whole.line, whole.column, whole.line, whole.column + len("def " + info.name), exact=False
        )
        block = self._text_block(value, BlockKind.SYSTEM, "system", place, info.name)
        at = ast.copy_location(ast.Name(info.name, ast.Load()), info.node)
        at.end_lineno = at.lineno
        at.end_col_offset = at.col_offset + len("def " + info.name)
        sink = hook.base[0].lstrip("@") + ("" if "@" in hook.method else f".{info.name}")
        self.draft(with_conversation((block,), place), at, frame, sink, confidence=Confidence.MEDIUM)
