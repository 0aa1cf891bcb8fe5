"""Characters: a table that must agree with a dictionary. Bytes: token 4 + b for byte b."""

import json
from collections import Counter

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from regard.errors import UsageError, UserError
from regard.tokenizers import Bytes, Characters
from regard.tokenizers.characters import ALPHABET, CHUNK, token_bytes

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
