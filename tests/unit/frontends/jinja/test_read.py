"""Template files."""

from __future__ import annotations

from pathlib import Path

from promptlint.frontends import jinja
from promptlint.frontends.base import Project
from promptlint.ir import BlockKind, Reading, check_spans

PROMPT = "You are a support agent for {{ tenant }}. Always answer in {{ language }}.\nNever guess.\n{% include 'rules.j2' %}\nQuestion: {{ question }}\n"


def read(tmp_path: Path, files: dict[str, str]) -> tuple[Reading, Project]:
    paths = []
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        paths.append(path)
    project = Project(tmp_path, paths, frozenset(paths), working_directory=tmp_path)
    return jinja.read(project, paths), project


def test_a_prompt_with_its_include(tmp_path: Path) -> None:
    reading, project = read(tmp_path, {"prompts/system.j2": PROMPT, "prompts/rules.j2": "Cite the passages.\r\n"})
    (prompt,) = reading.prompts
    (block,) = prompt.blocks
    assert (prompt.path, prompt.origin, prompt.resolution) == ("prompts/system.j2", "template", 1.0)
    assert (block.kind, block.role) == (BlockKind.SYSTEM, "system")
    sources = {name: project.source(tmp_path / name) for name in ("prompts/system.j2", "prompts/rules.j2")}
    assert check_spans(prompt, sources) == []
    assert {"prompts/system.j2", "prompts/rules.j2"} == set(reading.parsed)


def test_a_missing_include_is_said(tmp_path: Path) -> None:
    reading, _ = read(tmp_path, {"a.j2": PROMPT})
    (prompt,) = reading.prompts
    assert [(u.expression, u.reason) for u in prompt.unresolved] == [("rules.j2", "file")]
    assert prompt.resolution < 1


def test_what_is_no_prompt(tmp_path: Path) -> None:
    reading, _ = read(
        tmp_path,
        {
            "page.html.j2": "<html><body><h1>{{ title }}</h1><div class='a'>You are welcome. Use the menu. Read {{ text }}</div></body></html>",
            "nginx.conf.j2": "server { listen {{ port }}; server_name {{ host }}; location / { proxy_pass http://{{ upstream }}; } }",
            "chat.jinja": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
        },
    )
    assert reading.prompts == ()
    assert reading.unread == ()


def test_a_broken_template_is_unread(tmp_path: Path) -> None:
    reading, _ = read(tmp_path, {"a.j2": "ok\n{% if x %}"})
    assert [(u.path, u.line) for u in reading.unread] == [("a.j2", 2)]
    assert reading.prompts == ()


def test_tags_that_mark_messages(tmp_path: Path) -> None:
    text = '{% message role="system" %}\nYou are a clerk for {{ tenant }}. Never guess.\n{% endmessage %}\n{% message role="user" %}{{ question }}{% endmessage %}\n'
    reading, project = read(tmp_path, {"prompts/ask.j2": text})
    (prompt,) = reading.prompts
    assert [block.role for block in prompt.blocks] == ["system", "user"]
    assert [block.kind for block in prompt.blocks] == [BlockKind.SYSTEM, BlockKind.OTHER]
    assert check_spans(prompt, {"prompts/ask.j2": project.source(tmp_path / "prompts/ask.j2")}) == []


def test_a_role_stands_in_the_name(tmp_path: Path) -> None:
    assert jinja.contexts_of(Path("prompts/a.html.j2")) == ("prompt-folder", "other-format")
    assert jinja.contexts_of(Path("x/llama3.1_json.jinja")) == ("plain-template",)
    assert [jinja.role_of(name) for name in ("system_prompt", "userTemplate", "notes")] == ["system", "user", None]
