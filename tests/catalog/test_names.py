"""What names say of values."""

import pytest

from promptlint.catalog.names import load_names
from promptlint.ir import Confidence


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("user", "user"),
        ("user_bio", "user"),
        ("user_requirements", "request"),
        ("legacy_user_requirements_events", "request"),
        ("user_query", "request"),
        ("user_feedback", "request"),
        ("conversation", "history"),
        ("conversation_type", "setting"),
        ("context", "context"),
        ("retrieval.context", "context"),
        ("context.settings.tone", "setting"),
        ("self.context.kwargs", "unknown"),
        ("turn_count", "counter"),
        ("history_window", "setting"),
        ("number_of_queries", "setting"),
        ("max_rounds", "setting"),
        ("rounds", "history"),
        ("environment_context", "setting"),
        ("question_context", "context"),
    ],
)
def test_the_head_of_a_name_decides(name: str, origin: str) -> None:
    assert load_names().fact(name).origin == origin


def test_a_number_of_things_says_little() -> None:
    assert load_names().fact("question_count").confidence is Confidence.LOW
