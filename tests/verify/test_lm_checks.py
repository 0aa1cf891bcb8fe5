"""Language models and translators of all families pass; each check fails on what breaks it."""

import dataclasses

import pytest
import torch
from small_runs import decoder, detail, failed, lstm, names, save, translator, wrap

from regard.decoding import Greedy, sampling
from regard.layers import attention
from regard.layers.cache import DecodeState
from regard.layers.masks import Documents
from regard.models.decoder import Decoder
from regard.models.language_model import IGNORE
from regard.models.ngrams import Bigram, CountConfig
from regard.models.recurrent import LSTMModel
from regard.verify import LM_CHECKS, verify

WITHOUT_DATA = LM_CHECKS.keys() - {"resume bit-equality"}
SCORED = {"scores = logits", "beam = brute force", "probabilities sum to one"}


@pytest.mark.parametrize("preset", sorted(Decoder.PRESETS))
def test_every_preset_of_the_transformer_passes(preset, tmp_path):
    torch.manual_seed(7)
    model = Decoder(11, Decoder.PRESETS[preset](2, 64))
    report = verify(save(tmp_path / "run", "transformer", model))
    assert not failed(report), report
    assert names(report) == WITHOUT_DATA


@pytest.mark.parametrize(
    "options",
    [
        {"window": 5, "positions": "t5"},
        {"positions": "alibi", "max_len": 3},
        {"positions": "learned", "max_len": 1},
        {"positions": "learned", "max_len": 2, "post_norm": True},
        {"positions": "binary", "max_len": 7},
    ],
    ids=str,
)
def test_windows_biases_and_the_shortest_contexts_pass(options, tmp_path):
    report = verify(decoder(tmp_path / "run", **options))
    assert not failed(report), report
    missing = {"causality by gradient"} if options.get("max_len") == 1 else set()
    assert names(report) == WITHOUT_DATA - missing


def test_a_score_without_a_fused_kernel_is_not_compared_with_one(tmp_path):
    report = verify(decoder(tmp_path / "run", score="additive"))
    assert not failed(report), report
    assert names(report) == WITHOUT_DATA - {"fused = explicit"}


def test_a_translator_passes_what_only_translators_have_too(tmp_path):
    report = verify(translator(tmp_path / "run"))
    assert not failed(report), report
    assert "of 3 sources" in detail(report, "sources together = alone")
    text = detail(report, "translated together = alone")
    assert "12 sources by greedy search and by beams" in text


def test_a_bigram_that_has_counted_nothing_passes(tmp_path):
    report = verify(save(tmp_path / "run", "bigram", Bigram(11, CountConfig(max_len=13))))
    assert not failed(report), report
    assert "parted at a tie" in detail(report, "beam 1 = greedy")  # everything is equally probable


def test_a_model_with_more_tokens_than_its_tokenizer_passes(tmp_path):
    report = verify(decoder(tmp_path / "run", vocab_size=19))
    assert not failed(report), report


def test_a_leak_from_the_future_shows_by_gradient(tmp_path, monkeypatch):
    wrap(monkeypatch, Decoder, "hidden", lambda y, *_: y + 0.01 * y.roll(-1, dims=1))
    report = verify(decoder(tmp_path / "run"))
    assert "causality by gradient" in failed(report)
    assert not detail(report, "causality by gradient").startswith("gradient 0 ")
    untouched = {"fused = explicit", "save/load identity", "tokenizer round trip"}
    assert not failed(report) & untouched


def test_a_leak_that_no_gradient_shows_is_found_when_the_future_changes(tmp_path, monkeypatch):
    def leak(y, self, ids, *_):
        return y + 0.01 * ids.roll(-1, dims=1)[..., None]

    wrap(monkeypatch, LSTMModel, "hidden", leak)
    report = verify(lstm(tmp_path / "run"))
    assert detail(report, "causality by gradient").startswith("gradient 0 ")
    assert "causality by gradient" in failed(report)


def test_a_cache_off_by_one_fails(tmp_path, monkeypatch):
    original = Decoder.make_cached_context

    def make_cached_context(self, *arguments):
        context, where = original(self, *arguments)
        if isinstance(where, range) and where.start:
            rotation = self.positions.rotation(range(where.start + 1, where.stop + 1))
            context = dataclasses.replace(context, rotation=rotation)
        return context, where

    monkeypatch.setattr(Decoder, "make_cached_context", make_cached_context)
    report = verify(decoder(tmp_path / "run"))
    assert failed(report) == {"cached = uncached", "beam = brute force"}


def test_explicit_weights_that_do_not_sum_to_one_fail(tmp_path, monkeypatch):
    original = attention.softmax
    monkeypatch.setattr(attention, "softmax", lambda scores: original(scores) * 1.001)
    assert failed(verify(decoder(tmp_path / "run"))) == {"fused = explicit"}


def test_rows_that_affect_each_other_fail(tmp_path, monkeypatch):
    wrap(monkeypatch, Decoder, "hidden", lambda y, *_: y.lerp(y.mean(0, keepdim=True), 0.01))
    report = verify(decoder(tmp_path / "run"))
    assert "batch = single" in failed(report)
    assert not failed(report) & {"cached = uncached", "causality by gradient", "fused = explicit"}


def test_padding_that_is_read_fails(tmp_path, monkeypatch):
    original = LSTMModel.step
    monkeypatch.setattr(
        LSTMModel, "step", lambda self, ids, _, state: original(self, ids, None, state)
    )
    assert failed(verify(lstm(tmp_path / "run"))) == {"padded = unpadded"}


def test_packed_records_that_affect_each_other_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(Documents, "rule", lambda self, b, h, q, k: (b == b) & (q == q) & (k == k))
    assert failed(verify(decoder(tmp_path / "run"))) == {"padded = unpadded"}


def test_scores_that_are_not_normalised_fail(tmp_path, monkeypatch):
    def shift(scores, self, ids, targets, *_):
        return scores + 0.01 * (targets != IGNORE)

    wrap(monkeypatch, Decoder, "score", shift)
    report = verify(decoder(tmp_path / "run"))
    assert failed(report) == SCORED
    assert "max difference 1.0e-02" in detail(report, "scores = logits")


def test_beams_that_are_not_reordered_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(DecodeState, "select", lambda self, parents: None)
    assert failed(verify(decoder(tmp_path / "decoder"))) == {"beam = brute force"}
    assert "translated together = alone" in failed(verify(translator(tmp_path / "translator")))


def test_a_greedy_path_that_is_not_greedy_fails(tmp_path, monkeypatch):
    def second_best(self, batch):
        def pick(scores, step):
            highest, ids = scores.topk(2)
            return ids[:, 1], highest[:, 1]

        return sampling.decode_rows(batch, pick, log_probs=True)

    monkeypatch.setattr(Greedy, "decode", second_best)
    assert failed(verify(decoder(tmp_path / "run"))) == {"beam 1 = greedy"}
