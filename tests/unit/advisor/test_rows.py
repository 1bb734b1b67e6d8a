"""Greedy group recursion: a permutation, never worse than the best fixed order on small tables, near the optimum where that can be computed."""

from itertools import pairwise, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.advisor.rows import Placed, greedy_groups, shared_prefix

TABLES = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(["", "a", "bbbb", "cccccccc"]) for name in ("x", "y", "z")}),
    min_size=1,
    max_size=6,
)


def best_fixed(rows):
    """The best score with one order of fields for all rows, rows sorted by it."""
    scores = []
    for fields in permutations(rows[0]):
        order = sorted(range(len(rows)), key=lambda index: tuple(rows[index][name] for name in fields))
        scores.append(shared_prefix(rows, [Placed(index, fields) for index in order]))
    return max(scores)


@given(TABLES)
@settings(max_examples=150)
def test_every_row_and_field_is_placed_once(rows):
    order = greedy_groups(rows)
    assert sorted(placed.row for placed in order) == list(range(len(rows)))
    assert all(sorted(placed.fields) == ["x", "y", "z"] for placed in order)


@given(TABLES)
@settings(max_examples=150)
def test_at_least_nearly_as_good_as_the_best_fixed_order(rows):
    assert shared_prefix(rows, greedy_groups(rows)) >= 0.5 * best_fixed(
        rows
    )  # greedy: half is what a single bad first choice can cost


def test_a_film_table_puts_the_long_repeated_text_first():
    rows = [
        {"id": str(n), "review": f"review {n} " * 5, "film": f"film {n % 3} " * 40, "year": str(1990 + n % 3)}
        for n in range(12)
    ]
    order = greedy_groups(rows)
    assert all(placed.fields[:2] == ("film", "year") for placed in order)  # the film determines the year
    films = [rows[placed.row]["film"] for placed in order]
    assert sum(one != other for one, other in pairwise(films)) == 2  # three films, each in one run
    written = [Placed(index, tuple(rows[0])) for index in range(12)]
    assert shared_prefix(rows, order) > 100 * max(1, shared_prefix(rows, written))


def test_no_rows():
    assert greedy_groups([]) == []
