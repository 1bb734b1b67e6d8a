"""Writes docs/rules.md (the index) and docs/how-to/CATEGORY.md (what to do about each rule) from the pages in rules/.

python tests/tools/build_docs.py writes them; with --check it exits with 1 when a page is not what it would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from promptlint.catalog.rules import CATEGORIES, Rule, load_rules

DOCS = Path(__file__).parents[2] / "docs"
TITLES = {
    "volatility": "Something changes ahead of what stays",
    "determinism": "The same values in another order",
    "order": "Blocks that could be shared are not",
    "history": "A conversation that does not grow at its end",
    "breakpoints": "Markers, keys and lifetimes of a provider's cache",
    "templates": "Chat templates and Jinja",
    "tokens": "Where tokens begin and end",
    "housekeeping": "Suppressions",
}
EDITS = {"safe": "`--fix`", "unsafe": "`--unsafe-fixes`", "reorder": "`--reorder`", "display-only": "shown"}


def pages() -> dict[Path, str]:
    """The text of every generated page by its path."""
    rules = load_rules().values()
    found = {category: [rule for rule in rules if rule.category == category] for category in CATEGORIES}
    made = {DOCS / "rules.md": index(found)}
    return made | {DOCS / "how-to" / f"{name}.md": how_to(name, rows) for name, rows in found.items() if rows}


def index(found: dict[str, list[Rule]]) -> str:
    """All rules in tables, one a category."""
    count = sum(map(len, found.values()))
    lines = ["<!-- written by tests/tools/build_docs.py from rules/ -->", "# Rules", ""]
    lines += [f"{count} rules. Each is a page that is run as a test; `promptlint explain RULE` prints it.", ""]
    for category, rules in found.items():
        if not rules:
            continue
        lines += [f"## [{TITLES[category]}](how-to/{category}.md)", ""]
        lines += ["| rule | finds | severity at most | for | edit |", "|---|---|---|---|---|"]
        for rule in rules:
            page = f"[`{rule.name}`](../rules/{category}/{rule.name}.md)"
            lines.append(
                f"| {page} | {_cell(rule.summary)} | {rule.severity} | {rule.persona} | {EDITS.get(rule.fix, '')} |"
            )
        lines.append("")
    return "\n".join(lines)


def how_to(category: str, rules: list[Rule]) -> str:
    """What to do about each rule of a category: the advice, the reason, the text that was repaired."""
    lines = ["<!-- written by tests/tools/build_docs.py from rules/ -->", f"# {TITLES[category]}", ""]
    for rule in rules:
        sections = _sections(rule.body)
        lines += [f"## {rule.name}", "", sections[""], ""]
        if rule.help:
            lines += [f"**Do:** {rule.help}", ""]
        lines += [sections["Why it costs you"], ""]
        if "Fixed" in sections:
            lines += [sections["Fixed"], ""]
        elif "Fine" in sections:
            lines += ["So it is fine:", "", sections["Fine"], ""]
        lines += [f"[Examples and limits](../../rules/{category}/{rule.name}.md)", ""]
    return "\n".join(lines)


def _sections(body: str) -> dict[str, str]:
    """The parts of a page's body by their heading; what stands before the first under the empty name."""
    parts: dict[str, list[str]] = {"": []}
    name, fenced = "", False
    for line in body.splitlines():
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("## ") and not fenced:
            name = line[3:]
            parts[name] = []
        else:
            parts[name].append(line)
    return {name: "\n".join(lines).strip() for name, lines in parts.items()}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(check: bool) -> int:
    """Write or compare; the exit status."""
    wanted = pages()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    stale += [path for path in (DOCS / "how-to").glob("*.md") if path not in wanted]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(DOCS.parent)}")
        if not check and path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path], "utf-8")
        elif not check:
            path.unlink()
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
