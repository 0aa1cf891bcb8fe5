"""Layers against linear maps: one that is linear, attention that is none, and a user's run."""

from __future__ import annotations

import pytest
import torch

from regard.api import train_recipe
from regard.bundled import NAMES
from regard.lab.experiment import Options
from regard.lab.invariants import invariants
from regard.lab.linearity import LayerLinearity, linearity_table, measure_layer, relative_gap
from regard.layers.attention import AttentionContext, SelfAttention
from regard.recipe import build


def test_attention_is_linear_only_while_its_weights_are_held_fixed():
    torch.manual_seed(0)
    layer = SelfAttention(12, 4, n_kv_heads=2, d_head=3, bias=True)
    a, b = torch.randn(2, 1, 5, 12)
    x = measure_layer("layer 1", layer, (a, b), AttentionContext())
    assert x.added > 0.05 and x.doubled > 0.001 and x.fixed < 1e-5
    with torch.no_grad():  # without queries all weights are equal, and a mean is linear
        layer.qkv.weight[:12] = 0
        layer.qkv.bias[:12] = 0
    mean = measure_layer("layer 1", layer, (a, b), AttentionContext())
    assert max(mean.added, mean.doubled, mean.fixed) < 1e-5
    assert relative_gap(torch.ones(4), torch.ones(4)) == 0


def test_the_layers_of_a_run_are_measured_beside_the_laws(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(NAMES.read_text().split()[::100]) + "\n")
    model = {"n_layers": 2, "d_model": 16, "n_heads": 2, "n_kv_heads": 2, "d_head": 8}
    recipe = {
        "data": {"train": [str(names)]},
        "train": {"steps": 3, "batch_tokens": 256},
        "output": {"tokenizer": "characters"},
        "model": model,
    }
    train_recipe(build(recipe), tmp_path / "run")
    result = invariants(Options(quick=True, file=tmp_path / "run"))
    table = next(t for t in result.tables if "linear map" in t.title)
    assert [row[0] for row in table.rows] == ["layer 1", "layer 2"]
    assert any(claim.name.startswith("... and is one") and claim.holds for claim in result.claims)
    rows = linearity_table([LayerLinearity("layer 1", 0.5, 0.25, 1e-7)], "run").rows
    assert rows == [["layer 1", 0.5, 0.25, "1.0e-07"]]
    with pytest.raises(Exception, match="no run folder"):
        invariants(Options(quick=True, file=tmp_path / "none"))
