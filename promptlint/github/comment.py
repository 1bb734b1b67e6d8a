"""One comment a pull request, found again by a hidden marker: updated in place, untouched when nothing changed, never newer by older.

A comment is ours when it begins with the marker *and* we wrote it: anyone can write the marker. The marker holds which run wrote it, and of which commit. An older run never
replaces the text of a newer one: the pull request's head must still be the commit that we looked at, and the run in the marker must not be a later one of that
commit. (Runs of other commits are not compared: their numbers begin anew when a workflow's file is renamed.)
Two jobs at once may both find no comment and both write one; each looks again afterwards, and the oldest comment stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from promptlint.errors import UserError
from promptlint.github.api import Api, ApiError
from promptlint.report.diff_markdown import MAX_COMMENT, markdown
from promptlint.report.diff_model import DiffReport

__all__ = ["BOT", "Run", "body_of", "post"]

BOT = "github-actions[bot]"  # who writes with the token of a workflow
_MARKER = re.compile(
    r"<!-- promptlint-comment id=(?P<id>\S+) run=(?P<run>\d+)\.(?P<attempt>\d+)(?: head=(?P<head>\w+))? -->\n"
)
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Run:
    """Whose comment it is: several of them in one pull request have different ids; `number` and `attempt` order the runs of a workflow."""

    id: str
    number: int
    attempt: int
    head_sha: str

    def __post_init__(self) -> None:
        """Raises UserError when the id could end the marker."""
        if not _ID.fullmatch(self.id):
            raise UserError(f"comment id {self.id!r}: letters, digits, dots, dashes and underscores, at most 64")


def body_of(diff: DiffReport, run: Run) -> str:
    """The comment, marker first, within GitHub's limit."""
    marker = f"<!-- promptlint-comment id={run.id} run={run.number}.{run.attempt} head={run.head_sha} -->\n"
    return marker + markdown(diff, MAX_COMMENT)


def post(api: Api, repository: str, number: int, diff: DiffReport, run: Run, author: str = BOT) -> str:
    """Write, update or leave the comment; what was done: created, updated, unchanged, outdated, or nothing-to-say. Raises ApiError."""
    if api.get(f"/repos/{repository}/pulls/{number}")["head"]["sha"] != run.head_sha:
        return "outdated"
    body = body_of(diff, run)
    comments = _Comments(api, repository, number, run.id, _login(api, author))
    own = comments.own()
    if own:
        for extra in own[1:]:
            comments.delete(extra)
        outcome = _update(comments, own[0], body, run)
        if outcome != "gone":
            return outcome
    elif not (diff.changed or diff.new_findings or diff.fixed_findings or diff.moved_findings):
        return "nothing-to-say"
    created = comments.create(body)
    first = next(iter(comments.own()), created)
    if first["id"] == created["id"]:
        return "created"
    comments.delete(created)
    return _update(comments, first, body, run)


def _update(comments: _Comments, comment: Any, body: str, run: Run) -> str:
    known = _MARKER.match(_normal(comment["body"]))
    assert known is not None
    same_commit = known["head"] in (None, run.head_sha)
    if same_commit and (int(known["run"]), int(known["attempt"])) > (run.number, run.attempt):
        return "outdated"
    if _MARKER.sub("", _normal(comment["body"]), count=1).strip() == _MARKER.sub("", body, count=1).strip():
        return "unchanged"
    return "updated" if comments.update(comment, body) else "gone"


class _Comments:
    """The comments of one pull request that are ours."""

    def __init__(self, api: Api, repository: str, number: int, comment_id: str, author: str) -> None:
        self.api = api
        self.issue = f"/repos/{repository}/issues/{number}/comments"
        self.each = f"/repos/{repository}/issues/comments"
        self.id = comment_id
        self.author = author

    def own(self) -> list[Any]:
        """Oldest first."""
        return sorted(self._own(), key=lambda comment: comment["id"])

    def _own(self) -> Iterator[Any]:
        for comment in self.api.pages(self.issue):
            marker = _MARKER.match(_normal(comment.get("body") or ""))
            login = (comment.get("user") or {}).get("login")
            if marker and marker["id"] == self.id and login == self.author:
                yield comment

    def create(self, body: str) -> Any:
        return self.api.post(self.issue, {"body": body})

    def update(self, comment: Any, body: str) -> bool:
        """False when somebody deleted it in between."""
        try:
            self.api.patch(f"{self.each}/{comment['id']}", {"body": body})
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def delete(self, comment: Any) -> None:
        """It is gone, or somebody else removed it."""
        try:
            self.api.delete(f"{self.each}/{comment['id']}")
        except ApiError as error:
            if error.status != 404:
                raise


def _normal(body: str) -> str:
    return body.replace("\r\n", "\n")


def _login(api: Api, author: str) -> str:
    """Who we are. The token of a workflow may not ask (403); it writes as `author`."""
    try:
        return str(api.get("/user")["login"])
    except ApiError as error:
        if error.status not in (401, 403, 404):
            raise
        return author
