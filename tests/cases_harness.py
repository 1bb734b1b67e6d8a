"""Runs the programs that stand in Markdown: rule pages and tests/cases.

A case is a section (a heading) with fenced programs. Fences of one language join to one file; a line that holds only `` `a/path.py` `` before a fence
names the file. A `toml` fence is the case's promptlint.toml. In a program,

- `# finding: [rule, other] "text"` says that these rules, and no others, report this line; `text` is part of a message;
- `# missed: [rule]` pins a miss: the case fails on the day we catch it;
- in templates the same stands in `{# … #}`, in other files behind `#` at the end of a line.

On the last line of a literal of several lines the remark speaks for all of its lines, because inside it no comment can stand. Every shown finding
must be expected and every expectation met. Without any remark, a section "Flagged" must yield its page's rule and nothing else.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

from promptlint.app.check import Request, check
from promptlint.config import load_settings

__all__ = ["Case", "cases_of", "mismatches", "without_remarks"]

_FENCE = re.compile(r"^(`{3,})(\w*)\s*$")
_PATH = re.compile(r"^`([\w./-]+\.\w+)`$")
_REMARK = re.compile(r'(?:#|\{#)\s*(finding|missed):\s*\[([\w\s,-]+)\](?:\s*"([^"]*)")?')
_SUFFIX = {"py": "case.py", "python": "case.py", "jinja": "case.jinja", "toml": "promptlint.toml"}


@dataclass(slots=True)
class Case:
    """One section with programs. `rule` is the page's own rule, "" outside rule pages."""

    title: str
    rule: str
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Expectation:
    kind: str
    path: str
    lines: range
    rule: str
    text: str


def cases_of(page: Path, *, rule: str = "") -> list[Case]:
    """The sections of a page that hold programs. Raises ValueError for a fence of a language without a file name."""
    cases: list[Case] = []
    case = Case("", rule)
    lines = iter(page.read_text("utf-8").splitlines())
    path = ""
    for line in lines:
        fence = _FENCE.match(line)
        if line.startswith("#"):
            case = Case(line.lstrip("# ").strip(), rule)
        elif fence:
            body = []
            for inner in lines:
                if inner.strip() == fence[1]:
                    break
                body.append(inner)
            if fence[2] == "text":
                continue
            if not path and fence[2] not in _SUFFIX:
                raise ValueError(f"{page}: a fence of {fence[2]!r} needs a line with its path")
            name = path or _SUFFIX[fence[2]]
            case.files[name] = case.files.get(name, "") + "\n".join(body) + "\n"
            if case not in cases:
                cases.append(case)
            path = ""
        elif _PATH.match(line.strip()):
            path = line.strip().strip("`")
    return cases


def mismatches(case: Case, folder: Path) -> list[str]:
    """Runs the case in a folder; what was reported and not expected, or expected and not reported. Empty when all is well."""
    expected: list[_Expectation] = []
    for name, text in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        expected.extend(_expectations(name, text))
    if "promptlint.toml" not in case.files:
        (folder / "promptlint.toml").write_text("", "utf-8")
    # A file that the case names is given by name, so that any suffix is read.
    names = [folder / name for name in case.files if not name.endswith(".toml")]
    report = check(load_settings(folder), Request(tuple(names), folder), use_cache=False)
    found = [(item.path, item.line, item.rule, item.message) for item in report.findings]
    if not expected and case.rule and case.title == "Flagged":
        rules = {rule for _, _, rule, _ in found}
        return [] if rules == {case.rule} else [f"reported {sorted(rules)}, expected {case.rule}"]
    problems = []
    unexplained = set(found)
    for each in expected:
        hits = {
            item
            for item in found
            if item[0] == each.path and item[1] in each.lines and item[2] == each.rule and each.text in item[3]
        }
        where = f"{each.path}:{each.lines[-1]}: {each.rule}"
        if each.kind == "finding" and not hits:
            problems.append(f"{where} {each.text!r} not reported")
        if each.kind == "missed" and hits:
            problems.append(f"{where} is caught now: turn `missed` into `finding`")
        unexplained -= hits
    problems.extend(
        f"{path}:{line}: {rule} not expected: {message}" for path, line, rule, message in sorted(unexplained)
    )
    return problems


def without_remarks(text: str) -> str:
    """A program without what it says of its findings."""
    return re.sub(rf"[ \t]*{_REMARK.pattern}(?:[ \t]*#\}})?", "", text)


def _expectations(path: str, text: str) -> list[_Expectation]:
    literals = _literals(text) if path.endswith(".py") else {}
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for match in _REMARK.finditer(line):
            lines = range(literals.get(number, number), number + 1)
            for rule in match[2].split(","):
                found.append(_Expectation(match[1], path, lines, rule.strip(), match[3] or ""))
    return found


def _literals(text: str) -> dict[int, int]:
    """First line of the literals that end on a line, by that line."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a case in the syntax of a newer Python
        return {}
    found: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            end = node.end_lineno or node.lineno
            found[end] = min(node.lineno, found.get(end, node.lineno))
    return found
