"""The whole measurement: look at the targets, refuse what would not be fair, warm up, then run A B A B ... and keep every run.

Nothing here knows files or the command line: requests come in, a Measurement goes out. It grows run by run, so that what was measured is there when the user stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from promptlint.benching.client import Client, Limits, Server
from promptlint.benching.drive import Run, drive
from promptlint.benching.expected import Expected, expect, shared_share
from promptlint.benching.fairness import Objection, compare_facts, fits, how_to_flush, needs_report
from promptlint.benching.honesty import check_answers
from promptlint.benching.plan import Load, Sampling, Shot, Spelling, arrivals, disguise, shots
from promptlint.benching.servers import Facts, Unusable, flush, read_counters, read_facts
from promptlint.benching.summary import Figures, figures
from promptlint.caches.request import Request

__all__ = ["Cell", "Measurement", "Settings", "Target", "Traffic", "Trial", "measure"]

_OVERLAP = 0.01  # a workload below this share of shared tokens shows nothing of a prefix cache


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure, and how it is called in the results."""

    name: str
    server: Server


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of one variant. `texts` holds the fields of those that are sent as text; empty when tokens are sent.

    `as_words`: tokens go as a chat message of as many words, for servers that take no token ids. `note`: what a reader of the result has to know of it.
    """

    variant: str
    requests: tuple[Request, ...]
    texts: tuple[Mapping[str, Any] | None, ...] = ()
    as_words: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every target. `seed` makes arrival times and tokens; `fresh`: no earlier run had it, so no cache knows the tokens. `may_differ` measures in spite of refusals."""

    repetitions: int = 5
    level: float = 0.95
    limits: Limits = field(default_factory=Limits)
    fixed_length: bool = True
    schema: Mapping[str, Any] | None = None
    structured: tuple[bool, ...] = (False,)
    loads: tuple[Load, ...] = (Load(concurrency=16),)
    warm_up: int = 8
    may_flush: bool = True
    may_differ: bool = False
    low: int = 1000
    high: int = 30_000
    seed: int = 1
    fresh: bool = True
    give_up: int = 3
    key: str = ""


@dataclass(slots=True)
class Trial:
    """One run of one target: its figures and, request by request, what came and what our cache models expected (None: not computed).

    `prompt_tokens` of each request as we count them. `as_text`: some were sent as text, which the server's own template and tokenizer count.
    """

    target: str
    repetition: int
    figures: Figures
    run: Run
    expected: Expected | None = None
    prompt_tokens: tuple[int, ...] = ()
    as_text: bool = False


@dataclass(slots=True)
class Cell:
    """All runs under one variant, load and kind of answer."""

    variant: str
    load: Load
    structured: bool
    overlap: float
    trials: list[Trial] = field(default_factory=list)

    def of(self, target: str) -> list[Trial]:
        """The runs of one target, in order."""
        return [trial for trial in self.trials if trial.target == target]


@dataclass(slots=True)
class Measurement:
    """What is known so far. `unusable`: targets that could not be measured, with the reason; `objections` against the comparison.

    `lost`: targets that were given up on the way, with the reason. `denied`: there are refusals, and the user has not allowed them. `finished`: it came to its end.
    """

    facts: dict[str, Facts] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    objections: list[Objection] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    denied: bool = False
    finished: bool = False

    @property
    def refused(self) -> list[Objection]:
        """What forbids the comparison unless the user allows it."""
        return [one for one in self.objections if one.refuse]


async def measure(
    targets: Sequence[Target],
    traffic: Sequence[Traffic],
    settings: Settings,
    found: Measurement,
    *,
    model: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Fill `found`. Raises UserError for a load that the traffic does not have; a server's failures are in the result, never raised."""
    headers = {"authorization": f"Bearer {settings.key}"} if settings.key else {}
    clients = {target.name: Client(target.server, settings.limits, headers) for target in targets}
    try:
        await _Session(clients, traffic, settings, found, model, progress).run()
    finally:
        for client in clients.values():
            client.close()


class _Session:
    def __init__(
        self,
        clients: Mapping[str, Client],
        traffic: Sequence[Traffic],
        settings: Settings,
        found: Measurement,
        model: str | None,
        progress: Callable[[str], None],
    ) -> None:
        self.clients = clients
        self.traffic = traffic
        self.settings = settings
        self.found = found
        self.model = model
        self.progress = progress
        self.round = 0  # counts repetitions over all cells: each spells its tokens anew

    async def run(self) -> None:
        await self._look()
        self.found.denied = bool(self.found.refused) and not self.settings.may_differ
        if self.found.unusable or self.found.denied:
            return
        if not await self._warm():
            return
        for variant in self.traffic:
            overlap = shared_share(variant.requests)
            for structured in self.settings.structured:
                for load in self.settings.loads:
                    cell = Cell(variant.variant, load, structured, overlap)
                    self.found.cells.append(cell)
                    await self._cell(cell, variant)
        self.found.finished = True

    async def _look(self) -> None:
        """Ask all targets about themselves, and weigh whether comparing them is fair."""
        names = list(self.clients)
        self.progress(f"asking {', '.join(names)}")
        asked = await asyncio.gather(
            *(read_facts(self.clients[name], self.model, may_flush=self.settings.may_flush) for name in names),
            return_exceptions=True,
        )
        for name, answer in zip(names, asked, strict=True):
            if isinstance(answer, Unusable):
                self.found.unusable[name] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                # A target named after an engine is taken at its word where the server says nothing.
                named = name.lower() if name.lower() in {"vllm", "sglang"} else "unknown"
                answer.engine = named if answer.engine == "unknown" else answer.engine
                self.found.facts[name] = answer
        if self.found.unusable:
            return
        longest = max(
            request.prompt_tokens + request.token_limit for variant in self.traffic for request in variant.requests
        )
        exact = not any(variant.texts or variant.as_words for variant in self.traffic)
        self.found.objections = [
            *compare_facts(self.found.facts),
            *fits(self.found.facts, longest, exact=exact),
            *self._twice(),
            *self._unflushed(),
            *self._weak(),
        ]

    def _twice(self) -> list[Objection]:
        """One server measured under two names is a good test of chance, if what the first run leaves is gone in the second."""
        urls = [_place(client.server) for client in self.clients.values()]
        return [
            Objection(
                f"{name} is measured twice and cannot empty its cache: the second run finds what the first has left",
                refuse=True,
            )
            for name, client in self.clients.items()
            if urls.count(_place(client.server)) > 1 and not self.found.facts[name].flush
        ][:1]

    def _unflushed(self) -> list[Objection]:
        """What a cache that cannot be emptied does to a run: other tokens are not found in it, but they leave less room."""
        settings, names = self.settings, [name for name, facts in self.found.facts.items() if not facts.flush]
        if not names:
            return []
        found = []
        as_text = any(any(variant.texts) for variant in self.traffic)  # then the cache is warm: see _weak
        if settings.may_flush and not as_text and (settings.repetitions > 1 or len(names) < len(self.found.facts)):
            ways = {how_to_flush(self.found.facts[name]) for name in names}
            found.append(
                Objection(
                    f"{', '.join(names)} cannot empty its cache: what was sent before fills it and has to make room{''.join(sorted(ways))}"
                )
            )
        if not settings.fresh:
            found.append(
                Objection(
                    f"{', '.join(names)} may know the prompts: --seed {settings.seed} spells them as in an earlier run with it, and nothing empties the cache"
                )
            )
        return found

    def _weak(self) -> list[Objection]:
        """Doubts about the workload and the way it is measured."""
        found = []
        for variant in self.traffic:
            if variant.note:
                found.append(Objection(variant.note))
            share = shared_share(variant.requests)
            if share < _OVERLAP:
                found.append(
                    Objection(
                        f"the workload ({variant.variant}) has no prefix overlap to show: {100 * share:.1f} % of its prompt tokens come again; "
                        "this compares engines without their caches"
                    )
                )
            if any(variant.texts):
                found += [
                    Objection(
                        f"{name} cannot empty its cache, and the prompts are text: every repetition after the first finds a warm cache"
                    )
                    for name, facts in self.found.facts.items()
                    if not facts.flush and self.settings.repetitions > 1
                ]
            if len(variant.requests) < 100:
                found.append(
                    Objection(
                        f"p99 of {len(variant.requests)} requests is nearly their slowest one: at least 100 are wanted"
                    )
                )
        if self.settings.repetitions < 3:
            found.append(Objection("fewer than 3 repetitions hardly show a spread: intervals are wide, or missing"))
        return found

    async def _warm(self) -> bool:
        """A few requests of their own to each target, not counted: graphs, connections, compilation. False when one does not answer them."""
        settings = self.settings
        base, spelling = self.traffic[0], Spelling(settings.low, settings.high, settings.seed)
        few = base.requests[: settings.warm_up]
        # Texts are measured as they are, so the warm-up must not bring them into the cache: words of the same number stand in.
        disguised = tuple(
            text and disguise(text, spelling(one.prompt))
            for text, one in zip(base.texts[: len(few)], few, strict=False)
        )
        for name, client in self.clients.items():
            self.progress(f"warming up {name}")
            for structured in settings.structured:
                made = self._shots(replace(base, requests=few, texts=disguised), structured, salt=-1)
                load = Load(concurrency=min(len(few), 4))
                run = await drive(
                    client, made, self.found.facts[name].model, load, [0.0] * len(few), give_up=settings.give_up
                )
                bad = next((answer for answer in run.answers if not answer.ok), None)
                if bad is not None:
                    self.found.unusable[name] = f"does not answer the warm-up: {bad.error}" + _hint(bad.error)
                    break
                if any(answer.output_tokens is None for answer in run.answers):
                    self.found.objections.append(
                        Objection(
                            f"{name} reports no output tokens: events are counted in their place, which may hold several"
                        )
                    )
                if any(answer.cached_tokens is None for answer in run.answers):
                    self.found.objections.append(
                        Objection(
                            f"{name} reports no cached tokens: its hit rate stays unknown; {needs_report(self.found.facts[name])}"
                        )
                    )
        return not self.found.unusable

    def _names(self, target: str) -> set[str]:
        facts = self.found.facts[target]
        return {facts.model, *facts.names}

    def _shots(self, variant: Traffic, structured: bool, salt: int) -> list[Shot]:
        settings = self.settings
        known = all(facts.engine != "unknown" for facts in self.found.facts.values())
        sampling = Sampling(settings.fixed_length, settings.schema if structured else None, engine_fields=known)
        spelling = Spelling(settings.low, settings.high, settings.seed * 1_000_003 + salt)
        return shots(variant.requests, sampling, spelling, variant.texts, as_words=variant.as_words)

    async def _cell(self, cell: Cell, variant: Traffic) -> None:
        due = arrivals(cell.load, variant.requests, self.settings.seed)
        for repetition in range(1, self.settings.repetitions + 1):
            self.round += 1
            made = self._shots(variant, cell.structured, self.round)
            for name in self.clients:
                if name in self.found.lost:
                    continue
                what = f"{name}, {cell.variant}, {cell.load.words()}" + (", structured" if cell.structured else "")
                self.progress(f"repetition {repetition} of {self.settings.repetitions}: {what}")
                await self._trial(cell, variant, made, due, name, repetition)
            if len(self.found.lost) == len(self.clients):
                return

    async def _trial(
        self, cell: Cell, variant: Traffic, made: Sequence[Shot], due: Sequence[float], name: str, repetition: int
    ) -> None:
        client, facts, settings = self.clients[name], self.found.facts[name], self.settings
        flushed = bool(facts.flush) and await flush(client, facts.flush)
        before = await read_counters(client) if facts.metrics else None

        def keep(run: Run, server: Mapping[str, float] | None = None) -> None:
            # Text, or tokens of an earlier run with this seed, may still be cached where nothing empties it; an interrupted request finds what it has computed itself.
            new = settings.fresh and (variant.as_words or made[0].exact)
            cold = (new or flushed) and not (server or {}).get("preemptions")
            check_answers(
                run, made, self._names(name), cold=cold, fixed_length=settings.fixed_length and not cell.structured
            )
            sent = tuple(shot.request.prompt_tokens for shot in made)
            as_text = not all(shot.exact for shot in made)  # words or recorded text
            cell.trials.append(
                Trial(name, repetition, figures(run, sent, flushed=flushed, server=server), run, None, sent, as_text)
            )

        run = await drive(client, made, facts.model, cell.load, due, give_up=settings.give_up, keep=keep)
        try:
            server = (await read_counters(client)).since(before) if before is not None else {}
        except asyncio.CancelledError:
            keep(run)  # the run is whole, only the server's own counters are missing
            raise
        keep(run, server)
        if run.gone:
            self.found.lost[name] = f"given up in repetition {repetition}: {run.gone}"
            self.progress(f"{name}: {self.found.lost[name]}")
        else:
            window = cell.load.concurrency or _under_way(run)
            cell.trials[-1].expected = expect(facts, [shot.request for shot in made], window)


def _place(server: Server) -> tuple[str, int, str]:
    """Where a server is, however it is spelled: this machine has several names."""
    here = server.host in {"localhost", "::1"} or server.host.startswith("127.")
    return "localhost" if here else server.host.lower(), server.port, server.path


def _under_way(run: Run) -> int:
    """Requests that were under way on average, for an open load: Little's law over the run."""
    busy = sum(answer.ended - answer.sent for answer in run.answers)
    return max(1, round(busy / run.wall)) if run.wall > 0 else 1


def _hint(words: str) -> str:
    if "ignore_eos" in words:
        return "; --no-fixed-length leaves out the field that this server does not know"
    if "prompt" in words and ("str" in words or "token" in words or "list" in words or "array" in words):
        return "; --send text sends words where a server takes no token ids"
    if "token" in words and "vocab" in words:
        return "; --vocabulary LOW:HIGH sets the ids that are sent"
    return ""
