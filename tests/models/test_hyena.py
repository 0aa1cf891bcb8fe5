"""Models with Hyena in place of attention: their optimizer groups, and training."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.layers.hyena import Filters
from regard.models.hyena import HyenaModel, hyena, striped
from regard.recipe import TrainRecipe
from regard.training.optimizer import Optimizer, block_matrices


def test_filters_have_their_own_optimizer_group_without_weight_decay():
    model, recipe = HyenaModel(9, hyena(2, 16)), TrainRecipe(weight_decay=0.1, adam_lr=0.01)
    filters = {p for m in model.modules() if isinstance(m, Filters) for p in m.parameters()}
    short = {block.mixer.short for block in model.blocks}
    for settings in (recipe, dataclasses.replace(recipe, optimizer="adamw", lr=0.01)):
        optimizer = Optimizer(model, settings)
        groups = [g for part in optimizer.parts for g in part.param_groups]
        assert {p for g in groups for p in g["params"]} == set(model.parameters())
        for group in groups:
            if set(group["params"]) & (filters | short):
                assert group["weight_decay"] == 0 and group["peak"] == pytest.approx(0.01)
                assert set(group["params"]) == filters | short
    matrices, parts = block_matrices(model)
    assert not set(matrices) & (filters | short)
    assert parts[model.blocks[0].mixer.streams.weight] == (16, 16, 16)


def test_training_stays_finite_for_twenty_seeds():
    """Short training at a high learning rate, on sequences longer than max_len of the filters."""
    for seed in range(20):
        torch.manual_seed(seed)
        model = HyenaModel(
            9, dataclasses.replace(striped(3, 16), max_len=32, n_heads=2, n_kv_heads=2, d_head=8)
        )
        optimizer = Optimizer(model, TrainRecipe(lr=0.05, adam_lr=0.01))
        for _ in range(3):
            ids = torch.randint(9, (2, 49))
            loss = -model.score(ids[:, :-1], ids[:, 1:]).mean()
            optimizer.clear()
            loss.backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
            optimizer.step()
        assert loss.isfinite()
