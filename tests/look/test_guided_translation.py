"""Translations that go on from a beginning: against the model itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.decoding import Beam
from regard.errors import UserError
from regard.look.guided_translation import encode_prefix, guide_translation
from regard.look.internals import as_inputs


def encode(translator, text):
    return translator.tokenizer.encode(text).tolist()


def test_without_a_beginning_it_is_the_translation(translator):
    source = encode(translator, "abc")
    guided = guide_translation(translator, source, [], Beam(width=3, length_penalty=1.0, n_best=3))
    plain = translator.translate_ids([source], Beam(width=3, length_penalty=1.0, n_best=3))[0]
    assert [one.ids for one in guided.results] == [one.ids for one in plain]
    assert guided.nodes and guided.target == plain[0].ids


def test_a_beginning_is_kept_and_the_best_continuation_follows(translator):
    source, prefix = encode(translator, "abc"), encode(translator, "pon")
    guided = guide_translation(translator, source, prefix, Beam(width=4, n_best=4))
    assert guided.target[:3] == prefix and guided.prefix == prefix
    best = guided.results[0]
    # the log-probability of the whole target under the model, from the beginning on
    scored = translator.score(("abc", translator.tokenizer.decode(guided.target)))
    assert best.finished and sum(best.log_probs) == pytest.approx(
        sum(scored.log_probs[3:]),
        abs=0.05,  # the search excludes tokens that are never said
    )


def test_alternatives_are_the_distribution_of_the_model_at_each_place(translator):
    source, prefix = encode(translator, "abc"), encode(translator, "po")
    guided = guide_translation(translator, source, prefix, Beam(width=2))
    rows = guided.alternatives(4)
    assert [row[0][0] for row in rows] == guided.target
    model = guided.trace.model
    with torch.inference_mode():
        ids = torch.tensor([[translator.tokenizer.start, *guided.target[:-1]]])
        logits = model.logits(ids)[0]
    logits = logits.clone()
    logits[:, list(translator.tokenizer.never_produced(model.vocab_size))] = -math.inf
    p = logits.softmax(-1).numpy()
    for row, expected in zip(rows, p, strict=True):
        np.testing.assert_allclose([q for _, _, q in row], expected[[i for i, _, _ in row]])
        others = [q for _, _, q in row[1:]]
        assert others == sorted(others, reverse=True)
    # what is chosen after a beginning of one's own is the best alternative there
    chosen = guide_translation(translator, source, [rows[0][1][0]], Beam(width=2))
    assert chosen.target[0] == rows[0][1][0]


def test_links_are_drawn_and_too_long_a_beginning_is_refused(translator):
    source = encode(translator, "abc")
    guided = guide_translation(translator, source, [], Beam(width=2))
    assert [part.kind for part in guided.links(None)][:2] == ["ribbons", "heatmap"]
    with pytest.raises(UserError, match="16 tokens leaves no room: the model writes 16"):
        guide_translation(translator, source, [5] * 16, Beam(width=2))
    assert guide_translation(translator, source, [5] * 15, Beam(width=2)).target[:15] == [5] * 15


def test_a_word_that_is_being_typed_becomes_the_likeliest_that_begins_so():
    from regard.models.encoder_decoder import EncoderDecoder, modern
    from regard.pipelines.translator import Translator
    from regard.tokenizers.text import Words

    tokenizer = Words([" sun", " sunny", " sundown", " rain"])
    torch.manual_seed(0)
    config = replace(modern(1, 16), n_heads=2, n_kv_heads=2, d_head=4, max_len=16)
    translator = Translator(EncoderDecoder(tokenizer.vocab_size, config).eval(), tokenizer)
    source = encode(translator, "rain sun")
    with torch.inference_mode():
        model = translator.model.condition(as_inputs(translator.readable(source), "cpu"))
        ids = [tokenizer.start, *encode(translator, "rain")]
        logits = model.logits(torch.tensor([ids]))[0, -1]
    longer = [encode(translator, word)[0] for word in ("sunny", "sundown")]
    best = max(longer, key=lambda i: float(logits[i]))
    assert encode_prefix(translator, source, "rain sun") == encode(translator, "rain sun")
    assert encode_prefix(translator, source, "rain sund")[1] == longer[1]
    assert encode_prefix(translator, source, "rain su")[1] in (*encode(translator, "sun"), best)
    assert encode_prefix(translator, source, "rain sunn ")[1] == tokenizer.unk  # it is complete
    assert encode_prefix(translator, source, "fog")[0] == tokenizer.unk
    assert encode_prefix(translator, source, "") == []
