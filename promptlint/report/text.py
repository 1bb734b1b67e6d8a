"""`full` and `concise`: for people at a terminal. Text of analysed files is escaped before it gets there."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator

from promptlint.report.bar import bar, legend
from promptlint.report.escape import printable
from promptlint.report.model import BaselineItem, CallSiteItem, CheckReport, FindingItem, Place
from promptlint.report.words import cause, cost, count, next_steps, percent, summary_line, tokens

__all__ = ["concise", "fixed_line", "full", "show", "statistics"]

WIDTH = 150  # columns of a source line that are shown around the marked place

_BOLD, _RED, _YELLOW, _BLUE, _DIM, _GREEN = "1", "31;1", "33;1", "34;1", "2", "32"
_COLORS = {"high": _RED, "medium": _YELLOW, "low": _BLUE}


class _Paint:
    """ANSI colours, or none."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text


def full(report: CheckReport, *, color: bool = False) -> str:
    """Each finding with its source line, its way to the sink, its cost and what to do; then the summary."""
    paint = _Paint(color)
    lines: list[str] = []
    for finding in report.findings:
        lines += [*_finding(finding, paint), ""]
    lines += _summary(report, paint)
    return "\n".join(lines) + "\n"


def concise(report: CheckReport, *, color: bool = False) -> str:
    """One line a finding; then the summary."""
    paint = _Paint(color)
    lines = [
        f"{paint(printable(finding.path), _BOLD)}:{finding.line}:{finding.column}: "
        f"{paint(f'{finding.severity}[{finding.rule}]', _COLORS[finding.severity])} {printable(finding.message)}"
        for finding in report.findings
    ]
    return "\n".join([*lines, *_summary(report, paint)]) + "\n"


def statistics(report: CheckReport) -> str:
    """Findings and tokens lost per request by rule, dearest first."""
    lost: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for finding in report.findings:
        lost[finding.rule] += round(finding.tokens_lost)
        number[finding.rule] += 1
    rows = sorted(number, key=lambda rule: (-lost[rule], -number[rule], rule))
    width = max((len(rule) for rule in rows), default=0)
    lines = [f"{number[rule]:>5}  {rule:<{width}}  {lost[rule]:>9,} tokens lost per request" for rule in rows]
    return "\n".join([*lines, summary_line(report)]) + "\n"


def fixed_line(edits: int, files: int, dropped: int, verb: str) -> str:
    """What was done to the files, in one line."""
    plural = {"was": "were"}.get(verb, verb)
    line = f"{count(edits, 'finding')} {verb if edits == 1 else plural} repaired in {count(files, 'file')}"
    return line + (f"; {count(dropped, 'edit')} dropped" if dropped else "")


def _finding(finding: FindingItem, paint: _Paint) -> Iterator[str]:
    color = _COLORS[finding.severity]
    doubt = "" if finding.confidence == "high" else f" ({finding.confidence} confidence)"
    yield f"{paint(f'{finding.severity}[{finding.rule}]', color)} {paint(printable(finding.message), _BOLD)}{doubt}"
    gutter = len(str(finding.line))
    yield f"{' ' * gutter}{paint('-->', _BLUE)} {printable(finding.path)}:{finding.line}:{finding.column}"
    if finding.source.strip():
        shown, mark = marked(finding)
        bar = paint("|", _BLUE)
        yield f"{paint(str(finding.line), _BLUE)} {bar} {shown}".rstrip()
        yield f"{' ' * gutter} {bar} {mark[0]}{paint(mark[1], color)}".rstrip()
    indent = " " * gutter + " "
    for label, lines in _remarks(finding):
        for index, line in enumerate(lines):
            head = f"{paint('=', _BLUE)} {paint(f'{label}:', _BOLD)}" if index == 0 else " " * (len(label) + 3)
            yield f"{indent}{head} {line}"


def _remarks(finding: FindingItem) -> Iterator[tuple[str, list[str]]]:
    price = cost(finding)
    if price:
        yield "cost", [price]
    if finding.trace:
        yield "way", [_place(place) for place in finding.trace]
    if finding.related:
        # Several prompts may be sent from one place; a reader needs the place once.
        yield "also", list(dict.fromkeys(_place(place) for place in finding.related))
    if finding.hint:
        yield "note", [printable(line) for line in finding.hint.splitlines()]
    if finding.fix is not None:
        yield "fix", [f"{printable(finding.fix.title)} ({finding.fix.applicability})"]
    if finding.help:
        yield "help", [printable(finding.help)]


def _place(place: Place) -> str:
    return f"{printable(place.path)}:{place.line}:{place.column} {printable(place.note)}"


def marked(finding: FindingItem) -> tuple[str, tuple[str, str]]:
    """The source line, cut to what fits around the place, and the (indentation, marks) of the line below it.

    Characters that take two columns count two; a place that goes on in the next line is marked to the end of this one.
    """
    head, body, tail = around(finding)
    return (head + body + tail).rstrip(), (" " * _width(head), "^" * max(_width(body), 1))


def around(finding: FindingItem) -> tuple[str, str, str]:
    """The source line in three parts, cut to what fits: ahead of the place, the place, behind it. A tab is shown as four blanks."""
    line = finding.source
    start = min(max(finding.column - 1, 0), len(line))
    end = finding.end_column - 1 if finding.end_line == finding.line else len(line.rstrip())
    end = min(max(end, start + 1), max(len(line), start + 1))
    head, body, tail = (_shown(part) for part in (line[:start], line[start:end], line[end:]))
    head = head.lstrip(" ")
    if _width(head) + _width(body) + _width(tail) > WIDTH:
        head = head if len(head) <= WIDTH // 3 else "…" + head[-(WIDTH // 3) :]
        body = body if len(body) <= WIDTH // 2 else body[: WIDTH // 2] + "…"
        room = max(WIDTH - len(head) - len(body), 0)
        tail = tail if len(tail) <= room else tail[:room] + "…"
    return head, body, tail


def _shown(text: str) -> str:
    return printable(text.replace("\t", "    "))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _summary(report: CheckReport, paint: _Paint) -> Iterator[str]:
    """What was left out and why, the assumptions, and the line that always comes last."""
    counts = report.summary
    left = []
    if counts.hidden:
        left.append(f"{count(counts.hidden, 'finding')} hidden (`--persona auditor` shows all)")
    if report.suppressed:
        left.append(f"{count(report.suppressed, 'finding')} suppressed")
    if report.baseline is not None:
        left.append(baseline_words(report.baseline))
    if left:
        yield "; ".join(left)
    for item in report.baseline.fixed if report.baseline is not None else ():
        yield f"fixed: {printable(item.rule)} in {printable(item.path)}: `{printable(item.expression)}`"
    if counts.read_fully or counts.read_partly:
        for reason, number, command in next_steps(report):
            yield f"not read: {count(number, 'value')} ({cause(reason)}); `{command}` would help"
    if any(finding.tokens_lost for finding in report.findings):
        yield paint(f"estimates: {assumptions_line(report)}", _DIM)
    yield paint(summary_line(report), _BOLD)


def baseline_words(baseline: BaselineItem) -> str:
    """How many findings the baseline took out, and how many more of it are no longer found."""
    words = f"{count(baseline.known, 'known finding')} of the baseline"
    return words + (f", {len(baseline.fixed)} fixed" if baseline.fixed else "")


def assumptions_line(report: CheckReport) -> str:
    """The assumptions behind the estimates, in one line."""
    known = report.assumptions
    parts = [f"traffic profile `{known.get('profile')}`"]
    if "requests_per_day" in known:
        parts.append(f"{known['requests_per_day']:,} requests a day per call site")
    parts.append(f"tokens by {known.get('tokenizer')} where the model is unknown")
    if known.get("chat_templates"):
        parts.append(
            f"blocks in the order of the chat template of {', '.join(map(printable, known['chat_templates']))}"
        )
    return ", ".join(parts)


def show(report: CheckReport, *, color: bool = False, width: int = 80) -> str:
    """Each call site with its blocks in rendered order and the place where the cacheable prefix ends; in colour with a bar of `width` columns."""
    paint = _Paint(color)
    lines: list[str] = []
    if color and report.call_sites:
        lines += [legend(), ""]
    for site in report.call_sites:
        lines += [*_site(site, paint, width), ""]
    lines.append(paint(f"estimates: {assumptions_line(report)}", _DIM))
    lines.append(paint(summary_line(report), _BOLD))
    return "\n".join(lines) + "\n"


def _site(site: CallSiteItem, paint: _Paint, width: int) -> Iterator[str]:
    yield paint(printable(site.id), _BOLD)
    model = f", model {printable(site.model)}" if site.model else ""
    provider = f", provider {printable(site.provider)}" if site.provider else ""
    yield f"  {printable(site.path)}:{site.line}{provider}{model}; read {percent(site.resolution)}"
    if paint.color:
        yield from (f"  {line}" for line in bar(site, width - 4))
    passed = 0
    ended = False
    for block in site.blocks:
        begins = passed
        passed += block.tokens
        name = f"  {printable(block.name)}" if block.name else ""
        growth = "" if block.growth == "fixed" else f", {block.growth}"
        row = f"{block.kind:<9} {block.volatility + growth:<16} {tokens(block.tokens):>8} tokens  {tokens(block.static_tokens):>8} fixed"
        yield f"  {row}{name}  {printable(block.path)}:{block.line}"
        if not ended and begins <= site.cacheable_prefix_tokens < passed:
            ended = True
            yield paint(
                f"  ~~~ the cacheable prefix ends here, after {count(site.cacheable_prefix_tokens, 'token')} ~~~",
                _YELLOW,
            )
    rate = "" if site.estimated_hit_rate is None else f", estimated hit rate {percent(site.estimated_hit_rate)}"
    yield f"  {tokens(site.prompt_tokens)} tokens, {tokens(site.cacheable_prefix_tokens)} of them in the cacheable prefix{rate}"
    yield f"  {site.cache_key}"
    for part in site.unresolved:
        yield f"  not read: {printable(part.expression)} ({cause(part.reason)}) {printable(part.path)}:{part.line}; `{part.next}` would help"
