"""Roots: where evaluation begins, and which of the prompts that it sees are reported."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from promptlint.catalog.names import words
from promptlint.frontends import promptlike, slots
from promptlint.frontends.python.calls import MESSAGE_LISTS
from promptlint.frontends.python.core import ALLOWANCE, AMPLE, AMPLE_FILES, LEAN_STEPS, MODULE_STEPS, BudgetError
from promptlint.frontends.python.features import features_of
from promptlint.frontends.python.frameworks import imported_name
from promptlint.frontends.python.hooks import Hooks
from promptlint.frontends.python.index import CallPlace, ClassInfo, FunctionInfo, Module, last_name
from promptlint.frontends.python.sinks import Draft
from promptlint.frontends.python.talks import conversation_behind
from promptlint.frontends.python.text import Field, Segments, format_fields, static_text
from promptlint.frontends.python.values import (
    Alt,
    Class,
    Dict,
    Elem,
    Frame,
    List,
    Message,
    Object,
    Rest,
    Str,
    Template,
    Value,
)
from promptlint.frontends.python.warm import Memory
from promptlint.ir import (
    Block,
    BlockKind,
    Confidence,
    Hole,
    Text,
    Unread,
    blocks_of,
    text_of,
)
from promptlint.source import Span

__all__ = ["Interpreter"]

MAX_CALLERS = 16  # callers of one function that are followed
_LAST_RANK = 2
_MIN_CHARACTERS = 80  # of fixed text: less is no prompt of its own
MAX_CALLERS_LEAN = 1  # the same, once a project has used up its allowance
MAX_SUBCLASSES = 6  # classes on which an inherited method is evaluated
_FILLING = frozenset(
    {
        "format",
        "format_map",
        "substitute",
        "safe_substitute",
        "render",
        "render_async",
        "format_messages",
        "format_prompt",
        "partial",
        "replace",
        "from_template",
        "from_messages",
        "from_string",
        "PromptTemplate",
        "populate_template",
    }
)
_PROMPTISH = frozenset(
    {
        "prompt",
        "prompts",
        "template",
        "templates",
        "instruction",
        "instructions",
        "system",
        "msg",
        "message",
        "messages",
        "persona",
        "tmpl",
    }
)
# Names that many other things bear: they count on a receiver that is called a model, or with an argument that a prompt has.
_WIDE = frozenset(
    {
        "create",
        "run",
        "query",
        "send",
        "stream",
        "call",
        "invoke",
        "ainvoke",
        "astream",
        "arun",
        "batch",
        "abatch",
        "request",
        "chat",
        "prompt",
        "ask",
        "parse",
        "count",
        "__call__",
        "from_defaults",
        "predict",
        "generate",
        "agenerate",
        "complete",
        "acomplete",
        "start",
    }
)
_HEADS = frozenset({"system", "system_prompt", "system_message", "system_instruction", "instructions"})
_MODELISH = frozenset(
    {
        "llm",
        "model",
        "client",
        "chain",
        "agent",
        "chat",
        "completions",
        "messages",
        "responses",
        "models",
        "openai",
        "anthropic",
        "pipeline",
        "engine",
        "assistant",
        "bot",
        "ai",
        "gpt",
        "claude",
        "lm",
    }
)
_SHAPE = frozenset(
    {
        "messages",
        "prompt",
        "system",
        "input",
        "contents",
        "instructions",
        "system_prompt",
        "system_message",
        "query",
        "message",
        "prompts",
        "conversation",
        "system_instruction",
        "history",
        "inputs",
        "tools",
    }
)


class Interpreter(Hooks):
    """The whole interpreter: finds roots, evaluates them, and settles what they gave. `strict`: our own errors are raised, for tests."""

    strict = False

    def __init__(self, *arguments: Any, share: float = 1.0) -> None:
        super().__init__(*arguments)
        self.allowance = int((AMPLE if len(self.index.files) < AMPLE_FILES else ALLOWANCE) * share)
        self.memory: Memory | None = None  # steps of an earlier reading, where there is one
        self.entered: dict[tuple[int, int], tuple[FunctionInfo, ClassInfo | None]] = {}  # what was visited, and on what
        self._sink_names = {path.rsplit(".", 1)[-1] for path in self.sdk.sinks}
        self._sink_names |= set(self._generics)
        self._shapes: dict[str, set[str]] = {}  # last name of a sink -> its arguments
        for path, sink in self.sdk.sinks.items():
            self._shapes.setdefault(path.rsplit(".", 1)[-1], set()).update(row.name for row in sink.args)
        self.sending = frozenset(self._sink_names)
        self._packages = {package.name.split(".")[0] for package in self.sdk.packages}
        self._templates_seen: list[tuple[Value, ast.AST, Frame, str]] = []

    # ---- choosing roots

    def run_roots(self, modules: Sequence[Module]) -> list[Draft]:
        """What every root of these files gives."""
        for module in modules:
            self._step("constants", module, partial(self._name_constants, module))
        ranked = self._ranked if self.memory is None else partial(self.memory.ranked, self._ranked)
        roots = [root for module in modules for root in ranked(module)]
        roots.sort(
            key=lambda root: root[0]
        )  # stable: what is most likely a prompt takes the allowance of a large project first
        self._visit_all(roots)
        self._follow_callers()
        for module in modules:
            self._step("hooks", module, partial(self._module_hooks, module))
        for module in modules:
            self._step("statements", module, partial(self._module_statements, module))
        for module in modules:
            self._step("literals", module, partial(self._module_literals, module))
        return self.drafts

    def _step(self, kind: str, owner: Module | FunctionInfo, run: Callable[[], None]) -> None:
        """One step of the reading, which an earlier reading may have taken already."""
        if self.memory is None:
            run()
        else:
            self.memory.step(self, kind, owner, run)

    def _module_hooks(self, module: Module) -> None:
        if self._imports_sdk(module):
            for root in self.hook_roots(module, self._receivers):
                self._guarded(module, root.line, root.name, root.run)

    def _visit_all(self, roots: list[tuple[int, FunctionInfo]]) -> None:
        """Visit the roots in this order. Once the allowance is spent, those of the last rank are only counted."""
        for position, (rank, function) in enumerate(roots):
            if rank == _LAST_RANK and self.total > self.allowance:
                place = function.module.source.path
                reason = f"{len(roots) - position} functions without a prompt in sight were not followed: the project is too large"
                self.index.unread.append(Unread(place, function.node.lineno, reason))
                return
            self.visit(function)

    def _ranked(self, module: Module) -> list[tuple[int, FunctionInfo]]:
        """The roots of a module, each with its rank; nothing but the module decides on them."""
        return [(self._rank(function, reasons), function) for function, reasons in self._entries(module)]

    def _rank(self, function: FunctionInfo, reasons: set[str]) -> int:
        """How soon a root is evaluated: 0 for calls and messages with text at hand, 1 for texts that look like prompts, 2 for the rest."""
        if not features_of(function.node).text:
            return _LAST_RANK
        if reasons & {"send", "role"}:
            return 0
        return 1 if self._holds_prompt(function) else _LAST_RANK

    def _holds_prompt(self, function: FunctionInfo) -> bool:
        """Whether the function's long literals, taken together, look like a prompt."""
        texts = [_fixed_text(node) for node, owner, _ in function.module.literals if owner is function]
        return promptlike.score(" ".join(texts), function.name, ("f-string",), has_slots=True).is_prompt

    def _entries(self, module: Module) -> Iterator[tuple[FunctionInfo, set[str]]]:
        """The functions of a module that may build or send a prompt, and why: send, draw, fill, literal, role."""
        chosen: dict[int, set[str]] = {}
        imports = self._imports_sdk(module)
        for written, places in module.calls.items():
            name = imported_name(module, written)
            filling = name in _FILLING
            draws = self._makes_media(name)
            if not filling and not draws and name not in self._sink_names:
                continue
            for place in places:
                if place.function is None:
                    continue
                if filling and _is_promptish(place.node):
                    chosen.setdefault(id(place.function), set()).add("fill")
                elif not filling and self._may_send(name, place, imports):
                    chosen.setdefault(id(place.function), set()).add("send")
                elif draws:
                    chosen.setdefault(id(place.function), set()).add("draw")
        for caller in _pairing(module):
            chosen.setdefault(id(caller), set()).add("send")
        for _, function, docstring in module.literals:
            if function is not None and (not docstring or function.decorators):
                chosen.setdefault(id(function), set()).add("literal")
        for _, function in module.roles:
            if function is not None:
                chosen.setdefault(id(function), set()).add("role")
        for info in module.functions:
            if id(info) in chosen and not isinstance(info.node, ast.Lambda):
                yield info, chosen[id(info)]

    def _imports_sdk(self, module: Module) -> bool:
        for statements in module.bindings.values():
            for statement in statements:
                if isinstance(statement, ast.Import) and any(
                    alias.name.split(".")[0] in self._packages for alias in statement.names
                ):
                    return True
                if (
                    isinstance(statement, ast.ImportFrom)
                    and not statement.level
                    and (statement.module or "").split(".")[0] in self._packages
                ):
                    return True
        return False

    def _may_send(self, name: str, place: CallPlace, imports: bool) -> bool:
        node = place.node
        shape = _SHAPE | self._shapes.get(name, set())
        shaped = any(keyword.arg in shape for keyword in node.keywords)
        if name in self._generics and isinstance(node.func, ast.Attribute):
            dotted = _dotted_tail(node.func)
            for generic in self._generics[name]:
                if not any(dotted == one or dotted.endswith("." + one) for one in generic.method):
                    continue
                if not generic.receiver:
                    return True
                receiver = set(words(_receiver(node.func.value)))
                if any(set(one.split()) <= receiver for one in generic.receiver):
                    return True
        if not imports:
            return False
        if isinstance(node.func, ast.Attribute) and name in _WIDE:
            piped = isinstance(node.func.value, ast.BinOp) and isinstance(node.func.value.op, ast.BitOr)
            return shaped or piped or bool(_MODELISH & set(words(_receiver(node.func.value))))
        return shaped or bool(node.args) or not node.keywords

    # ---- evaluating

    def visit(self, info: FunctionInfo) -> None:
        """Evaluate a function from outside, once for each class that it may run on."""
        self._step("visit", info, partial(self._visit, info))

    def _visit(self, info: FunctionInfo) -> None:
        receivers: list[Value | None] = []
        self.note(info.unit)
        self._guarded(info.module, info.node.lineno, info.qualname, lambda: receivers.extend(self._receivers(info)))
        for receiver in receivers:
            cls = receiver.info if isinstance(receiver, Object) else None
            key = (id(info), id(cls) if cls is not None else 0)
            if key in self.entered:
                continue
            self.entered[key] = info, cls
            self.evaluate(info, receiver)

    def _receivers(self, info: FunctionInfo) -> list[Value | None]:
        cls = info.cls
        if cls is None:
            outer = info.outer
            while outer is not None and outer.outer is not None:
                outer = outer.outer
            return [None]
        if "staticmethod" in info.decorators:
            return [None]
        if "classmethod" in info.decorators:
            return [Class(cls)]
        result: list[Value | None] = [self.symbolic(cls)]
        # Another class is another prompt only where it overrides something that this method uses.
        used = features_of(info.node).calls
        overriding = [
            sub for sub in self.subclasses(cls) if info.name not in sub.methods and not used.isdisjoint(sub.methods)
        ]
        if len(overriding) < MAX_SUBCLASSES:
            overriding += self._overriding_elsewhere(cls, info.name, used)
        result.extend(self.symbolic(sub) for sub in overriding[:MAX_SUBCLASSES])
        return result

    def _overriding_elsewhere(self, cls: ClassInfo, name: str, used: frozenset[str]) -> list[ClassInfo]:
        """The same among the files of other parts."""
        found: list[ClassInfo] = []
        tried = 0
        for path, brief in self.index.known.derived((cls.name, *(sub.name for sub in self.subclasses(cls)))):
            if name in brief.methods or used.isdisjoint(brief.methods):
                continue
            module = self.index.module(path)
            for sub in module.classes.values() if module is not None else ():
                if sub.name == brief.name and sub not in found and cls in self.mro(sub)[1:]:
                    found.append(sub)
            tried += 1
            if tried >= MAX_SUBCLASSES:
                break
        return found

    def evaluate(self, info: FunctionInfo, receiver: Value | None) -> None:
        """One evaluation with its own budget; what it wrote is taken back."""

        def run() -> None:
            frame, value = self.enter(info, receiver)
            self._keep_texts(frame, value)

        self._guarded(info.module, info.node.lineno, info.qualname, run)

    def _guarded(self, module: Module, line: int, name: str, run: Callable[[], None]) -> None:
        spent = self.spent[module.path]
        if spent > MODULE_STEPS:
            return
        mark = self.journal.mark()
        self.steps = 0
        self.work = 0
        self.unresolved = []
        self.stack = []
        self.silent = 0
        self.loose = []
        self.journal.written.clear()
        try:
            run()
        except BudgetError:
            self.index.unread.append(Unread(module.source.path, line, f"{name}: too large to follow"))
        except RecursionError:
            self.index.unread.append(Unread(module.source.path, line, f"{name}: nested too deeply"))
        except Exception as error:  # one function that we stumble over must not cost the reader all others
            if self.strict:
                raise
            place = f"{name}: {type(error).__name__} in promptlint, please report it"
            self.index.unread.append(Unread(module.source.path, line, place))
        finally:
            self.stack = []
            self.silent = 0
            self.journal.undo(mark)
            self.total += self.steps
            self.spent[module.path] = spent + self.steps + self.work // 10
            if spent + self.steps + self.work // 10 > MODULE_STEPS:
                rest = Unread(module.source.path, line, f"the code from {name} on: too large to follow")
                self.index.unread.append(rest)
            if self.total > self.allowance:
                self.soft = LEAN_STEPS

    def _keep_texts(self, frame: Frame, value: Value) -> None:
        """Texts and lists of messages that a function built: prompts when no sink takes them."""
        assert frame.function is not None
        self.stack = [frame]
        node = frame.function.node
        self._keep(value, node, frame, frame.function.name)
        for name, local in frame.locals.items():
            self._keep(local, node, frame, name)
        for loose, place, owner in self.loose:
            if owner is frame:
                self._keep(self._as_turn(loose, place, frame), place, frame, "")
        if isinstance(frame.receiver, Object):
            for name, local in frame.receiver.fields.items():
                if isinstance(local, List) and frame.function.name == "__init__":
                    self._keep(local, node, frame, name)

    def _keep(self, value: Value, node: ast.AST, frame: Frame, name: str, depth: int = 0) -> None:
        if isinstance(value, Alt) and depth < 3:
            for arm in value.arms:
                self._keep(arm, node, frame, name, depth + 1)
        elif isinstance(value, List):
            if self._looks_like_messages(value) and not value.disorder:
                self._hangs = False
                blocks = self.messages(value, value.span, name, frame)
                at = self._at(value.span, node, frame)
                self.draft(tuple(blocks), at, frame, "messages", "messages", confidence=Confidence.MEDIUM)
            elif depth < 2:
                for item in value.items:
                    if isinstance(item, Elem):
                        self._keep(item.value, node, frame, name, depth + 1)
        elif isinstance(value, Dict) and depth < 3:
            for entry in value.entries:
                self._keep(entry.value, node, frame, entry.key, depth + 1)
        elif isinstance(value, Message):
            self._keep(value.content, node, frame, name, depth + 1)
        elif isinstance(value, Template) and not value.messages:
            self._keep(value.text, node, frame, name, depth + 1)
        elif isinstance(value, Str):
            self._keep_text(value.segments, node, frame, name)

    def _as_turn(self, value: Value, node: ast.AST, frame: Frame) -> Value:
        """A text that looks like a prompt and goes on with a conversation, as a message behind that conversation."""
        if not isinstance(value, Str) or not isinstance(node, ast.Call) or frame.function is None:
            return value
        fixed = " ".join(text.value for text in text_of(value.segments))
        if len(fixed) < _MIN_CHARACTERS:
            return value
        behind = conversation_behind(node, frame.function)
        if behind is None:
            return value
        place = self.span_of(behind, frame)
        if not promptlike.score(fixed, frame.function.name, ("f-string",), has_slots=True).is_prompt:
            self.note_elsewhere(value, place, node, frame)
            return value
        said = self.by_name(self.source_of(behind, frame), place, frame, "history")
        at = self.span_of(node, frame)
        return List((Rest(said, place), Elem(Message("user", value, at), at)), at)

    def _keep_text(self, segments: Segments, node: ast.AST, frame: Frame, name: str) -> None:
        fixed = " ".join(text.value for text in text_of(segments))
        if len(fixed) < _MIN_CHARACTERS:
            return
        has_slots = any(not isinstance(segment, Text) for segment in segments)
        if not has_slots:
            whole = static_text(segments)
            syntax = (
                slots.guess(whole) if whole is not None and ("{" in whole or "$" in whole or "%(" in whole) else None
            )
            if syntax is None:
                return
            segments = self._open_slots(segments, syntax, frame)
            if all(isinstance(segment, Text) for segment in segments):
                return
        likeness = promptlike.score(
            fixed,
            name or (frame.function.name if frame.function else ""),
            ("f-string",) if has_slots else (),
            has_slots=True,
        )
        if not likeness.is_prompt:
            return
        self._hangs = False
        spans = [segment.span for segment in segments]
        place = spans[0]
        kind = BlockKind.SYSTEM if "system" in name.lower() else BlockKind.OTHER
        block = Block(
            kind,
            None,
            segments,
            Span(place.path, place.line, place.column, spans[-1].end_line, spans[-1].end_column, exact=False),
            place,
            self._name(segments, name),
        )
        at = self._at(place, node, frame)
        self.draft((block,), at, frame, "template", "template", confidence=Confidence.MEDIUM)

    def _at(self, place: Span, node: ast.AST, frame: Frame) -> ast.AST:
        """A node at a place, to stand for a prompt of the frame's file: where the place is in another file, it is the first line of `node`."""
        own = self.span_of(node, frame)
        if place.path == own.path:
            return _At(place)
        end = len(frame.module.source.line_text(own.line)) + 1
        return _At(Span(own.path, own.line, own.column, own.line, end))

    def _open_slots(self, segments: Segments, syntax: str, frame: Frame) -> Segments:
        """The slots of a text that nobody is seen to fill: holes by their names."""
        if syntax in {"jinja2", "mustache"}:
            where = self.map_of(Str(segments))
            whole = static_text(segments)
            if where is None or whole is None:
                return segments
            try:
                return self.templates(whole, where, bound={}, loader=None)
            except Exception:  # noqa: BLE001  not a template after all
                return segments

        def value_of(field: Field, span: Span, _: int) -> Segments:
            if not re.fullmatch(r"[A-Za-z_][\w.\[\]'\"]*", field.name):
                return (Text("{" + field.name + "}", span.inexact()),)
            made = self.by_name(field.name, span, None, field.name)
            return (self.hole(made, field.name, span, field.name),)

        parse = {"dollar": _dollar, "percent": _percent}.get(syntax, format_fields)
        return self.texts.fill(segments, parse, value_of)

    def _module_statements(self, module: Module) -> None:
        """Calls outside functions: scripts, and agents that are made once. Names are the module's, the statement itself runs as if in a function."""
        imports = self._imports_sdk(module)
        lines = {
            place.node.lineno
            for written, places in module.calls.items()
            if (name := imported_name(module, written)) in self._sink_names
            for place in places
            if place.function is None and self._may_send(name, place, imports)
        }
        if not lines:
            return
        for statement in module.tree.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            last = statement.end_lineno or statement.lineno
            if any(statement.lineno <= line <= last for line in lines):
                self._guarded(module, statement.lineno, "<module>", lambda: self._run_statement(module, statement))  # noqa: B023  called at once

    def _run_statement(self, module: Module, statement: ast.stmt) -> None:
        frame = Frame(module)
        self.stack = [frame]
        self.run([statement], frame)

    # ---- callers

    def _follow_callers(self) -> None:
        """A prompt that hangs on parameters is read again from where the function is called."""
        followed: set[int] = set()
        for _ in range(6):
            pending = [
                draft
                for draft in self.drafts
                if draft.parameters
                and draft.entry is not None
                and id(draft.entry) not in followed
                and (self.total < self.allowance or _is_wrapper(draft))
            ]
            if not pending:
                return
            entries = {id(draft.entry): draft.entry for draft in pending if draft.entry is not None}
            followed.update(entries)
            # What few call is read first: the many callers of one wrapper must not use up what all others need.
            for callers in sorted(map(self._callers, entries.values()), key=len):
                for caller in callers:
                    self.visit(caller)

    def _callers(self, info: FunctionInfo) -> list[FunctionInfo]:
        name = info.name
        if name == "__init__" and info.cls is not None:
            name = info.cls.name
        elif name == "__call__":
            return []
        if name.startswith("__"):
            return []
        limit = MAX_CALLERS if self.total < self.allowance else MAX_CALLERS_LEAN
        found: dict[int, FunctionInfo] = {}
        for module in self._calling(name, info.module):
            for place in module.calls.get(name, ()):
                function = place.function
                if function is not None and function is not info and not isinstance(function.node, ast.Lambda):
                    found.setdefault(id(function), function)
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def _calling(self, name: str, first: Module) -> Iterator[Module]:
        """Files that call something of a name; a file of another part is parsed when it comes to its turn."""
        yield first
        yield from self.index.parsed
        for path in self.index.known.callers(name):
            module = self.index.module(path)
            if module is not None:
                yield module

    # ---- literals at module level

    def _name_constants(self, module: Module) -> None:
        """Remember which constant a text is bound to."""
        literal_nodes = {id(node) for node, function, _ in module.literals if function is None}
        if not literal_nodes:
            return
        for name, statements in module.bindings.items():
            for statement in statements:
                if (
                    isinstance(statement, ast.Assign | ast.AnnAssign)
                    and statement.value is not None
                    and not isinstance(statement.value, ast.Constant | ast.JoinedStr)
                ):
                    continue
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                    value = self.module_name(module, name)
                    if isinstance(value, Str):
                        for segment in value.segments:
                            if isinstance(segment, Text):
                                self.text_names.setdefault(segment, name)

    def _module_literals(self, module: Module) -> None:
        """Long texts outside functions: constants with slots that look like prompts."""
        if all(function is not None for _, function, _ in module.literals):
            return
        frame = self.module_frame(module)
        names: list[tuple[int, int, str]] = []
        for name, statements in module.bindings.items():
            names.extend((statement.lineno, statement.end_lineno or statement.lineno, name) for statement in statements)
        for info in module.classes.values():
            for statement in info.node.body:
                if isinstance(statement, ast.Assign | ast.AnnAssign):
                    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                    if isinstance(target, ast.Name):
                        names.append((statement.lineno, statement.end_lineno or statement.lineno, target.id))
        self.steps = 0
        self.work = 0
        for node, function, _ in module.literals:
            if function is not None:
                continue
            if isinstance(node, ast.Constant) and not any(mark in str(node.value) for mark in "{$%"):
                continue
            name = min(
                ((end - begin, found) for begin, end, found in names if begin <= node.lineno <= end), default=(0, "")
            )[1]
            self.silent += 1
            try:
                value = self.eval(node, frame)
            except (BudgetError, RecursionError):
                continue
            finally:
                self.silent -= 1
            if isinstance(value, Str):
                self.stack = [frame]
                self._keep_text(value.segments, node, frame, name)
        self.stack = []


def _pairing(module: Module) -> Iterator[FunctionInfo]:
    """The functions that hand a system text and a conversation to some call, under names that say so."""
    text = module.source.text
    if "system" not in text or not any(name in text for name in MESSAGE_LISTS):
        return
    for places in module.calls.values():
        for place in places:
            if place.function is None or len(place.node.keywords) < 2:
                continue
            names = {keyword.arg for keyword in place.node.keywords}
            if not names.isdisjoint(_HEADS) and not names.isdisjoint(MESSAGE_LISTS):
                yield place.function


def _is_wrapper(draft: Draft) -> bool:
    """Whether a whole block of a prompt is a value that the function was given: its text is put together by the caller."""
    return any(
        len(block.segments) == 1
        and isinstance(block.segments[0], Hole)
        and block.segments[0].confidence is Confidence.LOW
        for block in blocks_of(draft.prompt.blocks)
    ) or not any(True for block in blocks_of(draft.prompt.blocks) for _ in text_of(block.segments))


class _At(ast.expr):
    """A node that stands for a place in the source."""

    _fields = ()

    def __init__(self, span: Span) -> None:
        super().__init__()
        self.lineno = span.line
        self.col_offset = span.column - 1
        self.end_lineno = span.end_line
        self.end_col_offset = span.end_column - 1


def _is_promptish(node: ast.Call) -> bool:
    if not isinstance(node.func, ast.Attribute):
        return True
    name = _receiver(node.func.value)
    return (
        name.isupper()
        or bool(_PROMPTISH & set(words(name)))
        or bool(_PROMPTISH & set(words(last_name(node.func.value))))
    )


def _receiver(node: ast.expr) -> str:
    parts = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Constant):
                parts.append(str(node.slice.value))
            node = node.value
        else:
            break
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return "_".join(reversed(parts[:2]))


def _dotted_tail(func: ast.Attribute) -> str:
    parts = [func.attr]
    node: ast.expr = func.value
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _dollar(text: str) -> Iterator[Field | tuple[int, int]]:
    from promptlint.frontends.python.text import dollar_fields

    return dollar_fields(text)


def _percent(text: str) -> Iterator[Field | tuple[int, int]]:
    from promptlint.frontends.python.text import percent_fields

    return percent_fields(text)


def _fixed_text(node: ast.expr) -> str:
    """The fixed characters of a literal."""
    if isinstance(node, ast.JoinedStr):
        return " ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    return str(node.value) if isinstance(node, ast.Constant) else ""
