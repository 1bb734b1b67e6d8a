"""List the rules."""

from __future__ import annotations

import click

from promptlint.cli._common import emit


@click.command("rules")
@click.option("--category", help="Only the rules of one category.")
@click.option("--output-format", type=click.Choice(("text", "json")), default="text", help="text (default) or json.")
def command(category: str | None, output_format: str) -> int:
    """List every rule with its severity, who it is for, and what it finds."""
    from promptlint.catalog.rules import CATEGORIES, load_rules
    from promptlint.errors import UserError

    if category is not None and category not in CATEGORIES:
        raise UserError(f"there is no category {category!r}; one of {', '.join(CATEGORIES)}")
    rules = [rule for rule in load_rules().values() if category in (None, rule.category)]
    if output_format == "json":
        import json

        keys = ("name", "category", "summary", "severity", "persona", "since", "fix", "help")
        rows = [{key: getattr(rule, key) for key in keys} | {"aliases": list(rule.aliases)} for rule in rules]
        emit(json.dumps({"schema": "promptlint.rules/1", "rules": rows}, indent=2) + "\n", None)
        return 0
    width = max((len(rule.name) for rule in rules), default=0)
    lines = []
    for name in CATEGORIES:
        found = [rule for rule in rules if rule.category == name]
        if found:
            lines.append(f"{name}:")
            lines += [
                f"  {rule.name:<{width}}  {rule.severity:<6}  {rule.persona:<8}  {rule.summary}" for rule in found
            ]
    emit("\n".join(lines) + "\n", None)
    return 0
