"""Language modelling: what is chosen for a user who gives a file and nothing else."""

import pytest

from regard.planning import plan_recipe
from regard.tasks.language_modeling import LanguageModeling, size_model
from regard.training import defaults
from regard.training.defaults import fill_defaults


def chosen(path, text, **others):
    path.write_text(text)
    task = {"name": "next"}
    return fill_defaults({"task": task, "data": {"train": [str(path)]}, **others})


def test_short_lines_are_records_with_a_context_that_holds_the_longest(tmp_path):
    values, (data, model) = chosen(tmp_path / "names.txt", "anna\nbob\n" + "c" * 20 + "\n")
    assert values["data"]["format"] == "lines" and values["output"]["tokenizer"] == "characters"
    assert values["model"]["max_len"] == 32  # 21 predictions, rounded up to sixteens
    assert "lines (" in data and "→ task next, characters (" in data
    assert "sized for 27 characters" in model and "5 minutes" in model


def test_paragraphs_are_running_text_with_a_long_context(tmp_path):
    text = "Once upon a time there was text.\n\n" * 50
    values, (data, _) = chosen(tmp_path / "story.txt", text)
    assert values["data"]["format"] == "text" and values["model"]["max_len"] >= 256
    assert "paragraphs" in data


def test_a_bigram_has_nothing_to_size_and_no_budget(tmp_path):
    _, (_, model) = chosen(tmp_path / "names.txt", "anna\nbob\n", model={"name": "bigram"})
    assert model == "model: bigram: counts, exactly; nothing to size"


@pytest.mark.parametrize(
    "asked, order, priors",
    [
        ({}, "by held-out likelihood", "by evidence"),
        ({"order": 3}, "as asked", "by evidence"),
        ({"alpha": 0.0}, "by held-out likelihood", "as asked"),
    ],
)
def test_what_a_model_with_priors_chooses_by_itself_is_said(tmp_path, asked, order, priors):
    model = {"name": "map", **asked}
    _, (_, line) = chosen(tmp_path / "names.txt", "anna\nbob\n", model=model)
    assert f"order {order}, strength of the priors {priors}" in line


def test_more_data_never_gets_a_smaller_model(monkeypatch):
    products = {}
    for gpu in (False, True):
        monkeypatch.setattr(defaults, "has_gpu", lambda gpu=gpu: gpu)
        for n in range(3, 11):
            tables = {"task": {"name": "next"}, "model": {}, "train": {}}
            tables["output"] = {"tokenizer": "characters"}
            size_model(tables, text=True, total=10**n, longest=100)
            model = tables["model"]
            products.setdefault(gpu, []).append(model["n_layers"] * model["d_model"] ** 2)
    assert all(products[gpu] == sorted(products[gpu]) for gpu in (False, True))
    assert all(b >= a for a, b in zip(products[False], products[True], strict=True))


def test_bytes_need_a_context_four_times_as_long(tmp_path):
    values, _ = chosen(tmp_path / "n.txt", "anna\n" * 9 + "c" * 20, output={"tokenizer": "bytes"})
    assert values["model"]["max_len"] == 96  # 21 · 4, rounded up to sixteens


def test_it_reads_no_input_and_starts_from_language_models_alone(tmp_path):
    assert LanguageModeling.roles.encoded == ("output",)
    assert LanguageModeling.starts_from == ("next",) and LanguageModeling.keeps_head
    (tmp_path / "names.txt").write_text("anna\nbob\n" * 9)
    recipe, _ = plan_recipe([tmp_path / "names.txt"], task={"forbid": "unseen"})
    assert recipe.input is None and recipe.build_task().config.forbid == "unseen"


def test_the_card_names_commands_for_the_run():
    verbs = [verb.format(run="runs/a") for verb in LanguageModeling.card.verbs]
    assert verbs[0] == "generate runs/a" and "look runs/a TEXT" in verbs
