"""The cases beyond the rule pages."""

from pathlib import Path

import pytest
from cases_harness import cases_of, mismatches

CASES = [
    (page.relative_to(Path(__file__).parent).with_suffix("").as_posix(), case)
    for page in sorted(Path(__file__).parent.glob("*/*.md"))
    for case in cases_of(page)
]


@pytest.mark.parametrize(("page", "case"), CASES, ids=[f"{page}: {case.title}" for page, case in CASES])
def test_case(page, case, tmp_path):
    assert mismatches(case, tmp_path) == []
