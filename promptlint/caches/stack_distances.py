"""The hit rate of `block_lru` at every capacity from one pass (Mattson et al., 1970), exactly, many thousand touches at a time.

An LRU cache of C blocks holds the C most recently touched ones, so a block hits in exactly those caches that are larger than the number of distinct
blocks touched since its last touch. A leading run hits as a whole: what counts is the largest distance so far in the request.

How many distinct blocks were touched after time p and before time s? A tree answers one question after the other (Olken, 1981), which is slow in Python. We
answer those of a whole chunk of touches with array operations. Let prev(t) be the time of the touch before t of the same block, and c the beginning of the chunk:

- p in the chunk: the touches between p and s, less those of a block that was touched in between before: the t < s with prev(t) > p.
- p ahead of the chunk: the blocks whose last touch ahead of c is later than p, plus the touches of the chunk before s, less again the t < s with
  prev(t) > p: such a touch is of one of the former blocks, or of one that the chunk touched before.

Either way one number is wanted that concerns the chunk alone: for each touch, how many earlier ones have a larger prev (`_larger_before`).
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from typing import Any

from promptlint.caches.block_lru import BlockRequest

__all__ = ["StackDistances"]

_NEVER = 1 << 40
"""The distance of a block that was never touched; more than any real one."""


class _Names(dict[Hashable, int]):
    """Numbers of blocks, in order of appearance."""

    def __missing__(self, block: Hashable) -> int:
        found = self[block] = len(self)
        return found


class StackDistances:
    """Hits of `BlockLru` at every capacity.

    Memory follows the distinct blocks and one chunk. Needs numpy, which is loaded with the first chunk.

    Args:
        chunk: touches that are worked on together; the result does not depend on it.
    """

    def __init__(self, chunk: int = 1 << 16) -> None:
        self.blocks = 0  # of all requests
        self.length = 0  # prompt tokens of all requests
        self._chunk = chunk
        self._names = _Names()
        self._hits: list[Any] = []  # blocks, and tokens, that hit from a capacity on: arrays by that capacity
        self._last: Any = None  # slot of each block's last touch, -1 for none; later is larger
        self._alive: Any = None  # by slot: whether it is some block's last touch
        self._next = 0  # slot
        self._clear()

    def _clear(self) -> None:
        self._touched = array("q")  # blocks of the waiting requests, first to last, each once in a request
        self._ends = array("q")  # of each request in `_touched`
        self._lengths = array("q")
        self._sizes = array("q")
        self._counted = bytearray()
        self._odd: dict[int, list[tuple[int, int]]] = {}  # requests that repeat a block: (blocks, tokens) by place

    def admit(self, request: BlockRequest, *, counted: bool = True) -> None:
        """Take note of a request. One that is not `counted` (warm-up) is only touched."""
        names = self._names
        blocks = [names[block] for block in request.blocks]
        if counted:
            self.blocks += len(blocks)
            self.length += request.length
        if len(set(blocks)) < len(blocks):
            blocks = self._once(request, blocks)
        self._touched.extend(blocks)
        self._ends.append(len(self._touched))
        self._lengths.append(request.length)
        self._sizes.append(request.block_size)
        self._counted.append(counted)
        if len(self._touched) >= self._chunk:
            self._work()

    def _once(self, request: BlockRequest, blocks: list[int]) -> list[int]:
        """Each block at its first place, where it is touched last; a repeat hits whenever the block ahead of it does, so it is counted with that one."""
        shares: dict[int, list[int]] = {}
        ahead = blocks[0]
        for index, block in enumerate(blocks):
            ahead = block if block not in shares else ahead
            share = shares.setdefault(ahead, [0, 0])
            share[0] += 1
            share[1] += request.tokens(index + 1) - request.tokens(index)
        self._odd[len(self._ends)] = [(share[0], share[1]) for share in shares.values()]
        return list(shares)

    # --- results

    def hits(self, capacity: int | None) -> tuple[int, int]:
        """Blocks and tokens that hit with room for `capacity` blocks (None: without limit)."""
        self._work()
        upto = None if capacity is None else capacity + 1
        blocks, tokens = (int(hits[:upto].sum()) for hits in self._hits) if self._hits else (0, 0)
        return blocks, tokens

    def rates(self, capacity: int | None) -> tuple[float, float]:
        """(block hit rate, token hit rate) at a capacity in blocks."""
        blocks, tokens = self.hits(capacity)
        return (blocks / self.blocks if self.blocks else 0.0, tokens / self.length if self.length else 0.0)

    def knees(self) -> Iterable[int]:
        """Capacities in blocks, doubling, up to the first that no larger one beats."""
        self._work()
        largest = int(self._hits[0].nonzero()[0].max(initial=0)) if self._hits else 0
        capacity = 1
        while capacity < largest:
            yield capacity
            capacity *= 2
        yield largest or 1

    # --- a chunk

    def _work(self) -> None:
        """Count the waiting requests and touch their blocks."""
        if not self._touched:
            return
        import numpy as np

        blocks, ends = np.array(self._touched), np.array(self._ends)
        sizes = np.diff(ends, prepend=0)
        request = np.repeat(np.arange(len(ends)), sizes)
        starts = (ends - sizes)[request]
        place = np.arange(len(blocks)) - starts
        time = starts + sizes[request] - 1 - place  # blocks are touched last to first
        touched = np.empty_like(blocks)
        touched[time] = blocks
        distances = self._touch(touched, starts)[time]
        tokens_before = np.minimum(place * np.array(self._sizes)[request], np.array(self._lengths)[request])
        tokens = np.minimum((place + 1) * np.array(self._sizes)[request], np.array(self._lengths)[request])
        shares = [np.ones_like(blocks), tokens - tokens_before]
        for index, odd in self._odd.items():
            shares[0][ends[index] - sizes[index] : ends[index]] = [one for one, _ in odd]
            shares[1][ends[index] - sizes[index] : ends[index]] = [one for _, one in odd]
        apart = 2 * _NEVER  # so that the largest so far begins anew with each request
        need = np.maximum.accumulate(distances + 1 + request * apart) - request * apart
        hit = (need <= _NEVER) & np.frombuffer(bytes(self._counted), dtype=np.bool_)[request]
        self._add(need[hit], [share[hit] for share in shares])
        self._clear()

    def _add(self, need: Any, shares: list[Any]) -> None:
        import numpy as np

        size = int(need.max(initial=0)) + 1
        if not self._hits:
            self._hits = [np.zeros(size, dtype=np.int64) for _ in shares]
        if size > len(self._hits[0]):
            self._hits = [np.append(hits, np.zeros(size, dtype=np.int64)) for hits in self._hits]
        for hits, share in zip(self._hits, shares, strict=True):
            np.add.at(hits, need, share)

    def _touch(self, touched: Any, starts: Any) -> Any:
        """Touch blocks in this order; returns for each the distinct blocks touched since its last touch and before its request, which begins at its start."""
        import numpy as np

        if self._last is None:
            self._last, self._alive = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
        if len(self._names) > len(self._last):
            more = max(len(self._names) - len(self._last), len(self._last), self._chunk)
            self._last = np.append(self._last, np.full(more, -1, dtype=np.int64))
        if self._next + len(touched) > len(self._alive):
            self._renumber(len(touched))
        begin = self._next
        now = np.arange(len(touched))
        # The touch before each: the one ahead of it in the chunk, or the last one before the chunk.
        order = np.argsort(touched, kind="stable")
        named = touched[order]
        same = np.append(False, named[1:] == named[:-1])
        previous = np.empty_like(touched)
        previous[order] = np.where(same, begin + np.append(0, order[:-1]), self._last[named])
        larger = _larger_before(previous)
        ahead = now - starts
        for back in range(1, int(ahead.max()) + 1):  # the touches of the request itself do not count
            rows = np.flatnonzero(ahead >= back)
            larger[rows] -= previous[rows - back] > previous[rows]
        later = np.cumsum(self._alive[:begin])
        later = (later[-1] if begin else 0) - later  # by slot: the blocks touched last after it
        old = (previous >= 0) & (previous < begin)
        since = begin + starts - previous - 1
        since[old] = later[previous[old]] + starts[old]
        distances = np.where(previous < 0, _NEVER, since - larger)
        self._alive[previous[old]] = False
        final = order[np.append(~same[1:], True)]
        self._alive[begin : begin + len(touched)] = False
        self._alive[begin + final] = True
        self._last[touched[final]] = begin + final
        self._next += len(touched)
        return distances

    def _renumber(self, room: int) -> None:
        """Number the last touches anew, without gaps, and leave as much room again."""
        import numpy as np

        slots = np.flatnonzero(self._alive[: self._next])
        order = np.full(self._next, -1, dtype=np.int64)
        order[slots] = np.arange(len(slots))
        known = self._last >= 0
        self._last[known] = order[self._last[known]]
        self._next = len(slots)
        self._alive = np.zeros(2 * len(slots) + 8 * room, dtype=np.bool_)
        self._alive[: self._next] = True


def _larger_before(values: Any) -> Any:
    """For each value the number of larger ones ahead of it (equal ones are not larger).

    Ranks are split by their bits, the highest first, as in a wavelet tree: those that agree so far stand together in order of time, and of two of them the one
    with the bit is the larger. Filled up to a power of two such groups are halves of one another, so a level is a few operations on the whole array.
    """
    import numpy as np

    size = len(values)
    bits = (size - 1).bit_length()
    order = np.arange(1 << bits, dtype=np.int32)  # what fills up is last and largest, and counts for nobody
    order[:size] = np.argsort(values, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    found = np.zeros_like(order)  # by rank
    group = rank
    for bit in reversed(range(bits)):
        half = 1 << bit
        high = (group & half).astype(np.bool_)
        low = np.flatnonzero(~high)
        lower = group[low]
        ahead = np.cumsum(high, dtype=np.int32)[low]
        found[lower] += ahead - ((low >> bit + 1) << bit).astype(
            np.int32
        )  # less those of the groups before its own, each of which has one half
        group = np.stack((lower.reshape(-1, half), group[high].reshape(-1, half)), axis=1).ravel()
    return found[rank[:size]]
