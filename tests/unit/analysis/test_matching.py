"""Requests find their call site, and the holes their measured values."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptlint.analysis import matching
from promptlint.analysis.matching import Matcher, joined, measure, offset_of, volatility_of, with_measured
from promptlint.ir import Block, BlockKind, Confidence, Hole, Prompt, Reading, Text, Volatility, blocks_of, holes_of
from promptlint.source import Span
from promptlint.traffic.parts import parts_of
from promptlint.traffic.record import Record

HERE = Span("a.py", 1, 1, 1, 2, exact=False)
RULES = "Answer from the manual only, and name the page. "
CLOSING = "\nNever guess, and say so when the manual is silent."


def hole(name):
    return Hole(name, HERE, Volatility.REQUEST, Confidence.LOW, name=name)


def prompt(function, *segments, kind=BlockKind.SYSTEM):
    written = tuple(Text(part, HERE) if isinstance(part, str) else part for part in segments)
    question = Block(BlockKind.QUESTION, "user", (hole("question"),), HERE)
    return Prompt("a.py", function, "openai.chat", HERE, (Block(kind, "system", written, HERE), question))


def record(text, question="Where?", **fields):
    return Record(messages=[{"role": "system", "content": text}, {"role": "user", "content": question}], **fields)


def test_the_values_of_holes():
    site = prompt("ask", "You help ", hole("name"), ". " + RULES, hole("page"), CLOSING)
    matcher = Matcher([site, prompt("other", "Another text that stands elsewhere. ", hole("x"), RULES)])
    found = matcher.match(record(f"You help Ada. {RULES}page 7{CLOSING}", "Where is it?"))
    assert found.call_site == "a.py::ask::openai.chat"
    assert [(value.hole.name, value.text) for value in found.values] == [
        ("name", "Ada"),
        ("page", "page 7"),
        ("question", "Where is it?"),
    ]
    request = record(f"You help Ada. {RULES}page 7{CLOSING}")
    parts = parts_of(request)
    assert joined(parts)[offset_of(parts, 1, 9)] == "A"
    assert found.hole_at(offset_of(parts, 1, 9)).name == "name"


def test_plain_prompts_and_the_longer_of_two_sites():
    short, long = prompt("short", RULES), prompt("long", RULES, hole("x"), CLOSING)
    matcher = Matcher([short, long])
    assert matcher.match(Record(prompt=f"{RULES}\nsomething{CLOSING}\nQ")).call_site == "a.py::long::openai.chat"
    assert matcher.match(Record(prompt=f"{RULES} something else")).call_site == "a.py::short::openai.chat"
    assert matcher.match(Record(prompt="Nothing of the kind is said here.")) is None


def test_texts_must_stand_in_order():
    matcher = Matcher([prompt("ask", RULES, hole("x"), CLOSING)])
    assert matcher.match(record(CLOSING + RULES)) is None


def test_a_request_that_contradicts_its_call_site():
    matcher = Matcher([prompt("ask", RULES, hole("x"), CLOSING)])
    found = measure([record(RULES + "page", call_site="a.py::ask::openai.chat")], matcher)
    assert found.unmatched == 1
    assert found.mismatches[0].missing == CLOSING.strip()
    assert found.mismatches[0].call_site == "a.py::ask::openai.chat"


DAY = 86_400_000.0


@pytest.mark.parametrize(
    ("values", "sessions", "times", "expected"),
    [
        ("aaaa", "1122", None, Volatility.STATIC),
        ("aabb", "1234", (0, 1, DAY, DAY + 1), Volatility.DAY),
        ("aabb", "1122", None, Volatility.SESSION),
        ("aaaabb", "112233", None, Volatility.USER),
        ("abababab", "12345678", None, Volatility.DOCUMENT),
        ("aaabbbccdd", "1111112222", None, Volatility.DOCUMENT),
        ("aabbcdde", "11111222", None, Volatility.REQUEST),
        ("abcd", "1122", None, Volatility.REQUEST),
    ],
)
def test_volatility_of_values(values, sessions, times, expected):
    rows = [
        (value, session, times[index] if times else None)
        for index, (value, session) in enumerate(zip(values, sessions, strict=True))
    ]
    assert volatility_of(rows) is expected


def test_measures_replace_guesses():
    site = prompt("ask", "You help ", hole("name"), ". " + RULES)
    records = [record(f"You help user {n // 4}. {RULES}", f"Question {n}", session_id=str(n // 4)) for n in range(16)]
    found = measure(records, Matcher([site]))
    name = next(one for one in found.holes if one.hole.name == "name")
    assert (name.requests, name.distinct, name.measured, name.guessed) == (
        16,
        4,
        Volatility.SESSION,
        Volatility.REQUEST,
    )
    assert name.entropy == pytest.approx(2.0)
    (changed,) = with_measured(Reading((site,)), found.holes).prompts
    holes = {one.name: one for block in blocks_of(changed.blocks) for one in holes_of(block.segments)}
    assert (holes["name"].volatility, holes["name"].confidence, holes["name"].tokens_from) == (
        Volatility.SESSION,
        Confidence.HIGH,
        "measured",
    )
    assert holes["question"].volatility is Volatility.REQUEST
    assert with_measured(Reading((site,)), found.holes, least=17).prompts == (site,)


def test_check_takes_measured_volatility(tmp_path):
    """A name that says nothing is a low-confidence guess; the log shows that it changes with every request."""
    import json

    from click.testing import CliRunner

    from promptlint.cli import cli

    (tmp_path / "app.py").write_text(
        f'import openai\nRULES = "{RULES}" * 20\n\n\ndef ask(thing, question):\n    return openai.OpenAI().chat.completions.create(model="m", messages=[{{"role": "system", "content": f"About {{thing}} here.\\n{{RULES}}"}}, {{"role": "user", "content": question}}])\n'
    )
    rows = [
        {
            "messages": [
                {"role": "system", "content": f"About case {n} here.\n{RULES * 20}"},
                {"role": "user", "content": f"Q{n}"},
            ]
        }
        for n in range(20)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def check(*options):
        done = CliRunner().invoke(
            cli, ["check", str(tmp_path / "app.py"), "--output-format", "json", "--exit-zero", *options]
        )
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert check()["findings"] == []
    report = check("--traffic", str(log))
    (site,) = report["call_sites"]
    assert site["blocks"][0]["volatility"] == "request"
    (finding,) = report["findings"]
    assert (finding["line"], finding["volatility"], finding["confidence"]) == (6, "request", "high")
    (tmp_path / "other.jsonl").write_text(json.dumps({"prompt": "something else"}) + "\n")
    done = CliRunner().invoke(cli, ["check", str(tmp_path / "app.py"), "--traffic", str(tmp_path / "other.jsonl")])
    assert done.exit_code == 2
    assert "belongs to a call site" in done.output


@pytest.mark.parametrize(
    "text", ["Template number {n:05} begins here, and has rules of its own. ", RULES * 20 + "No. {n}: " + RULES * 20]
)
def test_a_request_is_compared_with_hardly_more_than_its_own_template(monkeypatch, text):
    """However many templates there are, and however alike: counted, not timed."""
    compared = []
    fit = matching._fit
    monkeypatch.setattr(matching, "_fit", lambda pattern, text: compared.append(pattern) or fit(pattern, text))
    sites = [prompt(f"f{n}", text.format(n=n), hole("x"), CLOSING) for n in range(1000)]
    matcher = Matcher(sites)
    for n in range(2000):
        found = matcher.match(record(f"{text.format(n=n * 7 % 1000)}value {n} {CLOSING}"))
        assert found.call_site == f"a.py::f{n * 7 % 1000}::openai.chat"
    assert len(compared) <= 1.1 * 2000


def test_example_code_and_its_traffic():
    from promptlint.app.traffic import code_matcher
    from promptlint.traffic.read import Traffic

    folder = Path(__file__).parents[3] / "examples" / "support_bot"
    records = list(Traffic([folder / "traffic.jsonl"]))
    names = {}
    for one in records:
        names[id(one)], one.call_site = one.call_site, ""
    matcher = code_matcher([folder])
    matched = [(one, found) for one in records if (found := matcher.match(one)) is not None]
    assert len(matched) >= len(records) // 2
    for one, found in matched:
        assert found.call_site.endswith(names[id(one)])
    clock = next(one for one in measure(records, matcher).holes if "now()" in one.hole.expression)
    assert clock.distinct == clock.requests
    assert clock.measured is Volatility.REQUEST
