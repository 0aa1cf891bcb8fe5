"""The screen Data: the report of `regard data`, and records that filters find."""

import base64
from collections import Counter

import numpy as np
import pytest
from studio_server import MARKUP, NAMES

from regard.inspection import inspect_data
from regard.look.data_page import data_page
from regard.planning import plan_recipe
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
    records = found["records"]
    while len(records) < found["found"]:
        page = studio.call("data", "records", files=[], run="labels", first=len(records))
        assert len(page["records"]) == min(found["per_page"], 100 - len(records))
        records = records + page["records"]
    assert [one["number"] for one in records] == list(range(100))
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


def write_media(folder):
    """Write images, point clouds, molecules and series; return the arrays of the first three."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (60, 10, 12), np.uint8)
    images[:, :, 0] = np.arange(60)[:, None] % 2 * 200  # a feature that labels follow
    np.savez(folder / "images.npz", images=images, labels=np.arange(60) % 2)
    for kind in ("flat", "high"):
        (folder / "clouds" / kind).mkdir(parents=True, exist_ok=True)
        for i in range(20):
            points = draw.normal(size=(8, 3)).round(2) * (1, 1, kind == "high")
            np.savetxt(folder / "clouds" / kind / f"{i}.xyz", points, fmt="%.2f")
    rows = [f"{'C' * (1 + i // 2)}{'ON'[i % 2]},{'ab'[i % 2]}" for i in range(40)]
    (folder / "molecules.smi.csv").write_text("\n".join(["smiles,kind", *rows]) + "\n")
    days = np.datetime64("2024-01-01") + np.arange(300, dtype="m8[D]")
    sales = (10 + 5 * np.sin(np.arange(300) / 7 * 2 * np.pi)).round(2)
    lines = [f"{day},{value}" for day, value in zip(days, sales, strict=True)]
    (folder / "sales.csv").write_text("\n".join(["date,sales", *lines]) + "\n")
    return images, sales


def pictures(studio, numbers, **arguments):
    found = studio.call("data", "pictures", numbers=numbers, **arguments)["pictures"]
    assert list(found) == list(map(str, numbers))
    assert {one["kind"] for one in found.values()} == {"item-picture"}
    return [one["data"]["picture"] for one in found.values()]


def test_items_that_are_no_texts_have_pictures(studio):
    folder = studio.opened.data_folder
    images, sales = write_media(folder)
    found = studio.call("data", "records", files=["images.npz"])
    assert found["pictures"] and found["noun"] == "image" and found["per_page"] == 24
    shown = [one["number"] for one in found["records"]][::-1]
    order = [one["location"] for one in found["records"]][::-1]  # images.npz[7]
    for place, picture in zip(order, pictures(studio, shown, files=["images.npz"]), strict=True):
        pixels = np.frombuffer(base64.b64decode(picture["pixels"]), np.uint8)
        image = images[int(place.rpartition("[")[2].rstrip("]"))]
        assert picture["size"] == [10, 12, 1]
        assert np.array_equal(pixels.reshape(10, 12), image)
    part = studio.call("data", "records", files=["images.npz"], text="[17]")
    assert [one["location"] for one in part["records"]] == ["images.npz[17]"]

    found = studio.call("data", "records", files=["clouds"], label="high")
    one = found["records"][3]
    picture = pictures(studio, [one["number"]], files=["clouds"])[0]
    points = np.loadtxt(folder / "clouds" / "high" / one["location"])
    assert found["noun"] == "point cloud"
    assert np.allclose(picture["points"], points, atol=2e-3)

    found = studio.call("data", "records", files=["sales.csv"])
    curve = pictures(studio, [0], files=["sales.csv"])[0]["curves"][0]
    recipe = plan_recipe([folder / "sales.csv"])[0].data
    train = sales[: round(300 * (1 - recipe.valid_fraction - recipe.test_fraction))]
    assert found["records"][0]["split"] == "train" and len(train) > 200
    assert np.allclose(curve, train[::2])  # at most 200 steps


def test_molecules_are_drawn_with_their_structure(studio):
    pytest.importorskip("rdkit")
    write_media(studio.opened.data_folder)
    name, more = "molecules.smi.csv", {"input": "smiles", "target": "kind"}
    found = studio.call("data", "records", files=[name], **more)
    assert found["noun"] == "molecule"
    one = found["records"][5]
    picture = pictures(studio, [one["number"]], files=[name], **more)[0]
    assert picture["text"] == one["text"] and len(picture["paths"]) >= one["text"].count("C")


def test_images_with_captions_have_both(studio):
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(0)
    folder = studio.opened.data_folder / "shots"
    folder.mkdir()
    shots = draw.integers(0, 256, (20, 6, 8, 3), np.uint8)
    for i, one in enumerate(shots):
        image.fromarray(one).save(folder / f"{i}.png")
    rows = [f"{i}.png,a picture of number {i}" for i in range(20)]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    given = {"files": ["shots/captions.csv"], "input": "image", "target": "caption"}
    given["task"] = "target"
    found = studio.call("data", "records", **given)
    one = found["records"][3]
    number = int(one["text"].rpartition(" ")[2])
    assert one["text"] == f"a picture of number {number}" and one["labels"] == []
    picture = pictures(studio, [one["number"]], **given)[0]
    pixels = np.frombuffer(base64.b64decode(picture["pixels"]), np.uint8).reshape(6, 8, 3)
    assert np.array_equal(pixels, shots[number])


def test_only_a_page_of_pictures_is_drawn(studio):
    write_media(studio.opened.data_folder)
    for numbers in ([60], [-1], list(range(25))):
        assert studio.refused("data", "pictures", files=["images.npz"], numbers=numbers)
    assert not studio.call("data", "records", files=["names.txt"])["pictures"]


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


def test_classes_that_differ_only_by_case_are_named(studio):
    """In the report, and in the plan of training."""
    rows = [f"wort {i} {'abc'[i % 3]},{('Gut', 'gut', 'schlecht')[i % 3]}" for i in range(90)]
    (studio.opened.data_folder / "urteil.csv").write_text("\n".join(["text,urteil", *rows]) + "\n")
    remark = "2 classes of 'urteil' differ only by case, space or Unicode form: 'Gut' ("
    given = {"files": ["urteil.csv"], "input": "text", "target": "urteil"}
    assert remark in str(studio.call("data", "report", **given)["page"])
    order = given | {"model": "majority"}
    plan = studio.wait_for(studio.call("train", "plan", order=order)["number"])
    assert plan["state"] == "done" and remark in " ".join(plan["lines"])
