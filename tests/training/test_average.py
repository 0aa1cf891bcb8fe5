"""The mean of the last weights of a run: what it is, and that resuming does not change it."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from regard.api import plan, train
from regard.run import read_tensors
from regard.training.loop import WeightAverage


def test_it_is_the_mean_and_the_model_gets_its_own_weights_back():
    model, average = nn.Linear(3, 2), WeightAverage(3)
    seen = []
    for _ in range(3):
        nn.init.normal_(model.weight)
        seen.append(model.weight.detach().clone())
        average.add(model)
    with average.inside(model):
        torch.testing.assert_close(model.weight, torch.stack(seen).mean(0))
    assert torch.equal(model.weight, seen[-1])


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "words.txt"
    path.write_text("\n".join(f"{a}{b}{a}" for a in "abcdef" for b in "ghijk") + "\n")
    return path


def recipe_of(words, average):
    keys = ["model.n_layers=1", "model.d_model=16", "train.steps=20", "train.eval_every=5"]
    keys += ["train.batch_tokens=64", "train.checkpoint_every=1", f"train.average={average}"]
    keys += ["train.lr=0.5"]  # so high that steps go to and fro
    return plan([words], assignments=keys)[0]


def averages(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "average"]


def test_a_run_that_is_stopped_and_resumed_ends_with_the_same_mean(words, tmp_path, monkeypatch):
    from regard.training.trainer import Trainer

    train(recipe_of(words, 3), tmp_path / "whole")
    assert len(averages(tmp_path / "whole")) == 1

    stop, take = 17, Trainer.take_step

    def dies(self, step):
        if step == stop:
            raise KeyboardInterrupt
        return take(self, step)

    monkeypatch.setattr(Trainer, "take_step", dies)
    with pytest.raises(KeyboardInterrupt):
        train(recipe_of(words, 3), tmp_path / "cut")
    monkeypatch.setattr(Trainer, "take_step", take)
    train(recipe_of(words, 3), tmp_path / "cut", resume=True)
    one, other = (read_tensors(tmp_path / run / "model.safetensors") for run in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    found = [
        {k: v for k, v in averages(tmp_path / r)[0].items() if k != "seconds"}
        for r in ("whole", "cut")
    ]
    assert found[0] == found[1]


def test_one_validation_is_no_average(words, tmp_path):
    train(recipe_of(words, 1), tmp_path / "run")
    assert averages(tmp_path / "run") == []
