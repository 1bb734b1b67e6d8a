"""SDK models: which calls send or build a prompt, and where in their arguments its blocks stand (rules/sdk/*.toml)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from promptlint.catalog import load_toml, toml_files
from promptlint.errors import UserError
from promptlint.ir import BlockKind

__all__ = [
    "Argument",
    "Convention",
    "Generic",
    "Hook",
    "Instance",
    "MessageClass",
    "Option",
    "Package",
    "Sdk",
    "Sink",
    "TemplateClass",
    "load_sdk",
]


@dataclass(frozen=True, slots=True)
class Argument:
    """Where text stands in one argument of a sink.

    `block` is a kind, or "by-role" when each element says it by its role; "ignore" takes part in nothing. `each` selects the elements, `role` the
    role within one, `text` the places of text within one. Paths: `.key`, `[*]` each element, `**` anywhere, "" itself.
    `position` is the 0-based place among the positional arguments, None for keyword only; where two rows claim one, the first has it. With
    "by-role" a bare string is one user message.
    """

    name: str
    block: str
    position: int | None = None
    each: str = ""
    role: str = ""
    text: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True)
class Instance:
    """A type and the calls that make one. `made_by` are dotted names, with `()` for a call: "anthropic.Anthropic()".

    `named_by` are the arguments of such a call that name the model, the first of them also when it is given by position.
    `keeps` are keyword arguments of it that calls on the instance inherit.
    """

    type: str
    made_by: tuple[str, ...]  # a class stands for annotations with it, too
    attributes: dict[str, str] = field(default_factory=dict, hash=False)  # attribute name -> type
    named_by: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sink:
    """A call that sends a prompt. `call` holds "Type.method.path" (a type of an [[instance]] row) or a dotted function.

    The constructor of an agent is a sink with `history = "object"`: it fixes system text and tools, and its conversation grows behind them.
    """

    call: tuple[str, ...]
    package: str
    provider: str | None
    render_order: tuple[BlockKind, ...]
    args: tuple[Argument, ...]
    breakpoint: str = (
        ""  # where a cache marker may stand: "**.key" anywhere; with "[*]", on the parts of a message only
    )
    model: str = "model"
    cache_key: tuple[
        str, ...
    ] = ()  # arguments that are part of the cache key or steer requests; "extra_headers.x-id": an entry of a dict, in lower case
    structured: tuple[str, ...] = ()  # arguments that switch structured output on
    history: str = ""  # "object": the receiver holds the conversation (chat sessions, agents); "behind": it is sent behind the arguments
    sends: bool = True  # False: the row only describes the arguments (count_tokens)


@dataclass(frozen=True, slots=True)
class MessageClass:
    """A class or function whose call is one message. `text` names the argument with the content, `position` its place."""

    call: tuple[str, ...]
    role: str  # a role, or "from:ARG" when an argument holds it
    text: str = "content"
    position: int | None = 0
    drops: tuple[str, ...] = ()  # arguments with a cache marker that is never sent; "a.b" is an entry of a dict


@dataclass(frozen=True, slots=True)
class TemplateClass:
    """A class or function that holds a template. `syntax`: format, jinja2, mustache, dollar, percent, or "from:ARG".

    `text` names the argument with the template ("messages" style templates set `messages = true`: a list of (role, text) pairs or message
    objects). `fill` are methods that render it with keyword arguments, `partial` methods that bind some, `role` the role when it makes a message.
    """

    call: tuple[str, ...]
    text: str
    position: int | None = 0
    syntax: str = "format"
    messages: bool = False
    role: str | None = None
    fill: tuple[str, ...] = ("format",)
    partial: tuple[str, ...] = ("partial",)
    parts: tuple[
        str, ...
    ] = ()  # arguments that are rendered one behind the other, where `text` is only the first of them


@dataclass(frozen=True, slots=True)
class Option:
    """An argument that makes a framework put something into the prompt, or take something out: `Agent(add_datetime_to_context=True)`.

    `argument` is "" where the call itself switches it on (a window memory). `source`: a kind of origin as in rules/sources, or what is done to the
    conversation: "window" (only the newest messages are sent), "summary" (older ones are replaced by a summary), "rewrite" (older ones change),
    "handoff" (the same conversation goes on under another system text and tools), "hook" (user code may edit it). `position`: "start", "end", or the name
    of the argument behind whose text it stands. `unless`: literal arguments with which it does nothing. `format`: the argument whose strftime format
    decides how coarse a clock is.
    """

    call: tuple[str, ...]
    argument: str
    value: str  # "true", "any", or a literal
    source: str
    block: str
    position: str = "end"
    volatility: str = "request"
    note: str = ""
    unless: tuple[tuple[str, object], ...] = ()
    format: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """A base class and method through which user code edits the system text, the messages or the tools of each request.

    `method` "@" says that `base` is a decorator of a function; a base "@TYPE" that the decorator is a method of an instance of that type; "__doc__" that
    the class docstring is the text. `edits`: system (the function's result is the system text), messages (it returns or changes the state's messages),
    request (any part), state (it adds to its first argument).
    """

    base: tuple[str, ...]
    method: tuple[str, ...]
    edits: str
    volatility: str = "turn"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Convention:
    """A file that a framework loads by name: `prompts/*.yaml`, `agents.yaml`."""

    glob: str
    package: str
    syntax: str
    fields: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Generic:
    """A method name with the argument shape that counts as a sink on a receiver of unknown type, at medium confidence.

    `receiver` are words one of which must occur in the receiver's last name ("llm", "client"; "chat model": both, next to each other); empty means any receiver. `requires`: arguments of which
    one must be present, by keyword or position.
    """

    method: tuple[str, ...]
    args: tuple[Argument, ...]
    receiver: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    provider: str | None = None
    render_order: tuple[BlockKind, ...] = ()
    model: str = "model"
    cache_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Package:
    """One library: its import package, and the version that its rows were checked against."""

    name: str
    version: str
    verified: str


@dataclass(frozen=True, slots=True)
class Sdk:
    """All rows, and look-ups by dotted name."""

    packages: tuple[Package, ...]
    instances: dict[str, Instance]  # by type
    constructors: dict[str, str]  # dotted name of a call -> type
    sinks: dict[str, Sink]  # "Type.method" or dotted function -> sink
    messages: dict[str, MessageClass]
    templates: dict[str, TemplateClass]
    options: dict[str, tuple[Option, ...]]  # by call
    hooks: tuple[Hook, ...]
    conventions: tuple[Convention, ...]
    generics: tuple[Generic, ...]


def _strings(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _arguments(rows: dict[str, Any], where: Path) -> tuple[Argument, ...]:
    arguments = []
    for name, row in rows.items():
        block = row.get("block")
        if block not in {"by-role", "ignore", *(kind.value for kind in BlockKind)}:
            raise UserError(f"{where}: args.{name}: unknown block {block!r}")
        arguments.append(
            Argument(
                name,
                block,
                row.get("position"),
                row.get("each", ""),
                row.get("role", ""),
                _strings(row.get("text", "")),
            )
        )
    return tuple(arguments)


def _order(row: dict[str, Any]) -> tuple[BlockKind, ...]:
    # "messages" in a render order stands for all message blocks in list order; it is spelled as the kinds that messages have.
    order: list[BlockKind] = []
    for word in row.get("render_order", ()):
        if word != "messages":
            order.append(BlockKind(word))
    return tuple(order)


@cache
def load_sdk(extra: tuple[Path, ...] = ()) -> Sdk:
    """Every row of rules/sdk and of the user's own folders. Later files win. Raises UserError for a row that does not fit."""
    packages: list[Package] = []
    instances: dict[str, Instance] = {}
    constructors: dict[str, str] = {}
    sinks: dict[str, Sink] = {}
    messages: dict[str, MessageClass] = {}
    templates: dict[str, TemplateClass] = {}
    options: dict[str, tuple[Option, ...]] = {}
    hooks: list[Hook] = []
    conventions: list[Convention] = []
    generics: list[Generic] = []
    for path in toml_files("sdk", extra):
        data = load_toml(path)
        package = data.get("package", path.stem)
        verified = data.get("verified", {})
        packages.append(Package(package, str(verified.get("version", "")), str(verified.get("on", ""))))
        try:
            for row in data.get("instance", ()):
                instance = Instance(
                    row["type"],
                    _strings(row.get("made_by")),
                    dict(row.get("attributes", {})),
                    _strings(row.get("named_by")),
                    _strings(row.get("keeps")),
                )
                instances[instance.type] = instance
                for call in instance.made_by:
                    constructors[call.removesuffix("()")] = instance.type
            for row in data.get("sink", ()):
                sink = Sink(
                    _strings(row["call"]),
                    package,
                    row.get("provider"),
                    _order(row),
                    _arguments(row.get("args", {}), path),
                    row.get("breakpoint", ""),
                    row.get("model", "model"),
                    _strings(row.get("cache_key")),
                    _strings(row.get("structured")),
                    row.get("history", ""),
                    row.get("sends", True),
                )
                sinks.update(dict.fromkeys(sink.call, sink))
            for row in data.get("message", ()):
                message = MessageClass(
                    _strings(row["call"]),
                    row["role"],
                    row.get("text", "content"),
                    row.get("position", 0),
                    _strings(row.get("drops")),
                )
                messages.update(dict.fromkeys(message.call, message))
            for row in data.get("template", ()):
                template = TemplateClass(
                    _strings(row["call"]),
                    row.get("text", "template"),
                    row.get("position", 0),
                    row.get("syntax", "format"),
                    row.get("messages", False),
                    row.get("role"),
                    _strings(row.get("fill", "format")),
                    _strings(row.get("partial", "partial")),
                    _strings(row.get("parts")),
                )
                templates.update(dict.fromkeys(template.call, template))
            for row in data.get("option", ()):
                option = Option(
                    _strings(row["call"]),
                    row["argument"],
                    str(row.get("value", "true")),
                    row["source"],
                    row.get("block", "system"),
                    row.get("position", "end"),
                    row.get("volatility", "request"),
                    row.get("note", ""),
                    tuple(row.get("unless", {}).items()),
                    row.get("format", ""),
                )
                for call in option.call:
                    options[call] = (*options.get(call, ()), option)
            for row in data.get("hook", ()):
                hooks.append(
                    Hook(
                        _strings(row["base"]),
                        _strings(row["method"]),
                        row["edits"],
                        row.get("volatility", "turn"),
                        row.get("note", ""),
                    )
                )
            for row in data.get("convention", ()):
                conventions.append(
                    Convention(
                        row["glob"],
                        package,
                        row.get("syntax", "format"),
                        _strings(row.get("fields")),
                        row.get("note", ""),
                    )
                )
            for row in data.get("generic", ()):
                generics.append(
                    Generic(
                        _strings(row["method"]),
                        _arguments(row.get("args", {}), path),
                        _strings(row.get("receiver")),
                        _strings(row.get("requires")),
                        row.get("provider"),
                        _order(row),
                        row.get("model", "model"),
                        _strings(row.get("cache_key")),
                    )
                )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: a row does not fit: {error!r}") from error
    return Sdk(
        tuple(packages),
        instances,
        constructors,
        sinks,
        messages,
        templates,
        options,
        tuple(hooks),
        tuple(conventions),
        tuple(generics),
    )
