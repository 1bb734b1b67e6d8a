"""Settings: every mistake is named with its file and line, and the published schema is the one that the code has."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from promptlint.config import Settings, find_config, json_schema, load_settings
from promptlint.errors import UserError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_defaults_without_a_file(tmp_path):
    assert load_settings(tmp_path) == Settings(tmp_path)


def test_own_file_wins_over_pyproject(tmp_path):
    write(tmp_path, "pyproject.toml", '[tool.promptlint]\npersona = "auditor"\n')
    assert load_settings(tmp_path).persona == "auditor"
    own = write(tmp_path, "promptlint.toml", 'persona = "pedantic"\n')
    assert load_settings(tmp_path).persona == "pedantic"
    assert find_config(tmp_path) == own
    assert load_settings(tmp_path, isolated=True) == Settings(tmp_path)


def test_pyproject_without_our_table_is_no_configuration(tmp_path):
    write(tmp_path, "pyproject.toml", "[tool.ruff]\nline-length = 100\n")
    assert find_config(tmp_path) is None


def test_every_kind_of_value(tmp_path):
    write(
        tmp_path,
        "promptlint.toml",
        'select = ["volatility"]\nextra-rules = ["lint"]\ncache-dir = "out/cache"\ntests = true\n'
        'min-confidence = "high"\n[per-file-ignores]\n"gen/*" = ["clock-in-prefix"]\n',
    )
    settings = load_settings(tmp_path)
    assert settings.select == ("volatility",)
    assert settings.extra_rules == (tmp_path / "lint",)
    assert settings.cache_dir == tmp_path / "out" / "cache"
    assert settings.tests
    assert settings.confidence == "high"
    assert settings.per_file_ignores == (("gen/*", ("clock-in-prefix",)),)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('tests = true\nselct = ["all"]\n', 2, "unknown setting 'selct'; did you mean 'select'?"),
        ('\n# a comment\npersona = "auditr"\n', 3, "did you mean 'auditor'?"),
        ('select = [\n  "a",\n  1,\n]\n', 1, "select: must be a list of strings"),
        ('ignore = "all"\n', 1, "ignore: must be a list of strings"),
        ('tests = "yes"\n', 1, "tests: must be true or false, not a string"),
        ("fail-on = 3\n", 1, "fail-on: must be a string, not a number"),
        ('tests = true\n\n[per-file-ignores]\n"a" = "b"\n', 3, "per-file-ignores: must be a list of strings"),
        ("[per-file-ignore]\n", 1, "did you mean 'per-file-ignores'?"),
    ],
)
def test_mistakes_have_a_place(tmp_path, text, line, message):
    path = write(tmp_path, "promptlint.toml", text)
    with pytest.raises(UserError) as error:
        load_settings(tmp_path)
    assert f"{path}:{line}: " in str(error.value)
    assert message in str(error.value)


def test_mistakes_in_pyproject_have_a_place(tmp_path):
    path = write(
        tmp_path, "pyproject.toml", '[project]\nname = "x"\n\n[tool.promptlint]\nselect = []\nfailon = "low"\n'
    )
    with pytest.raises(UserError, match=r"unknown setting 'failon'; did you mean 'fail-on'\?") as error:
        load_settings(tmp_path)
    assert f"{path}:6: " in str(error.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [("select = [\n", 1), ("tests = true\nselect = = 1\n", 2), ("\n\nx", 3), (f"budget = {'9' * 5000}\n", 1)],
)
def test_broken_toml_has_a_place(tmp_path, text, line):
    path = write(tmp_path, "promptlint.toml", text)
    with pytest.raises(UserError) as error:
        load_settings(tmp_path)
    assert str(error.value).startswith(f"{path}:{line}: not valid TOML: ")


def test_not_text(tmp_path):
    (tmp_path / "promptlint.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid UTF-8"):
        load_settings(tmp_path)


def test_named_file_that_is_missing(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        load_settings(tmp_path, tmp_path / "nope.toml")


def test_schema_accepts_what_the_reader_accepts():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(
        {"select": ["all"], "per-file-ignores": {"a": ["b"]}, "tests": False, "persona": "auditor"}, schema
    )
    for wrong in ({"selct": []}, {"persona": "all"}, {"tests": "yes"}, {"per-file-ignores": {"a": "b"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
