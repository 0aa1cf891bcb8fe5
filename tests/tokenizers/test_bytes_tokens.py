"""Bytes: token 4 + b for byte b, and the alphabet that spells bytes in vocabulary files."""

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from regard.errors import UsageError, UserError
from regard.tokenizers import Bytes
from regard.tokenizers.characters import ALPHABET, token_bytes

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
    with pytest.raises(UsageError, match=r"tokens.size must be 260 for bytes.* got 300"):
        Bytes.train(["abc"], 300)
    with pytest.raises(UserError, match=r"text 1, position 2: U\+D800"):
        BYTES.encode_batch(["ok", "no\ud800"])
