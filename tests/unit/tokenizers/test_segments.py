"""Repeated text is tokenised once, and the ids are those of the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.tokenizers import EMBEDDED, get
from promptlint.tokenizers.segments import SegmentTokenizer, Special, pieces

WORDS = st.sampled_from(
    [
        "the",
        " The",
        "I'm",
        "'LL",
        "\n",
        "\n\n",
        " \n",
        "\r\n",
        "  ",
        "\t",
        " ",
        "a",
        "Ä",
        "é",
        "e\u0301",
        "東京",
        "1234",
        " 12",
        "/",
        "//",
        "_x",
        "-",
        "...",
        "!\n",
        "—",
        "\u200d",
        "\u00a0",
        "<|im_end|>",
        "<|endoftext|>",
        "x" * 40,
        "fooBar",
        "HTTPServer",
        "🙂",
        "'s",
        "don't",
        "\x85",
        "\u2028",
        "٣",
        "ⅷ",
    ]
)
TEXTS = st.lists(WORDS, max_size=200).map("".join)


@pytest.mark.parametrize("name", EMBEDDED)
def test_pieces_have_the_ids_of_the_whole_text(name):
    tokenizer = get(name)

    @settings(max_examples=150, deadline=None)
    @given(TEXTS, st.integers(1, 60))
    def check(text, size):
        ids = [token for piece in pieces(text, size) for token in tokenizer.encode(piece)]
        assert ids == list(tokenizer.encode(text))

    check()


def test_every_cut_is_safe_on_prose():
    text = "When a visit is mentioned,\nCheck point 7 (of the list); don't guess: it's 12:30. " * 20
    tokenizer = get("o200k_base")
    assert len(pieces(text, 1)) > 100
    assert [token for piece in pieces(text, 1) for token in tokenizer.encode(piece)] == list(tokenizer.encode(text))


LONG = "The quick brown fox jumps over the lazy dog.\nAnd again: " * 400


def test_long_text_is_shared_and_exact():
    segments = SegmentTokenizer(get("cl100k_base"))
    assert segments.ids([LONG]) == list(get("cl100k_base").encode(LONG))
    assert not segments._known  # nothing was met twice yet
    for ending in ("!", "?", "..."):
        text = LONG[:-1] + ending
        assert segments.ids([text]) == list(get("cl100k_base").encode(text))
    pieces_known = len(segments._known)
    assert segments.ids([LONG + "more"]) == list(get("cl100k_base").encode(LONG + "more"))
    assert len(segments._known) <= pieces_known + 1  # at most one more piece was met twice


def test_texts_that_share_their_middle_are_exact():
    tokenizer = get("o200k_base")
    segments = SegmentTokenizer(tokenizer)
    for number in range(6):
        text = f"At 12:0{number}:00 the clock says so. " + LONG + f"and {number} at the end. " * (200 * (number % 2))
        assert segments.ids([text]) == list(tokenizer.encode(text))
        assert segments.ids([text, "\n", text]) == [
            *tokenizer.encode(text),
            *tokenizer.encode("\n"),
            *tokenizer.encode(text),
        ]


def test_special_tokens_in_text_stay_text():
    segments = SegmentTokenizer(get("qwen3"))
    special, text = segments.ids([Special("<|im_end|>")]), segments.ids(["<|im_end|>"])
    assert len(special) == 1
    assert len(text) > 1
    assert special[0] not in text


def test_special_token_outside_the_vocabulary_is_one_id_above_it():
    segments = SegmentTokenizer(get("o200k_base"))
    (one,) = segments.ids([Special("<|im_start|>")])
    (other,) = segments.ids([Special("<|im_end|>")])
    assert one != other
    assert one >= 1 << 30


def test_half_a_surrogate_pair_is_counted_like_a_replacement_character():
    tokenizer = get("o200k_base")
    assert list(tokenizer.encode("a\ud83d")) == list(tokenizer.encode("a\ufffd"))


def test_a_head_that_grows_is_continued_and_another_one_is_not_mistaken_for_it():
    tokenizer = get("cl100k_base")
    segments = SegmentTokenizer(tokenizer)
    head, runs = [], [f"turn {number} of them\n" for number in range(60)]
    ids = [b"".join(tokenizer.packed([*runs[:upto], "end"])) for upto in range(61)]
    for upto in (1, 1, 3, 2, 5, 8, 20, 21, 40, 39, 41, 60):  # also back, to one that was shorter
        head += runs[len(head) : upto]
        assert segments.continued(head, upto, segments.text("end")) == ids[upto]
    other = ["another", *runs[1:]]
    assert segments.continued(other, 5, segments.text("end")) == b"".join(tokenizer.packed([*other[:5], "end"]))
    assert segments.continued(head, 0, segments.special("<|no such token|>")) == segments.special("<|no such token|>")


def test_pieces_that_only_look_alike_are_exact():
    tokenizer = get("o200k_base")
    segments = SegmentTokenizer(tokenizer)
    for number in range(4):  # the same length, and the same at both ends of every piece
        text = (" word" * 200 + f" {number} " + " word" * 800) * 3
        assert segments.ids([text]) == list(tokenizer.encode(text))
