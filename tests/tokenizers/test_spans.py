"""Spans of tokens: they spell the text, whatever the tokenizer."""

from __future__ import annotations

import numpy as np
import pytest

from regard.registry import TOKENIZERS
from regard.tokenizers.spans import token_spans, utf16_offsets

TEXT = "Die Käse 🧀🧀 reifen,\n  langsam und (sehr) gut."


@pytest.mark.parametrize("name", ["characters", "bytes", "words", "bpe"])
def test_spans_follow_each_other_and_spell_the_text(name):
    tokenizer = TOKENIZERS[name].train([TEXT])
    ids = tokenizer.encode(TEXT)
    spans = token_spans(TEXT, ids, tokenizer)
    assert len(spans) == len(ids)
    assert (np.diff(spans, axis=0) >= 0).all()
    for i, (start, end) in zip(ids, spans, strict=True):
        spelt = tokenizer.text(int(i))
        if "\\x" not in spelt:  # a part of a character has the span of the character
            assert spelt.strip() == TEXT[start:end].strip()


def test_bytes_of_one_character_share_its_span():
    tokenizer = TOKENIZERS["bytes"].train(["x"])
    spans = token_spans("aé🧀b", tokenizer.encode("aé🧀b"), tokenizer)
    assert spans.tolist() == [[0, 1], [1, 2], [1, 2], *[[2, 3]] * 4, [3, 4]]


@pytest.mark.parametrize("text", ["abxcx", "xxabc", "a??c", "???"])
def test_unknown_characters_are_found(text):
    tokenizer = TOKENIZERS["characters"].train(["abc"])
    spans = token_spans(text, tokenizer.encode(text), tokenizer)
    assert spans.tolist() == [[i, i + 1] for i in range(len(text))]


def test_unknown_words_have_the_span_of_the_word():
    tokenizer = TOKENIZERS["words"].train(["the cat sat"])
    text = "the dog and cow sat there"
    spans = token_spans(text, tokenizer.encode(text), tokenizer)
    shown = [text[a:b].strip() for a, b in spans]
    assert shown == text.split()


def test_letters_that_are_read_as_others_are_aligned():
    tokenizer = TOKENIZERS["nucleotides"].train(["ACGT"])
    text = "acgtACnU"
    spans = token_spans(text, tokenizer.encode(text), tokenizer)
    assert spans.tolist() == [[i, i + 1] for i in range(len(text))]


def test_an_empty_text_has_no_spans():
    tokenizer = TOKENIZERS["characters"].train(["abc"])
    assert token_spans("", [], tokenizer).shape == (0, 2)


def test_offsets_count_16_bit_units_as_javascript_does():
    text = "a🧀b"
    units = text.encode("utf-16-le")
    assert utf16_offsets(text).tolist() == [0, 1, 3, 4]
    assert utf16_offsets(text)[-1] == len(units) // 2
