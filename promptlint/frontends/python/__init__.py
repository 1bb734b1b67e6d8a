"""The Python front end: an abstract interpreter over the whole project, from prompts backwards."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from promptlint.catalog.names import load_names
from promptlint.catalog.sdk import load_sdk
from promptlint.catalog.sources import load_sources
from promptlint.frontends.base import Project, TemplateReader, paused_collector
from promptlint.frontends.python import frameworks, history
from promptlint.frontends.python.index import Index
from promptlint.frontends.python.roots import Interpreter
from promptlint.ir import HistoryEdit, Reading, Unread

__all__ = ["read"]

# What a file must contain to hold a root: a call that may send, a role, a slot in a long text. Only this decides on bytes.
_WORTH_PARSING = re.compile(
    rb"\"role\"|'role'|prompt|Prompt|PROMPT|messages|instruction|template|\.create\(|\.generate\w*\(|\.invoke\(|\.chat\(|\.complete\w*\(|llm\w*\.\w+\(|[Yy]ou are"
)


def read(project: Project, *, templates: TemplateReader, extra_rules: tuple[Path, ...] = ()) -> Reading:
    """Read every prompt that the project's Python files build. Never raises for what a file holds."""
    index = Index(project)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 6_000))
    try:
        with paused_collector():
            return _read(project, index, templates, extra_rules)
    finally:
        sys.setrecursionlimit(limit)


def _read(project: Project, index: Index, templates: TemplateReader, extra_rules: tuple[Path, ...]) -> Reading:
    interpreter = Interpreter(
        project, index, load_sdk(extra_rules), load_sources(extra_rules), load_names(extra_rules), templates
    )
    prompts = interpreter.run_roots(_candidates(project, index, frameworks.worth_parsing(interpreter.sdk)))
    edits: list[HistoryEdit] = []
    options: list[frameworks.Switched] = []
    given = {project.display(path) for path in project.given}
    for module in index.parsed:
        options.extend(frameworks.switched(module, interpreter.sdk))
        if module.source.path in given:
            edits.extend(history.edits(module.tree, module.source))
    edits.extend(frameworks.option_edits(options))
    prompts = frameworks.complete(prompts, options, interpreter.sdk)
    unread = list(index.unread)
    unread.extend(
        Unread(project.display(path), 1, reason) for path, reason in project.refused.items() if path.suffix == ".py"
    )
    return Reading(
        tuple(prompts),
        tuple(edits),
        (),
        tuple(dict.fromkeys(unread)),
        tuple(module.source.path for module in index.parsed),
    )


def _candidates(project: Project, index: Index, frameworks_mark: re.Pattern[bytes]) -> list[Path]:
    """Files that may hold a root, in a stable order."""
    result = []
    for path in index.files:
        text = project.overlay.get(path)
        if text is not None:
            data = text.encode("utf-8", "surrogatepass")
        else:
            try:
                data = path.read_bytes()
            except OSError:
                project.source(path)  # records why
                continue
        if _WORTH_PARSING.search(data) or frameworks_mark.search(data):
            result.append(path)
    return result
