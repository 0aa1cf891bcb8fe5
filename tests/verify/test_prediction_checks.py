"""Models of labels and values pass, and each check fails on what breaks it."""

import json
import random
import shutil

import pytest
import torch
from small_runs import failed, names, wrap

import regard.api
from regard.models.supervised import ClassHead, Pooling
from regard.planning import plan_recipe
from regard.storage import read_tensors, write_tensors
from regard.training.objectives import SupervisedObjective
from regard.training.word2vec_training import ThreadCopies
from regard.verify import NEURAL_CHECKS, PREDICTION_CHECKS, WORD2VEC_CHECKS, verify

CHECKS = {*PREDICTION_CHECKS, "metrics on record"}
ONLY_POINTS = {"permuted = in order"}


@pytest.mark.parametrize("name", ["label", "labels", "value", "position-label", "counted"])
def test_every_task_passes(prediction_runs, name):
    report = verify(prediction_runs / name)
    assert not failed(report), report
    missing = {"probabilities sum to one"} if name == "value" else set()
    attends = name in ("label", "value")
    assert CHECKS - names(report) - {"fused = explicit"} == missing | ONLY_POINTS
    assert ("fused = explicit" in names(report)) == attends
    only_neural = NEURAL_CHECKS.keys() - PREDICTION_CHECKS.keys()
    assert names(report) & only_neural == (set() if name == "counted" else only_neural)


def test_a_run_without_its_data_is_checked_for_the_rest(prediction_runs, copy_run):
    run = copy_run(prediction_runs / "label")
    shutil.rmtree(run / "data")
    report = verify(run)
    assert not failed(report), report
    missing = {"metrics on record", "resume bit-equality"} | ONLY_POINTS
    assert (CHECKS | NEURAL_CHECKS.keys()) - names(report) == missing


def test_a_mean_over_padding_fails(prediction_runs, monkeypatch):
    """A pooling that counts padding makes a prediction depend on the other records of a batch."""
    monkeypatch.setattr(Pooling, "forward", lambda self, x, segments, count=None: x.mean(1))
    expected = {"batch = single", "shuffled = in order", "embedded together = alone"}
    assert expected <= failed(verify(prediction_runs / "label"))


def test_a_wrong_gradient_fails(prediction_runs, monkeypatch):
    def detach(losses, *_):
        loss = losses[0]
        return loss.detach() + loss / 2, losses[1]

    wrap(monkeypatch, SupervisedObjective, "forward", detach)
    assert "gradient = finite differences" in failed(verify(prediction_runs / "value"))


def test_probabilities_that_do_not_sum_to_one_fail(prediction_runs, monkeypatch):
    wrap(monkeypatch, ClassHead, "probabilities", lambda p, *_: p * 1.01)
    assert failed(verify(prediction_runs / "label")) == {"probabilities sum to one"}


def test_metrics_that_were_changed_fail(prediction_runs, copy_run):
    run = copy_run(prediction_runs / "label")
    metadata = json.loads((run / "regard.json").read_text())
    metadata["metrics"]["test"]["accuracy"]["value"] += 0.05
    (run / "regard.json").write_text(json.dumps(metadata))
    assert failed(verify(run)) == {"metrics on record"}


def test_weights_that_were_changed_fail(prediction_runs, copy_run):
    """Other weights give other predictions than those that are stored."""
    run = copy_run(prediction_runs / "labels")
    tensors = read_tensors(run / "model.safetensors")
    tensors["head.bias"] += torch.full_like(tensors["head.bias"], 0.5)
    write_tensors(run / "model.safetensors", tensors)
    assert failed(verify(run)) == {"metrics on record"}


pytest.importorskip("numba")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("vectors"), random.Random(0)
    words = [f"w{i}" for i in range(40)]
    lines = [" ".join(rng.choices(words, k=12)) for _ in range(400)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    assignments = ["model.name=skipgram", "model.d_model=8", "train.steps=4"]
    recipe, _ = plan_recipe([folder / "text.txt"], assignments=assignments)
    regard.api.train_recipe(recipe, folder / "run")
    return folder / "run"


def test_vectors_pass_all_checks(vectors):
    report = verify(vectors)
    assert not failed(report), report
    assert names(report) == WORD2VEC_CHECKS.keys()


def test_a_loss_that_was_changed_fails(vectors, copy_run):
    run = copy_run(vectors)
    metadata = json.loads((run / "regard.json").read_text())
    split = "test" if "test" in metadata["metrics"] else "valid"
    metadata["metrics"][split]["loss"]["value"] *= 1.001
    (run / "regard.json").write_text(json.dumps(metadata))
    assert failed(verify(run)) == {"metrics on record"}


def test_training_that_depends_on_threads_fails(vectors, monkeypatch):
    original = ThreadCopies.read

    def read(self, ids, rate, seeds):
        return original(self, ids, rate * torch.get_num_threads(), seeds)

    monkeypatch.setattr(ThreadCopies, "read", read)
    assert "one thread = many" in failed(verify(vectors))
