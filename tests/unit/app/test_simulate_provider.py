"""`simulate --engine PROVIDER` from a log to the report: markers, the end of the system text, usage fields."""

import json

import pytest
from click.testing import CliRunner

from promptlint.cli import cli

RULES = "Answer from the manual only. Name the page that you used. " * 200  # about 2,600 tokens


def replay(tmp_path, records, *options):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    result = CliRunner().invoke(cli, ["simulate", str(log), "--output-format", "json", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def record(*messages, at=0, **more):
    return {"timestamp": at * 1000, "messages": [{"role": role, "content": text} for role, text in messages], **more}


def test_where_the_head_stands_decides_for_gpt_5_6(tmp_path):
    apart = [record(("system", RULES), ("user", f"Question {n}")) for n in range(4)]
    joined = [record(("user", f"{RULES} Question {n}")) for n in range(4)]
    given = ("--engine", "openai", "--model")
    assert replay(tmp_path, apart, *given, "gpt-5.6")["hit_rate"] == pytest.approx(0.75, abs=0.01)
    assert replay(tmp_path, joined, *given, "gpt-5.6")["hit_rate"] == 0
    assert replay(tmp_path, joined, *given, "gpt-4o")["hit_rate"] == pytest.approx(0.75, abs=0.03)


def test_markers_have_lifetimes_of_their_own(tmp_path):
    def request(at, ttl):
        marker = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
        block = {"type": "text", "text": RULES, "cache_control": marker}
        return record(("system", [block]), ("user", f"Question {at}"), at=at)

    given = ("--engine", "anthropic", "--model", "claude-sonnet-4-5")
    assert replay(tmp_path, [request(0, ""), request(1800, "")], *given)["cached_tokens"] == 0
    assert replay(tmp_path, [request(0, "1h"), request(1800, "1h")], *given)["cached_tokens"] > 2000


def test_a_marker_for_the_whole_request(tmp_path):
    first = [("system", RULES), ("user", "Which page?")]
    records = [
        record(*first, cache_control={"type": "ephemeral"}),
        record(*first, ("assistant", "One."), ("user", "And then?"), at=10, cache_control={"type": "ephemeral"}),
    ]
    found = replay(tmp_path, records, "--engine", "anthropic", "--model", "claude-sonnet-4-5")
    assert found["request_hit_rate"] == 0.5


def test_usage_fields_are_compared_with_what_was_expected(tmp_path):
    usage = {"gen_ai.usage.input_tokens": 2000, "gen_ai.usage.cache_read.input_tokens": 0}
    records = [record(("system", RULES), ("user", f"Question {n}"), usage=usage) for n in range(4)]
    found = replay(tmp_path, [*records, record(("user", "no usage"))], "--engine", "openai", "--model", "gpt-5.6")
    observed = found["observed"]
    assert (observed["requests"], observed["prompt_tokens"], observed["hit_rate"]) == (4, 8000, 0)
    assert observed["expected_hit_rate"] == pytest.approx(0.75, abs=0.01)
    assert replay(tmp_path, [record(("user", "no usage"))])["observed"] is None


def test_a_longer_lifetime_behind_a_shorter_one_is_refused(tmp_path):
    def marked(text, **more):
        return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral", **more}}]

    wrong = record(("system", marked(RULES)), ("user", marked("And this page?", ttl="1h")))
    right = record(("system", marked(RULES, ttl="1h")), ("user", marked("And this page?")))
    found = replay(tmp_path, [wrong, right], "--engine", "anthropic", "--model", "claude-sonnet-4-5")
    assert (found["requests"], found["refused"]) == (1, 1)
    assert "refuses a marker with a longer lifetime" in found["problems"][0]["reason"]


def test_requests_above_the_rate_go_elsewhere(tmp_path):
    records = [record(("system", RULES), ("user", f"Question {n}"), at=n + 1) for n in range(20)]
    given = ("--engine", "openai", "--model", "gpt-4o")
    assert replay(tmp_path, records, *given)["request_hit_rate"] == 0.9
    assert replay(tmp_path, records, *given)["settings"]["overflow"] == "5 requests above 15 a minute"
    assert replay(tmp_path, records, *given, "--no-overflow")["request_hit_rate"] == 0.95
    spread = [{**one, "prompt_cache_key": f"key {n}"} for n, one in enumerate(records)]
    assert replay(tmp_path, spread, *given)["request_hit_rate"] == 0


def test_the_user_s_own_terms(tmp_path):
    """A contract with a lower minimum and another price of a cached token."""
    (tmp_path / "own" / "providers").mkdir(parents=True)
    (tmp_path / "own" / "providers" / "ours.toml").write_text(
        'name = "anthropic"\nverified = { on = 2020-01-01 }\n[source]\nus = { url = "https://example.com", date = "2020" }\n'
        '[fact]\nminimum = { value = 10, source = "us" }\nread = { value = 0.5, source = "us" }\n'
    )
    block = [{"type": "text", "text": RULES[:600], "cache_control": {"type": "ephemeral"}}]
    records = [record(("system", block), ("user", f"Question {n}")) for n in range(2)]
    given = ("--engine", "anthropic", "--model", "claude-sonnet-4-5")
    assert replay(tmp_path, records, *given)["cached_tokens"] == 0
    found = replay(tmp_path, records, *given, "--extra-rules", str(tmp_path / "own"))
    assert found["cached_tokens"] > 100
    read, written = found["cached_tokens"], found["written_tokens"]
    fresh = found["prompt_tokens"] - read - written
    assert found["cost"]["relative_input_cost"] == pytest.approx(
        (fresh + 0.5 * read + 1.25 * written) / found["prompt_tokens"]
    )
    log = str(tmp_path / "log.jsonl")
    told = CliRunner().invoke(cli, ["simulate", log, *given, "--extra-rules", str(tmp_path / "own")])
    assert "terms last checked 2020-01-01" in told.stderr


def test_what_a_replay_rests_on_is_said(tmp_path):
    records = [record(("system", RULES), ("user", f"Question {n}")) for n in range(2)]
    told = replay(tmp_path, records, "--engine", "xai", "--model", "grok-4.6")["settings"]
    assert told["low_confidence"] == "mode and block"
    assert "upper bound" in told["routing"]
    keyed = [{**one, "prompt_cache_key": "conversation 7"} for one in records]
    assert "routing" not in replay(tmp_path, keyed, "--engine", "xai", "--model", "grok-4.6")["settings"]
    assert "low_confidence" not in replay(tmp_path, records, "--engine", "openai", "--model", "gpt-4o")["settings"]


def test_reported_writes_stand_beside_the_expected_ones(tmp_path):
    block = [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}]
    usage = {"input_tokens": 9, "cache_creation_input_tokens": 2400, "cache_read_input_tokens": 0}
    records = [record(("system", block), ("user", f"Question {n}"), usage=usage) for n in range(2)]
    found = replay(tmp_path, records, "--engine", "anthropic", "--model", "claude-sonnet-4-5")
    assert (
        found["observed"]["written_tokens"] == 4800
    )  # the second request wrote again: something differs that no log shows
    assert 2000 < found["written_tokens"] < 3000
    told = CliRunner().invoke(cli, ["simulate", str(tmp_path / "log.jsonl"), "--engine", "anthropic"])
    assert "4,800 tokens written into the cache" in told.stdout


def test_each_request_meets_the_terms_of_its_own_model(tmp_path):
    """One message with a changing tail: in blocks of 128 before GPT-5.6, not at all from it on, when the log says which model it was."""
    newer, older = (
        [record(("user", f"{RULES} Question {n}"), model=m) for n in range(3)] for m in ("gpt-5.6", "gpt-4o")
    )
    found = replay(tmp_path, [*newer, *older], "--engine", "openai")
    rates = {row["name"]: row["hit_rate"] for row in found["groups"]}
    assert rates["gpt-5.6"] == 0
    assert rates["gpt-4o"] > 0.6
    assert found["settings"]["model"] == "gpt-4o/gpt-5.6"
    assert found["settings"]["mode"] == "block/breakpoint"
    assert found["cost"]["input_dollars"] > 0  # each at its own price
    alone = [replay(tmp_path, part, "--engine", "openai")["cost"]["input_dollars"] for part in (newer, older)]
    assert found["cost"]["input_dollars"] == pytest.approx(sum(alone), abs=2e-6)
    named = replay(tmp_path, newer, "--engine", "openai", "--model", "gpt-4o")  # the option wins: what if
    assert named["hit_rate"] > 0.6
    assert named["settings"]["model"] == "gpt-4o"
