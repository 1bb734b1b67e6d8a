"""What holds for every prompt: totals add up, and moving a value behind what lives longer never lowers the hit rate."""

from hypothesis import given, settings
from hypothesis import strategies as st
from ir_builder import Source, reading

from promptlint.analysis import Assumptions, cost_of, describe, hit_rate, render
from promptlint.catalog.rules import load_rules
from promptlint.checks import run
from promptlint.ir import BlockKind, Confidence, Growth, Volatility

TYPICAL = Assumptions.default()
KINDS = ["clock", "random", "user", "request", "context", "setting", "state", "unordered", "unknown", "host"]

texts = st.tuples(st.just("text"), st.sampled_from(["Be brief. ", "Answer from the manual only. " * 20]))
holes = st.tuples(
    st.just("hole"),
    st.sampled_from(KINDS),
    st.sampled_from(Volatility),
    st.sampled_from(Confidence),
    st.integers(0, 500),
)
leaves = texts | holes
trees = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(
            st.just("choice"), st.sampled_from(Volatility), st.lists(inner, max_size=3), st.lists(inner, max_size=3)
        )
        | st.tuples(
            st.just("repeat"), st.sampled_from(Volatility), st.sampled_from(Growth), st.lists(inner, max_size=3)
        )
    ),
    max_leaves=8,
)
blocks = st.lists(
    st.tuples(st.sampled_from(BlockKind), st.lists(trees, min_size=1, max_size=4)), min_size=1, max_size=4
)


def build(plan):
    s = Source()

    def segment(node):
        match node:
            case ("text", value):
                return s.text(value)
            case ("hole", kind, volatility, confidence, tokens):
                return s.hole(kind, volatility, confidence, tokens=tokens)
            case ("choice", volatility, first, second):
                guard = s.guard("x", volatility)
                return s.choice(guard, tuple(map(segment, first)), tuple(map(segment, second)))
            case ("repeat", volatility, growth, body):
                over = s.hole("context", volatility, growth=growth)
                return s.repeat(over, *map(segment, body))

    return s.prompt(*(s.block(kind, *map(segment, nodes)) for kind, nodes in plan))


@given(blocks)
@settings(max_examples=60, deadline=None)
def test_totals_and_bounds(plan):
    rendered = render(build(plan), TYPICAL)
    site = describe(rendered)
    assert site.prompt_tokens == sum(block.tokens for block in site.blocks)
    assert 0 <= site.cacheable_prefix_tokens <= site.prompt_tokens
    assert 0 <= site.estimated_hit_rate <= 1
    governing = [item.governing for item in rendered.main()]
    assert governing == sorted(governing)
    for item in rendered.items:
        assert item.governing >= item.own


@given(blocks)
@settings(max_examples=60, deadline=None)
def test_costs(plan):
    rendered = render(build(plan), TYPICAL)
    for item in rendered.items:
        cost = cost_of(rendered, item, max(item.own, Volatility.PROCESS))
        assert 0 <= cost.lost <= cost.behind + 1e-9
        assert 0 <= cost.now <= 1
        assert 0 <= cost.if_fixed <= 1


@given(st.lists(st.tuples(st.sampled_from(Volatility), st.integers(0, 400)), min_size=1, max_size=8))
@settings(max_examples=80, deadline=None)
def test_no_order_beats_the_one_by_volatility(parts):
    s = Source()
    holes = [s.hole("request", volatility, tokens=tokens) for volatility, tokens in parts]
    ordered = sorted(holes, key=lambda hole: hole.volatility)

    def rate(nodes):
        return hit_rate(render(s.prompt(s.user(*nodes)), TYPICAL).main(), TYPICAL.profile)

    # A date has fewer values a day than a process has replicas: of these two, either order may win by a hair.
    assert rate(ordered) >= rate(holes) - 1e-3


@given(blocks)
@settings(max_examples=60, deadline=None)
def test_every_rule_survives_every_prompt(plan):
    result = run(reading(build(plan)), load_rules(), TYPICAL)
    for finding in result.findings:
        assert finding.tokens_lost >= 0
        assert finding.message
        assert finding.call_site == result.call_sites[0].id
