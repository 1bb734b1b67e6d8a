"""The rows of rules/sdk and rules/sources hang together: known words, no call described twice, every file says what it was checked against."""

import datetime as dt
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from promptlint.catalog import rules_root
from promptlint.catalog.conversations import load_conversations
from promptlint.catalog.sdk import load_sdk
from promptlint.catalog.sources import load_sources
from promptlint.ir import Volatility

SDK = sorted((rules_root() / "sdk").glob("*.toml"))
SOURCES = sorted((rules_root() / "sources").glob("*.toml"))
ORIGINS = {"clock", "random", "counter", "host", "unordered", "listing", "json", "shuffle", "user", "tenant", "session", "context", "document", "request", "history", "tools", "state", "setting"}  # fmt: skip
ELSEWHERE = {"hub", "remote-tools", "database"}
ROW_KEYS = {
    "instance": {"type", "made_by", "attributes", "named_by", "keeps"},
    "sink": {
        "call",
        "provider",
        "render_order",
        "args",
        "breakpoint",
        "model",
        "cache_key",
        "structured",
        "history",
        "sends",
        "until",
        "service",
    },
    "message": {"call", "role", "text", "position", "drops", "until"},
    "template": {"call", "text", "position", "syntax", "messages", "role", "fill", "partial", "parts", "until"},
    "option": {
        "call",
        "argument",
        "value",
        "source",
        "block",
        "position",
        "volatility",
        "note",
        "unless",
        "format",
        "until",
    },
    "hook": {"base", "method", "edits", "volatility", "note"},
    "convention": {"glob", "syntax", "fields", "note"},
    "generic": {"method", "args", "receiver", "requires", "provider", "render_order", "model", "cache_key"},
    "source": {"call", "kind", "volatility", "result"},
    "flow": {"call", "from", "to", "coarsen", "text"},
    "barrier": {"call", "stops", "when"},
}


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("path", [*SDK, *SOURCES], ids=lambda path: path.stem)
def test_rows_use_known_keys(path: Path) -> None:
    for kind, rows in load(path).items():
        if isinstance(rows, list):
            for row in rows:
                assert row.keys() <= ROW_KEYS[kind], (kind, row)


@pytest.mark.parametrize(
    "path", [path for path in (*SDK, *SOURCES) if path.stem != "generic"], ids=lambda path: path.stem
)
def test_a_file_says_what_it_was_checked_against(path: Path) -> None:
    verified = load(path)["verified"]
    assert verified["version"]
    assert isinstance(verified["on"], dt.date)


def test_no_call_is_described_twice() -> None:
    for kind in ("sink", "message", "template"):
        calls = Counter(
            call
            for path in SDK
            for row in load(path).get(kind, ())
            for call in ([row["call"]] if isinstance(row["call"], str) else row["call"])
        )
        assert [call for call, count in calls.items() if count > 1] == [], kind
    kinds: dict[str, set[str]] = {}
    for path in SOURCES:
        for row in load(path).get("source", ()):
            for call in [row["call"]] if isinstance(row["call"], str) else row["call"]:
                kinds.setdefault(call, set()).add(row["kind"])
    assert {call: found for call, found in kinds.items() if len(found) > 1} == {}


def test_methods_belong_to_a_known_type() -> None:
    sdk = load_sdk()
    for call in sdk.sinks:
        head = call.split(".", maxsplit=1)[0]
        if head[:1].isupper():
            assert head in sdk.instances, call


def test_options_speak_known_words() -> None:
    sdk = load_sdk()
    for call, options in sdk.options.items():
        for option in options:
            assert option.source in ORIGINS | ELSEWHERE | {"window", "summary", "rewrite", "handoff", "hook"}, call
            assert option.volatility.upper() in Volatility.__members__, call
            if option.position not in {"start", "end"}:
                assert option.position in [argument.name for argument in sdk.sinks[call].args], call
            assert option.note, call


def test_hooks_speak_known_words() -> None:
    for hook in load_sdk().hooks:
        assert hook.edits in {"system", "messages", "tools", "request", "state"}
        assert hook.base
        assert hook.note


def test_positions_are_claimed_once() -> None:
    sdk = load_sdk()
    for call, sink in sdk.sinks.items():
        places = [argument.position for argument in sink.args if argument.position is not None]
        assert len(places) == len(set(places)), call


def test_sources_speak_known_words() -> None:
    sources = load_sources()
    for call, source in sources.sources.items():
        assert source.kind in ORIGINS | ELSEWHERE, call
        assert source.result in {"scalar", "sequence", "mapping", "argument"}, call
    for call, flow in sources.flows.items():
        assert flow.coarsen in {"", "by-format", "by-letters", "by-fields", "day", "month", "process"}, call
        assert flow.text in {
            "",
            "identity",
            "dedent",
            "cleandoc",
            "strip",
            "lstrip",
            "rstrip",
            "lower",
            "upper",
            "title",
            "capitalize",
        }, call
    for call, barriers in sources.barriers.items():
        for barrier in barriers:
            assert set(barrier.stops) <= {"unordered", "listing", "shuffle", "json"}, call


def test_a_clock_is_a_clock_and_a_setting_is_none() -> None:
    sources = load_sources().sources
    assert sources["datetime.datetime.now"].volatility is Volatility.REQUEST
    assert sources["datetime.date.today"].volatility is Volatility.DAY
    assert sources["os.getenv"].kind == "setting"
    assert sources["uuid.uuid4"].kind == "random"
    assert sources["random.sample"].kind == "shuffle"
    assert sources["os.listdir"].kind == "listing"


def test_conversation_words_are_lower_case_words() -> None:
    found = load_conversations()
    for name in (
        "lists",
        "one",
        "containers",
        "weak",
        "other",
        "quiet_functions",
        "cutting",
        "size",
        "summary",
        "volatile",
    ):
        for word in getattr(found, name):
            assert word == word.lower(), word
            assert " " not in word, word
    assert not found.lists & found.other
