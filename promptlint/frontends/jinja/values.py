"""Abstract values of a template's expressions.

A value is what is known of it without rendering: a constant, a text of segments, a list, a dict, a namespace, a macro, or something opaque that becomes
a hole where it is printed. All are immutable; a namespace is replaced when one of its attributes is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, TypeAlias

from promptlint.frontends.slots import named_hole
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
    Text,
    Volatility,
    holes_of,
)
from promptlint.source import Span

if TYPE_CHECKING:
    from jinja2 import nodes

    from promptlint.frontends.jinja.tree import Body, Template

__all__ = [
    "At", "Const", "Dct", "Lst", "Macro", "Module", "Namespace", "Opaque", "Txt", "Value", "as_guard", "join", "merged", "opaque_named", "origins_of", "segments_of", "size_of",
]  # fmt: skip


MAX_CHOICE = 2_000  # parts in all arms of a choice that values are joined by
MAX_COUNTED = 25_000


@dataclass(frozen=True, slots=True)
class At:
    """The place that is looked at, and its code as a person reads it."""

    code: str
    span: Span


@dataclass(frozen=True, slots=True)
class Const:
    """A number, a string, a truth value or None that the template spells."""

    value: Any


@dataclass(frozen=True, slots=True)
class Txt:
    """A text whose parts are known."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Lst:
    """A list or tuple that the template spells."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dct:
    """A dict that the template spells, with constant keys."""

    items: tuple[tuple[Any, Value], ...]

    def get(self, key: Any) -> Value | None:
        for name, value in self.items:
            if name == key:
                return value
        return None


@dataclass(frozen=True, slots=True)
class Namespace:
    """`namespace()`: its attributes can be set from inside a loop."""

    items: tuple[tuple[str, Value], ...]

    def get(self, key: str) -> Value | None:
        return dict(self.items).get(key)

    def set(self, key: str, value: Value) -> Namespace:
        return Namespace(tuple({**dict(self.items), key: value}.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Macro:
    """A macro, or the body of a call block (`caller`), with the scopes that it sees and the template that it stands in."""

    name: str
    arguments: tuple[str, ...]
    defaults: tuple[nodes.Expr, ...]
    body: Body
    template: Template
    scopes: tuple[dict[str, Value], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """An imported template: its macros and top-level values."""

    items: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that the template does not fix.

    `name` is the dotted name that tells about it, "" for the result of a computation. `item`: it is an element of a sequence, so that the
    sequence says why it changes, and an attribute's name does not overrule it.
    """

    origins: tuple[Origin, ...]
    name: str = ""
    kind: BlockKind | None = None
    growth: Growth = Growth.FIXED
    steps: tuple[Step, ...] = ()
    item: bool = False

    @property
    def volatility(self) -> Volatility:
        return max((origin.volatility for origin in self.origins), default=Volatility.STATIC)

    @property
    def confidence(self) -> Confidence:
        worst = self.volatility
        return max(
            (origin.confidence for origin in self.origins if origin.volatility == worst), default=Confidence.HIGH
        )

    def hole(self, at: At) -> Hole:
        """The hole that it leaves where it is printed."""
        return Hole(
            at.code,
            at.span,
            self.volatility,
            self.confidence,
            self.origins,
            self.name,
            self.kind,
            self.growth,
            steps=self.steps,
        )


Value: TypeAlias = Const | Txt | Lst | Dct | Namespace | Macro | Module | Opaque


def opaque_named(name: str, span: Span) -> Opaque:
    """An unbound name: rules/names.toml says what it is."""
    hole = named_hole(name, span)
    return Opaque(hole.origins, name, hole.kind, hole.growth)


def merged(origins: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """Without repetition, in order."""
    return tuple(dict.fromkeys(origins))


def origins_of(value: Value) -> tuple[Origin, ...]:
    """Why the value changes."""
    if isinstance(value, Opaque):
        return value.origins
    if isinstance(value, Txt):
        return origins_of_segments(value.segments)
    if isinstance(value, Lst):
        return merged(tuple(origin for item in value.items for origin in origins_of(item)))
    if isinstance(value, (Dct, Namespace)):
        return merged(tuple(origin for _, item in value.items for origin in origins_of(item)))
    return ()


def origins_of_segments(segments: tuple[Segment, ...]) -> tuple[Origin, ...]:
    """Why a text changes: its holes and its guards. A hole without origins stands for itself."""
    found: list[Origin] = []
    for hole in holes_of(segments):
        found += hole.origins or (
            Origin("unknown", hole.volatility, hole.confidence, hole.expression, hole.span, hole.steps),
        )
    for segment in segments:
        if isinstance(segment, Choice):
            found += segment.guard.origins
    return merged(tuple(found))


def segments_of(value: Value, at: At) -> tuple[Segment, ...]:
    """What the value prints at a place."""
    if isinstance(value, Txt):
        return value.segments
    if isinstance(value, Const):
        text = "" if value.value is None else str(value.value)
        return (Text(text, at.span.inexact()),) if text else ()
    if isinstance(value, Opaque):
        return (value.hole(at),)
    if isinstance(value, (Lst, Dct)):
        return (Opaque(origins_of(value)).hole(at),)
    return ()


def as_guard(value: Value, at: At) -> Guard:
    """The value as a condition."""
    opaque = value if isinstance(value, Opaque) else Opaque(origins_of(value))
    return Guard(at.code, at.span, opaque.volatility, opaque.confidence, opaque.origins)


def join(arms: list[Value], guard: Guard) -> Value:
    """One of several values, by a guard."""
    first = arms[0]
    if all(arm == first for arm in arms[1:]):
        return first
    printable = all(isinstance(arm, (Txt, Const)) for arm in arms)
    if printable and any(
        isinstance(arm, Txt) or (isinstance(arm, Const) and isinstance(arm.value, str)) for arm in arms
    ):
        return joined_texts([segments_of(arm, At(guard.expression, guard.span)) for arm in arms], guard)
    origins = merged((*(origin for arm in arms for origin in origins_of(arm)), *guard.origins))
    telling = next((arm for arm in arms if isinstance(arm, Opaque) and arm.kind), None)
    return Opaque(origins, kind=telling.kind if telling else None, growth=telling.growth if telling else Growth.FIXED)


def joined_texts(texts: list[tuple[Segment, ...]], guard: Guard) -> Value:
    """One of several texts. What they begin or end with in common stands outside of the choice: `text ~ more` under an `if` is the
    text and perhaps more, and a chain of those stays as long as the template.
    """
    shortest = min(len(text) for text in texts)
    first = texts[0]
    head = 0
    while head < shortest and all(text[head] is first[head] or text[head] == first[head] for text in texts):
        head += 1
    tail = 0
    while tail < shortest - head and all(text[-1 - tail] == first[-1 - tail] for text in texts):
        tail += 1
    middles = tuple(text[head : len(text) - tail] for text in texts)
    shared, middles = shared_beginning(middles)
    if sum(size_of(Txt(middle)) for middle in middles) > MAX_CHOICE:
        return Opaque(merged((*(origin for text in texts for origin in origins_of_segments(text)), *guard.origins)))
    return Txt((*first[:head], *shared, Choice(guard, middles, guard.span), *first[len(first) - tail :]))


def shared_beginning(
    texts: tuple[tuple[Segment, ...], ...],
) -> tuple[tuple[Segment, ...], tuple[tuple[Segment, ...], ...]]:
    """The characters that constants at the head of all texts share, and the texts without them."""
    heads = [text[0] if text else None for text in texts]
    fixed = [head for head in heads if isinstance(head, Text) and not head.span.exact]
    if len(fixed) < len(texts):
        return (), texts
    size = len(commonprefix([head.value for head in fixed]))  # noqa: RUF071 (of characters is what we want)
    if not size:
        return (), texts
    cut = tuple(
        (*((Text(head.value[size:], head.span),) if head.value[size:] else ()), *text[1:])
        for head, text in zip(fixed, texts, strict=True)
    )
    return (Text(fixed[0].value[:size], fixed[0].span),), cut


def size_of(value: Value) -> int:
    """How large a value is: parts of a text with all arms, characters of a constant, items of a list. Counting stops soon beyond the bounds."""
    if isinstance(value, Const):
        return len(value.value) if isinstance(value.value, str) else 1
    if isinstance(value, (Lst, Dct, Namespace)):
        return len(value.items)
    if not isinstance(value, Txt):
        return 1
    count = 0
    pending = list(value.segments)
    while pending and count <= MAX_COUNTED:
        count += 1
        segment = pending.pop()
        if isinstance(segment, Choice):
            pending += [part for arm in segment.arms for part in arm]
        elif isinstance(segment, Repeat):
            pending += segment.body
    return count + len(pending)
