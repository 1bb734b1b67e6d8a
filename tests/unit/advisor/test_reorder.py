"""Recommended orders from code, on small programs read by the real front end."""

import textwrap
from pathlib import Path

import pytest

from promptlint.advisor.reorder import propose_all
from promptlint.app.check import Request, analyse, find
from promptlint.config import load_settings

RULES = "RULES = " + repr("Answer from the manual only, and quote the paragraph that you used. " * 90) + "\n"
EXAMPLES = "EXAMPLES = " + repr("Question: how tall is it?\nAnswer: as tall as the manual says it is.\n\n" * 20) + "\n"
HEAD = "import datetime as dt\nimport openai\nclient = openai.OpenAI()\n" + RULES + EXAMPLES


def proposals(tmp_path, body):
    (tmp_path / "app.py").write_text(HEAD + textwrap.dedent(body))
    settings = load_settings(tmp_path, None, isolated=True)
    request = Request((tmp_path,), Path.cwd())
    return propose_all(analyse(settings, request, find(settings, request)).result.call_sites)


def test_a_clock_goes_into_the_newest_message(tmp_path):
    (found,) = proposals(
        tmp_path,
        """
        def answer(question):
            system = f"It is {dt.datetime.now()}. {RULES}"
            return client.chat.completions.create(
                model="gpt-4o-mini", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
            )
        """,
    )
    assert found.hit_rate_now < 0.05
    assert found.hit_rate_then > 0.7
    assert any("datetime" in move and "newest user message" in move for move in found.moved)
    assert found.after.index(next(label for label in found.after if "datetime" in label)) > 0
    assert found.meaning_risk.startswith("unsafe")
    assert found.money_saved > 0
    assert found.diff.startswith("--- now\n+++ recommended\n")


def test_examples_go_ahead_of_the_question(tmp_path):
    (found,) = proposals(
        tmp_path,
        """
        def answer(question):
            return client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": question + "\\n" + EXAMPLES}])
        """,
    )
    assert found.hit_rate_then > 0.8 > 0.2 > found.hit_rate_now
    assert "question" in found.after[-1]


def test_a_value_that_its_text_points_at_stays(tmp_path):
    found = proposals(
        tmp_path,
        """
        def answer(question):
            system = f"Use the time stated below.\\n{dt.datetime.now()}\\n{RULES}"
            return client.chat.completions.create(
                model="gpt-4o-mini", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
            )
        """,
    )
    assert found == []


def test_a_good_order_is_left_alone(tmp_path):
    assert (
        proposals(
            tmp_path,
            """
            def answer(question):
                return client.chat.completions.create(
                    model="gpt-4o-mini", messages=[{"role": "system", "content": RULES}, {"role": "user", "content": question}]
                )
            """,
        )
        == []
    )


def test_a_closing_cue_stays_last(tmp_path):
    (found,) = proposals(
        tmp_path,
        """
        def answer(question):
            text = "Question: " + question + "\\n" + RULES + EXAMPLES + "\\nWhy: " + question + "\\nAnswer:"
            return client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": text}])
        """,
    )
    assert found.hit_rate_then > 0.8
    assert found.diff.rstrip().splitlines()[-1].startswith(" [user] Answer:")


def test_what_a_process_keeps_is_not_moved(tmp_path):
    assert (
        proposals(
            tmp_path,
            """
            import os

            REGION = os.environ["REGION"]

            def answer(question):
                system = f"You answer in {REGION}.\\n{RULES}"
                return client.chat.completions.create(
                    model="gpt-4o-mini", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
                )
            """,
        )
        == []
    )


def test_below_the_provider_s_minimum_the_figures_are_those_of_a_server(tmp_path):
    (found,) = proposals(
        tmp_path,
        """
        def answer(question):
            return client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": question + "\\n" + EXAMPLES}])
        """,
    )
    assert found.hit_rate_then > 0.8
    assert (found.by_terms, found.money_saved) == (False, None)
    assert any("server of one's own" in move for move in found.moved)


def test_call_sites_that_share_texts_get_one_order(tmp_path):
    found = proposals(
        tmp_path,
        """
        def first(question):
            messages = [{"role": "system", "content": RULES}, {"role": "system", "content": EXAMPLES}, {"role": "user", "content": "Long: " + question}]
            return client.chat.completions.create(model="gpt-4o-mini", messages=messages)

        def second(question):
            messages = [{"role": "system", "content": EXAMPLES}, {"role": "system", "content": RULES}, {"role": "user", "content": question}]
            return client.chat.completions.create(model="gpt-4o-mini", messages=messages)
        """,
    )
    assert len(found) == 1
    assert any("share up to" in move for move in found[0].moved)


@pytest.mark.parametrize("name", ["support_bot"])
def test_the_example_app(name):
    root = Path(__file__).resolve().parents[3] / "examples" / name
    settings = load_settings(root, None, isolated=True)
    request = Request((root,), Path.cwd())
    found = propose_all(analyse(settings, request, find(settings, request)).result.call_sites)
    assert any("datetime.now" in move for proposal in found for move in proposal.moved)
