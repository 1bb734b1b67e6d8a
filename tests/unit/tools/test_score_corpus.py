"""The scorer's rules: what counts as a hit, what violates a negative, what is unknown."""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from score_corpus import FAMILY_OF, KINDS_OF, RULES_OF, compare

from promptlint.catalog.rules import load_rules


@dataclass(frozen=True)
class Found:
    rule: str
    path: str
    line: int


def positive(line=10, kind="clock-in-prefix", hops=()):
    return {"id": f"p{line}", "label": "positive", "path": "a.py", "line": line, "kind": kind, "hops": list(hops)}


def negative(line):
    return {"id": f"n{line}", "label": "negative", "path": "a.py", "line": line, "kind": "ok:tail", "why": ""}


def test_a_hit_is_of_the_family_and_within_three_lines_of_the_place_or_a_hop():
    hits = [Found("clock-in-prefix", "a.py", 13), Found("template-clock", "a.py", 7)]
    assert all(compare([positive()], [each]).hits for each in hits)
    assert compare([positive(hops=["b.py:40"])], [Found("clock-in-prefix", "b.py", 38)]).hits
    wrong = [
        Found("clock-in-prefix", "a.py", 14),
        Found("random-in-prefix", "a.py", 10),
        Found("clock-in-prefix", "b.py", 10),
    ]
    assert not any(compare([positive()], [each]).hits for each in wrong)


def test_a_negative_is_violated_within_one_line_unless_a_positive_explains_the_finding():
    assert compare([negative(20)], [Found("clock-in-prefix", "a.py", 21)]).violated
    assert not compare([negative(20)], [Found("clock-in-prefix", "a.py", 22)]).violated
    assert not compare([negative(20), positive(19)], [Found("clock-in-prefix", "a.py", 20)]).violated
    assert compare([negative(20), positive(19)], [Found("random-in-prefix", "a.py", 20)]).violated


def test_findings_near_no_label_are_unknown():
    far, close = Found("clock-in-prefix", "a.py", 50), Found("random-in-prefix", "a.py", 11)
    assert compare([positive()], [far, close]).unlabelled == [far]


def test_every_family_has_rules_and_kinds_and_every_rule_exists():
    assert set(RULES_OF) == set(KINDS_OF) == set(FAMILY_OF.values())
    known = set(load_rules())
    later = {"chat-template-date", "breakpoint-on-volatile"}  # rules of other categories
    assert set().union(*RULES_OF.values()) - later <= known
