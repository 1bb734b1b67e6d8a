"""Where two runs of a command differ: places, pairs of calls, noise."""

from __future__ import annotations

from promptlint.recording.compare import differences, joined, pairs, without


def body(*texts, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], **more}


def places(was, now):
    return [(one.pointer, one.start, one.was[one.start : one.end]) for one in joined(differences(was, now))]


def test_a_place_is_a_pointer_and_a_character():
    assert places(body("Hello Ann, bye"), body("Hello Bob, bye")) == [("/messages/0/content", 6, "Ann")]
    assert places(body("a", "at 10:41"), body("a", "at 10:42")) == [("/messages/1/content", 7, "1")]
    assert places(body("same"), body("same")) == []


def test_each_value_is_a_place_of_its_own():
    far = " and then a good deal of text that stays the same "
    assert places(body(f"Ann{far}1"), body(f"Bob{far}2")) == [
        ("/messages/0/content", 0, "Ann"),
        ("/messages/0/content", 53, "1"),
    ]


def test_the_parts_of_a_date_and_the_items_of_a_list_are_one():
    assert len(places(body("It is 2026-11-30T10:41:09 now"), body("It is 2027-12-31T11:42:10 now"))) == 1
    assert len(places(body("tags: alpha, beta, gamma, delta"), body("tags: delta, gamma, beta, alpha"))) == 1


def test_order_of_tools_and_of_keys_and_length_of_lists():
    assert [one.pointer for one in differences(body(tools=[{"a": 1}, {"b": 2}]), body(tools=[{"b": 2}, {"a": 1}]))][
        :1
    ] == ["/tools"]
    assert [
        one.pointer for one in joined(differences(body(tools=[{"a": 1, "b": 2}]), body(tools=[{"b": 2, "a": 1}])))
    ] == ["/tools/0"]
    assert {one.pointer for one in differences(body("a", "b"), body("a"))} == {"/messages"}
    assert {
        one.pointer for one in differences({"response_format": {"x/y": "1"}}, {"response_format": {"x/y": "2"}})
    } == {"/response_format/x~1y"}


def test_what_is_no_prompt_is_not_compared():
    assert places(body("a", temperature=0, user="x"), body("a", temperature=1, user="y")) == []
    assert [place[0] for place in places(body("a", prompt_cache_key="x"), body("a", prompt_cache_key="y"))] == [
        "/prompt_cache_key"
    ]


def test_noise_is_taken_away_and_nothing_beside_it():
    was, again, shifted = (body(f"pid {pid}, host {host}") for pid, host in ((1200, "a"), (1201, "a"), (1317, "b")))
    noise = differences(was, again)
    left = without(differences(was, shifted), noise)
    assert [one.was[one.start : one.end] for one in left] == ["a"]


def test_very_long_differences_are_one():
    one = joined(differences(body("x " * 5000), body("y " * 5000)))
    assert len(one) == 1


def row(site, text, test=""):
    return {"call_site": site, "recorded": {"test": test}, **body(text)}


def test_calls_are_paired_by_call_site_test_and_order():
    first = [row("a", "1"), row("b", "2"), row("a", "3"), row("c", "4", "t1"), row("c", "5", "t2")]
    second = [row("c", "5", "t2"), row("b", "2"), row("a", "1"), row("c", "4", "t1"), row("b", "6")]
    found = [
        (pair.call_site, pair.number, pair.was and pair.was["messages"], pair.now and pair.now["messages"])
        for pair in pairs(first, second)
    ]
    text = lambda value: [{"role": "user", "content": value}]  # noqa: E731
    assert found == [
        ("a", 0, text("1"), text("1")), ("b", 0, text("2"), text("2")), ("a", 1, text("3"), None),
        ("c", 0, text("4"), text("4")), ("c", 0, text("5"), text("5")), ("b", 1, None, text("6")),
    ]  # fmt: skip
