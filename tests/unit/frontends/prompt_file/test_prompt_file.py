"""Prompt files."""

from __future__ import annotations

from pathlib import Path

from promptlint.frontends import prompt_file
from promptlint.frontends.base import Project
from promptlint.frontends.jinja import read_template
from promptlint.ir import Prompt, Reading, blocks_of, check_spans, holes_of

RULES = (
    "Follow the rules below. Never guess. Always cite the passage that you rely on. Use short sentences and plain words. "
    * 3
)
QUESTION = f"You are a careful clerk.\n\nQuestion: {{question}}\n\n{RULES}\n"


def read(tmp_path: Path, name: str, text: str) -> Reading:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    project = Project(tmp_path, [path], frozenset([path]), working_directory=tmp_path)
    reading = prompt_file.read(project, [path], templates=read_template)
    for prompt in reading.prompts:
        source = project.source(path)
        assert source is not None
        assert check_spans(prompt, {source.path: source}) == []
    return reading


def holes(prompt: Prompt) -> list[tuple[str, int, int]]:
    return [
        (hole.name, hole.span.line, hole.span.column)
        for block in blocks_of(prompt.blocks)
        for hole in holes_of(block.segments)
    ]


def roles(prompt: Prompt) -> list[tuple[str, str | None]]:
    return [(block.kind.value, block.role) for block in blocks_of(prompt.blocks)]


def test_text(tmp_path: Path) -> None:
    (prompt,) = read(tmp_path, "prompts/answer_system.txt", QUESTION).prompts
    assert holes(prompt) == [("question", 3, 11)]
    assert roles(prompt) == [("system", "system")]
    assert (prompt.origin, prompt.sink, prompt.function) == ("template", "template", "")


def test_markdown_with_front_matter_and_jinja(tmp_path: Path) -> None:
    text = f"---\ntitle: {{{{ no }}}}\n---\n# Task\nYou are a clerk. {RULES}\n{{% if language %}}Answer in {{{{ language }}}}.{{% endif %}}\n{{{{ question }}}}\n"
    (prompt,) = read(tmp_path, "prompts/a.md", text.replace("\n", "\r\n")).prompts
    assert [name for name, *_ in holes(prompt)] == ["language", "question"]


def test_documentation_is_no_prompt(tmp_path: Path) -> None:
    for name in ("README.md", "prompts/README.md", "CHANGELOG.md", "prompts/LICENSE.txt"):
        assert read(tmp_path, name, QUESTION).prompts == ()
    guide = (
        "# Guide\n\n## Installation\n\n    pip install it\n\n## Usage\n\nYou are able to use {name} here. Use it well. See the docs.\n"
        + "More words follow. " * 30
    )
    assert read(tmp_path, "templates/guide.md", guide).prompts == ()


def test_fixed_text_is_no_prompt_of_its_own(tmp_path: Path) -> None:
    assert read(tmp_path, "prompts/fixed.txt", "You are a clerk. " + RULES).prompts == ()


def test_yaml_scalars(tmp_path: Path) -> None:
    text = (
        "agent:\n  system_template: |\n    You are a clerk for {{ tenant }}.\n"
        + "".join(f"    {line}\n" for line in RULES.split(". "))
        + "  label: short {{ x }}\n  other: >-\n    just a description of the thing, which is long but not a prompt at all\n"
    )
    (prompt,) = read(tmp_path, "config.yaml", text).prompts
    assert prompt.function == "agent.system_template"
    assert holes(prompt) == [("tenant", 3, 25)]
    assert roles(prompt) == [("system", "system")]


def test_in_a_file_of_jinja_single_braces_are_text(tmp_path: Path) -> None:
    body = "".join(f"  {line}\n" for line in RULES.split(". "))
    text = f"one_prompt: |\n  You are a clerk. Task: {{{{ task }}}}\n{body}two_prompt: |\n  You are a clerk. {{remaining_steps}} steps are left.\n{body}"
    prompts = read(tmp_path, "prompts/agent.yaml", text).prompts
    assert [prompt.function for prompt in prompts] == ["one_prompt"]


def test_messages_in_a_data_file_are_one_prompt(tmp_path: Path) -> None:
    text = f"chat:\n  - role: system\n    content: |\n      You are a clerk. {RULES}\n  - role: user\n    content: 'Passages: {{context}} Question: {{question}}'\n"
    (prompt,) = read(tmp_path, "chat_prompt.yaml", text).prompts
    assert prompt.function == "chat"
    assert roles(prompt) == [("system", "system"), ("other", "user")]
    assert [name for name, *_ in holes(prompt)] == ["context", "question"]


def test_json_and_workflow_files(tmp_path: Path) -> None:
    escaped = QUESTION.replace("\n", "\\n")
    (prompt,) = read(tmp_path, "p.json", f'{{"a": {{"prompt": "{escaped}"}}}}').prompts
    assert (prompt.function, [name for name, *_ in holes(prompt)]) == ("a.prompt", ["question"])
    workflow = (
        "jobs:\n  build:\n    steps:\n      - run: |\n"
        + "          echo ${{ matrix.os }} always use the newest tools and never guess the version\n" * 12
    )
    assert read(tmp_path, "w.yml", workflow).prompts == ()


def test_prompty(tmp_path: Path) -> None:
    text = f"---\nname: x\nmodel:\n  api: chat\n---\nsystem:\nYou are a clerk. {RULES}\n\nuser:\n{{{{question}}}}\n"
    (prompt,) = read(tmp_path, "ask.prompty", text).prompts
    assert roles(prompt) == [("system", "system"), ("other", "user")]
    assert holes(prompt) == [("question", 10, 1)]


def test_dotprompt(tmp_path: Path) -> None:
    text = '---\nmodel: m\n---\n{{role "system"}}\nYou are a clerk for {{tenant}}.\n{{role "user"}}\n{{question}}\n'
    (prompt,) = read(tmp_path, "ask.prompt", text).prompts
    assert [role for _, role in roles(prompt)] == ["system", "user"]
    assert [name for name, *_ in holes(prompt)] == ["tenant", "question"]


def test_broken_files(tmp_path: Path) -> None:
    reading = read(tmp_path, "prompts/broken.yaml", "a: [\n" + QUESTION)
    assert [unread.path for unread in reading.unread] == ["prompts/broken.yaml"]
    assert read(tmp_path, "tsconfig.json", '{ // comment\n "a": "{b}" }').unread == ()
    broken_jinja = read(tmp_path, "prompts/broken.md", QUESTION.replace("{question}", "{% if x %}"))
    assert broken_jinja.prompts == ()


def test_a_recorded_answer_is_no_prompt(tmp_path: Path) -> None:
    text = "You are a guide. Write about {city}. Never say that you should not. Use the map. " * 8
    assert read(tmp_path, "run_3.json", f'{{"rows": [{{"report": "{text}"}}]}}').prompts == ()
    assert read(tmp_path, "run_3.json", f'{{"rows": [{{"text": "{text}"}}]}}').prompts
    assert read(tmp_path, "prompts.json", f'{{"report": "{text}"}}').prompts
