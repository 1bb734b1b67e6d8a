"""The pipeline behind `promptlint simulate`: traffic to requests to a cache model to a report.

`simulate` takes requests, wherever they come from, so that other commands can replay their own; `app.requests` makes
them from the records of traffic logs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from promptlint.app.simulation.beside import bottleneck
from promptlint.app.simulation.blocks import BlockRun
from promptlint.app.simulation.run import Results
from promptlint.app.simulation.sample import Sampler
from promptlint.app.simulation.setup import ENGINES, VERSIONS, Setup
from promptlint.app.simulation.tokens import TokenRun
from promptlint.caches.block_lru import BlockRequest
from promptlint.caches.request import Request
from promptlint.errors import UserError
from promptlint.report.simulate import SimulateReport

__all__ = ["ENGINES", "VERSIONS", "Result", "Sampler", "Setup", "bottleneck", "no_collector", "run_of", "simulate"]


@dataclass(frozen=True, slots=True)
class Result:
    """The report; (id, prompt tokens, cached tokens) of each request in file order; (id, reason) of those not served."""

    report: SimulateReport
    per_request: Results
    refused: list[tuple[Any, str]]


def simulate(
    setup: Setup,
    requests: Iterable[Request | BlockRequest],
    *,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Replay requests and add up what they found.

    Ids must be unique. `requests` is iterated once, or three times with `setup.curve` for an engine other than block-lru. `progress` is
    called with the number of requests served so far, every now and then. Raises UserError when there is no request.
    """
    capacity = setup.capacity
    if setup.sample < 1:
        setup = replace(
            setup, capacity=None if setup.capacity is None else max(setup.unit, round(setup.capacity * setup.sample))
        )
    sampler = Sampler(setup.sample) if setup.sample < 1 else None
    run = run_of(setup, sampler)
    order: list[Any] | None = [] if setup.schedule is not None else None
    with no_collector():
        replayed = requests if sampler is None else sampler(requests)
        run.replay(replayed if order is None and progress is None else _noted(replayed, order, progress))
    if not len(run.results):
        raise UserError("no request to replay" + (f" in the sample of {setup.sample:g}" if sampler is not None else ""))
    curve = run.curve(lambda: requests if sampler is None else sampler(requests)) if setup.curve else ()
    report = replace(run.report(curve), capacity_tokens=capacity)
    results = run.results if order is None else run.results.sorted_as(order)
    return Result(report, results, run.tally.refused)


def run_of(setup: Setup, sampler: Sampler | None = None) -> BlockRun | TokenRun:
    """A fresh run of the set-up."""
    return BlockRun(setup, sampler) if setup.engine == "block-lru" else TokenRun(setup, sampler)


@contextmanager
def no_collector() -> Iterator[None]:
    """The caches leave no garbage in cycles, and a collector that walks millions of live nodes makes time quadratic."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if not gc.get_freeze_count():
                # All that was made meanwhile is taken for old: else the next allocation would walk it as young.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _noted(requests: Iterable[Any], order: list[Any] | None, progress: Callable[[int], None] | None) -> Iterator[Any]:
    """The requests; their order is kept where they may end in another one."""
    for count, request in enumerate(requests, 1):
        if order is not None:
            order.append(request.id)
        if progress is not None and count % 256 == 0:
            progress(count)
        yield request
