"""The report on data chooses as `regard train` does."""

from pathlib import Path

from regard.bundled.examples import write_example
from regard.inspection import find_task, inspect_data
from regard.planning import default_folder, plan_recipe
from regard.recipe import DataRecipe


def test_the_report_suggests_what_training_chooses(tmp_path):
    for name, file in (("names", "names.txt"), ("questions", "questions.tsv")):
        write_example(name, tmp_path)
        path = str(tmp_path / file)
        report = inspect_data(DataRecipe(train=(path,)))
        recipe, _ = plan_recipe([path])
        assert report.suggestion.task == recipe.task.name
        modality = recipe.modality("input") or recipe.modality("output")
        assert report.suggestion.tokens == modality.config.tokenizer


def test_a_task_that_is_asked_for_is_taken(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ada\nbea\n")
    recipe = DataRecipe(train=(str(path),))
    assert find_task(recipe, "masked") == ("masked", "as asked", "")
    assert find_task(recipe, "")[0] == "next"


def test_a_run_gets_the_first_free_name_in_a_folder(tmp_path):
    parent = tmp_path / "other"
    file = Path("data.v1.csv")
    assert default_folder(file, "", False, parent) == parent / "data"
    (parent / "data-lstm").mkdir(parents=True)
    assert default_folder(file, "lstm", False, parent) == parent / "data-lstm-2"
    assert default_folder(file, "lstm", True, parent) == parent / "data-lstm"
