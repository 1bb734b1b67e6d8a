"""What really stayed the same stands first: lines of text, tools, single-shot prompts; and what stays where it is."""

import pytest

from promptlint.advisor.moves import blocks_in_order, group_records, rewrite
from promptlint.errors import UserError
from promptlint.traffic.record import Record

RULES = (
    "\n".join(
        f"Rule {number}: answer from the manual and quote the paragraph that you used for it." for number in range(6)
    )
    + "\n"
)


def chat(system, *turns, session="", tools=None):
    messages = [{"role": "system", "content": system}]
    for index, text in enumerate(turns):
        messages.append({"role": "user" if index % 2 == 0 else "assistant", "content": text})
    return Record(messages=messages, session_id=session, tools=tools)


def test_a_clock_in_the_system_text_moves_into_the_newest_message():
    records = [
        chat(f"You help.\nIt is 12:00:{number:02}.\n{RULES}", "hi", "hello", f"question {number}")
        for number in range(10)
    ]
    found = rewrite("bot", records)
    assert [move.path for move in found.moves] == ["messages[0].content"]
    assert found.moves[0].text == "It is 12:00:00.\n"
    assert found.moves[0].values == 10
    assert {record.messages[0]["content"] for record in found.records} == {f"You help.\n{RULES}"}
    assert found.records[3].messages[-1]["content"] == "question 3\n\nIt is 12:00:03."
    assert found.after[-1] == "system (varying)"
    assert "-It is 12:00:00." in found.diff
    assert records[0].messages[0]["content"].startswith("You help.\nIt is")  # the input is left alone


def test_behind_a_tool_result_the_moved_text_is_a_message_of_its_own():
    records = [chat(f"It is {number}.\n{RULES}", "hi") for number in range(6)]
    for record in records:
        record.messages.append({"role": "tool", "content": "result"})
    found = rewrite("bot", records)
    assert found.records[2].messages[-1] == {"role": "user", "content": "It is 2."}


def test_what_a_session_keeps_stays_in_its_text_behind_the_fixed_part():
    records = [
        chat(f"User: name{session}\n{RULES}", "hi", *(["hello", "more"] * turn), session=f"s{session}")
        for session in range(5)
        for turn in range(2)
    ]
    found = rewrite("bot", records)
    assert found.records[0].messages[0]["content"] == f"{RULES}User: name0\n"
    assert found.records[0].messages[-1]["content"] == "hi"


def test_without_a_history_the_varying_part_stays_in_its_text():
    found = rewrite("bot", [chat(f"Write to customer {number}.\n{RULES}", f"question {number}") for number in range(8)])
    assert found.records[3].messages[0]["content"] == f"{RULES}Write to customer 3.\n"
    assert found.records[3].messages[-1]["content"] == "question 3"


def test_a_question_ahead_of_its_examples():
    shots = "".join(
        f"Question: what is {n} and {n}?\nAnswer: it is {2 * n} because {n} and {n} make {2 * n}.\n\n" for n in range(8)
    )
    records = [Record(prompt=f"Question: how much is thing number {n}?\nAnswer:{shots}") for n in range(12)]
    found = rewrite("maths", records)
    assert found.records[4].prompt == f"{shots}Question: how much is thing number 4?\nAnswer:"


def test_a_closing_cue_stays_last():
    records = [Record(prompt=f"Text: word{n} alpha\n\n{RULES}\nSummary:\n") for n in range(8)]
    found = rewrite("sum", records)
    assert found.records[1].prompt.endswith("Text: word1 alpha\n\nSummary:\n") or found.records[1].prompt.endswith(
        "Text: word1 alpha\nSummary:\n"
    )


def test_texts_without_lines_are_split_at_their_common_end():
    end = " ".join(f"word{n}" for n in range(40))
    records = [Record(prompt=f"id-{n * 7919}x {end}") for n in range(8)]
    found = rewrite("one", records)
    assert found.records[2].prompt.startswith("word0 word1")
    assert f"id-{2 * 7919}x" in found.records[2].prompt


def test_tools_that_differ_in_order_alone_get_one_order():
    tools = [{"type": "function", "function": {"name": name}} for name in ("c", "a", "b")]
    records = [chat(RULES, "hi", tools=tools[n % 3 :] + tools[: n % 3]) for n in range(6)]
    found = rewrite("bot", records)
    assert [move.path for move in found.moves] == ["tools"]
    assert {tuple(tool["function"]["name"] for tool in record.tools) for record in found.records} == {("a", "b", "c")}


@pytest.mark.parametrize(
    "records",
    [
        [chat(RULES, f"question {n}") for n in range(8)],  # nothing varies ahead of fixed text
        [
            chat(f"{RULES}It is {n}.\n", f"question {n}") for n in range(8)
        ],  # a clock at the end of the head is where it costs least
        [chat(f"It is {n}.\nShort rule.\n", "hi") for n in range(8)],  # too little stands behind it
        [chat(f"It is {n}.\n{RULES}", "hi") for n in range(3)],  # too few requests to tell
        [Record(prompt=f"{n} completely different text {n * 31}") for n in range(8)],
    ],
)
def test_nothing_moves_without_a_gain(records):
    assert rewrite("bot", records) is None


def test_groups_by_call_site_then_model():
    records = [
        Record(prompt="a", call_site="x"),
        Record(prompt="b", model="m"),
        Record(prompt="c"),
        Record(token_ids=[1]),
    ]
    assert {name: len(group) for name, group in group_records(records).items()} == {"x": 1, "m": 1, "traffic": 1}


def test_blocks_in_any_order():
    record = chat("SYS", "one", "two", "three", tools=[{"name": "t"}])
    runs, stored = blocks_in_order(record, ["system", "tools", "question", "history"])
    assert [run.split("\n")[0] for run in runs] == [
        "<|system|>",
        '[{"name":"t"}]',
        "<|user|>",
        "<|user|>",
        "<|assistant|>",
        "<|assistant|>",
    ]
    assert "three" in runs[2]
    assert stored is None
    with pytest.raises(UserError, match="preamble"):
        blocks_in_order(record, ["preamble"])
