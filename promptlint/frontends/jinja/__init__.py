"""The Jinja front end: template files, and the templates that another front end found in its own source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from promptlint.catalog.names import words
from promptlint.frontends import promptlike
from promptlint.frontends.base import Loader, Project
from promptlint.ir import Block, BlockKind, Confidence, Prompt, Reading, Segment, Text, Unread, Unresolved
from promptlint.source import SourceFile, Span, TextMap

__all__ = ["BrokenTemplateError", "loader_for", "read", "read_template"]

SUFFIXES = (".jinja", ".jinja2", ".j2")
_ROLES = {"system": "system", "sys": "system", "user": "user", "human": "user", "assistant": "assistant"}


class BrokenTemplateError(ValueError):
    """The text is not a Jinja template. `line` counts in the text, from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def read_template(
    text: str,
    where: TextMap,
    *,
    bound: Mapping[str, tuple[Segment, ...]] | None = None,
    loader: Loader | None = None,
    trim_blocks: bool = False,
    lstrip_blocks: bool = False,
) -> tuple[Segment, ...]:
    """The segments of a template; see `frontends.base.TemplateReader`. Raises BrokenTemplateError when Jinja would refuse the text."""
    return _evaluate(text, where, bound or {}, loader, (trim_blocks, lstrip_blocks))[0]


def _evaluate(
    text: str,
    where: TextMap,
    bound: Mapping[str, tuple[Segment, ...]],
    loader: Loader | None,
    blocks: tuple[bool, bool],
) -> tuple[tuple[Segment, ...], list[tuple[str, Span]]]:
    """The segments, and the templates that were not found, each with the place that names it."""
    messages, missing = _messages(text, where, bound, loader, blocks)
    return tuple(segment for _, segments in messages for segment in segments), missing


def _messages(
    text: str,
    where: TextMap,
    bound: Mapping[str, tuple[Segment, ...]],
    loader: Loader | None,
    blocks: tuple[bool, bool] = (False, False),
) -> tuple[list[tuple[str | None, tuple[Segment, ...]]], list[tuple[str, Span]]]:
    """The messages of a template, each with its role, and the templates that were not found. One without a role unless it marks them."""
    from jinja2.exceptions import TemplateSyntaxError

    from promptlint.frontends.jinja import tree
    from promptlint.frontends.jinja.evaluate import Evaluator, Shared

    shared = Shared(bound, loader)
    try:
        template = tree.parse(text, where, trim_blocks=blocks[0], lstrip_blocks=blocks[1])
        return Evaluator(template, shared).messages(), shared.missing
    except TemplateSyntaxError as error:
        raise BrokenTemplateError(error.message or "not a template", error.lineno) from error
    except RecursionError as error:
        raise BrokenTemplateError("nested too deeply", 1) from error


def loader_for(project: Project, path: Path) -> Loader:
    """Finds the templates that a template file names: by path from its own folder, else the nearest file whose path ends so."""

    def load(name: str) -> SourceFile | None:
        parts = PurePosixPath(name).parts
        if not parts or len(parts) > 20 or parts[0] == "/" or ".." in parts:
            return None
        beside = path.parent.joinpath(*parts)
        found = [file for file in project.files if file.name == parts[-1] and file.parts[-len(parts) :] == parts]
        if beside in found:
            return project.source(beside)
        return project.source(max(found, key=lambda file: _shared_folders(file, path))) if found else None

    return load


def _shared_folders(one: Path, other: Path) -> int:
    count = 0
    for mine, yours in zip(one.parts, other.parts, strict=False):
        if mine != yours:
            break
        count += 1
    return count


def read(project: Project, paths: Sequence[Path]) -> Reading:
    """The template files that look like prompts, each on its own: what Python passes to them is known by name only."""
    reading = Reading()
    for path in paths:
        source = project.source(path)
        if source is not None:
            reading += _read_file(project, path, source)
    return reading


def _read_file(project: Project, path: Path, source: SourceFile) -> Reading:
    from promptlint.frontends.conversation import conversation_of

    conversation = conversation_of(source.text)
    if conversation is not None and conversation.pure:
        return Reading(parsed=(source.path,))
    try:
        messages, missing = _messages(source.text, source.map(), {}, loader_for(project, path))
    except BrokenTemplateError as error:
        return Reading(unread=(Unread(source.path, error.line, f"not a Jinja template: {error}"),))
    prompt = _prompt(source, path, messages, missing)
    return Reading(prompts=(prompt,) if prompt else (), parsed=(source.path,))


def _prompt(
    source: SourceFile,
    path: Path,
    messages: list[tuple[str | None, tuple[Segment, ...]]],
    missing: list[tuple[str, Span]],
) -> Prompt | None:
    if not any(segments for _, segments in messages):
        return None
    if not promptlike.score(source.text, _stem(path), contexts_of(path)).is_prompt:
        return None
    whole = source.span(0, len(source.text))
    blocks = []
    for said, segments in messages:
        role = said or role_of(_stem(path))
        kind = BlockKind.SYSTEM if role == "system" else BlockKind.OTHER
        if segments and (
            said or len(messages) == 1 or any(not isinstance(part, Text) or part.value.strip() for part in segments)
        ):
            blocks.append(Block(kind, role, segments, segments[0].span if said else whole, name=_stem(path)))
    unresolved = tuple(Unresolved(name, "file", span) for name, span in missing)
    return Prompt(
        source.path,
        "",
        "template",
        whole,
        tuple(blocks),
        origin="template",
        confidence=Confidence.MEDIUM,
        unresolved=unresolved,
        resolution=1.0 if not unresolved else 0.5,
    )


def _stem(path: Path) -> str:
    """The name without what is said by `.md.j2`."""
    return path.name.partition(".")[0]


def contexts_of(path: Path) -> tuple[str, ...]:
    """What the place and the name of a template file say about its use (words of promptlike.CONTEXTS)."""
    folders = {folder.lower() for folder in path.parts[-4:-1]}
    among = ("prompt-folder",) if any("prompt" in folder for folder in folders) else ()
    # "page.html.j2" renders HTML; "llama3.1_json.jinja" only has a version in its name.
    inner = path.suffixes[-2][1:].lower() if len(path.suffixes) > 1 else ""
    renders = inner.isalpha() and inner not in {"md", "markdown", "txt", "prompt", "system", "user"}
    return (*among, "other-format") if renders else (*among, "plain-template")


def role_of(name: str) -> str | None:
    """The role that a name tells: `system_prompt` is a system message."""
    return next((_ROLES[word] for word in words(name) if word in _ROLES), None)
