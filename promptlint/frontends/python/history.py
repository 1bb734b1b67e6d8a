"""Operations on a list of messages that a cached prefix does not survive, found in one file's `ast` without evaluating anything.

A conversation is cacheable while it only grows at its end. What is looked for here is every other habit: a window over the last n messages,
popping from the front, inserting ahead of old messages, setting element 0 again, changing an old message in place, replacing the old part by a
summary. Two thirds of them need no call of a model in sight, so this reader works alone and is cheap; the front end adds what it knows.

Two questions decide. *Is it a conversation?* By the name (`messages`, `chat_history`), by what it was assigned from, by its annotation (a list of
`…Message`), and by evidence in the same function, class or file that messages with roles are handled there. *Does the result go on?* A slice that is
printed, counted, compared or shown to a person changes no prompt. Fine, and silent: insertion guarded by "if there is no system message", rebuilding
or converting a list for a provider, consuming a queue, keeping the head, removing the tail, a trimmed list that nobody reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from promptlint.catalog.conversations import load_conversations
from promptlint.catalog.names import words
from promptlint.catalog.sdk import load_sdk
from promptlint.frontends.python.nodes import SHAPES, shape, walk
from promptlint.ir import Confidence, HistoryEdit, Step
from promptlint.source import SourceFile, Span

__all__ = ["edits"]

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.Module

# Only to decide that a file is not worth a walk; nothing is concluded from it. Plain finds come first: they cost a twentieth of the pattern.
_ROLES = ('"role"', "'role'", ".role", "Message", "llm", "LLM", "openai", "anthropic", "langchain")
_LISTS_OF_OLD = ("messages", "history", "msg", "conversation", "turns", "dialog", "transcript", "buffer", "memory")
_MARKS = (".limit(", "LIMIT ", "limit ", ".pop(", ".insert(", ".remove(", ".popleft(", "reversed(", "::-1]", "deque(", "del ", "[0]", "[-", ":]", 'content"] =', "content'] =", ".content =", '"system"', "'system'", "summar", "condens", "compact")  # fmt: skip
_NEAR = 500
"""Characters of a line that are looked at around a mark. The pattern takes the square of a line's length where brackets follow brackets."""
_OPERATION = re.compile(
    r"(?:message|msg|histor|conversation|turn|buffer|memor|context|trajector|transcript|dialog|chat|step|item|content|input)[^=]*?"
    r"(?:\.(?:pop\([^)\-\"']|insert\([01],|remove\(|popleft\()|\[0\].* \+?= |\[[^\]:]*:[^\]]*\])"
    r"|(?:content|output)[\"']?\]? = "
    r"|\.limit\(|\blimit\b [?%:${\d]|^\s*del [^=]*\[|reversed\(|::-1\]|deque\(|for .* if .*[\"']system[\"']"
    r"|(?:messages|history|conversation|memory|buffer)(?:\[:\])? = .*(?:summar|condens|compact)|\[.*(?:summar|condens|compact)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Facts:
    """What the single walk notes about one scope."""

    node: _Scope
    parent: _Scope | None
    evidence: bool = False
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    annotated: dict[str, ast.expr] = field(default_factory=dict)
    loads: dict[str, list[ast.expr]] = field(default_factory=dict)  # by name, and by dotted name for attributes
    walked: dict[str, list[ast.expr]] = field(default_factory=dict)  # loop variable -> what it walks over
    roled: set[str] = field(default_factory=set)  # dotted names whose role, or whose elements' role, is read


def edits(tree: ast.Module, source: SourceFile) -> tuple[HistoryEdit, ...]:
    """Every edit of a conversation in the file, in source order, at most one for each list, kind and function.

    Confidence is high where the same function or class handles messages with roles and the name says it is their list, medium where only one of
    both holds, low otherwise. Nothing outside the file is consulted.
    """
    if not _worth_a_walk(source.text):
        return ()
    return tuple(_merge(_Reader(tree, source).read()))


def _worth_a_walk(text: str) -> bool:
    if not any(word in text for word in _ROLES) or not any(word in text for word in _LISTS_OF_OLD):
        return False
    for mark in _MARKS:
        at = text.find(mark)
        while at >= 0:
            start = max(text.rfind("\n", 0, at) + 1, at - _NEAR)
            end = text.find("\n", at, at + _NEAR)
            end = min(len(text), at + _NEAR) if end < 0 else end
            if _OPERATION.search(text[start:end]):
                return True
            at = text.find(mark, end)
    return False


def _merge(found: Iterator[HistoryEdit]) -> Iterator[HistoryEdit]:
    """One edit for each function, list and kind; later places of the same habit become its steps."""
    first: dict[tuple[str, str, str], HistoryEdit] = {}
    for edit in sorted(found, key=lambda edit: edit.span):
        key = (edit.function, edit.target, edit.op)
        known = first.get(key)
        if known is None:
            first[key] = edit
        elif known.span != edit.span and not edit.span.contains(known.span) and not known.span.contains(edit.span):
            first[key] = replace(
                known,
                confidence=max(known.confidence, edit.confidence),
                steps=(*known.steps, Step(edit.span, "and here")),
            )
    yield from first.values()


def _last(node: ast.expr) -> str:
    """The last identifier of a dotted name, a string subscript or a call's callee; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return ""


def _owner(node: ast.expr) -> str:
    """The identifier on which a method is called: `logger` of `self.logger.info`."""
    return _last(node.value) if isinstance(node, ast.Attribute) else ""


def _dotted(node: ast.expr) -> str:
    """A dotted name as it is written, or ""."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _constant(node: ast.expr | None) -> int | None:
    """The value of an integer literal with its sign; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def _is_key(node: ast.expr) -> bool:
    """Whether a place is a dictionary's key and no index: a literal of another type, what a call found, a name that ends in `id` or `key`."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, int)
    if isinstance(node, ast.Call):
        return True
    found = words(_last(node))
    return bool(found) and found[-1] in {"id", "key", "name", "uid", "uuid"}


def _negative(node: ast.expr | None) -> bool:
    """Whether an index counts from the end: `-k`, `-2 * k`, `len(x) - k`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return not (isinstance(node.operand, ast.Call) and _last(node.operand) == "len")  # what was just added
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mult):
            return _negative(node.left) or _negative(node.right)
        if isinstance(node.op, ast.Sub):
            return isinstance(node.left, ast.Call) and _last(node.left) == "len"
    return isinstance(node, ast.Call) and _last(node) == "max" and any(_negative(arg) for arg in node.args)


def _name_strength(name: str) -> int:
    """2 when the name says that it holds a conversation, 1 when it may, 0 when it says something else."""
    found = words(name)
    if not found or _WORDS.other.intersection(found):
        return 0
    if found[-1] in _WORDS.lists or (
        len(found) > 1 and found[-1] in _WORDS.containers and found[-2] in _WORDS.lists | _WORDS.one
    ):
        return 2
    if (
        len(found) > 1
        and found[-2] in _WORDS.lists
        and found[-1]
        in {"copy", "slice", "so", "to", "for", "new", "dicts", "dict", "openai", "anthropic", "payload", "data", "api"}
    ):
        return 2
    return 1 if found[-1] in _WORDS.weak else 0


def _says(node: ast.AST, vocabulary: frozenset[str]) -> bool:
    """Whether an identifier inside `node` holds one of the words."""
    for inner in walk(node):
        name = inner.id if isinstance(inner, ast.Name) else inner.attr if isinstance(inner, ast.Attribute) else ""
        if name and vocabulary.intersection(words(name)):
            return True
    return False


_WORDS = load_conversations()
_VIEWS = frozenset({"copy", "get", "items", "values"})  # methods that give the list, or a part of it, on
_GATHERS = frozenset({"append", "extend", "insert"})
_TOOLS = frozenset({"tool", "tools", "toolkit"})
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_NOTED = frozenset(
    {
        *_SCOPES, ast.Import, ast.ImportFrom, ast.Dict, ast.Attribute, ast.Call, ast.Subscript, ast.For, ast.AsyncFor, ast.comprehension,
        ast.Delete, ast.ListComp, ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign,
    }
)  # fmt: skip


class _Reader:
    """One file. `read` walks once, notes what each scope holds, then judges the candidates."""

    def __init__(self, tree: ast.Module, source: SourceFile) -> None:
        self._source = source
        self._parents: dict[ast.AST, ast.AST] = {}
        self._facts: dict[_Scope, _Facts] = {tree: _Facts(tree, None)}
        self._candidates: list[ast.AST] = []
        self._imports: dict[str, str] = {}
        self._tree = tree

    # ---- the walk

    def read(self) -> Iterator[HistoryEdit]:
        self._walk()
        for node in self._candidates:
            yield from self._judge(node)

    def _walk(self) -> None:
        stack: list[tuple[ast.AST, _Scope]] = [(self._tree, self._tree)]
        parents, noted = self._parents, _NOTED
        while stack:
            node, scope = stack.pop()
            kind = type(node)
            if kind is ast.Name:  # a third of all nodes, and nothing stands beneath them
                if type(node.ctx) is ast.Load:  # type: ignore[attr-defined]
                    self._facts[scope].loads.setdefault(node.id, []).append(node)  # type: ignore[attr-defined, arg-type]
                continue
            if kind in noted:
                self._note(node, scope)
                if kind in _SCOPES:
                    self._facts[node] = _Facts(node, scope)  # type: ignore[index, arg-type]
                    if kind is not ast.ClassDef:
                        self._parameters(node)  # type: ignore[arg-type]
                    scope = node  # type: ignore[assignment]
            for name, many in SHAPES.get(kind) or shape(kind):
                child = getattr(node, name, None)
                if not child:
                    continue
                if many:
                    for item in child:
                        if item is not None:
                            parents[item] = node
                            stack.append((item, scope))
                else:
                    parents[child] = node
                    stack.append((child, scope))

    def _parameters(self, node: _Function) -> None:
        facts = self._facts[node]
        returns = getattr(node, "returns", None)
        if returns is not None and self._message_type(returns):
            self._evidence(node)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None:
                facts.annotated[argument.arg] = argument.annotation
                if self._message_type(argument.annotation):
                    self._evidence(node)

    def _note(self, node: ast.AST, scope: _Scope) -> None:
        facts = self._facts[scope]
        match node:
            case ast.Import():
                for alias in node.names:
                    self._imports[alias.asname or alias.name.split(".")[0]] = alias.name
                    self._imported(alias.name)
            case ast.ImportFrom():
                for alias in node.names:
                    self._imports[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
                self._imported(node.module or "")
                if any(alias.name.endswith("Message") for alias in node.names) and self._of_llm(
                    ast.Name(node.names[0].name)
                ):
                    self._facts[self._tree].evidence = True
            case ast.Dict():
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                if "role" in keys and keys & {"content", "parts", "tool_calls"}:
                    self._evidence(scope)
            case ast.Attribute(ctx=ast.Load()):
                if "role" in words(node.attr):
                    self._evidence(scope)
                    facts.roled.add(_dotted(_element(node.value)))
                name = _dotted(node)
                if name:
                    facts.loads.setdefault(name, []).append(node)
            case ast.Call():
                self._note_call(node, scope)
            case ast.Subscript():
                if isinstance(node.slice, ast.Constant) and node.slice.value == "role":
                    self._evidence(scope)
                    facts.roled.add(_dotted(_element(node.value)))
                if (
                    isinstance(node.slice, ast.Slice)
                    and isinstance(node.ctx, ast.Load)
                    and node.slice.lower is not None
                ):
                    self._candidates.append(node)
            case ast.Return() if node.value is not None and isinstance(scope, ast.FunctionDef):
                owner = self._facts[scope].parent
                if isinstance(owner, ast.ClassDef) and any(
                    _last(d) in {"property", "cached_property"} for d in scope.decorator_list
                ):
                    self._facts[owner].assigned.setdefault(f"self.{scope.name}", []).append(node.value)
            case ast.Assign():
                for target in node.targets:
                    self._assigned(target, node.value, scope)
                if any(isinstance(target, ast.Subscript | ast.Attribute) for target in node.targets):
                    self._candidates.append(node)
            case ast.AnnAssign():
                name = _dotted(node.target)
                if name:
                    place = self._owner_facts(name, scope)
                    place.annotated[name] = node.annotation
                    if self._message_type(node.annotation):
                        self._evidence(scope)
                    if node.value is not None:
                        place.assigned.setdefault(name, []).append(node.value)
                if node.value is not None and isinstance(node.target, ast.Attribute):
                    self._candidates.append(node)
            case ast.AugAssign():
                if isinstance(node.target, ast.Subscript | ast.Attribute):
                    self._candidates.append(node)
                else:
                    self._assigned(node.target, node.value, scope)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                over, _ = _iterated(node)
                name = _dotted(node.target) or (
                    _dotted(node.target.elts[-1]) if isinstance(node.target, ast.Tuple) else ""
                )
                if over is not None and name:
                    facts.walked.setdefault(name, []).append(over)
                if not isinstance(node, ast.comprehension):
                    self._candidates.append(node)
            case ast.Delete() | ast.ListComp():
                self._candidates.append(node)
            case _:
                pass

    def _imported(self, module: str) -> None:
        """An import of a model library is evidence for the file, not for a function in it."""
        packages = {package.name for package in load_sdk().packages}
        if module in packages or module.split(".", maxsplit=1)[0] in packages:
            self._facts[self._tree].evidence = True

    def _note_call(self, node: ast.Call, scope: _Scope) -> None:
        name = _last(node.func)
        if isinstance(node.func, ast.Attribute):
            if name in {"insert", "pop", "remove", "popleft"} and len(node.args) <= 2:
                self._candidates.append(node)
            elif name in {"append", "extend"} and node.args:
                self._assigned(node.func.value, node.args[0], scope)
        if name in _QUERIES and node.args:
            self._candidates.append(node)
        if name == "deque" and (any(keyword.arg == "maxlen" for keyword in node.keywords) or len(node.args) > 1):
            self._candidates.append(node)
        if (
            (name.endswith("Message") and self._of_llm(node.func))
            or (name in {"create", "parse", "stream"} and _owner(node.func) in {"completions", "messages", "responses"})
            or any(keyword.arg == "messages" for keyword in node.keywords)
            or name
            in {
                "apply_chat_template",
                "generate_content",
            }
        ):
            self._evidence(scope)

    def _owner_facts(self, name: str, scope: _Scope) -> _Facts:
        """Attributes of self belong to the class, everything else to the scope."""
        if name.startswith("self."):
            found = self._class_of(scope)
            if found is not None:
                return self._facts[found]
        return self._facts[scope]

    def _assigned(self, target: ast.expr, value: ast.expr, scope: _Scope) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            values = (
                value.elts
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
                else [value] * len(target.elts)
            )
            for inner, part in zip(target.elts, values, strict=True):
                self._assigned(inner, part, scope)
            return
        name = _dotted(target)
        if name:
            self._owner_facts(name, scope).assigned.setdefault(name, []).append(value)

    def _evidence(self, scope: _Scope) -> None:
        current: _Scope | None = scope
        while current is not None and not self._facts[current].evidence:
            self._facts[current].evidence = True
            current = self._facts[current].parent

    def _class_of(self, scope: _Scope | None) -> ast.ClassDef | None:
        while scope is not None and not isinstance(scope, ast.ClassDef):
            scope = self._facts[scope].parent
        return scope

    def _of_llm(self, node: ast.expr) -> bool:
        """Whether a name does not come from a library of mail, chat rooms or queues."""
        origin = self._imports.get(_dotted(node).split(".")[0], "")
        return not _WORDS.foreign_libraries.intersection(origin.split("."))

    def _message_type(self, annotation: ast.expr) -> bool:
        for inner in walk(annotation):
            name = _last(inner) if isinstance(inner, ast.Name | ast.Attribute) else ""
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                name = inner.value.rstrip("]")
            if name.endswith(("Message", "MessageParam", "MessageDict", "Messages", "Message_T")) and self._of_llm(
                inner if isinstance(inner, ast.expr) else annotation
            ):
                return True
        return False

    def _foreign(self, annotation: ast.expr) -> bool:
        """Whether an annotation names a type of a library of mail, chat rooms or queues."""
        return any(
            isinstance(inner, ast.Name | ast.Attribute) and not self._of_llm(inner) for inner in walk(annotation)
        )

    # ---- places

    def _scope(self, node: ast.AST) -> _Scope:
        current = self._parents.get(node)
        while current is not None and not isinstance(
            current, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.Module
        ):
            current = self._parents.get(current)
        return current or self._tree

    def _functions(self, node: ast.AST) -> list[str]:
        """Names of the functions and classes around a node, outermost first."""
        names: list[str] = []
        current: _Scope | None = self._scope(node)
        while current is not None:
            if isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append(current.name)
            current = self._facts[current].parent
        return names[::-1]

    def _statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return node

    def _ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node` up to its function."""
        current = self._parents.get(node)
        while current is not None and not isinstance(
            current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
        ):
            yield current
            current = self._parents.get(current)

    def _guards(self, node: ast.AST) -> list[ast.expr]:
        """The tests that decide whether a node is reached, within its function: of `if`, `while`, conditional expressions, and of early returns ahead."""
        tests = []
        inner = node
        for outer in self._ancestors(node):
            if isinstance(outer, ast.If | ast.While | ast.IfExp) and inner is not outer.test:
                tests.append(outer.test)
            inner = outer
        return tests

    def _loop(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        inner = node
        for outer in self._ancestors(node):
            if isinstance(outer, ast.While) or (isinstance(outer, ast.For | ast.AsyncFor) and inner is not outer.iter):
                return outer
            inner = outer
        return None

    def _span(self, node: ast.AST) -> Span:
        line = getattr(node, "lineno", 1)
        end = getattr(node, "end_lineno", None) or line
        return Span(
            self._source.path,
            line,
            self._column(line, getattr(node, "col_offset", 0)),
            end,
            self._column(end, getattr(node, "end_col_offset", None) or 0),
        )

    def _column(self, line: int, offset: int) -> int:
        """1-based column in characters of an `ast` offset, which counts bytes."""
        text = self._source.line_text(line)
        return offset + 1 if text.isascii() else len(text.encode()[:offset].decode("utf-8", "ignore")) + 1

    # ---- is it a conversation?

    def _strength(self, node: ast.expr, depth: int = 3) -> int:
        """2: a conversation by name, annotation or origin; 1: it may be one; 0: it is something else."""
        match node:
            case ast.Await() | ast.Starred() | ast.NamedExpr():
                return self._strength(node.value, depth)
            case ast.BoolOp():
                return max(self._strength(value, depth) for value in node.values)
            case ast.IfExp():
                return max(self._strength(node.body, depth), self._strength(node.orelse, depth))
            case ast.BinOp(op=ast.Add()):
                return max(self._strength(node.left, depth), self._strength(node.right, depth))
            case ast.ListComp():
                return self._strength(node.generators[0].iter, depth) if _builds_message(node.elt) is None else 2
            case ast.List():
                if any(_builds_message(item) for item in node.elts):
                    return 2
                return max(
                    (self._strength(item, depth) for item in node.elts if isinstance(item, ast.Starred)), default=0
                )
            case ast.Subscript(slice=ast.Slice()):
                return self._strength(node.value, depth)
            case ast.Subscript():
                return _name_strength(_last(node)) if _last(node) else 0
            case ast.Call():
                name = _last(node.func)
                if name in {"list", "tuple", "deepcopy", "copy", "reversed", "cast", "sorted"}:
                    inner = (
                        node.args[-1]
                        if node.args
                        else node.func.value
                        if isinstance(node.func, ast.Attribute)
                        else None
                    )
                    return 0 if inner is None else self._strength(inner, depth)
                if (
                    name == "get"
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                    and isinstance(node.args[0].value, str)
                ):
                    return _name_strength(node.args[0].value)
                return 2 if _name_strength(name) == 2 and not _WORDS.size.intersection(words(name)) else 0
            case ast.Name() | ast.Attribute():
                return self._named_strength(node, depth)
            case _:
                return 0

    def _named_strength(self, node: ast.Name | ast.Attribute, depth: int) -> int:
        name = _dotted(node)
        annotation = self._annotation(name, node)
        if annotation is not None:
            if self._message_type(annotation):
                return 2
            if not _may_hold_messages(annotation) or self._foreign(annotation):
                return 0
        strength = _name_strength(node.id if isinstance(node, ast.Name) else node.attr)
        if strength == 2 or depth == 0 or not name:
            return strength
        found = words(_last(node))
        if strength == 0 and found and _WORDS.other.intersection(found):
            return 0
        values = [value for facts in self._chain(node) for value in facts.assigned.get(name, ())]
        if any(_builds_message(value) is not None for value in values):  # appended to it
            return 2
        if self._roles_read(name, node):
            return 2
        if any(self._strength(value, depth - 1) == 2 for value in values if not isinstance(value, ast.Constant)):
            return 2
        return strength

    def _roles_read(self, name: str, node: ast.AST) -> bool:
        """Whether the function reads the role of the list's elements."""
        facts = self._facts[self._scope(node)]
        if name in facts.roled:
            return True
        return any(
            variable in facts.roled and any(_dotted(over) == name for over in overs)
            for variable, overs in facts.walked.items()
        )

    def _chain(self, node: ast.AST) -> Iterator[_Facts]:
        scope: _Scope | None = self._scope(node)
        while scope is not None:
            facts = self._facts[scope]
            yield facts
            scope = facts.parent

    def _annotation(self, name: str, node: ast.AST) -> ast.expr | None:
        for facts in self._chain(node):
            found = facts.annotated.get(name) or (
                facts.annotated.get(name.removeprefix("self."))
                if isinstance(facts.node, ast.ClassDef) and name.startswith("self.")
                else None
            )
            if found is not None:
                return found
        return None

    def _confidence(self, target: ast.expr) -> Confidence | None:
        """How sure we are that `target` is a conversation; None when it is not one as far as the file shows."""
        strength = self._strength(target)
        if strength == 0:
            return None
        near = False
        for facts in self._chain(target):
            if isinstance(facts.node, ast.Module):
                break
            near = near or facts.evidence
        far = self._facts[self._tree].evidence
        if strength == 2:
            return Confidence.HIGH if near else Confidence.MEDIUM if far or self._llm_words(target) else None
        return None

    def _llm_words(self, node: ast.AST) -> bool:
        """Whether the functions or classes around speak of models, prompts or agents."""
        names = [word for name in self._functions(node) for word in words(name)]
        return bool(
            {
                "llm",
                "prompt",
                "prompts",
                "agent",
                "chatbot",
                "gpt",
                "assistant",
                "openai",
                "anthropic",
                "completion",
            }.intersection(names)
        )

    # ---- the candidates

    def _judge(self, node: ast.AST) -> Iterator[HistoryEdit]:
        match node:
            case ast.Subscript():
                yield from self._slice(node)
            case ast.Call() if _last(node.func) == "deque":
                yield from self._deque(node)
            case ast.Call() if _last(node.func) in _QUERIES:
                yield from self._newest_rows(node)
            case ast.Call():
                yield from self._method(node)
            case ast.Delete():
                yield from self._delete(node)
            case ast.For() | ast.AsyncFor():
                yield from self._reversed_loop(node)
                yield from self._aging_loop(node)
            case ast.ListComp():
                yield from self._system_and_last(node)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                yield from self._store(node)
            case _:
                pass

    def _edit(self, op: str, node: ast.AST, target: ast.expr, confidence: Confidence) -> HistoryEdit:
        span = self._span(node)
        names = self._functions(node)
        inner = names[-1] if names else ""
        written = self._source.slice(self._span(target))
        return HistoryEdit(
            op,
            span,
            " ".join(written.split()),
            confidence,
            " ".join(self._source.slice(span).split())[:200],
            function=".".join(names) or "<module>",
            per_call=inner not in {"__init__", "load", "from_dict", "from_file"} and bool(names),
        )

    def _quiet_place(self, node: ast.AST) -> bool:
        """Whether the functions around show, test or store things, so that nothing there reaches a prompt."""
        names = self._functions(node)
        if any(name.startswith(("test_", "Test")) for name in names):
            return True
        inner = names[-1] if names else ""
        if inner in {"main", "__repr__", "__str__", "__len__", "__getitem__"} or self._answers(node, inner):
            return True
        return bool(_WORDS.quiet_functions.intersection(words(inner)))

    def _answers(self, node: ast.AST, name: str) -> bool:
        """Whether the function answers a question about the conversation: nothing of it goes on."""
        returns = getattr(self._scope(node), "returns", None)
        if isinstance(returns, ast.Name | ast.Attribute):
            return _last(returns) in {"bool", "int", "float"}
        found = words(name)
        return bool(found) and found[0] in {"is", "has", "should", "needs", "can"}

    # slices

    def _slice(self, node: ast.Subscript) -> Iterator[HistoryEdit]:
        assert isinstance(node.slice, ast.Slice)
        lower, upper, target = node.slice.lower, node.slice.upper, node.value
        if node.slice.step is not None or _constant(lower) in {0, -1}:
            return
        confidence = self._confidence(target)
        if confidence is None or self._quiet_place(node) or self._is_text(target):
            return
        if self._window_bound(lower, node):
            if upper is not None and _constant(upper) is None and not _negative(upper):
                return
        elif upper is not None or not self._front_cut(node):
            if upper is None and _constant(lower) == 1 and self._new_head(node):
                yield self._edit("set-front", node, target, min(confidence, Confidence.MEDIUM))
            return
        use = self._use(node)
        if use is None:
            return
        if _constant(lower) == -2 or _only_contents(target) or self._extracts(node):
            use = (
                Confidence.LOW
            )  # the newest exchange, or something else that is made of what was said: a search query, a list of topics
        yield self._edit("window", node, target, min(confidence, use))

    def _extracts(self, node: ast.AST) -> bool:
        """Whether the function around takes something out of the conversation: `_extract_topics`."""
        return any(words(name)[:1] == ("extract",) for name in self._functions(node)[-1:])

    def _is_text(self, target: ast.expr) -> bool:
        """Whether a name holds a conversation that was written out as one text: cutting it drops characters, no messages."""
        if not isinstance(target, ast.Name):
            return False
        values = self._facts[self._scope(target)].assigned.get(target.id, ())
        made = [
            value for value in values if not (isinstance(value, ast.Subscript) and _dotted(value.value) == target.id)
        ]
        return bool(made) and all(_is_string(value) for value in made)

    def _window_bound(self, lower: ast.expr | None, node: ast.AST) -> bool:
        """Whether a lower bound counts from the end, directly or through a local name or a default."""
        if lower is None:
            return False
        if _negative(lower):
            return _constant(lower) != -1
        if not isinstance(lower, ast.Name):
            return False
        scope = self._scope(node)
        values = [value for facts in self._chain(node) for value in facts.assigned.get(lower.id, ())]
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            positional = [*scope.args.posonlyargs, *scope.args.args]
            defaults = dict(zip([a.arg for a in positional[::-1]], scope.args.defaults[::-1], strict=False))
            defaults.update(
                (a.arg, d) for a, d in zip(scope.args.kwonlyargs, scope.args.kw_defaults, strict=True) if d is not None
            )
            if lower.id in defaults:
                values.append(defaults[lower.id])
        return any(_negative(value) for value in values)

    def _front_cut(self, node: ast.Subscript) -> bool:
        """`x = x[n:]`, `[head] + x[n:]` under a test of size or in a function that cuts: the front goes away, wherever n comes from."""
        assert isinstance(node.slice, ast.Slice)
        statement = self._statement(node)
        target = _dotted(node.value)
        rebinds = (
            isinstance(statement, ast.Assign)
            and bool(target)
            and any(_dotted(t.value if isinstance(t, ast.Subscript) else t) == target for t in statement.targets)
        )
        joins = any(
            isinstance(outer, ast.BinOp | ast.List)
            for outer in self._ancestors(node)
            if not isinstance(outer, ast.stmt)
        )
        if self._reads_front(node):
            return False
        if not (rebinds or joins):
            return self._split_in_two(node)
        return self._size_test(node) or (self._cutting(node) and _constant(node.slice.lower) is None)

    def _split_in_two(self, node: ast.Subscript) -> bool:
        """`head = x[:n]; tail = x[n:]` in a function that summarises or cuts: the head is what gives way."""
        assert isinstance(node.slice, ast.Slice)
        lower, written = node.slice.lower, _dotted(node.value)
        if not isinstance(lower, ast.Name) or not written:
            return False
        if not any((_WORDS.cutting | _WORDS.summary).intersection(words(name)) for name in self._functions(node)):
            return False
        for load in self._facts[self._scope(node)].loads.get(lower.id, ()):
            outer = self._parents[load]
            whole = self._parents[outer]
            if (
                isinstance(outer, ast.Slice)
                and outer.upper is load
                and isinstance(whole, ast.Subscript)
                and _dotted(whole.value) == written
            ):
                return True
        return False

    def _reads_front(self, node: ast.Subscript) -> bool:
        """Whether the same function, or a guard, looks at element 0 as the system message: it is taken off for a provider, not forgotten."""
        target = _dotted(node.value)
        return any(_asks_front_role(test, target) for test in self._guards(node))

    def _size_test(self, node: ast.AST) -> bool:
        """Whether a guard compares a size: a length, tokens, a budget."""
        return any(
            any(isinstance(inner, ast.Compare) for inner in walk(test))
            and _says(test, _WORDS.size)
            and not _only_emptiness(test)
            for test in self._guards(node)
        )

    def _cutting(self, node: ast.AST) -> bool:
        return any(_WORDS.cutting.intersection(words(name)) for name in self._functions(node))

    def _new_head(self, node: ast.Subscript) -> bool:
        """`[system] + x[1:]`, `[system, *x[1:]]`, `new = [system]; new += x[1:]`: the same conversation under another head."""
        for outer in self._ancestors(node):
            if isinstance(outer, ast.BinOp) and isinstance(outer.left, ast.List) and outer.left.elts:
                return self._is_system(outer.left.elts[-1]) and not self._reads_front(node)
            if isinstance(outer, ast.List) and outer.elts and not isinstance(outer.elts[0], ast.Starred):
                return self._is_system(outer.elts[0]) and not self._reads_front(node)
            if isinstance(outer, ast.AugAssign) and isinstance(outer.target, ast.Name):
                values = self._facts[self._scope(node)].assigned.get(outer.target.id, ())
                return any(isinstance(v, ast.List) and v.elts and self._is_system(v.elts[0]) for v in values)
            if isinstance(outer, ast.stmt):
                return False
        return False

    def _is_system(self, node: ast.expr) -> bool:
        role = _builds_message(node)
        if role is None and isinstance(node, ast.Name):
            return any(
                _builds_message(value) == "system"
                for facts in self._chain(node)
                for value in facts.assigned.get(node.id, ())
            )
        return role == "system"

    # where a value goes

    def _use(self, node: ast.expr, depth: int = 3) -> Confidence | None:
        """How sure it is that a value goes on to a prompt; None when it is only shown, counted, tested, stored or dropped."""
        inner: ast.AST = node
        current = self._parents[node]
        level = Confidence.HIGH
        while not isinstance(current, ast.stmt):
            match current:
                case ast.Call() if inner is current.func:
                    if _last(current.func) not in _VIEWS:
                        return None
                case ast.Call():
                    name = _last(current.func)
                    if (
                        name in _WORDS.quiet_calls
                        or _owner(current.func) in _WORDS.quiet_owners
                        or _WORDS.quiet_call_words.intersection(words(name))
                    ):
                        return None
                    if name in {"append", "extend", "insert"} and isinstance(current.func, ast.Attribute):
                        return self._receiver_use(current.func.value, depth)
                    if name not in _WORDS.passing_calls and not _builds_message(current):
                        return (
                            Confidence.MEDIUM
                            if level < Confidence.HIGH or not self._model_call(current)
                            else Confidence.HIGH
                        )
                case ast.Compare():
                    return None
                case ast.IfExp() | ast.comprehension() if inner is getattr(current, "test", None) or inner in getattr(
                    current, "ifs", ()
                ):
                    return None
                case ast.JoinedStr() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                    level = Confidence.MEDIUM
                case ast.Attribute():
                    if not isinstance(self._parents[current], ast.Call):
                        return None
                case ast.Subscript(slice=ast.Slice(lower=None, upper=None)):
                    pass  # a copy of the whole, or the whole in reverse
                case ast.Subscript():
                    return None
                case ast.UnaryOp():
                    return None
                case _:
                    pass
            inner = current
            current = self._parents[current]
        return self._statement_use(current, inner, level, depth)

    def _statement_use(self, statement: ast.stmt, inner: ast.AST, level: Confidence, depth: int) -> Confidence | None:
        match statement:
            case ast.Return():
                dumped = isinstance(statement.value, ast.Call) and _last(statement.value) == "dumps"
                if dumped or self._route(statement) or self._is_tool(statement):
                    return None
                return self._returned_use(statement, level, depth)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                best: Confidence | None = None
                for target in targets:
                    if isinstance(target, ast.Name):
                        found = self._name_use(target, statement, depth)
                    elif isinstance(target, ast.Attribute | ast.Subscript):
                        found = self._stored_use(target, statement, level, depth)
                    else:
                        found = Confidence.MEDIUM
                    if found is not None:
                        best = found if best is None else max(best, found)
                return None if best is None else min(best, level)
            case ast.For() | ast.AsyncFor() if inner is statement.iter:
                return self._built_use(statement, depth)
            case ast.Expr():
                return level if isinstance(statement.value, ast.Yield | ast.YieldFrom) else None
            case _:
                return None

    def _name_use(self, name: ast.Name, statement: ast.stmt, depth: int) -> Confidence | None:
        """What becomes of a value after it was given a name: the surest of the later reads in the function."""
        if depth == 0:
            return Confidence.MEDIUM
        loop = self._loop(statement)
        best: Confidence | None = None
        for load in self._facts[self._scope(name)].loads.get(name.id, ()):
            if load.lineno < statement.lineno and loop is None:
                continue
            if statement.lineno <= load.lineno <= (statement.end_lineno or statement.lineno):
                continue
            found = self._use(load, depth - 1)
            if found is not None:
                best = found if best is None else max(best, found)
        if best is None:  # read by a function defined inside
            for facts in self._facts.values():
                if facts.parent is self._scope(name) and name.id in facts.loads:
                    return Confidence.MEDIUM
        return best

    def _stored_use(
        self, target: ast.Attribute | ast.Subscript, statement: ast.stmt, level: Confidence, depth: int
    ) -> Confidence | None:
        """What becomes of a value that an attribute, or an entry of one, holds: nothing when the file reads the attribute, and only shows what it reads."""
        if _WORDS.quiet_functions.intersection(words(_last(target))):
            return None
        holder = target.value if isinstance(target, ast.Subscript) else target
        if depth == 0 or not isinstance(holder, ast.Attribute):
            return level
        uses = [
            self._use(load, depth - 1)
            for load in self._reads_of(holder.attr)
            if not statement.lineno <= load.lineno <= (statement.end_lineno or statement.lineno)
        ]
        return None if uses and all(use is None for use in uses) else level

    def _reads_of(self, attribute: str) -> Iterator[ast.expr]:
        """Where the file reads an attribute of this name, on whatever object; a method that only fills the list does not read it."""
        for facts in self._facts.values():
            for name, loads in facts.loads.items():
                if not name.endswith("." + attribute):
                    continue
                for load in loads:
                    method = self._parents[load]
                    called = isinstance(method, ast.Attribute) and isinstance(self._parents[method], ast.Call)
                    if not (called and isinstance(method, ast.Attribute) and method.attr not in _VIEWS):
                        yield load

    def _is_tool(self, node: ast.AST) -> bool:
        """Whether a function is a tool of a model: what it returns is one tool result, and not the conversation."""
        scope = self._scope(node)
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        owner = self._class_of(scope)
        named = words(owner.name)[-1:] if owner is not None else ()
        decorators = {word for each in scope.decorator_list for word in words(_last(each))}
        return not _TOOLS.isdisjoint(named) or not _TOOLS.isdisjoint(decorators)

    def _returned_use(self, statement: ast.Return, level: Confidence, depth: int) -> Confidence | None:
        """What becomes of what a function of a file returns: little is known of one whose callers in the file only show or store it."""
        scope = self._scope(statement)
        if depth == 0 or not isinstance(scope, ast.FunctionDef) or self._facts[scope].parent is not self._tree:
            return level
        calls = [
            call
            for facts in self._facts.values()
            for load in facts.loads.get(scope.name, ())
            if isinstance(call := self._parents[load], ast.Call) and call.func is load
        ]
        return Confidence.LOW if calls and all(self._use(call, depth - 1) is None for call in calls) else level

    def _built_use(self, loop: ast.For | ast.AsyncFor, depth: int) -> Confidence | None:
        """What becomes of what a loop's body builds: a list that it appends to, a text that it adds to, or what it yields."""
        if not self._builds(loop):
            return None
        built: list[ast.expr] = []
        for inner in walk(loop):
            if isinstance(inner, ast.AugAssign) and _adds_text(inner):
                built.append(inner.target)
            elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _GATHERS:
                built.append(inner.func.value)
        if not built or depth == 0 or not all(isinstance(one, ast.Name) for one in built):
            return Confidence.MEDIUM
        uses = [self._name_use(one, loop, depth - 1) for one in built if isinstance(one, ast.Name)]
        return Confidence.MEDIUM if any(use is not None for use in uses) else None

    def _receiver_use(self, receiver: ast.expr, depth: int) -> Confidence | None:
        """What becomes of a list that the value is put into."""
        if isinstance(receiver, ast.Name):
            return self._name_use(receiver, self._statement(receiver), depth)
        return Confidence.HIGH

    def _model_call(self, call: ast.Call) -> bool:
        return bool(
            {
                "llm",
                "model",
                "chat",
                "client",
                "completion",
                "completions",
                "complete",
                "generate",
                "invoke",
                "predict",
                "create",
                "acreate",
                "ainvoke",
                "prompt",
                "format",
            }.intersection(words(_dotted(call.func)))
        )

    def _route(self, node: ast.AST) -> bool:
        """Whether the function answers a web request: what it returns is shown to a person."""
        scope = self._scope(node)
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        return any(
            _last(decorator) in {"get", "post", "put", "delete", "patch", "route", "websocket", "api_view", "callback"}
            for decorator in scope.decorator_list
        )

    def _builds(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop's body builds something that is read afterwards: it appends, adds text, or yields."""
        for inner in walk(loop):
            if isinstance(inner, ast.Yield | ast.YieldFrom):
                return True
            if isinstance(inner, ast.AugAssign) and _adds_text(inner):
                return True
            if (
                isinstance(inner, ast.Call)
                and _last(inner.func) in {*_GATHERS, "add_message", "write"}
                and isinstance(inner.func, ast.Attribute)
            ) and _owner(inner.func) not in _WORDS.quiet_owners:
                return True
        return False

    # methods

    def _method(self, node: ast.Call) -> Iterator[HistoryEdit]:
        assert isinstance(node.func, ast.Attribute)
        target, name = node.func.value, node.func.attr
        confidence = self._confidence(target)
        if confidence is None or self._quiet_place(node):
            return
        if name == "insert" and len(node.args) == 2:
            if _constant(node.args[0]) in {0, 1}:
                yield from self._insert(node, target, confidence)
            return
        if name == "remove":
            if self._size_test(node) and self._loop(node) is not None:
                yield self._edit("filter", node, target, min(confidence, Confidence.MEDIUM))
            return
        if name == "popleft" and not node.args:
            place: ast.expr | None = ast.Constant(0)
        else:
            place = node.args[0] if node.args else None
        if place is None or len(node.args) + len(node.keywords) > 1 or _is_key(place) or _negative(place):
            return
        yield from self._removal(node, target, place, confidence)

    def _removal(
        self, node: ast.AST, target: ast.expr, place: ast.expr, confidence: Confidence
    ) -> Iterator[HistoryEdit]:
        index = _constant(place)
        if self._consumes(node, target) or self._fresh_in_loop(node, target) or self._takes_system(node, target):
            return
        sized = self._size_test(node)
        if not sized and not self._cutting(node):
            return
        if (
            self._loop(node) is None
            and not isinstance(self._parents.get(node), ast.Expr | ast.Module)
            and not isinstance(node, ast.Delete)
        ):
            return  # the message is taken, not forgotten
        if index in {0, 1}:
            yield self._edit("pop-front", node, target, confidence)
        elif index is None and sized and not _says(place, frozenset({"last", "tail"})):
            yield self._edit("pop-middle", node, target, confidence)

    def _consumes(self, node: ast.AST, target: ast.expr) -> bool:
        """`while queue: item = queue.pop(0)` works a list off."""
        written = _dotted(target)
        loop = self._loop(node)
        if isinstance(loop, ast.While):
            test = loop.test
            if _dotted(test) == written or (isinstance(test, ast.Constant) and test.value) or _only_emptiness(test):
                return isinstance(self._parents.get(node), ast.Assign | ast.NamedExpr | ast.Call)
        return False

    def _fresh_in_loop(self, node: ast.AST, target: ast.expr) -> bool:
        """Whether the list is made anew in each turn of the loop around, so that the operation only takes back what was just put in."""
        loop = self._loop(node)
        if not isinstance(loop, ast.For | ast.AsyncFor) or not isinstance(target, ast.Name):
            return False
        names = {
            name.id
            for statement in walk(loop)
            if isinstance(statement, ast.Assign)
            for t in statement.targets
            for name in walk(t)
            if isinstance(name, ast.Name)
        }
        return target.id in names

    def _takes_system(self, node: ast.AST, target: ast.expr) -> bool:
        """`system = messages.pop(0)`: the first message is handed over separately."""
        if any(_asks_front_role(test, _dotted(target)) for test in self._guards(node)):
            return True
        statement = self._statement(node)
        if isinstance(statement, ast.Assign) and not isinstance(self._loop(node), ast.While):
            return bool(
                {"system", "first", "head", "initial", "sys", "instruction", "instructions"}.intersection(
                    word for t in statement.targets for word in words(_last(t))
                )
            )
        return False

    def _insert(self, node: ast.Call, target: ast.expr, confidence: Confidence) -> Iterator[HistoryEdit]:
        """An insertion at the front is a fault when old messages stand behind it and it is not the one system message that belongs there."""
        value = node.args[1]
        if self._absence_guard(node, target) or self._walks_backwards(node):
            return
        lasting = isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and not self._made_here(target))
        if self._fresh_in_loop(node, target) or (not lasting and self._loop(node) is None):
            return
        dynamic = self._dynamic(value)
        if dynamic is None:
            return
        if _constant(node.args[0]) == 1 and not self._loop(node) and dynamic < Confidence.HIGH:
            return
        yield self._edit("insert-front", node, target, min(confidence, dynamic))

    def _absence_guard(self, node: ast.AST, target: ast.expr) -> bool:
        """Whether a guard asks for the list's first element, its roles or its emptiness: the insertion happens only when something is missing."""
        written = _dotted(target)
        for test in self._guards(node):
            for inner in walk(test):
                if isinstance(inner, ast.Constant) and inner.value in {"system", "developer"}:
                    return True
                if isinstance(inner, ast.Name | ast.Attribute) and {"system", "developer"}.intersection(
                    words(_last(inner))
                ):
                    return True
                if isinstance(inner, ast.Call) and _last(inner.func) in {"isinstance", "any", "all", "len"}:
                    return True
                if isinstance(inner, ast.Name | ast.Attribute) and _dotted(inner) == written:
                    return True
        return False

    def _walks_backwards(self, node: ast.AST) -> bool:
        """Rebuilding a list from its end with insert(0) keeps the order."""
        for outer in self._ancestors(node):
            if isinstance(outer, ast.For | ast.AsyncFor):
                if _is_reversed(outer.iter):
                    return True
                if isinstance(outer.iter, ast.Name):
                    values = self._facts[self._scope(node)].assigned.get(outer.iter.id, ())
                    return any(_is_reversed(value) for value in values)
            if isinstance(outer, ast.While):
                return True  # walking up a chain of parents
        return False

    def _made_here(self, target: ast.Name) -> bool:
        """Whether a local list is made in this function: a literal, a copy, a call."""
        facts = self._facts[self._scope(target)]
        values = facts.assigned.get(target.id, ())
        return any(
            isinstance(value, ast.List | ast.ListComp | ast.Call | ast.BinOp | ast.Await | ast.Subscript)
            for value in values
        )

    def _dynamic(self, value: ast.expr, depth: int = 2) -> Confidence | None:
        """How sure it is that a text is another one each time; None for constants, settings and the system text handed in."""
        content = _content(value)
        if content is None:
            content = value
        best: Confidence | None = None
        for inner in walk(content):
            name = _last(inner) if isinstance(inner, ast.Name | ast.Attribute) else ""
            if not name or name.isupper():
                continue
            found = words(name)
            if {"system", "prompt", "instructions", "instruction", "template"}.intersection(found):
                continue
            if _WORDS.volatile.intersection(found):
                return Confidence.HIGH
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and depth:
                for given in self._facts[self._scope(value)].assigned.get(inner.id, ()):
                    deeper = self._dynamic(given, depth - 1) if not isinstance(given, ast.Constant) else None
                    if deeper is not None:
                        best = deeper if best is None else max(best, deeper)
        return best

    # deletions

    def _delete(self, node: ast.Delete) -> Iterator[HistoryEdit]:
        for target in node.targets:
            if not isinstance(target, ast.Subscript):
                continue
            confidence = self._confidence(target.value)
            if confidence is None or self._quiet_place(node):
                continue
            if isinstance(target.slice, ast.Slice):
                lower = 0 if target.slice.lower is None else _constant(target.slice.lower)
                if target.slice.upper is None or lower not in {
                    0,
                    1,
                }:  # from a place that was reckoned: it may be the newest that go
                    continue
                if self._searched_for(target.slice.upper):
                    continue
                yield self._edit("pop-front", node, target.value, confidence)
            elif not _is_key(target.slice) and not _negative(target.slice):
                yield from self._removal(node, target.value, target.slice, confidence)

    def _searched_for(self, bound: ast.expr) -> bool:
        """Whether a loop looked for the bound by role, say for the newest question: all ahead of it goes at once, and the next turns only grow again."""
        if not isinstance(bound, ast.Name):
            return False
        found = next((facts.assigned[bound.id] for facts in self._chain(bound) if bound.id in facts.assigned), [])
        for value in found:
            loop = self._loop(value)
            if isinstance(loop, ast.For) and isinstance(value, ast.Name) and value.id in _bound_by(loop.target):
                return any(_asks_role(test) for test in self._guards(value))
        return False

    # bounded buffers

    def _deque(self, node: ast.Call) -> Iterator[HistoryEdit]:
        maxlen = next(
            (keyword.value for keyword in node.keywords if keyword.arg == "maxlen"),
            node.args[1] if len(node.args) > 1 else None,
        )
        if isinstance(maxlen, ast.Constant) and maxlen.value in {None, 1}:
            return
        parent = self._parents[node]
        targets = (
            parent.targets
            if isinstance(parent, ast.Assign)
            else [parent.target]
            if isinstance(parent, ast.AnnAssign)
            else []
        )
        for target in targets:
            if _name_strength(_last(target)) != 2 or self._quiet_place(node):
                continue
            confidence = self._confidence(target)
            if (
                isinstance(target, ast.Attribute)
                and self._stored_use(target, self._statement(node), Confidence.HIGH, 3) is None
            ):
                continue
            if confidence is not None:
                # Made once, but what it drops is dropped at each turn.
                made = self._edit("window", node, target, min(confidence, Confidence.MEDIUM))
                yield replace(made, per_call=True)

    # queries

    def _newest_rows(self, node: ast.Call) -> Iterator[HistoryEdit]:
        """`SELECT … FROM messages … ORDER BY created DESC LIMIT 20`, `.order_by(created.desc()).limit(20)`: the newest rows of a conversation.

        It counts where the same function makes messages with roles of the rows.
        """
        if not node.args or self._quiet_place(node) or self._route(node) or not self._facts[self._scope(node)].evidence:
            return
        if _last(node.func) == "limit":
            if not isinstance(node.func, ast.Attribute):
                return  # somebody's own function
            table = _newest_first(node.func.value)
            count: ast.expr | None = node.args[0]
        else:
            written = _fixed_text(node.args[0])
            found = _NEWEST_ROWS.search(written)
            table, count = (found["table"] if found else ""), None
        if not table or _constant(count) == 1 or _name_strength(table) == 0:
            return
        yield replace(self._edit("window", node, node.func, Confidence.MEDIUM), per_call=True)

    # loops

    def _reversed_loop(self, node: ast.For | ast.AsyncFor) -> Iterator[HistoryEdit]:
        """`for m in reversed(messages): … if total > budget: break` keeps the newest that fit; so does a forward walk that looks back only so far."""
        backwards = _reversed_of(node.iter)
        target, vocabulary = backwards, _WORDS.size | _WORDS.cutting | {"turns", "lookback", "n", "k"}
        if target is None:
            target, vocabulary = node.iter, frozenset({"lookback", "recent", "window"})
        confidence = self._confidence(target)
        if confidence is None or self._quiet_place(node) or not self._builds(node):
            return
        if self._built_use(node, 3) is None:
            return
        for inner in walk(node):
            if isinstance(inner, ast.If) and _breaks(inner) and _compares_size(inner.test, vocabulary):
                sure = confidence if backwards is not None else Confidence.MEDIUM
                if _gathers_what_users_said(node):
                    sure = Confidence.LOW  # a search query made of it
                yield self._edit("window", inner.test, target, sure)
                return

    def _aging_loop(self, node: ast.For | ast.AsyncFor) -> Iterator[HistoryEdit]:
        """A loop that changes some of the older messages in place, by their distance from the end or by a counter."""
        iterated, index = _iterated(node)
        if iterated is None:
            return
        older = (
            isinstance(iterated, ast.Subscript)
            and isinstance(iterated.slice, ast.Slice)
            and iterated.slice.upper is not None
            and iterated.slice.lower is None
            and _negative(iterated.slice.upper)
        )
        base = (
            iterated.value
            if isinstance(iterated, ast.Subscript) and isinstance(iterated.slice, ast.Slice)
            else iterated
        )
        backwards = _reversed_of(node.iter) is not None
        target: ast.expr = base if not backwards else _reversed_of(node.iter) or base
        confidence = self._from_history(target)
        if confidence is None or self._quiet_place(node):
            return
        names = {name.id for name in walk(node.target) if isinstance(name, ast.Name)}
        names |= _copies(node, names)
        counters = {
            inner.target.id
            for inner in walk(node)
            if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name)
        }
        for inner in walk(node):
            if not isinstance(inner, ast.Assign):
                continue
            place = next((t for t in inner.targets if _sets_content(t, names, _dotted(target))), None)
            if place is None:
                continue
            tests = [
                test
                for test in self._guards(inner) + _inner_tests(node)
                if any(isinstance(part, ast.Compare) for part in walk(test))
            ]
            aged = older or any(
                _counts(test, counters) or _index_from_end(test, index) or _index_in(test, index) for test in tests
            )
            if aged:
                yield self._edit("set-old", inner, target, min(confidence, Confidence.MEDIUM))
                return

    def _from_history(self, node: ast.expr, depth: int = 2) -> Confidence | None:
        """Confidence that a list is a conversation, or was gathered from one: its tool results, its images."""
        found = self._confidence(node)
        if found is not None or depth == 0 or not isinstance(node, ast.Name):
            return found
        for value in self._facts[self._scope(node)].assigned.get(node.id, ()):
            for inner in walk(value):
                if isinstance(inner, ast.comprehension):
                    found = self._confidence(inner.iter)
                    if found is not None:
                        return min(found, Confidence.MEDIUM)
        return None

    # system and the last only

    def _system_and_last(self, node: ast.ListComp) -> Iterator[HistoryEdit]:
        """`kept = [m for m in messages if m.role == "system"]; kept.append(messages[-1])`: all between is dropped."""
        generator = node.generators[0]
        statement = self._parents[node]
        if len(node.generators) != 1 or not generator.ifs or not isinstance(statement, ast.Assign):
            return
        if not any(
            isinstance(part, ast.Constant) and part.value == "system" for test in generator.ifs for part in walk(test)
        ):
            return
        confidence = self._confidence(generator.iter)
        written = _dotted(generator.iter)
        if confidence is None or not written or self._quiet_place(node):
            return
        for target in statement.targets:
            for load in self._facts[self._scope(node)].loads.get(_dotted(target), ()):
                call = self._parents.get(self._parents.get(load, load), load)
                if (
                    isinstance(call, ast.Call)
                    and _last(call.func) == "append"
                    and call.args
                    and isinstance(call.args[0], ast.Subscript)
                ):
                    last = call.args[0]
                    if _dotted(last.value) == written and _constant(last.slice) == -1:
                        yield self._edit("window", node, generator.iter, confidence)
                        return

    # stores

    def _store(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[HistoryEdit]:
        if self._quiet_place(node) or node.value is None:
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            front = _front_of(target)
            if front is not None:
                yield from self._set_front(node, front, target)
            elif (
                self._strength(
                    target.value
                    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)
                    else target
                )
                == 2
            ):
                yield from self._summary(node, target)

    def _set_front(
        self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, front: ast.expr, target: ast.expr
    ) -> Iterator[HistoryEdit]:
        confidence = self._confidence(front)
        if confidence is None or node.value is None:
            return
        if (
            isinstance(front, ast.Name)
            and self._made_here(front)
            and self._loop(node) is None
            and not self._copies_lasting(front)
        ):
            return
        same = {_dotted(front), *self._other_names(front)}
        read = [inner for inner in walk(node.value) if isinstance(inner, ast.Subscript)]
        if any(_touches_front(inner, name) for inner in read for name in same):
            return  # merged with what stood there, or cut: a conversion for a provider
        if _last(target) and _last(target) not in {"content", "text", "parts"}:
            return
        whole = isinstance(target, ast.Subscript) and _constant(target.slice) == 0 and not _last(target)
        dynamic = self._dynamic(node.value)
        if (
            dynamic is None
            and (whole or self._loop(node))
            and any(isinstance(inner, ast.Call) for inner in walk(node.value))
        ):
            dynamic = Confidence.MEDIUM
        if dynamic is None and self._cutting(node):
            dynamic = Confidence.HIGH  # a notice takes the place of what was cut
        if dynamic is None:
            return
        yield self._edit("set-front", node, front, min(confidence, dynamic))

    def _other_names(self, target: ast.expr) -> list[str]:
        """Plain names that a list was assigned from: `kept` where `messages = kept` stands."""
        name = _dotted(target)
        values = next((facts.assigned[name] for facts in self._chain(target) if name in facts.assigned), [])
        return [value.id for value in values if isinstance(value, ast.Name)]

    def _copies_lasting(self, name: ast.Name) -> bool:
        """Whether a local name is another name of a list that lives on, not a copy of it."""
        values = self._facts[self._scope(name)].assigned.get(name.id, ())
        return any(
            isinstance(value, ast.Attribute) or (isinstance(value, ast.Subscript) and bool(_last(value)))
            for value in values
        )

    def _summary(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, target: ast.expr) -> Iterator[HistoryEdit]:
        """`self.messages = [first, summary, *recent]`: the old part gives way to a summary."""
        value = node.value
        if value is None or isinstance(node, ast.AugAssign):
            return
        if isinstance(value, ast.Name | ast.Attribute):  # made elsewhere, by another thread or method
            if not _WORDS.summary.intersection(words(_last(value))) or self._strength(value) != 2:
                return
        elif not isinstance(value, ast.List | ast.BinOp | ast.Call | ast.Await):
            return
        elif isinstance(value, ast.Call | ast.Await):
            call = value.value if isinstance(value, ast.Await) else value
            if not (
                isinstance(call, ast.Call)
                and _WORDS.summary.intersection(words(_last(call.func)))
                and any(_dotted(arg) == _dotted(target) for arg in call.args)
            ):
                return
        elif not self._names_summary(value) or not any(
            isinstance(inner, ast.Starred | ast.BinOp | ast.Name | ast.Attribute) for inner in walk(value)
        ):
            return
        confidence = self._confidence(
            target.value if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice) else target
        )
        if confidence is not None:
            yield self._edit("summarise", node, target, min(confidence, Confidence.MEDIUM))

    def _names_summary(self, value: ast.expr) -> bool:
        if _says(value, _WORDS.summary):
            return True
        for inner in walk(value):
            if isinstance(inner, ast.Name):
                for given in self._facts[self._scope(value)].assigned.get(inner.id, ()):
                    if _builds_message(given) and _says(given, _WORDS.summary):
                        return True
        return False


# ---- shapes


_QUERIES = frozenset({"limit", "execute", "fetch", "fetchall", "fetch_all", "query", "text"})
_NEWEST_ROWS = re.compile(
    r"\bfrom\s+[\"'`\[]?(?P<table>\w+).*?\border\s+by\b.*?\bdesc\b\s+limit\s+(?!1\b)", re.IGNORECASE | re.DOTALL
)


def _is_string(node: ast.expr) -> bool:
    """Whether an expression gives a string, whatever its parts are."""
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(op=ast.Add()):
            return _is_string(node.left) or _is_string(node.right)
        case ast.Call(func=ast.Attribute(attr="join")):
            return True
        case _:
            return False


def _fixed_text(node: ast.expr) -> str:
    """The fixed characters of a literal, with a question mark for each slot; a call of `text("…")` counts as its text."""
    if isinstance(node, ast.Call) and node.args:
        return _fixed_text(node.args[0])
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _newest_first(chain: ast.expr) -> str:
    """The table or model of a query that is ordered by something descending; "" where the chain says no such thing."""
    descending = False
    current: ast.expr = chain
    while isinstance(current, ast.Call | ast.Attribute):
        if isinstance(current, ast.Call):
            name = _last(current.func)
            if name in {"order_by", "sort", "order"}:
                descending = descending or _descends(current)
            if name in {"query", "select", "select_from", "table", "collection"} and current.args:
                return _model_name(current.args[0]) if descending else ""
            if name == "find" and isinstance(current.func, ast.Attribute):
                return _last(current.func.value) if descending else ""
            current = current.func
        else:
            current = current.value
    return _last(current) if descending else ""


def _descends(call: ast.Call) -> bool:
    """Whether an ordering goes from the newest to the oldest: `.desc()`, `desc(x)`, `"-created"`, `-1`, `DESCENDING`, `desc=True`."""
    for inner in ast.walk(call):
        if isinstance(inner, ast.Call | ast.Attribute | ast.Name) and _last(inner).lower() in {"desc", "descending"}:
            return True
        text = inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else ""
        if text.startswith("-") or text.lower().endswith("desc"):
            return True
        if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.USub):
            return True
        if isinstance(inner, ast.keyword) and inner.arg in {"desc", "descending"}:
            return True
    return False


def _model_name(node: ast.expr) -> str:
    """`ChatMessage` as the list that its rows are: `chat_messages`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    name = _last(node.value) if isinstance(node, ast.Attribute) and node.attr.islower() else _last(node)
    return name if name.endswith("s") or "istory" in name else f"{name}s"


def _breaks(node: ast.If) -> bool:
    """Whether one arm of a condition ends the loop."""
    return any(isinstance(arm[-1], ast.Break) for arm in (node.body, node.orelse) if arm)


def _compares_size(test: ast.expr, vocabulary: frozenset[str]) -> bool:
    """Whether a test compares a size with a budget: not a role, not a handful that is looked for."""
    if not _says(test, vocabulary) or not any(isinstance(part, ast.Compare) for part in walk(test)):
        return False
    return not any(
        isinstance(part, ast.Constant) and (isinstance(part.value, str) or part.value in {1, 2}) for part in walk(test)
    )


def _adds_text(node: ast.AugAssign) -> bool:
    """`text += …`, not `count += 1` nor `total += size(m)`."""
    if not isinstance(node.op, ast.Add) or isinstance(node.value, ast.Constant | ast.Call):
        return False
    plain = isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript)
    return not plain or not _WORDS.size.intersection(words(_last(node.target)))


def _builds_message(node: ast.expr) -> str | None:
    """The role of a message that an expression builds ("" where it is not a literal), or None when it builds none."""
    if isinstance(node, ast.Await):
        node = node.value
    if isinstance(node, ast.Dict):
        entries = {
            key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
        }
        if "role" not in entries or not {"content", "parts", "tool_calls"} & entries.keys():
            return None
        return _role(entries["role"])
    if isinstance(node, ast.Call):
        name = _last(node.func)
        if not name.endswith(("Message", "MessageParam")) or name.endswith("RemoveMessage"):
            return None
        for prefix, role in (
            ("System", "system"),
            ("Human", "user"),
            ("User", "user"),
            ("AI", "assistant"),
            ("Assistant", "assistant"),
            ("Tool", "tool"),
        ):
            if name.startswith(prefix):
                return role
        return next((_role(keyword.value) for keyword in node.keywords if keyword.arg == "role"), "")
    return None


def _role(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    name = _last(node).lower()
    return name if name in {"system", "user", "assistant", "tool", "developer"} else ""


def _content(node: ast.expr) -> ast.expr | None:
    """The content of a message that an expression builds."""
    if isinstance(node, ast.Dict):
        return next(
            (
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value in {"content", "parts"}
            ),
            None,
        )
    if isinstance(node, ast.Call) and _builds_message(node) is not None:
        keyword = next(
            (keyword.value for keyword in node.keywords if keyword.arg in {"content", "text", "parts"}), None
        )
        return keyword or (node.args[-1] if node.args else None)
    return None


def _may_hold_messages(annotation: ast.expr) -> bool:
    """False for annotations that rule a conversation out: numbers, arrays, tables, mappings of names, a single message."""
    names = {_last(inner) for inner in walk(annotation) if isinstance(inner, ast.Name | ast.Attribute)}
    return not (
        names & {"ndarray", "Tensor", "DataFrame", "Series", "float", "int", "bytes", "Path", "Counter", "Queue"}
        and not names & {"str", "dict", "Dict", "Any"}
    )


def _front_of(target: ast.expr) -> ast.expr | None:
    """The list whose element 0, or the content of whose element 0, a target names."""
    while isinstance(target, ast.Subscript | ast.Attribute):
        if (
            isinstance(target, ast.Subscript)
            and _constant(target.slice) == 0
            and isinstance(target.value, ast.Name | ast.Attribute | ast.Subscript)
        ):
            if isinstance(target.value, ast.Attribute | ast.Subscript) and _last(target.value) in {"content", "parts"}:
                target = target.value
                continue
            return target.value
        target = target.value
    return None


def _touches_front(test: ast.AST, target: str) -> bool:
    """Whether an expression reads element 0 of the list."""
    return any(
        isinstance(inner, ast.Subscript)
        and _constant(inner.slice) == 0
        and (not target or _dotted(inner.value) == target)
        for inner in walk(test)
    )


def _bound_by(target: ast.expr) -> set[str]:
    """The names that a loop binds."""
    return {node.id for node in walk(target) if isinstance(node, ast.Name)}


def _asks_role(test: ast.expr) -> bool:
    """Whether a test looks at the role of some message: `m["role"] == "user"`, `m.role`, `m.get("role")`."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "role")
        or (isinstance(node, ast.Constant) and node.value == "role")
        for node in walk(test)
    )


def _asks_front_role(test: ast.expr, target: str) -> bool:
    """Whether a test asks for the role or the class of element 0."""
    return _touches_front(test, target) and any(
        (isinstance(inner, ast.Attribute) and inner.attr in {"role", "type"})
        or (isinstance(inner, ast.Constant) and inner.value in {"role", "system", "type"})
        or (isinstance(inner, ast.Call) and _last(inner.func) in {"isinstance", "type"})
        for inner in walk(test)
    )


def _only_emptiness(test: ast.expr) -> bool:
    """`len(x) > 0`, `len(x) != 0`, `len(x)`: asks whether there is anything, not how much."""
    if isinstance(test, ast.BoolOp):
        return all(_only_emptiness(value) or isinstance(value, ast.Name | ast.Attribute) for value in test.values)
    if isinstance(test, ast.Call):
        return _last(test.func) == "len"
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Call) and _last(test.left.func) == "len":
        return all(_constant(right) in {0, 1} for right in test.comparators)
    return False


def _is_reversed(node: ast.expr) -> bool:
    return _reversed_of(node) is not None


def _reversed_of(node: ast.expr) -> ast.expr | None:
    """What `reversed(x)`, `x[::-1]`, `enumerate(reversed(x))` and `range(len(x) - 1, -1, -1)` walk backwards over."""
    if isinstance(node, ast.Call):
        name = _last(node.func)
        if name in {"enumerate", "list"} and node.args:
            return _reversed_of(node.args[0])
        if name == "reversed" and node.args:
            inner = node.args[0]
            if isinstance(inner, ast.Call) and _last(inner.func) in {"list", "enumerate"} and inner.args:
                inner = inner.args[0]
            if isinstance(inner, ast.Call) and _last(inner.func) == "range" and inner.args:
                return _length_of(inner.args[-1])
            return inner
        if name == "range" and len(node.args) == 3 and _constant(node.args[2]) == -1:
            return _length_of(node.args[0])
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and _constant(node.slice.step) == -1:
        return node.value
    return None


def _length_of(node: ast.expr) -> ast.expr | None:
    """`x` in an expression over `len(x)`."""
    for inner in walk(node):
        if isinstance(inner, ast.Call) and _last(inner.func) == "len" and inner.args:
            return inner.args[0]
    return None


def _only_contents(target: ast.expr) -> bool:
    """`[m["content"] for m in messages]`: texts without their roles."""
    return (
        isinstance(target, ast.ListComp) and _builds_message(target.elt) is None and "role" not in ast.dump(target.elt)
    )


def _gathers_what_users_said(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop over messages keeps nothing but the texts of the user's: a test of the role, and contents without their roles."""
    asks = any(
        isinstance(inner, ast.If)
        and any(
            isinstance(part, ast.Name | ast.Attribute | ast.Constant) and _speaks_of_users(part)
            for part in walk(inner.test)
        )
        for inner in walk(loop)
    )
    kept = [
        call.args[-1]
        for call in walk(loop)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _GATHERS
        and call.args
    ]
    return asks and bool(kept) and all(_last(_uncut(value)) in {"content", "text"} for value in kept)


def _speaks_of_users(node: ast.Name | ast.Attribute | ast.Constant) -> bool:
    word = node.value if isinstance(node, ast.Constant) else _last(node)
    return isinstance(word, str) and word.lower() in {"user", "human", "humanmessage", "usermessage"}


def _uncut(node: ast.expr) -> ast.expr:
    """`text` of `text[:200]`."""
    return node.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) else node


def _element(node: ast.expr) -> ast.expr:
    """`x` of `x[-1]` and `x[i]`: what is true of an element is true of the list."""
    return (
        node.value
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice) and not _last(node)
        else node
    )


def _iterated(loop: ast.For | ast.AsyncFor | ast.comprehension) -> tuple[ast.expr | None, str]:
    """What a loop walks over, through enumerate, reversed and range(len(x)); and the name of its index, if it has one."""
    node, index = loop.iter, ""
    if isinstance(node, ast.Call):
        name = _last(node.func)
        if name == "enumerate" and node.args:
            if isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
                index = loop.target.elts[0].id
            node = node.args[0]
        elif name == "range":
            if isinstance(loop.target, ast.Name):
                index = loop.target.id
            return _length_of(node), index
    backwards = _reversed_of(node)
    return (backwards if backwards is not None else node), index


def _sets_content(target: ast.expr, names: set[str], over: str) -> bool:
    """Whether a target is the content of the loop's message, or of the list's element at the loop's index, or that element itself."""
    if isinstance(target, ast.Subscript | ast.Attribute) and _last(target) in {
        "content",
        "text",
        "parts",
        "output",
        "tool_calls",
    }:
        root: ast.expr = target
        while isinstance(root, ast.Subscript | ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in names:
            return True
        target = target.value
    if isinstance(target, ast.Subscript) and over and _dotted(target.value) == over:
        return isinstance(target.slice, ast.Name) and target.slice.id in names
    return False


def _copies(loop: ast.For | ast.AsyncFor, names: set[str]) -> set[str]:
    """The names of copies of the loop's message: `new = entry.copy()`, `{**entry}`, `dict(entry)`, `replace(entry, …)`."""
    copies: set[str] = set()
    for inner in walk(loop):
        if not isinstance(inner, ast.Assign) or not isinstance(inner.targets[0], ast.Name):
            continue
        value = inner.value
        of: list[ast.expr] = []
        if isinstance(value, ast.Call) and _last(value.func) in {"copy", "deepcopy", "dict", "replace", "model_copy"}:
            of = [*value.args[:1], *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
        elif isinstance(value, ast.Dict):
            of = [given for key, given in zip(value.keys, value.values, strict=True) if key is None]
        if any(isinstance(one, ast.Name) and one.id in names for one in of):
            copies.add(inner.targets[0].id)
    return copies


def _inner_tests(loop: ast.For | ast.AsyncFor) -> list[ast.expr]:
    """The tests that skip a turn of the loop or of one inside: `if seen < keep: continue`."""
    return [
        inner.test
        for inner in walk(loop)
        if isinstance(inner, ast.If) and any(isinstance(last, ast.Continue) for last in inner.body)
    ]


def _counts(test: ast.expr, counters: set[str]) -> bool:
    """Whether a test compares a counter of the loop."""
    return any(isinstance(inner, ast.Name) and inner.id in counters for inner in walk(test))


def _index_in(test: ast.expr, index: str) -> bool:
    """Whether a test asks if the loop's index is one of several places."""
    return bool(index) and any(
        isinstance(inner, ast.Compare)
        and isinstance(inner.ops[0], ast.In | ast.NotIn)
        and isinstance(inner.left, ast.Name)
        and inner.left.id == index
        for inner in walk(test)
    )


def _index_from_end(test: ast.expr, index: str) -> bool:
    """Whether a test compares the loop's index with a place that moves with the end of the list."""
    if not index:
        return False
    names = {inner.id for inner in walk(test) if isinstance(inner, ast.Name)}
    return index in names and (
        _says(
            test,
            frozenset({"len", "cutoff", "boundary", "keep", "recent", "last", "total", "threshold", "start", "end"}),
        )
    )
