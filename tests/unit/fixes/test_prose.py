"""What goes along with a value, and what stays where it is."""

import pytest

from promptlint.fixes.prose import Prose, plan, to_the_end

RULES = "Answer from the manual only. Keep it short."


def _moved(text):
    """The text with the move of its first slot `@` shown: (what goes, what stands behind its goal), or None."""
    slots = [(index, index + 1) for index, char in enumerate(text) if char == "@"]
    move = plan(Prose(text, slots), *slots[0])
    return (text[move.start : move.end].strip(), text[move.goal :].strip()) if move else None


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        (f"Question: @\n\n{RULES}", "Question: @"),
        (f"Be kind.\n\n# Context\n@\n\n{RULES}", "# Context\n@"),
        (f"<docs>\n@\n</docs>\n\n{RULES}", "<docs>\n@\n</docs>"),
        (f"=== REPORT ===\n@\n=== END OF REPORT ===\n\n{RULES}", "=== REPORT ===\n@\n=== END OF REPORT ==="),
        (f"You are kind. Today is @. {RULES}", "Today is @."),
        (f"Question: @\nA: @\nB: @\n\n{RULES}", "Question: @\nA: @\nB: @"),
        (f"Your manager gave you a task.\n---\nTask:\n@\n---\n{RULES}", "---\nTask:\n@\n---"),
        (f"Resources:\n\n@\nNews: @\nDebate: @\n{RULES}", "Resources:\n\n@\nNews: @\nDebate: @"),
        (f"Be kind.\nCriteria: @\n@\n{RULES}", "Criteria: @\n@"),
        (f"  Be kind.\n  Task: @Response: @\n  {RULES}", "Task: @Response: @"),
        (f"Time: @ UTC\n{RULES}", "Time: @ UTC"),
        (f"Be kind.\n\nThe following is an abstract.\n\n@\n\n{RULES}", "The following is an abstract.\n\n@"),
    ],
)
def test_a_value_takes_along_what_says_what_it_is(text, goes):
    assert _moved(text) == (goes, "")


@pytest.mark.parametrize(
    "text",
    [
        f"@\n\nUsing the text above, write a report. {RULES}",
        f"1. Read @.\n2. Answer.\n\n{RULES}",
        f"```\nname = @\n```\n{RULES}",
        f'{{\n  "name": "@"\n}}\n\n{RULES}',
        f"Greet the guest (whose name is @. And so on). {RULES}",
        f"Today is @. It is a holiday. {RULES}",
        f"- Be kind.\n- Speak to @ politely.\n- Be brief.\n\n{RULES}",
        f"[BEGIN DATA]\n[Question]: @\n[END DATA]\n{RULES}",
        f"You will first see a sheet.\n@\n\n{RULES}",
        f"{RULES}\n\nQuestion: @\nAnswer:",
        f"History:\n\n@\n\n{RULES}\n<|im_end|>\n<|im_start|>assistant\n",
        f"## File content\n## Created:\n@\n\n## End file content\n{RULES}",
        f"You speak for the {'very ' * 40}careful side. Here is the decision:\n\n@\n\n{RULES}",
        f"We address a request of the user:\n\n@\n\nTo answer this request we have a team. {RULES}",
        f"You were given this task.\n---\nTask:\n@\n---\n{RULES}",
        f"Recall the request:\n\n@\n\nAnd we have a team. {RULES}",
        f"{RULES} Additionally rate how it answers @. {RULES}",
        f"You are given a text below. Be kind.\n\n@\n\n{RULES}",
        f"Here are some paragraphs. Find the one that fits.\n@\n\n{RULES}",
        f"The topic:\n\n@\n\nand the data:\n\n@\n\n{RULES}",
        f"Context:\n - Be kind.\n - You have executed these calls:\n@\n\n{RULES}",
    ],
    ids=[
        "above",
        "step",
        "fence",
        "JSON",
        "open bracket",
        "anaphor",
        "list",
        "frame",
        "announced",
        "there already",
        "chat markup",
        "named frame",
        "long announcement",
        "referred to",
        "announced as this",
        "goes on",
        "additional",
        "below",
        "here are",
        "and",
        "bullet that announces",
    ],
)
def test_what_would_no_longer_make_sense_stays(text):
    assert _moved(text) is None


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        (f"Context:\n@\n\n{RULES}\n\nAnswer:", "Answer:"),
        (f"Context:\n@\n\n{RULES}\n\nQuestion: @\nAnswer:", "Question: @\nAnswer:"),
        (f"Context:\n@\n\n{RULES}\n\nText: @\nRESPONSE:\n[<types>]", "Text: @\nRESPONSE:\n[<types>]"),
        (f"Context:\n@\n\n{RULES}\n\n---Example questions---\n", "---Example questions---"),
        (f"Context:\n@\n\n{RULES}\n\nPlease begin!", "Please begin!"),
        (f"Context:\n@\n\n{RULES} Let's think step by step.", "Let's think step by step."),
        (f"Context:\n@\n\n{RULES}\n\nLet's work this out step by step:", "Let's work this out step by step:"),
        (
            f"Context:\n@\n\n{RULES}\n\nPut what you would like to tell the customer of this shop into the form below:\n@\n\nGo!",
            "Go!",
        ),
    ],
)
def test_a_question_and_its_cue_stay_last(text, behind):
    assert _moved(text) == ("Context:\n@", behind)


@pytest.mark.parametrize(
    "cue",
    ["Answer:", "Please begin!", "Be kind. Let us think step by step.", "Your move, choose from (@) or q to quit:"],
)
def test_nothing_moves_behind_the_words_that_leave_the_turn_to_the_model(cue):
    text = f"Score: @\n\n{RULES}\n\nBoard:\n@\n\n{cue}"
    slots = [(index, index + 1) for index, char in enumerate(text) if char == "@"]
    prose = Prose(text, slots)
    move = plan(prose, *slots[0])
    assert move is None or to_the_end(prose, move) is None


def test_a_sentence_with_a_line_of_its_own_takes_its_indentation_along():
    text = f"  Be kind.\n  Today is @.\n  {RULES}"
    at = text.index("@")
    move = plan(Prose(text, [(at, at + 1)]), at, at + 1)
    assert text[move.start : move.end] == "  Today is @.\n"


def test_what_continues_the_sentence_above_is_not_moved_alone():
    text = f"The topic:\n\nlamps\n\nand the data:\n\n@\n\n{RULES}"
    assert _moved(text) is None


def test_the_name_of_a_value_says_what_the_text_calls_this():
    text = f"{{question}}\nFor this question choose one answer.\n\n{RULES}"
    assert plan(Prose(text, [(0, 10)]), 0, 10) is None
    other = f"{{document}}\nFor this question choose one answer.\n\n{RULES}"
    assert plan(Prose(other, [(0, 10)]), 0, 10) is not None


def test_an_announcement_in_chinese_goes_along_or_holds_the_value_back():
    text = f"请简短。\n\n下面是一个摘要\n\n@\n\n{RULES}"
    assert _moved(text) is None
    assert _moved(text.replace("摘要", "摘要。")) == ("下面是一个摘要。\n\n@", "")
