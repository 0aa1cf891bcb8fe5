"""regard retrieve, and the options of other verbs for contrastive runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from regard.cli import run


@pytest.fixture
def red(tmp_path):
    image = np.full((1, 12, 12, 3), 245, np.uint8)
    image[0, :5, :5] = 220, 30, 30
    np.save(tmp_path / "red.npy", image)
    (tmp_path / "captions.txt").write_text(
        "a blue square of 5 top left\na red square of 5 top left\n"
    )
    return tmp_path / "red.npy"


def test_texts_are_found_for_an_image(contrastive_run, red, capsys):
    among = str(red.with_name("captions.txt"))
    assert run(["retrieve", str(contrastive_run), str(red), "--among", among]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[2] for line in lines] == [
        "a red square of 5 top left",
        "a blue square of 5 top left",
    ]


def test_images_are_found_for_texts(contrastive_run, capsys):
    arguments = [
        "retrieve",
        str(contrastive_run),
        "a red square of 5 top left",
        "a blue square of 4 top left",
    ]
    assert run([*arguments, "--num", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [len(entry["matches"]) for entry in document["queries"]] == [2, 2]
    match = document["queries"][0]["matches"][0]
    assert match["name"] == f"test image {match['id']}" or match["name"].startswith("test image")


def test_predict_takes_classes_in_words(contrastive_run, red, capsys):
    classes = "a red square of 5 top left,a blue square of 5 top left"
    assert run(["predict", str(contrastive_run), str(red), "--classes", classes]) == 0
    assert capsys.readouterr().out.startswith("a red square of 5 top left\t")
    assert run(["predict", str(contrastive_run), str(red)]) == 2
    assert "--classes" in capsys.readouterr().err


def test_texts_are_embedded_beside_images(contrastive_run, red, capsys):
    texts = str(red.with_name("captions.txt"))
    assert run(["embed", str(contrastive_run), texts, "--texts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    vector = np.array([float(x) for x in lines[0].split("\t")[1:-1]])
    assert len(lines) == 2 and np.linalg.norm(vector) == pytest.approx(1, abs=1e-4)
    assert run(["embed", str(contrastive_run), str(red)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_evaluate_prints_chance_beside_recall(contrastive_run, capsys):
    assert run(["evaluate", str(contrastive_run)]) == 0
    out = capsys.readouterr().out
    assert "text recall 1" in out and "recall by chance: " in out


def test_a_direction_that_does_not_exist_is_refused(contrastive_run, capsys):
    assert run(["retrieve", str(contrastive_run), "a", "--find", "text"]) == 2
    assert "did you mean 'texts'" in capsys.readouterr().err
