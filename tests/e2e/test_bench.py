"""`promptlint bench` against servers that run, stumble, hang, lie and die."""

import asyncio
import json
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
from stand_in_server import MODEL, Behaviour, StandIn

from promptlint.app.schemas import PUBLISHED
from promptlint.benching.client import Client, Limits, Server
from promptlint.benching.servers import Unusable, read_facts
from promptlint.cli import cli
from promptlint.recording.child._promptlint_recorder import disguise
from promptlint.report.bench import to_text

_SCHEMA = jsonschema.Draft202012Validator(PUBLISHED["bench"]())
QUICK = ("--requests", "24", "--output-tokens", "4", "--repetitions", "3", "--warm-up", "2", "--timeout", "20")


def bench(capsys, *args, status=0):
    """The command in this process: result document, and what went to stderr."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*map(str, ("bench", *args)), "--output-format", "json"])
    out = capsys.readouterr()
    assert ended.value.code == status, out.err + out.out
    data = json.loads(out.out)
    _SCHEMA.validate(data)
    return data, out.err


def text(capsys, *args, status=0):
    with pytest.raises(SystemExit) as ended:
        cli.main(list(map(str, ("bench", *args))))
    out = capsys.readouterr()
    assert ended.value.code == status, out.err + out.out
    return out.out


def ab(a, b):
    return ("--target", f"A={a.url}", "--target", f"B={b.url}")


def test_two_engines_side_by_side(capsys, tmp_path):
    """Every request reaches both in the same order with the same bytes, and each finds what our cache models expect."""
    rows = tmp_path / "rows.jsonl"
    with StandIn(Behaviour("vllm")) as a, StandIn(Behaviour("sglang", unit=1)) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 1, "--per-request", rows)
    assert data["status"] == "complete"
    assert [target["engine"] for target in data["targets"]] == ["vllm", "sglang"]
    assert a.requests == b.requests
    assert len(a.requests) == 2 + 3 * 24
    body = a.requests[-1]
    assert (body["temperature"], body["top_p"], body["stream"], body["ignore_eos"], body["max_tokens"]) == (
        0,
        1,
        True,
        True,
        4,
    )
    cell = data["cells"][0]
    for row, server in zip(cell["targets"], (a, b), strict=True):
        assert row["expected"]["requests_that_differ"] == 0
        assert row["expected"]["hit_rate"] == row["expected"]["observed_hit_rate"] > 0.5
        assert sum(one["cached_tokens"] for one in row["repetitions"]) == sum(server.cached[2:])
        assert [one["server"]["cached_tokens"] for one in row["repetitions"]] == [
            one["cached_tokens"] for one in row["repetitions"]
        ]
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(written) == 2 * 3 * 24
    line = jsonschema.Draft202012Validator(PUBLISHED["bench-request"]())
    for row in written:
        line.validate(row)
    assert all(row["cached_tokens"] == row["expected_cached_tokens"] for row in written)
    assert [row["target"] for row in written[::24]] == ["A", "B", "A", "B", "A", "B"]


def test_each_repetition_has_tokens_of_its_own_and_the_same_sharing(capsys):
    with StandIn(Behaviour(can_flush=False)) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--concurrency", 1)
    runs = [[tuple(body["prompt"]) for body in a.requests[2 + 24 * k : 26 + 24 * k]] for k in range(3)]
    assert len({prompt[:50] for run in runs for prompt in run}) == 3
    assert [one["cached_tokens"] for one in data["cells"][0]["targets"][0]["repetitions"]] == [sum(a.cached[2:26])] * 3
    assert a.flushes == 0


def test_a_known_delay_is_found(capsys):
    with StandIn(Behaviour(first=0.005)) as a, StandIn(Behaviour(first=0.085)) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 8, "--repetitions", 5, "--level", 0.999)
    row = next(row for row in data["cells"][0]["comparisons"][0]["figures"] if row["figure"] == "ttft_p50_ms")
    assert row["low"] <= 80 <= row["high"]
    assert row["p"] < 0.02


def test_one_server_against_itself_is_not_called_different(capsys):
    with StandIn(Behaviour(first=0.004, between=0.001)) as a:
        level = ("--level", 0.9999)  # one false alarm in 10,000 runs of this test
        out = text(capsys, "--target", a.url, "--target", a.url, *QUICK, "--concurrency", 2, *level)
    assert "not shown to differ" in out
    assert "  different" not in out


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("status:500", "status", "planted refusal"),
        ("close", "dropped", "before any answer"),
        ("cut", "dropped", "in the middle"),
        ("hang", "timeout", "no answer in 3 s"),
        ("hang-midway", "timeout", "in the middle of the answer"),
        ("not-http", "protocol", "not HTTP"),
        ("garbage", "protocol", "no JSON object"),
        ("no-done", "truncated", "[DONE]"),
        ("no-finish", "truncated", "finish_reason"),
        ("error-event", "status", "planted"),
        ("silent", "truncated", "no token"),
    ],
)
def test_a_failing_request_is_counted_and_named(capsys, fault, kind, words):
    """One request of 24 fails: the run goes on, the repetition is left out of the comparison, and the exit status says so."""
    with StandIn() as a, StandIn(Behaviour(faults={10: fault}, keep_alive=False)) as b:
        patience = ("--timeout", 3) if fault.startswith("hang") else ()
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 4, *patience, status=1)
    assert data["status"] == "unfair"
    first = data["cells"][0]["targets"][1]["repetitions"][0]
    assert first["failed"] == {kind: 1}
    assert words in first["first_failure"]
    assert first["answered"] == 23
    assert {row["pairs"] for row in data["cells"][0]["comparisons"][0]["figures"]} == {2}


def test_a_kept_connection_that_closes_is_tried_once_more_and_said(capsys):
    with StandIn(Behaviour(faults={10: "close"})) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--concurrency", 1)
    assert data["status"] == "complete"
    assert data["cells"][0]["targets"][0]["repetitions"][0]["resent"] == 1
    assert any("sent once more" in one for one in data["warnings"])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong-model", "answered as model another/model"),
        ("wrong-usage", "prompt tokens"),
        ("all-cached", "nothing sent before shares more"),
        ("short", "output tokens where 4 were asked for"),
    ],
)
def test_a_lie_is_named_and_not_compared(capsys, fault, words):
    with StandIn() as a, StandIn(Behaviour(faults=dict.fromkeys(range(3, 200), fault))) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 1, status=1)
    assert data["status"] == "unfair"
    assert any(words in warning for warning in data["warnings"]), data["warnings"]
    assert data["cells"][0]["comparisons"][0]["figures"] == []


def test_a_dead_target_is_refused_at_once(capsys):
    with StandIn() as a:
        data, err = bench(capsys, "--target", a.url, "--target", "http://127.0.0.1:9", *QUICK, status=2)
    assert data["status"] == "unusable"
    assert (
        "error: target B (http://127.0.0.1:9): no connection: connection refused; nothing listens there: start" in err
    )
    assert "connection refused" in data["unusable"]["B"]
    assert not a.requests


def test_a_server_that_dies_midway(capsys):
    started = time.monotonic()
    with StandIn() as a, StandIn(Behaviour(dies_after=40)) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 4, status=1)
    assert "given up in repetition 2" in data["lost"]["B"]
    assert "connection refused" in data["lost"]["B"] or "closed the connection" in data["lost"]["B"]
    assert len(data["cells"][0]["targets"][0]["repetitions"]) == 3  # the living one is measured on
    assert {row["pairs"] for row in data["cells"][0]["comparisons"][0]["figures"]} == {1}
    assert time.monotonic() - started < 20


def test_a_server_that_hangs_from_the_start(capsys):
    with StandIn() as a, StandIn(Behaviour(faults={"*": "hang"})) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 4, "--timeout", 1.5, status=2)
    assert "no answer in 1.5 s" in data["unusable"]["B"]


def test_http_and_https_are_told_apart(capsys):
    with StandIn() as a:
        wrong = a.url.replace("http:", "https:")
        data, _ = bench(capsys, "--target", wrong, *QUICK, "--connect-timeout", 1, status=2)
    assert data["unusable"]["A"].endswith("does it speak plain http?")

    async def tls(reader, writer):  # what a server says that waits for another beginning
        writer.write(b"\x15\x03\x01\x00\x02\x02F")
        writer.close()

    async def main():
        async with await asyncio.start_server(tls, "127.0.0.1", 0) as server:
            client = Client(Server.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), Limits())
            with pytest.raises(Unusable, match="does it speak https"):
                await read_facts(client, None, may_flush=False)

    asyncio.run(main())


def test_a_server_that_says_nothing_of_itself_is_not_waited_for(capsys, monkeypatch):
    monkeypatch.setattr("promptlint.benching.servers._ASKING", Limits(connect=2, idle=0.3, total=1))
    with StandIn(Behaviour(hang_on_models=True)) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, status=2)
    assert data["unusable"]["A"] == "no answer in 0.3 s"


def test_what_a_server_has_to_look_up_first_is_waited_for(capsys, monkeypatch):
    """vLLM looks at compilers, drivers and packages when it is first asked for /server_info."""

    class Slow(StandIn):
        async def _about(self, writer, path):
            if path == "/server_info":
                await asyncio.sleep(1)
            await super()._about(writer, path)

    monkeypatch.setattr("promptlint.benching.servers._ASKING", Limits(connect=2, idle=0.3, total=1))
    with Slow() as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1)
    assert data["targets"][0]["facts"]["dtype"] == "bfloat16"


def test_a_parent_that_is_no_name_is_passed_over(capsys):
    with StandIn(Behaviour(listed={"data": [{"id": MODEL, "owned_by": "vllm", "parent": ["x"]}]})) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1)
    assert data["status"] == "complete"


def test_a_seed_of_an_earlier_run_on_a_cache_that_nothing_empties(capsys):
    """It finds its own prompts again: that is said before, and no lie of the server."""
    with StandIn(Behaviour(can_flush=False)) as a:
        for _ in range(2):
            data, _ = bench(capsys, "--target", a.url, *QUICK, "--seed", 7, "--concurrency", 1)
    assert data["status"] == "complete"
    assert any("may know the prompts: --seed 7" in one for one in data["warnings"])


def test_a_cache_that_cannot_be_emptied_is_named(capsys):
    with StandIn() as a, StandIn(Behaviour(can_flush=False)) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 1, "--repetitions", 1)
        assert any(
            one.startswith("B cannot empty its cache") and "VLLM_SERVER_DEV_MODE=1" in one for one in data["warnings"]
        )
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 1, "--repetitions", 1, "--no-flush")
    assert not any("cannot empty its cache" in one for one in data["warnings"])  # as the user wants it


@pytest.mark.parametrize("listed", [{}, [], {"data": 3}, {"data": [{"id": 4}]}, {"data": []}, "x"])
def test_a_server_that_lists_no_models(capsys, listed):
    with StandIn(Behaviour(listed=listed)) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, status=2)
    assert "no list of models" in data["unusable"]["A"]


def test_a_model_has_to_be_named_where_there_are_several(capsys):
    with StandIn(Behaviour(listed={"data": [{"id": "one"}, {"id": "two"}]})) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, status=2)
        assert "choose one with --model: one, two" in data["unusable"]["A"]
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--model", "three", status=2)
        assert "does not serve three" in data["unusable"]["A"]
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--model", "two", "--repetitions", 1)
        assert a.requests[-1]["model"] == "two"


def test_a_result_that_cannot_be_written_is_said_before_the_measurement(capsys, tmp_path):
    with StandIn() as a:
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", "--target", a.url, "--save", str(tmp_path / "no" / "folder")])
        assert ended.value.code == 2
        assert "cannot be written" in capsys.readouterr().err
        assert not a.requests


def test_outputs_are_looked_at_before_and_lost_one_by_one(capsys, tmp_path):
    """A wrong argument leaves no empty file, one file is not written twice, and a full disk costs what was to stand on it, no more."""
    result = tmp_path / "run.json"
    for args in (("--target", "ftp://x"), ("-o", result)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", "--target", "x:1", "--save", str(result), *map(str, args)])
        assert ended.value.code == 2
        assert not result.exists()
    assert "named for two outputs" in capsys.readouterr().err
    with StandIn() as a:
        out, err = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1, "--save", "/dev/full", status=2)
    assert out["status"] == "complete"
    assert "/dev/full: cannot be written" in err


def test_a_server_that_begins_to_hang_is_given_up(capsys):
    started = time.monotonic()
    with StandIn() as a, StandIn(Behaviour(faults=dict.fromkeys(range(12, 500), "hang"))) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--rate", 40, "--timeout", 1.5, status=1)
    assert "no answer in 1.5 s" in data["lost"]["B"]
    assert time.monotonic() - started < 20


def test_an_endless_stream_ends(capsys):
    with StandIn(Behaviour(faults=dict.fromkeys(range(3, 500), "endless"), between=0.05)) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--timeout", "0.2", "--concurrency", 4, status=1)
    assert "not complete after 2 s" in data["lost"]["A"]


def test_a_slow_stream_is_slow_and_no_failure(capsys):
    with StandIn() as a, StandIn(Behaviour(faults={"*": "slow:0.02"})) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 8)
    row = next(row for row in data["cells"][0]["comparisons"][0]["figures"] if row["figure"] == "itl_p50_ms")
    assert row["difference"] > 15
    assert row["p"] < 0.02


@pytest.mark.parametrize("fault", ["", "hang"])
def test_an_interrupt_writes_what_was_measured(tmp_path, fault):
    """In the third repetition; also while the server hangs and nothing moves."""
    result = tmp_path / "result.json"
    hanging = dict.fromkeys(range(2 + 2 * 24 + 5, 9999), fault)
    with StandIn(Behaviour(first=0.05, faults=hanging)) as a:
        options = (*QUICK, "--repetitions", "50", "--concurrency", "4", "--save", str(result), "--timeout", "60")
        command = [sys.executable, "-m", "promptlint", "bench", "--target", a.url, *options]
        # What a shell starts in the background ignores SIGINT, and so would its children.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        signal.signal(signal.SIGINT, before)
        for line in child.stderr:
            if line.startswith("repetition 3"):
                break
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    data = json.loads(result.read_text())
    assert data["status"] == "interrupted"
    assert sum(one["answered"] == 24 for one in data["cells"][0]["targets"][0]["repetitions"]) >= 2
    assert "stopped by you" in out
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "another/model"}, "models differ"),
        ({"dtype": "float16"}, "number formats of the weights differ"),
        ({"quantization": "fp8"}, "quantisations differ"),
        ({"context": 800}, "takes 800"),
    ],
)
def test_unlike_servers_are_refused(capsys, changes, words):
    with StandIn() as a, StandIn(Behaviour("sglang", unit=1, **changes)) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, status=2)
        assert data["status"] == "refused"
        assert any(words in one for one in data["refused"])
        assert not a.requests
        if "context" not in changes:
            data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 8, "--repetitions", 1, "--allow-different")
            assert any(words in one for one in data["refused"])
            assert data["status"] == "complete"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sampling": "auto"}, "sampling defaults differ"),
        ({"context": 16_000}, "context windows differ"),
        ({"reports_cached": False}, "reports no cached tokens"),
    ],
)
def test_lesser_differences_are_warned_of(capsys, changes, words):
    with StandIn() as a, StandIn(Behaviour("sglang", unit=1, **changes)) as b:
        data, _ = bench(capsys, *ab(a, b), *QUICK, "--concurrency", 8, "--repetitions", 1)
    assert any(words in one for one in data["warnings"]), data["warnings"]


def test_a_workload_without_overlap_is_named(capsys, tmp_path):
    workload = tmp_path / "unique.yaml"
    workload.write_text(
        "model: Llama-3.1-8B\ngpu: H100\noutput: 4\nprompt:\n  - {block: question, tokens: 300, varies: request}\n"
    )
    with StandIn() as a:
        data, _ = bench(capsys, "--target", a.url, "--workload", workload, *QUICK)
    assert any("no prefix overlap to show" in one for one in data["warnings"])


def test_variants_and_structured_output(capsys):
    """The lesson's comparison: a tree, one branch, and blocks in another order each time; each also with a schema."""
    with StandIn() as a:
        options = ("--variant", "as-is", "--variant", "one-branch", "--variant", "shuffled", "--structured", "both")
        data, _ = bench(
            capsys, "--target", a.url, *QUICK, "--requests", 64, "--concurrency", 1, "--repetitions", 1, *options
        )
    rates = {
        (cell["variant"], cell["structured"]): cell["targets"][0]["figures"]["hit_rate"]["mean"]
        for cell in data["cells"]
    }
    assert len(rates) == 6
    assert rates["one-branch", False] > rates["as-is", False] > rates["shuffled", False]
    assert any("seems to pass over the schema" in one for one in data["warnings"])  # this server answers "w w w"
    with_schema = [body for body in a.requests if "response_format" in body]
    assert len(with_schema) == 2 + 3 * 64
    assert not any("ignore_eos" in body for body in with_schema)


def test_a_rate_sweep_gives_goodput_and_gpus(capsys):
    with StandIn(Behaviour(first=0.01)) as a:
        options = (
            "--rate-sweep",
            "20,40,80",
            "--slo",
            "ttft_p50=5000",
            "--load",
            "300",
            "--gpus",
            "2",
            "--arrivals",
            "constant",
        )
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1, *options)
        row = data["goodput"][0]
        assert (row["kept"], row["broken"], row["at_least"], row["gpus"]) == (80, None, True, 8)
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1, *options, "--slo", "ttft_p50=1")
    row = data["goodput"][0]
    assert (row["kept"], row["broken"], row["gpus"]) == (None, 20, None)
    assert data["targets"][0]["requests_per_second"] is None  # a fixed rate says nothing of what a server can do


def test_recorded_text_is_sent_as_it_is(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [
        {
            "timestamp": 1000 * k,
            "session_id": "s",
            "messages": [
                {"role": "system", "content": "Be brief. " * 40},
                {"role": "user", "content": f"Question {k}"},
            ],
            "output_length": 3,
        }
        for k in range(6)
    ]
    spoiled = [*rows[:2], {"token_ids": [-1]}, {"usage": {"prompt_tokens": 3}}, *rows[2:]]  # two that are no requests
    log.write_text("".join(json.dumps(row) + "\n" for row in spoiled))
    with StandIn() as a:
        data, _ = bench(
            capsys, "--target", a.url, "--traffic", log, "--concurrency", 1, "--repetitions", 2, "--warm-up", 1
        )
        assert [body["messages"] for body in a.requests[1:7]] == [row["messages"] for row in rows]
        assert "Be brief" not in str(a.requests[0])  # the warm-up brings nothing of it into the cache
        assert data["workload"]["sent_as"] == "text"
        assert any(
            "2 records of the traffic could not be used" in one and "log.jsonl:3" in one for one in data["warnings"]
        )
        a.requests.clear()
        options = ("--send", "tokens", "--arrivals", "recorded", "--speed", "100")
        data, _ = bench(capsys, "--target", a.url, "--traffic", log, "--repetitions", 2, "--warm-up", 1, *options)
    assert all("prompt" in body for body in a.requests)
    assert data["cells"][0]["load"] == "recorded arrivals, 100 times as fast"
    assert data["cells"][0]["targets"][0]["figures"]["hit_rate"]["mean"] > 0.6


def test_answers_are_as_long_as_the_recorded_ones(capsys, tmp_path):
    """By their own length, by the usage that was reported, or else by the length that the help names."""
    log = tmp_path / "log.jsonl"
    rows = [{"output_length": 7}, {"usage": {"gen_ai.usage.output_tokens": 5}}, {}]
    log.write_text("".join(json.dumps({"token_ids": [1, 2, 3], **row}) + "\n" for row in rows))
    with StandIn() as a:
        options = ("--target", a.url, "--traffic", log, "--concurrency", 1, "--repetitions", 1, "--warm-up", 1)
        bench(capsys, *options)
        assert [body["max_tokens"] for body in a.requests[1:]] == [7, 5, 64]
        bench(capsys, *options, "--output-tokens", 3)
        assert {body["max_tokens"] for body in a.requests[5:]} == {3}


def test_text_in_disguise_is_as_long_as_what_it_stands_for(capsys, tmp_path):
    """Its words would be other, longer ones to a model's tokenizer: random tokens go in their place, about as many as were recorded."""
    log = tmp_path / "log.jsonl"
    body = [
        {
            "messages": [
                {"role": "system", "content": "Answer from the manual only. " * 40},
                {"role": "user", "content": f"Question {k} please"},
            ]
        }
        for k in range(6)
    ]
    rows = [disguise.row(row | {"timestamp": 1, "output_length": 3}, b"k" * 32) for row in body]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with StandIn() as a:
        options = ("--target", a.url, "--traffic", log, "--concurrency", 1, "--repetitions", 1, "--warm-up", 1)
        data, _ = bench(capsys, *options)
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", *map(str, options), "--send", "text"])
    assert ended.value.code == 2
    assert "--keep-text" in capsys.readouterr().err
    assert data["workload"]["sent_as"] == "token ids"
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps(row | {"output_length": 3}) + "\n" for row in body))
    with StandIn() as a:
        other, _ = bench(capsys, "--target", a.url, "--traffic", plain, "--send", "tokens", *options[4:])
    assert data["workload"]["prompt_tokens"] == pytest.approx(other["workload"]["prompt_tokens"], rel=0.15)
    assert data["cells"][0]["targets"][0]["figures"]["hit_rate"]["mean"] > 0.6


def test_anonymised_traffic_keeps_its_sharing(capsys, tmp_path):
    """Text, its hashes, and random tokens made of the hashes: the server finds the same cached tokens."""
    log, hashed = tmp_path / "log.jsonl", tmp_path / "hashed.jsonl"
    rows = [
        {"prompt": f"{'shared words ' * 60}{'branch ' * (20 + 20 * (k % 3))}{k}", "output_length": 4} for k in range(12)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit):
        cli.main(["traffic", "anonymize", str(log), "--page", "16", "-o", str(hashed)])
    capsys.readouterr()
    found = {}
    for name, path in (("text", log), ("hashes", hashed)):
        with StandIn() as a:
            data, _ = bench(
                capsys,
                "--target",
                a.url,
                "--traffic",
                path,
                "--send",
                "tokens",
                "--concurrency",
                1,
                "--repetitions",
                1,
                "--warm-up",
                1,
            )
            found[name] = a.cached[1:]
            assert data["cells"][0]["targets"][0]["expected"]["requests_that_differ"] == 0
    assert found["text"] == found["hashes"]
    assert sum(found["hashes"]) > 0


def test_the_key_is_sent_and_never_written(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_KEY", "sk-secret-words")
    with StandIn(Behaviour(key="sk-secret-words")) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, status=2)
        assert "--api-key-env" in data["unusable"]["A"]
        data, err = bench(capsys, "--target", a.url, *QUICK, "--api-key-env", "BENCH_KEY")
    assert "sk-secret" not in json.dumps(data) + err


@pytest.mark.parametrize(
    ("key", "words"), [("", "or it is empty"), ("a\nb", "no key has"), ("schl\u00fcssel", "no key has")]
)
def test_what_is_no_key(capsys, monkeypatch, key, words):
    monkeypatch.setenv("BENCH_KEY", key)
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--target", "x:1", "--api-key-env", "BENCH_KEY"])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_launch_commands(capsys):
    out = text(capsys, "--print-launch", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "RTX 5090")
    assert "--disable-cuda-graph" in out
    assert "--enable-prompt-tokens-details" in out
    assert "--enable-cache-report" in out
    assert "VLLM_SERVER_DEV_MODE=1" in out
    assert "--disable-cuda-graph" not in text(capsys, "--print-launch", "--model", "m", "--gpu", "H100")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "--target"),
        (("--target", "ftp://x"), "http://localhost:8000"),
        (("--target", "http://u:p@x"), "--api-key-env"),
        (("--target", "x:1", "--target", "A=x:2"), "two are called A"),
        (("--target", "x:1", "--rate", "1", "--concurrency", "2"), "give one of them"),
        (("--target", "x:1", "--slo", "ttft_p99=1"), "--rate-sweep"),
        (("--target", "x:1", "--rate", "1", "--slo", "ttft=1"), "FIGURE_SPREAD"),
        (("--target", "x:1", "--rate-sweep", "1,zero"), "above 0"),
        (("--target", "x:1", "--vocabulary", "5:9"), "LOW:HIGH"),
        (("--target", "x:1", "--arrivals", "constant"), "--rate"),
        (("--target", "x:1", "--arrivals", "constant", "--concurrency", "2"), "give one of them"),
        (("--target", "x:1", "--speed", "2"), "--arrivals recorded"),
        (("--target", "x:1", "--load", "2"), "--slo"),
        (("--target", "x:1", "--pool", "chat"), "--workload"),
        (("--target", "=x:1"), "NAME=URL"),
        (("--target", "x:1", "--traffic", "/nowhere.jsonl"), "nowhere"),
        (("--print-launch",), "--model"),
    ],
)
def test_wrong_arguments(capsys, args, words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", *args])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_the_printed_result(capsys):
    with StandIn() as a, StandIn(Behaviour("sglang", unit=1)) as b:
        out = text(capsys, *ab(a, b), *QUICK, "--concurrency", 1)
    assert "A  http://127.0.0.1" in out
    assert "vLLM 0.32.0" in out
    assert MODEL in out
    assert "one by one: all as expected" in out
    assert "measured as planned" in out


def test_a_target_lost_in_a_sweep_has_no_goodput(capsys):
    with StandIn(Behaviour(dies_after=30)) as a:
        options = ("--rate-sweep", "50,100,200", "--slo", "ttft_p50=5000", "--load", "300", "--repetitions", 1)
        data, _ = bench(capsys, "--target", a.url, *QUICK, *options, status=1)
    row = data["goodput"][0]
    assert (row["kept"], row["broken"], row["gpus"], row["why"]) == (None, None, None, "the target was given up")
    assert "not known: the target was given up" in to_text(data)


def test_longer_requests_can_be_left_out(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(
        "".join(json.dumps({"token_ids": [7] * (50 + 400 * (k % 3)), "output_length": 2}) + "\n" for k in range(9))
    )
    with StandIn(Behaviour(context=600)) as a:
        data, _ = bench(capsys, "--target", a.url, "--traffic", log, "--repetitions", 1, status=2)
        assert "--longest 600" in data["refused"][0]
        data, _ = bench(capsys, "--target", a.url, "--traffic", log, "--repetitions", 1, "--longest", 600)
    assert (data["workload"]["requests"], data["workload"]["left_out"]) == (6, 3)
    tree = tmp_path / "tree.yaml"
    tree.write_text(
        "model: Llama-3.1-8B\ngpu: H100\noutput: 4\nrequests: 12\nturns: 3\nprompt:\n  - {block: system, tokens: 80}\n  - {block: history}\n"
        "  - {block: question, tokens: 30, varies: request}\n"
    )
    with StandIn() as a:
        variants = ("--variant", "as-is", "--variant", "one-branch")
        data, _ = bench(capsys, "--target", a.url, "--workload", tree, "--repetitions", 1, "--longest", 120, *variants)
    assert (data["workload"]["requests"], data["workload"]["left_out"]) == (3, 9)  # of one variant, not of both


def test_somebody_else_on_the_server_is_noticed(capsys):
    class Shared(StandIn):
        def _metrics(self):
            self.queried += 50_000  # between any two looks at the counters
            return super()._metrics().replace("prefix_cache_queries", "prompt_tokens")

    with Shared() as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1)
    assert any("somebody else uses A" in one for one in data["warnings"])


def test_an_older_sglang_is_read_by_its_older_names(capsys):
    with StandIn(Behaviour("sglang", unit=4, old_names=True)) as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--concurrency", 1, "--repetitions", 1)
    facts = data["targets"][0]["facts"]
    assert (facts["engine"], facts["unit"], facts["dtype"]) == ("sglang", 4, "bfloat16")
    assert data["cells"][0]["targets"][0]["expected"]["requests_that_differ"] == 0


def test_from_measurement_to_advice(capsys, tmp_path):
    """The whole way: two servers, one of them faster for sure, and the verdict that rests on it."""
    workload, result = tmp_path / "w.yaml", tmp_path / "run.json"
    workload.write_text(
        "name: mine\nmodel: Llama-3.1-8B\ngpu: H100\ncurrent: vllm\nconcurrency: 8\nrequests: 24\noutput: 4\n"
        "prompt:\n  - {block: system, tokens: 900}\n  - {block: question, tokens: 60, varies: request}\n"
    )
    with StandIn(Behaviour("vllm", first=0.2)) as a, StandIn(Behaviour("sglang", unit=1, first=0.02)) as b:
        options = ("--workload", workload, "--repetitions", 4, "--warm-up", 2, "--save", result)
        bench(capsys, "--target", f"vllm={a.url}", "--target", f"sglang={b.url}", *options)
    with pytest.raises(SystemExit):
        cli.main(
            [
                "advise",
                "--workload",
                str(workload),
                "--measured",
                str(result),
                "--no-tipping",
                "--output-format",
                "json",
            ]
        )
    data = json.loads(capsys.readouterr().out)
    assert data["verdicts"][0]["verdict"] == "adopt-sglang"
    assert {row["schedule"] for row in data["engines"]} == {"measured"}
    rates = {row["engine"]: row["requests_per_second"] for row in data["engines"]}
    assert rates["sglang"] > 2 * rates["vllm"]
    jsonschema.Draft202012Validator(PUBLISHED["advise"]()).validate(data)


def test_a_workload_as_words_for_servers_without_token_ids(capsys):
    with StandIn() as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--concurrency", 1, "--repetitions", 2, "--send", "text")
    assert data["status"] == "complete"
    assert data["workload"]["sent_as"] == "text"
    texts = [body["messages"][0]["content"] for body in a.requests]
    assert len(texts[5].split()) == 1460  # system 1000, tools 300, context 120, question 40
    assert texts[2].split()[:40] == texts[3].split()[:40] != texts[30].split()[:40]
    expected = data["cells"][0]["targets"][0]["expected"]
    assert expected["observed_hit_rate"] == pytest.approx(expected["hit_rate"], abs=0.03)
    assert expected["requests_that_differ"] is None


def test_a_server_without_usage_is_named(capsys):
    class Silent(StandIn):
        @staticmethod
        def _event(writer, data):
            if b'"usage"' not in data:
                StandIn._event(writer, data)

    with Silent() as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1)
    assert any("A reports no output tokens" in one for one in data["warnings"])
    assert any("A reports no cached tokens" in one for one in data["warnings"])


def test_a_server_that_lists_nothing_needs_the_name_of_its_model(capsys):
    class Bare(StandIn):
        async def _about(self, writer, path):
            await self._send(writer, 404, {"detail": "Not Found"})

    with Bare() as a:
        data, _ = bench(capsys, "--target", a.url, *QUICK, status=2)
        assert "--model" in data["unusable"]["A"]
        data, _ = bench(capsys, "--target", a.url, *QUICK, "--repetitions", 1, "--model", "mine")
    assert data["status"] == "complete"
    assert a.requests[-1]["model"] == "mine"
    assert "top_k" not in a.requests[-1]  # nothing that only the engines know, but the length


def test_one_server_twice_needs_an_empty_cache_in_between(capsys):
    with StandIn(Behaviour(can_flush=False)) as a:
        for other in (a.url, a.url.replace("127.0.0.1", "localhost")):
            data, _ = bench(capsys, "--target", a.url, "--target", other, *QUICK, status=2)
            assert "measured twice" in data["refused"][0]


def test_recorded_arrivals_need_times(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"token_ids": [1, 2, 3]}\n' * 5)
    with StandIn() as a, pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--target", a.url, "--traffic", str(log), "--arrivals", "recorded"])
    assert ended.value.code == 2
    assert "the traffic has no times" in capsys.readouterr().err
