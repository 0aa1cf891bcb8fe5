"""Token selection: ranks and scores by hand, and the page of a user's classifier."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.api import train_recipe
from regard.errors import UserError
from regard.lab import svm as lab
from regard.lab.experiment import Options
from regard.lab.token_selection import Selection, own_scores, select_tokens, selection_claims
from regard.recipe import build


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    rng = np.random.default_rng(0)
    rows = [("".join(rng.choice(list("ACGT"), 12)), "ab"[i % 2]) for i in range(80)]
    (folder / "t.csv").write_text("seq,kind\n" + "".join(f"{a},{b}\n" for a, b in rows))
    data = {"train": [str(folder / "t.csv")], "input": "seq", "target": "kind"}
    recipe = {"task": {"name": "label"}, "data": data, "input": {"tokenizer": "characters"}}
    model = {"name": "transformer", "n_layers": 1, "d_model": 16, "n_heads": 2, "n_kv_heads": 2}
    model |= {"d_head": 8}
    train = {"steps": 2, "batch_tokens": 256, "device": "cpu"}
    train_recipe(build(recipe | {"model": model, "train": train}), folder / "run")
    train_recipe(build(recipe | {"model": {"name": "majority"}}), folder / "majority")
    return folder


def test_the_rank_is_the_share_of_tokens_with_a_lower_score():
    weights = np.array([0.1, 0.7, 0.2])
    assert Selection("abc", weights, np.array([0.0, 2.0, 1.0])).rank == 1.0
    assert Selection("abc", weights, np.array([3.0, 2.0, 1.0])).rank == 0.5
    assert Selection("abc", weights, np.array([3.0, 2.0, 2.0])).rank == 0.25  # a tie is a half
    high = [Selection("abc", weights, np.array([0.0, 2.0, 1.0]))] * 5
    (claim,) = selection_claims(high)
    assert claim.holds and not selection_claims([])


def test_own_scores_are_those_of_the_predicted_class_against_the_others():
    head, x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), torch.tensor([[2.0, 1.0]])
    assert own_scores(head, x, torch.tensor([5.0, 0.0, 0.0])).tolist() == [2.0 - 2.0]
    assert own_scores(head[:1], x, torch.tensor([-1.0])).tolist() == [-2.0]


def test_the_tokens_of_a_run_are_drawn_beside_the_experiment(runs, monkeypatch):
    found = select_tokens(runs / "run")
    assert found and all(len(x.tokens) == 14 for x in found)  # twelve letters and two markers
    assert all(x.weights.sum() == pytest.approx(1, abs=1e-4) for x in found)
    plan = lab.Plan(seeds=2, steps=40, records=3, tokens=3, width=6, marks=4)
    monkeypatch.setattr(lab, "SMALL", plan)
    result = lab.svm(Options(quick=True, file=runs / "run"))
    assert any(claim.name.startswith("your classifier") for claim in result.claims)
    assert "Tokens that your classifier selects" in result.page().render()


def test_a_model_without_attention_is_refused(runs):
    with pytest.raises(UserError, match="token selection is that of a classifier with attention"):
        select_tokens(runs / "majority")
