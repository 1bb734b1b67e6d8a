"""The Python front end: an abstract interpreter over the whole project, from prompts backwards."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from promptlint.catalog.names import load_names
from promptlint.catalog.sdk import Sdk, load_sdk
from promptlint.catalog.sources import load_sources
from promptlint.frontends.base import Project, TemplateReader, paused_collector
from promptlint.frontends.python import frameworks
from promptlint.frontends.python.index import Index
from promptlint.frontends.python.parts import Found, Part, read_parts, split
from promptlint.frontends.python.roots import Interpreter
from promptlint.frontends.python.settle import settle
from promptlint.frontends.python.unasked import doubt_unasked, doubt_uncalled
from promptlint.frontends.python.warm import Warm
from promptlint.ir import Reading, Unread

__all__ = ["read"]

# What a file must contain to hold a root: a call that may send, a role, a slot in a long text. Only this decides on bytes.
_WORDS = (b"prompt", b"template", b"messages", b"Prompt", b'"role"', b"'role'", b"instruction", b".create(", b".invoke(", b".chat(", b"you are", b"You are", b"PROMPT")  # fmt: skip
_CALLS = re.compile(rb"\.generate\w*\(|\.complete\w*\(|llm\w*\.\w+\(|system_\w+=")


def read(
    project: Project,
    *,
    templates: TemplateReader,
    extra_rules: tuple[Path, ...] = (),
    roots: frozenset[Path] | None = None,
    warm: Warm | None = None,
    hasty: bool = False,
    going: Callable[[], None] = lambda: None,
) -> Reading:
    """Read every prompt that the project's Python files build; of `roots`, where they are given, only those that begin there.

    `warm` gives what an earlier reading left and keeps what this one leaves; the whole project is then read in one part. `going` is
    called from time to time with it, and may raise to end the reading. `hasty`: what a change does to other files may wait for the next
    reading, as `warm.memory.waiting` then says.
    Nothing is raised for what a file holds.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 6_000))
    try:
        with paused_collector():
            if warm is not None:
                return _read_warm(project, templates, extra_rules, warm, going, hasty=hasty)
            return _read(project, templates, extra_rules, roots)
    finally:
        sys.setrecursionlimit(limit)


def _read(
    project: Project,
    templates: TemplateReader,
    extra_rules: tuple[Path, ...],
    roots: frozenset[Path] | None,
) -> Reading:
    sdk, sources, names = load_sdk(extra_rules), load_sources(extra_rules), load_names(extra_rules)
    index = Index(project)
    wanted = [path for path in index.files if roots is None or path in roots]
    shares = split([(path, _size(project, path)) for path in wanted])
    mark = frameworks.worth_parsing(sdk)

    def make(share: float, files: Sequence[Path]) -> Part:
        view = index.sibling()
        paths = [path for path in files if _is_candidate(project, path, mark)]
        return Part(project, Interpreter(project, view, sdk, sources, names, templates, share=share), paths)

    return _reading(project, read_parts(project, shares, make), sdk)


def _read_warm(
    project: Project,
    templates: TemplateReader,
    extra_rules: tuple[Path, ...],
    warm: Warm,
    going: Callable[[], None],
    *,
    hasty: bool,
) -> Reading:
    sdk, sources, names = load_sdk(extra_rules), load_sources(extra_rules), load_names(extra_rules)
    index = warm.index(project)
    going()
    mark = frameworks.worth_parsing(sdk)
    paths = [
        path for path in index.files if warm.is_worth(project, path, lambda path: _is_candidate(project, path, mark))
    ]

    def judge(files: Iterable[Path]) -> Interpreter:
        view = index.sibling()
        for path in files:
            view.module(path)
        return Interpreter(project, view, sdk, sources, names, templates)

    warm.begin(project, paths, judge, hasty=hasty)
    interpreter = Interpreter(project, index, sdk, sources, names, templates)
    interpreter.memory = warm.memory
    warm.memory.going = going
    found = Part(project, interpreter, paths, warm).evaluate(())
    warm.finish(project, interpreter)
    return _reading(project, [found], sdk)


def _reading(project: Project, found: Sequence[Found], sdk: Sdk) -> Reading:
    """What the parts gave, put together."""
    files = {file.path: file for part in found for file in part.files}
    options = [option for file in files.values() for option in file.options]
    edits = doubt_uncalled((edit for file in files.values() for edit in file.edits), project)
    edits.extend(frameworks.option_edits(options))
    prompts = frameworks.complete(settle(one for part in found for one in part.sights), options, sdk)
    prompts = doubt_unasked(prompts, project)
    unread = [one for part in found for one in part.unread]
    unread.extend(
        Unread(project.display(path), 1, reason) for path, reason in project.refused.items() if path.suffix == ".py"
    )
    return Reading(tuple(prompts), tuple(edits), (), tuple(dict.fromkeys(unread)), tuple(files))


def _is_candidate(project: Project, path: Path, frameworks_mark: re.Pattern[bytes]) -> bool:
    """Whether a file may hold a root."""
    text = project.overlay.get(path)
    if text is not None:
        data = text.encode("utf-8", "surrogatepass")
    else:
        try:
            data = path.read_bytes()
        except OSError:
            project.source(path)  # records why
            return False
    return (
        any(word in data for word in _WORDS)
        or _CALLS.search(data) is not None
        or frameworks_mark.search(data) is not None
    )


def _size(project: Project, path: Path) -> int:
    """About how long a file is, to share out the work."""
    text = project.overlay.get(path)
    try:
        return len(text) if text is not None else path.stat().st_size
    except OSError:
        return 0
