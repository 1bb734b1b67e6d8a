"""No report shows what looks like a key, and what is shared shows no text."""

from __future__ import annotations

import pytest

from promptlint.advisor.diagnose.redact import AROUND, digest, masked, snippet

SECRETS = [
    "sk-proj-abcDEF0123456789xyz",
    "sk_live_abcDEF0123456789xyz",
    "ghp_abcdefghijklmnopqrstuvwxyz012345",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefgh",
    "Bearer abcdefghijklmnop",
    'api_key="hunter2hunter2"',
    "password: correct-horse",
    "postgres://admin:s3cr3t@db",
    "-----BEGIN PRIVATE KEY-----\n" + "MIIabc0123456789\n" * 99 + "-----END PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_keys_are_masked_wherever_a_snippet_cuts_them(secret):
    text = f"Before it {secret} and behind."
    core = secret[-12:-4]
    assert core not in masked(text)
    for start in range(0, len(text), max(1, len(text) // 60)):
        assert core not in snippet(text, start, start + 1)


def test_plain_words_stay():
    text = "The token budget is large; ask the secretary at https://example.org/path."
    assert masked(text) == text


def test_a_snippet_has_twenty_characters_around():
    text = "".join(chr(ord("a") + n % 26) for n in range(200))
    assert snippet(text, 100, 105) == text[100 - AROUND : 105 + AROUND]


def test_a_digest_is_stable_and_salted():
    assert digest("a") == digest("a") != digest("a", "salt")


def test_redacted_json_names_no_tool_and_quotes_no_value():
    import json

    from promptlint.advisor.diagnose import diagnose
    from promptlint.report.diagnose import to_json
    from promptlint.traffic.read import Problem
    from promptlint.traffic.record import Record

    messages = [{"role": "user", "content": "hello"}]
    records = [Record(messages=messages, tools=[{"name": name, "description": "x " * 99}]) for name in ("plum", "pear")]
    text = to_json(
        diagnose(records, len), [Problem("a.jsonl", 1, "not a time: 'my secret plan'", "timestamp")], redact=True
    )
    assert json.loads(text)["divergences"][0]["path"] == "tools"
    assert not any(word in text for word in ("plum", "pear", "secret plan", "hello"))
