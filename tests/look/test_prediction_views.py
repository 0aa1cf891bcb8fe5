"""One prediction and what it rests on: the numbers of the page against those of the models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look.attribution import attribute_outputs
from regard.look.page import (
    AttentionMaps,
    Bars,
    Contributions,
    Heatmap,
    Lines,
    Scatter,
    Table,
    Tagged,
)
from regard.look.prediction_page import prediction_page
from regard.models.sequence_classifiers import ConvolutionalClassifier, RecurrentClassifier
from regard.registry import AUGMENTATIONS

TEXTS = ["acca", "bab", "cabb", "abcabc", "b", "ccc", "bacab", "aabbcc", "cb", "abba", "ca", "bca"]
CLASSES = ("high", "low", "middle")
TEXT_PARTS = ["Prediction", "What the prediction rests on", "Attention"]
MANY_PARTS = ["Records in the plane", "What each head looks for", "Right and wrong"]


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def sections(page):
    return [section.title for section in page._sections]


def test_what_is_said_of_a_text_is_what_the_model_says(make_predictor, view):
    predictor = make_predictor()
    page = view(predictor)
    assert sections(page) == [*TEXT_PARTS, *MANY_PARTS]
    (said,) = predictor.predict(["cabba"])
    answer, strongest = of(page, Bars)
    shown = dict(zip(answer.labels, answer.values, strict=True))
    assert shown == pytest.approx(said.scores) and answer.labels[0] == said.label
    assert list(answer.highlight) == [0]
    first, read = of(page, Contributions)[:2]
    assert list(first.tokens) == ["<S>", *"cabba", "<E>"]
    order = sorted(said.scores, key=lambda name: -said.scores[name])
    assert [name for name, _ in first.rows] == [f"for {name}" for name in order[:2]]
    ids = [predictor.tokenizer.start, *predictor.tokenizer.encode("cabba"), predictor.tokenizer.end]
    row = torch.tensor([[int(i) for i in ids]])
    source = Inputs(row, torch.ones_like(row))
    outputs = [CLASSES.index(name) for name in order[:2]]
    expected = attribute_outputs(predictor.model, source, outputs).numpy()
    for (_, values), wanted in zip(first.rows, expected, strict=True):
        assert values == pytest.approx(wanted.tolist(), abs=1e-6)
    largest = int(np.abs(expected[0]).argmax())
    assert strongest.labels[0] == f"{first.tokens[largest]} ({largest + 1})"
    assert [name for name, _ in read.rows] == ["attention rollout"]  # a mean has no weights to see
    assert sum(read.rows[0][1]) == pytest.approx(1, abs=1e-5)
    tap = Tap(["*.attention.weights"])
    with torch.no_grad():
        predictor.model.predict(source, tap=tap)
    weights = torch.stack([x[0] for x in tap.activations.values()]).numpy()
    assert of(page, AttentionMaps)[0].array() == pytest.approx(weights, abs=1e-6)


def test_another_class_may_be_asked_for(make_predictor, view):
    predictor = make_predictor()
    best = predictor.predict(["cabba"])[0].label
    for name in CLASSES:
        rows = of(view(predictor, target=name), Contributions)[0].rows
        assert [who for who, _ in rows] == list(dict.fromkeys([f"for {best}", f"for {name}"]))
    with pytest.raises(
        UsageError, match=r"--target: the model does not predict 'hihg'; did you mean 'high'"
    ):
        view(predictor, target="hihg")


def test_letters_are_exchanged_and_words_left_out(make_predictor, held_out, view):
    changed = of(view(make_predictor()), Heatmap)[0]
    assert list(changed.rows) == ["a", "b", "c"] and list(changed.columns) == list("cabba")
    assert all(changed.array()["abc".index(c), t] == pytest.approx(0, abs=1e-5)
               for t, c in enumerate("cabba"))  # fmt: skip
    texts = ["who is maria", "what is it", "who was it", "where was maria", "what was where"]
    predictor = make_predictor(texts=texts, kind="words")
    page = prediction_page(
        predictor, "who was maria", title="words", held_out=held_out(predictor, texts)
    )
    lost = of(page, Contributions)[-1]
    assert [name for name, _ in lost.rows] == ["left out"]
    assert lost.rows[0][1][0] == 0 and len(lost.tokens) == 5
    (table,) = [t for t in of(page, Table) if t.columns[0] == "head"]
    assert len(table.rows) == 4 and "looks for" in sections(page)[-2]


def test_positions_have_their_letters_and_a_reach(make_predictor, held_out, view):
    predictor = make_predictor("position-label")
    page = view(predictor)
    (tagged,) = of(page, Tagged)
    assert "".join(tagged.tags) == predictor.predict(["cabba"])[0].label
    assert list(tagged.tokens) == list("cabba")
    likely, rests, *_ = of(page, Heatmap)
    assert likely.array().sum(0) == pytest.approx(np.ones(5), abs=1e-6)
    assert rests.array().shape == (5, 7) and rests.scale == "diverging"
    reach = of(page, Lines)[0].series[0]
    by_distance = {d: [] for d in reach[1]}
    for place, row in enumerate(rests.array(), start=1):
        for t, value in enumerate(row):
            by_distance[t - place].append(abs(value))
    assert reach[2] == pytest.approx([np.mean(by_distance[d]) for d in reach[1]])
    plane = of(page, Scatter)[0]
    _, shard = held_out(predictor)
    assert len(plane.texts) == int((shard.targets >= 0).sum())
    at = np.flatnonzero(shard.targets >= 0)[3]
    assert plane.groups[3] == "XYZ"[shard.targets[at]]
    assert plane.texts[3].split("[")[1][0] == predictor.tokenizer.text(int(shard.ids[at]))


def test_readers_without_attention_have_what_they_have(make_predictor, view):
    page = view(make_predictor(family=ConvolutionalClassifier))
    assert sections(page) == [*TEXT_PARTS[:2], MANY_PARTS[0], "What each filter looks for",
                              MANY_PARTS[2]]  # fmt: skip
    assert [name for name, _ in of(page, Contributions)[1].rows] == ["pooling"]
    page = view(make_predictor(family=RecurrentClassifier))
    assert sections(page) == [*TEXT_PARTS[:2], MANY_PARTS[0], MANY_PARTS[2]]


def test_neighbours_are_the_nearest_records(make_predictor, view):
    predictor = make_predictor()
    page = view(predictor)
    linear, curved = of(page, Scatter)
    vectors = np.array(predictor.embed([*TEXTS, "cabba"]), np.float64)
    away = np.linalg.norm(vectors[:-1] - vectors[-1], axis=1)
    (table,) = of(page, Table)
    nearest = np.argsort(away)[: len(table.rows)]
    assert [row[1] for row in table.rows] == [TEXTS[i] for i in nearest]
    assert [row[3] for row in table.rows] == pytest.approx(away[nearest], abs=1e-4)
    for scatter in (linear, curved):
        assert scatter.marks == {**{int(i): str(n + 1) for n, i in enumerate(nearest)},
                                 len(TEXTS): "this text"}  # fmt: skip
        assert scatter.groups[0] == "unknown" and scatter.texts[-1] == "cabba"
        assert scatter.groups[-1] == predictor.predict(["cabba"])[0].label
    centred = vectors - vectors[:-1].mean(0)
    values, directions = np.linalg.eigh(np.cov(vectors[:-1].T))
    for axis in range(2):
        along = centred @ directions[:, -1 - axis]
        assert np.abs(linear.array()[:, axis]) == pytest.approx(np.abs(along), abs=1e-6)
    assert linear.x_label.endswith(f"{values[-1] / values.sum():.0%} of the variance")


def test_views_are_averaged_and_the_text_itself_explained(make_predictor, held_out):
    texts = ["ACGT", "TTACG", "GGCA", "CATTG", "TACGA", "AACC"]
    predictor = make_predictor(texts=texts, kind="nucleotides")
    predictor.views = AUGMENTATIONS["strands"]().views()
    page = prediction_page(predictor, "AACCG", title="", held_out=held_out(predictor, texts))
    assert list(of(page, Contributions)[0].tokens) == ["<S>", *"AACCG", "<E>"]
    (said,) = predictor.predict(["AACCG"])
    assert max(of(page, Bars)[0].values) == pytest.approx(max(said.scores.values()))
    assert of(page, Scatter)[0].texts[:-1] == texts
    assert "mean over 2 views" in page.render()
