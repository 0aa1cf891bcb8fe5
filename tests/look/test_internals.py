"""Traces and views of attention and recurrence: their numbers against those of the models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_models import TOKENIZER, bigram, decoder, lstm, record

from regard.errors import UserError
from regard.look import internals
from regard.look.internals import (
    ForwardTrace,
    find_file,
    format_metric,
    read_text,
    run_facts,
    truncate,
)
from regard.look.page import AttentionMaps, Heatmap, MaskMap, Page
from regard.models.decoder import Decoder, DecoderConfig
from regard.run import Run, write_config
from regard.run import weights as weights_of
from regard.storage import write_json, write_tensors
from regard.tokenizers import Characters

ABCB = Characters.train(["abcb"])
SHAPE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}


def abcb_decoder():
    torch.manual_seed(0)
    return Decoder(ABCB.vocab_size, DecoderConfig(**SHAPE, max_len=11)).eval()


def run_folder(folder, model, name, **facts):
    folder.mkdir()
    ABCB.save(folder / "tokenizer.json")
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights_of(model))
    if facts:
        write_json(folder / "regard.json", facts)
    return Run.open(folder)


def test_a_text_too_long_is_cut_and_says_so():
    assert truncate([1, 2, 3], 3) == ([1, 2, 3], "")
    ids, note = truncate([1, 2, 3, 4], 3)
    assert ids == [1, 2, 3]
    assert "first 3 of 4 tokens" in note


def test_a_file_gives_its_first_record_or_its_beginning(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("\nanna\nbob\n" * 9)
    assert find_file(str(path)) == path
    assert find_file("anna" * 999) is None  # no path is that long
    assert find_file("an\0na") is None
    assert read_text(path, running=False, most=3) == "anna"
    assert read_text(path, running=True, most=7) == "\nanna\nb"


def test_an_infinite_metric_is_formatted_in_words():
    assert (
        format_metric({"value": None, "infinite": True, "impossible": 3})
        == "infinite (3 impossible)"
    )
    assert format_metric({"value": 1.25, "low": 1.0, "high": 1.5}) == "1.250 [1.000, 1.500]"


def test_the_facts_of_a_run_come_from_its_files(tmp_path):
    metric = {"value": 2.5, "low": 2.25, "high": 2.75}
    metrics = {"valid": {"bits_per_symbol": metric}}
    model = abcb_decoder()
    run = run_folder(tmp_path / "run", model, "transformer", steps=12, metrics=metrics)
    facts = dict(run_facts(run, model, ABCB))
    assert facts["model"] == "transformer"
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert facts["heads"] == 3 and facts["context"] == 11 and facts["steps"] == 12
    assert facts["bits per symbol, validation"] == "2.500 [2.250, 2.750]"
    (run / "regard.json").write_text("[]")
    with pytest.raises(UserError, match=r"regard\.json is damaged"):
        run_facts(run, model, ABCB)


def inner(model, ids, **options):
    """The sections about what happens inside, alone."""
    page = Page("inside")
    internals.add_inside(
        page, ForwardTrace(model, TOKENIZER, ids, **{"continues": False} | options)
    )
    return page


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


@pytest.mark.parametrize("model", [decoder(), lstm(), bigram()], ids=["decoder", "lstm", "bigram"])
def test_the_bits_of_a_record_are_those_of_the_logits_and_include_its_end(model):
    ids = record("abba")
    targets, bits = ForwardTrace(model, TOKENIZER, ids, continues=False).surprise()
    assert targets == [*ids[1:], TOKENIZER.end]
    with torch.no_grad():
        logs = model.logits(torch.tensor([ids])).log_softmax(-1)[0]
    expected = [-logs[t, target].item() / math.log(2) for t, target in enumerate(targets)]
    assert bits == pytest.approx(expected, abs=1e-5)


def test_running_text_is_not_charged_for_its_first_token_nor_for_an_end():
    ids = record("abba")[1:]
    targets, bits = ForwardTrace(lstm(), TOKENIZER, ids, continues=True).surprise()
    assert targets == ids
    assert math.isnan(bits[0])
    assert np.isfinite(bits[1:]).all()


@pytest.mark.parametrize("preset", sorted(Decoder.PRESETS))
def test_attention_is_causal_and_sums_to_one(preset):
    torch.manual_seed(2)
    model = Decoder(TOKENIZER.vocab_size, Decoder.PRESETS[preset](3, 64)).eval()
    ids = record("abcab")
    (shown,) = of(inner(model, ids), AttentionMaps)
    weights = shown.array()
    assert weights.shape == (3, 2, 6, 6)
    assert list(shown.tokens) == ["<S>", *"abcab"]
    assert weights.sum(-1) == pytest.approx(np.ones((3, 2, 6)), abs=1e-5)
    assert np.triu(weights, k=1).max() == 0


def test_a_window_shows_in_the_mask_and_in_the_weights():
    page = inner(decoder(window=2), record("abbacab"))
    (mask,) = of(page, MaskMap)
    expected = np.array([[0 <= t - s < 2 for s in range(8)] for t in range(8)])
    assert (np.asarray(mask.mask) == expected).all()
    (attention,) = of(page, AttentionMaps)
    assert (attention.array()[:, :, ~expected] == 0).all()
    assert not of(inner(decoder(), record("abba")), MaskMap)  # a plain triangle tells nothing


def test_the_distance_looked_back_is_the_mean_over_queries():
    page = inner(decoder(), record("abba"))
    (attention,) = of(page, AttentionMaps)
    gaps = np.tril(np.subtract.outer(range(5), range(5)))
    expected = (attention.array() * gaps).sum(-1).mean(-1)  # (L, H)
    (distances,) = (c for c in of(page, Heatmap) if c.title.startswith("Mean distance"))
    np.testing.assert_allclose(distances.array(), expected, atol=1e-3)


def test_a_long_text_keeps_the_first_positions_of_attention_unchanged(monkeypatch):
    whole = of(inner(decoder(), record("abbacabb")), AttentionMaps)[0].array()
    monkeypatch.setattr(internals, "MOST_WEIGHTS", 6 * 5 * 5)
    page = inner(decoder(), record("abbacabb"))
    part = of(page, AttentionMaps)[0].array()
    assert part.shape == (2, 3, 5, 5)
    assert part == pytest.approx(whole[:, :, :5, :5], abs=1e-6)
    assert "first 5 of 9 tokens" in page.render()


def test_what_was_expected_is_the_distribution_of_the_logits_with_the_rank_of_the_token():
    for model, continues in ((decoder(), False), (lstm(), True), (bigram(), False)):
        ids = record("abba")
        trace = ForwardTrace(model, TOKENIZER, ids, continues)
        expected, ranks = trace.expected(3)
        targets, bits = trace.surprise()
        with torch.no_grad():
            p = model.logits(torch.tensor([ids]))[0].softmax(-1)
        assert len(expected) == len(ids) == len(targets) + continues
        for row, likely in zip(expected, p, strict=True):
            top = likely.sort(descending=True, stable=True)
            assert [q for _, q in row] == pytest.approx([float(q) for q in top.values[:3] if q])
        for rank, target, b, likely in zip(ranks, targets, bits, p, strict=False):
            assert rank == 1 + int((likely > likely[target] + 1e-7).sum())
            assert float(likely[target]) == pytest.approx(2**-b, abs=1e-6)


def test_nothing_is_expected_in_place_of_a_token_without_a_context():
    trace = ForwardTrace(lstm(), TOKENIZER, record("abba")[1:], continues=True)
    expected, ranks = trace.expected(2)
    assert expected[0] == [] and ranks[0] == 0 and len(expected) == 5 and len(ranks) == 4


def test_a_stretch_goes_on_from_its_end_and_a_record_from_its_middle():
    ids = record("abcab")
    assert ForwardTrace(lstm(), TOKENIZER, ids, True).prompt == ids
    assert ForwardTrace(lstm(), TOKENIZER, ids, False).prompt == ids[:3]
    assert ForwardTrace(lstm(), TOKENIZER, ids[:1], False).prompt == ids[:1]
