"""Pseudo-log-likelihoods and variant effects, against loops of ten lines."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.errors import UsageError
from regard.evaluation.masked_tokens import (
    all_substitutions,
    parse_variants,
    pseudo_log_likelihood,
    score_variants,
)
from regard.layers.embeddings import Inputs
from regard.models.encoder import MaskedLM, modern_masked
from regard.registry import TOKENIZERS

TOKENIZER = TOKENIZERS["residues"].train(["ACDEFGHIKLMNPQRSTVWY"])
PROTEIN = "MKTAYIAKQRQISF"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = dataclasses.replace(modern_masked(2, 32), max_len=24)
    return MaskedLM(TOKENIZER.vocab_size, config).eval()


def log_probs(model, ids, hidden):
    """Return log P of all tokens at every position, if those hidden are masked: the oracle."""
    row = torch.tensor([[TOKENIZER.mask if i in hidden else id for i, id in enumerate(ids)]])
    with torch.no_grad():
        return model(Inputs(row, torch.ones_like(row)))[0].log_softmax(-1)


def ids_of(text):
    return [TOKENIZER.start, *TOKENIZER.encode(text).tolist(), TOKENIZER.end]


def test_each_token_is_masked_alone(model):
    ids = ids_of(PROTEIN)
    expected = [float(log_probs(model, ids, {i})[i, ids[i]]) for i in range(1, len(ids) - 1)]
    record = pseudo_log_likelihood(model, PROTEIN, TOKENIZER)
    assert record.tokens == list(PROTEIN)
    assert record.log_probs == pytest.approx(expected, abs=1e-5)
    assert record.total == pytest.approx(sum(expected), abs=1e-4)


def test_all_places_of_a_variant_are_masked_together(model):
    ids, scores = ids_of(PROTEIN), {}
    for name, changes in {"A4G": {4: "G"}, "M1V:K8R": {1: "V", 8: "R"}}.items():
        logs = log_probs(model, ids, set(changes))
        new = {i: int(TOKENIZER.encode(letter)[0]) for i, letter in changes.items()}
        scores[name] = sum(float(logs[i, new[i]] - logs[i, ids[i]]) for i in changes)
    effects = score_variants(model, PROTEIN, parse_variants("A4G, M1V:K8R"), TOKENIZER)
    assert effects == pytest.approx(list(scores.values()), abs=1e-5)


def test_a_long_sequence_is_read_around_the_variant(model):
    """Far from both ends, the window has the variant in its middle and no markers."""
    text = PROTEIN * 5
    ids = ids_of(text)
    position = 36
    window = ids[position - 12 : position + 12]
    logs = log_probs(model, window, {12})[12]
    new = int(TOKENIZER.encode("W")[0])
    (effect,) = score_variants(
        model, text, parse_variants(f"{text[position - 1]}{position}W"), TOKENIZER
    )
    assert effect in (
        pytest.approx(float(logs[new] - logs[ids[position]]), abs=1e-5),
        pytest.approx(shifted(model, ids, position, new), abs=1e-5),
    )
    record = pseudo_log_likelihood(model, text, TOKENIZER)
    assert len(record.tokens) == len(text)


def shifted(model, ids, position, new):
    logs = log_probs(model, ids[position - 11 : position + 13], {11})[11]
    return float(logs[new] - logs[ids[position]])


def test_the_same_symbol_has_no_effect(model):
    effects = score_variants(model, PROTEIN, parse_variants("M1M,K2K"), TOKENIZER)
    assert effects == [0.0, 0.0]


def test_all_stands_for_nineteen_others_at_each_position():
    variants = all_substitutions("MKT", TOKENIZER)
    assert len(variants) == 3 * 19
    assert str(variants[0][0]) == "M1A" and all(len(variant) == 1 for variant in variants)


def test_unknown_symbols_have_no_log_probability(model):
    assert pseudo_log_likelihood(model, "MK1T", TOKENIZER).tokens == ["M", "K", "T"]


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("A12", "a substitution is written as A12G"),
        ("A5G", "position 5 is Y"),
        ("A99G", "there are 14 positions, from 1"),
        ("A4G:A4C", "changes one position twice"),
        ("M1*:F14.", "a substitution is written as"),
    ],
)
def test_a_variant_that_does_not_fit_is_an_error(model, variant, message):
    with pytest.raises(UsageError, match=message):
        score_variants(model, PROTEIN, parse_variants(variant), TOKENIZER)


def test_tokens_of_several_symbols_have_no_variants(model):
    kmers = TOKENIZERS["kmers"].train(["ACGTACGTACGT"], k=3)
    with pytest.raises(UsageError, match="--tokenizer residues"):
        score_variants(model, "ACGTACGTACGT", parse_variants("A1C"), kmers)
