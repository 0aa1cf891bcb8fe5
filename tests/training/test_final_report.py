"""The end of a run: metrics in a table, a card with commands, and samples of what was held out."""

import json

import numpy as np
import pytest

from regard.api import train_recipe
from regard.evaluation import Metric
from regard.evaluation.eval_data import shard_of
from regard.planning import plan_recipe
from regard.tokenizers import Characters
from regard.training.trainer import final_sample, metric_table

SMALL = ["model.n_layers=1", "model.d_model=8", "train.batch_tokens=64", "train.steps=2"]


def test_a_table_has_a_row_for_each_metric_and_a_column_for_each_split():
    accuracy, loss = Metric(0.5, 0.4, 0.6, digits=2), Metric(1.0, 0.9, 1.1, digits=1)
    metrics = {"valid": {"loss": loss}, "test": {"loss": loss, "a|b": accuracy}}
    assert metric_table(metrics, ["a|b", "loss"]) == [
        "| metric | valid | test |",
        "|---|---|---|",
        "| a\\|b | – | 0.50 [0.40, 0.60] |",
        "| loss | 1.0 [0.9, 1.1] | 1.0 [0.9, 1.1] |",
    ]
    assert metric_table({}, ["loss"]) == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "words.txt").write_text("".join(f"{a}{b}{a}\n" for a in "abcdef" for b in "ghijk"))
    recipe, _ = plan_recipe([folder / "words.txt"], assignments=SMALL)
    return train_recipe(recipe, folder / "run")


def test_the_card_of_a_run_names_metrics_and_commands(trained):
    card = (trained.run / "README.md").read_text()
    assert card.startswith("# transformer, trained with regard\n")
    assert "| bits per symbol |" in card and "perplexity" not in card
    assert "`regard generate .`" in card and "and `regard verify .` use it" in card


def test_the_document_of_a_run_is_that_of_its_folder(trained):
    document = trained.to_json()
    stored = json.loads((trained.run / "regard.json").read_text())
    assert document["outcome"] == stored["outcome"] == "done"
    assert document["metrics"] == stored["metrics"] and set(stored["metrics"]) == {"valid", "test"}
    assert document["measured"] == {"valid": 1.0, "test": 1.0}


def test_a_sample_is_the_same_for_all_models():
    tokenizer = Characters.train(["abc"])
    shard = shard_of(["abc" * (1 + i % 5) for i in range(400)], tokenizer)
    one, other = (final_sample(shard, 500, 16) for _ in range(2))
    assert np.array_equal(one.ids, other.ids) and one.tokens < 700 < shard.tokens
    assert final_sample(shard, shard.tokens, 16).tokens == shard.tokens
