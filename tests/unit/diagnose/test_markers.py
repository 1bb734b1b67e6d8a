"""Cache markers in recorded requests."""

import json

import pytest

from promptlint.advisor.diagnose.markers import markers, marks_of
from promptlint.app.diagnose import run
from promptlint.traffic.read import Traffic
from promptlint.traffic.record import Record

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text(value, mark=None):
    return {"type": "text", "text": value, **(mark or {})}


def user(value, mark=None):
    return {"role": "user", "content": [text(value, mark)]}


def record(*messages, system=None, tools=None, **parameters):
    return Record(
        model="claude-sonnet-4-5",
        session_id="s",
        messages=list(messages),
        system=system,
        tools=tools,
        parameters=parameters,
    )


def rules(*records, total=2000):
    return {row.cause for row in markers(records, [total] * len(records))}


def test_marks_are_counted_in_rendered_order():
    given = record(
        user("a"),
        {"role": "user", "content": "b", **MARK},
        system=[text("s", HOUR), text("t")],
        tools=[{"name": "x"}, {"name": "y", **MARK}],
    )
    assert marks_of(given) == [(2, ""), (3, "1h"), (6, "")]
    assert marks_of(record(user("a"), user("b"), cache_control={"ttl": "1h"})) == [(2, "1h")]


@pytest.mark.parametrize(
    ("given", "total", "found"),
    [
        (record(user("a")), 2000, set()),  # nothing says that its beginning comes again
        (record(user("a", MARK)), 700, {"prefix-below-minimum"}),
        (
            record(user("a" * 700, MARK), user("b" * 1300)),
            2000,
            {"prefix-below-minimum"},
        ),  # 700 tokens; the minimum is 1,024
        (record(user("a" * 900, MARK), user("b" * 1100)), 2000, set()),  # another tokenizer may count them more
        (record(user("a", MARK)), 2000, set()),
        (record(user("a"), cache_control={"type": "ephemeral"}), 2000, set()),
        (record(*(user(str(n), MARK) for n in range(5))), 2000, {"too-many-breakpoints"}),
        (record(*(user(str(n), MARK) for n in range(4))), 2000, set()),
        (record(user("a", HOUR), system=[text("s", MARK)]), 2000, {"ttl-order"}),
        (record(user("a", MARK), system=[text("s", HOUR)]), 2000, set()),
    ],
)
def test_one_request(given, total, found):
    assert rules(given, total=total) == found


@pytest.mark.parametrize(("added", "found"), [(20, set()), (21, {"breakpoints-too-far-apart"})])
def test_a_turn_that_appends_more_than_the_provider_looks_back_over(added, found):
    first = record(user("a", MARK))
    grown = record(user("a"), *(user(f"step {n}") for n in range(added - 1)), user("newest", MARK))
    assert rules(first, grown) == found


def test_an_argument_that_differs_within_a_conversation():
    first, second = record(user("a", MARK), tool_choice={"type": "auto"}), record(user("a"), user("b", MARK))
    assert rules(first, second) == {"cache-parameter-differs"}
    other = record(user("x"), user("b", MARK))  # another conversation
    assert rules(first, other) == set()


def test_other_providers_need_no_marker():
    given = record(user("a"))
    given.model = "gpt-4o"
    assert rules(given) == set()


HEAD = "Answer from the manual only. " * 60


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (record(user("one"), system=HEAD), record(user("two"), system=HEAD), {"breakpoint-missing"}),
        (record(user(HEAD + "one")), record(user(HEAD + "two")), {"breakpoint-missing"}),
        (record(user("one, " * 300)), record(user("two, " * 300)), set()),
        (record(user("one"), system=[text(HEAD, MARK)]), record(user("two"), system=[text(HEAD, MARK)]), set()),
        (
            record(user("one"), system=[text(HEAD + "now 1", MARK)]),
            record(user("two"), system=[text(HEAD + "now 2", MARK)]),
            {"breakpoint-on-volatile"},
        ),
        (
            record(user("one", MARK), system=HEAD),
            record(user("two", MARK), system=HEAD),
            {"breakpoint-on-volatile"},  # two conversations, each marked behind its question only
        ),
        (record(user("one", MARK), system=HEAD), record(user("one"), user("two", MARK), system=HEAD), set()),
    ],
)
def test_two_requests_that_begin_alike(first, second, found):
    assert rules(first, second) == found


def gpt(*messages, **more):
    given = record(*messages, **more)
    given.model, given.session_id = "gpt-5.6", None
    return given


@pytest.mark.parametrize(
    ("requests", "found"),
    [
        ([gpt(user(HEAD + f"Question {n}")) for n in range(3)], {"head-and-tail-in-one-message"}),
        ([gpt({"role": "system", "content": HEAD}, user(f"Question {n}")) for n in range(3)], set()),
        ([gpt(user(HEAD), user("a")), gpt(user(HEAD), user("a"), user("b"))], set()),
        ([gpt({"role": "user", "content": [{**text(HEAD), "prompt_cache_breakpoint": {"mode": "explicit"}}, text(str(n))]}) for n in range(3)], set()),
    ],
)  # fmt: skip
def test_whole_messages_are_stored(requests, found):
    assert rules(*requests) == found


def test_a_log_without_usage_is_judged_too(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [
        {"timestamp": n, "model": "gpt-5.6", "messages": [{"role": "user", "content": HEAD * 5 + str(n)}]}
        for n in range(3)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row.cause for row in run(Traffic([str(log)])).diagnosis.likely] == ["head-and-tail-in-one-message"]
