"""The prompt IR, the narrow waist of the project: front ends build it, everything behind them reads it.

A `Prompt` is what one call site sends: blocks in written order. A block holds segments: fixed `Text`, a `Hole` for a value
that the source does not fix, `Media`, and the two shapes of control flow that stay in the tree, `Choice` and `Repeat`. Every hole has
a *volatility*: how long its value stays the same. A prompt caches well when volatility never goes down along the order
in which it is rendered.

All nodes are frozen and compared by content. Nothing here knows a parser, a tokenizer or a provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TypeAlias

from promptlint.source import SourceFile, Span

__all__ = [
    "Block",
    "BlockChoice",
    "BlockKind",
    "BlockNode",
    "BlockRepeat",
    "Choice",
    "Confidence",
    "Growth",
    "Guard",
    "HistoryEdit",
    "Hole",
    "Media",
    "Origin",
    "Parameter",
    "Prompt",
    "Reading",
    "Repeat",
    "Segment",
    "Step",
    "TemplateLayout",
    "TemplateVerdict",
    "Text",
    "Unread",
    "Unresolved",
    "Volatility",
    "blocks_of",
    "check_spans",
    "holes_of",
    "text_of",
]


class Volatility(IntEnum):
    """How long a value stays the same, longest-lived first. Neighbours are ordered by expected reuse; the scale breaks ties."""

    STATIC = 0  # until the source changes
    PROCESS = 1  # fixed at start-up; differs between replicas or deploys
    DAY = 2
    TENANT = 3
    DOCUMENT = 4  # text chosen by id and asked about many times
    USER = 5
    SESSION = 6
    TURN = 7  # one user message, several model calls
    REQUEST = 8

    @property
    def word(self) -> str:
        """The name as it is written in data, reports and JSON."""
        return self.name.lower()


class Confidence(IntEnum):
    """How sure we are of a statement."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2

    @property
    def word(self) -> str:
        """The name as it is written in data, reports and JSON."""
        return self.name.lower()


class BlockKind(StrEnum):
    """What a part of a prompt is for."""

    TOOLS = "tools"
    SYSTEM = "system"
    SCHEMA = "schema"
    EXAMPLES = "examples"
    CONTEXT = "context"
    HISTORY = "history"
    QUESTION = "question"
    OTHER = "other"


class Growth(StrEnum):
    """How a block or a repeated part changes from one request of a conversation to the next."""

    FIXED = "fixed"
    APPEND = "append"  # each value begins with the last one
    INSERT = "insert"  # new items enter ahead of old ones
    REWRITE = "rewrite"  # old items change
    WINDOW = "window"  # the last n, a token budget, a filter


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a value's way from its source to the sink, with a short note ("clock read here").

    `expression` is what stands at the step, where a text takes the value up there: the slot as a person reads it.
    """

    span: Span
    note: str
    expression: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """One reason why a value changes.

    `kind` is a word of rules/sources and rules/names.toml: clock, random, counter, host, unordered, listing, json, shuffle,
    user, tenant, session, context, document, request, history, tools, state, setting, unknown. Two origins of
    one hole are two faults.
    """

    kind: str
    volatility: Volatility
    confidence: Confidence
    expression: str
    span: Span
    steps: tuple[Step, ...] = ()
    at_import: bool = False  # evaluated once, when the module is imported or the default argument is bound


@dataclass(frozen=True, slots=True)
class Text:
    """Fixed text. Where `span.exact`, the source at the span spells `value`."""

    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class Hole:
    """A value that the source does not fix.

    `expression` is the source of the slot as a person reads it, `name` its telling identifier. `volatility` and `confidence` summarise `origins`
    (highest volatility; that origin's confidence). `kind` is what the name says the value is for. `growth` is set for values that
    are themselves lists of messages. `tokens` is the expected size in tokens, `tokens_from` its origin: "measured",
    "profile" or "name"; None means that the profile decides by kind.
    """

    expression: str
    span: Span
    volatility: Volatility
    confidence: Confidence
    origins: tuple[Origin, ...] = ()
    name: str = ""
    kind: BlockKind | None = None
    growth: Growth = Growth.FIXED
    tokens: int | None = None
    tokens_from: str | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a file or a sound; `kind` says which. `tokens` is by the provider's formula where it is known."""

    kind: str
    span: Span
    volatility: Volatility
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """What decides whether or which: a condition. `latched`: it can change only once in a turn or session."""

    expression: str
    span: Span
    volatility: Volatility
    confidence: Confidence
    origins: tuple[Origin, ...] = ()
    latched: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives for one place; an empty arm means that the text may be absent."""

    guard: Guard
    arms: tuple[tuple[Segment, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part that is rendered once for each item of `over`. `separator` stands between two items where it is known."""

    over: Hole
    body: tuple[Segment, ...]
    span: Span
    growth: Growth = Growth.FIXED
    separator: str = ""


Segment: TypeAlias = Text | Hole | Media | Choice | Repeat


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a prompt: one message, the system text, the tool list, one group of examples.

    `name` is the constant, function or file that it comes from, where there is one. `span` is where its text is written, `placed`
    the statement or element that puts it into the prompt. `breakpoint` is the place of a cache marker on it, `lost_breakpoint` of one that the library
    does not pass on.
    """

    kind: BlockKind
    role: str | None
    segments: tuple[Segment, ...]
    span: Span
    placed: Span | None = None
    name: str = ""
    growth: Growth = Growth.FIXED
    breakpoint: Span | None = None
    breakpoint_ttl: str | None = None
    lost_breakpoint: Span | None = None


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """Alternative runs of blocks; an empty arm means that the blocks may be absent."""

    guard: Guard
    arms: tuple[tuple[BlockNode, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class BlockRepeat:
    """Blocks that are placed once for each item of `over`: examples, a history, tool results."""

    over: Hole
    body: tuple[BlockNode, ...]
    span: Span
    growth: Growth = Growth.FIXED


BlockNode: TypeAlias = Block | BlockChoice | BlockRepeat


@dataclass(frozen=True, slots=True)
class HistoryEdit:
    """An operation on a list of messages that a cached prefix may not survive.

    `op`: "window" (keeps the last n), "pop-front", "pop-middle", "filter", "insert-front", "set-front" (element 0 is replaced), "set-old" (an older element or
    its content is replaced), "summarise", "hand-off" (the same list goes on under another head). `target` is the list as written. `per_call`: the operation is reached again for each request of
    a conversation, as far as the source shows.
    """

    op: str
    span: Span
    target: str
    confidence: Confidence
    expression: str = ""
    origins: tuple[Origin, ...] = ()
    steps: tuple[Step, ...] = ()
    call_site: str = ""
    function: str = ""
    per_call: bool = True


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A part of a prompt that could not be read. `reason`: database, hub, remote-tools, dependency, dynamic-import, budget, file, caller."""

    expression: str
    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of the sink that is part of the cache key or steers requests (`prompt_cache_key`, a salt, `tool_choice`)."""

    name: str
    value: Hole | Text
    span: Span


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one call site sends, in written order.

    `path`, `function` and `sink` make the call site's id. `origin`: "sink" (a call sends it), "messages" (a list of role and content
    without a known sink), "template" (a text that looks like a prompt and reaches no sink). `render_order` holds block kinds as
    the provider renders them; empty means written order. `in_loop`: the call is repeated within one conversation, with a history that grows.
    `resolution` is the share of the prompt's parts that was read, 0 to 1.
    """

    path: str
    function: str
    sink: str
    span: Span
    blocks: tuple[BlockNode, ...]
    origin: str = "sink"
    confidence: Confidence = Confidence.HIGH
    provider: str | None = None
    model: str | None = None
    render_order: tuple[BlockKind, ...] = ()
    structured_output: bool = False
    in_loop: bool = False
    parameters: tuple[Parameter, ...] = ()
    edits: tuple[HistoryEdit, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    resolution: float = 1.0
    steps: tuple[Step, ...] = ()

    @property
    def id(self) -> str:
        """`path::qualified.function::sink`; the report adds `#2` where it repeats."""
        return f"{self.path}::{self.function}::{self.sink}"


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """What rendering synthetic conversations showed of a chat template (a template over `messages`).

    `verdict`: stable, stable-in-serving, generation-prompt-not-replayed, rewrites-history. `date`: never, always, without-system.
    `line` is the guilty line (1-based, 0 if there is none), `date_line` the one that prints the date; `reusable_share` the share of the next request that
    can still be reused, `lost_share` the share of the request before that cannot, both at the worst step. `name`: what a tokenizer that has several calls it.
    """

    path: str
    verdict: str
    drops_reasoning: bool
    moves_tools: bool
    moves_system: bool
    date: str
    line: int
    reusable_share: float
    date_line: int = 0
    lost_share: float = 0.0
    name: str = ""


@dataclass(frozen=True, slots=True)
class TemplateLayout:
    """Where a chat template writes what stands beside the messages, as rendering showed it.

    `front` are the block kinds (system, tools) ahead of the first question, in rendered order; `late` those that stand behind the history, at the newest user
    message. A kind that the template does not write is in neither. `date`: never, always, without-system (as in TemplateVerdict);
    `date_at` is how many kinds of `front` stand ahead of the date, `date_line` the line that prints it.
    """

    path: str
    front: tuple[BlockKind, ...] = ()
    late: tuple[BlockKind, ...] = ()
    date: str = "never"
    date_at: int = 0
    date_line: int = 0


@dataclass(frozen=True, slots=True)
class Unread:
    """A file or a place that was not analysed, and why."""

    path: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a front end found in the files that it was given."""

    prompts: tuple[Prompt, ...] = ()
    edits: tuple[HistoryEdit, ...] = ()
    templates: tuple[TemplateVerdict, ...] = ()
    unread: tuple[Unread, ...] = ()
    parsed: tuple[str, ...] = ()  # paths that were parsed

    def __add__(self, other: Reading) -> Reading:
        return Reading(
            self.prompts + other.prompts,
            self.edits + other.edits,
            self.templates + other.templates,
            self.unread + other.unread,
            self.parsed + other.parsed,
        )


def blocks_of(nodes: tuple[BlockNode, ...]) -> Iterator[Block]:
    """Every block, in written order, arms and bodies included."""
    for node in nodes:
        if isinstance(node, Block):
            yield node
        elif isinstance(node, BlockChoice):
            for arm in node.arms:
                yield from blocks_of(arm)
        else:
            yield from blocks_of(node.body)


def holes_of(segments: tuple[Segment, ...]) -> Iterator[Hole]:
    """Every hole, in written order; the `over` of a repeat comes before its body."""
    for segment in segments:
        if isinstance(segment, Hole):
            yield segment
        elif isinstance(segment, Choice):
            for arm in segment.arms:
                yield from holes_of(arm)
        elif isinstance(segment, Repeat):
            yield segment.over
            yield from holes_of(segment.body)


def text_of(segments: tuple[Segment, ...]) -> Iterator[Text]:
    """Every fixed text, in written order."""
    for segment in segments:
        if isinstance(segment, Text):
            yield segment
        elif isinstance(segment, Choice):
            for arm in segment.arms:
                yield from text_of(arm)
        elif isinstance(segment, Repeat):
            yield from text_of(segment.body)


def check_spans(prompt: Prompt, sources: dict[str, SourceFile]) -> list[Text]:
    """The texts whose exact span does not spell them: a broken promise. Empty when all is well."""
    wrong = []
    for block in blocks_of(prompt.blocks):
        for text in text_of(block.segments):
            source = sources.get(text.span.path)
            if text.span.exact and source is not None and source.slice(text.span) != text.value:
                wrong.append(text)
    return wrong
