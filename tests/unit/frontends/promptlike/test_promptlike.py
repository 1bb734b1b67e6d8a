"""What looks like a prompt, and what only has slots."""

from __future__ import annotations

import pytest

from promptlint.frontends import promptlike

PROMPTS = [
    "You are a careful editor. Read {text} and return the corrected text only.",
    """Use the passages to answer the question. If you don't know the answer, say so. Do not make up an answer. Keep it short and cite the number of each passage
that you rely on, in square brackets, right behind the sentence that needs it.

Passages:
{context}

Question: {question}
Answer:""",
    """### Task
Classify the mail below. Return one of: complaint, order, other.
Never explain your choice.

### Mail
{{ mail_body }}

### Output format
A JSON object with the key "label".""",
]
OTHERS = [
    "SELECT {columns} FROM orders WHERE total > {total} GROUP BY customer ORDER BY total DESC LIMIT {limit} -- the largest orders of each customer",
    '<html><body><div class="a"><p>Hello {name}</p><p>Your parcel {number} has left our house.</p></div></body></html> and some more words here',
    "Dear {name},\n\nthank you for your order. Please keep your password safe. Click here to follow the parcel.\n\nBest regards,\nYour shop, which you can unsubscribe from at any time",
    "could not open {path}: expected a file with at least {count} rows but found {found}, see the log for all the rows that were left out",
    "Get the rows of a table.\n\nArgs:\n    name: name of the table, such as {name}\n    limit: how many rows to return at most\n\nReturns:\n    the rows, newest first, as a list",
    "usage: tool [OPTIONS] FILE\n\nOptions:\n  --help  show this text\n  --limit N  read at most N rows of {name} and then stop reading",
    "The commands changed in 2.0, and '{command}' was removed. To use them, you write a script and pipe it on stdin; the subcommand is gone. You can read {guide}.\n\nExample:\n  tool run",
    "import json\n\ndef {name}(step=0):\n    # You should run this function, and you must return its answer as JSON. Use it step by step.\n    steps = {steps}\n    return json.dumps(steps)",
    "dataset_path: {path}\ndataset_name: {name}\ntest_split: test\ndoc_to_text: '{text}'\ngeneration_kwargs:\n  max_tokens: 9\nmetric_list:\n  - mean\nmetadata: you can use what you need, at most {n}",
    "Mozilla/5.0 (Windows NT {version}; Win64; x64) AppleWebKit/{build} (KHTML, like Gecko) You must respond with JSON, and you should not, as your output says",
    "Found a list in {place} (index {index}): choose the option {value} at the end of the list that was found, and go on with the one that was selected before it",
    "# Tool\n\n## Installation\n\n```\npip install tool\n```\n\n## Usage\n\nUse it as {you} like. Always read the docs. See ## License for terms and {more}.",
]


@pytest.mark.parametrize("text", PROMPTS)
def test_prompts_are_seen(text: str) -> None:
    likeness = promptlike.score(text)
    assert likeness.is_prompt, str(likeness)


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_are_not(text: str) -> None:
    likeness = promptlike.score(text)
    assert not likeness.is_prompt, str(likeness)


def test_the_name_and_the_use_count() -> None:
    text = "Take {a} and {b} and put them together in a way that reads well to the people of {city}."
    plain = promptlike.score(text)
    assert not plain.is_prompt
    assert promptlike.score(text, "MERGE_PROMPT", ("format-call",)).is_prompt
    assert not promptlike.score(text, "MERGE_PROMPT", ("log",)).is_prompt


def test_a_score_explains_itself() -> None:
    likeness = promptlike.score(PROMPTS[0])
    assert likeness.score == sum(weight for _, weight in likeness.reasons)
    assert "tells a model who it is +2" in str(likeness)
    assert "words" in str(promptlike.score("too short {x}"))


def test_long_texts_cost_little() -> None:
    text = "You are a clerk. " + "word " * 2_000_000
    assert promptlike.score(text).is_prompt


FAILED_QUERY = """You are told that the statement was rejected for safety: {kind} is not allowed here. You must write the query anew.
Do not keep {part}. Use the tables that you have seen, and return the new statement alone."""


def test_what_tells_of_a_failure_is_an_answer_in_a_conversation() -> None:
    assert not promptlike.score(FAILED_QUERY, "check_query", ("f-string",), has_slots=True).is_prompt
    neutral = FAILED_QUERY.replace("rejected for safety", "read").replace("not allowed", "found")
    assert promptlike.score(neutral, "check_query", ("f-string",), has_slots=True).is_prompt


@pytest.mark.parametrize("name", ["handle_fallback", "validate_answer"])
def test_what_a_handler_of_wrong_answers_says_is_no_prompt_of_its_own(name: str) -> None:
    assert promptlike.score(PROMPTS[0], "ask_clerk").is_prompt
    assert not promptlike.score(PROMPTS[0], name).is_prompt
