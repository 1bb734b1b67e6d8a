"""Runs edits over copies of repositories and says what they did.

    python tests/tools/fix_corpus.py FOLDER_OF_REPOSITORIES [--repo NAME]... [--diffs FILE] [--sample N --seed SEED --drawn FILE]

Each repository is copied; `--fix --unsafe-fixes` is applied, and then `--reorder`. Checked for each file, with code of its own where that is what is tested:

- the bytes that were written are those from before with the planned edits and nothing else changed;
- what parsed still parses (Python, YAML, JSON, TOML, Jinja), and a second run changes nothing;
- the repaired findings are gone, and no rule has more findings in a file than it had.

`--drawn` gets that many reorderings with their differences, drawn at random, to be read for their meaning.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import json
import random
import re
import shutil
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import jinja2
import yaml

from promptlint.app.check import Request, check
from promptlint.app.fix import Applied, Fixed, fix
from promptlint.config import load_settings
from promptlint.finding import Edit
from promptlint.fixes import files
from promptlint.report.model import CheckReport, FindingItem

STEPS = (("fix", frozenset({"safe", "unsafe"})), ("reorder", frozenset({"display-only"})))
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


@dataclass(slots=True)
class Outcome:
    """What the steps did to the repositories so far."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    reorderings: list[tuple[str, str, str]] = field(default_factory=list)  # place, rule, difference
    diffs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, step: str, done: Fixed, problems: Iterable[str]) -> None:
        """Count what one step did to one repository."""
        self.problems += [f"{name}: {step}: {line}" for line in problems]
        for each in done.applied:
            self.counts[step, each.finding.rule, "repaired"] += 1
        for (rule, _), why in {(each.finding.rule, each.finding.span): each.why for each in done.dropped}.items():
            self.counts[step, rule, f"dropped: {why}"] += 1
        for item in done.report.findings:
            self.counts[step, item.rule, "left"] += 1
        self.diffs.append(f"==== {name} {step}\n{done.diff()}")

    def print(self) -> None:
        """The table by step and rule, and the problems."""
        for (step, rule, what), number in sorted(self.counts.items()):
            print(f"{step:<8} {rule:<30} {what:<72} {number:>5}")
        for step, _ in STEPS:
            for what in ("repaired", "dropped", "left"):
                total = sum(n for (at, _, kind), n in self.counts.items() if at == step and kind.startswith(what))
                print(f"{step:<8} {'total':<30} {what:<72} {total:>5}")
        print(f"{len(self.problems)} problems", *self.problems, sep="\n")


def main() -> None:
    """Run over the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repo", action="append", default=[])
    parser.add_argument("--diffs", type=Path)
    parser.add_argument("--sample", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--drawn", type=Path)
    options = parser.parse_args()
    outcome = Outcome()
    for folder in sorted(options.folder.iterdir()):
        wanted = not options.repo or any(name in folder.name for name in options.repo)
        if wanted and folder.is_dir():
            with tempfile.TemporaryDirectory() as temporary:
                copy = Path(temporary) / folder.name
                shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
                repair(copy, outcome)
    outcome.print()
    if options.diffs:
        options.diffs.write_text("".join(outcome.diffs), "utf-8", "surrogateescape")
    if options.drawn:
        drawn = random.Random(options.seed).sample(outcome.reorderings, min(options.sample, len(outcome.reorderings)))
        rows = [f"## {number}. {place} {rule}\n{text}\n" for number, (place, rule, text) in enumerate(drawn, 1)]
        options.drawn.write_text("\n".join(rows), "utf-8", "surrogateescape")


def repair(copy: Path, outcome: Outcome) -> None:
    """Both steps on a copy."""
    for step, allowed in STEPS:
        begun = time.process_time()
        before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and not path.is_symlink()}
        done, problems = run(copy, allowed, before)
        outcome.add(copy.name, step, done, problems)
        if step == "reorder":
            for applied, difference in differences(done, copy):
                span = applied.finding.span
                outcome.reorderings.append((f"{copy.name}/{span.path}:{span.line}", applied.finding.rule, difference))
        print(
            f"{copy.name:<45} {step:<8} {len(done.applied):>4} repaired, {len({each.finding.span for each in done.dropped}):>4} dropped, "
            f"{len(done.texts):>4} files, {len(problems)} problems, {time.process_time() - begun:.0f} s",
            flush=True,
        )


def run(copy: Path, allowed: frozenset[str], before: dict[Path, bytes]) -> tuple[Fixed, list[str]]:
    """One step on a copy, and what is wrong with it."""
    settings, request = load_settings(copy), Request((copy,), copy)
    found = check(settings, request, use_cache=False)
    done = fix(settings, request, allowed)
    done.write()
    wrong = []
    planned = replayed(done, copy, before)
    for path, data in before.items():
        name = path.relative_to(copy)
        now = path.read_bytes()
        if now != planned.get(path, data):
            wrong.append(f"{name}: bytes outside the edits differ")
        if now != data and parses(path, data) and not parses(path, now):
            wrong.append(f"{name}: no longer parses")
        if (now != data) != (path in done.texts):
            wrong.append(f"{name}: written without an edit, or edited and not written")
    strays = {path for path in copy.rglob("*") if path.is_file() and not path.is_symlink()} - set(before)
    wrong += [f"{path.relative_to(copy)}: left behind" for path in strays]
    left = check(settings, request, use_cache=False)
    wrong += list(findings_amiss(done, found, left))
    again = fix(settings, request, allowed)
    wrong += [f"{path.relative_to(copy)}: a second run changes it" for path in again.texts]
    return done, wrong


# ---- bytes


def replayed(done: Fixed, copy: Path, before: dict[Path, bytes]) -> dict[Path, bytes]:
    """The bytes of each edited file when nothing but the planned edits is done to those from before."""
    changed: dict[Path, bytes] = {}
    for _, edits in edits_by_round(done):
        for path in {copy / edit.span.path for edit in edits}:
            original = files.read(path)  # for the encoding, which edits cannot change
            data = changed.get(path, before[path])
            mine = [edit for edit in edits if copy / edit.span.path == path]
            changed[path] = original.mark + with_edits(
                data[len(original.mark) :].decode(original.encoding), mine
            ).encode(original.encoding)
    return changed


def edits_by_round(done: Fixed) -> Iterator[tuple[int, list[Edit]]]:
    """The edits of each round, those that several findings share once."""
    for number, group in groupby(done.applied, key=lambda each: each.round):
        fixes = dict.fromkeys(each.fix.edits for each in group)
        yield number, [edit for edits in fixes for edit in edits]


def with_edits(text: str, edits: Iterable[Edit]) -> str:
    """A text with what stands in the spans replaced, from the end on."""
    begins = [match.start() for match in _LINE.finditer(text)]
    cuts = []
    for number, edit in enumerate(edits):
        span = edit.span
        start, end = begins[span.line - 1] + span.column - 1, begins[span.end_line - 1] + span.end_column - 1
        cuts.append((start, end, number, edit.text))
    for start, end, _, new in sorted(cuts, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def parses(path: Path, data: bytes) -> bool:
    """Whether a file is what its name says."""
    try:
        if path.suffix == ".py":
            ast.parse(data)
        elif path.suffix in {".yaml", ".yml"}:
            list(yaml.compose_all(data, Loader=yaml.CSafeLoader))
        elif path.suffix == ".json":
            json.loads(data)
        elif path.suffix == ".toml":
            tomllib.loads(data.decode())
        elif path.suffix in {".jinja", ".jinja2", ".j2"}:
            jinja2.Environment(autoescape=False, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]).parse(
                data.decode()
            )
    except (SyntaxError, ValueError, RecursionError, yaml.YAMLError, jinja2.TemplateError):
        return False
    return True


# ---- findings


def findings_amiss(done: Fixed, before: CheckReport, after: CheckReport) -> Iterator[str]:
    """Repaired findings that are still there, and findings that no rule had in the file before. What is left of a repaired one may change less often."""
    was, now = Counter(map(_key, before.findings)), Counter(map(_key, after.findings))
    for key, number in Counter(
        (each.finding.rule, each.finding.span.path, _bare(each.finding.expression), str(each.finding.volatility))
        for each in done.applied
    ).items():
        if now[key] and now[key] > was[key] - number:
            yield f"{key[1]}: {key[0]} of {key[2]!r} was repaired and is still reported"
    rules, rules_now = (Counter((item.rule, item.path) for item in report.findings) for report in (before, after))
    for (rule, path), number in rules_now.items():
        if number > rules[rule, path]:
            new = [item for item in after.findings if (item.rule, item.path) == (rule, path) and not was[_key(item)]]
            places = ", ".join(f"line {item.line} {item.expression!r}" for item in new)
            yield f"{path}: {number - rules[rule, path]} more of {rule} ({places})"
    if [replace(item, fix=None) for item in done.report.findings] != list(after.findings):
        yield "the report of the edits is not that of the files"


def _key(item: FindingItem) -> tuple[str, str, str, str]:
    return item.rule, item.path, _bare(item.expression), str(item.volatility)


def _bare(expression: str) -> str:
    return "".join(expression.split())


# ---- reading by hand


def differences(done: Fixed, copy: Path) -> Iterator[tuple[Applied, str]]:
    """Each edit alone, as a difference against the texts that its round began with."""
    texts = {source.path: source.text for source in done.before.values()}
    for number, edits in edits_by_round(done):
        for applied in done.applied:
            if applied.round == number:
                yield applied, "".join(_difference(applied, texts))
        for path in {edit.span.path for edit in edits}:
            texts[path] = with_edits(texts[path], [edit for edit in edits if edit.span.path == path])


def _difference(applied: Applied, texts: dict[str, str]) -> Iterator[str]:
    for path in dict.fromkeys(edit.span.path for edit in applied.fix.edits):
        old = texts[path]
        new = with_edits(old, [edit for edit in applied.fix.edits if edit.span.path == path])
        yield from difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), path, path, n=25)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
