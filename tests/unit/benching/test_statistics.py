"""The statistics against tables, and what they promise against simulated truth."""

import math
import random

import pytest

from promptlint.benching.statistics import holm, mean_interval, paired, percentile, student_p, student_quantile


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [  # a printed table of Student's t, two-sided
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 4, 2.776),
        (0.95, 30, 2.042),
        (0.99, 9, 3.250),
        (0.999, 4, 8.610),
        (0.999, 9, 4.781),
        (0.5, 5, 0.727),
        (0.95, 100_000, 1.960),
    ],
)
def test_quantiles_are_those_of_the_table(level, freedom, expected):
    assert student_quantile(level, freedom) == pytest.approx(expected, abs=0.0006)


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 50])
def test_chance_and_quantile_are_inverse(freedom):
    for level in (0.1, 0.5, 0.9, 0.99, 0.9999):
        assert student_p(student_quantile(level, freedom), freedom) == pytest.approx(1 - level, rel=1e-6)
    assert student_p(0.0, freedom) == pytest.approx(1.0)


def test_one_degree_of_freedom_is_the_cauchy_distribution():
    for t in (0.1, 1.0, 3.0, 40.0):
        assert student_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9)


def test_percentiles_lie_between_neighbours():
    assert percentile([5], 0.99) == 5
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([0, 10], 0.95) == pytest.approx(9.5)
    assert percentile(range(101), 0.99) == pytest.approx(99)


def test_one_repetition_has_no_interval_and_rules_nothing_out():
    one = mean_interval([3.0], 0.95)
    assert (one.mean, one.low, one.high, one.p) == (3.0, None, None, 1.0)
    assert one.holds_zero


def test_values_without_spread():
    assert mean_interval([2.0, 2.0, 2.0], 0.95).p == 0.0
    same = paired([0.5, 0.5], [0.5, 0.5], 0.95)
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0)


def test_pairing_removes_what_both_share():
    drift = [100.0, 250.0, 30.0, 900.0]
    found = paired(drift, [value + 5 + shake for value, shake in zip(drift, (0.1, -0.1, 0.2, -0.2), strict=True)], 0.95)
    assert found.mean == pytest.approx(5)
    assert 0 < found.low < 5 < found.high < 6


def test_holm_against_a_worked_example():
    chances = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert holm(chances, 0.95) == {"a", "d"}  # 0.005 <= 0.05/4, 0.01 <= 0.05/3, 0.03 > 0.05/2
    assert holm({"a": 0.04}, 0.95) == {"a"}
    assert holm({}, 0.95) == set()


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = random.Random(5)
    for count in (2, 3, 5):
        held = 0
        for _ in range(1000):
            one = mean_interval([rng.gauss(7, 2) for _ in range(count)], 0.9)
            held += one.low <= 7 <= one.high
        assert 870 <= held <= 930, count
