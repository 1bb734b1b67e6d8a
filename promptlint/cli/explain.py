"""Print a rule's page: what it finds, why it costs, examples, limits."""

from __future__ import annotations

import click

from promptlint.cli._common import emit


@click.command("explain")
@click.argument("rule")
def command(rule: str) -> int:
    """Print the page of RULE."""
    from promptlint.catalog.rules import load_rules, no_such_rule
    from promptlint.errors import UserError

    rules = load_rules()
    name = rules.canonical(rule)
    if name is None:
        raise UserError(no_such_rule(rule, rules))
    page = rules[name]
    renamed = "" if name == rule else f"`{rule}` is an old name of this rule.\n\n"
    facts = f"category {page.category}, severity up to {page.severity}, persona {page.persona}, since {page.since}"
    fix = f", fix {page.fix}" if page.fix else ""
    hint = f"\n{page.help}\n" if page.help else ""
    emit(f"# {name}\n\n{renamed}{page.summary}\n\n{facts}{fix}\n{hint}\n{page.body}", None)
    return 0
