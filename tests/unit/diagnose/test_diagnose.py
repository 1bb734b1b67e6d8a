"""Divergences: the pair, the place and the cause; and the requests that have none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.advisor.diagnose import diagnose
from promptlint.advisor.diagnose.trie import Tree, common
from promptlint.traffic.parts import Part, parts_of
from promptlint.traffic.readers.base import Options
from promptlint.traffic.readers.bodies import record_of
from promptlint.traffic.record import NOWHERE

RULES = " ".join(
    f"Rule {n}: when a visit is mentioned, check point {n * 7 % 31} of the list before you answer."
    for n in range(1, 26)
)
TOOLS = [{"type": "function", "function": {"name": name, "description": f"{name} of the team", "parameters": {"type": "object", "properties": {"day": {"type": "string"}}}}} for name in ("search", "send", "list")]  # fmt: skip


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def run(bodies, **options):
    records = [record_of(body, NOWHERE, "t", Options()) for body in bodies]
    return diagnose(records, lambda text: -(-len(text) // 4), **options)


def talk(heads, *, tools=None, history=None):
    """One conversation, a head for each request; `history(turn)` may replace what stands before the newest message."""
    questions = ["Is it open today?", "And tomorrow?", "Until when?", "Thanks. Where is it?", "How do I get there?"]
    bodies = []
    for turn, head in enumerate(heads):
        old = [
            message for n in range(turn) for message in (user(questions[n]), assistant(f"Answer {n}, in a few words."))
        ]
        messages = [system(head), *(history(turn, old) if history else old), user(questions[turn])]
        bodies.append({"model": "m", "messages": messages} | ({"tools": tools[turn]} if tools else {}))
    return bodies


def places(found):
    return [(one.relative, one.request, one.path, one.char, one.rule) for one in found.divergences]


def test_a_growing_conversation_has_none():
    found = run(talk([RULES] * 4))
    assert found.divergences == []
    assert found.causes == []
    assert found.starts == 1


def test_a_clock_in_the_system_message():
    heads = [f"You answer for the library.\nCurrent time: 2026-03-04T09:00:{n:02}\n{RULES}" for n in (0, 41, 52)]
    found = run(talk(heads))
    assert places(found) == [
        (1, 2, "messages[0].content", 59, "clock-in-prefix"),
        (2, 3, "messages[0].content", 59, "clock-in-prefix"),
    ]
    (cause,) = found.causes
    assert cause.hit_rate_if_fixed == pytest.approx(run(talk([heads[0]] * 3)).hit_rate)
    assert "09:00:00" in found.divergences[0].was
    assert "09:00:41" in found.divergences[0].now


def test_tools_in_another_order_and_one_gone():
    found = run(talk([RULES] * 3, tools=[TOOLS, [TOOLS[2], TOOLS[0], TOOLS[1]], [TOOLS[2], TOOLS[1]]]))
    first, second = found.divergences
    texts = [
        json.dumps(tools, separators=(",", ":"))
        for tools in (TOOLS, [TOOLS[2], TOOLS[0], TOOLS[1]], [TOOLS[2], TOOLS[1]])
    ]
    assert (first.relative, first.path, first.char, first.rule) == (
        1,
        "tools",
        common(texts[0], texts[1]),
        "tool-order-differs",
    )
    assert (second.relative, second.path, second.rule) == (2, "tools", "tools-built-per-request")
    assert second.char == common(texts[1], texts[2])
    assert "search gone" in second.cause


def test_keys_of_a_tool_in_another_order():
    swapped = json.loads(json.dumps(TOOLS))
    swapped[1]["function"] = dict(reversed(swapped[1]["function"].items()))
    (one,) = run(talk([RULES] * 2, tools=[TOOLS, swapped])).divergences
    assert one.rule == "unsorted-json"


def test_a_tool_description_with_a_clock():
    dated = [json.loads(json.dumps(TOOLS)) for _ in range(2)]
    for n, tools in enumerate(dated):
        tools[0]["function"]["description"] = f"search; now is 2026-03-04T09:0{n}:00"
    (one,) = run(talk([RULES] * 2, tools=dated)).divergences
    assert (one.rule, one.path) == ("clock-in-prefix", "tools")


def test_the_first_of_two_values_gives_the_name():
    heads = [
        f"Hello {name}. It is 2026-03-04 09:0{minute}:00 now.\n{RULES}" for minute, name in enumerate(("ann", "bob"))
    ]
    found = run([{"messages": [system(head), user("hi")]} for head in heads])
    assert [(one.char, one.rule) for one in found.divergences] == [(6, "request-data-before-static")]


def test_a_tool_description_whose_words_look_like_labels():
    tools = [
        [{"type": "function", "function": {"name": "ls", "description": f"Lists files of {word}", "parameters": {}}}]
        for word in ("alpha", "beta", "gamma")
    ]
    found = run([{"messages": [system(RULES), user("hi")], "tools": sent} for sent in tools])
    assert {one.rule for one in found.divergences} == {"tools-built-per-request"}


def cut(turn, old):
    return old[2:] if turn == 3 else old


def summarised(turn, old):
    return [user("Summary: they asked about the hours.")] if turn == 3 else old


def edited(turn, old):
    return [*old[:1], assistant("Answer 0, shortened."), *old[2:]] if turn == 3 else old


def reminded(turn, old):
    return [user("Remember to be kind."), *old] if turn == 3 else old


@pytest.mark.parametrize(
    ("history", "path", "char", "rule"),
    [
        (cut, "messages[1].content", 0, "history-truncated"),
        (summarised, "messages[1].content", 0, "history-rewritten"),
        (edited, "messages[2].content", 10, "history-rewritten"),
        (reminded, "messages[1].content", 0, "message-inserted-at-front"),
    ],
)
def test_changes_of_the_history(history, path, char, rule):
    found = run(talk([RULES] * 5, history=history))
    assert places(found)[0] == (3, 4, path, char, rule)
    assert found.divergences[0].cause


def test_the_relative_is_the_latest_of_equals():
    bodies = talk([RULES] * 2)
    found = run([bodies[0], bodies[0], {"model": "m", "messages": [system(RULES + "!"), *bodies[1]["messages"][1:]]}])
    assert [one.relative for one in found.divergences] == [2]


@pytest.mark.parametrize(
    ("was", "now", "rule"),
    [
        ("Request id: 7f3a9c21\n", "Request id: 81be02dd\n", "random-in-prefix"),
        (
            "Trace 5e1c7a34-1f7b-4a55-9d0c-aa11bb22cc33.\n",
            "Trace 0d2f8b1e-9c3a-4e77-8a6b-dd44ee55ff66.\n",
            "random-in-prefix",
        ),
        ("Step 3 of 20.\n", "Step 4 of 20.\n", "counter-in-prefix"),
        ("Tokens used: 1,204\n", "Tokens used: 2,990\n", "counter-in-prefix"),
        ("Today is Monday, March 2, 2026.\n", "Today is Tuesday, March 3, 2026.\n", "clock-in-prefix"),
        ("Now 3:15 PM.\n", "Now 3:16 PM.\n", "clock-in-prefix"),
        ("It is 1772614800 now.\n", "It is 1772614861 now.\n", "clock-in-prefix"),
        ("Datum: 4. März 2026\n", "Datum: 5. März 2026\n", "clock-in-prefix"),
        ("cwd: /srv/app/one\n", "cwd: /srv/app/two\n", "host-state-in-prefix"),
        ("Working directory: /home/u/proj1\n", "Working directory: /home/u/proj2\n", "host-state-in-prefix"),
        ("Session s1.\n", "Session s2.\n", "user-data-before-shared"),
        ("step4 of the plan\n", "step5 of the plan\n", "counter-in-prefix"),
        ("Branch: main\n", "Branch: fix-typo\n", "host-state-in-prefix"),
        ("Customer: Ada\n", "Customer: Yusuf\n", "user-data-before-shared"),
        ("You write to Ada Moreno.\n", "You write to Jonas Beck.\n", "user-data-before-shared"),
        ("Mail ada@x.org.\n", "Mail bob@y.org.\n", "user-data-before-shared"),
        ("Skills: swim, run, fly\n", "Skills: fly, swim, run\n", "unordered-iteration"),
        ("b.py\na.py\nc.py\n", "c.py\nb.py\na.py\n", "unsorted-listing"),
        ("A  b\n", "A b\n", "text-drift"),
        ("Mood: calm\n", "Mood: cheerful\n", "volatile-system-message"),
    ],
)
def test_causes_of_values(was, now, rule):
    (one,) = run(talk([f"You help.\n{was}{RULES}", f"You help.\n{now}{RULES}"])).divergences
    assert one.rule == rule
    assert one.tokens_lost > 400


def test_a_new_question_behind_a_shared_head_is_no_divergence():
    bodies = [{"model": "m", "messages": [system(RULES), user(f"Question {n}")]} for n in range(5)]
    found = run(bodies)
    assert found.divergences == []
    assert found.starts == 5


def test_a_value_ahead_of_shared_text_in_one_message_is_one():
    bodies = [
        {"model": "m", "messages": [user(f"Page: {word * 3}\n{RULES}")]} for word in ("apple ", "brick ", "cloud ")
    ]
    assert [one.rule for one in run(bodies).divergences] == ["request-data-before-static"] * 2


def test_plain_prompts():
    found = run([{"prompt": f"Page: {word}\n{RULES}"} for word in ("apple", "brick")])
    assert [(one.path, one.char) for one in found.divergences] == [("prompt", 6)]
    assert run([{"prompt": "a b"}, {"prompt": "a b c"}]).divergences == []


def test_conversations_that_begin_alike_are_told_apart():
    first = [system(RULES), user("Hi")]
    bodies = [
        [*first],
        [*first, assistant("Hello! How can I help you?"), user("Book a seat.")],
        [*first],
        [*first, assistant("Hello! How are you?"), user("Cancel my seat.")],
    ]
    found = run([{"model": "m", "messages": messages} for messages in bodies])
    assert found.divergences == []
    with_ids = [{"model": "m", "messages": messages, "session_id": "ab"[n // 2]} for n, messages in enumerate(bodies)]
    assert run(with_ids).divergences == []


def test_sessions_are_judged_by_their_own_past():
    a, b = talk([RULES] * 3), talk([RULES.replace("visit", "parcel")] * 3)
    mixed = [
        {**body, "session_id": name} for pair in zip(a, b, strict=True) for name, body in zip("ab", pair, strict=True)
    ]
    assert run(mixed).divergences == []
    mixed[4] = {**mixed[4], "messages": [mixed[4]["messages"][0], *mixed[4]["messages"][3:]]}
    (one,) = run(mixed).divergences
    assert (one.request, one.relative, one.rule) == (5, 3, "history-truncated")


def test_another_model_is_another_cache():
    bodies = [{**body, "session_id": "s"} for body in talk([RULES] * 3)]
    bodies[2]["model"] = "other"
    (one,) = run(bodies).divergences
    assert (one.request, one.relative, one.path, one.rule) == (3, 2, "model", "cache-parameter-differs")
    assert run([{**body, "namespace": str(n)} for n, body in enumerate(talk([RULES] * 3))]).divergences == []


def test_cache_markers_and_the_form_of_a_text_are_no_change():
    marked = {"type": "text", "text": "Is it open today?", "cache_control": {"type": "ephemeral"}}
    bodies = [
        {"system": [{"type": "text", "text": RULES}], "messages": [user([marked])]},
        {
            "system": RULES,
            "messages": [user("Is it open today?"), assistant("Yes."), user([{**marked, "text": "And tomorrow?"}])],
        },
    ]
    assert run(bodies).divergences == []


def test_paths_of_parts_and_offsets_in_their_json():
    def body(word):
        parts = [{"type": "text", "text": 'Say "x".'}, {"type": "text", "text": f'A "{word}" here. {RULES}'}]
        return {"model": "m", "messages": [user(parts), assistant("Yes."), user("More?")]}

    (one,) = run([body("cat"), body("dog")]).divergences
    assert one.path == "messages[0].content[1]"
    assert one.char == len('{"type":"text","text":"A \\"')


def test_call_sites_that_order_their_blocks_differently():
    policy = "Policies. " + RULES
    bodies = [
        {"model": "m", "call_site": "a.py::f::x", "messages": [system("You triage."), system(policy), user("One")]},
        {"model": "m", "call_site": "b.py::g::x", "messages": [system(policy), system("You answer."), user("Two")]},
    ]
    (one,) = run(bodies).divergences
    assert one.rule == "block-order-differs"


def test_hash_ids_have_starts_but_no_causes():
    rows = [
        {"hash_ids": [1, 2, 3], "input_length": 40, "block_size": 16},
        {"hash_ids": [1, 2, 4], "input_length": 40, "block_size": 16},
    ]
    found = run(rows)
    assert found.divergences == []
    assert found.hit_rate == pytest.approx(32 / 96)


TEXT = st.text(st.sampled_from("ab\n"), max_size=6)
ROW = st.lists(TEXT, min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(st.lists(ROW, min_size=2, max_size=12))
def test_the_relative_has_the_longest_common_prefix_and_is_the_latest(rows):
    def flat(row):
        return [(index, char) for index, text in enumerate(row) for char in (*text, None)]

    def shared(a, b):
        count = 0
        for left, right in zip(flat(a), flat(b), strict=False):
            if left != right:
                break
            count += 1
        return count

    tree = Tree()
    for number, row in enumerate(rows, 1):
        parts = [Part(f"p[{index}]", "p", text) for index, text in enumerate(row)]
        match = tree.match(parts)
        if number > 1:
            best = max(range(number - 1), key=lambda index: (shared(rows[index], row), index))
            assert match.relative == best + 1
            length = sum(len(text) + 1 for text in row[: match.depth]) + match.chars
            assert length == shared(rows[best], row)
        tree.insert(parts, number)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab"), max_size=300), st.integers(0, 300), st.text(st.sampled_from("ab"), max_size=20))
def test_common_prefix(text, at, tail):
    other = text[:at] + tail
    expected = next(
        (i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other))
    )
    assert common(text, other) == expected


def test_time_order_and_usage():
    records = [record_of(body, NOWHERE, "t", Options()) for body in talk([RULES] * 2)]
    records = [
        replace(record, usage={"gen_ai.usage.input_tokens": 100, "gen_ai.usage.cache_read.input_tokens": n * 40})
        for n, record in enumerate(records)
    ]
    found = diagnose(records, len)
    assert found.observed_hit_rate == 0.2
    assert [part.path for part in parts_of(records[0])][:3] == ["tools", "messages[0].role", "messages[0].content"]


@pytest.mark.parametrize(("tools", "cause"), [([TOOLS, None], "no tools"), ([None, TOOLS], "first time")])
def test_tools_that_come_or_go(tools, cause):
    bodies = talk([RULES] * 2, tools=tools)
    (one,) = run(bodies).divergences
    assert (one.path, one.char, one.rule) == ("tools", 0, "tools-built-per-request")
    assert cause in one.cause


def test_no_content_reads_the_same_however_it_is_written():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    forms = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    bodies = [
        {
            "model": "m",
            "messages": [user("Hi"), form, {"role": "tool", "tool_call_id": "c", "content": str(n)}][: 3 + n],
        }
        for n, form in enumerate(forms)
    ]
    assert run(bodies).divergences == []


def test_call_ids_that_are_drawn_again():
    def body(name, more):
        call = {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return {"model": "m", "messages": [system(RULES), user("Hi"), {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": name, "content": RULES}, *more]}  # fmt: skip

    (one,) = run([body("call_Ab12Cd34", []), body("call_Zz98Yy76", [assistant("Done."), user("More?")])]).divergences
    assert (one.path, one.char, one.rule) == ("messages[2].tool_calls", len('[{"id":"call_'), "random-in-prefix")


def test_a_counter_that_repairs_make_step_by_more_than_one_keeps_its_price():
    bodies = [{"messages": [system(f"X{step} " + RULES), user("a question here")]} for step in range(1, 5)]
    found = run(bodies)
    assert [one.rule for one in found.divergences] == ["counter-in-prefix"] * 3
    assert len({one.tokens_lost for one in found.divergences}) == 1
    assert found.divergences[0].tokens_lost > 0


def test_another_model_without_session_ids():
    """A conversation that went on under another model is one; the same conversation asked of two models is a comparison."""
    first, _, third = talk([RULES] * 3)
    (one,) = run([first, third | {"model": "other"}]).divergences
    assert (one.request, one.relative, one.path, one.rule) == (2, 1, "model", "cache-parameter-differs")
    both = [body | {"model": model} for model in ("m", "other") for body in talk([RULES] * 3)]
    assert run(both).divergences == []


@pytest.mark.parametrize(
    ("was", "now", "rule", "cause"),
    [
        ("We sell apples, pears, plums.", "We sell plums, apples, pears.", "unordered-iteration", "another order"),
        ("Ask at the caf\u00e9.", "Ask at the cafe\u0301.", "text-drift", "Unicode form"),
        ("We sell apples, pears, plums.", "We sell apples, pears, figs.", "request-data-before-static", "request"),
    ],
)
def test_causes_within_a_long_line(was, now, rule, cause):
    head = RULES[:600].replace("\n", " ")
    (one,) = run(
        [{"model": "m", "messages": [system(f"{head} {text} {RULES}"), user("Hi")]} for text in (was, now)]
    ).divergences
    assert one.rule == rule
    assert cause in one.cause
    assert one.char == len(head) + 1 + common(was, now)
