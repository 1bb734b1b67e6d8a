"""Report on a change where code is reviewed (`ci github`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from promptlint.cli._common import FiniteRange, settings_of, settings_options
from promptlint.finding import SEVERITIES

_Function = TypeVar("_Function", bound=Callable[..., Any])


@click.group("ci")
def command() -> None:
    """Report on a change where code is reviewed."""


def _option(name: str, **more: Any) -> Callable[[_Function], _Function]:
    """An option that the action gives through the environment: text from a workflow never becomes part of a command line."""
    return click.option(
        name, envvar="PROMPTLINT_" + name.partition("/")[0].lstrip("-").replace("-", "_").upper(), **more
    )


@command.command("github")
@settings_options
@_option(
    "--checkout",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where the head is checked out, with its history (the current folder).",
)
@_option("--base", metavar="BASE", help="What to compare with, as for `diff` (the event's base).")
@_option("--head", metavar="HEAD", default=".", help="What to look at, as for `diff` (the checkout).")
@_option("--paths", metavar="PATHS", default="", help="Files and folders to look at, one a line (all).")
@_option(
    "--traffic", metavar="FILES", default="", help="Traffic logs, one a line: rendered anew by both sides and replayed."
)
@_option(
    "--workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Description of a workload (YAML): the verdict on it is given too.",
)
@_option(
    "--fail-on",
    type=click.Choice(("never", *SEVERITIES)),
    default="never",
    help="Fail on a new finding of this severity or above (never).",
)
@_option(
    "--max-hit-rate-drop",
    type=FiniteRange(min=0),
    metavar="POINTS",
    help="Fail when a call site's hit rate falls by more percentage points.",
)
@_option("--comment/--no-comment", default=True, help="Comment on the pull request (yes).")
@_option("--comment-id", default="promptlint", metavar="ID", help="Tells several comments of one pull request apart.")
@_option(
    "--comment-author",
    default="github-actions[bot]",
    metavar="LOGIN",
    help="Who the token writes as, where it may not ask.",
)
@_option("--annotations/--no-annotations", default=True, help="Annotate new findings (yes).")
@_option(
    "--report-dir",
    type=click.Path(path_type=Path),
    default=Path("promptlint-report"),
    metavar="DIR",
    help="Where report.json is written.",
)
@_option("--sarif/--no-sarif", default=False, help="Write promptlint.sarif there, too (no).")
def github(**given: Any) -> int:
    """What the GitHub Action runs: comment, step summary, annotations, outputs, files.

    In a `workflow_run` workflow it posts the comment for the run that has finished. Exit status: 1 only when a threshold is given and passed.
    """
    from promptlint.github import Asked, deliver, look, quietly
    from promptlint.github.event import Workflow

    asked = Asked(
        checkout=given.pop("checkout"),
        base=given.pop("base"),
        head=given.pop("head"),
        paths=tuple(Path(line) for line in _lines(given.pop("paths"))),
        traffic=tuple(_lines(given.pop("traffic"))),
        workload=given.pop("workload"),
        fail_on=None if given["fail_on"] == "never" else given["fail_on"],
        max_drop=given.pop("max_hit_rate_drop"),
        comment=given.pop("comment"),
        comment_id=given.pop("comment_id"),
        author=given.pop("comment_author"),
        annotate=given.pop("annotations"),
        folder=given.pop("report_dir"),
        sarif=given.pop("sarif"),
    )

    def work() -> int:
        workflow = Workflow.from_environment()
        if workflow.event == "workflow_run":
            return deliver(workflow, asked)
        return look(workflow, asked, lambda first: settings_of(first, dict(given)))

    return quietly(work)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
