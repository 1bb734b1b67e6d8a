"""The stages give the numbers of one process, whatever is simulated and however the log is cut."""

import json
import random

import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="the stages keep parquet (extra ray)")

from unit.distributed import samples

from promptlint.app import simulate_command
from promptlint.cli.simulate import command
from promptlint.distributed import inputs as inputs_module
from promptlint.distributed import simulate as distributed
from promptlint.distributed.runner import Here, Job
from promptlint.errors import UserError


def given(*options):
    """The options as the command line has them."""
    found = command.make_context("simulate", ["x", *options]).params
    for name in ("traffic", "runner", "work_dir", "workers", "partitions", "output_file", "output_format"):
        found.pop(name)
    return found


def both(path, tmp_path, *options, buckets=5, paths=None):
    """The report and the lines of --per-request, of one process and of the stages, and why they were one stream."""
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    paths = (str(path),) if paths is None else paths
    alone = simulate_command.run((str(path),), {**given(*options), "per_request": one}, None)
    job = Job(tmp_path / "work", Here(), buckets=buckets)
    found, why = distributed.run(paths, {**given(*options), "per_request": other}, job)
    assert other.read_text() == one.read_text()
    assert found.report == alone.report
    assert found.problems == alone.problems
    return found.report, why


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return samples.write(tmp_path_factory.mktemp("log"), samples.rows(400))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--page-size", "16"),
        ("--engine", "vllm"),
        ("--engine", "vllm", "--denominator", "full-blocks", "--no-bounds"),
        ("--engine", "block-lru", "--block-size", "8"),
        ("--engine", "anthropic", "--model", "claude-sonnet-4-5"),
        ("--engine", "openai", "--model", "gpt-4o"),
    ],
)
def test_partitions_add_up_to_the_run_of_one_process(log, tmp_path, options):
    report, why = both(log, tmp_path, *options)
    assert why is None
    assert report.requests == 400
    assert len(report.groups) == 5
    assert len(list((tmp_path / "work").glob("replay-*"))) > 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--capacity-tokens", "3000"), "limited size"),
        (("--schedule", "lpm", "--window", "8"), "scheduler"),
        (("--schedule", "fcfs", "--pace", "arrivals"), "scheduler"),
        (("--replicas", "3", "--router", "cache-aware"), "router"),
        (("--replicas", "2", "--router", "consistent-hashing"), "router"),
        (("--curve",), "curve"),
        (("--sample", "0.5"), "sample"),
        (("--warm-up", "50"), "warm-up"),
    ],
)
def test_where_partitions_cannot_stand_alone_the_requests_stay_one_stream(log, tmp_path, options, reason):
    _, why = both(log, tmp_path, *options)
    assert reason in why
    assert not list((tmp_path / "work").glob("replay-*"))


def blocks(folder, count=300, seed=4):
    draw = random.Random(seed)
    chains = [[draw.randrange(10**6) for _ in range(8)] for _ in range(20)]
    lines = []
    for number in range(count):
        ids = [*draw.choice(chains)[: draw.randrange(1, 8)], number + 10**7]
        row = {
            "timestamp": number,
            "input_length": 512 * len(ids) - draw.randrange(512),
            "output_length": 9,
            "hash_ids": ids,
        }
        lines.append(json.dumps(row | ({"namespace": f"n{number % 4}", "model": f"m{number % 3}"} if number % 2 else {})))  # fmt: skip
    folder.mkdir()
    (folder / "trace.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "trace.jsonl"


@pytest.mark.parametrize("options", [(), ("--engine", "sglang"), ("--engine", "vllm"), ("--engine", "sglang", "--page-size", "64")])  # fmt: skip
def test_block_hashes_are_shared_across_models_but_not_across_namespaces(tmp_path, options):
    report, why = both(blocks(tmp_path / "log"), tmp_path, *options)
    assert why is None
    assert report.engine == (options[1] if options else "block-lru")
    assert report.cached_tokens > 0


def test_token_ids_and_refused_ones_come_through(tmp_path):
    rows = [
        {"tokens": [1, 2, 3], "output_tokens": [4, 5], "arrival": 1.0, "key": "a"},
        {"tokens": [1, 2, 3, 4, 6], "output_tokens": [], "arrival": 2.0, "key": "a", "id": 9},
        {"tokens": [1, 2, 3], "key": ""},
        {"tokens": [1, 2, 3]},
        {"tokens": [1 << 40], "key": "b"},
        {"tokens": [], "key": "b"},
        {"prompt": "one two three four", "output": "five"},
        {"prompt": "one two three four", "output_length": 4},
        {"prompt": "one two three five", "output_tokens": [1 << 33]},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report, why = both(log, tmp_path)
    assert why is None
    assert report.requests == 6
    assert len(report.problems) == 3


def test_tokens_beside_block_hashes_are_one_stream_under_block_lru(tmp_path):
    log = blocks(tmp_path / "log")
    log.write_text(log.read_text() + '{"prompt": "some text"}\n')
    _, why = both(log, tmp_path, "--engine", "block-lru", "--block-size", "512")
    assert "one log" in why


def test_a_large_file_is_cut_into_ranges_of_lines(log, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs_module.inputs, "__kwdefaults__", {"size": 20_000})
    parts = inputs_module.inputs([str(log)])
    first = [one for one in parts if one.name.endswith("0.jsonl")]
    assert len(first) > 3
    data = (log / "0.jsonl").read_bytes()
    assert b"".join(data[one.start : one.end] for one in first) == data
    assert [one.line for one in first] == [data[: one.start].count(b"\n") + 1 for one in first]
    both(log, tmp_path)
    both(log, tmp_path, "--capacity-tokens", "5000")


@pytest.mark.parametrize("size", [1, 7, 30, 64, 1000])
def test_ranges_of_any_size_hold_every_line_once(tmp_path, size):
    log = tmp_path / "log.jsonl"
    log.write_text('\ufeff{"tokens": [1, 2]}\r\n\n{"tokens": [1, 2, 3]}\n{"broken\n' + '{"tokens": [1, 2, 4]}')
    parts = inputs_module.inputs([str(log)], size=size)
    data = log.read_bytes()
    assert b"".join(data[one.start : one.end] for one in parts) == data
    assert all(data[one.start - 1 : one.start] in {b"", b"\n"} for one in parts)


def test_documents_and_archives_stay_whole(tmp_path):
    import gzip

    (tmp_path / "a.json").write_text('[\n{"tokens": [1]},\n{"tokens": [2]}\n]')
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"tokens": [1]}\n' * 50))
    assert len(inputs_module.inputs([str(tmp_path)], size=8)) == 2


def test_an_object_store_is_read_by_its_uri(log, tmp_path):
    (log / ".hidden").write_text("{}")
    options = given()
    alone = simulate_command.run((str(log),), given(), None)
    found, _ = distributed.run((log.as_uri(),), options, Job(tmp_path / "work", Here()))
    assert found.report.cached_tokens == alone.report.cached_tokens
    assert found.report.requests == 400
    assert found.problems[0].file == f"{log.as_uri()}/0.jsonl"
    with pytest.raises(UserError, match="no such file"):
        distributed.run((log.as_uri() + "/absent",), options, Job(tmp_path / "work", Here()))


class Dying(Here):
    """A runner whose machine stops after some tasks, as a power cut would stop it."""

    def __init__(self, tasks):
        self.left = tasks

    def map(self, worker, options, tasks):
        for one in super().map(worker, options, tasks):
            yield one
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def test_an_interrupted_run_is_picked_up_and_nothing_is_done_twice(log, tmp_path, monkeypatch):
    work = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        distributed.run((str(log),), given(), Job(work, Dying(2)))
    assert len(list(work.iterdir())) == 2
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*.parquet")}
    with pytest.raises(KeyboardInterrupt):
        distributed.run((str(log),), given(), Job(work, Dying(5)))
    both(log, tmp_path, buckets=16)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    from promptlint.distributed.tokens import Tokenise

    monkeypatch.setattr(Tokenise, "_write", None)  # another engine needs no tokens again
    both(log, tmp_path, "--page-size", "4", buckets=16)


def test_what_a_result_depends_on_is_in_its_name(log, tmp_path):
    both(log, tmp_path)
    count = len(list((tmp_path / "work").glob("piece-*")))
    both(log, tmp_path, "--render", "chatml")
    assert len(list((tmp_path / "work").glob("piece-*"))) == 2 * count
    changed = tmp_path / "changed.jsonl"
    changed.write_text('{"tokens": [1, 2]}\n')
    both(changed, tmp_path)
    changed.write_text('{"tokens": [1, 3]}\n{"tokens": [1, 3, 4]}\n')
    report, _ = both(changed, tmp_path)
    assert (report.requests, report.cached_tokens) == (2, 2)


def test_a_worker_that_fails_leaves_nothing_half_written(log, tmp_path, monkeypatch):
    from promptlint.distributed import pieces

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pieces.Writer, "_flush", full)
    with pytest.raises(UserError, match="No space left"):
        distributed.run((str(log),), given(), Job(tmp_path / "work", Here()))
    assert not list((tmp_path / "work").iterdir())


def test_the_work_folder_is_private(log, tmp_path):
    both(log, tmp_path)
    for path in (tmp_path / "work").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_strict_ends_with_the_first_problem_in_file_order(log, tmp_path):
    with pytest.raises(UserError, match=r"0\.jsonl:3: not valid JSON"):
        distributed.run((str(log),), given("--strict"), Job(tmp_path / "work", Here()))


def test_nothing_to_replay_says_why(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"broken": \n')
    with pytest.raises(UserError, match="no request to replay; the first of 1 problems"):
        distributed.run((str(log),), given(), Job(tmp_path / "work", Here()))


def test_the_command_says_what_is_missing_or_cannot_be(log, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    result = CliRunner().invoke(command, [str(log), "--runner", "ray"], standalone_mode=False)
    assert isinstance(result.exception, UserError)
    assert "install promptlint-cache[ray]" in str(result.exception)
    with pytest.raises(UserError, match="standard input has no parts"):
        inputs_module.inputs(["-"])
