"""rules/providers: every fact is dated and sourced; the right page and value is found for a model; users can override."""

import datetime as dt
import json

import pytest

from promptlint.catalog.providers import STALE_DAYS, load_providers, page_for, provider_at, resolve
from promptlint.cli import cli
from promptlint.errors import UserError
from promptlint.report.providers import stale

NAMES = [
    "anthropic",
    "azure-openai",
    "azure-openai-5.6",
    "bedrock",
    "dashscope",
    "dashscope-explicit",
    "deepseek",
    "fireworks",
    "gemini",
    "groq",
    "minimax",
    "mistral",
    "moonshot",
    "openai-5.6",
    "openai-legacy",
    "openrouter",
    "together",
    "vertex",
    "xai",
]


def terms(provider, model=""):
    page = page_for(provider, model)
    assert page is not None
    return resolve(page, model)


def test_pages():
    assert sorted(load_providers()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_has_a_dated_source(name):
    page = load_providers()[name]
    for fact in page.facts.values():
        assert fact.sources
        for source in fact.sources:
            assert source.date[:4] in {"2025", "2026"}
            assert source.url
        if fact.name in {"read", "write"}:
            assert fact.confidence != "low"  # money never rests on a guess


@pytest.mark.parametrize("name", NAMES)
def test_terms_are_sane(name):
    found = resolve(load_providers()[name])
    assert found.block >= 1
    assert found.minimum >= 0
    assert found.read is None or 0 < found.read <= 1
    assert all(1 <= factor <= 3 for _, factor in found.writes)
    assert found.mode != "breakpoint" or found.explicit or found.implicit


@pytest.mark.parametrize(
    ("provider", "model", "page", "mode", "minimum", "read", "write"),
    [
        ("openai", "gpt-4o-mini", "openai-legacy", "block", 1024, 0.5, 1.0),
        ("openai", "gpt-4.1", "openai-legacy", "block", 1024, 0.25, 1.0),
        ("openai", "gpt-5", "openai-legacy", "block", 1024, 0.1, 1.0),
        ("openai", "gpt-5.6-sol", "openai-5.6", "breakpoint", 1024, 0.1, 1.25),
        ("openai", "gpt-6.1-sol", "openai-5.6", "breakpoint", 1024, 0.05, 1.25),
        ("openai", "", "openai-legacy", "block", 1024, 0.5, 1.0),
        ("openai", "my-deployment", "openai-legacy", "block", 1024, 0.5, 1.0),
        ("openai", "gpt-5-pro", "openai-legacy", "block", 1024, 1.0, 1.0),
        ("azure", "gpt-5.6-sol", "azure-openai-5.6", "breakpoint", 1024, 0.1, 1.25),
        ("anthropic", "claude-opus-4-5-20251101", "anthropic", "breakpoint", 4096, 0.1, 1.25),
        ("anthropic", "claude-opus-4-20250514", "anthropic", "breakpoint", 1024, 0.1, 1.25),
        ("anthropic", "claude-opus-5-5", "anthropic", "breakpoint", 512, 0.05, 1.25),
        ("anthropic", "claude-sonnet-4-6", "anthropic", "breakpoint", 1024, 0.1, 1.25),
        ("bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "bedrock", "breakpoint", 4096, 0.1, 1.25),
        ("bedrock", "amazon.nova-lite-v1:0", "bedrock", "breakpoint", 1536, 0.25, 1.0),
        ("google", "gemini-2.5-pro", "gemini", "token", 2048, 0.1, 1.0),
        ("vertex_ai", "gemini-4-argon", "vertex", "token", 6144, 0.1, 1.0),
        ("groq", "openai/gpt-oss-120b", "groq", "token", 1024, 0.5, 1.0),
        ("litellm", "anthropic/claude-haiku-4-5", "anthropic", "breakpoint", 4096, 0.1, 1.25),
        ("litellm", "claude-haiku-4-5", "anthropic", "breakpoint", 4096, 0.1, 1.25),
        ("", "deepseek-v4-pro", "deepseek", "breakpoint", 64, 0.0333, 1.0),
        ("dashscope-explicit", "qwen3.8-max", "dashscope-explicit", "breakpoint", 1024, 0.1, 1.25),
    ],
)
def test_page_and_values_of_a_model(provider, model, page, mode, minimum, read, write):
    found = terms(provider, model)
    assert (found.provider, found.mode, found.minimum, found.read, found.write()) == (page, mode, minimum, read, write)


def test_an_unknown_provider_has_no_page():
    assert page_for("nobody", "some-model") is None
    assert page_for("", "") is None


def test_write_price_by_lifetime():
    found = terms("anthropic", "claude-sonnet-5")
    assert (found.write("5m"), found.write("1h"), found.ttl_seconds) == (1.25, 2.0, 300)


def test_money_by_hand():
    # Claude Sonnet 5: 2 $ a million. 1,000 uncached + 10,000 read at 0.1 + 2,000 written at 1.25 = 4,500 input tokens' worth; 500 out at 10 $.
    found = terms("anthropic", "claude-sonnet-5")
    assert found.money(1_000, 10_000, 2_000, 500) == pytest.approx((4_500 * 2 + 500 * 10) / 1e6)
    assert terms("openrouter").money(1, 1) is None


def test_what_is_not_documented_is_listed():
    found = terms("together", "some-model")
    assert "minimum" in found.guessed
    assert "mode" in found.low_confidence


def test_a_user_overrides_fact_by_fact(tmp_path):
    folder = tmp_path / "providers"
    folder.mkdir()
    (folder / "mine.toml").write_text(
        'name = "anthropic"\n[source]\nus = { url = "https://example.com/contract", date = "2026-12-01" }\n'
        '[fact]\nread = { value = 0.08, source = "us", confidence = "high" }\n'
    )
    page = page_for("anthropic", "claude-sonnet-4-6", (tmp_path,))
    found = resolve(page, "claude-sonnet-4-6")
    assert (found.read, found.minimum, found.mode) == (0.08, 1024, "breakpoint")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[fact]\nmod = { value = "token" }\n', "did you mean mode"),
        ('[fact]\nmode = { value = "chunk", source = "s" }\n', "chunk"),
        ('[fact]\nmode = { value = "token" }\n', "source and its date"),
        ('[fact]\nmode = { value = "token", source = "t" }\n', "not listed"),
        ('[fact]\nmode = { value = "token", source = "s" }\nread = { value = "0.1", source = "s" }\n', "does not fit"),
        ('[fact]\nmode = { value = "token", source = "s", confidence = "sure" }\n', "sure"),
        ('[fact]\nread = { value = 0.5, source = "s" }\n', "no mode"),
        ('[fact]\nread = { value = inf, source = "s" }\n', "from 0 on"),
        ('[fact]\nwrite = { value = { "5m" = "dear" }, source = "s" }\n', "from 0 on"),
        ('[fact]\nprice = { value = { input = nan }, source = "s" }\n', "from 0 on"),
        ('[fact]\nttl = { value = { "5m" = "x" }, source = "s" }\n', "whole seconds"),
        ('[fact]\nttl = { value = { "5m" = -3 }, source = "s" }\n', "whole seconds"),
        ('[fact]\nminimum = { value = 1024, models = { "m*" = -1 }, source = "s" }\n', "0 or more"),
        ('[fact]\nmax_breakpoints = { value = 0, source = "s" }\n', "1 or more"),
        ('[fact]\nrender_order = { value = [1], source = "s" }\n', "list of words"),
        ('[fact]\nminimum = { value = 1, models = [1], source = "s" }\n', "a table from a model"),
    ],
)
def test_a_page_that_does_not_fit_is_refused(tmp_path, text, message):
    folder = tmp_path / "providers"
    folder.mkdir()
    head = (
        'name = "mine"\nverified = { on = 2026-11-30 }\n[source]\ns = { url = "https://example.com", date = "2026" }\n'
    )
    (folder / "mine.toml").write_text(head + text)
    with pytest.raises(UserError, match=message):
        load_providers((tmp_path,))


def test_names_of_a_page_are_lists(tmp_path):
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "anthropic.toml").write_text('models = "claude*"\n')
    with pytest.raises(UserError, match="models: a list of words"):
        load_providers((tmp_path,))


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("https://api.x.ai/v1", "xai"),
        ("https://API.DeepSeek.com", "deepseek"),
        ("https://api.groq.com:443/openai/v1", "groq"),
        ("http://localhost:8000/v1", None),
        ("https://api.x.ai.example.com/v1", None),
        ("api.x.ai", None),
        ("", None),
    ],
)
def test_the_provider_at_an_address(url, provider):
    assert provider_at(url) == provider


def test_old_pages_warn():
    page = load_providers()["anthropic"]
    assert stale([page], page.verified + dt.timedelta(days=STALE_DAYS)) == []
    (warning,) = stale([page], page.verified + dt.timedelta(days=STALE_DAYS + 1))
    assert "181 days ago" in warning


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["providers", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_command_lists_and_details(capsys):
    listed = run(capsys)
    assert all(name in listed for name in NAMES)
    assert "block(256)?" in listed  # Kimi's block size is a third-party measurement
    shown = run(capsys, "anthropic", "--model", "claude-opus-4-5")
    assert "minimum: 4096" in shown
    assert "request number 2 (5m), 3 (1h)" in shown
    assert "LOW CONFIDENCE" in run(capsys, "xai")


def test_command_json(capsys):
    data = json.loads(run(capsys, "--output-format", "json"))
    assert data["schema"] == "promptlint.providers/1"
    assert [page["name"] for page in data["providers"]] == NAMES
    assert data["providers"][0]["facts"]["minimum"]["sources"]


def test_the_project_s_own_terms_are_listed_and_replayed(tmp_path, monkeypatch, capsys):
    own = tmp_path / "own" / "providers"
    own.mkdir(parents=True)
    (own / "anthropic.toml").write_text(
        '[source]\nus = { url = "https://example.com/contract", date = "2026-12-01" }\n'
        '[fact]\nread = { value = 0.0801, source = "us", confidence = "high" }\nmode = { value = "token", source = "us" }\n'
        'minimum = { value = 0, models = { "claude*" = 0 }, source = "us" }\n'
    )
    (tmp_path / "promptlint.toml").write_text('extra-rules = ["own"]\n')
    (tmp_path / "log.jsonl").write_text('{"tokens": [1, 2, 3, 4]}\n' * 2)
    monkeypatch.chdir(tmp_path)
    assert "0.0801" in run(capsys, "anthropic")
    with pytest.raises(SystemExit):
        cli.main(["simulate", "log.jsonl", "--engine", "anthropic", "--output-format", "json"])
    assert json.loads(capsys.readouterr().out)["cached_tokens"] == 3
