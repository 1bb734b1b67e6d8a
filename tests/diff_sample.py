"""A small diff with everything in it that a renderer can meet."""

from __future__ import annotations

from dataclasses import replace

from report_sample import OTHER, SITE, everything, finding

from promptlint.app.diff import Side, compare
from promptlint.report.diff_model import DiffReport, OrderItem, ReplayedSite, ReplayItem, VerdictItem


def changes() -> DiffReport:
    """A clock came in, another finding is fixed, a third moved to another file, one call site is new."""
    whole = everything()
    whole = replace(whole, assumptions={**whole.assumptions, "replicas": 4})
    clock, unordered = whole.findings
    agent, mail = whole.call_sites
    before = replace(
        whole,
        findings=(unordered, finding(fingerprint="1", path="app/old.py", expression="uuid4()", rule="random-in-prefix", call_site="app/old.py::ask::s")),
        call_sites=(
            replace(agent, estimated_hit_rate=0.71, cacheable_prefix_tokens=2440, cache_key="sha256:00aa"),
            replace(mail, id="app/old.py::ask::s", path="app/old.py", sink="s", cacheable_prefix_tokens=9, cache_key="sha256:22"),
        ),
    )  # fmt: skip
    after = replace(
        whole,
        version="0.2.0",
        findings=(clock, finding(fingerprint="2", path="app/new.py", line=4, expression="uuid4()", rule="random-in-prefix", call_site="app/new.py::ask::s")),
        call_sites=(
            agent,
            mail,
            replace(mail, id="app/new.py::ask::s", path="app/new.py", sink="s", cacheable_prefix_tokens=9, cache_key="sha256:22"),
        ),
    )  # fmt: skip
    orders = (
        OrderItem(SITE, ("clock", "rules"), ("rules", "clock"), 0.12, 0.71),
        OrderItem(OTHER, ("a",), ("b",), 0, 1),
    )
    verdicts = (VerdictItem("chat", "fix-prompts-first", "the prompts lose more than any engine gains"),)
    diff = compare(Side("main", "1" * 40, before), Side(".", None, after, orders), verdicts)
    return replace(diff, replay=ReplayItem(30, 2, 0.7, 0.1, 9000, 9100, (ReplayedSite(SITE, 30, 0.7, 0.1),)))
