"""Heads: where they attend by definition, their removal, pruning, and runs of other models."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.api import train_recipe
from regard.bundled import NAMES
from regard.data.batching import IGNORE
from regard.errors import UserError
from regard.lab import heads
from regard.lab.experiment import Options
from regard.lab.head_models import Losses
from regard.lab.heads import EvaluatedDecoder, Plan, load_decoder, train_decoder
from regard.look.interventions import without_heads
from regard.recipe import build

QUICK = Options(quick=True)
TINY = Plan(steps=1, batch=2, half=6)


def test_a_removed_head_writes_nothing_and_is_restored():
    decoder = train_decoder(TINY, QUICK)
    model, (ids, _, _) = decoder.model, decoder.batches[0]
    before = model.logits(ids).detach()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    positions = [(layer, head) for layer in range(2) for head in range(4)]
    with without_heads([block.mixer for block in model.blocks], positions), torch.no_grad():
        x = model.embedding(ids)
        for block in model.blocks:  # attention adds nothing: each token alone
            x = x + block.feedforward(block.feedforward_norm(x))
        assert torch.allclose(model.logits(ids), model.head(model.norm(x)), atol=1e-5)
    assert torch.equal(model.logits(ids).detach(), before)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())


def test_heads_quick_form_and_a_missing_run(monkeypatch, tmp_path):
    monkeypatch.setattr(heads, "SMALL", TINY)
    result = heads.heads(QUICK)
    assert len(result.tables[0].rows) == 8 and len(result.claims) == 4
    curves = {name: ys for name, _, ys in result.figures[0].series}
    assert all(len(ys) == 9 for ys in curves.values())
    ends = [ys[-1] for ys in curves.values()]
    assert np.allclose(ends, ends[0])  # whatever the order, no head remains
    with pytest.raises(UserError, match="no run folder"):
        heads.heads(Options(quick=True, file=tmp_path / "none"))


@pytest.fixture
def names_recipe(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(NAMES.read_text().split()[::100]) + "\n")
    return {
        "data": {"train": [str(names)]},
        "train": {"steps": 2, "batch_tokens": 256},
        "output": {"tokenizer": "characters"},
    }


def test_the_heads_of_a_run_are_described_on_its_test_split(tmp_path, names_recipe):
    shape = {"n_layers": 1, "d_model": 32, "n_heads": 2, "n_kv_heads": 2, "d_head": 16}
    train_recipe(build(names_recipe | {"model": shape}), tmp_path / "run")
    result = heads.heads(Options(file=tmp_path / "run"))
    assert len(result.tables[0].rows) == 2 and "run, its test part" in result.title
    assert "<S>" in result.panels[0].tokens
    train_recipe(build(names_recipe | {"model": {"name": "bigram"}}), tmp_path / "counts")
    with pytest.raises(UserError, match="holds a Bigram, which has no attention heads"):
        heads.heads(Options(file=tmp_path / "counts"))


def test_layers_without_heads_are_left_out_and_a_run_without_any_is_refused(tmp_path, names_recipe):
    """The run of a Hyena model ended in a traceback: its rows cannot be packed."""
    train_recipe(
        build(names_recipe | {"model": {"name": "hyena", "n_layers": 1}}), tmp_path / "hyena"
    )
    with pytest.raises(UserError, match=r"its layers are hyena, which have no attention heads"):
        heads.heads(Options(file=tmp_path / "hyena"))
    shape = {"n_layers": 3, "d_model": 32, "n_heads": 2, "n_kv_heads": 2, "d_head": 16}
    shape["mixers"] = ["hyena", "attention", "linear"]
    train_recipe(build(names_recipe | {"model": shape}), tmp_path / "both")
    decoder = load_decoder(tmp_path / "both")
    assert {head.name for head in decoder.describe_heads()} == {
        f"layer {layer}, head {head}" for layer in (2, 3) for head in (1, 2)
    }
    assert decoder.maps()[0].layers == ["layer 2", "layer 3"]
    # padding after shorter records changes nothing
    ids, targets, _ = decoder.batches[0]
    padded = EvaluatedDecoder(decoder.model, [(ids[:1], targets[:1], None)], "")
    n = int((targets[0] != IGNORE).sum())
    plain = EvaluatedDecoder(decoder.model, [(ids[:1, :n], targets[:1, :n], None)], "")
    described = (sorted(d.describe_heads(), key=lambda h: h.position) for d in (padded, plain))
    for one, other in zip(*described, strict=True):
        assert one.position == other.position and one.loss == pytest.approx(other.loss, abs=1e-5)
        expected = dataclasses.astuple(other.scores)
        found = dataclasses.astuple(one.scores)
        assert found == pytest.approx(expected, abs=1e-5, nan_ok=True)


def test_resampled_rows_decide_whether_heads_are_missed():
    random = np.random.default_rng(0)
    tokens = np.full(40, 10)
    base = 20 + random.normal(0, 0.1, 40)

    def pruned(least, most, spread=0.0):
        curves = {}
        for name, rises in ((heads.LEAST_FIRST, least), (heads.MOST_FIRST, most)):
            noise = spread * random.normal(0, 10, 40)
            curves[name] = [Losses(base + rise * 10 + noise * (rise > 0), tokens) for rise in rises]
        return curves

    few, many = (0, 0.01, 0.02, 1, 2), (0, 1, 1.5, 2, 2)
    assert [c.holds for c in heads.pruning_claims(4, pruned(few, many))] == [True, True]
    assert [c.holds for c in heads.pruning_claims(4, pruned(many, many))] == [False, False]
    uncertain = heads.pruning_claims(4, pruned(few, (0, 0.02, 0.05, 1, 2), spread=0.3))
    assert [c.holds for c in uncertain] == [None, None]
    brief = heads.pruning_claims(4, pruned(many, many), brief=True)
    assert [c.holds for c in brief] == [None, None]  # a quick training refutes nothing
    losses = Losses(np.array([4.0, 2.0]), np.array([2, 2]))
    assert losses.mean == pytest.approx(1.5 / np.log(2))
    bits = losses.resample(np.array([[0, 0], [1, 1]]))
    assert bits == pytest.approx(np.array([2.0, 1.0]) / np.log(2))
