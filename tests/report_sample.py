"""A small report with everything in it that a renderer can meet."""

from __future__ import annotations

from promptlint.report.model import (
    BlockItem,
    CallSiteItem,
    CheckReport,
    EditItem,
    FindingItem,
    FixItem,
    Place,
    RuleCard,
    Summary,
    TemplateItem,
    UnresolvedItem,
    UnsupportedItem,
)

SITE = "app/agent.py::SupportBot.answer::openai.chat.completions.create"
OTHER = "app/mail.py::draft::openai.chat.completions.create"


def finding(**changes: object) -> FindingItem:
    values: dict[str, object] = {
        "rule": "clock-in-prefix",
        "severity": "high",
        "confidence": "high",
        "persona": "regular",
        "path": "app/agent.py",
        "line": 11,
        "column": 16,
        "end_line": 11,
        "end_column": 42,
        "message": "clock value ahead of 2,440 longer-lived tokens",
        "expression": "datetime.now().isoformat()",
        "volatility": "request",
        "block": "system",
        "call_site": SITE,
        "tokens_behind": 2440,
        "tokens_lost": 2412.04,
        "hit_rate_now": 0.0048,
        "hit_rate_if_fixed": 0.91,
        "trace": (Place("app/agent.py", 11, 16, "clock read here"), Place("app/agent.py", 19, 9, "sent here", SITE)),
        "related": (Place("app/mail.py", 40, 5, "also sent here", OTHER),),
        "fix": None,
        "fingerprint": "0123456789abcdef",
        "help": "Move the clock into the newest user message.",
        "hint": "",
        "source": '        f"Now: {datetime.now().isoformat()}\\n{GUIDELINES}"',
    }
    return FindingItem(**{**values, **changes})  # type: ignore[arg-type]


def report(*findings: FindingItem, **changes: object) -> CheckReport:
    values: dict[str, object] = {
        "version": "0.1.0",
        "assumptions": {"profile": "typical", "tokenizer": "o200k_base", "requests_per_day": 10000},
        "findings": findings,
        "call_sites": (),
        "chat_templates": (),
        "unsupported": (),
        "suppressed": 0,
        "summary": Summary(3, 2, 0, 0, 0, 0, {"high": len(findings), "medium": 0, "low": 0}, 0),
        "rules": {
            "clock-in-prefix": RuleCard(
                "clock-in-prefix",
                "volatility",
                "clock value ahead of longer-lived text",
                "high",
                "regular",
                "Move the clock into the newest user message.",
                "Flags a clock value.\n\n## Why it costs you\nEvery later token is a miss.\n",
            ),
            "unordered-iteration": RuleCard(
                "unordered-iteration", "determinism", "a set in a prompt", "medium", "regular", "", "Flags a set.\n"
            ),
        },
    }
    return CheckReport(**{**values, **changes})  # type: ignore[arg-type]


def everything() -> CheckReport:
    """Two findings, a fix, two call sites of which one was not read, a chat template, an unsupported file."""
    fix = FixItem("Sort the names", "safe", (EditItem("app/töols.py", 7, 12, 7, 17, "sorted(names)"),))
    second = finding(
        rule="unordered-iteration",
        severity="medium",
        confidence="medium",
        path="app/töols.py",
        line=7,
        column=12,
        end_line=8,
        end_column=3,
        message="order of a set | decides <this> @prompt",
        expression="names",
        volatility="process",
        block="tools",
        tokens_behind=310,
        tokens_lost=64.4,
        hit_rate_now=None,
        hit_rate_if_fixed=None,
        trace=(),
        related=(),
        fix=fix,
        fingerprint="fedcba9876543210",
        help="Sort before joining.",
        hint="Sets of strings are ordered\nby PYTHONHASHSEED.",
        source='\t日本 = ",".join(names +',
    )
    sites = (
        CallSiteItem(
            SITE,
            "app/agent.py",
            19,
            "openai.chat.completions.create",
            "openai",
            "gpt-4o-mini",
            False,
            (
                BlockItem("system", "system", "request", "fixed", 2460, 2440, "GUIDELINES", "app/agent.py", 8),
                BlockItem("history", None, "session", "append", 900, 0, "", "app/agent.py", 16),
                BlockItem("question", "user", "request", "fixed", 60, 0, "", "app/agent.py", 17),
            ),
            3420,
            12,
            0.0048,
            "sha256:00ff",
            0.97,
            (UnresolvedItem("load(user.plan)", "database", "app/agent.py", 9, "promptlint record -- COMMAND"),),
        ),
        CallSiteItem(
            OTHER, "app/mail.py", 40, "openai.chat.completions.create", "openai", None, True, (), 0, 0, None, "sha256:11ee", 0.0,
            (UnresolvedItem("hub.pull(name)", "hub", "app/mail.py", 39, "promptlint record -- COMMAND"),),
        ),
    )  # fmt: skip
    return report(
        finding(),
        second,
        call_sites=sites,
        chat_templates=(TemplateItem("chat.jinja", "rewrites-history", True, False, False, "never", 61, 0.92),),
        unsupported=(UnsupportedItem("app/old.py", 3, "not valid utf-8 text"),),
        suppressed=1,
        summary=Summary(12, 5, 2, 0, 1, 1, {"high": 1, "medium": 1, "low": 0}, 2),
    )
