"""What `simulate --output-format html` takes from the traffic: names of branches, with keys masked or no text at all."""

from __future__ import annotations

import json
from xml.etree.ElementTree import Element

import pytest
from desk_project import promptlint
from html_reader import read, text

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def page(folder, rows, *args) -> Element:
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    done = promptlint("simulate", log, "--output-format", "html", *args, cwd=folder)
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


def asked(*texts, **more) -> list[dict]:
    return [{"prompt": one, **more} for one in texts]


def branches(root: Element) -> list[str]:
    icicle = next(svg for svg in root.iter("svg") if svg.attrib.get("class") == "icicle")
    return [link.attrib["aria-label"] for link in icicle.iter("a")]


def test_branches_are_named_by_their_text_and_their_call_site(tmp_path):
    rows = asked("You sell shoes. Is it open?", call_site="a.py::f::s") + asked(
        "You sell shoes. Who are you?", call_site="b.py::g::s"
    )
    assert [name.split(" tokens")[0].rsplit(":", 1)[0] for name in branches(page(tmp_path, rows))] == [
        "1 You sell shoes.",
        "1.1 a.py::f::s: Is it open?",
        "1.2 b.py::g::s: Who are you?",
    ]


def test_a_key_is_masked_although_prompts_part_within_it(tmp_path):
    root = page(tmp_path, asked(f"The key: {KEY}aaaa and more", f"The key: {KEY}bbbb and more"))
    assert "***" in text(root)
    for size in range(6, len(KEY)):
        assert KEY[-size:] not in text(root)
    assert "aaaa" not in text(root)


def test_redacted_pages_hold_no_text(tmp_path):
    root = page(tmp_path, asked("You sell shoes. Is it open?", "You sell shoes. Who are you?"), "--redact")
    assert "shoes" not in text(root)
    assert [name.split(":")[0] for name in branches(root)] == [
        "1 shared by 2 requests",
        "1.1 one request",
        "1.2 one request",
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"tokens": [1, 2, 3]},
        {"hash_ids": [1, 2], "input_length": 700, "timestamp": 1},
        {"prompt": "It is open.", "model": "m", "namespace": "tenant"},
    ],
)
def test_traffic_of_every_kind_has_a_tree(tmp_path, row):
    assert len(branches(page(tmp_path, [row, row]))) == 1


def test_mixed_traffic_is_named_by_nothing_that_may_be_wrong(tmp_path):
    names = branches(page(tmp_path, [{"prompt": "It is open."}, {"token_ids": [5, 6, 7]}]))
    assert all("one request" in name for name in names)


def test_each_namespace_has_a_tree_of_its_own(tmp_path):
    names = branches(page(tmp_path, asked("It is open.", model="m1") + asked("It is open.", model="m2")))
    assert [name.split(":")[0] for name in names] == ["1 m1", "1.1 It is open.", "2 m2", "2.1 It is open."]


def test_the_curve_comes_with_the_page_and_can_be_left_out(tmp_path):
    rows = asked("It is open.", "It is shut.")
    assert "Hit rate against capacity" in text(page(tmp_path, rows))
    assert "Hit rate against capacity" not in text(page(tmp_path, rows, "--no-curve"))
    assert "Hit rate against capacity" not in text(page(tmp_path, rows, "--engine", "openai"))


@pytest.mark.parametrize(
    "more",
    [
        ("--replicas", "2"),
        ("--schedule", "lpm"),
        ("--engine", "vllm"),
        ("--warm-up", "1"),
        ("--sample", "0.9"),
        ("--capacity-tokens", "8"),
    ],
)
def test_every_way_of_replaying(tmp_path, more):
    root = page(tmp_path, asked("It is open.", "It is shut.", "It is open at noon."), *more)
    assert "The radix tree of the prompts" in text(root)
    assert ("requests of the warm-up" in text(root)) == ("--warm-up" in more)
