"""The screen Data: the report of `regard data`, and records that filters find."""

from collections import Counter

import pytest
from studio_server import MARKUP, NAMES

from regard.inspection import inspect_data
from regard.look.data_page import data_page
from regard.recipe import DataRecipe


def test_the_report_is_the_page_of_regard_data(studio):
    found = studio.call("data", "report", files=["names.txt"])
    path = studio.opened.data_folder / "names.txt"
    page = data_page(inspect_data(DataRecipe(train=(str(path),))), ["names.txt"])
    assert found["page"] == page.to_json()
    assert found["command"] == "regard data names.txt"


def test_a_run_is_reported_as_it_was_trained(studio):
    found = studio.call("data", "report", files=[], run="labels")
    assert found["page"]["subtitle"] == "label (as the run was trained)"
    assert found["command"].endswith("--input text --target label")


def test_records_are_found_by_label_split_and_text(studio):
    texts = {f"{name} {other}": "x" if name < "e" else MARKUP for name in NAMES for other in NAMES}
    found = studio.call("data", "records", files=[], run="labels")
    assert (found["all"], found["found"]) == (100, 100)
    assert dict(found["labels"]) == Counter(texts.values())
    splits = dict(found["splits"])
    assert sum(splits.values()) == 100 and set(splits) == {"train", "valid", "test"}
    second = studio.call("data", "records", files=[], run="labels", first=50)
    records = found["records"] + second["records"]
    assert {one["text"]: one["labels"][0] for one in records} == texts
    assert Counter(one["split"] for one in records) == splits
    chosen = studio.call(
        "data", "records", files=[], run="labels", label=MARKUP, split="train", text="IDA"
    )
    expected = [
        one
        for one in records
        if one["labels"] == [MARKUP] and one["split"] == "train" and "ida" in one["text"]
    ]
    assert chosen["records"] == expected and chosen["found"] == len(expected) > 0
    locations = [one["location"] for one in expected]
    assert all(each.endswith(".csv:" + each.rpartition(":")[2]) for each in locations)


def test_records_of_files_have_the_splits_that_training_would_have(studio):
    of_run = studio.call("data", "records", files=[], run="names")
    of_file = studio.call("data", "records", files=["names.txt"])
    assert of_file["records"] == of_run["records"]


@pytest.mark.parametrize("files", [[], ["no.txt"], ["../x"], ["/etc/passwd"]])
def test_other_files_are_refused(studio, files):
    assert studio.refused("data", "report", files=files)
    assert studio.refused("data", "records", files=files)


def test_the_files_of_a_run_from_elsewhere_are_not_read(studio, tmp_path):
    (tmp_path / "secret.txt").write_text("secret\n")
    recipe = (studio.opened.root / "names" / "recipe.toml").read_text()
    folder = studio.opened.root / "foreign"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "regard.json"):
        (folder / name).write_bytes((studio.opened.root / "names" / name).read_bytes())
    path = str(studio.opened.data_folder / "names.txt")
    assert path in recipe
    (folder / "recipe.toml").write_text(recipe.replace(path, str(tmp_path / "secret.txt")))
    for action in ("report", "records"):
        assert "is neither in" in studio.refused("data", action, files=[], run="foreign")


def test_a_table_shows_copies_and_near_duplicates(studio):
    long = "a rather long text that is nearly the same as another one with number {}"
    rows = [f"{long.format(i % 40)},{'ab'[i % 2]}" for i in range(300)]
    rows += [f"{long.format(i)}!,{'ab'[i % 2]}" for i in range(60)]
    (studio.opened.data_folder / "near.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    text = str(studio.call("data", "report", files=["near.csv"])["page"])
    assert "The same text several times" in text
    assert "Near-duplicates across splits" in text
