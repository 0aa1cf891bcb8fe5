"""What a prediction rests on: gradient × input against linear models and finite differences,
changes against running the model again, and a planted motif.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from regard.data.batching import LabelledExamples
from regard.data.targets import Targets
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look.attribution import (
    FEWEST_WINDOWS,
    REACH,
    Peaks,
    attribute_outputs,
    attribute_positions,
    center,
    find_alphabet,
    find_embedding,
    find_peaks,
    fit_motifs,
    gradient_times_input,
    leave_out,
    remove_each,
    rollout,
    similarity,
    substitute,
)
from regard.look.figures import save
from regard.look.internals import PredictionContext
from regard.look.page import ImageMaps
from regard.look.prediction_page import prediction_page
from regard.models import vision
from regard.models.convolution import ConvolutionalClassifier
from regard.models.encoder import EncoderModel, modern
from regard.models.motifs import DNA, PROTEIN, RNA
from regard.models.recurrent import RecurrentClassifier
from regard.models.supervised import HeadConfig, NeuralSupervisedModel
from regard.models.vision import VisionTransformer, vit
from regard.pipelines.predictor import Predictor
from regard.registry import TOKENIZERS
from regard.tokenizers import Patches


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True, kw_only=True)
class BagConfig(HeadConfig):
    """Of a bag of tokens."""

    dropout: float = 0.5  # off in evaluation
    max_len: int = 16


class Bag(NeuralSupervisedModel):
    """A linear function of the mean of embeddings."""

    def __init__(self, config):
        super().__init__(9, config)
        self.embedding = nn.Embedding(9, 5)
        self.add_head(5)

    def vectors(self, source, *, tap=None):
        return self.embedding(source.ids)


def row(*ids):
    ids = torch.tensor([ids])
    return Inputs(ids, torch.ones_like(ids))


SOURCE = row(1, 4, 7, 4, 5, 8, 2)


@pytest.mark.parametrize("task", ["label", "labels", "value"])
def test_of_a_linear_model_it_is_weight_times_input_and_complete(task):
    torch.manual_seed(0)
    model = Bag(BagConfig(task=task, n_outputs=3)).train()
    if task == "value":
        model.scale.copy_(torch.tensor([2.0, 3.0, 0.5]))
        model.shift.copy_(torch.tensor([1.0, -1.0, 4.0]))
    found = attribute_outputs(model, SOURCE, [2, 0])
    assert model.training and all(p.grad is None for p in model.parameters())
    assert not model.embedding._forward_hooks
    weight, bias = model.head.weight.detach(), model.head.bias.detach()
    if task == "label":  # what is added to all classes alike changes nothing
        weight, bias = weight - weight.mean(0), bias - bias.mean()
    inputs = model.embedding.weight.detach()[SOURCE.ids[0]]  # (T, D)
    expected = (weight * model.scale[:, None]) @ inputs.T / 7
    torch.testing.assert_close(found, expected[[2, 0]])
    answers = model.eval().predict(SOURCE)[0].detach()
    if task == "label":
        answers = answers - answers.mean()
    rest = bias * model.scale + model.shift
    torch.testing.assert_close(found.sum(1) + rest[[2, 0]], answers[[2, 0]])


def families(task, outputs):
    torch.manual_seed(1)
    rest = {"task": task, "n_outputs": outputs, "max_len": 16, "dropout": 0.1}
    encoders = [(EncoderModel, "modern"), (EncoderModel, "bert")]
    others = [(ConvolutionalClassifier, "kim"), (RecurrentClassifier, "bidirectional")]
    for family, name in encoders + others:
        config = dataclasses.replace(family.PRESETS[name](2, 8), **rest)
        if family is EncoderModel:
            config = dataclasses.replace(config, n_heads=2, n_kv_heads=2, d_head=4, d_ff=10)
        yield name, family(9, config).double().eval()


def scaled(model, source, place, factor):
    """The answers with the embedding of one place times a factor."""
    size = torch.ones(source.ids.size(1), 1, dtype=torch.float64)
    size[place] = factor
    hook = find_embedding(model).register_forward_hook(lambda module, given, rows: rows * size)
    try:
        with torch.no_grad():
            answers = model.predict(source)
    finally:
        hook.remove()
    return answers - answers.mean(-1, keepdim=True)


def test_it_is_the_slope_along_each_embedding():
    for name, model in families("label", 3):
        found = attribute_outputs(model, SOURCE, [1])[0]
        for t in range(7):
            up, down = (scaled(model, SOURCE, t, 1 + h)[0, 1] for h in (1e-5, -1e-5))
            slope = float((up - down) / 2e-5)
            assert float(found[t]) == pytest.approx(slope, abs=1e-7), (name, t)


def test_positions_have_their_own():
    for name, model in families("position-label", 4):
        found = attribute_positions(model, SOURCE, [2, 5], [3, 0])
        for (place, output), mine in zip([(2, 3), (5, 0)], found, strict=True):
            for t in (0, 3):
                up, down = (scaled(model, SOURCE, t, 1 + h) for h in (1e-5, -1e-5))
                slope = float((up - down)[0, place, output] / 2e-5)
                assert float(mine[t]) == pytest.approx(slope, abs=1e-7), (name, t)


def test_changes_are_the_scores_of_changed_texts():
    def score(model, *ids):
        answers = model.predict(row(*ids))[0].detach()
        return float((answers - answers.mean())[2])

    for name, model in families("label", 3):
        whole = [1, 4, 7, 4, 5, 8, 2]
        without = leave_out(model, SOURCE, 2)
        other = substitute(model, SOURCE, 2, torch.tensor([4, 6]))
        assert without[0] == without[-1] == 0 and (other[:, [0, -1]] == 0).all()
        for t in range(1, 6):
            gone = score(model, *whole) - score(model, *whole[:t], *whole[t + 1 :])
            assert float(without[t]) == pytest.approx(gone, abs=1e-5), name
            for a, letter in enumerate((4, 6)):
                changed = score(model, *whole[:t], letter, *whole[t + 1 :]) - score(model, *whole)
                assert float(other[a, t]) == pytest.approx(changed, abs=1e-5), name
        assert other[0, 1] == pytest.approx(0, abs=1e-5)  # a 4 for a 4
    assert leave_out(model, row(1, 2), 0).tolist() == [0, 0]
    assert substitute(model, row(1, 2), 0, torch.tensor([4])).tolist() == [[0, 0]]


def test_rollout_is_the_product_of_the_layers():
    torch.manual_seed(0)
    weights = torch.rand(3, 2, 5, 5).softmax(-1)
    read = torch.rand(5).softmax(-1)
    product = torch.eye(5)
    for layer in weights:
        product = (0.5 * layer.mean(0) + 0.5 * torch.eye(5)) @ product
    found = rollout(weights, read)
    torch.testing.assert_close(found, read @ product)
    assert float(found.sum()) == pytest.approx(1)
    torch.testing.assert_close(rollout(torch.eye(5).expand(3, 2, 5, 5), read), read)


def test_another_thread_may_read_with_the_model_at_the_same_time(motif_filters):
    """Its embeddings were taken for those of the text that is explained."""
    predictor, texts, _ = motif_filters
    model = predictor.model.eval()
    sources = [row(*predictor.tokenizer.encode(text).tolist()) for text in texts[:2]]

    def pick(scores):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model.predict, sources[1]).result()
        return scores[:, 1]

    alone = gradient_times_input(model, sources[0], lambda scores: scores[:, 1])
    torch.testing.assert_close(gradient_times_input(model, sources[0], pick), alone)


def test_gradient_times_input_points_into_a_planted_motif(motif_filters):
    predictor, texts, starts = motif_filters
    model = predictor.model.eval()
    right = inside = changed = 0
    letters = torch.from_numpy(predictor.tokenizer.encode("ACGT").astype(np.int64))
    for text, at in list(zip(texts, starts, strict=True))[1::2]:
        ids = predictor.tokenizer.encode(text).tolist()
        source = row(predictor.tokenizer.start, *ids, predictor.tokenizer.end)
        right += int(model.predict(source).argmax()) == 1
        inside += at <= int(attribute_outputs(model, source, [1])[0, 1:-1].argmax()) < at + 6
        lost = -substitute(model, source, 1, letters).mean(0)[1:-1]
        changed += at <= int(lost.argmax()) < at + 6
    assert right >= 57  # of 60: it has learned what was planted
    assert inside >= 48 and changed >= 57


IMAGE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)


def make_predictor(config):
    tokenizer = Patches.train([IMAGE], patch=4)
    torch.manual_seed(0)
    config = dataclasses.replace(config, n_outputs=3, **tokenizer.model_config)
    model = VisionTransformer(tokenizer.vocab_size, config).eval()
    return Predictor(model, tokenizer, Targets("label", ("kind",), (("a", "b", "c"),)))


def test_covering_a_patch_is_painting_it_over_and_predicting_again():
    predictor = make_predictor(vision.modern(2, 32))
    tokenizer, model = predictor.tokenizer, predictor.model
    drops = remove_each(PredictionContext(predictor, IMAGE), 1)
    painted = IMAGE.astype(np.float64)
    painted[4:8, 8:12] = 255 * np.array(tokenizer.mean)  # row 2, column 3
    scores = [
        center(model, torch.from_numpy(predictor.predict_shard(predictor.shard([p])).scores))[0, 1]
        for p in (IMAGE, np.round(painted).astype(np.uint8))
    ]
    assert abs(float(drops[5]) - float(scores[0] - scores[1])) < 0.02  # of half a byte's rounding
    assert drops.std() > 0.01


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_a_position_resembles_itself_most(positions):
    config = dataclasses.replace(vision.modern(1, 32), positions=positions)
    similarities = similarity(make_predictor(config).model)
    assert torch.allclose(similarities.diagonal(), torch.ones(6), atol=1e-5)
    assert torch.allclose(similarities, similarities.T, atol=1e-5)
    assert bool((similarities <= 1 + 1e-5).all())
    assert similarity(make_predictor(dataclasses.replace(config, positions="none")).model) is None


def test_the_page_has_a_map_for_every_head_and_a_figure(tmp_path):
    predictor = make_predictor(vit(2, 64))
    page = prediction_page(predictor, IMAGE, title="t")
    maps = [part for part in page.components if isinstance(part, ImageMaps)]
    heads = next(part for part in maps if part.title.startswith("Attention of"))
    config = predictor.model.config
    assert heads.names[-1] == f"layer 2, head {config.n_heads}" and heads.across == config.n_heads
    assert heads.over[-1] == f"head {config.n_heads}" and heads.down == ["layer 1", "layer 2"]
    sums = heads.array().sum(-1) + np.asarray(heads.aside)
    assert np.allclose(sums, 1, atol=1e-5)
    pytest.importorskip("matplotlib")
    assert save(heads, tmp_path / "p.png").stat().st_size > 5000


def test_maps_that_do_not_fit_are_refused():
    maps = np.zeros((1, 1, 6))
    good = {"pixels": IMAGE, "grid": (2, 3), "maps": maps, "names": ["m"]}
    assert ImageMaps(**good).data()["size"] == [8, 12, 3]
    for change, message in (
        ({"grid": (2, 2)}, "one entry per patch"),
        ({"maps": np.zeros((1, 4, 6))}, "1, 6 or 7 rows"),
        ({"maps": maps + 2}, r"\[0, 1\]"),
        ({"names": ["m", "n"]}, "one entry per map"),
        ({"pixels": IMAGE / 255}, "bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            ImageMaps(**good | change)


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
