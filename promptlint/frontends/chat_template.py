"""Chat templates, judged by rendering: does one rewrite what it wrote before?

A template is given a synthetic conversation at every length. A *request* is a prompt that is sent: the messages up to a user's or a tool's, with the generation prompt. The *text* at a
length is the same without it. Then

- `stable`: every text begins with the shorter ones, and every request with the one before it;
- `stable-in-serving`: the requests do; texts that end with an answer, which no engine is ever asked for, do not;
- `generation-prompt-not-replayed`: the texts do, the requests do not: what the template writes to start an answer is written otherwise in
  front of the finished one;
- `rewrites-history`: neither do.

Patterns in the source say little about this (a rule on `loop.last` and its like was right in 38 % of 114 templates); rendering is exact. It runs in
another process, with bounds on time, loops, output and memory, since a template is somebody else's program.

Of an application's own template over a history only this is judged: whether the messages that were sent before are written as before. What it
writes around them is its prompt, which the Jinja front end reads.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from promptlint.catalog.names import load_names
from promptlint.frontends import chat_template_worker
from promptlint.frontends.base import Project
from promptlint.frontends.chat_template_forms import (
    FORMS,
    MARKS,
    SYSTEM_MARK,
    TOOL_MARK,
    TOOLS,
    Form,
    conversation,
    thought,
)
from promptlint.frontends.conversation import LONGEST, Conversation, conversation_of
from promptlint.frontends.scalars import BrokenDataError, json_strings
from promptlint.ir import BlockKind, Prompt, Reading, TemplateLayout, TemplateVerdict, Text, Unread

__all__ = ["Form", "Renderer", "Verdict", "conversation", "judge", "layout", "read", "read_inline"]

SECONDS = 10.0  # for one template, all renderings together; the slowest of 114 real ones took 0.4
_NOON, _LATER = "2026-03-04T05:06:07", "2027-08-19T20:31:42"
_JINJA = frozenset((".jinja", ".jinja2", ".j2"))


class RenderError(Exception):
    """The template was not rendered. `kind`: syntax, forbidden, include, limit, refused, undefined, failed."""

    def __init__(self, reason: str, kind: str, line: int) -> None:
        super().__init__(reason)
        self.kind = kind
        self.line = line


class Renderer:
    """The process that renders, started when it is first needed and again after it had to be ended. Use it as a context manager."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()

    def render(self, template: str, jobs: list[dict[str, Any]], seconds: float | None = None) -> list[dict[str, Any]]:
        """The answers of the worker, one for each job. Raises RenderError of the kind `limit` when time is over; `seconds` is what is left of it."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"template": template, "jobs": jobs}) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=self.seconds if seconds is None else max(seconds, 0.0))
        except queue.Empty:
            self.close()
            raise RenderError(f"takes longer than {self.seconds:g} s", "limit", 1) from None
        except OSError:
            answer = ""
        if not answer:
            self.close()
            raise RenderError("ends the process that renders it: it needs too much memory", "limit", 1)
        answers: list[dict[str, Any]] = json.loads(answer)
        return answers

    def _start(self) -> subprocess.Popen[str]:
        """A Python that runs the worker's file: it finds Jinja where we do, and nothing of the analysed project."""
        path = os.pathsep.join(entry for entry in sys.path if entry and Path(entry).is_dir())
        process = subprocess.Popen(  # noqa: S603 (our own file, by our own interpreter)
            [sys.executable, "-P", "-X", "utf8", chat_template_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": path},
        )
        self._process = process
        answers: queue.Queue[str] = queue.Queue()
        self._answers = answers
        stream = process.stdout
        assert stream is not None

        def collect() -> None:
            try:
                for line in stream:
                    answers.put(line)
            except ValueError:  # closed under our hands
                pass
            answers.put("")

        threading.Thread(target=collect, daemon=True).start()
        return process


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a template, without its path; see ir.TemplateVerdict. `form` is the conversation that it was judged by."""

    verdict: str
    drops_reasoning: bool
    moves_tools: bool
    moves_system: bool
    date: str
    line: int
    reusable_share: float
    form: Form
    date_line: int
    lost_share: float


@dataclass(frozen=True, slots=True)
class _Renderings:
    """Texts and requests by number of messages. A length at which nothing is sent may have no text."""

    texts: dict[int, str]
    requests: dict[int, str]


def judge(text: str, renderer: Renderer, given: Conversation | None = None) -> Verdict:
    """The verdict on a template over messages. Raises RenderError when no form of conversation renders, or the template goes beyond the bounds."""
    given = given or conversation_of(text) or Conversation("messages", frozenset(), pure=True)
    return _Judge(text, renderer, given).verdict()


def layout(text: str, path: str, renderer: Renderer) -> TemplateLayout | None:
    """Where a template over messages writes system text, tools and date. None for another text, and for one that does not render."""
    given = conversation_of(text)
    if given is None or not given.pure:
        return None
    try:
        return _Judge(text, renderer, given).layout(path)
    except RenderError:
        return None


class _Judge:
    """The judgement of one template."""

    def __init__(self, text: str, renderer: Renderer, given: Conversation) -> None:
        self.text = text
        self.renderer = renderer
        self.given = given
        self.end = time.monotonic() + renderer.seconds

    def verdict(self) -> Verdict:
        form, seen = self.first_that_renders()
        steps = list(pairwise(sorted(seen.requests)))
        if self.given.pure:
            verdict, guilty = self.compare(seen)
        else:
            verdict, guilty = self.compare_history(form, seen)
        requests = [seen.requests[length] for length in sorted(seen.requests)]
        changed = verdict == "rewrites-history"
        date, date_line = self.date(form)
        line = self.blame(form, *guilty) if guilty else date_line
        kept = [
            (_common(seen.requests[a], seen.requests[b]), len(seen.requests[a]), len(seen.requests[b]))
            for a, b in steps
        ]
        share = min((common / max(after, 1) for common, _, after in kept), default=1.0)
        lost = max((1 - common / max(before, 1) for common, before, _ in kept), default=0.0)
        return Verdict(
            verdict,
            changed and form.reasoning and _drops(requests),
            changed and form.tools and _moves(requests, TOOL_MARK),
            changed and form.system and _moves(requests, SYSTEM_MARK),
            date,
            line,
            round(share, 4),
            form,
            date_line,
            round(lost, 4),
        )

    def layout(self, path: str) -> TemplateLayout:
        """See `ir.TemplateLayout`, by the request that ends the whole conversation."""
        form, seen = self.first_that_renders()
        text = seen.requests[max(seen.requests)]
        marks = [place for mark in MARKS if (place := text.find(mark)) >= 0]
        begins = min(marks, default=len(text))
        newest = max(
            (place for mark in MARKS if not mark.endswith("-3") and (place := text.find(mark)) >= 0), default=0
        )
        places = {BlockKind.SYSTEM: text.find(SYSTEM_MARK), BlockKind.TOOLS: text.find(TOOL_MARK)}
        written = sorted((place, kind) for kind, place in places.items() if place >= 0)
        front = tuple((place, kind) for place, kind in written if place < max(begins, newest))
        late = tuple(kind for place, kind in written if place >= max(begins, newest))
        date, line = self.date(form)
        at = 0
        if date == "always":
            now, _, later = (rendering["text"] for rendering in self.dated(form))
            at = sum(place < _common(now, later) for place, _ in front)
        return TemplateLayout(path, tuple(kind for _, kind in front), late, date, at, line)

    # ---- rendering

    def render(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The renderer's answers, within what is left of the template's time."""
        return self.renderer.render(self.text, jobs, self.end - time.monotonic())

    def job(self, form: Form, length: int, request: bool, *, now: str = _NOON, trace: bool = False) -> dict[str, Any]:
        messages = conversation(form)[:length]
        variables: dict[str, Any] = {
            "messages": messages,
            "conversations": [messages],
            self.given.history: [messages] if self.given.history == "conversations" else messages,
            "tools": TOOLS if form.tools else None,
            "add_generation_prompt": request,
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
        }
        if form.fill or not self.given.pure:
            for name in self.given.names - variables.keys() - {"strftime_now", "raise_exception", "now"}:
                tools = TOOLS if not self.given.pure else json.dumps(TOOLS)
                variables[name] = tools if load_names().fact(name).origin == "tools" else f"the {name}"
        return {"variables": variables, "now": now, "trace": trace}

    def first_that_renders(self) -> tuple[Form, _Renderings]:
        """The first form that renders and whose questions are written; where no form's are, the first that renders: some templates write no message at all."""
        first: RenderError | None = None
        silent: tuple[Form, _Renderings] | None = None
        for form in FORMS:
            try:
                seen = self.all_lengths(form)
            except RenderError as error:
                if error.kind in {"syntax", "forbidden", "include", "limit"}:
                    raise
                first = first or error
                continue
            if _writes_messages(seen):
                return form, seen
            silent = silent or (form, seen)
        if silent is not None:
            return silent
        assert first is not None
        raise first

    def all_lengths(self, form: Form) -> _Renderings:
        messages = conversation(form)
        asked = [(n, False) for n in range(1, len(messages) + 1)] + [
            (n, True) for n, message in enumerate(messages, 1) if message["role"] in {"user", "tool"}
        ]
        sent = {n for n, request in asked if request}
        answers = self.render([self.job(form, n, request) for n, request in asked])
        found = _Renderings({}, {})
        for (length, request), answer in zip(asked, answers, strict=True):
            if "text" in answer:
                (found.requests if request else found.texts)[length] = answer["text"]
            elif length in sent or answer["kind"] in {"limit", "forbidden"}:
                raise RenderError(answer["error"], answer["kind"], answer["line"])
        return found

    # ---- comparing

    def compare(self, seen: _Renderings) -> tuple[str, tuple[tuple[int, bool], tuple[int, bool]] | None]:
        """The verdict, and the two renderings that show why."""
        texts = [(a, b) for a, b in pairwise(sorted(seen.texts)) if not seen.texts[b].startswith(seen.texts[a])]
        requests = [
            (a, b) for a, b in pairwise(sorted(seen.requests)) if not seen.requests[b].startswith(seen.requests[a])
        ]
        if not texts and not requests:
            return "stable", None
        if not requests:
            a, b = texts[0]
            return "stable-in-serving", ((a, False), (b, False))
        if not texts:
            a, b = requests[0]
            return "generation-prompt-not-replayed", ((a, True), (b, True))
        for a, b in requests:
            if not seen.requests[b].startswith(seen.texts.get(a, seen.requests[a])):
                return "rewrites-history", ((a, True), (b, True))
        a, b = texts[0]
        return "rewrites-history", ((a, False), (b, False))

    def compare_history(
        self, form: Form, seen: _Renderings
    ) -> tuple[str, tuple[tuple[int, bool], tuple[int, bool]] | None]:
        """Of an application's template: are the messages of one request, but for the newest, written so in the next?"""
        for a, b in pairwise(sorted(seen.requests)):
            earlier = seen.requests[a]
            old = json.dumps(conversation(form)[: a - 1])
            ends = [earlier.find(mark) + len(mark) for mark in MARKS if mark in old and mark in earlier]
            if ends and _common(earlier, seen.requests[b]) < max(ends):
                return "rewrites-history", ((a, True), (b, True))
        return "stable", None

    def date(self, form: Form) -> tuple[str, int]:
        """Whether the clock changes the prompt, with and without a system message, and the line that prints it."""
        for word, shape in (("always", form), ("without-system", replace(form, system=False))):
            if word == "without-system" and not form.system:
                continue
            one, again, other = self.dated(shape)
            if not all("text" in seen for seen in (one, other, again)):
                continue
            if one["text"] != other["text"] and one["text"] == again["text"]:  # else a template that draws lots
                return word, _first_difference(one, other)
        return "never", 0

    def dated(self, form: Form) -> list[dict[str, Any]]:
        """The whole conversation as it is rendered on one day twice, and on another, with traces."""
        length = len(conversation(form))
        jobs = [self.job(form, length, request=True, now=now, trace=True) for now in (_NOON, _NOON, _LATER)]
        return self.render(jobs)

    def blame(self, form: Form, one: tuple[int, bool], other: tuple[int, bool]) -> int:
        """The template's line at which two renderings part."""
        first, second = self.render([self.job(form, length, request, trace=True) for length, request in (one, other)])
        return _first_difference(first, second) if "text" in first and "text" in second else 0


def _writes_messages(seen: _Renderings) -> bool:
    """Whether a question is anywhere in what was rendered. A template that takes contents as lists may write nothing of texts."""
    return any("question-" in text.casefold() for text in seen.requests.values())


def _common(one: str, other: str) -> int:
    """Length of the common prefix, in characters."""
    return len(os.path.commonprefix((one, other)))  # noqa: RUF071 (of characters is what we want)


def _drops(requests: list[str]) -> bool:
    """Whether reasoning that stood in one request is missing in a later one."""
    for turn in (1, 2):
        shown = [thought(turn) in request for request in requests]
        if True in shown and False in shown[shown.index(True) :]:
            return True
    return False


def _moves(requests: list[str], mark: str) -> bool:
    """Whether a text stands behind other messages in one request than in another."""
    before = set()
    for request in requests:
        at = request.find(mark)
        if at >= 0:
            before.add(frozenset(other for other in MARKS if 0 <= request.find(other) < at))
    return len(before) > 1


def _first_difference(one: dict[str, Any], other: dict[str, Any]) -> int:
    """The line of the first condition that came out differently on the way to the first character that differs, else the line that wrote it."""
    at = _common(one["text"], other["text"])
    same, end = 0, 0
    for (line, length, _), (line_then, length_then, _) in zip(one["chunks"], other["chunks"], strict=False):
        if (line, length) != (line_then, length_then) or end + length > at:
            break
        same, end = same + 1, end + length
    mine, mine_line = _way_to(one["chunks"][same:], at - end)
    yours, yours_line = _way_to(other["chunks"][same:], at - end)
    for (line, outcome), (line_then, outcome_then) in zip(mine, yours, strict=False):
        if line != line_then:
            return mine_line or yours_line
        if outcome != outcome_then:
            return line
    return mine_line or yours_line


def _way_to(chunks: list[tuple[int, int, list[tuple[int, bool]]]], at: int) -> tuple[list[tuple[int, bool]], int]:
    """The decisions up to the piece that holds a character, and the line of that piece; 0 where the text ends before it."""
    end = 0
    way: list[tuple[int, bool]] = []
    for line, length, decisions in chunks:
        way += decisions
        end += length
        if end > at:
            return way, line
    return way, 0


def read(project: Project, paths: Sequence[Path], *, seconds: float = SECONDS) -> Reading:
    """The verdicts on the templates over messages among these files, tokenizer configurations included."""
    reading = Reading()
    with Renderer(seconds) as renderer:
        for path in paths:
            for place, line_of, text, name in _templates(project, path):
                reading += _read_one(place, line_of, text, renderer, name)
    return reading


def read_inline(prompts: Sequence[Prompt], *, seconds: float = SECONDS) -> Reading:
    """The verdicts on chat templates that Python code gives as text (`apply_chat_template(messages, chat_template=TEMPLATE)`)."""
    texts = {
        parameter.value.span: parameter.value
        for prompt in prompts
        for parameter in prompt.parameters
        if parameter.name == "chat_template" and isinstance(parameter.value, Text)
    }
    reading = Reading()
    with Renderer(seconds) as renderer:
        for span, text in texts.items():
            # Lines can be followed only where the source spells the text.
            line_of = (
                (lambda line, first=span.line: first + line - 1) if span.exact else (lambda _, first=span.line: first)
            )
            reading += _read_one(span.path, line_of, text.value, renderer)
    return replace(reading, parsed=())


def _read_one(path: str, line_of: Callable[[int], int], text: str, renderer: Renderer, name: str = "") -> Reading:
    if len(text) > LONGEST and Path(path).name.startswith(("chat_template", "tokenizer_config")):
        return Reading(
            unread=(Unread(path, line_of(1), f"the chat template has more than {LONGEST:,} characters: not judged"),)
        )
    given = conversation_of(text)
    if given is None:
        return Reading()
    try:
        found = judge(text, renderer, given)
    except RenderError as error:
        if error.kind == "syntax" or not given.pure:
            return Reading()  # the Jinja front end reports the one; the other was a guess
        called = f" `{name}`" if name else ""
        reason = {
            "forbidden": f"the chat template{called} reaches for what a sandbox forbids",
            "include": f"the chat template{called} cannot be judged alone: it",
            "limit": f"the chat template{called} goes beyond the bounds of rendering: it",
        }.get(error.kind, f"no conversation that we know renders with this template{called}")
        joint = " " if error.kind in {"include", "limit"} else ": "
        return Reading(unread=(Unread(path, line_of(error.line), f"{reason}{joint}{error}"),))
    verdict = TemplateVerdict(
        path,
        found.verdict,
        found.drops_reasoning,
        found.moves_tools,
        found.moves_system,
        found.date,
        line_of(found.line) if found.line else 0,
        found.reusable_share,
        line_of(found.date_line) if found.date_line else 0,
        found.lost_share,
        name,
    )
    return Reading(templates=(verdict,), parsed=(path,))


def _templates(project: Project, path: Path) -> Iterator[tuple[str, Callable[[int], int], str, str]]:
    """The texts of a file that may be chat templates, each with the function from its lines to those of the file and the name that a tokenizer gives it."""
    suffix = path.suffix.lower()
    if suffix not in _JINJA and suffix != ".json":
        return
    source = project.source(path)
    if source is None:
        return
    if suffix in _JINJA:
        yield source.path, lambda line: line, source.text, ""
        return
    if '"chat_template"' not in source.text:
        return
    try:
        strings = json_strings(source)
    except BrokenDataError:
        return
    names = {string.key[:-1]: string.value for string in strings if string.key[-1:] == ("name",)}
    for string in strings:
        named = string.key[:1] == ("chat_template",) and (len(string.key) == 1 or string.key[-1] == "template")
        if named:
            name = names.get(string.key[:-1], "") if len(string.key) > 1 else ""
            yield source.path, lambda _, line=string.line: line, string.value, name  # type: ignore[misc]
