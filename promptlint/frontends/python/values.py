"""Abstract values: what an expression may be, as far as the source shows.

Texts, holes and references are immutable and compared by content. Lists, dicts and objects are boxes with identity, since Python
programs share and change them; a box holds immutable content, and every write goes through a `Journal`, so that an arm of a branch or a whole
evaluation can be undone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from promptlint.ir import (
    BlockKind,
    Choice,
    Confidence,
    Growth,
    Guard,
    Hole,
    Origin,
    Repeat,
    Segment,
    Step,
    Volatility,
)
from promptlint.source import Span

if TYPE_CHECKING:
    from promptlint.frontends.python.index import ClassInfo, FunctionInfo, Module

__all__ = [
    "Alt",
    "Bound",
    "Box",
    "Class",
    "Const",
    "Dict",
    "Each",
    "Elem",
    "Entry",
    "Frame",
    "Function",
    "Item",
    "Journal",
    "Lib",
    "List",
    "Message",
    "ModuleValue",
    "Object",
    "Opaque",
    "Pick",
    "Pipe",
    "Place",
    "Rest",
    "Str",
    "SuperDict",
    "Template",
    "Value",
    "contained",
    "origins_of",
    "worst",
]

# Origins that a value has itself, as text or number: what merely holds such a value is no clock.
STRONG = frozenset({"clock", "random", "counter", "unordered", "listing", "shuffle", "host"})
ORDER = frozenset(
    {"unordered", "listing", "shuffle"}
)  # these say in which order elements come, and nothing about one of them


@dataclass(frozen=True, slots=True)
class Str:
    """A text: fixed parts and holes, as in the IR."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Const:
    """A number, a boolean, None, bytes or an ellipsis."""

    value: Any
    span: Span

    def __hash__(self) -> int:
        return hash((repr(self.value), self.span))


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that the source does not fix, and why it changes.

    `type` is a library type or builtin type name where known, `parameter` says that it hangs on a parameter of the function where the
    evaluation began, `unordered` that its iteration order is not fixed, `optional` that it may be None because a default says so.
    """

    expression: str
    span: Span
    origins: tuple[Origin, ...] = ()
    name: str = ""
    type: str = ""
    kind: BlockKind | None = None
    growth: Growth = Growth.FIXED
    steps: tuple[Step, ...] = ()
    parameter: bool = False
    unordered: bool = False
    optional: bool = False
    tokens: int | None = None

    def with_steps(self, steps: tuple[Step, ...]) -> Opaque:
        """The same value with other steps; `replace` is too slow for what happens at every call."""
        return Opaque(
            self.expression, self.span, self.origins, self.name, self.type, self.kind, self.growth, steps,
            self.parameter, self.unordered, self.optional, self.tokens,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lib:
    """A name of a library ("datetime.datetime.now"), or a method path on an instance of an SDK type (`instance` set: "OpenAI", path in `path`)."""

    path: str
    instance: bool = False
    arguments: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleValue:
    """A module of the project."""

    module: Module

    def __hash__(self) -> int:
        return id(self.module)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the project. `receiver` is the bound object, `frame` the frame in which it was defined (for captured names)."""

    info: FunctionInfo
    receiver: Value | None = None
    frame: Frame | None = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Function)
            and self.info is other.info
            and self.receiver is other.receiver
            and self.frame is other.frame
        )

    def __hash__(self) -> int:
        return hash((id(self.info), id(self.receiver), id(self.frame)))


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the project."""

    info: ClassInfo

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Class) and self.info is other.info

    def __hash__(self) -> int:
        return id(self.info)


@dataclass(frozen=True, slots=True)
class Bound:
    """A method of a builtin value (`text.format`, `items.append`), or of a template object, not yet called."""

    receiver: Value
    name: str
    node: ast.expr | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash((id(self.receiver), self.name))


@dataclass(frozen=True, slots=True)
class Template:
    """A template object of a library: its text, its syntax, and what is bound so far. `messages`: a list of message templates instead of a text."""

    text: Value
    syntax: str
    bound: tuple[tuple[str, Value], ...] = ()
    role: str | None = None
    fill: tuple[str, ...] = ("format",)
    partial: tuple[str, ...] = ("partial",)
    messages: bool = False
    span: Span | None = None
    folder: str = ""

    def __hash__(self) -> int:
        return hash((id(self.text), self.syntax, len(self.bound)))


@dataclass(frozen=True, slots=True)
class Place:
    """A path of the file system; `opened`: a file object of it; `environment`: a template environment whose folder it is."""

    path: Path
    opened: bool = False
    environment: bool = False


@dataclass(frozen=True, slots=True)
class Pipe:
    """Runnables joined by `|`: what one gives out is what the next takes in."""

    steps: tuple[Value, ...]

    def __hash__(self) -> int:
        return hash(len(self.steps))


@dataclass(frozen=True, slots=True)
class Message:
    """A message object of a library."""

    role: Value | str
    content: Value
    span: Span
    lost_mark: Span | None = None  # a cache marker that the library does not pass on

    def __hash__(self) -> int:
        return hash((id(self.content), self.span))


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several values; `guard` says what decides."""

    guard: Guard
    arms: tuple[Value, ...]

    def __hash__(self) -> int:
        return hash((self.guard.span, len(self.arms)))


# ---- lists and dicts


@dataclass(frozen=True, slots=True)
class Elem:
    """One element, with the place of the statement or element that puts it there."""

    value: Value
    placed: Span

    def __hash__(self) -> int:
        return hash(self.placed)


@dataclass(frozen=True, slots=True)
class Rest:
    """A run of elements that are not known one by one: `*history`."""

    hole: Opaque
    placed: Span


@dataclass(frozen=True, slots=True)
class Each:
    """Elements that are there once for each item of `over`."""

    over: Opaque
    body: tuple[Item, ...]
    placed: Span
    growth: Growth = Growth.FIXED


@dataclass(frozen=True, slots=True)
class Pick:
    """Alternative runs of elements; an empty arm means that they may be absent."""

    guard: Guard
    arms: tuple[tuple[Item, ...], ...]
    placed: Span


Item: TypeAlias = Elem | Rest | Each | Pick


class Box:
    """Base of values with identity."""

    __slots__ = ("serial", "span")
    count = 0

    def __init__(self, span: Span) -> None:
        self.span = span
        Box.count += 1
        self.serial = Box.count


class List(Box):
    """A list, tuple or set. `disorder` is why its order is not fixed, where it is not."""

    __slots__ = ("disorder", "items", "kind")

    def __init__(
        self, items: tuple[Item, ...], span: Span, kind: str = "list", disorder: tuple[Origin, ...] = ()
    ) -> None:
        super().__init__(span)
        self.items = items
        self.kind = kind
        self.disorder = disorder

    def plain(self) -> list[Value] | None:
        """The elements when each of them is known, else None."""
        values = []
        for item in self.items:
            if not isinstance(item, Elem):
                return None
            values.append(item.value)
        return values


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a dict. `guard`: it is there under a condition only."""

    key: str
    value: Value
    placed: Span
    guard: Guard | None = None

    def __hash__(self) -> int:
        return hash((self.key, self.placed))


class Dict(Box):
    """A dict with string keys in insertion order. `rest`: further entries that are not known."""

    __slots__ = ("entries", "rest")

    def __init__(self, entries: tuple[Entry, ...], span: Span, rest: Opaque | None = None) -> None:
        super().__init__(span)
        self.entries = entries
        self.rest = rest

    def get(self, key: str) -> Value | None:
        """The value under a key, None when it is not there or not known."""
        for entry in reversed(self.entries):
            if entry.key == key:
                return entry.value
        return None


class SuperDict(Dict):
    """What `super()` reaches, by name."""

    __slots__ = ()


class Object(Box):
    """An instance of a project class. `symbolic`: it stands for any instance, so fields that are not here are joined over the class."""

    __slots__ = ("fields", "info", "symbolic", "version")

    def __init__(self, info: ClassInfo, span: Span, symbolic: bool = False) -> None:
        super().__init__(span)
        self.info = info
        self.fields: dict[str, Value] = {}
        self.symbolic = symbolic
        self.version = 0  # counts the writes to its fields


Value: TypeAlias = (
    Str
    | Const
    | Opaque
    | Lib
    | ModuleValue
    | Function
    | Class
    | Bound
    | Template
    | Pipe
    | Place
    | Message
    | Alt
    | List
    | Dict
    | Object
)


class Frame:
    """One call of a function, or a module's top level: local names and what was returned so far."""

    __slots__ = (
        "at_import",
        "call",
        "cls",
        "depth",
        "function",
        "in_loop",
        "locals",
        "module",
        "parent",
        "receiver",
        "returns",
        "yields",
    )

    def __init__(
        self,
        module: Module,
        function: FunctionInfo | None = None,
        *,
        parent: Frame | None = None,
        depth: int = 0,
        at_import: bool = False,
    ) -> None:
        self.module = module
        self.function = function
        self.locals: dict[str, Value] = {}
        self.parent = parent
        self.depth = depth
        self.at_import = at_import
        self.returns: list[tuple[Guard | None, Value]] = []
        self.yields: list[Item] = []
        self.cls: ClassInfo | None = None
        self.receiver: Value | None = None
        self.in_loop = 0
        self.call: Span | None = None


_MISSING: Any = object()


class Journal:
    """Remembers what was there before each write, newest last."""

    __slots__ = ("box_writes", "entries", "written")

    def __init__(self) -> None:
        self.entries: list[tuple[Any, str, Any]] = []
        self.box_writes = 0
        self.written: list[
            int
        ] = []  # serials of the boxes that were written, in order; 0 for a name of an outer function

    def set_field(self, target: Object, key: str, value: Value) -> None:
        """Write a field of an object."""
        self.written.append(target.serial)
        target.version += 1
        self.set(target.fields, key, value)

    def set(self, target: dict[str, Value], key: str, value: Value) -> None:
        """Write one local name or field."""
        self.entries.append((target, key, target.get(key, _MISSING)))
        target[key] = value

    def set_slot(self, box: Box, slot: str, value: Any) -> None:
        """Write the content of a list or dict."""
        self.box_writes += 1
        self.written.append(box.serial)
        self.entries.append((box, slot, getattr(box, slot)))
        setattr(box, slot, value)

    def mark(self) -> int:
        """A point to come back to."""
        return len(self.entries)

    def changed_since(self, mark: int) -> dict[tuple[int, str], tuple[Any, str, Any, Any]]:
        """What was written since the mark: (target, key, value before, value now) by identity of the target and key."""
        result: dict[tuple[int, str], tuple[Any, str, Any, Any]] = {}
        for target, key, before in self.entries[mark:]:
            place = (id(target), key)
            if place not in result:
                now = target.get(key, _MISSING) if isinstance(target, dict) else getattr(target, key)
                result[place] = (target, key, before, now)
        return result

    def undo(self, mark: int) -> None:
        """Take back every write since the mark."""
        entries = self.entries
        while len(entries) > mark:
            target, key, before = entries.pop()
            if isinstance(target, dict):
                if before is _MISSING:
                    target.pop(key, None)
                else:
                    target[key] = before
            else:
                setattr(target, key, before)

    @staticmethod
    def missing(value: Any) -> bool:
        """Whether a value before or now says "there was none"."""
        return value is _MISSING


# ---- origins


def worst(origins: Iterable[Origin]) -> tuple[Volatility, Confidence]:
    """The highest volatility among origins, and the best confidence with which it is known.

    An origin of low confidence decides only when there is no other: a guess must not hide what is known.
    """
    origins = tuple(origins)
    origins = tuple(origin for origin in origins if origin.confidence > Confidence.LOW) or origins
    volatility = Volatility.STATIC
    confidence = Confidence.HIGH
    for origin in origins:
        if origin.volatility > volatility:
            volatility, confidence = origin.volatility, origin.confidence
        elif origin.volatility == volatility and origin.confidence > confidence:
            confidence = origin.confidence
    return volatility, confidence


def merge_origins(*groups: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """All origins, each once: same kind and place count as one."""
    groups = tuple(group for group in groups if group)
    if len(groups) <= 1:
        return groups[0] if groups else ()
    first = groups[0]
    if all(group is first or group == first for group in groups):
        return first
    seen: set[tuple[str, Span]] = set()
    result: list[Origin] = []
    for group in groups:
        for origin in group:
            key = (origin.kind, origin.span)
            if key not in seen:
                seen.add(key)
                result.append(origin)
    return tuple(result[:12])


def contained(origins: tuple[Origin, ...], kinds: frozenset[str] = STRONG) -> tuple[Origin, ...]:
    """What a container's content says about the container, or about what is computed from it: that it may change, and how fast.

    A clock, a random value, a counter or an order travels through text and numbers only. An object that holds a clock in
    one field is no clock, and neither is what a function makes of it.
    """
    if not any(origin.kind in kinds for origin in origins):
        return origins
    weak = tuple(origin for origin in origins if origin.kind not in kinds)
    if weak:
        return weak
    first = max(origins, key=lambda origin: origin.volatility)
    return (replace(first, kind="unknown", confidence=Confidence.LOW),)


def segment_origins(segments: Iterable[Segment]) -> Iterator[Origin]:
    """Every origin in a run of segments, guards and repeats included."""
    for segment in segments:
        if isinstance(segment, Hole):
            yield from segment.origins
        elif isinstance(segment, Choice):
            yield from segment.guard.origins
            for arm in segment.arms:
                yield from segment_origins(arm)
        elif isinstance(segment, Repeat):
            yield from segment.over.origins
            yield from segment_origins(segment.body)


def origins_of(value: Value | str | None, depth: int = 0) -> tuple[Origin, ...]:
    """Why a value changes, contents included."""
    if value is None or depth > 5:
        return ()
    if isinstance(value, Opaque):
        return value.origins
    if isinstance(value, Str):
        return merge_origins((), tuple(dict.fromkeys(segment_origins(value.segments)))) if value.segments else ()
    if isinstance(value, Alt):
        return merge_origins(value.guard.origins, *(origins_of(arm, depth + 1) for arm in value.arms))
    if isinstance(value, List):
        return merge_origins(value.disorder, *(contained(item_origins(item, depth + 1)) for item in value.items))
    if isinstance(value, Dict):
        # The entries of a dict that is filled from a set come in the set's order; what stands under a key orders nothing.
        entries = (contained(origins_of(entry.value, depth + 1)) for entry in value.entries)
        return merge_origins(*entries, contained(value.rest.origins, STRONG - ORDER) if value.rest else ())
    if isinstance(value, Message):
        return origins_of(value.content, depth + 1)
    if isinstance(value, Template):
        return merge_origins(origins_of(value.text, depth + 1), *(origins_of(v, depth + 1) for _, v in value.bound))
    if isinstance(value, Object):
        # Objects hold one another, and what is printed of one is rarely all it holds: only its own plain fields count.
        fields = (contained(v.origins) for v in value.fields.values() if isinstance(v, Opaque))
        return merge_origins(*fields) if depth == 0 else ()
    if isinstance(value, Bound):
        return origins_of(value.receiver, depth + 1)
    return ()


def newest(value: Opaque) -> Opaque:
    """The last message of a conversation: another one at each turn, though the conversation only grows."""
    if not any(origin.kind == "history" for origin in value.origins):
        return value
    origins = tuple(
        replace(origin, kind="request", volatility=max(origin.volatility, Volatility.TURN))
        if origin.kind == "history"
        else origin
        for origin in value.origins
    )
    return replace(value, origins=origins, growth=Growth.FIXED)


def item_origins(item: Item, depth: int = 0) -> tuple[Origin, ...]:
    """Why an element of a list changes or may be absent."""
    if isinstance(item, Elem):
        return origins_of(item.value, depth)
    if isinstance(item, Rest):
        return item.hole.origins
    if isinstance(item, Each):
        return merge_origins(item.over.origins, *(item_origins(inner, depth + 1) for inner in item.body))
    return merge_origins(item.guard.origins, *(item_origins(inner, depth + 1) for arm in item.arms for inner in arm))


def with_step(value: Value, step: Step, limit: int = 8) -> Value:
    """The value with one more step on the way of its origins (parameters and returns pass here)."""
    if isinstance(value, Opaque):
        return value.with_steps((*value.steps, step)) if len(value.steps) < limit else value
    if isinstance(value, Alt):
        return replace(value, arms=tuple(with_step(arm, step, limit) for arm in value.arms))
    return value
