"""What the GitHub Action runs: the comparison of a pull request as comment, step summary, annotations, outputs and files.

Two halves. `look` runs in the workflow of the pull request. Where its token may not write, as for a pull request from a fork, it leaves its report to be kept as an
artifact, and `deliver` posts it from a `workflow_run` workflow, which has a token and never checks out the fork's code. The artifact is a stranger's
word: only its JSON is read, each type checked, and all text escaped anew; which pull request it belongs to is asked from GitHub.

Whatever is printed here may hold text of the pull request, and a runner takes lines of it for commands. So commands are switched off while we work, and on only for our
own annotations.
"""

from __future__ import annotations

import io
import json
import secrets
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from promptlint.app.atomic import write_text
from promptlint.app.check import Request
from promptlint.app.diff import Side, compare, drop, exceeded, read_side, verdicts
from promptlint.app.discovery import absolute
from promptlint.app.revision import hunks, merge_base, resolve
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.github.api import Api, ApiError
from promptlint.github.comment import BOT, Run, post
from promptlint.github.event import Workflow, dig
from promptlint.report.diff import json as diff_json
from promptlint.report.diff_markdown import MAX_SUMMARY, markdown
from promptlint.report.diff_model import DiffReport, from_json
from promptlint.report.github import within_limits
from promptlint.report.model import CheckReport, FindingItem

__all__ = ["Asked", "deliver", "look", "quietly"]

ARTIFACT = "promptlint-report"
REPORT = "report.json"
_MAX_ARTIFACT = 20_000_000
_EMPTY = "0" * 40  # what a push event says of a branch that is new


@dataclass(frozen=True, slots=True)
class Asked:
    """What the action was asked for. `checkout` holds the head; `base` and `head` are what `promptlint diff` takes, None for the event's own."""

    checkout: Path
    base: str | None = None
    head: str = "."
    paths: tuple[Path, ...] = ()
    traffic: tuple[str, ...] = ()
    workload: Path | None = None
    fail_on: str | None = None
    max_drop: float | None = None
    comment: bool = True
    comment_id: str = "promptlint"
    author: str = BOT
    annotate: bool = True
    folder: Path = field(default_factory=Path)  # where report.json and promptlint.sarif are written
    sarif: bool = False


def quietly(work: Callable[[], int]) -> int:
    """Run with workflow commands switched off: a path or a message that looks like one stays text. They stay off when the work fails, because what is
    printed of an error comes later; else they are on again for whatever follows in the job.
    """
    click.echo(f"::stop-commands::{_stop()}")
    status = work()
    click.echo(f"::{_token.pop()}::")
    return status


_token: list[str] = []


def _stop() -> str:
    _token[:] = [secrets.token_hex(16)]
    return _token[0]


def _command(text: str) -> None:
    """Print workflow commands of our own, with commands switched on for as long as that takes."""
    if not text:
        return
    if _token:
        click.echo(f"::{_token[0]}::")
    click.echo(text, nl=not text.endswith("\n"))
    if _token:
        click.echo(f"::stop-commands::{_stop()}")


def look(workflow: Workflow, asked: Asked, settings_of: Callable[[Path], Settings]) -> int:
    """Compare, then tell: summary, annotations, outputs, files and the comment. 1 when a threshold is passed, else 0; a comment that fails never fails the job."""
    if workflow.event == "pull_request_target":
        raise UserError(
            "pull_request_target sees the base, not the change: use pull_request, and workflow_run for forks (see the README)"
        )
    request = Request(asked.paths or (Path(),), absolute(asked.checkout))
    base_name = asked.base or _base(workflow, request.working_directory)
    head = read_side(asked.head, settings_of, request, edits=True)
    base = (
        read_side(base_name, settings_of, request)
        if base_name
        else Side("nothing", None, head.report, sites=head.sites)
    )
    found = verdicts(asked.workload, asked.traffic, settings_of(request.working_directory))
    diff = compare(base, head, found, asked.traffic)
    if base.commit:
        diff = _within_change(diff, hunks(base.commit, request.working_directory, head.commit))
    workflow.write_summary(markdown(diff) if base_name else _alone(head.report))
    if asked.annotate:
        _command(within_limits(diff.new_findings if base_name else head.report.findings))
    files = _write_files(asked, diff, head.report)
    outcome = _comment(workflow, asked, diff) if base_name else "no-pull-request"
    left = outcome in ("no-token", "refused")
    _say(_told(outcome))
    workflow.write_outputs(
        {
            **_numbers(diff, base_known=bool(base_name)),
            **files,
            "comment": outcome,
            "comment-file-written": str(left).lower(),
        }
    )
    reasons = exceeded(diff, fail_on=asked.fail_on, max_drop=asked.max_drop)
    for reason in reasons:
        _command(f"::error title=promptlint::{reason}")
    return int(bool(reasons))


def _within_change(diff: DiffReport, changed: Mapping[str, list[tuple[int, int]]]) -> DiffReport:
    """The comparison with suggestions only where all their lines lie in one hunk of the change: elsewhere nobody could accept them."""

    def shown(finding: FindingItem) -> FindingItem:
        lines = finding.suggestion
        if lines is None or any(
            first <= lines.line and lines.end_line <= last for first, last in changed.get(finding.path, ())
        ):
            return finding
        return replace(finding, suggestion=None)

    return replace(diff, new_findings=tuple(map(shown, diff.new_findings)))


def _base(workflow: Workflow, checkout: Path) -> str | None:
    """What the head is compared with: for the merge commit of a pull request its first parent, so that the comparison shows what merging would change
    and nothing that the base branch did meanwhile; for the pull request's own head, checked out by the caller, for the same reason the commit where it
    left the base, as far as the clone holds it; else the base that the event names; None without one.
    """
    named = dig(workflow.payload, "pull_request", "base", "sha") or dig(workflow.payload, "before")
    if dig(workflow.payload, "pull_request") is not None:
        try:
            merged = resolve("HEAD^2", checkout)
        except UserError:
            merged = ""
        if merged and merged == dig(workflow.payload, "pull_request", "head", "sha"):
            return "HEAD^1"
    if not named or named == _EMPTY:
        return None
    try:
        base = resolve(str(named), checkout)
        return base if dig(workflow.payload, "pull_request") is None else merge_base(base, "HEAD", checkout) or base
    except UserError:
        _say("the commit before this push is not in the clone: no comparison")
        return None


def _alone(report: CheckReport) -> str:
    """The summary where there is nothing to compare with: whole, or its leading lines with a notice."""
    from promptlint.report.markdown import markdown as check_markdown

    text = check_markdown(report)
    if len(text.encode()) <= MAX_SUMMARY:
        return text
    head = text.encode()[: MAX_SUMMARY - 100].decode("utf-8", "ignore").rpartition("\n")[0]
    return head + ("\n</details>" if "<details>" in head else "") + "\n\nCut to fit: the JSON report has all.\n"


def _write_files(asked: Asked, diff: DiffReport, report: CheckReport) -> dict[str, str]:
    folder = absolute(asked.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / REPORT, diff_json(diff))
        written = {"report-path": str(folder / REPORT), "sarif-path": ""}
        if asked.sarif:
            from promptlint.report.sarif import sarif

            write_text(folder / "promptlint.sarif", sarif(report))
            written["sarif-path"] = str(folder / "promptlint.sarif")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return written


def _numbers(diff: DiffReport, *, base_known: bool) -> dict[str, str]:
    """The headline numbers as outputs. Hit rates are shares, 0 to 1; empty where there is none."""
    base, head = (diff.base.hit_rate if base_known else None), diff.head.hit_rate
    return {
        "hit-rate-base": "" if base is None else f"{base:.4f}",
        "hit-rate-head": "" if head is None else f"{head:.4f}",
        "hit-rate-delta": "" if base is None or head is None else f"{head - base:.4f}",
        "max-hit-rate-drop": f"{drop(diff):.2f}",
        "findings": str(diff.head.findings),
        "new-findings": str(len(diff.new_findings)),
        "fixed-findings": str(len(diff.fixed_findings)),
        "call-sites": str(diff.head.call_sites),
        "changed-call-sites": str(len(diff.changed)),
        "cache-keys-changed": str(diff.cache_keys_changed),
        "once-tokens": str(diff.once_tokens),
        "verdict": ",".join(sorted({item.verdict for item in diff.verdicts})),
    }


def _comment(workflow: Workflow, asked: Asked, diff: DiffReport) -> str:
    """Post the comment where that is asked for and allowed; what became of it, in one word."""
    number = dig(workflow.payload, "pull_request", "number")
    sha = dig(workflow.payload, "pull_request", "head", "sha")
    if not isinstance(number, int) or not isinstance(sha, str):
        return "no-pull-request"
    if not asked.comment:
        return "off"
    if not workflow.token:
        return "no-token"
    run = Run(asked.comment_id, workflow.run_number, workflow.attempt, sha)
    return _posted(workflow, number, diff, run, asked.author)


def _posted(workflow: Workflow, number: int, diff: DiffReport, run: Run, author: str) -> str:
    try:
        return post(Api(workflow.api_url, workflow.token), workflow.repository, number, diff, run, author)
    except ApiError as error:
        refused = error.status in (401, 403, 404)  # a read-only token gets 403, and 404 where it may not even know
        _say(f"the comment could not be written: {error}")
        return "refused" if refused else "failed"


def deliver(workflow: Workflow, asked: Asked) -> int:
    """The `workflow_run` half: post the report that the finished run left as an artifact. Always 0: the outcome stands in the output `comment`."""
    outcome = "no-token"
    if workflow.token:
        try:
            outcome = _deliver(workflow, asked, Api(workflow.api_url, workflow.token))
        except ApiError as error:
            _say(f"the comment could not be written: {error}")
            outcome = "refused" if error.status in (401, 403, 404) else "failed"
    _say(_told(outcome))
    workflow.write_outputs({"comment": outcome, "comment-file-written": "false"})
    return 0


def _deliver(workflow: Workflow, asked: Asked, api: Api) -> str:
    finished = dig(workflow.payload, "workflow_run")
    sha, branch, owner = (
        dig(finished, *keys) for keys in (("head_sha",), ("head_branch",), ("head_repository", "owner", "login"))
    )
    number, identifier = dig(finished, "run_number"), dig(finished, "id")
    if dig(finished, "event") != "pull_request" or not (sha and branch and owner) or not isinstance(identifier, int):
        return "no-pull-request"
    content = _artifact(api, workflow.repository, identifier, f"{ARTIFACT}-{asked.comment_id}")
    if content is None:
        return "nothing-to-say"
    try:
        diff = from_json(json.loads(content))
    except (ValueError, RecursionError):
        return "bad-artifact"
    pull = _pull_request(api, workflow.repository, f"{owner}:{branch}", sha)
    if pull is None:
        return "no-pull-request"
    workflow.write_summary(markdown(diff))
    attempt = dig(finished, "run_attempt")
    run = Run(
        asked.comment_id, number if isinstance(number, int) else 1, attempt if isinstance(attempt, int) else 1, sha
    )
    return post(api, workflow.repository, pull, diff, run, asked.author)


def _artifact(api: Api, repository: str, run: int, name: str) -> bytes | None:
    """The report in the run's newest artifact of that name; None when there is none or it is no such archive."""
    found = api.get(f"/repos/{repository}/actions/runs/{run}/artifacts", per_page=100, name=name)["artifacts"]
    fitting = [
        item
        for item in found
        if item["name"] == name and not item["expired"] and item["size_in_bytes"] <= _MAX_ARTIFACT
    ]
    if not fitting:
        return None
    newest = max(fitting, key=lambda item: item["id"])
    archive = api.download(f"/repos/{repository}/actions/artifacts/{newest['id']}/zip")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files, files.open(REPORT) as file:
            content = file.read(_MAX_ARTIFACT + 1)  # the size that the archive claims is a claim
    except (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, RuntimeError, OSError):
        return b""
    return content if len(content) <= _MAX_ARTIFACT else b""


def _pull_request(api: Api, repository: str, head: str, sha: str) -> int | None:
    """The one pull request of that head owner and branch whose head is still the commit of the run, open ones first.

    The event does not say: for a fork its `pull_requests` is empty. Two pull requests of one branch into different bases
    cannot be told apart without the artifact's word, so neither gets the comment.
    """
    for state in ("open", "all"):
        found = [
            pull["number"]
            for pull in api.get(f"/repos/{repository}/pulls", state=state, head=head, per_page=100)
            if dig(pull, "head", "sha") == sha and dig(pull, "base", "repo", "full_name") == repository
        ]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _told(outcome: str) -> str:
    words: Mapping[str, str] = {
        "created": "comment created",
        "updated": "comment updated",
        "unchanged": "comment left as it is: nothing changed",
        "outdated": "comment left as it is: the pull request or the comment is newer than this run",
        "nothing-to-say": "no comment: nothing changed and none was there",
        "no-token": "no comment: no token; the report is kept for the workflow_run half",
        "refused": "no comment: the token may not write here, as for pull requests from forks; the report is kept for the workflow_run half",
        "failed": "no comment: GitHub could not be reached",
        "no-pull-request": "no comment: no pull request is known for this event",
        "bad-artifact": "no comment: the artifact is no report of ours",
        "off": "no comment: switched off",
    }
    return words[outcome]


def _say(text: str) -> None:
    click.echo(f"promptlint: {text}")
