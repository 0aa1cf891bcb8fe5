"""Recipes: typed, complete, and helpful when wrong."""

from __future__ import annotations

import tomllib

import pytest

from regard.errors import UsageError, UserError
from regard.recipe import build, override, read, tables, to_toml


def test_a_saved_recipe_reads_back_as_itself_with_every_default_visible():
    recipe = build({"data": {"train": ["a.txt"]}, "model": {"size": 3}, "train": {"lr": 3e-4}})
    written = tomllib.loads(to_toml(recipe))
    assert build(written) == recipe
    assert written["train"]["warmup"] == recipe.train.warmup  # a default nobody asked for
    assert written["model"]["d_head"] == recipe.model.config.d_head


def test_the_size_dial_derives_depth_and_width_and_given_keys_win():
    config = build({"model": {"size": 12}}).model.config
    assert (config.n_layers, config.d_model, config.n_heads) == (12, 768, 12)  # GPT-2 124M
    config = build({"model": {"size": 12, "d_model": 96}}).model.config
    assert (config.n_layers, config.d_model, config.n_heads * config.d_head) == (12, 96, 96)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"train": {"lrr": 1}}, ["train.lrr", "did you mean 'lr'"]),
        ({"trian": {}}, ["trian", "did you mean 'train'"]),
        ({"model": {"nlayers": 2}}, ["model.nlayers", "did you mean 'n_layers'"]),
        ({"model": {"name": "transfromer"}}, ["transfromer", "did you mean 'transformer'"]),
        ({"model": {"preset": "gpt3"}}, ["preset", "did you mean 'gpt2'"]),
        ({"train": {"steps": "many"}}, ["train.steps", "'many'"]),
        ({"train": {"lr": -1}}, ["lr", "-1"]),
        ({"train": {"optimizer": "sgd"}}, ["train.optimizer", "muon", "sgd"]),
        ({"model": {"dropout": 1.5}}, ["dropout", "1.5"]),
        ({"model": {"n_heads": 3, "n_kv_heads": 2}}, ["n_heads", "n_kv_heads"]),
        ({"train": 3}, ["train", "table"]),
    ],
)
def test_a_wrong_recipe_names_the_key_the_value_and_what_is_allowed(values, words):
    with pytest.raises(UsageError) as error:
        build(values)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_dotted_overrides_are_read_as_toml_else_as_text():
    values = override(
        {"train": {"lr": 1.0}},
        ["train.lr=3e-4", "model.tied=true", "train.device=cpu", "task.name=next"],
    )
    assert values == {
        "train": {"lr": 3e-4, "device": "cpu"},
        "model": {"tied": True},
        "task": {"name": "next"},
    }
    with pytest.raises(UsageError, match=r"table\.key=value"):
        override({}, ["train.lr"])


def test_data_paths_are_relative_to_the_recipe(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('[data]\ntrain = "names.txt"\n')
    assert read(path)["data"]["train"] == [str((tmp_path / "names.txt").resolve())]


def test_strings_survive_toml_whatever_they_hold():
    recipe = build({"data": {"train": ['quo"te\\ \t\x7f ünï \U0001f600.txt']}})
    assert build(tomllib.loads(to_toml(recipe))) == recipe
    assert tables(recipe)["data"]["train"] == list(recipe.data.train)


BROKEN = {
    "digits": ("[train]\nsteps = " + "9" * 10_000, "is not valid TOML: Exceeds the limit"),
    "hex": ("[train]\nsteps = 0x" + "f" * 5000, "train.steps: must be below 2^63"),
    "deep": ("x = " + "[" * 3000, "is not valid TOML: nested too deeply"),
    "nan": ("[train]\nclip = nan", "train.clip: must be a finite number"),
    "zero": ('[data]\ntrain = ["a\\u0000b"]', "data.train[0]: holds a zero character"),
    "format": ("[data]\nformat = []", "data.format"),
    "preset": ("[model]\npreset = [1]", "model.preset: unknown preset"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_recipes_that_hold_what_no_recipe_can_are_named(tmp_path, name):
    text, message = BROKEN[name]
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        build(read(tmp_path / "recipe.toml"))
    assert message in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("value", ["9" * 10_000, "0x" + "f" * 5000, "[" * 3000, "nan", "1\ny = 2"])
def test_values_of_set_are_refused_in_one_line(value):
    with pytest.raises(UsageError) as caught:
        build(override({}, [f"train.steps={value}"]))
    assert str(caught.value).startswith("train.steps: ")
