"""Characters: one id per code point, by a table that must agree with a dictionary."""

from collections import Counter

import numpy as np
import pytest

from regard.errors import UsageError, UserError
from regard.tokenizers import Characters
from regard.tokenizers.characters import CHUNK

TEXT = "banana bread\n\0日本𝒳e\u0301\ufeff"


def by_dictionary(tokenizer, text):
    ids = {character: id for id, character in enumerate(tokenizer.characters, start=4)}
    return [ids.get(character, 3) for character in text]


def test_ids_are_those_of_a_dictionary_and_unknown_characters_become_unk():
    tokenizer = Characters.train([TEXT])
    text = "a 日𝒳本 ba?é\n\0"
    assert tokenizer.characters == tuple(sorted(set(TEXT)))
    assert tokenizer.encode(text).tolist() == by_dictionary(tokenizer, text)
    assert tokenizer.decode(tokenizer.encode("ba?é")) == "ba<unk><unk>"


def test_texts_longer_than_a_chunk_are_counted_and_encoded_whole():
    texts = ["ab", "xyz" * CHUNK, "", "c" * CHUNK, "de", "𝒳" * 7]
    tokenizer = Characters.train(iter(texts))
    assert tokenizer.characters == tuple(sorted(set("".join(texts))))
    ids, lengths = tokenizer.encode_batch(texts)
    assert lengths.tolist() == [len(text) for text in texts]
    for text, part in zip(texts, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
        assert part.tolist() == by_dictionary(tokenizer, text)


def test_a_size_keeps_the_most_frequent_characters_and_breaks_ties_by_code_point():
    texts = ["zzzz", "bbb", "aaa", "ddccq"] * CHUNK  # the counts come from many chunks
    expected = sorted(Counter("".join(texts[:4])).items(), key=lambda item: (-item[1], item[0]))
    for size in (5, 7, 8, 100):
        kept = Characters.train(texts[: CHUNK + 4], size).characters
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
    with pytest.raises(UsageError, match=r"tokens.size must be at least 5 for characters.* got 4"):
        Characters.train(["abc"], 4)
    with pytest.raises(UserError, match="training text is empty"):
        Characters.train(["", ""])
