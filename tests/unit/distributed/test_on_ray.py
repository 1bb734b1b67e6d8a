"""The real Ray: the numbers of one process, also when a worker is killed at work. Runs with `-m ray`."""

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

from click.testing import CliRunner
from unit.distributed import samples
from unit.distributed.test_simulate import given

from promptlint.app import simulate_command
from promptlint.cli import diagnose as diagnose_command
from promptlint.cli import traffic as traffic_command
from promptlint.distributed import diagnose as distributed_diagnose
from promptlint.distributed import simulate as distributed
from promptlint.distributed.on_ray import OnRay
from promptlint.distributed.runner import Job
from promptlint.distributed.tokens import Tokenise
from promptlint.errors import UserError

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # what Ray warns of is Ray's business


class DiesOnce:
    """Kills its own process, as the kernel does when memory is out, at one input, once."""

    def _write(self, source, folder):
        mark = self._work / "killed"
        if source.name.endswith("1.jsonl") and not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._write(source, folder)


class Mortal(DiesOnce, Tokenise):
    """While it tokenises."""


class MortalReader(DiesOnce, distributed_diagnose.Read):
    """While it reads."""


class Refusing:
    """A worker that has something to say to the user."""

    def __init__(self, options):
        self.options = options

    def __call__(self, task):
        raise UserError(f"{self.options['name']}: {task['what']}")


@pytest.fixture(scope="module")
def runner():
    tests = Path(__file__).parents[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tests), str(tests.parent)]))  # workers import this module
        with OnRay(2) as found:
            yield found


def test_a_killed_worker_loses_nothing_and_the_numbers_are_those_of_one_process(tmp_path, runner, monkeypatch):
    log = samples.write(tmp_path / "log", samples.rows(2000), files=4)
    monkeypatch.setattr(distributed, "Tokenise", Mortal)
    for options in ((), ("--engine", "vllm"), ("--capacity-tokens", "5000")):
        one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
        alone = simulate_command.run((str(log),), {**given(*options), "per_request": one}, None)
        found, _ = distributed.run(
            (str(log),), {**given(*options), "per_request": other}, Job(tmp_path / "work", runner, buckets=4)
        )
        assert found.report == alone.report
        assert other.read_text() == one.read_text()
    assert (tmp_path / "work" / "killed").exists()
    assert not [path for path in (tmp_path / "work").iterdir() if path.name.endswith(".parquet")]


def test_an_error_of_the_user_arrives_as_one(runner):
    with pytest.raises(UserError, match="log: unreadable"):
        list(runner.map(Refusing, {"name": "log"}, [{"what": "unreadable"}]))
    assert list(runner.map(Refusing, {}, [])) == []


def test_the_command_counts_the_same(tmp_path, runner):
    log = samples.write(tmp_path / "log", samples.rows(200))
    arguments = ["stats", str(log), "--output-format", "json"]
    alone = CliRunner().invoke(traffic_command.command, arguments, standalone_mode=False)
    found = CliRunner().invoke(traffic_command.command, [*arguments, "--runner", "ray"], standalone_mode=False)
    assert json.loads(found.stdout) == json.loads(alone.stdout)
    assert "3 of 3 inputs counted" in found.stderr


def test_a_diagnosis_is_that_of_one_process_also_when_a_reader_is_killed(tmp_path, runner, monkeypatch):
    log = samples.write(tmp_path / "log", samples.rows(400), files=4)
    arguments = [str(log), "--output-format", "json"]
    alone = CliRunner().invoke(diagnose_command.command, arguments, standalone_mode=False)
    monkeypatch.setattr(distributed_diagnose, "Read", MortalReader)
    arguments += ["--runner", "ray", "--work-dir", str(tmp_path / "work")]
    found = CliRunner().invoke(diagnose_command.command, arguments, standalone_mode=False)
    assert (tmp_path / "work" / "killed").exists()
    assert json.loads(found.stdout) == json.loads(alone.stdout)
    assert "4 of 4 inputs read" in found.stderr
