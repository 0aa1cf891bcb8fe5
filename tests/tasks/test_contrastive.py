"""Training on pairs: it learns to match them, and every check of `regard verify` holds."""

from __future__ import annotations

import pytest
import torch

from regard.api import train_recipe
from regard.errors import UsageError
from regard.planning import plan_recipe
from regard.run import Run
from regard.verify import CONTRASTIVE_CHECKS, verify


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_it_learns_which_name_belongs_to_which_image(contrastive_run):
    metrics = Run(contrastive_run).metadata["metrics"]["test"]
    assert metrics["text_recall_1"]["value"] > 0.2  # by chance: a fifteenth or so
    assert metrics["mean_recall"]["low"] > 0.55


def test_the_weights_at_the_end_are_stored_whatever_the_validations_before(contrastive_run):
    """The loss of a small validation split was least before recall had risen."""
    facts = Run(contrastive_run).metadata
    assert facts["best_step"] == facts["steps"] == 80
    file = contrastive_run.parent / "squares.npz"
    keys = ["data.target=captions", "task.name=contrastive"]
    with pytest.raises(UsageError, match="patience must be 0 for contrastive pairs, got 3"):
        plan_recipe([file], assignments=[*keys, "train.patience=3"])


def test_every_check_holds(contrastive_run):
    report = verify(contrastive_run)
    assert report.ok, [check for check in report.checks if not check.ok]
    assert {check.name for check in report.checks} == set(CONTRASTIVE_CHECKS)


def test_captions_stay_captions_unless_the_task_is_named(contrastive_run):
    file = contrastive_run.parent / "squares.npz"
    recipe, _ = plan_recipe([file], assignments=["data.target=captions", "task.name=target"])
    assert recipe.task.name == "target"
    recipe, lines = plan_recipe(
        [file], assignments=["data.target=captions", "task.name=contrastive"]
    )
    assert recipe.task.name == "contrastive" and "task contrastive" in lines[0]


@pytest.mark.parametrize("name", ["chance", "cca"])
def test_baselines_are_measured_in_the_same_way(contrastive_run, tmp_path, name):
    keys = [
        "data.target=captions",
        "task.name=contrastive",
        "data.test_fraction=0.3",
        f"model.name={name}",
    ]
    recipe, _ = plan_recipe([contrastive_run.parent / "squares.npz"], assignments=keys)
    metrics = train_recipe(recipe, tmp_path / name).metrics
    assert list(metrics) == list(Run(contrastive_run).metadata["metrics"]["test"])
    own = Run(contrastive_run).metadata["metrics"]["test"]["mean_recall"]["value"]
    assert metrics["mean_recall"].value < own
    assert verify(tmp_path / name).ok


def test_texts_can_be_matched_with_texts(tmp_path):
    words = [f"{a}{b}{c}" for a in "abcd" for b in "abcd" for c in "abcd"]
    (tmp_path / "w.low").write_text("".join(f"{w}\n" for w in words))
    (tmp_path / "w.up").write_text("".join(f"{w.upper()}\n" for w in words))
    keys = ["model.n_layers=1", "model.n_encoder_layers=1", "model.d_model=32", "train.steps=40"]
    keys += ["model.name=transformer", "task.name=contrastive", "train.batch_tokens=300"]
    recipe, _ = plan_recipe([tmp_path / "w.low", tmp_path / "w.up"], assignments=keys)
    result = train_recipe(recipe, tmp_path / "run")
    assert "text_recall_10" in result.metrics
    assert result.model.find_texts("abc", num=3)[0].score <= 1
