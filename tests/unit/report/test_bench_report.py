"""The printed result of `bench`, word for word, from documents with made-up figures."""

from __future__ import annotations

import copy

import jsonschema

from promptlint.app.schemas import PUBLISHED
from promptlint.benching.answers import Answer
from promptlint.benching.client import Server
from promptlint.benching.drive import Run
from promptlint.benching.expected import Expected
from promptlint.benching.fairness import Objection
from promptlint.benching.measure import Cell, Measurement, Settings, Target, Trial
from promptlint.benching.outcome import About, document, status
from promptlint.benching.plan import Load
from promptlint.benching.servers import Facts
from promptlint.benching.slo import parse_slo
from promptlint.benching.summary import figures
from promptlint.report.bench import to_text

REQUESTS = 100
TARGETS = [
    Target("vllm", Server.parse("http://localhost:8000")),
    Target("sglang", Server.parse("http://localhost:30000")),
]
WORKLOAD = {
    "name": "mine", "source": "mine.yaml", "model": "Llama-3.1-8B", "gpu": "H100", "requests": REQUESTS, "left_out": 0, "prompt_tokens": 100_000,
    "output_tokens": 1_000, "sent_as": "token ids", "variants": ["as-is"],
}  # fmt: skip


def trial(target, repetition, first, *, cached=900, lie="", error=""):
    """A run in which every answer takes `first` seconds to its first token, a little more in later repetitions."""
    answers = []
    for index in range(REQUESTS):
        sent = 0.05 * index
        one = Answer(
            index,
            sent,
            sent,
            sent + first + 0.0001 * repetition * (index % 7),
            events=10,
            prompt_tokens=1000,
            cached_tokens=cached,
            output_tokens=10,
        )
        one.last = one.ended = one.first + 0.1 + 0.001 * repetition
        one.gaps.extend([0.011, 0.012])
        answers.append(one)
    if lie:
        answers[3].lies.append(lie)
    if error:
        answers[4].error, answers[4].kind = error, "dropped"
    run = Run(answers, 5.0 + 0.01 * repetition)
    sent_tokens = (1000,) * REQUESTS
    expected = Expected((900,) * REQUESTS, "a cache model", exact=True)
    return Trial(target, repetition, figures(run, sent_tokens, flushed=True), run, expected, sent_tokens)


def facts(engine, unit):
    return Facts(
        engine,
        "1.0",
        "org/model",
        ("org/model",),
        8192,
        "bfloat16",
        "none",
        unit=unit,
        capacity_tokens=100_000,
        flush="/flush",
        metrics=True,
    )


def measured(cell, **more):
    found = Measurement({"vllm": facts("vllm", 16), "sglang": facts("sglang", 1)}, cells=[cell], finished=True, **more)
    about = About("0.1.0", "2026-11-30T12:00:00+00:00", WORKLOAD, parse_slo("ttft_p99=100"), load=90, gpus=2)
    data = document(found, TARGETS, Settings(seed=7), about)
    jsonschema.Draft202012Validator(PUBLISHED["bench"]()).validate(data)
    return data


def closed(trials):
    return Cell("as-is", Load(concurrency=16), False, 0.9, trials)


def test_a_comparison(golden):
    trials = [
        one
        for k in range(1, 6)
        for one in (trial("vllm", k, 0.040), trial("sglang", k, 0.030 + 0.001 * (k % 2), cached=950))
    ]
    golden("bench/compared.txt", to_text(measured(closed(trials))))


def test_a_sweep(golden):
    cell = Cell("as-is", Load(rate=20.0), False, 0.9, [trial("vllm", 1, 0.5), trial("sglang", 1, 0.05)])
    golden("bench/sweep.txt", to_text(measured(cell, objections=[Objection("fewer than 3 repetitions")])))


def test_trouble(golden):
    """A server that contradicts itself, one that was lost, and text of theirs that would drive a terminal."""
    trials = [
        trial("vllm", 1, 0.04),
        trial("sglang", 1, 0.04, lie="usage says \x1b[31m7 tokens"),
        trial("vllm", 2, 0.04, error="gone\u202e\nUNUSABLE vllm"),
    ]
    data = measured(closed(trials), lost={"sglang": "given up in repetition 2: no answer in 60 s"})
    assert data["status"] == "unfair"
    text = to_text(data)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\nUNUSABLE" not in text
    golden("bench/trouble.txt", text)


def test_nothing_was_measured(golden):
    found = Measurement(unusable={"sglang": "no connection: connection refused"})
    data = document(found, TARGETS, Settings(seed=7), About("0.1.0", "2026-11-30T12:00:00+00:00", WORKLOAD))
    jsonschema.Draft202012Validator(PUBLISHED["bench"]()).validate(data)
    golden("bench/unusable.txt", to_text(data))


def swept(*trials, **more):
    return measured(Cell("as-is", Load(rate=20.0), False, 0.9, list(trials)), **more)["goodput"][0]


def test_a_server_that_contradicts_itself_has_no_goodput():
    assert swept(trial("vllm", 1, 0.05))["kept"] == 20.0
    row = swept(trial("vllm", 1, 0.05, lie="usage says 1 output tokens, 10 came"))
    assert (row["kept"], row["broken"]) == (None, 20.0)
    assert "1 request failed or contradicted" in row["why"]


def interrupted(trial):
    """The same run, stopped by the user before its second half was sent."""
    del trial.run.answers[50:]
    trial.run.interrupted = True
    trial.figures = figures(trial.run, trial.prompt_tokens, flushed=True)
    return trial


def test_what_the_user_stopped_is_no_failure_of_the_server():
    stopped = Cell("as-is", Load(rate=20.0), False, 0.9, [trial("vllm", 1, 0.05), interrupted(trial("vllm", 2, 0.05))])
    found = Measurement({"vllm": facts("vllm", 16)}, cells=[stopped])
    about = About("0.1.0", "2026-11-30T12:00:00+00:00", WORKLOAD, parse_slo("ttft_p99=100"))
    data = document(found, TARGETS[:1], Settings(seed=7), about)
    assert data["status"] == "interrupted"
    assert data["goodput"][0]["kept"] == 20.0
    assert not any("unanswered" in one for one in data["warnings"])


def test_an_interrupt_after_a_loss_is_an_interrupt():
    found = Measurement({}, cells=[closed([trial("vllm", 1, 0.04)])], lost={"sglang": "no answer in 60 s"})
    assert status(found) == "interrupted"
    found.finished = True
    assert status(found) == "unfair"


def test_between_all_together_and_one_at_a_time_nothing_is_doubtful():
    """Requests of an open load meet less often than those of the loop that stands in for it: they find more, up to what each would find alone."""
    one = trial("vllm", 1, 0.05)
    one.expected = Expected((700,) * REQUESTS, "a cache model", exact=False, alone=(900,) * REQUESTS)
    assert not any("expected" in words for words in measured(closed([one]))["warnings"])
    one = trial("vllm", 1, 0.05, cached=940)
    one.expected = Expected((700,) * REQUESTS, "a cache model", exact=False, alone=(900,) * REQUESTS)
    assert any("hit rate 94.0 %, expected 70.0 %" in words for words in measured(closed([one]))["warnings"])


def test_a_server_that_passes_over_the_schema_is_named():
    cell = Cell("as-is", Load(concurrency=16), True, 0.9, [trial("vllm", 1, 0.05), trial("sglang", 1, 0.05)])
    for one, begin in zip(cell.trials, ('{"verdict": "yes"', "Sure! Here is the"), strict=True):
        for answer in one.run.answers:
            answer.begin = begin
    [words] = [words for words in measured(cell)["warnings"] if "schema" in words]
    assert (
        words
        == "sglang seems to pass over the schema: 100 of 100 answers do not begin as JSON does, the first with 'Sure! Here is the'"
    )


def test_rendering_changes_nothing():
    data = measured(closed([trial("vllm", 1, 0.04)]))
    before = copy.deepcopy(data)
    to_text(data)
    assert data == before
