"""The shape of rule pages, and their programs run as tests."""

import pytest
from cases_harness import cases_of, mismatches, without_remarks

from promptlint.app.check import Request
from promptlint.app.fix import fix
from promptlint.catalog import rules_root
from promptlint.catalog.rules import CATEGORIES, load_rules, parse_page
from promptlint.checks import parameters
from promptlint.config import load_settings
from promptlint.errors import UserError
from promptlint.fixes import FIXERS

RULES = load_rules()
PROGRAMS = [(rule.name, case) for rule in RULES.values() for case in cases_of(rule.path, rule=rule.name)]
HEADINGS = ["## Why it costs you", "## Flagged", "## Fixed", "## Fine", "## Limits"]


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_page_has_its_parts_in_order(rule):
    headings = [line for line in rule.body.splitlines() if line.startswith("## ")]
    assert headings == [heading for heading in HEADINGS if heading in headings]
    assert {"## Why it costs you", "## Flagged", "## Limits"} <= set(headings)
    assert rule.path.stem == rule.name
    assert not rule.name.startswith(("no-", "avoid-"))
    assert rule.help.endswith(".")
    assert not rule.summary.endswith(".")


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.check], ids=lambda rule: rule.name)
def test_a_page_sets_params_that_its_check_knows(rule):
    parameters(rule)


@pytest.mark.parametrize(("name", "case"), PROGRAMS, ids=[f"{name}: {case.title}" for name, case in PROGRAMS])
def test_the_programs_of_a_page(name, case, tmp_path):
    assert mismatches(case, tmp_path) == []


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.fix], ids=lambda rule: rule.name)
def test_the_edits_of_a_page_turn_what_is_flagged_into_what_is_fixed(rule, tmp_path):
    before, after = (
        next(case for case in cases_of(rule.path, rule=rule.name) if case.title == title)
        for title in ("Flagged", "Fixed")
    )
    names = [name for name in before.files if not name.endswith(".toml")]
    (tmp_path / "promptlint.toml").write_text(before.files.get("promptlint.toml", ""))
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(without_remarks(before.files[name]))
    request = Request(tuple(tmp_path / name for name in names), tmp_path)
    done = fix(load_settings(tmp_path), request, {rule.fix})
    done.write()
    assert rule.name in {each.finding.rule for each in done.applied}
    for name in names:
        assert (tmp_path / name).read_text() == without_remarks(after.files[name])
    assert not fix(load_settings(tmp_path), request, {rule.fix}).texts


def test_a_page_says_which_edits_there_are():
    fixable = {rule.name for rule in RULES.values() if rule.fix}
    assert fixable == set(FIXERS)


def test_only_pages_lie_in_the_folders_of_pages():
    for category in CATEGORIES:
        folder = rules_root() / category
        assert [path.name for path in folder.glob("*") if path.suffix != ".md"] == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("no front matter", "begins with TOML"),
        ("+++\nname = \n+++\n", "not valid TOML"),
        ('+++\nname = "a"\n+++\n', "missing keys"),
        ('+++\nname="a"\nsummary="b"\nsince="0.1.0"\nseverity="fatal"\npersona="regular"\n+++\n', "severity"),
        ('+++\nname="a"\nsummary="b"\nsince="0.1.0"\nseverity="low"\npersona="regular"\ncolour="red"\n+++\n', "colour"),
    ],
)
def test_a_page_that_does_not_fit_is_the_users_turn(page, said, tmp_path):
    with pytest.raises(UserError, match=said):
        parse_page(tmp_path / "a.md", page)


def test_params_that_do_not_fit_name_the_page(tmp_path):
    page = '+++\nname="a"\nsummary="b"\nsince="0.1.0"\nseverity="low"\npersona="regular"\ncheck="{}"\nparams={}\n+++\n'
    for check, params, said in (
        ("volatile_in_prefix", "{ sources = ['clock'], colour = 1 }", "unknown"),
        ("volatile_in_prefix", "{}", "missing"),
        ("volatile_in_prefix", "{ sources = ['clock'], min_tokens_behind = 'x' }", "min_tokens_behind"),
        ("runner", "{}", "no check"),
        ("nowhere", "{}", "no check"),
    ):
        rule = parse_page(tmp_path / "a.md", page.format(check, params))
        with pytest.raises(UserError, match=said):
            parameters(rule)


def test_own_rules_replace_and_add(tmp_path):
    folder = tmp_path / "volatility"
    folder.mkdir()
    text = '+++\nname="{}"\nsummary="b"\nsince="0.1.0"\nseverity="low"\npersona="regular"\naliases=["{}"]\n+++\nMine.\n'
    (folder / "ours.md").write_text(text.format("ours", "former-name"))
    (folder / "clock-in-prefix.md").write_text(text.format("clock-in-prefix", "old-clock"))
    rules = load_rules((tmp_path,))
    assert rules["former-name"].name == "ours"
    assert rules.canonical("old-clock") == "clock-in-prefix"
    assert rules["clock-in-prefix"].body == "Mine.\n"
    assert rules.canonical("nothing") is None
    (folder / "third.md").write_text(text.format("third", "ours"))
    with pytest.raises(UserError, match="also stands for"):
        load_rules((tmp_path / "..", tmp_path))
