"""Whether two servers may be compared at all: what they report of themselves must be the same, but for the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from promptlint.benching.servers import Facts

__all__ = ["Objection", "compare_facts", "fits", "how_to_flush", "needs_report"]


@dataclass(frozen=True, slots=True)
class Objection:
    """Something against the comparison. `refuse`: it would compare something else than the engines, and only the user can allow that."""

    words: str
    refuse: bool = False


_SAME = {
    "dtype": ("number formats of the weights", True),
    "kv_dtype": ("number formats of the KV cache", True),
    "parallel": ("parallelisms", True),
    "prefix_caching": ("settings of prefix caching", False),
    "context": ("context windows", False),
    "sampling": ("sampling defaults", False),
    "eager": ("settings of CUDA graphs", False),
}
_SILENT = {"dtype": "number format", "quantization": "quantisation", "context": "context window"}
_AFTER = {
    "sampling": "; every request spells its sampling out, as far as all of them know the fields",
    "eager": "; decoding without graphs is slower, on Blackwell SM_120 SGLang may need it",
    "prefix_caching": "; one of them reuses nothing",
    "context": "; the larger window leaves less room, or another step size, on the same GPU",
}


def compare_facts(facts: Mapping[str, Facts]) -> list[Objection]:
    """Objections against comparing these targets (name -> facts): refusals first."""
    found: list[Objection] = []
    names = list(facts)
    for name in names[1:]:
        first, other = facts[names[0]], facts[name]
        if not _same_model(first, other):
            found.append(
                Objection(
                    f"the models differ: {names[0]} serves {_spelled(first)}, {name} serves {_spelled(other)}",
                    refuse=True,
                )
            )
    for field, (words, refuse) in _SAME.items():
        known = {name: getattr(one, field) for name, one in facts.items() if getattr(one, field) is not None}
        if len(set(known.values())) > 1:
            listed = ", ".join(f"{name} {_word(value)}" for name, value in known.items())
            found.append(Objection(f"the {words} differ: {listed}{_AFTER.get(field, '')}", refuse))
    found += _quantisations(facts)
    for field in ("dtype", "quantization", "context"):
        silent = [name for name, one in facts.items() if getattr(one, field) is None]
        if silent and len(facts) > 1:
            found.append(
                Objection(
                    f"{', '.join(silent)} does not report its {_SILENT[field]}: whether they are equal is not known{_how(field, silent, facts)}"
                )
            )
    found += [
        Objection(f"{name} has its prefix cache switched off")
        for name, one in facts.items()
        if one.prefix_caching is False
    ]
    return sorted(found, key=lambda one: not one.refuse)


def _quantisations(facts: Mapping[str, Facts]) -> list[Objection]:
    """Unlike quantisations; a kernel's name (`awq_marlin`) is no other format.

    SGLang reports what was asked for on its command line. That it was asked for none does not say that the checkpoint is not quantised, where vLLM reports what it found.
    """
    known = {name: _plain(one.quantization) for name, one in facts.items() if one.quantization is not None}
    if len(set(known.values())) < 2:
        return []
    listed = ", ".join(f"{name} {value}" for name, value in known.items())
    asked = {value for name, value in known.items() if not (value == "none" and facts[name].engine == "sglang")}
    if len(asked) > 1:
        return [Objection(f"the quantisations differ: {listed}", refuse=True)]
    return [
        Objection(
            f"the quantisations differ as reported: {listed}; SGLang reports only what its command line asks for, the checkpoint may be quantised: compare the logs"
        )
    ]


def _plain(quantization: str | None) -> str:
    return (quantization or "").lower().replace("-", "_").removesuffix("_marlin")


def _how(field: str, silent: Sequence[str], facts: Mapping[str, Facts]) -> str:
    if field != "context" and any(facts[name].engine == "vllm" for name in silent):
        return "; vLLM tells it when started with VLLM_SERVER_DEV_MODE=1"
    return ""


def _word(value: object) -> str:
    return (
        {True: "on", False: "off"}[value]
        if isinstance(value, bool)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _same_model(a: Facts, b: Facts) -> bool:
    """Whether any name of one is a name of the other; of paths the last part counts too, for one server loads a folder where the other names a hub's model."""
    return bool(_known_as(a) & _known_as(b))


def _known_as(facts: Facts) -> set[str]:
    return {part.lower() for name in facts.names for part in (name, PurePath(name).name)}


def _spelled(facts: Facts) -> str:
    return " = ".join(facts.names) or facts.model


def fits(facts: Mapping[str, Facts], longest: int, *, exact: bool = True) -> list[Objection]:
    """Whether the longest request, with its answer, fits each context window. Not `exact`: its tokens are our estimate, which refuses nothing."""
    return [
        Objection(
            f"the longest request has {longest:,} tokens with its answer, {name} takes {one.context:,}; --longest {one.context} leaves such requests out",
            refuse=exact,
        )
        for name, one in facts.items()
        if one.context is not None and longest > one.context
    ]


def how_to_flush(facts: Facts) -> str:
    """What makes the server empty its cache when asked."""
    return {
        "vllm": "; vLLM empties it when started with VLLM_SERVER_DEV_MODE=1",
        "sglang": "; SGLang refuses /flush_cache while requests run, or without its admin key",
    }.get(facts.engine, "")


def needs_report(facts: Facts) -> str:
    """What makes the server report cached tokens."""
    return {
        "vllm": "start vLLM with --enable-prompt-tokens-details",
        "sglang": "start SGLang with --enable-cache-report",
    }.get(facts.engine, "the server has no usage.prompt_tokens_details.cached_tokens")
