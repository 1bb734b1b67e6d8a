"""Prompts of a file that is used, which themselves nothing mentions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from promptlint.ir import Confidence, Reading

Read = Callable[..., Reading]

RULES = "You must answer in one short sentence. You should never guess, and you must not repeat the question. Do not use headings, tables or lists."
USED = f'ANSWER_PROMPT = """Question: {{question}}\n\n{RULES}"""\n'
OLD = f'OLD_PROMPT = """Excerpt: {{excerpt}}\n\n{RULES} Answer with the number of the excerpt alone."""\n'
CALL = "import prompts\n\n\ndef ask(model, question):\n    return model.answer_it(prompts.ANSWER_PROMPT.format(question=question))\n"


def confidence(reading: Reading, word: str) -> Confidence:
    """Of the one prompt whose text holds a word."""
    (found,) = {prompt.confidence for prompt in reading.prompts if word in repr(prompt.blocks)}
    return found


def test_a_constant_that_nobody_mentions_is_doubted(read: Read) -> None:
    reading = read(**{"prompts.py": USED + OLD, "app.py": CALL})
    assert confidence(reading, "Excerpt") is Confidence.LOW
    assert confidence(reading, "Question") > Confidence.LOW


@pytest.mark.parametrize(
    ("prompts", "app"),
    [
        (USED + OLD, CALL.replace("import prompts", "import prompts\nfrom prompts import OLD_PROMPT")),
        (USED + OLD + "ALL = [ANSWER_PROMPT, OLD_PROMPT]\n", CALL),
        (USED + OLD, CALL + "\n\ndef by_name(kind):\n    return getattr(prompts, kind + '_PROMPT')\n"),
        (USED + OLD, CALL + "\n\nNAMES = ['OLD_PROMPT']\n"),
        (USED + OLD, "import sys\n"),  # nobody uses the file: it may be made for other projects
        (OLD, CALL.replace("prompts.ANSWER_PROMPT", "'{question}'")),
    ],
    ids=[
        "imported",
        "in a list",
        "by a name made at run time",
        "in a text",
        "file that nobody uses",
        "alone in its file",
    ],
)
def test_what_may_be_used_is_not_doubted(read: Read, prompts: str, app: str) -> None:
    assert confidence(read(**{"prompts.py": prompts, "app.py": app}), "Excerpt") > Confidence.LOW


FUNCTION = f'{{decorator}}def old_prompt(excerpt):\n    return f"""Excerpt: {{{{excerpt}}}}\n\n{RULES} Answer with the number of the excerpt alone."""\n'


@pytest.mark.parametrize(
    ("decorator", "doubted"), [("", True), ("@cache\n", True), ("@registry.prompt\n", False), ("@tool('x')\n", False)]
)
def test_a_function_counts_as_used_where_a_decorator_may_call_it(read: Read, decorator: str, doubted: bool) -> None:
    text = USED + "\n\n" + FUNCTION.format(decorator=decorator)
    assert (confidence(read(**{"prompts.py": text, "app.py": CALL}), "Excerpt") is Confidence.LOW) is doubted


@pytest.mark.parametrize(("bases", "doubted"), [("", True), ("()", True), ("(Base)", False)])
def test_a_method_counts_as_used_where_another_class_may_call_it(read: Read, bases: str, doubted: bool) -> None:
    method = "\n".join(
        ("    " + line).rstrip()
        for line in FUNCTION.format(decorator="").replace("(excerpt)", "(self, excerpt)").splitlines()
    )
    text = f"{USED}\n\nclass Prompts{bases}:\n{method}\n"
    app = CALL + "\n\nPROMPTS = prompts.Prompts()\n"
    assert (confidence(read(**{"prompts.py": text, "app.py": app}), "Excerpt") is Confidence.LOW) is doubted


ENTRIES = f'PROMPTS = {{}}\n\nPROMPTS["answer"] = """Question: {{question}}\n\n{RULES}"""\n\nPROMPTS["old_answer"] = """Excerpt: {{excerpt}}\n\n{RULES} Answer with the number of the excerpt alone."""\n'
ASKED = "from prompts import PROMPTS\n\n\ndef ask(model, question):\n    return model.answer_it(PROMPTS['answer'].format(question=question))\n"


@pytest.mark.parametrize(
    ("prompts", "app", "doubted"),
    [
        (ENTRIES, ASKED, True),
        (ENTRIES, ASKED + "\n\nOLD = PROMPTS['old_answer']\n", False),
        (ENTRIES, ASKED + "\n\ndef any_prompt(kind):\n    return PROMPTS[kind]\n", False),
        (ENTRIES, ASKED + "\n\nLOADED = load(PROMPTS)\n", False),
        (ENTRIES + "\n\nfor name, text in PROMPTS.items():\n    register(name, text)\n", ASKED, False),
    ],
    ids=["never asked for", "asked for", "any key", "handed on", "all of them"],
)
def test_an_entry_of_a_dictionary_counts_as_used_where_its_key_may_be_asked_for(
    read: Read, prompts: str, app: str, doubted: bool
) -> None:
    reading = read(**{"prompts.py": prompts, "app.py": app})
    assert (confidence(reading, "Excerpt") is Confidence.LOW) is doubted
    assert confidence(reading, "Question") > Confidence.LOW


@pytest.mark.parametrize(
    ("name", "call", "doubted"),
    [
        ("_reply", "", True),
        ("_reply", "\n\ndef use(bot):\n    return bot._reply([])\n", False),
        ("_reply", "\n\nHANDLERS = {'reply': '_reply'}\n", False),
        ("_reply", "\n\nclass Other(Bot):\n    def _reply(self, messages):\n        return messages\n", True),
        ("reply", "", False),
    ],
)
def test_a_private_method_that_nobody_calls_cuts_no_conversation(
    read: Read, name: str, call: str, doubted: bool
) -> None:
    bot = f"class Bot:\n    def {name}(self, messages):\n        use(messages[0]['role'])\n        return self.llm.chat(messages[-9:])\n"
    (edit,) = read(bot + call).edits
    assert (edit.confidence is Confidence.LOW) is doubted
