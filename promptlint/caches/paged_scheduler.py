"""vLLM's V1 scheduler over the paged cache.

Imitates vllm 0.32.0: `vllm/v1/core/sched/scheduler.py`. In a step the running requests come first, in order, each with
the tokens it still lacks (the rest of its prompt, or one output); then waiting ones enter while the token budget lasts
and the whole prompt fits into free blocks. Blocks are cached when scheduled, so requests of one step share. When a
running request finds no block, another one is preempted: it gives up its blocks, which stay cached, and starts over.

Left out: asynchronous scheduling, speculative decoding, encoders, connectors, LoRA limits, the watermark (0 by
default), long_prefill_token_threshold.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from promptlint.caches.paged import Hold, PagedCache
from promptlint.caches.request import TOKEN_BYTES, Outcome, Request
from promptlint.caches.schedule import Calm, Finished, Step
from promptlint.errors import UserError

__all__ = ["POLICIES", "PagedScheduler"]

POLICIES = ("fcfs", "priority")


class _Live:
    """A request between arrival and end. `tokens` are its prompt and its whole answer, packed, of which the first `length` bytes exist by now."""

    __slots__ = ("cached", "computed", "hold", "length", "order", "outputs", "request", "tokens", "written")

    def __init__(self, request: Request, order: int) -> None:
        self.request = request
        self.order = (request.priority or 0, order)
        self.tokens = request.prompt + request.output
        self.length = len(request.prompt)
        self.outputs = 0
        self.cached: int | None = None  # of the first schedule
        self.written = 0
        self.computed = 0  # bytes
        self.hold: Hold | None = None


class PagedScheduler:
    """Args:
    cache: the pool of KV blocks.
    policy: "fcfs", or "priority": lower values first, then by arrival.
    max_batched_tokens: token budget of one step.
    max_running: requests that may run at once.
    """

    def __init__(
        self, cache: PagedCache, policy: str = "fcfs", *, max_batched_tokens: int = 8192, max_running: int = 128
    ) -> None:
        if policy not in POLICIES:
            raise UserError(f"unknown schedule {policy!r} for vllm; known: {', '.join(POLICIES)}")
        self.cache = cache
        self.by_priority = policy == "priority"
        self.max_batched_tokens = max_batched_tokens
        self.max_running = max_running
        self.stats: dict[str, int] = {"steps": 0, "preemptions": 0}
        self._waiting: list[_Live] = []  # next one first
        self._running: list[_Live] = []
        self._arrivals = 0

    @property
    def backlog(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, request: Request) -> None:
        self._arrivals += 1
        self._wait(_Live(request, self._arrivals), front=False)

    def step(self) -> Step:
        """Schedule one batch and sample its tokens. A head that can never fit is refused."""
        step = Step()
        preempted = self.stats["preemptions"]
        batch = self._schedule(step)
        self.stats["steps"] += 1
        if not batch and self.stats["preemptions"] == preempted:
            live = self._waiting.pop(0)
            outcome = Outcome(live.request.prompt_tokens, 0, refused="does not fit the pool, even alone")
            step.finished.append(Finished(live.request, outcome))
        for live in batch:
            self._sample(live, step)
        return step

    def calm(self) -> Calm:
        running = self._running
        if not running or len(running) >= self.max_batched_tokens:
            return Calm()
        if any(live.computed + TOKEN_BYTES != live.length or not live.outputs for live in running):
            return Calm()  # one is still inside its prompt
        steps = min(len(live.request.output) // TOKEN_BYTES - live.outputs for live in running) - 1
        if steps < 1 or not self._shut():
            return Calm()
        if self._blocks_ahead(steps) > self.cache.free:
            # Crossing into a new KV block takes one: as many steps as the free ones allow, by bisection.
            steps = bisect_right(range(steps), self.cache.free, key=self._blocks_ahead) - 1
        if steps < 1:
            return Calm()
        return Calm(steps, len(running), sum(live.computed for live in running) // TOKEN_BYTES)

    def leap(self, steps: int) -> None:
        for live in self._running:
            live.outputs += steps
            live.length += steps * TOKEN_BYTES
            self._grow(live, steps)
            live.computed += steps * TOKEN_BYTES
        self.stats["steps"] += steps

    def _shut(self) -> bool:
        """No waiting request can enter while the running ones only decode.

        The head of the queue waits for memory. Each KV block that the running requests fill may be one that it would find (one less to pay for), but that block
        was taken from the free ones first; at most the block that each of them holds half full by now comes on top.
        """
        if not self._waiting or len(self._running) >= self.max_running:
            return True
        head = self._waiting[0]
        hold, _ = self.cache.find(head.request.namespace, head.tokens, head.length)
        return self.cache.cost(hold, self._blocks(head.length)) - len(self._running) > self.cache.free

    def _blocks_ahead(self, steps: int) -> int:
        """KV blocks that `steps` decode steps take."""
        size = self.cache.block_size * TOKEN_BYTES
        found = 0
        for live in self._running:
            assert live.hold is not None
            found += -(-(live.computed + steps * TOKEN_BYTES) // size) - live.hold.blocks(size)
        return found

    def _wait(self, live: _Live, *, front: bool) -> None:
        if self.by_priority:
            insort(self._waiting, live, key=lambda entry: entry.order)
        elif front:
            self._waiting.insert(0, live)
        else:
            self._waiting.append(live)

    def _schedule(self, step: Step) -> list[_Live]:
        """Running requests, then waiting ones; returns the batch in the engine's order."""
        budget = self.max_batched_tokens
        scheduled: dict[_Live, int] = {}  # tokens
        preempted = False
        index = 0
        while index < len(self._running) and budget > 0:
            live = self._running[index]
            size = min((live.length - live.computed) // TOKEN_BYTES, budget)
            while not self._grow(live, size):
                victim = max(self._running, key=lambda other: other.order) if self.by_priority else self._running[-1]
                place = self._running.index(victim)
                del self._running[place]
                if place < index:
                    index -= 1
                budget += scheduled.pop(victim, 0)
                self._preempt(victim)
                preempted = True
                if victim is live:
                    break
            else:
                scheduled[live] = size
                budget -= size
                index += 1
                continue
            break  # it preempted itself: nothing behind it is tried
        while not preempted and budget > 0 and self._waiting and len(self._running) < self.max_running:
            live = self._waiting[0]
            size = self._admit(live, budget)
            if size == 0:
                break
            self._waiting.pop(0)
            self._running.append(live)
            scheduled[live] = size
            budget -= size
        for live, size in scheduled.items():
            self._account(live, size, step)
            live.computed += size * TOKEN_BYTES
        return list(scheduled)

    def _account(self, live: _Live, size: int, step: Step) -> None:
        if live.computed >= len(live.request.prompt) and size == 1:
            step.decodes += 1
            step.decode_context += live.computed // TOKEN_BYTES
        else:
            step.prefills += 1
            step.prefill_tokens += size
            step.context_tokens += live.computed // TOKEN_BYTES

    def _blocks(self, size: int) -> int:
        return -(-size // (self.cache.block_size * TOKEN_BYTES))

    def _grow(self, live: _Live, size: int) -> bool:
        """Allocate and cache the next `size` tokens of a running request."""
        hold = live.hold
        assert hold is not None
        end = live.computed + size * TOKEN_BYTES
        need = self._blocks(end)
        if need - hold.blocks(self.cache.block_size * TOKEN_BYTES) > self.cache.free:
            return False
        self.cache.grow(hold, need)
        live.written += self.cache.publish(hold, live.tokens, end)
        return True

    def _admit(self, live: _Live, budget: int) -> int:
        """Look up and allocate a waiting request; the tokens scheduled, 0 when it does not fit."""
        cache = self.cache
        length = live.length
        hold, found = cache.find(live.request.namespace, live.tokens, length)
        size = min((length - found) // TOKEN_BYTES, budget)
        end = found + size * TOKEN_BYTES
        if max(cache.cost(hold, self._blocks(length)), cache.cost(hold, self._blocks(end))) > cache.free:
            return 0
        cache.take(hold, self._blocks(end))
        live.written += cache.publish(hold, live.tokens, end)
        live.hold, live.computed = hold, found
        if live.cached is None:
            live.cached = found // TOKEN_BYTES
        return size

    def _preempt(self, live: _Live) -> None:
        assert live.hold is not None
        self.cache.release(live.hold)
        live.hold = None
        live.computed = 0
        self.stats["preemptions"] += 1
        self._wait(live, front=True)

    def _sample(self, live: _Live, step: Step) -> None:
        if live.computed < live.length:
            return  # still inside its prompt
        if live.outputs == 0:
            step.first_tokens.append(live.request)
        live.outputs += 1
        if live.outputs * TOKEN_BYTES < len(live.request.output):
            live.length += TOKEN_BYTES
            return
        assert live.hold is not None
        self.cache.release(live.hold)
        self._running.remove(live)
        outcome = Outcome(live.request.prompt_tokens, live.cached or 0, live.written)
        step.finished.append(Finished(live.request, outcome))
