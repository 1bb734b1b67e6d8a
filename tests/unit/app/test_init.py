"""`promptlint init`: what it finds, and that its file is one that the reader accepts."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from promptlint.cli import cli
from promptlint.config import load_settings

ROOT = Path(__file__).parents[3]


def init(*arguments, status=0):
    result = CliRunner().invoke(cli, ["init", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def test_a_project_with_call_sites(tmp_path):
    shutil.copytree(ROOT / "examples" / "support_bot", tmp_path / "desk")
    desk = tmp_path / "desk"
    (desk / "system_prompts").mkdir()
    (desk / "system_prompts" / "rules.txt").write_text("You are a helpful assistant for " + "our customers. " * 30)
    (desk / ".pre-commit-config.yaml").write_text("repos: []\n")
    (desk / "promptlint.toml").write_text("")
    out = init(desk, "--force")
    assert "3 call sites: openai (3)" in out
    assert "models: gpt-4o-mini (3)" in out
    assert "folders of prompts: system_prompts" in out
    assert "traffic: traffic.jsonl" in out
    assert "has no promptlint hook yet" in out
    settings = load_settings(desk)
    assert settings.source == desk / "promptlint.toml"
    assert settings.extend_include == ("system_prompts/**",)


def test_call_sites_are_told_by_library_and_not_by_the_first_name_in_the_code(tmp_path):
    (tmp_path / "app.py").write_text(
        "import openai\n\n\nclass Desk:\n    def ask(self, q):\n"
        "        self.client.chat.completions.create(model='m', messages=[{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': q}])\n"
        "        openai.OpenAI().chat.completions.create(model='m', messages=[{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': q}])\n"
    )
    assert "2 call sites: clients of unknown type (1), openai (1)" in init(tmp_path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_pyproject_keeps_all_else(tmp_path, end):
    shared = tmp_path / "pyproject.toml"
    text = f'# mine{end}[project]{end}name = "x" # the name{end}'
    shared.write_bytes(text.encode())
    assert "no prompt found" in init(tmp_path)
    assert shared.read_bytes().decode().startswith(text)
    assert load_settings(tmp_path).profile == "typical"
    assert not (tmp_path / "promptlint.toml").exists()
    before = shared.read_bytes()
    result = CliRunner().invoke(cli, ["init", str(tmp_path)], standalone_mode=False)
    assert "--force replaces them" in str(result.exception)
    assert shared.read_bytes() == before


def test_force_replaces_our_table_and_no_other(tmp_path):
    shared = tmp_path / "pyproject.toml"
    shared.write_text(
        '[tool.promptlint]\npersona = "auditor"\n[tool.promptlint.per-file-ignores]\n"a.py" = ["order"]\n[tool.other]\nx = 1\n'
    )
    init(tmp_path, "--force")
    settings = load_settings(tmp_path)
    assert (settings.persona, settings.per_file_ignores) == ("regular", ())
    assert "[tool.other]\nx = 1\n" in shared.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


def test_a_table_in_another_form_is_left_alone(tmp_path):
    shared = tmp_path / "pyproject.toml"
    shared.write_text('[tool]\npromptlint = { persona = "auditor" }\n')
    before = shared.read_text()
    result = CliRunner().invoke(cli, ["init", str(tmp_path), "--force"], standalone_mode=False)
    assert result.exception is not None
    assert shared.read_text() == before


def test_a_folder_that_takes_no_file(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("promptlint.app.init.tempfile.mkdtemp", full)
    assert "promptlint.toml: cannot be written: No space left" in init(str(tmp_path), status=2)


def test_nothing_found_says_so(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text("print(1)\n")
    out = init(tmp_path)
    assert "no prompt found in 1 files" in out
    assert load_settings(tmp_path).source == tmp_path / "promptlint.toml"
