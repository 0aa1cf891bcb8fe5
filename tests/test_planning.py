"""From files and settings to a recipe, a run folder and the time of each stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from regard.errors import UsageError
from regard.planning import default_folder, plan_recipe, plan_run
from regard.run import RECIPE
from regard.training.progress import Reporter

QUIET = Reporter(quiet=True)


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "names.txt"
    path.write_text("".join(f"{a}{b}na\n" for a in "abcdef" for b in "aeiou"))
    return path


def test_options_go_where_they_belong_and_are_checked(names):
    recipe, _ = plan_recipe([names], options={"tokenizer": "bytes", "forbid": "unseen"})
    assert recipe.output.tokenizer == "bytes" and recipe.task.forbid == "unseen"
    with pytest.raises(UsageError, match=r"no setting 'horizon' for task next of text; choose"):
        plan_recipe([names], options={"horizon": 3}, task={"name": "next"})
    with pytest.raises(UsageError, match=r"output.vocab_size"):
        plan_recipe([names], options={"vocab_size": "many"})


def test_settings_of_one_tokenizer_are_checked_with_it(tmp_path):
    """--tokenizer kmers --k 3 was refused, since k was checked without the tokenizer."""
    path = tmp_path / "dna.txt"
    path.write_text("ACGTACGTTGCA\n" * 30)
    options = {"tokenizer": "kmers", "k": 3, "stride": 1}
    recipe, _ = plan_recipe([path], model={"name": "bigram"}, options=options)
    assert {key: getattr(recipe.output, key) for key in options} == options
    with pytest.raises(UsageError, match="k is for kmers, not for nucleotides"):
        plan_recipe([path], options={"tokenizer": "nucleotides", "k": 3})


def test_a_modality_that_is_named_decides_what_arrays_hold(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, items=np.zeros((40, 20, 2)) + np.arange(40)[:, None, None], y=np.arange(40) % 2)
    settings = {"data": {"input": "items", "target": "y"}, "task": {"name": "label"}}
    kinds = {"time-series": "series", "images": "patches", "point-clouds": "points"}
    for modality, kind in kinds.items():
        assert plan_recipe([path], modality=modality, **settings)[0].reads == kind
    with pytest.raises(UsageError, match="unknown modality 'sounds'"):
        plan_recipe([path], modality="sounds", **settings)


def test_a_run_folder_is_named_after_file_and_model_and_numbered(names):
    tables = {"model": {"name": "bigram"}}
    _, values, folder = plan_run([names], None, tables, reporter=QUIET)
    assert folder == "runs/names-bigram" and values["model"]["name"] == "bigram"
    Path(folder).mkdir(parents=True)
    assert default_folder(names, "bigram", False) == Path("runs/names-bigram-2")
    assert default_folder(names, "bigram", True) == Path(folder)


def test_a_run_that_goes_on_keeps_its_recipe(names, capsys):
    tables = {"model": {"name": "bigram"}}
    recipe, _ = plan_recipe([names], **tables)
    run = Path("runs/one")
    run.mkdir(parents=True)
    from regard.recipe import to_toml

    (run / RECIPE).write_text(to_toml(recipe))
    other = {"model": {"name": "unigram"}}
    first, values, folder = plan_run([run], None, other, resume=True, reporter=QUIET)
    assert (first, folder) == (None, str(run)) and values["model"]["name"] == "bigram"
    assert "other options do not change a run that goes on" in capsys.readouterr().err
    with pytest.raises(ValueError, match="is a run: --resume goes on with it"):
        plan_run([run], None, {}, reporter=QUIET)


def test_options_of_one_tokenizer_are_placed_together(tmp_path):
    """`--tokenizer kmers --k 3` was refused: k was checked before the tokenizer was known."""
    path = tmp_path / "genes.txt"
    path.write_text("".join(f"{a}{b}ACGTACGT\n" for a in "ACGT" for b in "ACGT"))
    recipe, _ = plan_recipe([path], options={"k": 3, "tokenizer": "kmers"}, task={"name": "next"})
    assert recipe.output.k == 3 and recipe.output.tokenizer == "kmers"
    with pytest.raises(UsageError, match="k is for kmers, not for nucleotides"):
        plan_recipe([path], options={"k": 3, "tokenizer": "nucleotides"}, task={"name": "next"})


@pytest.mark.parametrize(("preset", "refused"), [("modern", True), ("bert", False)])
def test_a_model_that_cannot_be_exported_is_said_to_be_so_before_training(
    tmp_path, preset, refused
):
    path = tmp_path / "kinds.csv"
    path.write_text("text,kind\n" + "".join(f"{a} {b},{a}\n" for a in "xy" for b in range(30)))
    model = {"name": "transformer", "preset": preset}
    _, lines = plan_recipe([path], data={"target": "kind"}, model=model)
    assert any("cannot export norm = 'rms'" in line for line in lines) == refused
