"""Synthetic token traffic with known structure, seeded: what examples, benchmarks and tests replay.

Text traffic from call sites or a workload file is `promptlint traffic synth`; these are bare tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from promptlint.caches.request import Request, pack

__all__ = ["shared_prefixes", "templates_and_users", "tree"]


def _run(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(1_000, 50_000) for _ in range(length)]


def templates_and_users(
    requests: int = 20_000, length: int = 1_000, *, templates: int = 50, users: int = 40, seed: int = 2026
) -> Iterator[Request]:
    """Prompts of `length` tokens: 100 that all share, then a template (half), a user of it (0.3), and a fresh question.

    Templates are drawn exponentially, so a few are hot and many are cold. Answers have 4 tokens.
    """
    rng = random.Random(seed)
    root = _run(rng, 100)
    heads = [root + _run(rng, length // 2) for _ in range(templates)]
    middles = [[_run(rng, length * 3 // 10) for _ in range(users)] for _ in range(templates)]
    for index in range(requests):
        chosen = min(int(rng.expovariate(0.08)), templates - 1)
        body = heads[chosen] + middles[chosen][rng.randrange(users)]
        yield Request(index, pack(body + _run(rng, length - len(body))), pack(_run(rng, 4)))


def shared_prefixes(
    groups: int = 64,
    per_group: int = 16,
    *,
    system: int = 2_048,
    question: int = 128,
    output: int = 256,
    seed: int = 1,
) -> list[Request]:
    """The `generated-shared-prefix` workload of SGLang's serving benchmark: groups of questions behind a system prompt of
    their own, in random order. Defaults are that benchmark's.
    """
    rng = random.Random(seed)
    made = []
    for _ in range(groups):
        head = _run(rng, system)
        made += [(pack(head + _run(rng, question)), pack(_run(rng, output))) for _ in range(per_group)]
    rng.shuffle(made)
    return [Request(index, prompt, answer) for index, (prompt, answer) in enumerate(made)]


def tree(
    system: int = 1_000,
    branches: int = 8,
    branch: int = 120,
    questions: int = 16,
    question: int = 40,
    *,
    output: int = 1,
    order: str = "shuffled",
    seed: int = 1,
) -> list[Request]:
    """One system prompt, `branches` contexts below it, `questions` below each.

    `order`: "branch" (one branch after the other), "round" (one question of every branch in turn), or "shuffled".
    """
    rng = random.Random(seed)
    head = _run(rng, system)
    middles = [_run(rng, branch) for _ in range(branches)]
    made = [
        (b, q, middles[b] + _run(rng, question), _run(rng, output)) for b in range(branches) for q in range(questions)
    ]
    if order == "round":
        made.sort(key=lambda row: (row[1], row[0]))
    elif order == "shuffled":
        rng.shuffle(made)
    return [Request(index, pack(head + tail), pack(answer)) for index, (_, _, tail, answer) in enumerate(made)]
