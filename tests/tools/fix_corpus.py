"""Runs edits over copies of repositories and says what they did.

    python tests/tools/fix_corpus.py FOLDER_OF_REPOSITORIES [--repo NAME] [--diffs FILE] [--sample N]

Each repository is copied; `--fix --unsafe-fixes` is applied, and then `--reorder`. Checked: every file that parsed still parses, a second run changes nothing,
only lines of edits changed, and what was repaired is no longer reported. `--sample` prints that many reorderings, drawn at random with a fixed seed.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from promptlint.app.check import Request
from promptlint.app.fix import Fixed, fix
from promptlint.config import load_settings

STEPS = (("fix", frozenset({"safe", "unsafe"})), ("reorder", frozenset({"display-only"})))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repo", default="")
    parser.add_argument("--diffs", type=Path)
    parser.add_argument("--sample", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    reorderings: list[tuple[str, str]] = []
    diffs = []
    problems = []
    for folder in sorted(options.folder.iterdir()):
        if options.repo not in folder.name or not folder.is_dir():
            continue
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / folder.name
            shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            for step, allowed in STEPS:
                done, wrong = run(copy, allowed)
                problems += [f"{folder.name}: {step}: {line}" for line in wrong]
                for each in done.applied:
                    counts[step, each.finding.rule, "repaired"] += 1
                    if step == "reorder":
                        reorderings.append(
                            (f"{folder.name}/{each.finding.span.path}:{each.finding.span.line}", each.finding.rule)
                        )
                for rule, why in {(each.finding.rule, each.finding.span): each.why for each in done.dropped}.items():
                    counts[step, rule[0], f"dropped: {why.split(' would')[-1]}"] += 1
                left = Counter(item.rule for item in done.report.findings)
                for rule, number in left.items():
                    counts[step, rule, "left"] += number
                diffs.append(f"==== {folder.name} {step}\n{done.diff()}")
                print(
                    f"{folder.name:<45} {step:<8} {len(done.applied):>4} repaired, {len(done.dropped):>4} dropped, {len(done.texts):>4} files",
                    flush=True,
                )
    for (step, rule, what), number in sorted(counts.items()):
        print(f"{step:<8} {rule:<30} {what:<50} {number:>5}")
    print(f"{len(problems)} problems", *problems, sep="\n")
    if options.diffs:
        options.diffs.write_text("".join(diffs))
    for place, rule in random.Random(20).sample(reorderings, min(options.sample, len(reorderings))):
        print(place, rule)


def run(copy: Path, allowed: frozenset[str]) -> tuple[Fixed, list[str]]:
    """One step on a copy, and what is wrong with it."""
    settings, request = load_settings(copy), Request((copy,), copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and not path.is_symlink()}
    parsed = {path for path, data in before.items() if path.suffix == ".py" and parses(data)}
    done = fix(settings, request, allowed)
    done.write()
    wrong = [f"{path.relative_to(copy)} no longer parses" for path in parsed if not parses(path.read_bytes())]
    touched = {path for path, data in before.items() if path.read_bytes() != data}
    wrong += [f"{path.relative_to(copy)} was written without an edit" for path in touched - set(done.texts)]
    for path in touched:
        wrong += [f"{path.relative_to(copy)}: {line}" for line in other_lines(before[path], path.read_bytes())]
    again = fix(settings, request, allowed)
    wrong += [f"a second run changes {path.relative_to(copy)}" for path in again.texts]
    return done, wrong


def parses(data: bytes) -> bool:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def other_lines(before: bytes, after: bytes) -> list[str]:
    """Signs of changed formatting: other line ends, another end of the file, a lost byte order mark."""
    found = []
    if (b"\r\n" in before) != (b"\r\n" in after) or (before.count(b"\r") == 0) != (after.count(b"\r") == 0):
        found.append("other line ends")
    if before.endswith(b"\n") != after.endswith(b"\n"):
        found.append("another end of the file")
    if before.startswith(b"\xef\xbb\xbf") != after.startswith(b"\xef\xbb\xbf"):
        found.append("the byte order mark changed")
    return found


if __name__ == "__main__":
    main()
