"""The list of provider terms, and one provider's page, as text and as JSON. Pure functions of the catalog and of today's date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from promptlint.catalog.providers import STALE_DAYS, Fact, Provider, Terms, resolve

__all__ = ["as_json", "detail", "stale", "table"]

_COLUMNS = ("provider", "match", "minimum", "read", "write", "lifetime", "checked", "title")


def stale(pages: Iterable[Provider], today: dt.date) -> list[str]:
    """One warning for each page whose facts were checked longer ago than they can be trusted."""
    return [
        f"{page.name}: terms last checked {page.verified.isoformat()}, {page.age_days(today)} days ago (limit {STALE_DAYS}); override what changed in extra-rules"
        for page in pages
        if page.age_days(today) > STALE_DAYS
    ]


def table(pages: Iterable[Provider], today: dt.date) -> str:
    """All pages in one table. A question mark follows what rests on third-party tests or on memory."""
    rows = [_row(page, today) for page in sorted(pages, key=lambda page: page.name)]
    widths = [max(len(row[i]) for row in [_COLUMNS, *rows]) for i in range(len(_COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [_COLUMNS, *rows]
    ]
    lines.append("")
    lines.append(
        "minimum in tokens; read and write as multiples of the input price; ?: low confidence; *: differs by model"
    )
    lines.append("`promptlint providers NAME [--model MODEL]` shows each fact with its source and date")
    return "\n".join(lines) + "\n"


def _row(page: Provider, today: dt.date) -> tuple[str, ...]:
    terms = resolve(page)

    def mark(name: str, text: str) -> str:
        fact = page.facts.get(name)
        if fact is None:
            return "-"
        return text + ("*" if fact.models else "") + ("?" if fact.confidence == "low" else "")

    match = f"block({terms.block})" + ("?" if _low(page, "block") else "") if terms.mode == "block" else terms.mode
    ttl = "/".join(name for name, _ in terms.ttls)
    return (
        page.name,
        mark("mode", match) if "?" not in match else match,
        mark("minimum", str(terms.minimum)),
        mark("read", f"{terms.read:g}" if terms.read is not None else "-"),
        mark("write", "/".join(f"{factor:g}" for _, factor in terms.writes)),
        mark("ttl", ttl or "-"),
        f"{page.age_days(today)} d ago" if page.age_days(today) else "today",
        page.title,
    )


def _low(page: Provider, name: str) -> bool:
    return name in page.facts and page.facts[name].confidence == "low"


def detail(page: Provider, model: str, today: dt.date) -> str:
    """Every fact of one page, with sources, dates and conflicts; for a model its own values."""
    lines = [f"{page.title} ({page.name}): checked {page.verified.isoformat()}, {page.age_days(today)} days ago"]
    if model:
        lines.append(f"values for {model}")
    for name, fact in page.facts.items():
        value = fact.of(model)
        if value in ({}, []) and not fact.models:
            continue
        shown = _lifetimes(value) if name == "ttl" else _text(value)
        lines.append(f"\n{name}: {shown}{'   LOW CONFIDENCE' if fact.confidence == 'low' else ''}")
        if not model:
            lines += [f"    {pattern}: {_text(other)}" for pattern, other in fact.models.items()]
        lines += [f"  {label}: {text}" for label, text in (("note", fact.note), ("conflict", fact.conflict)) if text]
        lines.append(
            f"  {fact.confidence} confidence; " + "; ".join(f"{source.url} ({source.date})" for source in fact.sources)
        )
    terms = resolve(page, model)
    if terms.read is not None:
        lines.append(f"\nCaching pays from request number {_pays(terms)} within one lifetime on")
    return "\n".join(lines) + "\n"


def _pays(terms: Terms) -> str:
    from promptlint.serving.cost import break_even_requests

    assert terms.read is not None
    counts = {name: break_even_requests(factor, terms.read) for name, factor in terms.writes}
    return ", ".join(
        f"{count if count is not None else 'never'}{f' ({name})' if name else ''}" for name, count in counts.items()
    )


def _lifetimes(value: dict[str, int]) -> str:
    return ", ".join(
        f"{name} ({seconds} s)" if seconds else f"{name} (length not published)" for name, seconds in value.items()
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items()) or "see models"
    if isinstance(value, list):
        return "; ".join(_text(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_json(pages: Iterable[Provider], model: str, today: dt.date) -> dict[str, Any]:
    """The pages with every fact, for programs; schema promptlint.providers/1."""
    return {
        "schema": "promptlint.providers/1",
        "providers": [_page_json(page, model, today) for page in sorted(pages, key=lambda page: page.name)],
    }


def _page_json(page: Provider, model: str, today: dt.date) -> dict[str, Any]:
    return {
        "name": page.name,
        "title": page.title,
        "words": list(page.words),
        "models": list(page.models),
        "verified": page.verified.isoformat(),
        "age_days": page.age_days(today),
        "stale": page.age_days(today) > STALE_DAYS,
        "facts": {name: _fact_json(fact, model) for name, fact in page.facts.items()},
    }


def _fact_json(fact: Fact, model: str) -> dict[str, Any]:
    return {
        "value": fact.of(model),
        "models": dict(fact.models),
        "confidence": fact.confidence,
        "sources": [{"url": source.url, "date": source.date, "note": source.note} for source in fact.sources],
        "note": fact.note,
        "conflict": fact.conflict,
    }
