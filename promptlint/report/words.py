"""How numbers and counts are written for people, the same in every format."""

from __future__ import annotations

from collections import Counter

from promptlint.report.model import CheckReport, FindingItem

__all__ = ["cause", "clipped", "cost", "count", "next_steps", "percent", "summary_line", "tokens"]

_CAUSES = {
    "hub": "prompt hub",
    "remote-tools": "tools of a remote server",
    "dependency": "made by a call that was not followed",
    "dynamic-import": "module chosen at run time",
    "budget": "nested deeper than is followed",
    "file": "file not found",
    "caller": "handed in from outside",
}


def percent(share: float) -> str:
    """A share as a percentage: two digits are all that an estimate carries, and what is not nothing never reads as 0 %."""
    value = share * 100
    if 0 < value < 1:
        return f"{max(value, 0.1):.1f} %"
    if 99 < value < 100:
        return f"{min(value, 99.9):.1f} %"
    return f"{value:.0f} %"


def tokens(number: float) -> str:
    """A token count with separators: 2,412; less than ten with one digit where it is not whole."""
    if number < 10 and number != int(number):
        return f"{number:.1f}"
    return f"{round(number):,}"


def count(number: int, one: str, many: str = "") -> str:
    """1 finding, 2 findings."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def cause(reason: str) -> str:
    """Why a value was not read, for people; the report's own word where it speaks for itself."""
    return _CAUSES.get(reason, reason)


def cost(finding: FindingItem) -> str:
    """What a finding costs, in one sentence without a full stop; empty where the rule has no estimate."""
    parts = []
    if finding.tokens_behind:
        lost, behind = tokens(finding.tokens_lost), tokens(finding.tokens_behind)
        parts.append(f"{lost} of {behind} tokens behind it are lost per request")
    elif finding.tokens_lost:
        parts.append(f"{tokens(finding.tokens_lost)} tokens are lost per request")
    if finding.hit_rate_if_fixed == 0 and finding.tokens_lost:
        # Only a minimum makes it none at all: the terms say so of the provider, the loss is that of a server without one.
        parts.append(
            "counts on a server of your own: the provider caches nothing this short, estimated hit rate 0 % now and if fixed"
        )
    elif finding.hit_rate_now is not None and finding.hit_rate_now == finding.hit_rate_if_fixed and finding.tokens_lost:
        parts.append(
            f"estimated hit rate {percent(finding.hit_rate_now)}, which this change alone does not raise: other values stand ahead of the same text"
        )
    elif finding.hit_rate_now is not None and finding.hit_rate_if_fixed is not None:
        now, then = percent(finding.hit_rate_now), percent(finding.hit_rate_if_fixed)
        parts.append(
            f"estimated hit rate {now} now, " + (f"{then} if fixed" if then != now else "hardly more if fixed")
        )
    return "; ".join(parts)


def next_steps(report: CheckReport) -> list[tuple[str, int, str]]:
    """(reason, places, command that would help) for all that was not read, most frequent first."""
    found = Counter((part.reason, part.next) for site in report.call_sites for part in site.unresolved)
    return [
        (reason, number, command)
        for (reason, command), number in sorted(found.items(), key=lambda row: (-row[1], row[0]))
    ]


def summary_line(report: CheckReport) -> str:
    """The line that every human format ends with. It never says that all is well when nothing was read."""
    counts = report.summary
    line = (
        f"{count(counts.call_sites, 'call site')}: {counts.read_fully} read fully, {counts.read_partly} partly, {counts.not_read} not; "
        f"{count(len(report.findings), 'finding')}"
    )
    if counts.read_fully or counts.read_partly:
        return line
    if counts.not_read:
        steps = next_steps(report)
        command = steps[0][2] if steps else "promptlint record -- COMMAND"
        why = f" ({', '.join(dict.fromkeys(cause(reason) for reason, _, _ in steps))})" if steps else ""
        return f"{line}; not read{why}: `{command}` would show what is sent"
    if report.chat_templates:
        return f"{line}; {count(len(report.chat_templates), 'chat template')} judged"
    if counts.texts:
        return f"{line}; {count(counts.texts, 'prompt')} read that no call site is known to send"
    return f"{line}; not read: no prompt found in {count(counts.files, 'file')}, `promptlint check --show-files` lists what was looked at"


def clipped(text: str, length: int) -> str:
    """The text, or its beginning with a mark."""
    return text if len(text) <= length else text[: length - 1] + "…"
