"""What a validation says: the mean loss of a sample, and how exact it is."""

import json

import numpy as np
import pytest

from regard.api import train_recipe
from regard.data.corpus import reopen
from regard.evaluation.predictions import predict_shard
from regard.planning import plan_recipe
from regard.run import Run


def table(path, rows):
    path.write_text("text\tkind\n" + "".join(f"{text}\t{kind}\n" for text, kind in rows))
    return path


SMALL = ["data.target=kind", "model.name=transformer", "model.n_layers=1", "model.d_model=16"]
SMALL += ["train.steps=6", "train.batch_tokens=512", "train.eval_every=2", "train.device=cpu"]


@pytest.fixture(scope="module")
def rows():
    """Texts of two classes, as a table that is sorted by class has them."""
    random = np.random.default_rng(1)
    texts = {c: ["".join(random.choice(list(c * 2 + "xyz"), 40)) for _ in range(400)] for c in "ab"}
    return [(text, kind) for kind, some in texts.items() for text in some]


def test_the_order_of_rows_changes_nothing(rows, tmp_path):
    """A table sorted by label chose its checkpoint on one class; shuffled, it was another run."""
    shuffled = [rows[i] for i in np.random.default_rng(2).permutation(len(rows))]
    found = {}
    for name, some in (("sorted", rows), ("shuffled", shuffled), ("reversed", rows[::-1])):
        recipe, _ = plan_recipe([table(tmp_path / f"{name}.tsv", some)], assignments=SMALL)
        result = train_recipe(recipe, tmp_path / name)
        weights = (tmp_path / name / "model.safetensors").read_bytes()
        found[name] = weights, result.to_json()["metrics"]
    assert found["sorted"] == found["shuffled"] == found["reversed"]


def test_the_order_of_class_files_changes_nothing(rows, tmp_path):
    for kind in "ab":
        lines = [text for text, own in rows if own == kind]
        (tmp_path / f"{kind}.txt").write_text("\n".join(lines) + "\n")
    found = []
    for names in ("ab", "ba"):
        files = [tmp_path / f"{name}.txt" for name in names]
        recipe, _ = plan_recipe(files, assignments=["task.name=label", *SMALL[1:]])
        found.append(train_recipe(recipe, tmp_path / names).to_json()["metrics"])
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("ab", "ba")]
    assert weights[0] == weights[1] and found[0] == found[1]


def test_validation_of_a_sorted_table_is_that_of_all_classes(rows, tmp_path):
    recipe, _ = plan_recipe([table(tmp_path / "t.tsv", rows)], assignments=SMALL)
    train_recipe(recipe, tmp_path / "run")
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    best = [x for x in lines if x["event"] == "valid" and x["best"]][-1]
    corpus, model = reopen(tmp_path / "run"), Run(tmp_path / "run").model()
    told = predict_shard(model, corpus.valid, corpus.tokenizer)
    logits = told.scores - told.scores.max(1, keepdims=True)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(logits)), told.truths]
    assert best["value"] == pytest.approx(losses.mean(), rel=1e-4)
    assert 0 < best["standard_error"] < 3 * losses.std() / len(losses) ** 0.5
