"""Scores the analyser on hand-labelled places in public repositories.

    python tests/tools/score_corpus.py LABELS.jsonl CHECKOUTS [--repo NAME] [--sample 50 --seed 1] [--misses]

`CHECKOUTS` holds one folder for each repository, named `owner+name` (a wheel `pypi:name` as `pypi+name`), at the labelled commit. Each is
analysed without configuration. A positive is hit by a shown finding of the label's family within 3 lines of its place or of one of its hops; a negative
is violated by a shown finding within 1 line of its place that no positive explains. Findings near no label are unknown, not false:
`--sample` draws some of them for a person to judge.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promptlint.app.check import Request, check
from promptlint.config import load_settings
from promptlint.report.model import FindingItem

NEAR_POSITIVE = 3
NEAR_NEGATIVE = 1

DETERMINISM = {"unordered-iteration", "unsorted-listing", "unsorted-json", "random-order"}
HISTORY = {"history-truncated", "history-rewritten", "message-inserted-at-front", "system-message-mutated"}
RULES_OF = {
    "clock": {"clock-in-prefix", "template-clock", "import-time-value-in-prefix", "chat-template-date"},
    "variable": {
        "request-data-before-static",
        "context-before-static",
        "user-data-before-shared",
        "counter-in-prefix",
        "host-state-in-prefix",
        "tools-built-per-request",
        "tool-order-differs",
        "volatile-block-first",
        "volatile-system-message",
    },
    "optional": {"conditional-block-in-prefix"},
    "order": DETERMINISM | {"random-in-prefix", "template-unordered", "template-random"},
    "history": HISTORY | {"volatile-system-message"},
    "layout": {"block-order-differs", "volatile-block-first", "breakpoint-on-volatile"},
}
KINDS_OF = {
    "clock": ["clock-in-prefix", "jinja-clock"],
    "variable": [
        "request-variable-before-static",
        "retrieved-context-before-static",
        "per-user-or-session-before-shared",
        "counter-in-prefix",
        "host-specific",
        "dynamic-tools-list",
    ],
    "optional": ["conditional-block-in-prefix", "jinja-conditional"],
    "order": ["unordered-iteration", "unsorted-json", "filesystem-order", "random-in-prefix", "jinja-loop-unordered"],
    "history": ["history-rewritten-or-truncated-from-front", "message-inserted-at-front", "system-mutated-per-turn"],
    "layout": ["block-order-differs-between-call-sites", "cache-control-misplaced"],
}
FAMILY_OF = {kind: family for family, kinds in KINDS_OF.items() for kind in kinds}


@dataclass(slots=True)
class Result:
    """What one repository's run showed, and how it compares with the labels."""

    hits: dict[str, FindingItem] = field(default_factory=dict)  # label id -> finding
    misses: list[dict[str, Any]] = field(default_factory=list)
    violated: list[tuple[dict[str, Any], FindingItem]] = field(default_factory=list)
    unlabelled: list[FindingItem] = field(default_factory=list)


def places(label: dict[str, Any]) -> list[tuple[str, int]]:
    """The label's own place and its hops."""
    found = [(label["path"], label["line"])]
    for hop in label.get("hops", ()):
        path, _, line = hop.rpartition(":")
        found.append((path, int(line)))
    return found


def near(finding: FindingItem, where: Iterable[tuple[str, int]], distance: int) -> bool:
    """Whether the finding's primary place lies within so many lines of one of the places."""
    return any(finding.path == path and abs(finding.line - line) <= distance for path, line in where)


def explains(label: dict[str, Any], finding: FindingItem) -> bool:
    """Whether a finding is a hit for a positive."""
    return finding.rule in RULES_OF[FAMILY_OF[label["kind"]]] and near(finding, places(label), NEAR_POSITIVE)


def compare(labels: list[dict[str, Any]], findings: list[FindingItem]) -> Result:
    """One repository's labels against its shown findings."""
    result = Result()
    positives = [label for label in labels if label["label"] == "positive"]
    for label in positives:
        hit = next((finding for finding in findings if explains(label, finding)), None)
        if hit is None:
            result.misses.append(label)
        else:
            result.hits[label["id"]] = hit
    explained = [finding for finding in findings if any(explains(label, finding) for label in positives)]
    for label in labels:
        if label["label"] == "negative":
            for finding in findings:
                if finding not in explained and near(finding, places(label)[:1], NEAR_NEGATIVE):
                    result.violated.append((label, finding))
                    break
    everywhere = [place for label in labels for place in places(label)]
    result.unlabelled = [
        finding for finding in findings if finding not in explained and not near(finding, everywhere, NEAR_POSITIVE)
    ]
    return result


def recall(title: str, groups: dict[str, list[bool]]) -> None:
    """One line for each group."""
    for name, hits in sorted(groups.items()):
        print(f"  {title:<10} {name:<24} {sum(hits):>3} / {len(hits):<3} {sum(hits) / len(hits):6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--repo", action="append", help="only repositories whose name contains this")
    parser.add_argument("--sample", type=int, default=0, help="print so many unlabelled findings, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--misses", action="store_true", help="list the positives that no finding hits")
    arguments = parser.parse_args()

    by_repository: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in arguments.labels.read_text("utf-8").splitlines():
        label = json.loads(line)
        by_repository[label["repo"]].append(label)

    groups: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    misses: list[dict[str, Any]] = []
    violated: list[tuple[dict[str, Any], FindingItem]] = []
    unlabelled: list[tuple[str, FindingItem]] = []
    negatives = 0
    for name, labels in sorted(by_repository.items()):
        if arguments.repo and not any(part in name for part in arguments.repo):
            continue
        folder = arguments.checkouts / name.replace("/", "+").replace("pypi:", "pypi+")
        if not folder.is_dir():
            print(f"not checked out: {folder}")
            continue
        begin = time.perf_counter()
        report = check(load_settings(folder, isolated=True), Request((folder,), folder), use_cache=False)
        findings = list(report.findings)
        result = compare(labels, findings)
        rules = Counter(finding.rule for finding in findings)
        print(
            f"{name}: {len(result.hits)} hit, {len(result.misses)} missed, {len(result.violated)} violated; "
            f"{len(findings)} findings, {len(result.unlabelled)} near no label; {time.perf_counter() - begin:.1f} s; "
            + ", ".join(f"{rule} {count}" for rule, count in rules.most_common())
        )
        for label in labels:
            if label["label"] == "negative":
                negatives += 1
                continue
            hit = label["id"] in result.hits
            groups["all"]["all"].append(hit)
            groups["severity"][label["severity"]].append(hit)
            groups["confidence"][label["confidence"]].append(hit)
            groups["family"][FAMILY_OF[label["kind"]]].append(hit)
            for tag in label["style_tags"] or ["none"]:
                groups["style"][tag].append(hit)
        misses.extend(result.misses)
        violated.extend(result.violated)
        unlabelled.extend((name, finding) for finding in result.unlabelled)

    print("\nRecall")
    for title, parts in groups.items():
        recall(title, parts)
    print(f"\nNegatives violated: {len(violated)} of {negatives}")
    for label, finding in violated:
        print(f"  {label['id']} {label['path']}:{label['line']} ({label['kind']}: {label['why']})")
        print(f"    {finding.line}: {finding.rule} [{finding.confidence}] {finding.message}")
    if arguments.misses:
        print("\nMissed")
        for label in misses:
            print(
                f"  {label['id']} {label['path']}:{label['line']} {label['kind']} {label['severity']} {label['dynamic_source']}"
            )
    print(f"\nFindings near no label: {len(unlabelled)}")
    if arguments.sample:
        drawn = random.Random(arguments.seed).sample(unlabelled, min(arguments.sample, len(unlabelled)))
        for name, finding in sorted(drawn, key=lambda each: (each[0], each[1].path, each[1].line)):
            print(
                f"  {name} {finding.path}:{finding.line} {finding.rule} {finding.severity}/{finding.confidence}: {finding.message}"
            )


if __name__ == "__main__":
    main()
