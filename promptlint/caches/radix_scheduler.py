"""SGLang's scheduler over the radix cache: which waiting request enters the next prefill batch.

Imitates sglang 0.5.23: `srt/managers/schedule_policy.py` (SchedulePolicy, PrefillAdder) and the step loop of
`scheduler.py`. In a turn the queue is put in order, requests are admitted one after the other until the first that
does not fit, and that batch is prefilled; when nothing can be admitted, every running request decodes one token. All
look-ups of a batch precede all inserts of it, so equal prompts in one batch do not share.

Left out: overlap scheduling, the decay of the new-token ratio, mixed chunks, the policies random, routing-key, hrrn and
shortest-prefill-first. `priority` is fcfs with priority scheduling, as with --disable-priority-preemption.
"""

from __future__ import annotations

from promptlint.caches.radix import Hold, Node, RadixCache
from promptlint.caches.request import TOKEN_BYTES, Outcome, Request
from promptlint.caches.schedule import Calm, Finished, Step
from promptlint.errors import UserError

__all__ = ["POLICIES", "RadixScheduler"]

CLIP_MAX_NEW_TOKENS = 4096  # an answer is never reserved longer than this
QUEUE_MATCH_LIMIT = 128  # a longer queue is not matched: lpm falls back to fcfs, and only this many are refreshed
REFRESH_INTERVAL = 32  # turns between two refreshes of waiting prefixes
IN_BATCH_CHECK = 32  # tokens: up to this match the queue itself is searched for a shared prefix
IN_BATCH_DEPRIORITIZE = 32  # tokens: from this shared prefix on the request waits for its relative
RETRACT_RESERVE = 20  # tokens per remaining request that a retraction makes room for
POLICIES = ("fcfs", "lpm", "dfs-weight", "lof", "priority")
_CACHE_AWARE = ("lpm", "dfs-weight")


class _Live:
    """A request between arrival and end. `tokens` are its prompt and the outputs so far, packed."""

    __slots__ = ("cached", "hold", "matched", "node", "outputs", "rank", "request", "target", "tokens", "written")

    def __init__(self, request: Request, root: Node, arrival: int) -> None:
        self.request = request
        # Under priority scheduling: higher values first, none last, then by arrival.
        self.rank = (float("inf") if request.priority is None else -request.priority, arrival)
        self.tokens = request.prompt
        self.outputs = 0
        self.cached: int | None = None  # of the first admission
        self.written = 0
        self.hold: Hold | None = None
        self.node = root
        self.matched = 0  # tokens, the sort key of lpm
        self.target = 0  # bytes that the current prefill reaches

    @property
    def remaining(self) -> int:
        return self.request.token_limit - self.outputs

    @property
    def answer(self) -> bytes:
        return self.request.output or b"\0" * TOKEN_BYTES  # the model always samples one


class RadixScheduler:
    """Args:
    cache: the tree; its `chunk` is the engine's chunked prefill size (0: off).
    policy: one of POLICIES.
    max_prefill_tokens: uncached tokens of one prefill batch.
    new_token_ratio: share of the remaining answer that is reserved for a running request.
    max_running: requests that may run at once.
    """

    def __init__(
        self,
        cache: RadixCache,
        policy: str = "fcfs",
        *,
        max_prefill_tokens: int = 16384,
        new_token_ratio: float = 0.7,
        max_running: int = 256,
    ) -> None:
        if policy not in POLICIES:
            raise UserError(f"unknown schedule {policy!r} for sglang; known: {', '.join(POLICIES)}")
        self.cache = cache
        self.policy = policy
        self.max_prefill_tokens = max_prefill_tokens
        self.new_token_ratio = new_token_ratio
        self.max_running = max_running
        self.stats: dict[str, int] = {"prefill_batches": 0, "decode_steps": 0, "retractions": 0}
        self._queue: list[_Live] = []
        self._running: list[_Live] = []
        self._chunked: _Live | None = None
        self._full = False
        self._refreshes = 0
        self._arrivals = 0

    @property
    def backlog(self) -> int:
        return len(self._queue)

    @property
    def idle(self) -> bool:
        return not self._queue and not self._running and self._chunked is None

    def add(self, request: Request) -> None:
        self._arrivals += 1
        self._queue.append(_Live(request, self.cache.root, self._arrivals))

    def step(self) -> Step:
        """Prefill what can be admitted, or else decode. A head that can never fit is refused."""
        step = Step()
        if self._prefill(step):
            self.stats["prefill_batches"] += 1
        elif self._running:
            self._decode(step)
            self.stats["decode_steps"] += 1
        else:
            live = self._queue.pop(0)
            self._refuse(live, step)
        return step

    def calm(self) -> Calm:
        running = self._running
        if not running or self._chunked is not None:
            return Calm()
        if not (self._full or not self._queue or len(running) >= self.max_running):
            return Calm()  # the queue is looked at before each decode step until memory has refused someone
        steps = min(len(live.answer) // TOKEN_BYTES - live.outputs for live in running) - 1
        if self.cache.page_size == 1:
            # Whole leaves go in one fixed order, so that evicting for several steps at once drops the same ones as step by step.
            steps = min(steps, (self.cache.free + self.cache.evictable) // len(running))
        else:
            # A step may evict for a page that it does not need in the end: leap only over steps that find free ones.
            pages = self.cache.free // self.cache.page_size // len(running) - 1
            steps = min(steps, pages * self.cache.page_size)
        if steps < 1:
            return Calm()
        return Calm(steps, len(running), sum(_held(live).computed for live in running) // TOKEN_BYTES)

    def leap(self, steps: int) -> None:
        cache = self.cache
        if cache.page_size == 1 and (short := steps * len(self._running) - cache.free) > 0:
            cache.evict(short)
        for live in self._running:
            cache.decode(_held(live), steps)
            live.outputs += steps
        self.stats["decode_steps"] += steps

    # --- order of the queue

    def _order(self) -> None:
        queue = self._queue
        policy = "fcfs" if self.policy == "lpm" and len(queue) > QUEUE_MATCH_LIMIT else self.policy
        if policy == "lpm":
            late = self._match_queue()
            queue.sort(key=lambda live: float("inf") if id(live) in late else -live.matched)
        elif policy == "dfs-weight":
            self._match_queue()
            self._queue = self._by_weight()
        elif policy == "lof":
            queue.sort(key=lambda live: -live.request.token_limit)
        elif policy == "priority":
            queue.sort(key=lambda live: live.rank)
        if policy not in _CACHE_AWARE:
            self._refresh()

    def _match_queue(self) -> set[int]:
        """Look up the whole queue; returns those that share a prefix with an earlier one and should wait for it."""
        late: set[int] = set()
        heads: set[object] = set()
        for live in self._queue:
            tokens = live.tokens
            live.node, found = self.cache.match(live.request.namespace, tokens, len(tokens))
            found //= TOKEN_BYTES
            live.matched = min(found, len(tokens) // TOKEN_BYTES - 1)
            if found > IN_BATCH_CHECK:
                continue
            # The engine asks a second tree for a shared prefix of at least 32 tokens: their equality decides.
            head = tokens[: IN_BATCH_DEPRIORITIZE * TOKEN_BYTES]
            if len(head) < IN_BATCH_DEPRIORITIZE * TOKEN_BYTES:
                continue
            key = (live.request.namespace, head)
            if key in heads:
                late.add(id(live))
            heads.add(key)
        return late

    def _by_weight(self) -> list[_Live]:
        """Depth first, heaviest subtree first, requests of a node behind those below it."""
        ends: dict[Node, list[_Live]] = {}
        for live in self._queue:
            ends.setdefault(live.node, []).append(live)
        weight: dict[Node, int] = {}
        for node, there in ends.items():
            step: Node | None = node
            while step is not None:
                weight[step] = weight.get(step, 0) + len(there)
                step = step.parent
        order: list[_Live] = []
        stack: list[tuple[Node, bool]] = [(self.cache.root, False)]
        while stack:
            node, visited = stack.pop()
            if visited:
                order.extend(ends.get(node, ()))
                continue
            stack.append((node, True))
            children = [child for child in node.children.values() if child in weight]
            children.sort(key=lambda child: -weight[child])
            stack.extend((child, False) for child in reversed(children))
        return order

    def _refresh(self) -> None:
        """Touch the prefixes of waiting requests now and then, the head of the queue last (LRU only)."""
        if self.cache.strategy.name != "lru" or not self._queue:
            return
        due = self._refreshes % REFRESH_INTERVAL == 0
        self._refreshes += 1
        if due:
            for live in reversed(self._queue[:QUEUE_MATCH_LIMIT]):
                self.cache.match(live.request.namespace, live.tokens, len(live.tokens))

    # --- prefill

    def _prefill(self, step: Step) -> bool:
        if not self._running:
            self._full = False
        if self._chunked is None and (self._full or not self._queue or len(self._running) >= self.max_running):
            return False
        self._order()
        batch = _Batch(self.cache, self.max_prefill_tokens, self._running, self.new_token_ratio)
        if self._chunked is not None:
            self._chunked = batch.resume(self._chunked)
        for live in self._queue:
            if batch.compute_spent and batch.has_memory:
                break
            if len(batch.admitted) + len(self._running) >= self.max_running:
                self._full = True
                break
            verdict = batch.admit(live)
            if verdict == "no-token":
                self._full = bool(batch.admitted) or bool(self._running)
            if verdict != "continue":
                break
        if not batch.admitted:
            return False
        ran = set(map(id, batch.admitted))
        self._queue = [live for live in self._queue if id(live) not in ran]
        if batch.cut is not None:
            self._chunked = batch.cut
        for live in batch.admitted:
            hold = _held(live)
            step.prefills += 1
            step.prefill_tokens += (live.target - hold.computed) // TOKEN_BYTES
            step.context_tokens += hold.computed // TOKEN_BYTES
            self.cache.extend(hold, live.target)
        for live in batch.admitted:
            if live is self._chunked:
                live.written += self.cache.checkpoint(_held(live), live.tokens, live.target)
            elif self._sample(live, step):
                self._finish(live, step)
            else:
                live.written += self.cache.checkpoint(_held(live), live.tokens, live.target)
                self._running.append(live)
        return True

    def _sample(self, live: _Live, step: Step) -> bool:
        """The model emits the next token of the answer; true when it was the last."""
        if live.outputs == 0:
            step.first_tokens.append(live.request)
        live.outputs += 1
        return live.outputs * TOKEN_BYTES >= len(live.answer)

    def _append(self, live: _Live) -> None:
        """Bring `tokens` up to the outputs that exist."""
        live.tokens = live.request.prompt + live.answer[: live.outputs * TOKEN_BYTES]

    def _finish(self, live: _Live, step: Step) -> None:
        hold = _held(live)
        self._append(live)
        live.written += self.cache.close(hold, live.tokens)
        outcome = Outcome(live.request.prompt_tokens, live.cached or 0, live.written)
        step.finished.append(Finished(live.request, outcome))

    def _refuse(self, live: _Live, step: Step) -> None:
        outcome = Outcome(live.request.prompt_tokens, 0, refused="does not fit the pool, even alone")
        step.finished.append(Finished(live.request, outcome))

    # --- decode

    def _decode(self, step: Step) -> None:
        cache = self.cache
        page = cache.page_size
        while True:
            need = sum(page for live in self._running if _held(live).computed // TOKEN_BYTES % page == 0)
            if need > cache.free:
                cache.evict(need - cache.free)
            if cache.free >= need:
                break
            victim = min(self._running, key=lambda live: (live.outputs, -len(live.request.prompt)))
            self._running.remove(victim)
            cache.drop(_held(victim))
            if not self._running:  # alone and out of memory: it can never finish
                self._refuse(victim, step)
                return
            reserve = len(self._running) * RETRACT_RESERVE
            if reserve > cache.free:
                cache.evict(reserve - cache.free)
            victim.hold = None
            self._append(victim)
            self._queue.insert(0, victim)
            self._full = True
            self.stats["retractions"] += 1
        for live in list(self._running):
            hold = _held(live)
            step.decodes += 1
            step.decode_context += hold.computed // TOKEN_BYTES
            cache.decode(hold)
            if self._sample(live, step):
                self._running.remove(live)
                self._full = False
                self._finish(live, step)


class _Batch:
    """The admission of one prefill batch: what is left of memory, of the batch and of the chunk, in tokens."""

    def __init__(self, cache: RadixCache, max_tokens: int, running: list[_Live], ratio: float) -> None:
        self.cache = cache
        self.page = cache.page_size
        self.input_left = max_tokens
        self.chunk_left: int | None = cache.chunk or None
        self.reserved: float = sum(min(live.remaining, CLIP_MAX_NEW_TOKENS) * ratio for live in running)
        self.reserved_now = 0
        self.admitted: list[_Live] = []
        self.cut: _Live | None = None

    @property
    def memory(self) -> float:
        return self.cache.free + self.cache.evictable - self.reserved

    @property
    def has_memory(self) -> bool:
        return self.memory > 0 and self.cache.free + self.cache.evictable - self.reserved_now > 0

    @property
    def compute_spent(self) -> bool:
        return self.input_left <= 0 or (self.chunk_left is not None and self.chunk_left <= 0)

    def resume(self, live: _Live) -> _Live | None:
        """Continue the request whose prompt was cut; returns it when it is cut again."""
        hold = _held(live)
        assert self.chunk_left is not None
        room = min(self.chunk_left, int(self.memory))
        if room <= 0:
            room = self.chunk_left  # it must make progress to release its memory
        left = (len(live.tokens) - hold.computed) // TOKEN_BYTES
        size = min(left, room)
        live.target = hold.computed + size * TOKEN_BYTES
        self.admitted.append(live)
        self._charge(size, min(live.request.token_limit, CLIP_MAX_NEW_TOKENS) if left <= room else 0)
        return live if left > room else None

    def admit(self, live: _Live) -> str:
        """Look up one request and admit it if it fits: "continue", "no-token" (memory) or "other" (batch full)."""
        cache, page = self.cache, self.page
        tokens = live.tokens
        node, prefix = cache.match(live.request.namespace, tokens, len(tokens) - TOKEN_BYTES)
        cache.lock(node)  # the prefix does not count as evictable while the request is judged
        size = (len(tokens) - prefix) // TOKEN_BYTES
        answer = min(live.request.token_limit, CLIP_MAX_NEW_TOKENS)
        verdict = None
        if size + min(max(live.remaining, 0), CLIP_MAX_NEW_TOKENS) + page >= self.memory:
            verdict = "no-token"
        elif self.chunk_left is None:
            if self.admitted and self._pages(size) >= self.input_left:
                verdict = "other"
        elif self._pages(size) > self.chunk_left:
            at = prefix // TOKEN_BYTES
            size = (at + self.chunk_left // page * page) // page * page - at
            answer = 0
            if size <= 0:
                verdict = "other"
        if verdict is not None:
            cache.unlock(node)
            return verdict
        live.hold = Hold(node, prefix, live.request)
        live.target = prefix + size * TOKEN_BYTES
        if live.cached is None:
            live.cached = prefix // TOKEN_BYTES
        if live.target < len(tokens):
            self.cut = live
        self.admitted.append(live)
        self._charge(size, answer)
        if not self.has_memory:
            return "no-token"
        return "other" if self.compute_spent else "continue"

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    def _charge(self, size: int, answer: int) -> None:
        size = self._pages(size)
        self.reserved += size + self.page + answer
        self.reserved_now += size + self.page
        self.input_left -= size
        if self.chunk_left is not None:
            self.chunk_left -= size


def _held(live: _Live) -> Hold:
    assert live.hold is not None
    return live.hold
