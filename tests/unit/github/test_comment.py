"""One comment a pull request, whatever GitHub answers and whoever else is writing."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from desk_project import commit, git
from diff_sample import changes
from github_stub import EVENTS, REPOSITORY, Stub
from report_sample import everything, finding, report

from promptlint.app.diff import Side, compare
from promptlint.errors import UserError
from promptlint.github import Asked, _alone, _base, deliver
from promptlint.github.api import Api, ApiError
from promptlint.github.comment import Run, body_of, post
from promptlint.github.event import Workflow
from promptlint.report.diff import json as diff_json
from promptlint.report.diff_model import from_json
from promptlint.report.github import within_limits

SHA = "a" * 40
RUN = Run("promptlint", 5, 1, SHA)


@pytest.fixture
def stub():
    stub = Stub()
    stub.add_pull(2, SHA)
    yield stub
    stub.close()
    assert stub.invalid == []


@pytest.fixture
def api(stub):
    return Api(stub.url, "token", sleep=lambda seconds: None)


def write(api, diff=None, run=RUN, **more):
    return post(api, REPOSITORY, 2, diff or changes(), run, **more)


def other():
    return replace(changes(), notes=("something else",))


def test_created_then_updated_then_left_alone(stub, api):
    assert write(api) == "created"
    assert write(api, other(), replace(RUN, number=6)) == "updated"
    assert stub.bodies == [body_of(other(), replace(RUN, number=6))]
    assert write(api, other(), replace(RUN, number=7)) == "unchanged"
    assert stub.bodies == [body_of(other(), replace(RUN, number=6))]


def test_nothing_to_say_is_not_said_but_an_old_comment_is_put_right(stub, api):
    same = compare(Side("a", None, everything()), Side("b", None, everything()))
    assert write(api, same) == "nothing-to-say"
    write(api)
    assert write(api, same) == "updated"
    assert "No estimated hit rate changes" in stub.bodies[0]


def test_never_newer_by_older(stub, api):
    write(api, run=replace(RUN, number=9))
    assert write(api, other()) == "outdated"
    assert write(api, other(), replace(RUN, number=9, attempt=2)) == "updated"
    stub.add_pull(2, "b" * 40)  # somebody pushed
    assert write(api, run=replace(RUN, number=10)) == "outdated"
    assert stub.bodies == [body_of(other(), replace(RUN, number=9, attempt=2))]


def test_run_numbers_that_begin_anew_do_not_silence_the_comment(stub, api):
    """As after the workflow's file was renamed: the comment is of run 9, of a commit that is no longer the head."""
    write(api, run=replace(RUN, number=9))
    stub.add_pull(2, "b" * 40)
    first = replace(RUN, number=1, head_sha="b" * 40)
    assert write(api, other(), first) == "updated"
    assert stub.bodies == [body_of(other(), first)]
    assert write(api, run=replace(RUN, number=99)) == "outdated"  # still of the older commit


def test_only_our_own_comment_counts(stub, api):
    fake = stub.add_comment(body_of(changes(), replace(RUN, number=99)), login="mallory")
    quoted = stub.add_comment("> " + body_of(changes(), RUN))
    foreign = stub.add_comment(body_of(changes(), replace(RUN, id="other")))
    before = [dict(each) for each in (fake, quoted, foreign)]
    assert write(api) == "created"
    assert [fake, quoted, foreign] == before


def test_a_token_that_may_say_who_it_is(stub, api):
    stub.login = "octocat"
    own = stub.add_comment(body_of(changes(), RUN), login="octocat")
    assert write(api, other()) == "updated"
    assert "something else" in own["body"]


def test_another_author_where_the_token_may_not_say(stub, api):
    stub.add_comment(body_of(changes(), RUN), login="our-app[bot]")
    assert write(api, author="our-app[bot]") == "unchanged"


def test_it_is_found_on_a_later_page_and_with_other_line_ends(stub, api):
    for _ in range(230):
        stub.add_comment("me too", login="octocat")
    stub.add_comment(body_of(changes(), RUN).replace("\n", "\r\n"))
    assert write(api) == "unchanged"


def test_deleted_in_between(stub, api):
    write(api)
    stub.vanishing = True
    assert write(api, other()) == "created"
    assert stub.bodies == [body_of(other(), RUN)]


def test_two_jobs_at_once_leave_one_comment(stub):
    stub.together = threading.Barrier(2)
    runs = [RUN, replace(RUN, number=6)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(
            pool.map(lambda run: write(Api(stub.url, "token"), changes() if run is RUN else other(), run), runs)
        )
    assert len(stub.bodies) == 1
    assert "created" in outcomes
    # Whoever came second updated the first one's comment if it is newer, and left it otherwise.
    if outcomes[0] != "created":
        assert outcomes == ["outdated", "created"]
    else:
        assert outcomes == ["created", "updated"]
    assert stub.bodies[0].startswith(f"<!-- promptlint-comment id=promptlint run=6.1 head={SHA} -->")


def test_duplicates_of_earlier_races_are_removed(stub, api):
    stub.add_comment(body_of(changes(), RUN))
    stub.add_comment(body_of(changes(), RUN))
    assert write(api) == "unchanged"
    assert len(stub.bodies) == 1


def test_retries_with_growing_pauses(stub):
    pauses: list[float] = []
    stub.refusals += [("GET .*/pulls/2", 500, {}), ("GET .*/pulls/2", 503, {}), ("POST .*", 502, {})]
    assert write(Api(stub.url, "token", sleep=pauses.append)) == "created"
    assert pauses == [1, 2, 1]
    stub.refusals += [("GET .*/pulls/2", 500, {})] * 4
    with pytest.raises(ApiError, match="500 refused"):
        write(Api(stub.url, "token", sleep=pauses.append))
    assert pauses[3:] == [1, 2, 4]


def test_rate_limits_are_waited_for_as_asked(stub):
    pauses: list[float] = []
    api = Api(stub.url, "token", sleep=pauses.append, now=lambda: 1000.0)
    stub.refusals += [
        ("GET .*/pulls/2", 429, {"Retry-After": "7"}),
        ("GET .*/comments", 403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1012"}),
    ]
    assert write(api) == "created"
    assert pauses == [7, 12]
    stub.refusals.append(("GET .*/pulls/2", 403, {"Retry-After": "3600"}))
    with pytest.raises(ApiError, match="403"):
        write(api)
    assert len(pauses) == 2


def test_no_server():
    pauses: list[float] = []
    with pytest.raises(ApiError) as caught:
        Api("http://127.0.0.1:1", "token", sleep=pauses.append).get("/user")
    assert caught.value.status == 0
    assert pauses == [1, 2, 4]
    with pytest.raises(UserError):
        Api("file:///etc", "token")


def test_a_refusal_is_not_retried(stub, api):
    stub.read_only = True
    with pytest.raises(ApiError) as caught:
        write(api)
    assert caught.value.status == 403
    assert stub.seen[-1].startswith("POST")
    assert sum(line.startswith("POST") for line in stub.seen) == 1


def test_the_largest_comment_fits(stub, api):
    diff = changes()
    site = diff.call_sites[0]
    many = replace(
        diff,
        call_sites=tuple(replace(site, id=f"app/{'ü' * 100}{number}.py::answer::s") for number in range(900)),
        new_findings=tuple(finding(path=f"{'ü' * 100}/{number}.py", message="@you " * 200) for number in range(900)),
        headline=None,
    )
    assert write(api, many) == "created"
    assert len(stub.bodies[0].encode()) <= 65_536
    assert "Cut to fit" in stub.bodies[0]
    assert write(api, many) == "unchanged"


@pytest.mark.parametrize("name", ["", "a b", "-->", "x" * 65, "a\n"])
def test_an_id_cannot_end_the_marker(name):
    with pytest.raises(UserError):
        Run(name, 1, 1, SHA)


def test_annotations_stay_within_what_is_shown():
    findings = [
        finding(severity=severity, path=f"{number}.py")
        for number in range(15)
        for severity in ("high", "medium", "low")
    ]
    lines = within_limits(findings).splitlines()
    assert [sum(line.startswith(f"::{level} ") for line in lines) for level in ("error", "warning", "notice")] == [
        10,
        10,
        10,
    ]
    assert lines[-1].endswith("::16 more findings: the step summary and the report list them")
    assert within_limits([]) == ""


def test_a_summary_without_a_base_is_cut_too():
    findings = tuple(finding(path=f"{'ü' * 200}/{number}.py", message="@you " * 50) for number in range(900))
    text = _alone(report(*findings))
    assert len(text.encode()) <= 1_000_000
    assert text.endswith("Cut to fit: the JSON report has all.\n")
    assert text.count("<details>") == text.count("</details>")
    assert "Cut to fit" not in _alone(report(*findings[:3]))


# The workflow_run half: the artifact is a stranger's word.


@pytest.fixture
def finished(stub, tmp_path):
    payload = json.loads(json.dumps(EVENTS["workflow_run"]))
    payload["workflow_run"] |= {
        "event": "pull_request",
        "head_sha": SHA,
        "head_branch": "topic",
        "id": 77,
        "run_number": 5,
        "run_attempt": 1,
    }
    payload["workflow_run"]["head_repository"]["owner"]["login"] = "forker"
    stub.pulls.clear()
    stub.add_pull(8, SHA, owner="forker", branch="topic")
    return Workflow(
        "workflow_run", payload, REPOSITORY, stub.url, "token", 1, 1, tmp_path / "output", tmp_path / "summary"
    )


def delivered(finished) -> str:
    deliver(finished, Asked(Path()))
    lines = finished.output.read_text().splitlines()
    return lines[lines.index(next(line for line in lines if line.startswith("comment<<"))) + 1]


def test_the_report_of_a_fork_is_posted(stub, finished):
    stub.add_artifact("promptlint-report-promptlint", {"report.json": diff_json(changes()).encode()})
    assert delivered(finished) == "created"
    assert stub.bodies == [body_of(from_json(json.loads(diff_json(changes()))), RUN)]
    assert stub.leaked == []
    assert any(line.endswith("/artifacts/1/zip") for line in stub.seen)


def test_the_pull_request_is_asked_from_github(stub, finished):
    stub.add_artifact("promptlint-report-promptlint", {"report.json": diff_json(changes()).encode(), "number": b"1"})
    stub.pulls.clear()
    stub.add_pull(1, SHA, owner="victim", branch="topic")
    assert delivered(finished) == "no-pull-request"
    assert stub.bodies == []


def test_a_fork_that_was_pushed_to_meanwhile(stub, finished):
    stub.add_artifact("promptlint-report-promptlint", {"report.json": diff_json(changes()).encode()})
    stub.add_pull(8, "c" * 40, owner="forker", branch="topic")
    assert delivered(finished) == "no-pull-request"


def test_a_closed_pull_request_is_found_too(stub, finished):
    stub.add_artifact("promptlint-report-promptlint", {"report.json": diff_json(changes()).encode()})
    stub.add_pull(8, SHA, owner="forker", branch="topic", state="closed")
    assert delivered(finished) == "created"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"schema": "promptlint.diff/1", "headline": "@everyone"}']
)
def test_what_is_no_report_is_not_posted(stub, finished, content):
    stub.add_artifact("promptlint-report-promptlint", {"report.json": content})
    assert delivered(finished) == "bad-artifact"
    assert stub.bodies == []


def test_no_artifact_and_no_archive(stub, finished):
    assert delivered(finished) == "nothing-to-say"
    stub.add_artifact("promptlint-report-promptlint", {"other.json": b"{}"})
    finished.output.unlink()
    assert delivered(finished) == "bad-artifact"


def test_the_run_was_no_pull_request(stub, finished):
    finished.payload["workflow_run"]["event"] = "push"
    assert delivered(finished) == "no-pull-request"


def test_the_words_for_every_outcome():
    from promptlint import github

    for outcome in (
        "created",
        "updated",
        "unchanged",
        "outdated",
        "nothing-to-say",
        "no-token",
        "refused",
        "failed",
        "no-pull-request",
        "bad-artifact",
        "off",
    ):
        assert github._told(outcome)


def test_the_head_alone_is_compared_with_where_it_left_the_base(tmp_path):
    """What the base branch did meanwhile is no change of the pull request, also where its head is checked out and not the merge commit."""
    repository = tmp_path / "r"
    repository.mkdir()
    fork = commit(repository)
    git(repository, "checkout", "-q", "-b", "topic")
    (repository / "new.txt").write_text("new")
    head = commit(repository)
    git(repository, "checkout", "-q", "main")
    (repository / "later.txt").write_text("later")
    base = commit(repository)
    git(repository, "checkout", "-q", "topic")
    payload = {"pull_request": {"base": {"sha": base}, "head": {"sha": head}}}
    workflow = Workflow("pull_request", payload, REPOSITORY, "http://localhost", "", 1, 1, None, None)
    assert _base(workflow, repository) == fork
    push = replace(workflow, event="push", payload={"before": base})
    assert _base(push, repository) == base  # a push is what it moved from and to
