"""Pictures told in words through every verb: the same commands as for translators."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from regard.storage import read_tensors

COLOURS = {"red": (220, 30, 40), "green": (30, 170, 60), "blue": (40, 60, 220)}
SHAPES = ("square", "bar", "pillar")


def drawn(colour, shape, row, column):
    """A shape of 4 × 4 pixels, or half of it, on 8 × 8 of white."""
    image = np.full((8, 8, 3), 255, np.uint8)
    tall, wide = {"square": (4, 4), "bar": (2, 4), "pillar": (4, 2)}[shape]
    image[row : row + tall, column : column + wide] = COLOURS[colour]
    return image


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Shapes somewhere, and what they are; a group for every place of every shape."""
    images, captions = [], []
    for colour in COLOURS:
        for shape in SHAPES:
            for row in range(5):
                for column in range(5):
                    images.append(drawn(colour, shape, row, column))
                    captions.append(f"a {colour} {shape}")
    order = np.random.default_rng(0).permutation(len(images))
    path = tmp_path_factory.mktemp("shapes") / "shapes.npz"
    np.savez(path, images=np.stack(images)[order], captions=np.array(captions)[order])
    return path


@pytest.fixture(scope="module")
def run(shapes, tmp_path_factory):
    """A small captioner that has learned them."""
    import regard.cli

    out = tmp_path_factory.mktemp("runs") / "captioner"
    words = ["--task=target", "--set=model.n_layers=1", "--set=model.d_model=32", "--quiet"]
    words += ["--set=model.n_encoder_layers=1", "--set=input.patch=4", "--set=train.steps=110"]
    words += ["--set=train.batch_tokens=160", "--set=data.test_fraction=0.2", "--out", str(out)]
    words += ["--set=train.checkpoint_every=40", "--set=augment.shift=0.05"]
    words += ["--set=train.average_last=0", "--set=train.eval_every=55"]
    assert regard.cli.run(["train", str(shapes), *words]) in (0, None)
    return out


def test_it_learns_to_tell_shapes(cli, run, shapes):
    held = cli("evaluate", run, "--json").document
    assert held["split"] == "test" and held["metrics"]["exact"]["value"] >= 90
    given = cli("evaluate", run, shapes, "--target", "captions", "--json").document["metrics"]
    assert given["exact"]["value"] >= 90 and given["chrf"]["value"] >= 90
    lines = cli("score", run, shapes, "--target", "captions").out.splitlines()
    assert [line.split("\t")[1] for line in lines] == np.load(shapes)["captions"].tolist()
    assert float(np.mean([float(line.split("\t")[0]) for line in lines])) > -3


def test_pictures_are_told_from_files_lists_and_arrays(cli, run, shapes):
    image = pytest.importorskip("PIL.Image")
    held = np.load(shapes)
    lines = cli("translate", run, shapes, "--strategy", "greedy").out.splitlines()
    assert np.mean([a == b for a, b in zip(lines, held["captions"], strict=True)]) >= 0.9
    Path("some").mkdir()
    image.fromarray(held["images"][4]).save("some/one.png")
    Path("some/list.txt").write_text("one.png\n\none.png\n")  # from its own folder
    assert cli("translate", run, "some/list.txt").out.splitlines() == [
        (one := cli("translate", run, "some/one.png").out.strip()),
        "",
        one,
    ]
    told = cli("translate", run, "some", "--n-best", 3, "--json").document["sequences"]
    assert len(told) == 3 and told[0]["text"] == one and told[0]["input"].endswith("one.png")
    Path("list.txt").write_text("two.png\n")
    result = cli("translate", run, "list.txt")
    assert result.code == 1 and "two.png: no such file" in result.err


def test_verify_holds_for_captions(cli, run):
    result = cli("verify", run, "--json")
    failed = [check for check in result.document["checks"] if not check["ok"]]
    names = [check["name"] for check in result.document["checks"]]
    assert not failed and {"sources together = alone", "resume bit-equality"} <= set(names)


def test_a_captioner_that_was_stopped_ends_where_it_would_have(cli, run, shapes, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(run, again)
    last = sorted((again / "checkpoints").iterdir())[-1]
    assert "110" in last.name
    shutil.rmtree(last)
    assert cli("train", shapes, "--out", again, "--resume", "--quiet").code in (0, None)
    one, two = (read_tensors(folder / "model.safetensors") for folder in (run, again))
    assert one.keys() == two.keys() and all(bool((one[key] == two[key]).all()) for key in one)


def test_there_is_no_class_to_export_to(cli, run):
    result = cli("export", run, "hf", "--to", "hf")
    assert result.code == 1 and "Captioner cannot be exported" in result.err


def test_look_shows_where_it_looks_for_each_word(cli, run, shapes):
    result = cli("look", run, f"{shapes}[5]", "--out", "look.html", "--target", "a blue bar")
    page = Path("look.html").read_text(encoding="utf-8")
    assert result.code in (0, None)
    for section in ("Caption", "Attention for each word", "What each word rests on"):
        assert f"<h2>{section}</h2>" in page
    assert page.count('data-kind="image-maps"') == 1 and "the caption given" in page
    assert cli("look", run, "--target", "a blue bar").code == 2


def test_the_nearest_picture_is_a_model_too(cli, shapes):
    words = ["--task=target", "--model=nearest", "--quiet", "--set=data.test_fraction=0.2"]
    assert cli("train", shapes, *words, "--out=n").code in (0, None)
    found = cli("evaluate", "n", shapes, "--target", "captions", "--json").document["metrics"]
    assert 80 <= found["exact"]["value"] <= 100  # those of training are their own nearest
    page = cli("look", "n", f"{shapes}[5]", "--out", "look.html")
    assert page.code in (0, None) and "The nearest image" in Path("look.html").read_text()
    checks = cli("verify", "n", "--json").document["checks"]
    assert checks and all(check["ok"] for check in checks)


@pytest.mark.slow
def test_both_are_rows_of_a_table(cli, shapes):
    words = ["--task=target", "--out=c", "--json", "--minutes=0.1", "--set=model.d_model=32"]
    found = cli("compare", shapes, *words, "--set=model.n_layers=1").document
    assert {row["model"] for row in found["rows"]} == {"nearest", "transformer"}
    assert all(row["metrics"]["chrf"]["value"] for row in found["rows"]) and found["verdict"]


def test_what_is_not_for_captions_is_said(cli, shapes):
    for words, said in (
        (["--task", "target", "--model", "ibm1"], "nearest, transformer"),
        (["--task", "target", "--set", "model.image_positions=x"], "image_positions are"),
        (["--task", "next"], "images are for label, labels, value, target"),
        (["--task", "target", "--set", "output.k=3"], "unknown key 'output.k'"),
    ):
        result = cli("train", shapes, *words, "--out=r")
        assert result.code == 2 and said in result.err, (words, result.err)
