"""`promptlint advise --output-format html`: verdict, orders before and after, levers, engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from promptlint.report.advise import Advice, to_json
from promptlint.report.html.charts import shares
from promptlint.report.html.data import Data, money, plain, share
from promptlint.report.html.markup import Markup, escape, join, prose, tag
from promptlint.report.html.page import Section, details, key_figures, page, table

__all__ = ["advise"]

ORDERS = 200  # recommended orders that are shown; the JSON report has all


def advise(advice: Advice) -> str:
    """The page."""
    data = Data(json.loads(to_json(advice)))
    verdicts = [(row.get("pool"), row.get("verdict")) for row in data["verdicts"]]
    if len(verdicts) == 1:
        title = verdicts[0][1].replace("-", " ").capitalize().replace("sglang", "SGLang").replace("vllm", "vLLM")
    else:
        title = "Which order, and which engine"
    lead = (
        _sentence(data["verdicts"][0].get("because"))
        if len(verdicts) == 1
        else "One verdict for each pool of requests, then the orders that cache better."
    )
    figures = verdicts[:8] if len(verdicts) > 1 else []
    return page("advise", title, lead, key_figures(figures), list(_sections(advice, data)), advice.version)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _sections(advice: Advice, data: Data) -> Iterator[Section]:
    if data["verdicts"]:
        yield Section("verdict", "Verdict", [_verdict(row, data) for row in data["verdicts"]])
    if data["reordering"]:
        shown = [_order(row) for row, _ in zip(data["reordering"], range(ORDERS), strict=False)]
        rest = len(data["reordering"]) - len(shown)
        more = tag("p", f"{rest:,} more in the JSON report.", class_="note") if rest else None
        yield Section("orders", "Orders of prompts, before and after", join((*shown, more)))
    if data["structured"]:
        yield Section("structured", "Structured output", _structured(data), "Tokens that a grammar forces. Potential only: neither SGLang nor vLLM skips them today.")  # fmt: skip
    if data["likely_causes"]:
        causes = [
            tag("article", tag("h3", one.get("cause")), tag("p", prose(one.get("why"))), tag("p", "Confirm with: ", tag("code", one.get("confirm_with"))))
            for one in data["likely_causes"]
        ]  # fmt: skip
        yield Section("likely", "Likely causes of the observed hit rate", causes, "Most likely first.")
    if advice.notes:
        yield Section("notes", "Notes", [tag("p", prose(note)) for note in advice.notes])
    rows = [(key.replace("_", " "), plain(value.value)) for key, value in data["assumptions"].items()]
    yield Section("assumptions", "Assumptions", table("Assumptions", ("what", "value"), rows, quiet=True))


def _verdict(row: Data, data: Data) -> Markup:
    pool = row.get("pool")
    reasons = [(one.get("fact"), one["value"].show(), one.get("unit"), one.get("source")) for one in row["reasons"]]
    lists = [
        details(title, tag("ul", [tag("li", text) for text in row.get(key)]))
        for key, title in (("would_change_if", "Would change if"), ("caveats", "Caveats"))
        if row.get(key)
    ]
    return tag(
        "article",
        tag("h3", pool, ": ", row.get("verdict")),
        tag("p", row.get("because"), class_="verdict") if len(data["verdicts"]) > 1 else None,
        tag("p", "Runs today: ", row.get("current"), f"; model {row.get('model')}" if row.get("model") else "", f"; rule {row.get('rule')}", class_="place"),
        table(f"What decided for {pool}", ("fact", "value", "unit", "source"), reasons, numbers=(1,)) if reasons else None,
        _levers([one for one in data["levers"] if one.get("pool") == pool], pool),
        _engines([one for one in data["engines"] if one.get("pool") == pool], pool),
        lists,
        tag("p", "Fair measurement: ", tag("code", row.get("measurement"))) if row.get("measurement") else None,
    )  # fmt: skip


def _rate(value: float) -> str:
    return f"{value:,.2f}"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def _levers(rows: list[Data], pool: str) -> Markup | None:
    rows = [row for row in rows if row["alone"].get("requests_per_second")]
    if not rows:
        return None
    bars = [
        (row.get("lever"), row["in_best_order"].get("hit_rate"), row["in_best_order"]["hit_rate"].show(share), "then")
        for row in rows
        if row["in_best_order"].get("hit_rate") is not None
    ]
    head = ("lever", "hit rate alone", "throughput alone", "GPUs alone", "hit rate", "throughput", "GPUs", "change")
    shown = [
        (
            row.get("lever"),
            *(part[key].show(form) for part in (row["alone"], row["in_best_order"]) for key, form in (("hit_rate", share), ("gain", _times), ("gpus", plain))),
            row.get("change"),
        )
        for row in rows
    ]  # fmt: skip
    return join(
        (
            tag("p", "Hit rate when the levers are pulled one after the other, in the best order:"),
            shares(bars, f"Hit rate of {pool} by lever"),
            table("Levers, each alone and on top of those before it", head, shown, numbers=range(1, 7)),
        )
    )


def _engines(rows: list[Data], pool: str) -> Markup | None:
    if not rows:
        return None
    head = ("engine", "schedule", "hit rate", "prefill tokens", "requests/s", "from", "to", "TTFT p50 ms", "TTFT p99 ms", "prefill", "decode", "queue")  # fmt: skip
    shown = []
    for row in rows:
        span = row["requests_per_second_range"]
        parts = row["share"]
        shown.append(
            (row.get("engine"), row.get("schedule"), row["hit_rate"].show(share), row["prefill_tokens"].show(), row["requests_per_second"].show(_rate),
             span[0].show(_rate), span[1].show(_rate), row["ttft_p50_ms"].show(), row["ttft_p99_ms"].show(),
             *(parts[name].show(share) if name in parts.value else "-" for name in ("prefill", "decode", "queue")))
        )  # fmt: skip
    return table(f"Engines on {pool}", head, shown, numbers=range(2, 12))


def _order(row: Data) -> Markup:
    bars = [
        ("hit rate now", row.get("hit_rate_now"), row["hit_rate_now"].show(share), "now"),
        ("then", row.get("hit_rate_then"), row["hit_rate_then"].show(share), "then"),
    ]
    saved: list[Any] = ["Saves ", row["tokens_saved"].show(), " prompt tokens a request"]
    if row.get("money_saved") is not None:
        saved += [", ", row["money_saved"].show(money), " per 1,000 requests"]
    return tag(
        "article",
        tag("h3", tag("code", row.get("call_site"))),
        shares(bars, "Hit rate before and after"),
        tag("p", "Now:"), _chips(row.get("from")), tag("p", "Then:"), _chips(row.get("to")),
        tag("p", saved, f". Basis: {row.get('basis')}."),
        tag("ul", [tag("li", text) for text in row.get("moved")]) if row.get("moved") else None,
        tag("p", "Meaning: ", row.get("meaning_risk")),
        details("Diff", tag("pre", tag("code", escape(row.get("diff"), keep="\n\t")), tabindex="0", aria_label="diff")) if row.get("diff") else None,
    )  # fmt: skip


def _chips(names: list[str]) -> Markup:
    return tag("ol", [tag("li", name) for name in names], class_="chips")


def _structured(data: Data) -> Markup:
    rows = [
        (row.get("call_site"), row.get("schema"), row["forced_share"][0].show(share), row["forced_share"][1].show(share), row.get("basis"))
        for row in data["structured"]
    ]  # fmt: skip
    head = ("call site", "schema", "from", "to", "basis")
    return table("Share of the answer's tokens that a grammar forces", head, rows, numbers=(2, 3))
