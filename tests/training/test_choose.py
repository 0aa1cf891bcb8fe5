"""What is chosen for a user who gives a file and nothing else."""

import pytest

from regard.api import plan
from regard.errors import UserError
from regard.training.defaults import choose, shape


def table(path, **sections):
    return {"data": {"train": [str(path)]}, **sections}


def write(path, text):
    path.write_text(text)
    return path


def test_short_lines_are_records_with_a_context_that_holds_the_longest(tmp_path):
    path = write(tmp_path / "names.txt", "anna\nbob\n" + "c" * 20 + "\n")
    values, (data, model) = choose(table(path))
    assert values["data"]["format"] == "lines" and values["tokens"]["kind"] == "characters"
    assert values["model"]["max_len"] == 32  # 21 predictions, rounded up to sixteens
    assert "lines (" in data and "→ task next, characters (" in data
    assert "sized for 27 characters" in model and "5 minutes" in model


def test_paragraphs_are_running_text_with_a_long_context(tmp_path):
    path = write(tmp_path / "story.txt", "Once upon a time there was text.\n\n" * 50)
    values, (data, _) = choose(table(path))
    assert values["data"]["format"] == "text" and values["model"]["max_len"] >= 256
    assert "paragraphs" in data


def test_what_was_asked_for_is_never_changed(tmp_path):
    path = write(tmp_path / "names.txt", "anna\nbob\n" * 9)
    asked = {
        "tokens": {"kind": "bytes"},
        "model": {"name": "lstm", "n_layers": 1, "d_model": 24, "max_len": 77, "dropout": 0.4},
        "train": {"steps": 12},
    }
    values, (data, model) = choose(table(path, **asked))
    for section, keys in asked.items():
        assert {k: values[section][k] for k in keys} == keys
    assert "bytes (as asked)" in data and "as asked, context 77, dropout 0.4, 12 steps" in model


def test_the_given_tables_are_left_as_they_are(tmp_path):
    path = write(tmp_path / "names.txt", "anna\nbob\n")
    values = table(path, model={"name": "lstm"})
    choose(values)
    assert values == table(path, model={"name": "lstm"})


def test_a_bigram_has_nothing_to_size_and_no_budget(tmp_path):
    path = write(tmp_path / "names.txt", "anna\nbob\n")
    _, (_, model) = choose(table(path, model={"name": "bigram"}))
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
    path = write(tmp_path / "names.txt", "anna\nbob\n")
    _, (_, model) = choose(table(path, model={"name": "map", **asked}))
    assert f"order {order}, strength of the priors {priors}" in model


def test_more_data_never_gets_a_smaller_model():
    sizes = [shape(10**n, gpu) for gpu in (False, True) for n in range(3, 11)]
    products = [layers * width**2 for layers, width, *_ in sizes]
    assert products[:8] == sorted(products[:8]) and products[8:] == sorted(products[8:])
    assert all(b >= a for a, b in zip(products[:8], products[8:], strict=True))


def test_a_plan_is_complete_and_two_lines_explain_it(tmp_path):
    path = write(tmp_path / "names.txt", "anna\nbob\n" * 9)
    recipe, lines = plan([path], assignments=["train.lr=0.5"], model={"name": "lstm"})
    assert recipe.train.lr == 0.5 and recipe.model.name == "lstm"
    assert recipe.tokens.kind == "characters" and recipe.data.train == (str(path),)
    assert len(lines) == 2


def test_a_missing_file_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        plan([tmp_path / "none.txt"])


def test_molecules_are_recognised_whatever_their_column_is_called(tmp_path):
    """Only a column named smiles was; copies of a molecule in another were not found."""
    chains = [f"{'C' * n}(=O){tail}" for n in range(1, 6) for tail in ("O", "N", "OC")]
    path = tmp_path / "m.csv"
    path.write_text("mol,y\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(chains)))
    data = {"train": [str(path)], "input": "mol", "target": "y"}
    chosen, lines = choose({"task": "label", "data": data})
    assert chosen["tokens"]["kind"] == "smiles"
    assert "smiles (the texts are SMILES of molecules)" in lines[0]
    asked = choose({"task": "label", "data": data, "tokens": {"kind": "characters"}})[0]
    assert asked["tokens"]["kind"] == "characters"
    path.write_text("mol,y\n" + "".join(f"{'CN' * n},{n % 2}\n" for n in range(1, 20)))
    assert choose({"task": "label", "data": data})[0]["tokens"]["kind"] != "smiles"
