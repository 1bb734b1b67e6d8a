"""`promptlint simulate --output-format html`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from promptlint.caches.shares import Branch
from promptlint.report.html.charts import capacity_curve, shares
from promptlint.report.html.data import Data, money, plain, share
from promptlint.report.html.icicle import icicle
from promptlint.report.html.markup import Markup, join, tag
from promptlint.report.html.page import Section, key_figures, page, table
from promptlint.report.simulate import MEANING, SimulateReport, to_json
from promptlint.report.words import count

__all__ = ["simulate"]

ROWS = 500  # of groups and of problems; the JSON report has all


def simulate(report: SimulateReport, tree: Branch | None = None) -> str:
    """The page. `tree` is the radix tree of the same run's prompts."""
    data = Data(to_json(report))
    figures = [
        ("hit rate", data["hit_rate"].show(share)),
        ("prompt tokens", data["prompt_tokens"].show()),
        ("of them cached", data["cached_tokens"].show()),
        ("requests", data["requests"].show()),
        ("of them found something", data["request_hit_rate"].show(share)),
    ]
    return page("simulate", "What a prefix cache saves", _lead(data), key_figures(figures), list(_sections(data, tree)))


def _lead(data: Data) -> Markup:
    settings = ", ".join(f"{name.replace('_', ' ')} {plain(value)}" for name, value in data.get("settings").items())
    schedule = f"schedule {data.get('schedule')}, " if data.get("schedule") else ""
    return join(
        (
            tag("b", f"{data.get('engine')} {data.get('engine_version')}".strip()),
            f" ({settings or 'defaults'}), capacity ",
            data["capacity_tokens"].show(missing="unlimited"),
            " tokens" if data.get("capacity_tokens") is not None else "",
            f", {schedule}{data.get('driver')}. The hit rate is a share of {data.get('denominator')}.",
        )
    )


def _sections(data: Data, tree: Branch | None) -> Iterator[Section]:
    yield Section("reach", "Reached, and possible", _reach(data))
    if tree is not None and tree.children:
        note = (
            "Each box is a run of tokens with which some prompts go on. What is blue was found in the cache, what is orange had to be computed. "
            "A box leads to its row in the table."
        )
        if tree.prompt_tokens != data.get("prompt_tokens"):
            note += " The tree holds the requests of the warm-up too, which no rate counts."
        yield Section("tree", "The radix tree of the prompts", icicle(tree, _unit(data)), note)
    if data.get("curve"):
        note = (
            "One cache, one request at a time."
            if data.get("schedule") or len(data["replicas"]) > 1
            else "Of one replica."
        )
        yield Section("capacity", "Hit rate against capacity", _curve(data), note)
    for name, title in (("groups", "Groups"), ("replicas", "Replicas")):
        if len(data[name]) > 1:
            yield Section(name, title, _sums(data[name], title))
    rest = [one for one in (_pairs(data, "cost"), _pairs(data, "times"), _pairs(data, "stats")) if one is not None]
    if rest:
        yield Section("more", "Cost, times, scheduler", rest)
    if data.get("problems") or data.get("refused"):
        yield Section("problems", "What was left out", _problems(data))


def _unit(data: Data) -> str:
    unit = data.get("unit")
    if data.get("engine") == "block-lru":
        return f"prompts part at blocks of {unit:,} tokens"
    return "prompts part where their tokens differ" + (f"; the cache keeps runs of {unit:,}" if unit > 1 else "")


_BOUNDS = {
    "content": "memory without limit",
    "capacity": "this memory, whatever is evicted",
    "depth_first": "the best order of the prompts alone",
}


def _reach(data: Data) -> Markup:
    rows = [("this run", data.get("hit_rate"), data["hit_rate"].show(share), "then")]
    rows += [
        (f"possible: {_BOUNDS.get(name, name)}", bound.value, bound.show(share), "bound")
        for name, bound in data["bounds"].items()
        if bound.value is not None
    ]
    seen = data["observed"]
    if seen.value is not None:
        rows += [
            ("observed in the log's usage", seen.get("hit_rate"), seen["hit_rate"].show(share), "seen"),
            ("expected of the same requests", seen.get("expected_hit_rate"), seen["expected_hit_rate"].show(share), "then"),
        ]  # fmt: skip
    drawn = shares(rows, "Hit rate reached, and what bounds it")
    bottleneck = data.get("bottleneck")
    facts: list[Any] = []
    if bottleneck:
        facts.append(tag("p", "Bottleneck: ", tag("b", bottleneck), f". {MEANING[bottleneck].capitalize()}.", class_="verdict"))  # fmt: skip
    facts.append(
        tag("p", data["block_hit_rate"].show(share), " of full pages or blocks; ", data["written_tokens"].show(), " tokens written, ",
            data["evicted_tokens"].show(), " evicted.")
    )  # fmt: skip
    sampled = data["sampling"]
    if sampled.value is not None:
        facts.append(
            tag("p", "A sample: ", sampled["rate"].show(share), " of the sessions, ", sampled["sessions"].show(), " in number, standard error ",
                sampled["error"].show(lambda value: f"{value:.4f}"), ".")
        )  # fmt: skip
    return join((drawn, *facts))


def _curve(data: Data) -> Markup:
    points = data["curve"]
    rows = [
        (point["capacity_tokens"].show(missing="unlimited"), point["hit_rate"].show(share), point["block_hit_rate"].show(share))
        for point in points
    ]  # fmt: skip
    sized = any(point.get("capacity_tokens") for point in points)
    return join(
        (
            capacity_curve(points.value, data.get("capacity_tokens"), data.get("hit_rate")) if sized else None,
            table(
                "Hit rate by capacity",
                ("capacity, tokens", "hit rate", "of full blocks"),
                rows,
                numbers=(0, 1, 2),
                compact=True,
            ),
        )
    )


def _sums(rows: Data, title: str) -> Markup:
    shown = [
        (
            f"{str(row.get('by')).replace('_', ' ')} {row.get('name')}" if "by" in row.value else row["replica"].show(),
            row["requests"].show(),
            row["prompt_tokens"].show(),
            row["cached_tokens"].show(),
            row["hit_rate"].show(share),
        )
        for row, _ in zip(rows, range(ROWS), strict=False)
    ]
    head = (title[:-1].lower(), "requests", "prompt tokens", "cached", "hit rate")
    return join((table(title, head, shown, numbers=(1, 2, 3, 4), quiet=True), _left_out(len(rows) - len(shown), "row")))


def _pairs(data: Data, name: str) -> Markup | None:
    if not data.get(name):
        return None
    form = money if name == "cost" else plain
    rows = [
        (key.replace("_", " "), value.show(form if "dollars" in key else plain)) for key, value in data[name].items()
    ]
    return table(
        {"stats": "Scheduler"}.get(name, name.capitalize()), ("what", "value"), rows, numbers=(1,), compact=True
    )


def _problems(data: Data) -> Markup:
    refused = data.get("refused")
    rows = [
        (f"{row.get('file')}:{row.get('line')}", row.get("field"), row.get("reason"))
        for row, _ in zip(data["problems"], range(ROWS), strict=False)
    ]
    return join(
        (
            tag("p", data["refused"].show(), " requests do not fit and are left out of every rate.") if refused else None,
            table("Input that could not be used", ("place", "field", "why"), rows) if rows else None,
            _left_out(len(data["problems"]) - len(rows), "row"),
        )
    )  # fmt: skip


def _left_out(number: int, what: str) -> Markup | None:
    return tag("p", f"{count(number, what)} more in the JSON report.", class_="note") if number > 0 else None
