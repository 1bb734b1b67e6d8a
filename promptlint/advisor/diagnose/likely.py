"""What may explain a hit rate, each with why and the command that would confirm it. A low rate always gets three."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from promptlint.advisor.diagnose.model import Diagnosis, Likely
from promptlint.traffic.record import INPUT, Record

__all__ = ["LOW", "Timing", "likely", "timing"]

LOW = 0.5
"""Below this rate somebody will ask why."""
CLOSE = 0.05
"""Expected and observed rates that differ by no more than this agree."""
_MINIMUM = 1024
_LIFETIME = 300.0


@dataclass(frozen=True, slots=True)
class Timing:
    """What lengths and times of the records say: shares of the prompt tokens in prompts below 1,024 tokens, and in requests more than five
    minutes behind the one before them in their session (or in the traffic, where no session is named).

    `mixed`: share of the requests with usage that report nothing cached although an earlier request of their session reported a hit.
    `new_keys`: share of the requests whose routing key or salt no other request has, among those that carry one (at least three).
    """

    short: float = 0.0
    late: float = 0.0
    mixed: float = 0.0
    models: int = 1
    new_keys: float = 0.0


def timing(records: Sequence[Record], totals: Sequence[int]) -> Timing:
    """Measure the records, in time order, with their prompt tokens."""
    all_tokens = sum(totals) or 1
    last: dict[str, float] = {}
    warm: set[str] = set()
    short = late = cold = counted = 0
    for record, total in zip(records, totals, strict=True):
        size = record.usage.get(INPUT, total)
        short += total if size < _MINIMUM else 0
        key = record.session_id
        if record.timestamp is not None:
            before = last.get(key)
            late += total if before is not None and record.timestamp - before > 1000.0 * _LIFETIME else 0
            last[key] = record.timestamp
        if record.cached_tokens is not None and key:
            counted += 1
            cold += record.cached_tokens == 0 and key in warm
            if record.cached_tokens:
                warm.add(key)
    models = len({record.model for record in records}) or 1
    return Timing(short / all_tokens, late / all_tokens, cold / counted if counted else 0.0, models, _new_keys(records))


def _new_keys(records: Sequence[Record]) -> float:
    keys = [
        str(record.parameters[name])
        for record in records
        for name in ("prompt_cache_key", "cache_salt")
        if record.parameters.get(name)
    ]
    if len(keys) < 3:
        return 0.0
    return sum(count == 1 for count in Counter(keys).values()) / len(keys)


def likely(found: Diagnosis, when: Timing, files: str = "TRAFFIC", observed: float | None = None) -> list[Likely]:
    """Three causes for a low rate, or for an observed rate below the expected one; none when there is nothing to explain."""
    observed = found.observed_hit_rate if observed is None else observed
    expected = found.hit_rate
    gap = observed is not None and expected - observed > CLOSE
    if not gap and min(expected, 1.0 if observed is None else observed) >= LOW and when.new_keys <= LOW:
        return []
    rows = [
        Likely(
            f"{cause.rule} in {cause.requests} of {found.requests} requests",
            f"loses {cause.tokens_lost:,} of {found.prompt_tokens:,} prompt tokens; without it {cause.hit_rate_if_fixed:.1%} are expected instead of {expected:.1%}",
            f"promptlint explain {cause.rule}",
        )
        for cause in found.causes
        if cause.tokens_lost >= max(1, found.prompt_tokens // 100)
    ]
    if when.new_keys > LOW:
        rows.insert(
            0,
            Likely(
                "cache-key-per-request",
                f"{when.new_keys:.0%} of the requests that carry a routing key or a salt have one of their own, so they share no cache or no machine",
                "promptlint explain cache-key-per-request",
            ),
        )
    outside = _outside(found, when, files, observed if gap else None)
    return (rows + outside)[:3] if not gap or expected < LOW else (outside[:2] + rows + outside[2:])[:3]


def _outside(found: Diagnosis, when: Timing, files: str, observed: float | None) -> list[Likely]:
    """Reasons that the text does not show, the better supported first."""
    expected = found.hit_rate
    rows: list[tuple[float, Likely]] = []
    if observed is None:
        share = found.starts / found.requests if found.requests else 0.0
        rows.append(
            (
                share,
                Likely(
                    "little is shared",
                    f"{found.starts} of {found.requests} requests begin a conversation or ask something new behind a shared head; all of them together share {expected:.1%} of their tokens",
                    f"promptlint simulate {files} --curve",
                ),
            )
        )
        rows.append((0.05, Likely("stable text stands behind changing text", "the shared head may be short because the fixed part of the prompt comes late", "promptlint check .")))  # fmt: skip
    else:
        prompt = f"the prompt side allows {expected:.1%}, {observed:.1%} was observed"
        rows += [
            (0.1 + when.mixed, Likely("requests of one conversation go to different machines", f"{prompt}; {when.mixed:.0%} of the requests with usage found nothing although their session was warm", f"promptlint simulate {files} --replicas 4 --router round-robin")),
            (when.short, Likely("prompts below the provider's minimum length", f"{prompt}; {when.short:.0%} of the tokens are in prompts below {_MINIMUM:,} tokens", f"promptlint simulate {files} --engine openai")),
            (when.late, Likely("the cache's lifetime has passed", f"{prompt}; {when.late:.0%} of the tokens come more than five minutes behind their session's last request", f"promptlint simulate {files} --engine anthropic")),
            (0.08, Likely("the cache is too small, and evicts", f"{prompt} by a cache without limit", f"promptlint simulate {files} --curve")),
            (0.06, Likely("page size, engine version or model class", f"{prompt}; hybrid, sliding-window and recurrent models compute everything behind a difference again, and large pages round down", f"promptlint simulate {files} --page-size 64")),
        ]  # fmt: skip
    rows.append((0.01, Likely("the server differs from what is assumed", "prefix caching may be off, or its unit larger than one token", "promptlint traffic stats METRICS.txt")))  # fmt: skip
    return [row for _weight, row in sorted(rows, key=lambda item: -item[0])]
