"""Chat templates of the models that a project names, as far as they lie on this machine: in a folder, or in the hub's cache. Never over the network."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from promptlint.errors import UserError
from promptlint.frontends.base import Project
from promptlint.ir import Prompt, TemplateLayout, Text

__all__ = ["layouts"]

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TEXT = "chat_template.jinja"
_DATA = ("chat_template.json", "tokenizer_config.json")


def layouts(
    project: Project, prompts: Sequence[Prompt], tokenizer: str | None, template: Path | None
) -> dict[str, TemplateLayout]:
    """The layouts of the templates that render these prompts; see `Assumptions.layouts` for the keys.

    Args:
        project: its root and its files' folders are where relative folders are looked for.
        prompts: their models, and the templates that they give as text.
        tokenizer: the setting `tokenizer`; a folder with a template holds for every call site.
        template: the setting `chat-template`, a file or a folder; likewise, and before the other.

    Raises UserError when `template` has none.
    """
    from promptlint.frontends.chat_template import Renderer, layout

    texts: dict[str, tuple[str, str]] = {}  # key -> path, template
    if template is not None:
        found = _in_file(project, template) if template.is_file() else _in_folder(project, template)
        if found is None:
            raise UserError(f"{template}: no chat template: a .jinja file, or a folder with tokenizer_config.json")
        texts[""] = found
    elif tokenizer and (folder := _folder(project, tokenizer, ())) and (found := _in_folder(project, folder)):
        texts[""] = found
    for prompt in prompts:
        for parameter in prompt.parameters:
            if parameter.name == "chat_template" and isinstance(parameter.value, Text):
                texts[parameter.value.value] = (parameter.value.span.path, parameter.value.value)
    places: dict[str, set[str]] = {}
    for prompt in prompts:
        if prompt.model:
            places.setdefault(prompt.model, set()).add(prompt.path)
    for model, paths in places.items():
        folder = _folder(project, model, sorted(paths))
        if folder is not None and (found := _in_folder(project, folder)):
            texts[model] = found
    if not texts:
        return {}
    known: dict[str, TemplateLayout] = {}
    with Renderer() as renderer:
        for key, (path, text) in texts.items():
            if (seen := layout(text, path, renderer)) is not None:
                known[key] = seen
    return known


def _folder(project: Project, name: str, paths: Sequence[str]) -> Path | None:
    """The folder that a model's name means: a path from the project's root, from the naming file's folder, or the newest snapshot in the hub's cache."""
    if "\0" in name or len(name) > 1_000:
        return None
    bases = [project.root, project.working_directory, *((project.working_directory / path).parent for path in paths)]
    for base in bases:
        folder = base / Path(name).expanduser()
        if folder != base and _is_folder(folder):
            return folder
    return _snapshot(name) if _HUB_NAME.fullmatch(name) else None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _snapshot(name: str) -> Path | None:
    """Of a model in the hub's cache (`models--org--name/snapshots/REVISION`): the one that `main` points to, else the newest."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    model = hub / ("models--" + name.replace("/", "--"))
    try:
        if (main := model / "refs" / "main").is_file():
            chosen = model / "snapshots" / main.read_text("utf-8").strip()
            if chosen.is_dir():
                return chosen
        kept = [folder for folder in (model / "snapshots").iterdir() if folder.is_dir()]
    except (OSError, UnicodeDecodeError):
        return None
    return max(kept, key=lambda folder: folder.stat().st_mtime, default=None)


def _in_folder(project: Project, folder: Path) -> tuple[str, str] | None:
    """A template of a model's folder, with its path. Transformers takes the file of its own before the configuration."""
    for name in (_TEXT, *_DATA):
        if (folder / name).is_file() and (found := _in_file(project, folder / name)):
            return found
    return None


def _in_file(project: Project, path: Path) -> tuple[str, str] | None:
    source = project.source(path)
    if source is None:
        return None
    if path.suffix.lower() != ".json":
        return source.path, source.text
    try:
        data = json.loads(source.text)
    except (ValueError, RecursionError):
        return None
    text = next(_templates(data), None)
    return None if text is None else (source.path, text)


def _templates(data: object) -> Iterator[str]:
    """The template that a request with tools is rendered by first: of several named ones `tool_use`, then `default`."""
    given = data.get("chat_template") if isinstance(data, dict) else None
    if isinstance(given, str):
        yield given
    elif isinstance(given, list):
        named = {row.get("name"): row.get("template") for row in given if isinstance(row, dict)}
        yield from (text for name in ("tool_use", "default") if isinstance(text := named.get(name), str))
    elif isinstance(given, dict):
        yield from (text for name in ("tool_use", "default") if isinstance(text := given.get(name), str))
