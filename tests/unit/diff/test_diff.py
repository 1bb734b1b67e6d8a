"""`promptlint diff`: what counts as the same, what changed, and that every format says it with the same numbers."""

from __future__ import annotations

import copy
import html
import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from desk_project import CLOCKED, STILL, commit, git, project, promptlint
from diff_sample import changes
from report_sample import everything

from promptlint.app.diff import Side, compare, drop, exceeded
from promptlint.report import diff as text
from promptlint.report.diff_markdown import markdown
from promptlint.report.diff_model import from_json, to_json
from promptlint.report.diff_schema import diff_schema
from promptlint.report.words import percent, tokens

ROOT = Path(__file__).parents[3]


def test_golden(golden):
    golden("diff/full.txt", text.full(changes()))
    golden("diff/json.json", text.json(changes()))
    golden("diff/markdown.md", markdown(changes()))


def test_json_follows_the_schema_and_is_read_back():
    jsonschema.Draft202012Validator.check_schema(diff_schema())
    data = json.loads(text.json(changes()))
    jsonschema.validate(data, diff_schema())
    assert json.loads(json.dumps(to_json(from_json(data)))) == data


@pytest.mark.parametrize("spoil", [
    lambda data: data.pop("notes"),
    lambda data: data.update(extra=1),
    lambda data: data.update(schema="promptlint.diff/2"),
    lambda data: data.update(once_tokens="9"),
    lambda data: data.update(once_tokens=True),
    lambda data: data["call_sites"][0].update(line=None),
    lambda data: data["call_sites"][0].update(hit_rate_base=1e300),
    lambda data: data["new_findings"][0].update(message=["x"]),
    lambda data: data.update(base=[]),
])  # fmt: skip
def test_what_is_no_diff_is_refused(spoil):
    data = copy.deepcopy(json.loads(text.json(changes())))
    spoil(data)
    with pytest.raises(ValueError):
        from_json(data)


def test_matching():
    diff = changes()
    by_id = {site.id: site for site in diff.call_sites}
    agent, mail, new = (
        by_id[name] for name in sorted(by_id, key=lambda each: ("agent" not in each, "mail" not in each))
    )
    assert (agent.status, agent.cache_key_changed, agent.once_tokens) == ("changed", True, 12 * 4)
    assert mail.status == "new"
    assert (new.base_id, new.status) == ("app/old.py::ask::s", "same")
    assert [finding.rule for finding in diff.new_findings] == ["clock-in-prefix"]
    assert [finding.rule for finding in diff.fixed_findings] == ["unordered-iteration"]
    assert [(moved.base_path, moved.finding.path) for moved in diff.moved_findings] == [("app/old.py", "app/new.py")]
    assert diff.unchanged_findings == 0
    assert [order.call_site for order in diff.orders] == [agent.id, mail.id]


def test_nothing_changed():
    same = compare(Side("a", None, everything()), Side("b", None, everything()))
    assert not same.changed
    assert same.headline is None
    assert same.unchanged_findings == len(everything().findings)
    assert text.full(same).startswith("No estimated hit rate changes.\n\nno call site changed\n")
    assert not exceeded(same, fail_on="low", max_drop=0)


def moved_to(site, path, function="SupportBot.answer", **changes):
    return replace(site, id=f"{path}::{function}::{site.sink}", path=path, **changes)


@pytest.mark.parametrize(
    ("path", "function", "changes", "same"),
    [
        (
            "app/agent.py",
            "SupportBot.reply",
            {"cache_key": "sha256:77"},
            True,
        ),  # a renamed function, the only one of its file
        ("lib/agent.py", "SupportBot.answer", {"cache_key": "sha256:77"}, True),  # a renamed folder
        ("app/clerk.py", "SupportBot.answer", {"cache_key": "sha256:77"}, True),  # a renamed file
        ("app/clerk.py", "Clerk.reply", {}, True),  # both renamed, the prompt as it was
        ("app/clerk.py", "Clerk.reply", {"cache_key": "sha256:77"}, False),
        ("app/clerk.py", "SupportBot.answer", {"cache_key": "sha256:77", "blocks": ()}, False),
    ],
)
def test_renames(path, function, changes, same):
    agent = replace(everything().call_sites[0], cacheable_prefix_tokens=12)
    before = replace(everything(), call_sites=(agent,))
    after = replace(everything(), call_sites=(moved_to(agent, path, function, **changes),))
    diff = compare(Side("a", None, before), Side("b", None, after))
    assert [site.base_id for site in diff.call_sites if site.status not in ("new", "gone")] == (
        [agent.id] if same else []
    )


def test_thresholds():
    diff = changes()
    assert drop(diff) == pytest.approx(70.52)
    assert exceeded(diff, fail_on="high", max_drop=71) == ["1 new finding of severity high or above"]
    assert exceeded(diff, fail_on=None, max_drop=70) == ["a hit rate falls by 70.5 points, 70 are allowed"]
    fixed = compare(Side("a", None, everything()), Side("b", None, replace(everything(), findings=())))
    assert exceeded(fixed, fail_on="low", max_drop=0) == []


def test_a_comparison_across_profiles_says_so():
    other = replace(everything(), assumptions={**everything().assumptions, "profile": "high"})
    assert "different assumptions (profile)" in compare(Side("a", None, everything()), Side("b", None, other)).notes[0]


def rows(output: str) -> list[list[str]]:
    """The cells of a table in text or Markdown."""
    lines = [html.unescape(re.sub(r"</?code>", "", line)) for line in output.splitlines()]
    if any(line.startswith("| ") for line in lines):
        return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("| ")]
    start = next(number for number, line in enumerate(lines) if line.startswith("call site "))
    return [re.split(r"\s{2,}", line.strip()) for line in lines[start : lines.index("", start)]]


def arrow(base, head, write):
    return write(head) if write(base) == write(head) else f"{write(base)} → {write(head)}"


def test_the_examples_give_the_same_table_in_text_markdown_and_json():
    sides = ("examples/support_bot", "examples/support_bot_fixed")
    forms = {
        form: promptlint("diff", *sides, "--output-format", form, cwd=ROOT).stdout
        for form in ("full", "markdown", "json")
    }
    data = json.loads(forms["json"])
    jsonschema.validate(data, diff_schema())
    table = [
        [
            site["id"].rpartition("::")[0],
            arrow(site["hit_rate_base"], site["hit_rate_head"], percent),
            arrow(site["prompt_tokens_base"], site["prompt_tokens_head"], tokens),
            arrow(site["prefix_tokens_base"], site["prefix_tokens_head"], tokens),
            "changed" if site["cache_key_changed"] else "same",
        ]
        for site in data["call_sites"]
    ]
    assert len(table) == 3
    assert rows(forms["full"])[1:] == rows(forms["markdown"])[1:] == table
    assert rows(forms["full"])[0] == rows(forms["markdown"])[0] == list(text.HEADER)
    assert len(data["fixed_findings"]) == 3
    assert not data["new_findings"]
    assert forms["full"].startswith(
        "Estimated hit rate 0 % → 77 % on `support/desk.py::answer`: `datetime.now().isoformat()` no longer stands ahead"
    )


def test_reports_compare_like_the_folders_they_came_from(tmp_path):
    for name in ("support_bot", "support_bot_fixed"):
        promptlint(
            "check",
            f"examples/{name}",
            "--no-cache",
            "--output-format",
            "json",
            "-o",
            tmp_path / f"{name}.json",
            cwd=ROOT,
        )
    reports = json.loads(
        promptlint(
            "diff",
            tmp_path / "support_bot.json",
            tmp_path / "support_bot_fixed.json",
            "--output-format",
            "json",
            cwd=ROOT,
        ).stdout
    )
    folders = json.loads(
        promptlint(
            "diff", "examples/support_bot", "examples/support_bot_fixed", "--output-format", "json", cwd=ROOT
        ).stdout
    )
    for key in ("hit_rate_base", "hit_rate_head", "once_tokens", "status"):
        assert [site[key] for site in reports["call_sites"]] == [site[key] for site in folders["call_sites"]]
    assert len(reports["fixed_findings"]) == 3


def test_revisions_are_read_without_touching_the_checkout(tmp_path):
    folder = project(tmp_path / "p", app=STILL)
    first = commit(folder)
    (folder / "app.py").write_text(CLOCKED)
    commit(folder)
    (folder / "app.py").write_text("this is not committed and not Python")
    before = git(folder, "status", "--porcelain"), sorted(path.name for path in folder.iterdir())
    done = promptlint("diff", first[:10], "main", "--output-format", "json", cwd=folder)
    assert (git(folder, "status", "--porcelain"), sorted(path.name for path in folder.iterdir())) == before
    data = json.loads(done.stdout)
    assert data["base"]["commit"] == first
    assert [finding["path"] for finding in data["new_findings"]] == ["app.py"]
    assert data["headline"]["expression"] == "dt.datetime.now()"
    assert data["headline"]["hit_rate_base"] > 0.8 > 0.1 > data["headline"]["hit_rate_head"]
    assert done.returncode == 0
    assert promptlint("diff", first, "main", "--fail-on", "high", cwd=folder).returncode == 1
    assert promptlint("diff", first, "main", "--max-hit-rate-drop", "20", cwd=folder).returncode == 1
    assert (
        promptlint("diff", "main", first, "--max-hit-rate-drop", "20", "--fail-on", "low", cwd=folder).returncode == 0
    )


def state(folder):
    """All that a user would notice of a repository: files, index, branches, worktrees."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if ".git" not in path.parts)
    commands = (
        ("status", "--porcelain"),
        ("ls-files", "-s"),
        ("worktree", "list"),
        ("for-each-ref",),
        ("rev-parse", "--symbolic-full-name", "HEAD"),
    )
    return files, [git(folder, *command) for command in commands]


def test_revisions_in_every_kind_of_checkout(tmp_path):
    origin = project(tmp_path / "origin", app=STILL)
    commit(origin)
    library = project(tmp_path / "library", other=CLOCKED)
    commit(library)
    git(origin, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "vendor")
    (origin / "app.py").write_text(CLOCKED)
    commit(origin)
    git(origin, "worktree", "add", "-q", "--detach", str(tmp_path / "worktree"), "main~1")
    git(tmp_path, "clone", "-q", f"file://{origin}", "sparse")
    git(tmp_path / "sparse", "sparse-checkout", "set", "--no-cone", "/pyproject.toml")
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{origin}", "shallow")
    git(tmp_path / "shallow", "checkout", "-q", "--detach", "main")
    (origin / "app.py").write_text("dirty")
    (origin / "vendor" / "new.txt").write_text("in the submodule")
    wrong = {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index", "GIT_WORK_TREE": "/nowhere"}  # as in a hook
    for folder, environment in (
        (origin, {}),
        (origin, wrong),
        (tmp_path / "worktree", {}),
        (tmp_path / "sparse", {}),
        (tmp_path / "shallow", {}),
    ):
        before = state(folder)
        head = "origin/main" if folder.name == "sparse" else "main"
        done = promptlint("diff", f"{head}~1", head, cwd=folder, **environment)
        assert "on `app.py::ask`: `dt.datetime.now()` now stands ahead" in done.stdout, (folder.name, done.stderr)
        assert "vendor" not in done.stdout
        assert state(folder) == before, folder.name


def test_a_base_that_a_shallow_clone_does_not_hold(tmp_path):
    origin = project(tmp_path / "origin", app=STILL)
    commit(origin)
    commit(origin)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "shallow")
    done = promptlint("diff", "HEAD~1", cwd=tmp_path / "shallow")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "promptlint: error: HEAD~1: neither a file, a folder nor a git revision (a shallow clone holds few of them)\n"
    )


def test_the_working_tree_is_the_head_by_default(tmp_path):
    folder = project(tmp_path / "p", app=STILL)
    commit(folder)
    (folder / "app.py").write_text(CLOCKED)
    assert "0.3 % on `app.py::ask`" in promptlint("diff", "HEAD", cwd=folder).stdout


def test_a_workload_gets_its_verdict(tmp_path):
    folder = project(tmp_path / "p", app=STILL)
    done = promptlint(
        "diff",
        ".",
        ".",
        "--workload",
        ROOT / "examples/workloads/unique_prompts.yaml",
        "--output-format",
        "json",
        cwd=folder,
    )
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert verdict["verdict"] == "stay-on-vllm"
    assert verdict["because"]


def test_a_prompt_below_the_minimum_and_a_renamed_file_are_explained(tmp_path):
    short = STILL.replace(CLOCKED.split('"""')[1], "Be kind and short. " * 50).replace(
        'model="m"', 'model="claude-sonnet-4-5"'
    )
    folder = project(tmp_path / "p", app=short)
    commit(folder)
    (folder / "app.py").rename(folder / "agent.py")
    (folder / "agent.py").write_text((folder / "agent.py").read_text().replace("kind", "nice"))
    lines = promptlint("diff", "HEAD", cwd=folder).stdout.splitlines()
    assert any(line.startswith("agent.py::ask (was app.py::ask)  0 %") for line in lines)
    (note,) = [line for line in lines if line.startswith("note: ")]
    assert re.fullmatch(
        r"note: agent.py::ask: Anthropic caches prompts from 1,024 tokens on, this one has \d{2,3}", note
    )
    assert lines[-1].startswith("HEAD (")
    assert "→ working tree at 0 %" in lines[-1]
    (key,) = [line for line in lines if line.startswith("1 cache key changed")]
    assert key.endswith("on 4 replicas.")  # nothing is said of conversations where there are none


def test_complaints(tmp_path):
    folder = project(tmp_path / "p", app=STILL)
    commit(folder)
    (folder / "x.json").write_text("{}")
    for arguments, words in (
        (("nope",), "neither a file, a folder nor a git revision"),
        (("x.json",), "not a report of"),
        (("HEAD", "--path", "no.py"), "holds none"),
    ):
        done = promptlint("diff", *arguments, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
