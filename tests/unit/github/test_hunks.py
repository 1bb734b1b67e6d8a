"""Suggestions of the comment lie in the change."""

from dataclasses import replace

import pytest
from desk_project import commit, git
from diff_sample import changes

from promptlint.app.revision import hunks, resolve
from promptlint.errors import UserError
from promptlint.github import _within_change
from promptlint.report.model import Suggestion


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "long.py").write_text("".join(f"a{number} = 1\n" for number in range(40)))
    commit(tmp_path)
    return tmp_path


def test_hunks_count_lines_of_the_new_side_with_their_context(repository):
    base = resolve("HEAD", repository)
    file = repository / "app" / "long.py"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:20], "new = 2\n", *lines[20:]]))
    assert hunks(base, repository) == {"app/long.py": [(18, 24)]}
    assert hunks(base, repository / "app") == {"long.py": [(18, 24)]}
    with pytest.raises(UserError, match="git diff"):
        hunks("0" * 40, repository)


@pytest.mark.parametrize(("place", "kept"), [((18, 24), True), ((17, 18), False), ((24, 25), False)])
def test_a_suggestion_outside_of_the_hunks_is_left_out(place, kept):
    diff = changes()
    finding = replace(diff.new_findings[0], suggestion=Suggestion(*place, 10, "a = 1"))
    shown = _within_change(replace(diff, new_findings=(finding,)), {finding.path: [(1, 4), (18, 24)]})
    assert (shown.new_findings[0].suggestion is not None) is kept
