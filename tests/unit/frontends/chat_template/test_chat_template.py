"""Verdicts on chat templates, by rendering."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptlint.frontends import chat_template
from promptlint.frontends.base import Project
from promptlint.frontends.chat_template import Form, Renderer, RenderError, Verdict

PLAIN = """{%- if tools %}<tools>{{ tools | tojson }}</tools>
{%- endif %}
{%- for m in messages %}
<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}
<|assistant|>{% endif %}"""


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer() as made:
        yield made


def lines(*parts: str) -> str:
    return "\n".join(parts)


def judge(text: str, renderer: Renderer) -> Verdict:
    return chat_template.judge(text, renderer)


def test_a_plain_template_is_stable(renderer: Renderer) -> None:
    verdict = judge(PLAIN, renderer)
    assert (verdict.verdict, verdict.date, verdict.line) == ("stable", "never", 0)
    assert verdict.form == Form()
    assert 0 < verdict.reusable_share < 1


def test_a_text_that_is_never_sent_may_differ(renderer: Renderer) -> None:
    text = PLAIN.replace("{% endif %}", "{% endif %}", 1) + "{% if not add_generation_prompt %}</s>{% endif %}"
    assert judge(text, renderer).verdict == "stable-in-serving"


def test_a_generation_prompt_that_is_not_replayed(renderer: Renderer) -> None:
    verdict = judge(PLAIN.replace("<|assistant|>{% endif %}", "<|assistant|><think>{% endif %}"), renderer)
    assert (verdict.verdict, verdict.drops_reasoning) == ("generation-prompt-not-replayed", False)


def test_reasoning_that_is_dropped_when_the_user_speaks_again(renderer: Renderer) -> None:
    text = lines(
        "{%- set ns = namespace(last=0) %}",
        "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}",
        "{%- for m in messages %}",
        "<|{{ m.role }}|>",
        "{%- if m.reasoning_content and loop.index0 > ns.last %}",
        "<think>{{ m.reasoning_content }}</think>",
        "{%- endif %}{{ m.content }}",
        "{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    )
    verdict = judge(text, renderer)
    assert (verdict.verdict, verdict.drops_reasoning, verdict.moves_tools) == ("rewrites-history", True, False)
    assert verdict.line == 5


def test_tools_and_system_text_that_move_to_the_newest_question(renderer: Renderer) -> None:
    text = lines(
        "{%- set system = messages[0].content if messages[0].role == 'system' else '' %}",
        "{%- for m in messages %}{% if m.role != 'system' %}",
        "{%- if m.role == 'user' and m == (messages | selectattr('role', 'equalto', 'user') | list)[-1] %}",
        "[TOOLS]{{ tools | tojson }}[/TOOLS]{{ system }}",
        "{%- endif %}",
        "<|{{ m.role }}|>{{ m.content }}",
        "{%- endif %}{% endfor %}",
    )
    verdict = judge(text, renderer)
    assert (verdict.verdict, verdict.moves_tools, verdict.moves_system, verdict.drops_reasoning) == (
        "rewrites-history",
        True,
        True,
        False,
    )
    assert verdict.line == 3
    assert verdict.reusable_share < 0.5


@pytest.mark.parametrize(
    "head, date",
    [
        ("Today is {{ strftime_now('%d %B %Y') }}.\n", "always"),
        ("{% if messages[0].role != 'system' %}It is {{ now().isoformat() }}.\n{% endif %}", "without-system"),
        (
            "{% if date_string is not defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}\n",
            "never",
        ),
    ],
)
def test_dates(head: str, date: str, renderer: Renderer) -> None:
    verdict = judge(head + PLAIN, renderer)
    assert (verdict.verdict, verdict.date, verdict.line) == ("stable", date, 1 if date != "never" else 0)


@pytest.mark.parametrize(
    "guard, form",
    [
        ("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", Form(system=False)),
        (
            "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}",
            Form(tools=False),
        ),
        (
            "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ 'x' + c.function.arguments }}{% endfor %}{% endfor %}",
            Form(arguments="text"),
        ),
        ("{{ 'x' + functions }}", Form(fill=True)),
    ],
)
def test_a_template_is_judged_by_a_conversation_that_it_accepts(guard: str, form: Form, renderer: Renderer) -> None:
    verdict = judge(PLAIN + guard if "functions" not in guard else guard + PLAIN, renderer)
    assert verdict.form == form


@pytest.mark.parametrize(
    "attack, kind",
    [
        ("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", "limit"),
        ("{{ 'a' * 10000000000 }}", "limit"),
        (
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "limit",
        ),
        ("{% for a in range(90000) %}{{ 'x' * 1000 }}{% endfor %}", "limit"),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "limit"),
        ("{{ ''.__class__.__mro__ }}", "forbidden"),
        ("{{ messages.__init__.__globals__ }}", "forbidden"),
        ("{% include '/etc/passwd' %}", "include"),
        ("{{ raise_exception('never') }}", "refused"),
        ("{% if %}", "syntax"),
    ],
)
def test_bounds(attack: str, kind: str, renderer: Renderer) -> None:
    with pytest.raises(RenderError) as caught:
        judge(PLAIN + attack, renderer)
    assert caught.value.kind == kind


def test_time_is_bounded_and_the_next_template_is_judged() -> None:
    slow = PLAIN + "{% for i in range(9000) %}{% set x = range(90000) | list | sort %}{% endfor %}"
    with Renderer(seconds=1.0) as renderer:
        with pytest.raises(RenderError, match="longer than 1 s"):
            judge(slow, renderer)
        renderer.seconds = 20.0
        assert judge(PLAIN, renderer).verdict == "stable"


def project(tmp_path: Path, **files: str) -> tuple[Project, list[Path]]:
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".")
        path.write_text(text, "utf-8")
        paths.append(path)
    return Project(tmp_path, paths, frozenset(paths), working_directory=tmp_path), paths


def test_files(tmp_path: Path) -> None:
    config = json.dumps({"bos_token": "<s>", "chat_template": "{{ strftime_now('%Y') }}" + PLAIN}, indent=1)
    several = json.dumps(
        {"chat_template": [{"name": "default", "template": PLAIN}, {"name": "rag", "template": PLAIN}]}
    )
    own = "You are {{ persona }}.\n{% for h in history %}{{ h.role }}: {{ h.content }}\n{% endfor %}user: {{ question }}\nassistant:"
    windowed = own.replace("in history", "in history[-2:]")
    made, paths = project(
        tmp_path,
        chat__jinja=PLAIN,
        tokenizer_config__json=config,
        several__json=several,
        other__json='{"name": 1}',
        prompt__j2="Answer {{ question }}",
        own__j2=own,
        windowed__j2=windowed,
        bad__jinja=PLAIN + "{{ ''.__class__.__mro__ }}",
    )
    reading = chat_template.read(made, paths)
    found = [(v.path, v.verdict, v.date, v.line) for v in reading.templates]
    assert found == [
        ("chat.jinja", "stable", "never", 0),
        ("tokenizer_config.json", "stable", "always", 3),
        ("several.json", "stable", "never", 0),
        ("several.json", "stable", "never", 0),
        ("own.j2", "stable", "never", 0),
        ("windowed.j2", "rewrites-history", "never", 2),
    ]
    (unread,) = reading.unread
    assert (unread.path, unread.line) == ("bad.jinja", 7)
    assert "sandbox forbids" in unread.reason
