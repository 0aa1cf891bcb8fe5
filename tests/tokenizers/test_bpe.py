"""Byte-pair encoding: against a merge loop written out, whatever the size and the text."""

import json
import random
from itertools import chain, pairwise

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UsageError, UserError
from regard.tokenizers import BPE, bpe
from regard.tokenizers.characters import ALPHABET

PROSE = (
    "The cat sat on the mat, didn't it? <S>the</S> <E><E> mat's cat's 2024 2025  café  日本日本\n"
    "<pad>cat<unk> the<S>the<S> \t\tthe <<S>>\n"
) * 4
TOKENIZER = BPE.train([PROSE, "hello hello hello"], 330)


def merged(pieces, merges):
    """Sennrich et al. 2016: apply the best-ranked merge everywhere until none applies."""
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    tokens = []
    for piece in pieces:
        parts = [ALPHABET[byte] for byte in piece.encode()]
        while True:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)), default=None)
            if best not in ranks:
                break
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == best:
                    parts[i : i + 2] = ["".join(best)]
                i += 1
        tokens += parts
    return tokens


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(st.sampled_from(PROSE.split(" ")) | st.text(max_size=4)).map(" ".join))
def test_tokens_are_those_of_the_merge_loop(text):
    regex = pytest.importorskip("regex")  # comes with transformers
    piece = regex.compile(
        r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    parts = regex.split(r"(<)(?=(?:S|E|pad|unk)>)", text)
    expected = merged([p for part in parts for p in piece.findall(part)], TOKENIZER.merges)
    ids = TOKENIZER.encode(text)
    assert [TOKENIZER.tokens[id - 4] for id in ids] == expected
    assert TOKENIZER.symbols[ids].sum() == len(text)
    assert TOKENIZER.byte_counts[ids].sum() == len(text.encode())


def test_training_merges_what_is_frequent_and_is_the_same_every_time():
    rng = random.Random(5)
    texts = ["".join(rng.choices("abcd é", k=37)) for _ in range(40)]  # full of ties
    first = BPE.train(texts, 400)
    assert BPE.train(["hug hug pug pun run"], 261).merges == [["u", "g"]]
    for _ in range(3):
        assert BPE.train(iter(texts), 400).document() == first.document()


@pytest.mark.parametrize("size", [260, 261, 283, 4096])
def test_the_vocabulary_never_exceeds_the_size_and_always_holds_every_byte(size):
    texts = ["".join(chr(0x4E00 + i) for i in range(900)), "\U0001f600" * 9, PROSE]
    tokenizer = BPE.train(texts, size)
    assert tokenizer.vocab_size <= size
    assert size > 4000 or tokenizer.vocab_size == size
    assert set(ALPHABET) <= set(tokenizer.tokens)
    assert tokenizer.decode(tokenizer.encode("ɐ𝒳\x7f\xff")) == "ɐ𝒳\x7f\xff"


def test_no_merge_spells_a_special_however_often_the_text_does():
    tokenizer = BPE.train(["<S><E><pad><unk>" * 50, "<S>" * 50, "a<S b<Sb" * 50], 400)
    assert not {"<S>", "<E>", "<pad>", "<unk>", "<pad", "k><", "><"} & set(tokenizer.tokens)
    assert min(tokenizer.encode("<S><E><pad><unk>")) > 3


@settings(max_examples=60, deadline=None, database=None)
@given(st.text(alphabet=st.sampled_from("ab<S> \n\t\x1c\x85\u3000'é1"), max_size=60))
def test_cutting_a_long_text_into_parts_changes_no_token(text):
    whole = tokenizers.Tokenizer.from_str(json.dumps(TOKENIZER.document()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe, "PART", 5)
        ids, lengths = TOKENIZER.encode_batch([text, "", text + " a"])
        assert "".join(bpe.split_long(text)) == text
    expected = [whole.encode(part).ids for part in (text, "", text + " a")]
    assert ids.tolist() == list(chain(*expected)) and lengths.tolist() == [len(e) for e in expected]


def test_long_texts_are_indeed_cut():
    text = "word " * 200_000
    parts = list(bpe.split_long(text))
    assert len(parts) == 4 and all(len(part) <= bpe.PART + 5 for part in parts)
    assert list(bpe.split_long("x" * 600_000)) == ["x" * 600_000]


def test_sizes_below_the_bytes_and_surrogates_are_refused():
    with pytest.raises(UsageError, match=r"vocab_size must be at least 260 for bpe.* got 259"):
        BPE.train(["abc"], 259)
    with pytest.raises(UserError, match="text 1, position 3"):
        BPE.train(iter(["abc", "abc\ud800"]))
    with pytest.raises(UserError, match=r"^position 0"):
        TOKENIZER.encode("\ud800")


def test_generated_bytes_that_are_no_text_become_replacement_characters():
    half = [4 + TOKENIZER.tokens.index(ALPHABET[byte]) for byte in "日".encode()[:2]]
    assert TOKENIZER.decode([*half, *TOKENIZER.encode("a")]) == "\ufffda"
    assert TOKENIZER.text(half[0]) == "\\xe6"
