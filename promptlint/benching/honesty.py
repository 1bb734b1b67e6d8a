"""What a server reports against what was sent. A figure that cannot be true must not be compared with honest ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from promptlint.benching.answers import Answer
from promptlint.benching.drive import Run
from promptlint.benching.plan import Shot
from promptlint.caches.endless import EndlessCache
from promptlint.caches.request import TOKEN_BYTES, common_prefix

__all__ = ["check_answers"]

_BY_CHANCE = 2  # tokens by which two prompts, or an answer and a prompt, may agree by accident behind what they share


def check_answers(run: Run, shots: Sequence[Shot], names: Collection[str], *, cold: bool, fixed_length: bool) -> None:
    """Add to each answer of the run what in it cannot be. `names`: how the server may call its model. `cold`: its cache held none of these prompts before."""
    for answer in run.answers:
        if answer.ok:
            _alone(answer, shots[answer.index], names, fixed_length=fixed_length)
    if cold:
        _shared(run, shots)


def _alone(answer: Answer, shot: Shot, names: Collection[str], *, fixed_length: bool) -> None:
    sent, prompt, cached, output = (
        shot.request.prompt_tokens,
        answer.prompt_tokens,
        answer.cached_tokens,
        answer.output_tokens,
    )
    if answer.model and answer.model not in names:
        answer.lies.append(f"answered as model {answer.model[:80]}")
    if prompt is not None and shot.exact and prompt != sent:
        answer.lies.append(f"usage says {prompt:,} prompt tokens, {sent:,} were sent")
    if prompt is not None and prompt < 1 and not shot.exact:
        answer.lies.append(f"usage says {prompt:,} prompt tokens")
    if cached is not None and prompt is not None and not 0 <= cached <= prompt:
        answer.lies.append(f"usage says {cached:,} cached tokens of {prompt:,} prompt tokens")
    if output is None:
        return
    if output > shot.output or (fixed_length and output < shot.output and answer.finish == "length"):
        answer.lies.append(
            f"usage says {output:,} output tokens where {shot.output:,} were asked for and it stopped by {answer.finish}"
        )
    if answer.events > output and not answer.calls:
        answer.lies.append(f"usage says {output:,} output tokens, {answer.events:,} came")


def _shared(run: Run, shots: Sequence[Shot]) -> None:
    """No more can be cached than a prompt shares with another one that was sent before its first token came."""
    order = sorted((answer for answer in run.answers if shots[answer.index].exact), key=lambda answer: answer.sent)
    known = EndlessCache()
    for place, answer in enumerate(order):
        prompt = shots[answer.index].request.prompt
        bound = known.store(None, prompt)
        if not answer.ok or answer.cached_tokens is None or answer.cached_tokens <= bound // TOKEN_BYTES + _BY_CHANCE:
            continue
        for other in order[place + 1 :]:  # sent later, but perhaps served earlier
            if other.sent >= answer.first:
                break
            run_ = shots[other.index].request.prompt
            bound = max(bound, common_prefix(run_, prompt, 0, len(prompt)))
        if answer.cached_tokens > bound // TOKEN_BYTES + _BY_CHANCE:
            answer.lies.append(
                f"usage says {answer.cached_tokens:,} cached tokens where nothing sent before shares more than {bound // TOKEN_BYTES:,}"
            )
