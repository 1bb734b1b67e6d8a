"""Traffic profiles, severity thresholds and encodings as data."""

import pytest

from promptlint.catalog.profiles import encoding_for, load_profile, load_thresholds, profile_names
from promptlint.errors import UserError
from promptlint.ir import BlockKind, Confidence, Hole, Origin, Volatility
from promptlint.source import Span

AT = Span("a.py", 1, 1, 1, 2)


def hole(kind=None, block=None, tokens=None):
    origins = (Origin(kind, Volatility.REQUEST, Confidence.HIGH, "x", AT),) if kind else ()
    return Hole("x", AT, Volatility.REQUEST, Confidence.HIGH, origins, kind=block, tokens=tokens)


def test_the_three_profiles_of_the_contract():
    assert profile_names() == ("high", "low", "typical")


@pytest.mark.parametrize("name", ["low", "typical", "high"])
def test_a_profile_is_a_possible_day(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.reasons
    assert profile.tenants <= profile.users <= profile.sessions <= profile.turns <= profile.requests_per_day
    assert profile.distinct(Volatility.STATIC) == profile.distinct(Volatility.DAY) == 1
    assert profile.distinct(Volatility.REQUEST) == profile.requests_per_day
    assert profile.miss_share(Volatility.REQUEST) == 1


def test_more_traffic_means_fewer_first_times():
    shares = [load_profile(name).miss_share(Volatility.STATIC) for name in ("low", "typical", "high")]
    assert shares == sorted(shares, reverse=True)


def test_sizes_come_from_the_front_end_then_the_origin_then_the_kind():
    profile = load_profile()
    assert profile.size(hole("context", BlockKind.QUESTION, tokens=7)) == 7
    assert profile.size(hole("context", BlockKind.QUESTION)) == profile.sizes["context"]
    assert profile.size(hole("unknown", BlockKind.QUESTION)) == profile.sizes["question"]
    assert profile.size(hole()) == profile.sizes["default"]


def test_an_unknown_profile_names_the_known_ones():
    with pytest.raises(UserError, match="high, low, typical"):
        load_profile("busy")


def test_thresholds():
    thresholds = load_thresholds()
    assert (thresholds.medium, thresholds.high) == (60, 200)
    assert {Volatility.USER, Volatility.SESSION, Volatility.DOCUMENT} == thresholds.one_step_down
    assert {Volatility.DAY, Volatility.PROCESS} == thresholds.always_low


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3"),
        ("gpt-oss-120b", "o200k_harmony"),
    ],
)
def test_the_encoding_of_a_model(model, encoding):
    assert encoding_for(model) == (encoding, True)


@pytest.mark.parametrize("model", [None, "", "claude-sonnet-5", "my-model"])
def test_the_default_stands_in_for_unknown_models(model):
    assert encoding_for(model) == ("o200k_base", False)
