"""Defaults: what a recipe leaves open is filled in, what it says is never changed."""

from dataclasses import replace

import pytest

from regard.errors import UserError
from regard.planning import plan_recipe
from regard.training import defaults
from regard.training.defaults import (
    SizeTable,
    budget,
    default_network,
    default_shape,
    fill_batch,
    fill_defaults,
    fill_split,
    sizes,
    training_seconds,
)


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("anna\nbob\n" * 9)
    return path


def tables(path, **others):
    return {"task": {"name": "next"}, "data": {"train": [str(path)]}, **others}


def test_what_was_asked_for_is_never_changed(names):
    asked = {
        "output": {"tokenizer": "bytes"},
        "model": {"name": "lstm", "n_layers": 1, "d_model": 24, "max_len": 77, "dropout": 0.4},
        "train": {"steps": 12},
    }
    values, (data, model) = fill_defaults(tables(names, **asked))
    for section, keys in asked.items():
        assert {k: values[section][k] for k in keys} == keys
    assert "bytes (as asked)" in data and "as asked, context 77, dropout 0.4, 12 steps" in model


def test_the_given_tables_are_left_as_they_are(names):
    values = tables(names, model={"name": "lstm"})
    fill_defaults(values)
    assert values == tables(names, model={"name": "lstm"})


def test_a_plan_is_complete_and_two_lines_explain_it(names):
    recipe, lines = plan_recipe([names], assignments=["train.lr=0.5"], model={"name": "lstm"})
    assert recipe.train.lr == 0.5 and recipe.model.name == "lstm"
    assert recipe.output.tokenizer == "characters" and recipe.data.train == (str(names),)
    assert recipe.task.name == "next" and len(lines) == 2


def test_a_missing_file_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        plan_recipe([tmp_path / "none.txt"])


TABLE = SizeTable(
    sizes((10, (1, 8, 0.5), (2, 16, 0.4)), (float("inf"), (3, 32, 0.1), (4, 64, 0.0))),
    epochs=2,
    networks=("cnn", "pwm", "lstm"),
)


@pytest.mark.parametrize("gpu", [False, True])
def test_the_shape_is_that_of_the_first_row_that_holds_the_data(monkeypatch, gpu):
    monkeypatch.setattr(defaults, "has_gpu", lambda: gpu)
    small, large = (default_shape(TABLE, amount, 5, {"train": {}}) for amount in (9, 10))
    assert (small.n_layers, small.d_model, small.dropout) == ((2, 16, 0.4) if gpu else (1, 8, 0.5))
    assert (large.n_layers, large.d_model, large.dropout) == ((4, 64, 0.0) if gpu else (3, 32, 0.1))


@pytest.mark.parametrize("gpu", [False, True])
def test_without_time_for_its_passes_a_shape_gives_way_to_a_smaller_one(monkeypatch, gpu):
    monkeypatch.setattr(defaults, "has_gpu", lambda: gpu)
    small, large = (default_shape(TABLE, amount, 5, {"train": {}}) for amount in (9, 10))
    tokens = 1e9
    needed = training_seconds(large, TABLE.epochs * tokens) / defaults.SHARE / 60
    enough, less = ({"train": {"minutes": needed * factor}} for factor in (1.01, 0.99))
    assert default_shape(TABLE, 10, tokens, enough) == large
    chosen = default_shape(TABLE, 10, tokens, less)
    assert (chosen.n_layers, chosen.d_model) == (small.n_layers, small.d_model)
    assert chosen.dropout == large.dropout  # it reads the data less often, not more
    assert default_shape(TABLE, 10, tokens, {"train": {"steps": 5}}) == large


@pytest.mark.parametrize(("epochs", "dropout"), [(5, 0.05), (10, 0.1), (20, 0.2), (80, 0.2)])
def test_few_passes_over_the_data_have_less_dropout(monkeypatch, epochs, dropout):
    monkeypatch.setattr(defaults, "has_gpu", lambda: False)
    rows = sizes((float("inf"), (3, 64, 0.2), (3, 64, 0.2)))
    table = SizeTable(rows, epochs=2, dropout_epochs=20)
    shape, tokens = rows[0][1], 1e6
    minutes = training_seconds(shape, epochs * tokens) / defaults.SHARE / 60
    chosen = default_shape(table, 10, tokens, {"train": {"minutes": minutes}})
    assert chosen == replace(shape, dropout=dropout)
    assert default_shape(replace(table, dropout_epochs=0), 10, tokens, {"train": {}}) == shape


def model_of(table, model, task="next", **train):
    tables = {"task": {"name": task}, "output": {"name": "text"}, "model": model, "train": train}
    assert default_network(table, tables) == tables["model"]["name"]
    return tables["model"]


def test_networks_are_tried_if_the_model_is_open_and_there_is_time():
    chosen = model_of(TABLE, {}, minutes=1)
    assert chosen == {"choose": ["cnn", "lstm"], "name": "cnn"}
    assert model_of(TABLE, {}, steps=3) == {"name": "transformer"}
    assert model_of(TABLE, {"d_model": 8}, minutes=1) == {"name": "transformer", "d_model": 8}
    assert model_of(TABLE, {"name": "gru"}, minutes=1) == {"name": "gru"}


def test_only_networks_of_the_task_are_tried():
    table = SizeTable(TABLE.rows, 2, networks=("pwm", "coulomb"))
    assert model_of(table, {}) == {"choose": ["transformer"], "name": "transformer"}
    assert model_of(TABLE, {}, "masked") == {"name": "transformer"}  # it has no table of models


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"steps": 1200}, "1,200 steps, as asked"),
        ({"minutes": 2.5}, "2.5 minutes, as asked"),
        ({}, "5 minutes (--minutes changes that)"),
    ],
)
def test_the_budget_is_said_in_words(train, words):
    assert budget(train) == words


def test_a_large_batch_is_four_times_as_large_on_a_gpu_and_not_split(monkeypatch):
    for gpu, tokens in ((False, 1 << 15), (True, 1 << 17)):
        monkeypatch.setattr(defaults, "has_gpu", lambda gpu=gpu: gpu)
        train = {}
        fill_batch(train, 1 << 15, large=True)
        assert train == {"batch_tokens": tokens, "micro_tokens": tokens}
    given = {"batch_tokens": 5}
    fill_batch(given, 1 << 15, large=True)
    assert given["batch_tokens"] == 5


@pytest.mark.parametrize(("records", "share"), [(100, 0.15), (5_000, 0.1), (10**6, 0.05)])
def test_small_files_hold_out_a_larger_share(records, share):
    """A model was chosen by 33 of 657 records."""
    data = {}
    fill_split(data, records)
    assert data == {"valid_fraction": share, "test_fraction": share}
    for given in ({"test_fraction": 0.8}, {"folds": 5}):
        kept = dict(given)
        fill_split(kept, records)
        assert kept == given


@pytest.mark.parametrize(
    ("target", "assignments", "precision"),
    [("energy", [], "fp32"), ("kind", [], "auto"), ("energy", ["train.precision=bf16"], "bf16")],
)
def test_energies_of_molecules_are_learned_in_fp32(tmp_path, target, assignments, precision):
    """A minute of an H200 in bf16 gave errors twice those of a minute of two CPU cores."""
    lines = []
    for i in range(40):
        lines += ["2", f"m{i} energy={-1000 - i * 1.37:.4f} kind={'ab'[i % 2]}"]
        lines += ["H 0.0 0.0 0.0", f"O 0.0 0.0 {1 + i / 100:.3f}"]
    (tmp_path / "all.xyz").write_text("\n".join(lines) + "\n")
    data = {"target": target}
    recipe, _ = plan_recipe([tmp_path / "all.xyz"], data=data, assignments=assignments)
    assert recipe.train.precision == precision
