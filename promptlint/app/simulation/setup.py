"""What is to be simulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from promptlint.caches.fleet import ROUTERS
from promptlint.caches.radix import Tree
from promptlint.caches.schedule import ConstantRate, ServiceTime
from promptlint.caches.tally import DENOMINATORS
from promptlint.errors import UserError

__all__ = ["ENGINES", "VERSIONS", "Setup"]

ENGINES = ("sglang", "vllm", "block-lru")
VERSIONS = {"sglang": "0.5.23", "vllm": "0.32.0", "block-lru": ""}


@dataclass(frozen=True, slots=True)
class Setup:
    """What to simulate. Sizes in tokens.

    Attributes:
        engine: sglang, vllm, block-lru, or a provider that rules/providers knows.
        capacity: room of one replica; None is unlimited.
        schedule: a scheduler's policy, or None for one request at a time.
        window: requests of the closed loop; `pace` "arrivals" uses timestamps instead.
        batch_tokens: prompt tokens of one prefill batch (SGLang), token budget of a step (vLLM).
        max_running: requests that run at once; None is the engine's default.
        warm_up: requests that are served before counting begins.
        sample: share of the sessions to replay, with the capacity scaled alike.
        service_time: what a step costs with `pace`.
        delay: seconds until a provider lets a written prefix be read.
        overflow: whether a provider sends requests above its rate for one prefix to other machines.
        extra_rules: the user's own folders, whose providers/*.toml override shipped terms.
        bounds: compute the upper bounds and the bottleneck beside the run.
    """

    engine: str = "sglang"
    capacity: int | None = None
    page_size: int = 1
    block_size: int = 16
    eviction: str = "lru"
    tree: Tree = "unified"
    chunk: int = 0
    schedule: str | None = None
    window: int = 64
    pace: str | None = None
    batch_tokens: int | None = None
    max_running: int | None = None
    replicas: int = 1
    router: str = "round-robin"
    denominator: str = "prompt-tokens"
    warm_up: int = 0
    curve: bool = False
    sample: float = 1.0
    service_time: ServiceTime = field(default_factory=ConstantRate)
    model: str = ""
    ttl: str = ""
    delay: float = 0.0
    overflow: bool = True
    extra_rules: tuple[Path, ...] = ()
    bounds: bool = True

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise UserError(f"--replicas {self.replicas}: at least 1 is needed")
        if self.router not in ROUTERS:
            raise UserError(f"unknown router {self.router!r}; known: {', '.join(ROUTERS)}")
        if self.denominator not in DENOMINATORS:
            raise UserError(f"unknown denominator {self.denominator!r}; known: {', '.join(DENOMINATORS)}")
        if not 0 < self.sample <= 1:
            raise UserError(f"--sample {self.sample:g}: a share above 0 and at most 1 is needed")
        if self.capacity is not None and self.capacity < 1:
            raise UserError(f"--capacity-tokens {self.capacity}: a positive number or `unlimited` is needed")
        if self.window < 1:
            raise UserError(f"--window {self.window}: at least 1 is needed")
        if self.pace and not self.schedule:
            raise UserError("--pace needs --schedule: without a scheduler requests do not overlap")
        if self.schedule and self.engine not in {"sglang", "vllm"}:
            raise UserError(f"--schedule: {self.engine} has no scheduler that is modelled")
        if self.replicas > 1 and self.engine == "block-lru":
            raise UserError("--replicas needs --engine sglang or vllm, or a provider")

    @property
    def unit(self) -> int:
        """Tokens per page or block."""
        return self.page_size if self.engine == "sglang" else self.block_size

    @property
    def is_provider(self) -> bool:
        return self.engine not in ENGINES
