"""What heads and filters look for: peaks against the weights of the model, and a planted motif."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.batching import LabelledExamples
from regard.evaluation.eval_data import shard_of
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look.unit_motifs import (
    FEWEST_WINDOWS,
    REACH,
    Peaks,
    find_alphabet,
    find_peaks,
    fit_motifs,
)
from regard.models.encoder import EncoderModel, modern
from regard.models.motifs import DNA, PROTEIN, RNA
from regard.registry import TOKENIZERS

TEXTS = ["acca", "bab", "cabb", "abcabc", "b", "ccc", "bacab", "aabbcc", "cb", "abba", "ca", "bca"]


def test_alphabets_are_told_by_their_letters():
    assert find_alphabet(set("ACGTN")) is DNA and find_alphabet(set("acgt")) is DNA
    assert find_alphabet(set("ACGU")) is RNA and find_alphabet(set("ACDEFW")) is PROTEIN
    assert find_alphabet(set("abcé")).letters == "abcé"
    assert find_alphabet({"what", "who"}) is None and find_alphabet({"a"}) is None


def test_peaks_are_where_a_head_looks_most():
    torch.manual_seed(0)
    tokenizer = TOKENIZERS["characters"].train(TEXTS)
    shape = {"n_outputs": 3, "max_len": 12, "n_heads": 2, "n_kv_heads": 2, "d_head": 4}
    config = dataclasses.replace(modern(2, 16), pooling="attention", **shape)
    model = EncoderModel(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        model.pool.score.weight.normal_()
    shard = dataclasses.replace(shard_of(TEXTS, tokenizer), targets=np.zeros(len(TEXTS), np.int32))
    examples = LabelledExamples(shard, tokenizer, 12)
    peaks = find_peaks(model, examples, tokenizer, np.arange(len(TEXTS)))
    order = [int(i) for batch in examples.batches(2048) for i in batch.items]
    assert peaks.names == [f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2)]
    for r, record in enumerate(order):
        ids = torch.from_numpy(np.asarray(shard.record(record)).astype(np.int64))[None]
        tap = Tap(["*.weights"])
        with torch.no_grad():
            model.predict(Inputs(ids, torch.ones_like(ids)), tap=tap)
        length, pooled = ids.size(1), tap.activations["pooling.weights"][0]
        for unit, (layer, head) in enumerate(np.ndindex(2, 2)):
            weights = tap.activations[f"block.{layer}.attention.weights"][0, head]
            attention = pooled @ weights if layer == 1 else weights.mean(0)
            position = int(attention[1:-1].argmax()) + 1
            assert peaks.strength[unit, r] == pytest.approx(
                float(attention[position]) * length, rel=1e-4
            )
            for offset, id in zip(range(-REACH, REACH + 1), peaks.windows[unit, r], strict=True):
                inside = 0 < position + offset < length - 1
                assert id == (int(ids[0, position + offset]) if inside else -1)


def test_a_logo_is_of_the_half_in_which_a_head_is_strongest():
    texts = {4: "A", 5: "C", 6: "G", 7: "T"}
    windows = np.full((1, 40, 3), -1)
    windows[0, :20] = [4, 7, 5]  # A T C where it is strong
    windows[0, 20:] = 6
    strength = np.concatenate([np.full(20, 3.0), np.full(20, 1.0)])[None]
    ((unit, matrix),) = fit_motifs(Peaks(["layer 1, head 1"], windows, strength), texts, DNA)
    assert unit == 0 and matrix.consensus == "ATC" and matrix.sites == 20
    few = Peaks(["x"], windows[:, : FEWEST_WINDOWS - 1], strength[:, : FEWEST_WINDOWS - 1])
    assert fit_motifs(few, texts, DNA) == []
    silent = Peaks(["x"], windows, np.zeros((1, 40)))
    assert fit_motifs(silent, texts, DNA) == []


def test_the_logo_of_some_filter_spells_the_planted_motif(motif_filters):
    predictor, texts, _ = motif_filters
    examples = LabelledExamples(predictor.shard(texts), predictor.tokenizer, 32)
    peaks = find_peaks(predictor.model, examples, predictor.tokenizer, np.arange(len(texts)))
    names = {int(i): predictor.tokenizer.text(int(i)) for i in np.unique(peaks.windows) if i >= 0}
    best = fit_motifs(peaks, names, find_alphabet(set(names.values())))[:8]
    assert any("TATAAT" in matrix.consensus for _, matrix in best)
    assert len(peaks.names) == 32 and peaks.names[0] == "filter 1"
