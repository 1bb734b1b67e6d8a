"""Hover: what a finding costs, and what the call site sends, as a bar of its blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from promptlint.report.escape import printable
from promptlint.report.model import BlockItem, CallSiteItem, CheckReport, FindingItem
from promptlint.report.words import cost, percent

__all__ = ["bar", "hover"]

WIDTH = 48  # characters of a whole prompt's bar
MAX_SITES = 3
_SHADES = {"static": "█", "process": "▓", "day": "▓"}  # the longer a block stays the same, the darker
_OTHERS = {"tenant": "▒", "document": "▒", "user": "▒", "session": "▒"}
_CHANGING = "░"


def hover(report: CheckReport, shown: str, line: int, column: int) -> str | None:
    """Markdown for a place in a file (by printed path); None where there is nothing to say."""
    findings = [one for one in report.findings if one.path == shown and _covers(one, line, column)]
    wanted = {one.call_site for one in findings}
    sites = [site for site in report.call_sites if site.id in wanted or _stands(site, shown, line)]
    parts = [*map(_finding, findings), *map(_site, sites[:MAX_SITES])]
    if len(sites) > MAX_SITES:
        parts.append(f"… and {len(sites) - MAX_SITES} more call sites")
    return "\n\n---\n\n".join(parts) or None


def _covers(finding: FindingItem, line: int, column: int) -> bool:
    return (finding.line, finding.column) <= (line, column) <= (finding.end_line, finding.end_column)


def _stands(site: CallSiteItem, shown: str, line: int) -> bool:
    """Whether the call itself, or the beginning of one of its blocks, stands on the line."""
    return (site.path, site.line) == (shown, line) or any(
        (block.path, block.line) == (shown, line) for block in site.blocks
    )


def _finding(finding: FindingItem) -> str:
    rows = [f"**{finding.severity}: {finding.rule}**", "", _prose(finding.message)]
    price = cost(finding)
    if price:
        rows += ["", _prose(price)]
    if finding.help:
        rows += ["", _prose(finding.help)]
    return "\n".join(rows)


_MARKUP = re.compile(r"[\\`*_{}\[\]<>#!|~&$]|:(?=//)|(?<=www)\.")
"""What can begin markup, HTML, an entity, or a link that is made from bare text."""


def _prose(text: str) -> str:
    """A sentence of ours as Markdown: what stands between backticks as code, everything else as exactly these characters.

    Backslashes and no entities, because Neovim shows entities as they are written.
    """
    parts = printable(text).split("`")
    if len(parts) % 2 == 0 or not all(parts[1:-1]):  # no pairs of backticks, or runs of them, which mean something else
        return _plain("`".join(parts))
    return "".join(f"`{part}`" if index % 2 else _plain(part) for index, part in enumerate(parts))


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", text)


def _site(site: CallSiteItem) -> str:
    rate = "" if site.estimated_hit_rate is None else f", estimated hit rate {percent(site.estimated_hit_rate)}"
    shared = f"{site.cacheable_prefix_tokens:,} of {site.prompt_tokens:,} tokens in the cacheable prefix{rate}"
    return "\n".join([_prose(f"`{site.id}`"), "", "```text", *bar(site), "```", "", shared])


def bar(site: CallSiteItem) -> Iterator[str]:
    """The prompt as one bar, with the end of the cacheable prefix marked below it; then a row for each block in rendered order."""
    total = max(sum(block.tokens for block in site.blocks), 1)
    yield "".join(_shade(block) * _length(block, total) for block in site.blocks)
    if site.cacheable_prefix_tokens < site.prompt_tokens:
        yield " " * _before(site.blocks, site.cacheable_prefix_tokens, total) + "^ cacheable prefix ends"
    for block in site.blocks:
        growth = "" if block.growth == "fixed" else f", {block.growth}"
        yield f"{_shade(block)} {block.kind:<9} {block.volatility + growth:<17} {block.tokens:>7,} tokens  {_line(block.name)}".rstrip()


def _shade(block: BlockItem) -> str:
    return _SHADES.get(block.volatility) or _OTHERS.get(block.volatility, _CHANGING)


def _length(block: BlockItem, total: int) -> int:
    """Characters of a block in the bar; whatever is sent has at least one."""
    return max(round(WIDTH * block.tokens / total), 1 if block.tokens else 0)


def _before(blocks: Iterable[BlockItem], tokens: int, total: int) -> int:
    """Characters of the bar ahead of a number of tokens."""
    place = 0
    for block in blocks:
        length = _length(block, total)
        if tokens < block.tokens:
            return place + min(round(length * tokens / block.tokens), length - 1)
        tokens -= block.tokens
        place += length
    return place


def _line(text: str) -> str:
    """Text of an analysed file inside a fence, which it cannot end."""
    return printable(" ".join(text.split())).replace("```", "'''")
