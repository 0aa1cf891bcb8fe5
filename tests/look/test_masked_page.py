"""The page of `regard look` about masked tokens: its numbers against the model's own."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from regard.layers.embeddings import Inputs
from regard.look.masked_page import encode_masked, masked_page, predict_masked
from regard.look.page import AttentionMaps, Distribution, Heatmap, Surprise, Table
from regard.models.encoder import MaskedLM, modern_masked
from regard.registry import TOKENIZERS
from regard.tokenizers import Characters


@pytest.fixture
def model():
    torch.manual_seed(0)
    tokenizer = Characters.train(["abcde"])
    config = dataclasses.replace(
        modern_masked(2, 16), n_heads=2, n_kv_heads=2, d_head=4, max_len=12
    )
    made = MaskedLM(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        made.encoder.embedding.weight *= 5  # so that it has opinions
    return made, tokenizer


def alone(model, ids):
    """(T, V) probabilities of one row, by the plain call."""
    row = torch.tensor([ids])
    with torch.no_grad():
        return model(Inputs(row, torch.ones_like(row)))[0].double().softmax(-1).numpy()


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def test_every_token_is_hidden_by_itself(model):
    """`look` refused runs of the task masked."""
    made, tokenizer = model
    ids = encode_masked("badceXa", tokenizer)
    page = masked_page(made, tokenizer, ids, title="")
    (surprise,) = of(page, Surprise)
    assert list(surprise.tokens) == ["<S>", *"badce", "<unk>", "a", "<E>"]
    (map_,), (table,) = of(page, Heatmap), of(page, Table)
    assert list(map_.columns) == list("badcea")
    ((_, bits),) = surprise.rows
    shown = iter(zip(map_.array().T, table.rows, strict=True))
    for place, id in enumerate(ids):
        if id in tokenizer.names:
            assert math.isnan(bits[place])  # markers and unknown tokens are never asked for
            continue
        hidden = [*ids[:place], tokenizer.mask, *ids[place + 1 :]]
        likely = alone(made, hidden)[place]
        assert bits[place] == pytest.approx(-np.log2(likely[id]), abs=1e-4)
        column, (at, token, probability, listed) = next(shown)
        rows = [tokenizer.encode(t)[0] if len(t) == 1 else None for t in map_.rows]
        for row, token_id in enumerate(rows):
            if token_id is not None:
                assert column[row] == pytest.approx(likely[token_id], abs=1e-5)
        assert (at, token) == (place, tokenizer.text(id))
        assert probability == pytest.approx(likely[id], abs=1e-5)
        letters = sorted("abcde", key=lambda c: -likely[tokenizer.encode(c)[0]])
        assert [one.split()[0] for one in listed.split(", ")] == letters
    (weights,) = of(page, AttentionMaps)
    assert weights.array().shape == (2, 2, len(ids), len(ids))


def test_masks_in_a_text_are_filled_in(model):
    made, tokenizer = model
    ids = encode_masked("ba<mask>c[MASK]", tokenizer)
    b, a, c = (int(i) for i in tokenizer.encode("bac"))
    mask = tokenizer.mask
    assert ids == [tokenizer.start, b, a, mask, c, mask, tokenizer.end]
    page = masked_page(made, tokenizer, ids, title="")
    likely = alone(made, ids)
    for place, shown in zip((3, 5), of(page, Distribution), strict=True):
        assert sorted(shown.tokens) == list("abcde")  # no markers
        found = np.exp(np.asarray(shown.logits))
        wanted = [likely[place, tokenizer.encode(token)[0]] for token in shown.tokens]
        assert found == pytest.approx(wanted, abs=1e-5)
        assert list(found) == sorted(found, reverse=True)
    assert "&lt;mask&gt; at position 3" in page.render()


def test_a_text_of_masks_alone_has_nothing_to_be_surprised_at(model):
    made, tokenizer = model
    page = masked_page(made, tokenizer, encode_masked("<mask>", tokenizer), title="")
    assert len(of(page, Distribution)) == 1 and not of(page, Surprise)


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_a_mask_has_the_space_before_a_word_where_tokens_have_it(kind):
    tokenizer = TOKENIZERS[kind].train(["the cat sat on a mat"] * 50)
    whole = tokenizer.encode("the cat sat").tolist()
    assert len(whole) == 3
    for place, text in enumerate(["<mask> cat sat", "the <mask> sat", "the cat <mask>"]):
        wanted = [*whole[:place], tokenizer.mask, *whole[place + 1 :]]
        assert encode_masked(text, tokenizer)[1:-1] == wanted
    assert encode_masked("the cat sat", tokenizer)[1:-1] == whole


def test_many_positions_are_hidden_in_parts(model, monkeypatch):
    made, tokenizer = model
    ids = encode_masked("abcdeabcde", tokenizer)
    places = list(range(1, 11))
    whole = predict_masked(made, ids, places, tokenizer.mask)
    monkeypatch.setattr("regard.look.masked_page.BATCH_TOKENS", 25)  # two at once
    assert predict_masked(made, ids, places, tokenizer.mask) == pytest.approx(whole, abs=1e-5)
