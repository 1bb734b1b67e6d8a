"""Where volatility arises, what passes it on, and what removes it (rules/sources/*.toml)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from promptlint.catalog import load_toml, toml_files
from promptlint.errors import UserError
from promptlint.ir import Volatility

__all__ = ["Barrier", "Flow", "Source", "Sources", "load_sources", "volatility"]


@dataclass(frozen=True, slots=True)
class Source:
    """A call or attribute whose value changes. `kind` is an origin kind of the IR; `result`: scalar, sequence, mapping, or "argument" when the call
    changes its first argument in place (`random.shuffle`). The kinds hub, remote-tools and database say that the value lives elsewhere: no
    fault, but an entry in `unresolved`.
    """

    call: tuple[str, ...]
    kind: str
    volatility: Volatility
    result: str = "scalar"


@dataclass(frozen=True, slots=True)
class Flow:
    """A call that passes a value on. `from_`: "self", "all", or an argument name or position; `to` is "return".

    `coarsen`: "by-format" (a strftime-like format decides whether a clock becomes `day`), "by-letters" (the same for YYYY-MM-DD
    formats), "by-fields" (`replace(hour=0, minute=0, second=0, microsecond=0)` leaves the date), "day", "process", "" (unchanged). A call that is
    both a source and a flow (`time.strftime`) is a source whose own result is coarsened.
    `text`: "identity" when the text stays as it is, "strip", "dedent", "lower", … for calls that a reader of text can compute.
    """

    call: tuple[str, ...]
    from_: str = "self"
    to: str = "return"
    coarsen: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Barrier:
    """A call that removes a kind of volatility: `sorted` stops "unordered". `when` are literal keyword arguments that must be given."""

    call: tuple[str, ...]
    stops: tuple[str, ...]
    when: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """Look-ups by dotted name, e.g. "datetime.datetime.now"; methods of builtin types as "str.join"."""

    sources: dict[str, Source]
    flows: dict[str, Flow]
    barriers: dict[str, tuple[Barrier, ...]]


def volatility(word: str, where: object = "") -> Volatility:
    """A volatility by its word. Raises UserError naming the place."""
    try:
        return Volatility[word.upper()]
    except KeyError:
        raise UserError(
            f"{where}: unknown volatility {word!r}; one of {', '.join(v.word for v in Volatility)}"
        ) from None


def _strings(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@cache
def load_sources(extra: tuple[Path, ...] = ()) -> Sources:
    """Every row of rules/sources and of the user's own folders. Raises UserError for a row that does not fit."""
    sources: dict[str, Source] = {}
    flows: dict[str, Flow] = {}
    barriers: dict[str, tuple[Barrier, ...]] = {}
    for path in toml_files("sources", extra):
        data = load_toml(path)
        try:
            for row in data.get("source", ()):
                source = Source(
                    _strings(row["call"]), row["kind"], volatility(row["volatility"], path), row.get("result", "scalar")
                )
                sources.update(dict.fromkeys(source.call, source))
            for row in data.get("flow", ()):
                flow = Flow(
                    _strings(row["call"]),
                    str(row.get("from", "self")),
                    row.get("to", "return"),
                    row.get("coarsen", ""),
                    row.get("text", ""),
                )
                flows.update(dict.fromkeys(flow.call, flow))
            for row in data.get("barrier", ()):
                barrier = Barrier(_strings(row["call"]), _strings(row["stops"]), tuple(row.get("when", {}).items()))
                for call in barrier.call:
                    barriers[call] = (*barriers.get(call, ()), barrier)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: a row does not fit: {error!r}") from error
    return Sources(sources, flows, barriers)
