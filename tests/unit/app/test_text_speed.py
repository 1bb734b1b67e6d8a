"""The gate on the text path: the work of `simulate`, compared with the tokenizer's alone. Counts of work and ratios of one run, never seconds."""

from __future__ import annotations

import json

from promptlint.app.requests import Renderer, Requests
from promptlint.tokenizers import get
from promptlint.traffic.read import Traffic

RULES = "Answer from the manual only, and say so when it has no answer. " * 100


class Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, inner):
        self.inner, self.name, self.characters = inner, inner.name, 0

    def packed(self, texts):
        self.characters += sum(map(len, texts))
        return self.inner.packed(texts)

    def special(self, text):
        return self.inner.special(text)


def tokenised(tmp_path, monkeypatch, rows, form="auto"):
    """Characters that were tokenised, and characters of all prompts as the plain tags render them."""
    path = tmp_path / "traffic.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    counting = Counting(get("cl100k_base"))
    monkeypatch.setattr("promptlint.tokenizers.get", lambda _: counting)
    made = list(Requests(Traffic([path], format=form), render=Renderer(None, "cl100k_base", marks=False)))
    assert made
    return counting.characters


def test_a_conversation_is_tokenised_once(tmp_path, monkeypatch):
    turns = [
        {"role": role, "content": f"{role} {turn}: " + "words " * 60}
        for turn in range(40)
        for role in ("user", "assistant")
    ]
    row = {"messages": [{"role": "system", "content": RULES}, *turns]}
    distinct = sum(len(message["content"]) for message in row["messages"])
    assert tokenised(tmp_path, monkeypatch, [row], "conversations") < 1.1 * distinct


def test_requests_that_share_a_long_beginning_are_tokenised_little_more_than_once(tmp_path, monkeypatch):
    rows = [
        {"messages": [{"role": "system", "content": RULES}, {"role": "user", "content": f"question {n}"}]}
        for n in range(300)
    ]
    assert tokenised(tmp_path, monkeypatch, rows) < 3 * len(RULES) + 300 * 60


def test_text_without_repetition_is_tokenised_once(tmp_path, monkeypatch):
    rows = [{"prompt": f"{n} " + " ".join(f"w{n}x{word}" for word in range(900))} for n in range(60)]
    assert tokenised(tmp_path, monkeypatch, rows) <= 1.01 * sum(len(row["prompt"]) for row in rows)
