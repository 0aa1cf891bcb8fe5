"""Characters: a table that must agree with a dictionary. Bytes: token 4 + b for byte b. Words and
byte-pair encoding lose nothing, and agree with the tokenizers library.
"""

import json
import random
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from regard.errors import UsageError, UserError
from regard.tokenizers import BPE, Bytes, Characters, Words
from regard.tokenizers.text import ALPHABET, CHUNK, PART, split_long, token_bytes

TEXT = "banana bread\n\0日本𝒳e\u0301\ufeff"


def by_dictionary(tokenizer, text):
    ids = {character: id for id, character in enumerate(tokenizer.tokens, start=4)}
    return [ids.get(character, 3) for character in text]


def test_ids_are_those_of_a_dictionary_and_unknown_characters_become_unk():
    tokenizer = Characters.train([TEXT])
    text = "a 日𝒳本 ba?é\n\0"
    assert tokenizer.tokens == tuple(sorted(set(TEXT)))
    assert tokenizer.encode(text).tolist() == by_dictionary(tokenizer, text)
    assert tokenizer.decode(tokenizer.encode("ba?é")) == "ba<unk><unk>"


def test_texts_longer_than_a_chunk_are_counted_and_encoded_whole():
    texts = ["ab", "xyz" * CHUNK, "", "c" * CHUNK, "de", "𝒳" * 7]
    tokenizer = Characters.train(iter(texts))
    assert tokenizer.tokens == tuple(sorted(set("".join(texts))))
    ids, lengths = tokenizer.encode_batch(texts)
    assert lengths.tolist() == [len(text) for text in texts]
    for text, part in zip(texts, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
        assert part.tolist() == by_dictionary(tokenizer, text)


def test_a_size_keeps_the_most_frequent_characters_and_breaks_ties_by_code_point():
    texts = ["zzzz", "bbb", "aaa", "ddccq"] * CHUNK  # the counts come from many chunks
    expected = sorted(Counter("".join(texts[:4])).items(), key=lambda item: (-item[1], item[0]))
    for size in (5, 7, 8, 100):
        kept = Characters.train(texts[: CHUNK + 4], size).tokens
        assert kept == tuple(sorted(character for character, _ in expected[: size - 4]))


@pytest.mark.parametrize(("n", "dtype"), [(252, "uint8"), (253, "uint16")])
def test_ids_take_the_smallest_type_that_holds_the_vocabulary(n, dtype):
    characters = [chr(0x4E00 + i) for i in range(n)]
    tokenizer = Characters(characters)
    assert tokenizer.dtype == dtype and tokenizer.encode("abc").dtype == dtype
    assert tokenizer.encode(characters[-1]).tolist() == [n + 3]


def test_a_lone_surrogate_is_refused_by_its_position_in_the_whole_text():
    tokenizer = Characters(["a"])
    with pytest.raises(UserError, match=rf"^position {CHUNK + 3}: U\+D83D is a lone surrogate"):
        tokenizer.encode("a" * (CHUNK + 3) + "\ud83d")
    with pytest.raises(UserError, match=r"text 3, position 2: U\+DC00"):
        tokenizer.encode_batch(["a", "b" * (CHUNK + 1), "", "cd\udc00"])
    with pytest.raises(UserError, match="text 1, position 0"):
        Characters.train(iter(["a" * CHUNK, "\udc00"]))


def test_sizes_without_room_for_a_character_and_empty_texts_are_refused():
    with pytest.raises(UsageError, match=r"vocab_size must be at least 5 for characters.* got 4"):
        Characters.train(["abc"], 4)
    with pytest.raises(UserError, match="training text is empty"):
        Characters.train(["", ""])


BYTES = Bytes()
REFERENCE = tokenizers.Tokenizer.from_str(json.dumps(BYTES.document()))


def test_the_byte_alphabet_is_the_one_of_the_tokenizers_library():
    assert sorted(ALPHABET) == sorted(ByteLevel.alphabet())
    split = ByteLevel(add_prefix_space=False, use_regex=False)
    for character in [*map(chr, range(0x800)), "日", "𝒳", "\U000c0000", "\U00100000"]:
        ((spelt, _),) = split.pre_tokenize_str(character)
        assert spelt == "".join(ALPHABET[byte] for byte in character.encode())
        assert token_bytes(spelt) == character.encode()
    assert token_bytes("日") is None


def test_each_byte_is_its_own_token():
    texts = ["a", "", "é日𝒳", "\0\n"]
    ids, lengths = BYTES.encode_batch(texts)
    assert ids.tolist() == [byte + 4 for byte in "".join(texts).encode()]
    assert lengths.tolist() == [len(text.encode()) for text in texts]
    assert ids.dtype == BYTES.dtype == np.uint16 and BYTES.vocab_size == 260


@settings(max_examples=200, deadline=None, database=None)
@given(
    st.binary(max_size=12) | st.lists(st.sampled_from(b"a\xe2\x82\xac\xf0\x9f\xed\xa0")).map(bytes)
)
def test_bytes_that_are_no_text_become_replacement_characters_as_elsewhere(raw):
    ids = [byte + 4 for byte in raw]
    assert BYTES.decode(ids) == raw.decode("utf-8", "replace") == REFERENCE.decode(ids)


def test_a_character_cut_into_bytes_counts_once_and_its_parts_are_displayed_as_escapes():
    ids = BYTES.encode("a€𝒳")
    assert BYTES.symbols[ids].tolist() == [1, 1, 0, 0, 1, 0, 0, 0]
    assert BYTES.byte_counts[ids].tolist() == [1] * 8
    assert [BYTES.text(id) for id in ids[:3]] == ["a", "\\xe2", "\\x82"]


def test_only_the_size_of_the_alphabet_is_allowed_and_surrogates_are_not():
    assert Bytes.train(["no matter"], 260).vocab_size == 260
    with pytest.raises(UsageError, match=r"vocab_size must be 260 for these bytes.* got 300"):
        Bytes.train(["abc"], 300)
    with pytest.raises(UserError, match=r"text 1, position 2: U\+D800"):
        BYTES.encode_batch(["ok", "no\ud800"])


SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"


def test_words_are_cut_at_single_whitespace_characters():
    tokenizer = Words.train(["to be  or\tnot\nto be"])
    ids = tokenizer.encode("to be  or\tnot\nto be")
    pieces = [" to", " be", " ", " or", "\tnot", "\nto", " be"]
    assert [tokenizer.text(id) for id in ids] == pieces


def test_the_vocabulary_is_by_frequency_then_by_code_points():
    texts = ["b a c", "c b", "c é d"]
    assert Words.train(iter(texts)).tokens == (" c", " b", " a", " d", " é")
    assert Words.train(texts, 7).tokens == (" c", " b", " a")
    assert Words.train(texts, 7).vocab_size == 7
    many = [f"{i:05d}" for i in range(11_000)]
    assert Words.train(many).vocab_size == 10_000


def test_unknown_words_show_as_unk_between_spaces():
    tokenizer = Words.train(["the cat sat"])
    ids = tokenizer.encode("the dog sat")
    assert ids.tolist()[1] == tokenizer.unk == 3
    assert tokenizer.decode(ids) == "the <unk> sat"
    assert tokenizer.decode(tokenizer.encode("dog sat")) == "<unk> sat"
    assert tokenizer.text(3) == "<unk>"


@settings(max_examples=100, deadline=None, database=None)
@given(st.text(alphabet=st.sampled_from("ab<S>" + SPACES + "\x1c\u200b\ufeff"), max_size=20))
def test_any_whitespace_comes_back_and_counts_one_symbol_a_word(text):
    tokenizer = Words.train([text, "x"])
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    n_whitespace = sum(text.count(space) for space in SPACES)
    assert tokenizer.symbols[ids].sum() == len(ids) == (n_whitespace + 1 if text else 0)
    assert tokenizer.byte_counts[ids].sum() == (len(text.encode()) + 1 if text else 0)


def test_batches_are_the_texts_one_by_one():
    tokenizer = Words.train(["a b c"])
    ids, lengths = tokenizer.encode_batch(["b a", "", " ", "c c d"])
    assert lengths.tolist() == [2, 0, 2, 3]
    assert ids.tolist() == [5, 4, 3, 3, 6, 6, 3] and ids.dtype == tokenizer.dtype
    empty, none = tokenizer.encode_batch([])
    assert len(empty) == len(none) == 0 and empty.dtype == tokenizer.dtype


def test_surrogates_small_sizes_and_empty_texts_are_refused():
    with pytest.raises(UserError, match=r"^position 2: U\+DFFF"):
        Words.train(["a b"]).encode("a \udfff")
    with pytest.raises(UserError, match="text 1, position 1"):
        Words.train(iter(["a", "b\ud800"]))
    with pytest.raises(UsageError, match=r"vocab_size must be at least 5 for words.* got -1"):
        Words.train(["a"], -1)
    with pytest.raises(UserError, match="training text is empty"):
        Words.train([])


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
        patch.setattr("regard.tokenizers.text.PART", 5)
        ids, lengths = TOKENIZER.encode_batch([text, "", text + " a"])
        assert "".join(split_long(text)) == text
    expected = [whole.encode(part).ids for part in (text, "", text + " a")]
    assert ids.tolist() == list(chain(*expected)) and lengths.tolist() == [len(e) for e in expected]


def test_long_texts_are_indeed_cut():
    text = "word " * 200_000
    parts = list(split_long(text))
    assert len(parts) == 4 and all(len(part) <= PART + 5 for part in parts)
    assert list(split_long("x" * 600_000)) == ["x" * 600_000]


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
