"""Heads of encoders, image models and translators: weights, removal and losses against the models
themselves.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.api import train_recipe
from regard.lab import heads
from regard.lab.experiment import Options
from regard.lab.head_models import (
    HeadsOfRun,
    score_among_places,
)
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.recipe import build

SHAPE = {"name": "transformer", "n_layers": 1, "d_model": 16, "n_heads": 2, "n_kv_heads": 2}
SHAPE |= {"d_head": 8}
TRAIN = {"steps": 2, "batch_tokens": 512, "device": "cpu"}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    rng = np.random.default_rng(0)
    rows = [("".join(rng.choice(list("ACGT"), 12)), "ab"[i % 2]) for i in range(120)]
    (folder / "t.csv").write_text("seq,kind\n" + "".join(f"{a},{b}\n" for a, b in rows))
    data = {"train": [str(folder / "t.csv")], "input": "seq", "target": "kind"}
    recipe = {"task": {"name": "label"}, "data": data, "model": SHAPE, "train": TRAIN}
    recipe["input"] = {"tokenizer": "characters"}
    train_recipe(build(recipe), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator")
    words = ["red", "old", "big", "new"]
    lines = [f"{a} {b} house" for a in words for b in words] * 6
    (folder / "t.en").write_text("\n".join(f"{x} {i}" for i, x in enumerate(lines)) + "\n")
    (folder / "t.de").write_text("\n".join(f"{i} {x}" for i, x in enumerate(lines)) + "\n")
    data = {"train": [str(folder / "t.en"), str(folder / "t.de")]}
    model = {key: SHAPE[key] for key in ("name", "n_layers", "d_model", "n_heads")}
    model |= {"n_kv_heads": 2, "d_head": 8, "n_encoder_layers": 1}
    recipe = {"task": {"name": "target"}, "data": data, "model": model, "train": TRAIN}
    recipe |= {"input": {"tokenizer": "characters"}, "output": {"tokenizer": "characters"}}
    train_recipe(build(recipe), folder / "run")
    return folder / "run"


def test_weights_of_an_encoder_are_those_of_its_tap_and_ids_those_it_reads(classifier):
    run = HeadsOfRun(classifier)
    assert list(run.layers) == ["layer 1"] and run.name == "run, its test part"
    (forward,) = run.forwards(1)
    ids = torch.from_numpy(np.asarray(run.shard.record(0)).astype(np.int64))[None]
    tap = Tap(["*.weights"])
    with torch.no_grad():
        run.pipeline.model.vectors(Inputs(ids, torch.ones_like(ids)), tap=tap)
    (expected,) = (w for name, w in tap.activations.items() if name.endswith("attention.weights"))
    weights = forward.weights("layer 1")
    assert torch.allclose(weights, expected[0, :, : weights.size(1)], atol=1e-6)
    assert torch.equal(next(iter(forward.ids.values())), ids[0])


def test_the_loss_without_heads_is_that_of_a_model_whose_attention_writes_nothing(classifier):
    run = HeadsOfRun(classifier)
    (layer,) = run.layers.values()
    before = run.losses()
    removed = run.losses([(0, 0), (0, 1)])
    with torch.no_grad():
        kept = layer.out.weight.clone()
        layer.out.weight.zero_()
        expected = run.losses()
        layer.out.weight.copy_(kept)
    assert np.allclose(removed.nats, expected.nats) and removed.mean != before.mean
    assert np.array_equal(run.losses().nats, before.nats)  # and everything is as before
    predicted = run.pipeline.predict_shard(run.shard)
    logs = torch.from_numpy(predicted.scores).log_softmax(-1).numpy()
    by_hand = -logs[np.arange(len(logs)), np.asarray(predicted.truths)]
    assert np.allclose(before.nats, by_hand) and set(before.tokens) == {1}


def test_heads_of_a_translator_are_those_of_both_stacks_and_between_them(translator):
    run = HeadsOfRun(translator)
    assert sorted(run.layers) == ["cross layer 1", "decoder layer 1", "encoder layer 1"]
    described = {head.name: head for head in run.describe_heads()}
    assert len(described) == 6
    cross = described["cross layer 1, head 2"].scores
    assert cross.bits > 0 and np.isnan(cross.offset) and cross.role == "mixed"
    assert described["decoder layer 1, head 1"].scores.offset > 0
    losses = run.losses()
    assert losses.mean == pytest.approx(run.pipeline.losses(run.shard).per_token.value / np.log(2))
    result = heads.heads(Options(file=translator))
    assert len(result.tables[0].rows) == 6 and len(result.panels) == 3
    assert "without it" in result.answer


def test_where_a_head_attends_among_places():
    weights = torch.zeros(3, 3)
    weights[0, 2] = weights[1, 0] = weights[2, 1] = 1.0
    places = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 3.0]])
    known = torch.tensor([False, True, True])
    among = score_among_places(weights, torch.cdist(places, places), known)
    assert among.offset == pytest.approx(3.0)  # the last patch attends three columns away
    assert among.bits == 0 and np.isnan(among.previous)
