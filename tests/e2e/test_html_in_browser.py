"""The pages in a real browser: nothing on the console, nothing asked of the network, every number the JSON's, on screens of any width.

Not run where there is no Chromium; the parts over tau-bench's airline traffic need PROMPTLINT_DATA, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, find
from desk_project import promptlint
from html_reader import assert_shows, at

ROOT = Path(__file__).parents[2]
OPENS_WITHIN = 2.0  # seconds

NUMBERS = (
    "[...document.querySelectorAll('data[data-json]')].map(one => [one.dataset.json, one.value, one.innerText.trim()])"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find()
    if path is None:
        pytest.skip("not run: no Chromium")
    with Browser(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def airline() -> list[str | Path]:
    folder = Path(os.environ.get("PROMPTLINT_DATA", ""))
    log, tools = folder / "tau_airline_trajectories.jsonl.gz", folder / "tau_airline_tools.json"
    if not log.is_file():
        pytest.skip("not run: PROMPTLINT_DATA has no tau_airline_trajectories.jsonl.gz")
    return [log, "--format", "conversations", "--tools", tools]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "lab.jsonl"
    subprocess.run(
        [sys.executable, ROOT / "examples" / "radix_lab" / "lab.py", "--traffic", path],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return path


def both(folder: Path, *args: str | Path) -> tuple[Path, Any]:
    """The page of a command, and its JSON report."""
    page = folder / "page.html"
    made = promptlint(*args, "--output-format", "html", "-o", page, cwd=ROOT)
    assert made.returncode in {0, 1}, made.stderr
    return page, json.loads(promptlint(*args, "--output-format", "json", cwd=ROOT).stdout)


def opened(browser: Browser, page: Path) -> None:
    """Open a page and hold it to what all of them promise."""
    browser.look(width=1200)
    seen = browser.open(page)
    assert seen.requests == [page.resolve().as_uri()]
    assert seen.said == []
    for width, dark in ((1200, False), (390, True)):
        browser.look(width=width, dark=dark)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")


def numbers_equal(browser: Browser, report: Any) -> int:
    found = browser.evaluate(NUMBERS)
    for pointer, value, shown in found:
        assert json.loads(value) == at(report, pointer), pointer
        assert_shows(shown, at(report, pointer))
    return len(found)


def test_radix_lab(browser, lab, tmp_path):
    page, report = both(tmp_path, "simulate", lab, "--capacity-tokens", "2500", "--curve")
    opened(browser, page)
    assert numbers_equal(browser, report) > 40
    names = browser.evaluate("[...document.querySelectorAll('.icicle a')].map(one => one.getAttribute('aria-label'))")
    assert sum("branch " in name for name in names) == 8
    assert len(names) == 1 + 8 + 128
    cells = "[...document.querySelectorAll('[aria-label^=\"Branches of\"] tbody tr')].map(row => [4, 5].map(index => +row.cells[index].innerText.replaceAll(',', '')))"
    sums = [sum(column) for column in zip(*browser.evaluate(cells), strict=True)]
    assert sums == [report["prompt_tokens"], report["cached_tokens"]]


@pytest.mark.data
def test_airline(browser, airline, tmp_path):
    page, report = both(tmp_path, "simulate", *airline, "--no-curve", "--capacity-tokens", "40000")
    opened(browser, page)
    assert numbers_equal(browser, report) > 8
    assert "book_reservation" in browser.evaluate("document.querySelector('.icicle text').textContent")
    cells = "[...document.querySelectorAll('[aria-label^=\"Branches of\"] tbody tr')].map(row => [4, 5].map(index => +row.cells[index].innerText.replaceAll(',', '')))"
    sums = [sum(column) for column in zip(*browser.evaluate(cells), strict=True)]
    assert sums == [report["prompt_tokens"], report["cached_tokens"]]
    page, report = both(tmp_path, "diagnose", *airline)
    opened(browser, page)
    assert numbers_equal(browser, report) > 3


@pytest.mark.parametrize(
    "words",
    [
        ("check", "examples/support_bot", "--no-cache"),
        ("diagnose", "examples/support_bot/traffic.jsonl", "--observed", "0.1"),
        ("advise", "examples/support_bot"),
        ("advise", "--workload", "examples/workloads/unique_prompts.yaml", "--no-tipping"),
        ("simulate", "examples/support_bot/traffic.jsonl", "--engine", "openai", "--model", "gpt-4o-mini"),
    ],
)
def test_pages(browser, tmp_path, words):
    page, report = both(tmp_path, *words)
    opened(browser, page)
    assert numbers_equal(browser, report) > 5


def test_a_box_leads_to_its_row_and_has_the_keyboard(browser, lab, tmp_path):
    page, _ = both(tmp_path, "simulate", lab, "--no-curve")
    browser.open(page)
    assert browser.evaluate("document.querySelector('details').open") is False
    browser.evaluate("document.querySelector('.icicle a').focus()")
    assert (
        browser.evaluate("document.activeElement.getAttribute('aria-label')")
        == "1 shared by 128 requests: 1,300 tokens × 128 requests, 99 % hits"
    )
    browser.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
    )
    browser.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)
    assert browser.evaluate(
        "new Promise(done => setTimeout(() => done([location.hash, document.querySelector('details').open]), 300))"
    ) == ["#branch-1", True]


def test_hostile_text_stays_text(browser, tmp_path):
    evil = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\"><a href='javascript:1'>go</a>\u202egnp\u2066 \x00 \ud800"
    log = tmp_path / "evil.jsonl"
    rows = [
        {
            "call_site": evil,
            "messages": [
                {"role": "system", "content": f"{evil} {n} " + "rules " * 60},
                {"role": "user", "content": evil},
            ],
        }
        for n in range(3)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for command in ("simulate", "diagnose"):
        page, report = both(tmp_path, command, log, *(["--curve"] if command == "simulate" else []))
        opened(browser, page)
        assert numbers_equal(browser, report) > 5
        assert browser.evaluate(
            "[document.scripts.length, document.images.length, document.querySelectorAll('a:not([href^=\"#\"])').length]"
        ) == [0, 0, 0]
        assert "promptlint" in browser.evaluate("document.title")
        assert "</script><script>document.title='run'</script>" in browser.evaluate("document.body.textContent")


def test_a_script_would_not_run(browser, tmp_path):
    """Even markup that got through: the policy of the page forbids it."""
    page, _ = both(tmp_path, "check", "examples/support_bot", "--no-cache")
    text = page.read_text("utf-8").replace(
        "<main", "<script>document.title='run'</script><img src='http://192.0.2.1/x.png'/><main", 1
    )
    page.write_text(text, "utf-8")
    seen = browser.open(page)
    assert browser.evaluate("document.title") != "run"
    assert any("Content Security Policy" in line for line in seen.said)


def test_a_hundred_thousand_requests_open_at_once(browser, tmp_path):
    log = tmp_path / "many.jsonl"
    head = list(range(40))
    with log.open("w", encoding="utf-8") as file:
        for number in range(100_000):
            file.write(
                json.dumps({"tokens": [*head, 100 + number % 900, 1000 + number % 7919, 10_000 + number]}) + "\n"
            )
    page = tmp_path / "many.html"
    assert (
        promptlint("simulate", log, "--output-format", "html", "--no-curve", "-o", page, cwd=tmp_path).returncode == 0
    )
    assert page.stat().st_size < 3_000_000
    browser.look(width=1200)
    times = [browser.open(page).seconds for _ in range(3)]
    assert min(times) < OPENS_WITHIN, times
    assert browser.evaluate("document.querySelector('dd data').innerText") != ""


def test_on_paper_what_is_folded_is_printed(browser, lab, tmp_path):
    page, _ = both(tmp_path, "simulate", lab, "--no-curve")
    browser.look(width=800, media="print")
    browser.open(page)
    height = "document.querySelector('details').getBoundingClientRect().height"
    printed = browser.evaluate(height)
    browser.look(width=800)
    assert browser.evaluate("document.querySelector('details').open") is False
    assert printed > 1000 > 100 > browser.evaluate(height)
