"""The order of blocks under a chat template that lies on this machine: in a folder that code or settings name, or in the hub's cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from promptlint.advisor.reorder import propose_all
from promptlint.app.check import Request, check, check_with_analysis
from promptlint.config import Settings
from promptlint.errors import UserError

SYSTEM_THEN_TOOLS = """\
{%- if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}
{%- if tools %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for message in messages if message.role != 'system' %}<{{ message.role }}>{{ message.content }}
{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""
DATED = "Today is {{ strftime_now('%d %b %Y') }}.\n" + SYSTEM_THEN_TOOLS
MOVED = """\
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}{% endif %}
{%- for message in messages %}
{%- if loop.last and message.role == 'user' %}{{ tools | tojson if tools }}{{ system }}
{% endif %}<{{ message.role }}>{{ message.content }}
{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""

CODE = """
from openai import OpenAI
from transformers import AutoTokenizer

RULES = "Answer from the manual only, in short sentences, and never guess. " * 40
TOOLS = [{"type": "function", "function": {"name": "find", "description": "Finds a page. " * 40, "parameters": {}}}]


def ask(question):
    return OpenAI(base_url="http://localhost:8000/v1").chat.completions.create(
        model="MODEL",
        tools=TOOLS,
        messages=[{"role": "system", "content": RULES}, {"role": "user", "content": question}],
    )


def render(question, history):
    tokenizer = AutoTokenizer.from_pretrained("MODEL")
    messages = [{"role": "system", "content": RULES}, *history, {"role": "user", "content": question}]
    return tokenizer.apply_chat_template(messages, tools=TOOLS)
"""


@pytest.fixture(autouse=True)
def no_cache_of_the_hub(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HOME", raising=False)


def project(tmp_path: Path, model: str, folder: Path | None = None, template: str | None = None) -> Request:
    root = tmp_path / "app"
    root.mkdir()
    (root / "pyproject.toml").write_text("")
    (root / "ask.py").write_text(CODE.replace("MODEL", model))
    if folder is not None:
        (root / folder).mkdir(parents=True)
        (root / folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return Request((root / "ask.py",), root)


def kinds(report, function="ask"):
    (site,) = [site for site in report.call_sites if f"::{function}::" in site.id]
    return [block.kind for block in site.blocks]


@pytest.mark.parametrize("template, order", [
    (SYSTEM_THEN_TOOLS, ["system", "tools", "question"]),
    (DATED, ["other", "system", "tools", "question"]),
    (MOVED, ["tools", "system", "question"]),
])  # fmt: skip
def test_a_folder_that_the_code_names(tmp_path, template, order):
    request = project(tmp_path, "models/own", Path("models/own"), template)
    report = check(Settings(tmp_path / "app"), request, use_cache=False)
    assert kinds(report) == order
    assert report.assumptions["chat_templates"]["models/own"]["path"] == "models/own/tokenizer_config.json"


def test_without_a_template_the_row_of_the_sdk_holds(tmp_path):
    report = check(Settings(tmp_path / "app"), project(tmp_path, "org/unknown"), use_cache=False)
    assert kinds(report) == ["tools", "system", "question"]
    assert "chat_templates" not in report.assumptions


def test_the_order_of_a_known_provider_stands(tmp_path):
    request = project(tmp_path, "gpt-4o", Path("gpt-4o"), SYSTEM_THEN_TOOLS)
    assert kinds(check(Settings(tmp_path / "app"), request, use_cache=False)) == ["tools", "system", "question"]


def test_a_snapshot_in_the_cache_of_the_hub(tmp_path):
    model = tmp_path / "hub" / "models--org--own"
    for revision, template in (("old", MOVED), ("new", SYSTEM_THEN_TOOLS)):
        (model / "snapshots" / revision).mkdir(parents=True)
        (model / "snapshots" / revision / "chat_template.jinja").write_text(template)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("new")
    report = check(Settings(tmp_path / "app"), project(tmp_path, "org/own"), use_cache=False)
    assert kinds(report) == ["system", "tools", "question"]
    assert kinds(report, "render") == ["system", "tools", "history", "question"]


def test_what_a_template_moves_behind_the_history_is_nobody_elses_fault(tmp_path):
    """The tools and the system text are written again in each turn: no text of the code stands wrongly, and no order of it would help."""
    request = project(tmp_path, "models/own", Path("models/own"), MOVED)
    report, analysis = check_with_analysis(Settings(tmp_path / "app"), request)
    assert kinds(report, "render") == ["history", "tools", "system", "question"]
    assert report.findings == ()
    assert not [one for one in propose_all(analysis.result.call_sites) if "render" in one.call_site]


def test_the_setting_holds_for_every_call_site(tmp_path):
    request = project(tmp_path, "some-model")
    template = tmp_path / "app" / "own.jinja"
    template.write_text(SYSTEM_THEN_TOOLS)
    assert kinds(check(Settings(tmp_path / "app", chat_template=template), request, use_cache=False))[:2] == [
        "system",
        "tools",
    ]
    with pytest.raises(UserError, match="no chat template"):
        check(Settings(tmp_path / "app", chat_template=tmp_path / "app"), request, use_cache=False)


def test_a_cached_report_notices_another_template(tmp_path):
    request = project(tmp_path, "models/own", Path("models/own"), MOVED)
    settings = Settings(tmp_path / "app")
    assert kinds(check(settings, request))[0] == "tools"
    (tmp_path / "app/models/own/tokenizer_config.json").write_text(json.dumps({"chat_template": SYSTEM_THEN_TOOLS}))
    assert kinds(check(settings, request))[0] == "system"


@pytest.mark.parametrize("text", ["{", "[]", '{"chat_template": 3}', '{"chat_template": "{% for"}', '{"chat_template": "{{ messages[0].content.__class__ }}"}'])  # fmt: skip
def test_a_broken_template_changes_nothing(tmp_path, text):
    request = project(tmp_path, "models/own", Path("models/own"), "")
    (tmp_path / "app/models/own/tokenizer_config.json").write_text(text)
    assert kinds(check(Settings(tmp_path / "app"), request, use_cache=False)) == ["tools", "system", "question"]
