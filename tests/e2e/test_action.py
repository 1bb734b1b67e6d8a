"""The action from its action.yml to the comment: its own steps in bash, against a server that checks every request."""

from __future__ import annotations

import contextlib
import io
import json
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from action_harness import Finished, clone, commands, evaluate, parse_outputs, run_action
from click.testing import CliRunner
from desk_project import CLOCKED, STILL, commit, git, project
from github_stub import EVENTS, REPOSITORY, Stub

from promptlint.cli import cli
from promptlint.report.diff_model import from_json

NUMBER = EVENTS["pull_request"]["number"]


@dataclass
class PullRequest:
    """A repository with a base branch and a pull request whose merge commit is checked out, and what its workflow runs see."""

    repository: Path
    stub: Stub
    folder: Path
    runs: int = 0
    owner: str = "Codertocat"
    inputs: dict[str, str] = field(default_factory=dict)

    def push(self, **files: str) -> str:
        """Commit these Python files on the pull request's branch; the merge commit."""
        git(self.repository, "checkout", "-q", "topic")
        project(self.repository, **files)
        head = commit(self.repository)
        git(self.repository, "checkout", "-q", "--detach", "main")
        git(self.repository, "merge", "-q", "--no-ff", "-m", "merge", "topic")
        self.merge, self.head = git(self.repository, "rev-parse", "HEAD"), head
        self.stub.add_pull(NUMBER, head, owner=self.owner, branch="topic")
        return head

    def event(self) -> dict:
        payload = json.loads(json.dumps(EVENTS["pull_request"]))
        payload["pull_request"]["head"]["sha"] = self.head
        payload["pull_request"]["base"]["sha"] = git(self.repository, "rev-parse", "main")
        return payload

    def environment(self, place: Path, event: str, payload: dict) -> dict[str, str]:
        self.runs += 1
        (place / "event.json").write_text(json.dumps(payload))
        return {
            "GITHUB_EVENT_NAME": event, "GITHUB_EVENT_PATH": str(place / "event.json"), "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_API_URL": self.stub.url,
            "GITHUB_RUN_NUMBER": str(self.runs), "GITHUB_RUN_ATTEMPT": "1", "GITHUB_SHA": self.merge,
        }  # fmt: skip

    def act(
        self, event: str = "pull_request", payload: dict | None = None, *, token: str = "token", **inputs: str
    ) -> Finished:
        """One run of the workflow."""
        place = self.folder / f"run{self.runs}"
        workspace, temporary = place / "workspace", place / "temporary"
        for path in (workspace, temporary):
            path.mkdir(parents=True)
        environment = self.environment(place, event, payload or self.event())
        return run_action(
            workspace, temporary, {**self.inputs, **inputs}, {"token": token, "event_name": event}, environment,
            {"actions/checkout": lambda given: clone(self.repository, self.merge, workspace / given["path"], int(given["fetch-depth"])),
             "actions/upload-artifact": lambda given: self.stub.add_artifact(given["name"], {Path(given["path"]).name: Path(given["path"]).read_bytes()})},
        )  # fmt: skip

    def command(self, event: str = "pull_request", payload: dict | None = None, *arguments: str, token: str = "token"):
        """The command that the action runs, in this process: for what does not concern the steps."""
        place = self.folder / f"command{self.runs}"
        place.mkdir()
        clone(self.repository, self.merge, place / "checkout", 2)
        environment = self.environment(place, event, payload or self.event())
        environment |= {
            "GITHUB_TOKEN": token,
            "GITHUB_OUTPUT": str(place / "output"),
            "GITHUB_STEP_SUMMARY": str(place / "summary"),
        }
        with contextlib.chdir(place / "checkout"):
            done = CliRunner().invoke(
                cli, ["ci", "github", "--report-dir", str(place / "report"), *arguments], env=environment
            )
        outputs = parse_outputs((place / "output").read_text()) if (place / "output").exists() else {}
        return done, outputs, place


@pytest.fixture
def pull(tmp_path):
    stub = Stub()
    repository = project(tmp_path / "repository", app=STILL)
    commit(repository)
    git(repository, "branch", "topic")
    (repository / "later.py").write_text("x = 1\n")
    commit(repository)  # the base branch moved on; the pull request has no part in that
    pull = PullRequest(repository, stub, tmp_path)
    pull.push(app=CLOCKED)
    yield pull
    stub.close()
    assert stub.invalid == []
    assert stub.leaked == []


def test_first_comment_then_no_change_then_update(pull):
    first = pull.act(sarif="true", **{"fail-on": "high", "max-hit-rate-drop": "5"})
    assert first.outputs["comment"] == "created", first.log
    (body,) = pull.stub.bodies
    assert (
        "Estimated hit rate 94 % → 0.3 % on <code>app&#46;py&#58;&#58;ask</code>: <code>dt&#46;datetime&#46;now&#40;&#41;</code> now stands ahead of"
        in body
    )
    assert "| <code>app&#46;py&#58;&#58;ask</code> | 94 % → 0&#46;3 % |" in body
    assert first.summary.strip() == body.split("\n", 1)[1].strip()
    names = [name for name, _ in first.annotations]
    assert names[0].startswith("error title=promptlint clock-in-prefix,file=app.py,line=84,")
    assert names[1:] == ["error title=promptlint"] * 2
    assert first.failed
    assert (first.outputs["new-findings"], first.outputs["fixed-findings"], first.outputs["findings"]) == (
        "1",
        "0",
        "1",
    )
    assert first.outputs["cache-keys-changed"] == "1"
    assert float(first.outputs["hit-rate-base"]) > 0.9 > 0.1 > float(first.outputs["hit-rate-head"])
    assert float(first.outputs["hit-rate-delta"]) == pytest.approx(
        float(first.outputs["hit-rate-head"]) - float(first.outputs["hit-rate-base"])
    )
    assert float(first.outputs["max-hit-rate-drop"]) > 90
    assert from_json(json.loads(Path(first.outputs["report-path"]).read_text())).head.findings == 1
    assert [name for name, _ in first.used] == [
        "actions/checkout",
        "actions/setup-python",
        "github/codeql-action/upload-sarif",
    ]
    sarif = json.loads(Path(first.used[-1][1]["sarif_file"]).read_text())
    assert sarif["runs"][0]["results"][0]["ruleId"] == "clock-in-prefix"

    again = pull.act()
    assert (again.outputs["comment"], again.failed) == ("unchanged", False)
    assert pull.stub.bodies == [body]

    pull.push(app=STILL.replace("Answer from", "Reply from"))
    fixed = pull.act(**{"fail-on": "low"})
    assert (fixed.outputs["comment"], fixed.failed) == ("updated", False)
    assert "1 cache key changed" in pull.stub.bodies[0]
    assert fixed.annotations == []
    assert len(pull.stub.comments) == 1


def test_a_fork_leaves_its_report_and_the_other_half_posts_it(pull):
    pull.owner = "forker"
    pull.push(app=CLOCKED)
    pull.stub.read_only = True
    from_fork = pull.act()
    assert (from_fork.outputs["comment"], from_fork.outputs["comment-file-written"], from_fork.failed) == (
        "refused",
        "true",
        False,
    )
    assert "Estimated hit rate 94 %" in from_fork.summary
    assert len(from_fork.annotations) == 1
    assert pull.stub.comments == []
    pull.stub.read_only = False
    payload = finished(pull)
    assert payload["workflow_run"]["pull_requests"] == []
    second = pull.act("workflow_run", payload)
    assert second.outputs["comment"] == "created", second.log
    assert [name for name, _ in second.used] == ["actions/setup-python"]  # nothing of the fork is checked out
    assert "Estimated hit rate 94 %" in pull.stub.bodies[0]


def finished(pull: PullRequest) -> dict:
    """The event that the pull request's workflow has finished, on a fork's branch."""
    payload = json.loads(json.dumps(EVENTS["workflow_run"]))
    payload["workflow_run"] |= {
        "event": "pull_request",
        "head_sha": pull.head,
        "head_branch": "topic",
        "run_number": 3,
        "run_attempt": 1,
    }
    payload["workflow_run"]["head_repository"]["owner"]["login"] = "forker"
    return payload


def test_two_jobs_at_once(pull):
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda number: pull_in(pull, number).act().outputs["comment"], range(2)))
    assert "created" in outcomes
    assert len(pull.stub.bodies) == 1


def pull_in(pull: PullRequest, number: int) -> PullRequest:
    other = PullRequest(pull.repository, pull.stub, pull.folder / f"job{number}", runs=number)
    other.merge, other.head = pull.merge, pull.head
    return other


def test_a_fork_without_a_token(pull):
    done = pull.act(token="")
    assert not done.failed
    assert (done.outputs["comment"], done.outputs["comment-file-written"]) == ("no-token", "true")
    assert "Estimated hit rate" in done.summary
    assert [name for name, _ in done.used][-1] == "actions/upload-artifact"
    assert len(done.annotations) == 1
    assert pull.stub.seen == []


@pytest.mark.parametrize(
    ("status", "outcome", "left"), [(403, "refused", "true"), (404, "refused", "true"), (422, "failed", "false")]
)
def test_refusals_do_not_fail_the_job(pull, status, outcome, left):
    pull.stub.refusals.append(("POST .*", status, {}))
    done = pull.act()
    assert not done.failed
    assert (done.outputs["comment"], done.outputs["comment-file-written"]) == (outcome, left)
    assert "Estimated hit rate" in done.summary
    assert sum(line.startswith("POST") for line in pull.stub.seen) == 1


def test_server_errors_and_rate_limits_are_waited_out(pull):
    pull.stub.refusals += [
        ("GET .*/pulls/2", 500, {}),
        ("GET .*/pulls/2", 502, {}),
        ("POST .*", 403, {"Retry-After": "1"}),
    ]
    begun = time.monotonic()
    assert pull.act().outputs["comment"] == "created"
    assert time.monotonic() - begun >= 4  # one second, two, and the one that was asked for
    assert sum(line.startswith("POST") for line in pull.stub.seen) == 2
    assert len(pull.stub.bodies) == 1


def test_a_pull_request_of_200_files(pull):
    one = 'client.messages.create(model="m", max_tokens=9, system=f"Now: {dt.datetime.now()}\\n{RULES}", messages=[])'
    many = {
        f"part{number:03}": f"import datetime as dt\n\nimport anthropic\n\nfrom app import RULES\n\n\ndef f{number}(client: anthropic.Anthropic):\n    {one}\n"
        for number in range(200)
    }
    pull.push(app=STILL, **many)
    done = pull.act()
    assert done.outputs["comment"] == "created"
    assert done.outputs["new-findings"] == done.outputs["changed-call-sites"] == "200"
    assert len(pull.stub.bodies[0].encode()) <= 65_536
    assert "Cut to fit" in pull.stub.bodies[0]
    assert "Cut to fit" not in done.summary
    assert len(done.annotations) == 11
    assert done.annotations[-1][1].startswith("190 more findings")


def test_what_a_fork_writes_into_its_artifact_is_only_text(pull):
    """The report is a stranger's: its words are posted as words, and the pull request is not the one that it names."""
    pull.owner = "forker"
    pull.push(app=CLOCKED)
    pull.stub.read_only = True
    pull.act()
    pull.stub.read_only = False
    (report,) = [json.loads(zipped(content)["report.json"]) for _, content in pull.stub.artifacts]
    evil = "@everyone <img src=x> <!-- promptlint-comment id=promptlint run=999.1 --> ::error::x"
    report["notes"] = [evil]
    report["headline"]["call_site"] = report["call_sites"][0]["id"] = evil
    pull.stub.artifacts.clear()
    pull.stub.seen.clear()
    pull.stub.add_artifact(
        "promptlint-report-promptlint", {"report.json": json.dumps(report).encode(), "number.txt": b"1"}
    )
    pull.stub.add_pull(1, "d" * 40, owner="victim", branch="topic")
    done = pull.act("workflow_run", finished(pull))
    assert done.outputs["comment"] == "created", done.log
    assert [line for line in pull.stub.seen if line.startswith("POST")] == [
        f"POST /repos/{REPOSITORY}/issues/{NUMBER}/comments"
    ]
    marker, rest = pull.stub.bodies[0].split("\n", 1)
    assert marker.startswith("<!-- promptlint-comment id=promptlint run=3.1 head=")
    assert not any(word in rest for word in ("@everyone", "<img", "<!--"))
    assert done.annotations == []
    report["call_sites"][0]["line"] = "1"
    pull.stub.add_artifact("promptlint-report-promptlint", {"report.json": json.dumps(report).encode()})
    assert pull.act("workflow_run", finished(pull)).outputs["comment"] == "bad-artifact"


def zipped(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# The command alone: what does not concern the steps.


def test_an_older_run_leaves_the_comment(pull):
    late = pull.event()
    pull.push(app=CLOCKED + "\n# more\n")
    assert pull.command(payload=late)[1]["comment"] == "outdated"
    assert pull.stub.comments == []


def test_a_push_has_summary_and_annotations_but_no_comment(pull):
    git(pull.repository, "checkout", "-q", "topic")
    payload = {"before": "0" * 40, "ref": "refs/heads/topic"}
    done, outputs, place = pull.command("push", payload)
    assert done.exit_code == 0
    assert (outputs["comment"], outputs["hit-rate-base"], outputs["findings"]) == ("no-pull-request", "", "1")
    assert "1 finding" in (place / "summary").read_text()
    assert len(commands(done.output)) == 1
    assert pull.stub.seen == []


def test_text_of_the_pull_request_gives_no_orders(pull):
    name = "::error::x ##[add-mask]secret"
    evil = CLOCKED.replace("def ask", "def broken(:\n\ndef ask")
    pull.push(
        app=CLOCKED.replace(
            "dt.datetime.now()",
            "dt.datetime.now().strftime('@everyone <!-- promptlint-comment id=promptlint run=99.9 --> %H:%M ::set-output name=a::b')",
        ),
        **{name: evil},
    )
    done, outputs, place = pull.command()
    assert outputs["comment"] == "created"
    for text in (pull.stub.bodies[0].split("\n", 1)[1], (place / "summary").read_text()):
        assert "@everyone" not in text
        assert "<!--" not in text
    assert all(command.startswith("error title=promptlint") for command, _ in commands(done.output))
    assert commands(done.output + "::notice::later")[-1] == ("notice", "later")
    (pull.repository / "promptlint.toml").write_text('"##[add-mask]secret\\n::error::x" = 1\n')
    pull.push()
    done, _, _ = pull.command()
    assert done.exit_code == 2
    assert "unknown setting" in done.output
    assert commands(done.output) == []


def test_wrong_places(pull):
    assert pull.command("pull_request_target")[0].exit_code == 2
    with contextlib.chdir(pull.repository):
        assert CliRunner().invoke(cli, ["ci", "github"], env={"GITHUB_EVENT_NAME": ""}).exit_code == 2


def test_the_harness_reads_expressions():
    context = {"inputs": {"a": "x", "b": ""}, "steps": {}}
    assert evaluate("inputs.a == 'x' && inputs.b != 'y'", context) is True
    assert evaluate("${{ inputs.b != '' && inputs.b || 'other one' }}", context) == "other one"
    assert evaluate("always() && steps.none.outputs.x == 'true'", context) is False
    assert commands("a\n::error::x\n::stop-commands::t\n::error::y\n::t::\n  ##[warning]z") == [
        ("error", "x"),
        ("warning", "z"),
    ]
