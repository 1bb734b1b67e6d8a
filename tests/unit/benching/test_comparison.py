"""Simulated servers, whose true difference is known: what the whole way from answers to a verdict makes of them."""

import random

import pytest

from promptlint.benching.answers import Answer
from promptlint.benching.drive import Run
from promptlint.benching.summary import COMPARED, compare, figures

REQUESTS = 40


def run(rng, *, slower=0.0, minute=1.0):
    """One run of a closed loop with 4 workers: skewed service times, and a `minute` of the machine that both targets share."""
    clock = [0.0] * 4
    answers = []
    for index in range(REQUESTS):
        worker = min(range(4), key=clock.__getitem__)
        sent = clock[worker]
        first = sent + slower + minute * 0.05 * rng.lognormvariate(0, 0.5)
        gaps = [minute * 0.01 * rng.lognormvariate(0, 0.3) for _ in range(9)]
        last = first + sum(gaps)
        clock[worker] = last
        answers.append(
            Answer(index, sent, sent, first, last, last, gaps, 10, False, 100, 50 + rng.randrange(3), 10, "length", "m")
        )
    return Run(answers, max(clock))


def repetitions(seed, count, slower):
    rng = random.Random(seed)
    a, b = [], []
    for _ in range(count):
        minute = rng.lognormvariate(0, 0.2)  # the repetition's, for both
        a.append(figures(run(rng, minute=minute), [100] * REQUESTS, flushed=True))
        b.append(figures(run(rng, slower=slower, minute=minute), [100] * REQUESTS, flushed=True))
    return a, b


def test_the_interval_at_99_9_percent_holds_the_true_difference_in_20_of_20():
    held = 0
    for seed in range(20):
        a, b = repetitions(f"known:{seed}", 5, 0.020)
        rows = {row.figure: row for row in compare(a, b, 0.999)}
        held += rows["ttft_p50_ms"].difference.low <= 20.0 <= rows["ttft_p50_ms"].difference.high
    assert held == 20


def test_of_100_runs_on_equal_servers_at_most_11_are_called_different():
    called = sum(
        any(row.different for row in compare(*repetitions(f"equal:{seed}", 5, 0.0), 0.95)) for seed in range(100)
    )
    assert called <= 11


def test_a_difference_that_matters_is_seen():
    """An interval that holds everything would pass the two tests above."""
    seen = 0
    for seed in range(20):
        rows = {row.figure: row for row in compare(*repetitions(f"seen:{seed}", 5, 0.040), 0.95)}
        seen += rows["ttft_p50_ms"].different
        assert set(rows) == set(COMPARED)
    assert seen >= 18


def test_repetitions_that_are_not_whole_are_left_out_in_pairs():
    a, b = repetitions("broken", 4, 0.020)
    b[1].lies = 1
    a[2].answered -= 1
    assert {row.difference.count for row in compare(a, b, 0.95)} == {2}
    for one in b:
        one.gone = "dead"
    assert compare(a, b, 0.95) == []


def test_figures_of_a_run():
    answers = [
        Answer(0, 0.0, 0.0, 0.1, 0.3, 0.3, [0.1, 0.1], 3, False, 40, 30, 3, "length", "m"),
        Answer(1, 0.0, 0.5, 0.7, 0.7, 0.7, [], 1, False, 60, 20, 1, "length", "m"),
        Answer(2, 0.0, 0.6, ended=0.9, error="gone", kind="dropped"),
    ]
    one = figures(Run(answers, 2.0), [40, 60, 70, 80], flushed=False)
    assert one.values["requests_per_second"] == 1.0
    assert one.values["output_tokens_per_second"] == 2.0
    assert one.values["ttft_mean_ms"] == pytest.approx((100 + 200) / 2)
    assert one.values["ttft_p50_ms"] == pytest.approx(150)
    assert one.values["hit_rate"] == 0.5
    assert one.values["itl_p99_ms"] == pytest.approx(100.0)
    assert one.values["tpot_mean_ms"] == pytest.approx(100.0)  # the answer of one token has none
    assert one.failed == {"dropped": 1, "not sent": 1}
    assert not one.whole


def test_a_hit_rate_needs_every_answer_to_report_it():
    rows = [
        Answer(index, first=0.1, last=0.1, ended=0.1, events=1, prompt_tokens=10, cached_tokens=cached)
        for index, cached in enumerate((5, None))
    ]
    assert "hit_rate" not in figures(Run(rows, 1.0), [10, 10], flushed=False).values
