"""The radix tree of traffic: its sums are the simulation's, and it says exactly which prompts share what."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from promptlint.caches import shares
from promptlint.caches.block_lru import BlockLru, BlockRequest
from promptlint.caches.radix import RadixCache
from promptlint.caches.request import Request, pack, unpack
from promptlint.caches.shares import Branch, PrefixShares
from promptlint.caches.workloads import tree as tree_traffic


def every(branch: Branch) -> Iterator[Branch]:
    yield branch
    for child in branch.children:
        yield from every(child)


def grown(requests, cached, name=None) -> Branch:
    collected = PrefixShares()
    for request in requests:
        collected.add(request)
    return collected.tree(
        {request.id: (request.prompt_tokens, found) for request, found in zip(requests, cached, strict=True)}, name
    )


def spelled(_before: bytes, run: bytes) -> str:
    return "".join(chr(token) for token in unpack(run))


def prompts(*texts: str, namespace=None) -> list[Request]:
    return [Request(index, pack(map(ord, text)), namespace=namespace) for index, text in enumerate(texts)]


def test_where_prompts_part():
    root = grown(prompts("abcx", "abcy", "abcx", "ab"), [0, 3, 4, 2], spelled)
    assert [(b.name, b.begin, b.tokens, b.requests, b.prompt_tokens, b.passed_tokens, b.cached_tokens) for b in every(root)] == [
        ("all requests", 0, 0, 4, 14, 0, 0),
        ("ab", 0, 2, 4, 14, 8, 6),
        ("c", 2, 1, 3, 12, 3, 2),
        ("x", 3, 1, 2, 8, 2, 1),
        ("y", 3, 1, 1, 4, 1, 0),
    ]  # fmt: skip
    assert root.children[0].hit_rate == 6 / 8


@given(
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=12), st.sampled_from([None, "t"]), st.floats(0, 1)),
        min_size=1,
        max_size=25,
    )
)
def test_sums_over_the_tree_are_those_of_the_run(rows):
    requests = [Request(index, pack(map(ord, text)), namespace=space) for index, (text, space, _) in enumerate(rows)]
    cached = [int(share * (len(text) - 1)) for text, _, share in rows]
    root = grown(requests, cached, spelled)
    assert sum(b.passed_tokens for b in every(root)) == sum(len(text) for text, _, _ in rows) == root.prompt_tokens
    assert sum(b.cached_tokens for b in every(root)) == sum(cached)
    for branch in every(root):
        assert sum(child.prompt_tokens for child in branch.children) <= branch.prompt_tokens
        assert branch.cached_tokens <= branch.passed_tokens
    # By brute force: how many requests begin with what stands on the way to each branch.
    spaces = (
        {child.name: [child] for child in root.children}
        if len({r.namespace for r in requests}) > 1
        else {"": list(root.children)}
    )
    for space, tops in spaces.items():
        own = [text for text, namespace, _ in rows if space == "" or (namespace or "default namespace") == space]
        waiting = [(top, "") for top in tops]
        while waiting:
            branch, before = waiting.pop()
            text = before if space and branch in tops else before + branch.name
            assert branch.requests == sum(one.startswith(text) for one in own)
            waiting += [(child, text) for child in branch.children]


def test_small_branches_are_summed_up(monkeypatch):
    requests = tree_traffic(40, 4, 20, 16, 10)
    cache = RadixCache()
    cached = [cache.admit(request).cached_tokens for request in requests]
    whole = list(every(grown(requests, cached)))
    assert len(whole) == 1 + 1 + 4 + 64
    monkeypatch.setattr(shares, "WIDEST", 20)
    small = list(every(grown(requests, cached)))
    assert len(small) == 1 + 1 + 4 + 4  # the questions of each branch are one
    assert sorted(branch.merged for branch in small) == [0] * 6 + [16] * 4
    for sums in ("passed_tokens", "cached_tokens"):
        assert sum(getattr(one, sums) for one in small) == sum(getattr(one, sums) for one in whole)


def test_deep_chains_are_summed_up_below_a_level():
    texts = ["ab" * size for size in range(1, 60)]
    root = grown(prompts(*texts), [max(0, 2 * size - 2) for size in range(1, 60)])
    depth, branch = 0, root
    while branch.children:
        branch, depth = branch.children[0], depth + 1
    assert depth == shares.DEEPEST + 1
    assert branch.merged == 59 - shares.DEEPEST
    assert sum(one.passed_tokens for one in every(root)) == sum(map(len, texts))


def test_blocks_count_with_their_size_and_the_last_one_with_what_is_in_it():
    requests = [BlockRequest(0, (1, 2, 3), 40, 16), BlockRequest(1, (1, 2, 4), 35, 16)]
    cache = BlockLru(None)
    collected = PrefixShares()
    outcomes = {}
    for request in requests:
        collected.add(request)
        outcomes[request.id] = (request.length, cache.admit(request).cached_tokens)
    root = collected.tree(outcomes)
    assert [(b.begin, b.tokens, b.requests, b.passed_tokens, b.cached_tokens) for b in every(root)][1:] == [
        (0, 32, 2, 64, 32),
        (32, 16, 1, 8, 0),
        (32, 16, 1, 3, 0),
    ]


def test_labels_stand_where_they_begin_to_hold():
    labelled = [
        Request(index, pack(map(ord, text)), labels=(("model", "m"), ("call_site", site)))
        for index, (text, site) in enumerate([("abx", "one"), ("aby", "one"), ("acz", "two")])
    ]
    root = grown(labelled, [0, 0, 0], spelled)
    assert [(b.name, b.labels) for b in every(root)] == [
        ("all requests", (("model", "m"),)), ("a", ()), ("b", (("call_site", "one"),)), ("x", ()), ("y", ()), ("cz", (("call_site", "two"),)),
    ]  # fmt: skip


def test_requests_without_an_outcome_do_not_count():
    collected = PrefixShares()
    for request in prompts("abc", "abd", "zzz"):
        collected.add(request)
    root = collected.tree({0: (3, 0), 1: (3, 2)})
    assert root.requests == 2
    assert sum(one.passed_tokens for one in every(root)) == 6


def test_no_request_at_all():
    assert PrefixShares().tree({}) == Branch("all requests", (), 0, 0, 0, 0, 0, 0)


def test_many_requests_give_a_small_tree():
    size = 20_000
    requests = [Request(n, pack((1, 2, n % 50 + 10, n % 997 + 100, n + 5000))) for n in range(size)]
    collected = PrefixShares()
    for request in requests:
        collected.add(request)
    root = collected.tree(dict.fromkeys(range(size), (5, 2)))
    kept = list(every(root))
    assert len(kept) <= shares.WIDEST * 2
    assert sum(one.passed_tokens for one in kept) == 5 * size
    assert sum(one.cached_tokens for one in kept) == 2 * size
