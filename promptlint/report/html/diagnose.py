"""`promptlint diagnose --output-format html`: where requests left their relatives, and what each cause costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from promptlint.advisor.diagnose.model import Diagnosis
from promptlint.report.diagnose import to_data
from promptlint.report.html.charts import shares
from promptlint.report.html.data import Data, share
from promptlint.report.html.markup import Markup, join, prose, tag
from promptlint.report.html.page import Section, key_figures, page, table
from promptlint.report.words import count
from promptlint.traffic.read import Problem

__all__ = ["diagnose"]

WHOLE = 60  # divergences that are shown with their text, the dearest
GROUPS = 300
ROWS = 300  # misses, problems


def diagnose(found: Diagnosis, problems: Sequence[Problem] = (), *, redact: bool = False, salt: str = "") -> str:
    """The page. It is made from the JSON report, so what `redact` takes out of that is not here either."""
    data = Data(to_data(found, problems, redact=redact, salt=salt))
    summary = data["summary"]
    figures = [
        ("requests", data["requests"].show()),
        ("left a relative", tag("span", f"{len(data['divergences']):,}", data_count="/divergences")),
        ("hit rate expected", summary["hit_rate"].show(share)),
        ("observed", summary["observed_hit_rate"].show(share, missing="not reported")),
        ("new starts", summary["starts"].show()),
    ]
    lead = join(
        (
            "Expected: prompts alone, a cache without limit. ",
            summary["cached_tokens"].show(), " of ", summary["prompt_tokens"].show(), f" prompt tokens, counted with {summary.get('tokenizer') or 'no tokenizer'}.",
            " Prompt text is left out: lengths and hashes stand in its place." if redact else "",
        )
    )  # fmt: skip
    title = "Why requests missed the cache"
    return page("diagnose", title, lead, key_figures(figures), list(_sections(data)))


def _sections(data: Data) -> Iterator[Section]:
    if data["causes"]:
        yield Section(
            "causes",
            "What each cause costs",
            _causes(data),
            "Measured by replay with that one cause repaired in every request.",
        )
    if data["divergences"]:
        yield Section("divergences", "Where requests diverge", _divergences(data))
    if data["misses"]:
        yield Section("misses", "Found less than the text allows", _misses(data))
    if data["likely_causes"]:
        yield Section("likely", "What may explain the rate", _likely(data), "Most likely first.")
    unread = data["summary"]["unreadable"]
    if unread:
        rows = [
            (f"{row.get('file')}:{row.get('line')}", row.get("field"), row.get("reason"))
            for row, _ in zip(unread, range(ROWS), strict=False)
        ]
        more = _more(len(unread) - len(rows), "record")
        yield Section("unread", "What could not be read", join((table("Records", ("place", "field", "why"), rows, quiet=True), more)))  # fmt: skip


def _causes(data: Data) -> Markup:
    rate = data["summary"]["hit_rate"]
    bars = [("now", rate.value, rate.show(share), "now")]
    bars += [
        (f"without {one.get('rule')}", one.get("hit_rate_if_fixed"), one["hit_rate_if_fixed"].show(share), "then")
        for one in data["causes"]
    ]
    rows = [
        (tag("code", one.get("rule")), one["requests"].show(), one["tokens_lost"].show(), one["hit_rate_if_fixed"].show(share))
        for one in data["causes"]
    ]  # fmt: skip
    head = ("cause", "requests", "tokens lost", "hit rate if fixed")
    return join(
        (
            shares(bars, "Expected hit rate before and after"),
            table("Causes", head, rows, numbers=(1, 2, 3), compact=True, quiet=True),
        )
    )


def _divergences(data: Data) -> Markup:
    rows = list(data["divergences"])
    ranked = sorted(rows, key=lambda one: (-one.get("tokens_lost"), one.get("request")))
    whole = [_divergence(one) for one in ranked[:WHOLE]]
    if len(ranked) <= WHOLE:
        return join(whole)
    groups: dict[tuple[str, str, str], list[int]] = {}
    for one in rows:
        sums = groups.setdefault((one.get("rule"), one.get("call_site") or "", one.get("path")), [0, 0])
        sums[0] += 1
        sums[1] += one.get("tokens_lost")
    order = sorted(groups, key=lambda key: -groups[key][1])
    listed = [(tag("code", key[0]), key[1] or "-", tag("code", key[2]), f"{groups[key][0]:,}", f"{groups[key][1]:,}") for key in order[:GROUPS]]  # fmt: skip
    head = ("cause", "call site", "place", "requests", "tokens lost")
    return join(
        (
            tag("p", f"The {WHOLE} dearest of {len(ranked):,} with their text, then all of them by cause, call site and place.", class_="note"),
            whole,
            table("All divergences by cause, call site and place", head, listed, numbers=(3, 4)),
            _more(len(order) - len(listed), "place"),
        )
    )  # fmt: skip


def _divergence(one: Data) -> Markup:
    name = f" ({one.get('id')})" if one.get("id") else ""
    sent = [f"; {one.get('call_site')}"] if one.get("call_site") else []
    hole = ["; ", tag("code", one.get("hole"))] if one.get("hole") else []
    was, now = one.get("was"), one.get("now")
    return tag(
        "article",
        tag("h3", one["tokens_lost"].show(), " tokens lost: ", one.get("cause")),
        tag("p", "request ", one["request"].show(), name, " left request ", one["relative"].show(), " at ", tag("code", one.get("path")),
            ", character ", one["char"].show(), " · ", tag("code", one.get("rule")), *sent, *hole, class_="place"),
        _compared(was, now) if was or now else None,
    )  # fmt: skip


def _compared(was: str, now: str) -> Markup:
    """Both texts one above the other, with what differs marked between what they share at either end."""
    least = min(len(was), len(now))
    lead = next((index for index in range(least) if was[index] != now[index]), least)
    tail = next((index for index in range(least - lead) if was[-1 - index] != now[-1 - index]), least - lead)

    def shown(text: str, kind: str) -> Markup:
        end = len(text) - tail
        return join((text[:lead], tag("mark", text[lead:end], class_=kind) if end > lead else None, text[end:]))

    return tag(
        "dl",
        tag("dt", "was"),
        tag("dd", shown(was, "was")),
        tag("dt", "now"),
        tag("dd", shown(now, "now")),
        class_="diff",
    )


def _misses(data: Data) -> Markup:
    rows = list(data["misses"])
    ranked = sorted(rows, key=lambda one: -one.get("tokens_lost"))[:ROWS]
    shown = [
        (one["request"].show(), one.get("reason"), one.get("cause"), one["expected_cached_tokens"].show(),
         one["observed_cached_tokens"].show(missing="not reported"), one["tokens_lost"].show())
        for one in ranked
    ]  # fmt: skip
    head = ("request", "reason", "what is known", "expected", "observed", "tokens lost")
    return join((table("Misses", head, shown, numbers=(3, 4, 5), quiet=True), _more(len(rows) - len(shown), "request")))


def _likely(data: Data) -> Markup:
    rows: list[Any] = [
        tag("article", tag("h3", one.get("cause")), tag("p", prose(one.get("why"))), tag("p", "Confirm with: ", tag("code", one.get("confirm_with"))))
        for one in data["likely_causes"]
    ]  # fmt: skip
    return join(rows)


def _more(number: int, what: str) -> Markup | None:
    return tag("p", f"{count(number, what)} more in the JSON report.", class_="note") if number > 0 else None
