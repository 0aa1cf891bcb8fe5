"""Words: whitespace is kept, the frequent words are known, the others are not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UsageError, UserError
from regard.tokenizers import Words

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
