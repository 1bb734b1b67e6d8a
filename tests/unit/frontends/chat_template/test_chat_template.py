"""Verdicts on chat templates, by rendering."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptlint.frontends import chat_template
from promptlint.frontends.base import Project
from promptlint.frontends.chat_template import Form, Renderer, RenderError, Verdict
from promptlint.frontends.conversation import conversation_of

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


def test_contents_are_lists_where_texts_are_passed_over(renderer: Renderer) -> None:
    """A text is run over character by character, none of which has a type: nothing is written, and nothing would be compared."""
    text = (
        "{% for m in messages[-2:] %}{{ m.role }}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
        "{% endif %}{% endfor %}{% endfor %}"
    )
    verdict = judge(text, renderer)
    assert verdict.form.parts
    assert verdict.verdict == "rewrites-history"
    silent = "{% for m in messages %}{{ m.content | length }}{% endfor %}"  # writes no message in any form: judged all the same
    assert judge(silent, renderer).verdict == "stable"


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
        ("{{ ''.__class__ }}", "forbidden"),
        ("{{ '' | attr('__class__') }}", "forbidden"),
        ("{{ messages | map(attribute='__class__') | list }}", "forbidden"),
        ("{{ '{0.__class__}'.format(messages) }}", "forbidden"),
        ("{{ raise_exception.__globals__ }}", "forbidden"),
        ("{{ lipsum.__globals__['os'] }}", "forbidden"),
        ("{{ 'a' | center(10000000000) }}", "limit"),
        ("{{ '%0999999999d' % 5 }}", "limit"),
        ("{{ 'a'.ljust(10000000000) }}", "limit"),
        ("{{ [1] | batch(1000000000, 'x') | list | length }}", "limit"),
        ("{{ ('[' * 100000) | fromjson }}", "limit"),
        ("{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}", "limit"),
        ("{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}", "limit"),
        ("{% include '/etc/passwd' %}", "include"),
        ("{% import 'x' as x %}", "include"),
        ("{% extends 'x' %}", "include"),
        ("{{ raise_exception('never') }}", "refused"),
        ("{% if %}", "syntax"),
    ],
)
def test_bounds(attack: str, kind: str, renderer: Renderer) -> None:
    with pytest.raises(RenderError) as caught:
        judge(PLAIN + attack, renderer)
    assert caught.value.kind == kind


def test_the_time_of_all_renderings_together_is_bounded() -> None:
    """A template that refuses each form of conversation, slowly, does not get the whole time for each."""
    slow = (
        PLAIN
        + "{% for i in range(40) %}{% set x = range(90000) | list | sort %}{% endfor %}{{ raise_exception('no') }}"
    )
    begun = time.monotonic()
    with Renderer(seconds=1.0) as renderer, pytest.raises(RenderError, match="longer than 1 s"):
        judge(slow, renderer)
    assert time.monotonic() - begun < 8  # 14 forms took some 20 seconds


def test_an_include_names_what_is_missing(renderer: Renderer) -> None:
    with pytest.raises(RenderError, match=r"needs another template, 'shared/head\.jinja'"):
        judge(PLAIN + "{% include 'shared/head.jinja' %}", renderer)


def test_a_template_without_end_is_not_even_parsed(tmp_path: Path) -> None:
    made, paths = project(tmp_path, chat_template__jinja=PLAIN + "{{ 1 }}" * 30_000)
    (unread,) = chat_template.read(made, paths).unread
    assert unread.reason == "the chat template has more than 200,000 characters: not judged"


EACH = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
ASK = "{% if add_generation_prompt %}<assistant>{% endif %}"
TALK = "{% for m in messages %}<{{ m.role }}>BODY\n{% endfor %}" + ASK
ODD = {
    "refuses a system message": ("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + EACH + ASK, "stable"),
    "insists on alternation": (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}\n{% endfor %}" + ASK,
        "stable",
    ),
    "knows no role tool or system": (
        "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception(m.role) }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}\n{% endfor %}" + ASK,
        "stable",
    ),
    "writes the system text into the first question": (
        "{% set s = messages[0].content %}{% for m in messages[1:] %}<{{ m.role }}>{{ s if loop.first }}{{ m.content }}\n{% endfor %}" + ASK,
        "stable",
    ),
    "writes the system text into the newest question": (
        "{% set s = messages[0].content %}{% for m in messages[1:] %}<{{ m.role }}>{{ s if loop.last }}{{ m.content }}\n{% endfor %}" + ASK,
        "rewrites-history system",
    ),
    "shows the tools at the newest question": (
        "{% for m in messages %}{{ tools | tojson(indent=2) if loop.last and m.role == 'user' }}<{{ m.role }}>{{ m.content }}\n{% endfor %}" + ASK,
        "rewrites-history tools",
    ),
    "keeps reasoning": (TALK.replace("BODY", "{{ m.reasoning_content }}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}"), "stable"),
    "keeps reasoning behind the last question": (
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        + TALK.replace("BODY", "{{ m.reasoning_content if loop.index0 > ns.last }}{{ m.content }}"),
        "rewrites-history reasoning",
    ),
    "begins an answer with empty reasoning": (EACH.replace("</{{ m.role }}>", "") + "{% if add_generation_prompt %}<assistant><think></think>{% endif %}", "generation-prompt-not-replayed"),
    "ends a text that is not continued": (TALK.replace("BODY", "{{ m.content }}") + "{% if not add_generation_prompt %}</s>{% endif %}", "stable-in-serving"),
    "a macro": ("{% macro say(m) %}<{{ m.role }}>{{ m.content }}\n{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}" + ASK, "stable"),
    "generation tags": (TALK.replace("BODY", "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"), "stable"),
    "break and continue": (
        "{% for m in messages %}{% if loop.index > 500 %}{% break %}{% endif %}{% if m.role == 'tool' %}{% continue %}{% endif %}<{{ m.role }}>{{ m.content }}\n{% endfor %}" + ASK,
        "stable",
    ),
    "a window": ("{% for m in messages[-4:] %}<{{ m.role }}>{{ m.content }}\n{% endfor %}" + ASK, "rewrites-history"),
    "a count": ("{{ messages | length }} messages\n" + EACH + ASK, "rewrites-history"),
    "a suffix on the newest message": (TALK.replace("BODY", "{{ m.content }}{{ ' /no_think' if loop.last }}"), "rewrites-history"),
    "an unfinished last message": (TALK.replace("BODY\n", "{{ m.content }}{% if not (loop.last and continue_final_message) %}\n{% endif %}"), "stable"),
    "options that are not given": (TALK.replace("BODY", "{{ m.content }}{{ '<think></think>' if enable_thinking is defined and not enable_thinking }}"), "stable"),
    "tojson with its arguments": ("{{ tools | tojson(separators=(',', ':'), sort_keys=True, ensure_ascii=False) }}" + EACH + ASK, "stable"),
    "arguments as an object": (TALK.replace("BODY", "{{ m.content }}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}"), "stable"),
    "arguments as text": (TALK.replace("BODY", "{{ m.content }}{% for c in m.tool_calls or [] %}{{ 'call ' + c.function.arguments }}{% endfor %}"), "stable"),
    "contents as parts": (TALK.replace("BODY", "{% for part in m.content %}{{ part['text'] }}{% endfor %}"), "stable"),
    "results of tools in one message": (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ '<user>' if loop.previtem.role != 'tool' }}{{ m.content }}"
        "{{ '\n' if loop.last or loop.nextitem.role != 'tool' }}{% else %}<{{ m.role }}>{{ m.content }}\n{% endif %}{% endfor %}" + ASK,
        "stable",
    ),
    "a date that the caller may freeze": ("{% if not date is defined %}{% set date = strftime_now('%d %b %Y') %}{% endif %}{{ date }}\n" + EACH + ASK, "stable always"),
    "a date in the default system text": ("{% if messages[0].role != 'system' %}Today is {{ strftime_now('%Y-%m-%d') }}.\n{% endif %}" + EACH + ASK, "stable without-system"),
    "a date that is not printed": ("{% set date = strftime_now('%Y') %}" + EACH + ASK, "stable"),
    "lots that are drawn": ("{{ ['a', 'b', 'c'] | random }}" + EACH + ASK, "rewrites-history"),
}  # fmt: skip


@pytest.mark.parametrize("template, found", ODD.values(), ids=ODD)
def test_odd_templates(template: str, found: str, renderer: Renderer) -> None:
    verdict = judge(template.replace("</{{ m.role }}>", ""), renderer)
    flags = {
        "reasoning": verdict.drops_reasoning,
        "tools": verdict.moves_tools,
        "system": verdict.moves_system,
        verdict.date: verdict.date != "never",
    }
    assert " ".join([verdict.verdict, *(word for word, holds in flags.items() if holds)]) == found


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
    assert [v.name for v in reading.templates] == ["", "", "default", "rag", "", ""]
    (unread,) = reading.unread
    assert (unread.path, unread.line) == ("bad.jinja", 7)
    assert "sandbox forbids" in unread.reason


def test_a_chain_of_attributes_of_any_length_is_no_conversation(renderer: Renderer) -> None:
    endless = PLAIN.replace("in messages", "in messages" + ".x" * 3_000)
    assert conversation_of(PLAIN) is not None
    assert conversation_of(endless) is None
    with pytest.raises(RenderError, match="calls itself without end"):
        judge(endless, renderer)
