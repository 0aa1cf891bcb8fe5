"""The film of a classifier and of a tagger as the page gets it, against the film and the files."""

from __future__ import annotations

import base64

import numpy as np
import pytest

import regard
from regard.api import train_recipe
from regard.planning import plan_recipe
from regard.studio.film_views import map_json, record_json, split_of
from regard.studio.opened import Opened
from regard.studio.pipeline_reading import open_reader, reader_of
from regard.studio.screens.read import Read
from regard.studio.wire import decode, encode
from regard.training.film import Film

SHAPE = ["model.n_layers=2", "model.d_model=16", "model.n_heads=2", "model.n_kv_heads=2"]
SHAPE += ["model.d_head=8", "model.d_ff=16", "train.steps=4", "train.batch_tokens=128"]
SHAPE += ["train.eval_every=2", "train.device=cpu", "train.film=true", "model.name=transformer"]


def filmed(folder, rows, task):
    """Train on rows of a sequence and a target; return the film and what reads texts."""
    table = folder / "table.csv"
    table.write_text("seq,kind\n" + "".join(f"{a},{b}\n" for a, b in rows))
    keys = [*SHAPE, "data.target=kind", f"task.name={task}"]
    recipe, _ = plan_recipe([table], assignments=keys)
    train_recipe(recipe, folder / "run")
    return Film.open(folder / "run"), open_reader(regard.load(folder / "run"))


def sequences(count, size=30):
    random = np.random.default_rng(0)
    return ["".join(random.choice(list("ACGT"), size)) for _ in range(count)]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    texts = sequences(200)
    rows = [(text, "ab"[text[0] in "AC"]) for text in texts]
    return *filmed(tmp_path_factory.mktemp("kinds"), rows, "label"), dict(rows)


def test_records_of_a_classifier_have_their_labels_and_answers(kinds):
    film, reader, labels = kinds
    answer = decode(encode(map_json(film, reader, split_of(reader))))
    np.testing.assert_array_equal(answer["points"], film.points)
    column = answer["columns"]["kind"]
    by_beginning = {text[:10]: label for text, label in labels.items()}
    for name, code in zip(answer["names"], column["codes"], strict=True):
        assert column["names"][code] == by_beginning[name[:10]]
    expected = answer["expected"]
    for frame in range(len(film.steps)):
        for record in range(len(film.records)):
            best = max(film.probabilities(frame, record), key=lambda one: one[1])[0]
            told = expected["names"][expected["codes"][frame, record]]
            assert told == reader.pipeline.targets.classes[0][best]
    assert expected["names"] == column["names"]  # so that they have the same colours


def test_heads_are_those_of_the_film(kinds):
    film, reader, _ = kinds
    answer = decode(encode(map_json(film, reader, None)))
    assert [layer["title"] for layer in answer["layers"]] == ["layer 1", "layer 2"]
    assert "kind" not in answer["columns"]  # without the data nothing is known
    for k, values in enumerate(film.attention.values()):
        for place, measure in enumerate(("bits", "offset", "first", "previous")):
            np.testing.assert_array_equal(answer["heads"][measure][k], values[..., place])


def test_the_true_class_of_one_record_is_told(kinds):
    film, reader, labels = kinds
    answer = record_json(film, reader, split_of(reader), 3)
    (truth,) = answer["truths"]
    beginning = "".join(answer["tokens"][1:11])
    known = {text[:10]: label for text, label in labels.items()}
    assert answer["names"][str(truth)] == known[beginning]


def test_a_tagger_has_a_true_class_at_each_token(tmp_path):
    texts = sequences(80, 12)
    rows = [(text, "".join("x" if c in "AC" else "y" for c in text)) for text in texts]
    film, reader = filmed(tmp_path, rows, "position-label")
    answer = record_json(film, reader, split_of(reader), 0)
    pairs = zip(answer["tokens"], answer["truths"], strict=False)
    classes = reader.pipeline.targets.classes[0]
    told = [(token, classes[truth]) for token, truth in pairs if truth >= 0]
    assert len(told) == 12
    assert all((kind == "x") == (token in "AC") for token, kind in told)


def test_images_are_points_and_are_drawn(tmp_path):
    random = np.random.default_rng(0)
    labels = np.arange(120) % 2
    images = (random.random((120, 8, 8)) * 100 + 150 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "images.npz", images=images, labels=labels)
    recipe, _ = plan_recipe([tmp_path / "images.npz"], assignments=SHAPE)
    train_recipe(recipe, tmp_path / "runs" / "images")
    film = Film.open(tmp_path / "runs" / "images")
    screen = Read(Opened(tmp_path / "runs"))
    assert screen.open("images")["film"] and screen.open("images")["reads"] is None
    answer = screen.film("images", 5)
    shown = answer["picture"]["data"]["picture"]
    pixels = np.frombuffer(base64.b64decode(shown["pixels"]), np.uint8).reshape(shown["size"])
    record = int(film.records[5])
    kept = split_of(reader_of(regard.load(tmp_path / "runs" / "images")))
    label = int(kept.targets[record])
    assert (images[labels == label] == pixels[..., 0]).all((1, 2)).sum() == 1
    column = screen.film_map("images")["columns"]["label"]
    assert column["names"][column["codes"][5]] == str(label)
    assert answer["names"][str(answer["truths"][0])] == str(label)
