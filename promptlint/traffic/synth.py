"""Synthetic traffic with known structure: seeded, reproducible, and marked as synthetic in every record.

Texts are made of common English words that are one token each in the usual encodings, so `n` words are close to `n` tokens. Token prompts are exact.

- `tree`: the tree of the lesson: every leaf of a tree of prefixes is asked once, in random order, so that a small cache sees siblings far apart.
- `shared-prefix`: SGLang's generated-shared-prefix with its defaults (bench_serving of 0.5.23): 64 groups, 16 prompts each, system prompts of 2,048 tokens, questions of 128,
  answers of 256, shuffled.
- `chat`: conversations of several turns under one system text.
- `rag`: questions about documents drawn from a Zipf distribution, the document ahead of the question.
- `agent`: tool loops; every call sends all of the conversation again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

from promptlint.traffic.record import Record

__all__ = ["PRESETS", "WORDS", "CodeBlock", "CodeSite", "Preset", "from_sites", "generate"]

WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
    "president",
    "team",
    "minute",
    "idea",
    "body",
    "information",
    "back",
    "parent",
    "face",
    "level",
    "office",
    "door",
    "health",
    "person",
    "art",
    "war",
    "history",
    "party",
    "result",
    "change",
    "morning",
    "reason",
    "research",
    "girl",
    "guy",
    "moment",
    "air",
    "teacher",
    "force",
    "education",
]


@dataclass(frozen=True, slots=True)
class Preset:
    """Numbers of a preset; each generator reads the ones that it needs. Sizes in tokens, `rate` in requests a second."""

    seed: int = 1
    requests: int = 256
    groups: int = 64
    prompts_per_group: int = 16
    system: int = 2048
    question: int = 128
    answer: int = 256
    turns: int = 6
    documents: int = 100
    document: int = 1200
    zipf: float = 1.1
    depth: int = 3
    branches: int = 4
    tools: int = 8
    rate: float = 4.0
    shuffle: bool = True


def _text(key: object, words: int) -> str:
    """A text that follows from its key alone."""
    return " ".join(random.Random(repr(key)).choices(WORDS, k=max(words, 1)))


def _ids(key: object, count: int) -> list[int]:
    """Token ids that follow from their key alone; within the vocabulary of every common model."""
    return random.Random(repr(key)).choices(range(1000, 30000), k=count)


def _tree(preset: Preset) -> Iterator[Record]:
    """Each leaf of a tree once: `branches` children a node, `depth` levels, `system` tokens a node, then a question of its own."""
    leaves = list(product(range(preset.branches), repeat=preset.depth))
    rounds = max(1, preset.requests // len(leaves))
    order = [(leaf, turn) for turn in range(rounds) for leaf in leaves]
    if preset.shuffle:
        random.Random(preset.seed).shuffle(order)
    for leaf, turn in order:
        ids = _ids((preset.seed, "root"), preset.system)
        for prefix in accumulate((branch,) for branch in leaf):
            ids += _ids((preset.seed, prefix), preset.system)
        ids += _ids((preset.seed, leaf, turn), preset.question)
        yield Record(
            token_ids=ids,
            output_tokens=_ids((preset.seed, "answer", leaf, turn), preset.answer),
            session_id="/".join(map(str, leaf)),
        )


def _shared_prefix(preset: Preset) -> Iterator[Record]:
    order = [(group, item) for group in range(preset.groups) for item in range(preset.prompts_per_group)]
    if preset.shuffle:
        random.Random(preset.seed).shuffle(order)
    for group, item in order:
        ids = _ids((preset.seed, "system", group), preset.system) + _ids(
            (preset.seed, "question", group, item), preset.question
        )
        yield Record(
            token_ids=ids,
            output_tokens=_ids((preset.seed, "answer", group, item), preset.answer),
            session_id=f"group-{group}",
        )


def _sessions(preset: Preset, turn: Callable[[int, int], Any]) -> Iterator[tuple[int, int, list[Any]]]:
    """Sessions whose turns interleave: a random open one goes on each time. Yields session, step and the messages so far."""
    choose = random.Random(preset.seed)
    open_sessions: list[tuple[int, int, list[Any]]] = []
    started = 0
    wide = max(1, min(16, preset.requests // max(preset.turns, 1)))
    for _ in range(preset.requests):
        while len(open_sessions) < wide:
            open_sessions.append((started, 0, []))
            started += 1
        at = choose.randrange(len(open_sessions))
        session, step, messages = open_sessions[at]
        messages = [*messages, turn(session, step)]
        yield session, step, messages
        said = {"role": "assistant", "content": _text((preset.seed, "answer", session, step), preset.answer)}
        if step + 1 < preset.turns:
            open_sessions[at] = (session, step + 1, [*messages, said])
        else:
            del open_sessions[at]


def _chat(preset: Preset) -> Iterator[Record]:
    head = {"role": "system", "content": _text((preset.seed, "system"), preset.system)}
    for session, step, messages in _sessions(
        preset,
        lambda session, step: {"role": "user", "content": _text((preset.seed, session, step), preset.question)},
    ):
        said = {"role": "assistant", "content": _text((preset.seed, "answer", session, step), preset.answer)}
        yield Record(messages=[head, *messages], output=said, session_id=f"session-{session}")


def _rag(preset: Preset) -> Iterator[Record]:
    choose = random.Random(preset.seed)
    weights = list(accumulate(1.0 / (rank + 1) ** preset.zipf for rank in range(preset.documents)))
    head = {"role": "system", "content": _text((preset.seed, "system"), preset.system)}
    for number in range(preset.requests):
        document = choose.choices(range(preset.documents), cum_weights=weights)[0]
        text = f"Document:\n{_text((preset.seed, 'document', document), preset.document)}\n\nQuestion: {_text((preset.seed, 'question', number), preset.question)}"
        said = {"role": "assistant", "content": _text((preset.seed, "answer", number), preset.answer)}
        yield Record(messages=[head, {"role": "user", "content": text}], output=said, session_id=f"request-{number}")


def _agent(preset: Preset) -> Iterator[Record]:
    tools = [_tool(preset, index) for index in range(preset.tools)]
    head = {"role": "system", "content": _text((preset.seed, "system"), preset.system)}

    def step_of(session: int, step: int) -> Any:
        if step == 0:
            return {"role": "user", "content": _text((preset.seed, session, step), preset.question)}
        return {
            "role": "tool",
            "tool_call_id": f"call_{session}_{step - 1}",
            "content": _text((preset.seed, "result", session, step), preset.document // 4),
        }

    for session, step, messages in _sessions(preset, step_of):
        rows = [
            _called(message, session, index // 2, preset) if message["role"] == "assistant" else message
            for index, message in enumerate(messages)
        ]
        said = _called({"role": "assistant", "content": None}, session, step, preset)
        yield Record(tools=tools, messages=[head, *rows], output=said, session_id=f"session-{session}")


def _called(message: Any, session: int, step: int, preset: Preset) -> Any:
    """The assistant message as a call of one tool."""
    name = f"tool_{(session + step) % preset.tools}"
    arguments = f'{{"query":"{_text((preset.seed, "arguments", session, step), 6)}"}}'
    return {
        **message,
        "content": None,
        "tool_calls": [
            {"id": f"call_{session}_{step}", "type": "function", "function": {"name": name, "arguments": arguments}}
        ],
    }


def _tool(preset: Preset, index: int) -> dict[str, Any]:
    query = {"type": "string", "description": _text((preset.seed, "query", index), 8)}
    schema = {"type": "object", "properties": {"query": query}, "required": ["query"]}
    return {
        "type": "function",
        "function": {
            "name": f"tool_{index}",
            "description": _text((preset.seed, "tool", index), 20),
            "parameters": schema,
        },
    }


PRESETS: dict[str, tuple[str, Callable[[Preset], Iterator[Record]], dict[str, Any]]] = {
    "tree": ("leaves of a tree of prefixes in random order", _tree, {"system": 512, "question": 64, "answer": 64}),
    "shared-prefix": ("SGLang's generated-shared-prefix with its defaults", _shared_prefix, {}),
    "chat": ("conversations of several turns", _chat, {"system": 800, "question": 40, "answer": 120}),
    "rag": (
        "questions about documents drawn from a Zipf distribution",
        _rag,
        {"system": 300, "question": 30, "answer": 120},
    ),
    "agent": ("tool loops", _agent, {"system": 1000, "question": 60, "answer": 40, "turns": 8}),
}
"""Name -> what it is, its generator, and its own defaults."""


def generate(name: str, **given: Any) -> Iterator[Record]:
    """The records of a preset. `given` replaces its numbers. Arrivals are a Poisson process of `rate` a second, timestamps begin at 0."""
    _about, make, defaults = PRESETS[name]
    preset = Preset(**{**defaults, **{key: value for key, value in given.items() if value is not None}})
    clock = random.Random(f"{preset.seed}:arrivals")
    now = 0.0
    for number, record in enumerate(make(preset), 1):
        record.id = f"{name}-{number}"
        record.format = "synthetic"
        record.timestamp = round(now, 3)
        record.model = ""
        record.extra["synthetic"] = {"preset": name, "seed": preset.seed}
        now += clock.expovariate(preset.rate) * 1000.0
        yield record


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One block of a call site as its analysis sees it: kind, role, volatility and growth as words, sizes in tokens."""

    kind: str
    role: str
    volatility: str
    growth: str
    tokens: int
    static: int


@dataclass(frozen=True, slots=True)
class CodeSite:
    """One call site; `prefix` are the fixed tokens ahead of its first changing value."""

    id: str
    model: str
    prefix: int
    blocks: tuple[CodeBlock, ...]


def from_sites(
    sites: Sequence[CodeSite], counts: Mapping[str, int], *, profile: str, requests: int, seed: int
) -> Iterator[Record]:
    """Requests of call sites in random order. `counts` says how many values live at each volatility in a day of `counts["request"]` requests.

    A day is cut down to `requests`: a level with D values in a day has D values here too, or as many as there are requests.
    """
    choose = random.Random(seed)
    now = 0.0
    rate = max(counts.get("request", requests), 1) * len(sites) / 86400.0
    steps: dict[tuple[int, int], int] = {}
    for number in range(requests):
        index = choose.randrange(len(sites))
        site = sites[index]
        values = {level: choose.randrange(max(count, 1)) for level, count in counts.items()} | {"request": number}
        session = (index, values.get("session", 0))
        step = steps.get(session, 0)
        steps[session] = step + 1
        yield Record(
            format="synthetic",
            id=f"code-{number + 1}",
            session_id=f"{index}-{session[1]}",
            timestamp=round(now, 3),
            model=site.model,
            call_site=site.id,
            **_site_prompt(site, values, step, seed),
            extra={"synthetic": {"profile": profile, "seed": seed}},
        )
        now += choose.expovariate(rate) * 1000.0


def _site_prompt(site: CodeSite, values: Mapping[str, int], step: int, seed: int) -> dict[str, Any]:
    """Messages and tools of one request, in the order of the blocks."""
    messages: list[Any] = []
    tools: list[Any] = []
    before = 0
    for position, block in enumerate(site.blocks):
        key = (seed, site.id, position)
        ahead = min(max(site.prefix - before, 0), block.static)
        value = values.get(block.volatility, 0)
        if block.growth == "append":
            for turn in range(step):
                messages.append({"role": "user", "content": _text((*key, values.get("session"), turn), 40)})
                messages.append(
                    {"role": "assistant", "content": _text((*key, "answer", values.get("session"), turn), 80)}
                )
        else:
            text = [_text((*key, "ahead"), ahead)] if ahead else []
            if block.tokens > block.static:
                text.append(_text((*key, "value", block.volatility, value), block.tokens - block.static))
            if block.static > ahead:
                text.append(_text((*key, "behind"), block.static - ahead))
            joined = " ".join(text)
            if block.kind == "tools":
                tools.append(
                    {
                        "type": "function",
                        "function": {
                            "name": f"tool_{position}",
                            "description": joined,
                            "parameters": {"type": "object"},
                        },
                    }
                )
            elif joined:
                messages.append({"role": block.role, "content": joined})
        before += block.tokens
    return {"messages": messages, "tools": tools or None}
