"""Word vectors pass, and what was changed or depends on threads is found."""

import json
import random

import pytest
import torch
from small_runs import failed, names

import regard.api
from regard.training.word2vec_training import ThreadCopies
from regard.verify import verify
from regard.verify.checks import WORD2VEC_CHECKS

pytest.importorskip("numba")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("vectors"), random.Random(0)
    words = [f"w{i}" for i in range(40)]
    lines = [" ".join(rng.choices(words, k=12)) for _ in range(400)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    assignments = ["model.name=skipgram", "model.d_model=8", "train.steps=4"]
    recipe, _ = regard.api.plan([folder / "text.txt"], assignments=assignments)
    regard.api.train(recipe, folder / "run")
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
