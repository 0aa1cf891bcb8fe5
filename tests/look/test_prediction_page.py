"""The page about labels and values: its numbers against those of the models."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from page_parts import CLASSES, MANY_PARTS, TEXT_PARTS, TEXTS, of, sections
from scipy.stats import beta

from regard import api
from regard.data.targets import Targets
from regard.errors import UsageError, UserError
from regard.evaluation.predictions import Predictions
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look.attribution import attribute_outputs
from regard.look.classical_views import ngram_name, ngram_terms
from regard.look.figures import DRAWINGS, save_all
from regard.look.page import (
    Answer,
    AttentionMaps,
    Bars,
    Confusion,
    Contributions,
    Facts,
    Heatmap,
    Intervals,
    Lines,
    Logo,
    Page,
    RecordList,
    Scatter,
    Table,
    Tagged,
    Text,
    ValueRange,
)
from regard.look.page.records import percent
from regard.look.prediction_page import add_errors, jeffreys_interval, prediction_page
from regard.look.records import signed
from regard.models.convolution import ConvolutionalClassifier
from regard.models.linear import NaiveBayes, NaiveBayesConfig
from regard.models.recurrent import RecurrentClassifier
from regard.models.supervised import FittedModel, HeadConfig
from regard.planning import plan_recipe
from regard.registry import AUGMENTATIONS

LABEL = Targets("label", ("kind",), (CLASSES,))


def plots(task, scores, truths, targets, lengths=None):
    """The components that are added for predictions."""
    lengths = np.ones(len(truths), np.int64) if lengths is None else lengths
    page = Page("errors")
    add_errors(page, Predictions(task, scores, truths, lengths, targets), "these", "Errors")
    return page.components


@pytest.mark.parametrize("task", ["label", "position-label"])
def test_confusion_and_reliability_are_counted(task):
    random = np.random.default_rng(0)
    scores, truths = random.normal(size=(60, 3)), random.integers(-1, 3, 60)
    targets = Targets(task, ("kind",), (CLASSES,))
    lengths = np.full(6, 10) if task == "position-label" else None
    confusion, reliability, confidence = plots(task, scores, truths, targets, lengths)
    assert isinstance(confusion, Confusion) and isinstance(reliability, Lines)
    assert sum(confidence.counts) == int((truths >= 0).sum())
    by_hand = np.zeros((3, 3))
    np.add.at(by_hand, (truths[truths >= 0], scores.argmax(1)[truths >= 0]), 1)
    assert (confusion.array() == by_hand).all()
    shares = by_hand / by_hand.sum(1, keepdims=True)
    assert confusion.heatmap().array() == pytest.approx(shares)
    wrong = int(by_hand.sum() - np.trace(by_hand))
    assert confusion.note.startswith(f"{wrong} of {int(by_hand.sum())} ")
    assert confusion.unit == ("positions" if lengths is not None else "records")
    (name, confidence, accuracy), (_, x, y) = reliability.series
    assert x == y and len(confidence) == len(accuracy) and name.startswith("calibration error")
    low, high = reliability.bands[name]
    assert all(a <= b <= c for a, b, c in zip(low, accuracy, high, strict=True))


def test_unknown_truths_alone_are_not_drawn():
    (text,) = plots("label", np.zeros((4, 3)), np.full(4, -1), LABEL)
    assert isinstance(text, Text) and "known of none" in text.text


def test_of_many_classes_the_most_frequent_are_drawn(monkeypatch):
    monkeypatch.setattr("regard.look.prediction_page.MOST_CLASSES", 2)
    truths = np.array([0, 2, 2, 1, 2, 0])
    confusion = plots("label", np.eye(3)[truths], truths, LABEL)[0]
    assert confusion.classes == ["high", "middle"] and "2 most frequent of 3" in confusion.title
    assert confusion.array().tolist() == [[2, 0], [0, 3]]


def test_labels_have_a_bar_each_unless_undefined():
    targets = Targets("labels", ("a", "b"), (("0", "1"), ("0", "1")))
    scores = np.array([[2.0, 1.0], [1.0, 1.0], [-1.0, 1.0], [-2.0, 1.0]])
    truths = np.array([[1, 1], [1, 1], [0, 1], [0, 1]])
    bars, reliability = plots("labels", scores, truths, targets)
    assert isinstance(bars, Intervals) and bars.labels == ["a"] and bars.values == [1]
    assert [name.split(",")[0] for name, _, _ in reliability.series] == [
        "a",
        "b",
        "confidence = accuracy",
    ]
    assert not reliability.bands


def test_values_are_drawn_against_the_truth_without_gaps():
    targets = Targets("value", ("x", "y"), deviations=(1.0, 1.0))
    scores = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    truths = np.array([[1.5, np.nan], [np.nan, np.nan], [2.5, np.nan]], np.float32)
    (scatter,) = plots("value", scores, truths, targets)
    assert isinstance(scatter, Scatter) and scatter.diagonal
    assert scatter.array().tolist() == [[1.5, 1.0], [2.5, 3.0]]
    assert "RMSE 0.5" in scatter.title


def test_intervals_are_jeffreys_and_include_none_and_all():
    low, high = jeffreys_interval(np.array([10, 10, 10]), np.array([0.0, 0.3, 1.0]))
    assert low[0] == 0 and high[2] == 1
    assert (low[1], high[1]) == pytest.approx(beta(3.5, 7.5).ppf([0.025, 0.975]))


def test_what_is_said_of_a_text_is_what_the_model_says(make_predictor, view):
    predictor = make_predictor()
    page = view(predictor)
    assert sections(page) == [*TEXT_PARTS, *MANY_PARTS]
    (said,) = predictor.predictions(["cabba"])
    (answer,), (strongest,) = of(page, Answer), of(page, Bars)
    assert dict(answer.options) == pytest.approx(said.scores) and answer.headline == said.label
    assert list(answer.predicted) == [0] and answer.detail == percent(max(said.scores.values()))
    assert answer.verdict == "" and answer.picture["text"] == "cabba"  # the truth is not known
    changed, first, read = of(page, Contributions)[:3]
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
    drops = np.array(changed.rows[0][1])
    assert drops[0] == drops[-1] == 0  # <S> and <E> are not exchanged
    largest = int(np.abs(drops).argmax())
    assert strongest.labels[0] == f"{first.tokens[largest]} ({largest})"
    assert not any("<" in label for label in strongest.labels)
    assert [name for name, _ in read.rows] == ["attention rollout"]  # a mean has no weights to see
    assert sum(read.rows[0][1]) == pytest.approx(1, abs=1e-5)
    tap = Tap(["*.attention.weights"])
    with torch.no_grad():
        predictor.model.predict(source, tap=tap)
    weights = torch.stack([x[0] for x in tap.activations.values()]).numpy()
    assert of(page, AttentionMaps)[0].array() == pytest.approx(weights, abs=1e-6)


def test_another_class_may_be_asked_for(make_predictor, view):
    predictor = make_predictor()
    best = predictor.predictions(["cabba"])[0].label
    for name in CLASSES:
        rows = of(view(predictor, target=name), Contributions)[1].rows
        assert [who for who, _ in rows] == list(dict.fromkeys([f"for {best}", f"for {name}"]))
    with pytest.raises(
        UsageError, match=r"--target: the model does not predict 'hihg'; did you mean 'high'"
    ):
        view(predictor, target="hihg")


def test_letters_are_exchanged_and_words_left_out(make_predictor, held_out, view):
    page = view(make_predictor())
    changed = of(page, Heatmap)[0]
    means = -changed.array().sum(0) / 2  # of the two other letters
    assert of(page, Contributions)[0].rows[0][1][1:-1] == pytest.approx(means.tolist())
    assert list(changed.rows) == ["a", "b", "c"] and list(changed.columns) == list("cabba")
    assert all(changed.array()["abc".index(c), t] == pytest.approx(0, abs=1e-5)
               for t, c in enumerate("cabba"))  # fmt: skip
    texts = ["who is maria", "what is it", "who was it", "where was maria", "what was where"]
    predictor = make_predictor(texts=texts, kind="words")
    page = prediction_page(
        predictor, "who was maria", title="words", held_out=held_out(predictor, texts)
    )
    lost = of(page, Contributions)[0]
    assert [name for name, _ in lost.rows] == ["left out"]
    assert lost.rows[0][1][0] == 0 and len(lost.tokens) == 5
    (table,) = [t for t in of(page, Table) if t.columns[1] == "tokens it is strongest at"]
    assert len(table.rows) == 4 and "looks for" in sections(page)[-1]


def test_positions_have_their_letters_and_a_reach(make_predictor, held_out, view):
    predictor = make_predictor("position-label")
    page = view(predictor)
    (tagged,) = of(page, Tagged)
    assert "".join(tagged.tags) == predictor.predictions(["cabba"])[0].label
    assert list(tagged.tokens) == list("cabba")
    likely, exchanged, rests, *_ = of(page, Heatmap)
    text, names = "cabba", predictor.targets.classes[0]
    changed = [text[:2] + letter + text[3:] for letter in "ac"]  # the third letter is b
    outputs = [predictor.predict_shard(predictor.shard([t])).scores for t in (text, *changed)]
    centred = [(rows - rows.mean(1, keepdims=True))[1:-1] for rows in outputs]
    best = [names.index(tag) for tag in tagged.tags]
    drops = [centred[0] - one for one in centred[1:]]
    expected = [(drops[0][i, k] + drops[1][i, k]) / 2 for i, k in enumerate(best)]
    assert exchanged.array()[:, 3] == pytest.approx(expected, abs=1e-5)
    assert likely.array().sum(0) == pytest.approx(np.ones(5), abs=1e-6)
    assert rests.array().shape == (5, 7) and rests.scale == "diverging"
    reach, rests = of(page, Lines)[0].series[0], exchanged
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
    assert sections(page) == [*TEXT_PARTS[:2], *MANY_PARTS[:2], "What each filter looks for"]
    assert [name for name, _ in of(page, Contributions)[2].rows] == ["pooling"]
    page = view(make_predictor(family=RecurrentClassifier))
    assert sections(page) == [*TEXT_PARTS[:2], *MANY_PARTS[:2]]


def test_neighbours_are_the_nearest_records(make_predictor, view):
    predictor = make_predictor()
    page = view(predictor)
    linear, curved = of(page, Scatter)
    vectors = np.array(predictor.embed([*TEXTS, "cabba"]), np.float64)
    away = np.linalg.norm(vectors[:-1] - vectors[-1], axis=1)
    *_, table = of(page, Table)
    nearest = np.argsort(away)[: len(table.rows)]
    assert [row[1] for row in table.rows] == [TEXTS[i] for i in nearest]
    assert [row[3] for row in table.rows] == pytest.approx(away[nearest], abs=1e-4)
    for scatter in (linear, curved):
        assert scatter.marks == {**{int(i): str(n + 1) for n, i in enumerate(nearest)},
                                 len(TEXTS): "this text"}  # fmt: skip
        assert scatter.groups[0] == "unknown" and scatter.texts[-1] == "cabba"
        assert scatter.groups[-1] == predictor.predictions(["cabba"])[0].label
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
    (said,) = predictor.predictions(["AACCG"])
    assert of(page, Answer)[0].options[0][1] == pytest.approx(max(said.scores.values()))
    assert of(page, Scatter)[0].texts[:-1] == texts
    assert "mean over 2 views" in page.render()


def test_held_out_records_alone_need_no_text(make_predictor, view):
    page = view(make_predictor(), "")
    assert sections(page) == MANY_PARTS
    assert all(not scatter.marks for scatter in of(page, Scatter)) and not of(page, Table)
    page = prediction_page(make_predictor(), "cab", title="", held_out=None)
    assert sections(page) == TEXT_PARTS


def test_several_labels_and_values(make_predictor, held_out, view):
    predictor = make_predictor("labels")
    page = view(predictor)
    (answer,) = of(page, Answer)
    (columns,) = of(page, Intervals)
    (said,) = predictor.predictions(["cabba"])
    assert dict(answer.options) == pytest.approx(said.scores)
    chosen = [answer.options[i][0] for i in answer.predicted]
    assert chosen == [n for n in said.label.split(",") if n]
    assert answer.headline == (", ".join(chosen) or "none of the labels")
    assert set(columns.labels) == {"has_a", "has_b"}
    predictor = make_predictor("value")
    page = view(predictor)
    (answer,), (place,) = of(page, Answer), of(page, ValueRange)
    value = predictor.predictions(["cabba"])[0].scores["share"]
    assert place.value == pytest.approx(value) and answer.headline == signed(value)
    against = of(page, Scatter)[0]
    _, shard = held_out(predictor)
    said = [answer.scores["share"] for answer in predictor.predictions(TEXTS[1:])]
    assert against.diagonal and against.array()[:, 1] == pytest.approx(said)
    assert against.array()[:, 0] == pytest.approx(shard.targets[1:, 0])
    assert len(of(page, Scatter)[1].values) == len(TEXTS) + 1


@dataclass(frozen=True, kw_only=True)
class PriorConfig(HeadConfig):
    """Of class shares."""

    max_len: int = 12


class Prior(FittedModel):
    """Predicts the same for everything."""

    def __init__(self, config):
        super().__init__(9, config)
        self.register_buffer("shares", torch.tensor([0.5, 0.3, 0.2]))

    def fit(self, shard, valid, log):
        """There is nothing to fit."""

    def predict(self, source, *, tap=None):
        return self.shares.log().expand(len(source.ids), -1)


def test_a_fitted_model_is_judged_and_not_looked_into(make_predictor, view):
    predictor = make_predictor()
    predictor.model = Prior(PriorConfig(n_outputs=3))
    page = view(predictor)
    assert sections(page) == ["Prediction", "Right and wrong"]
    assert [p for _, p in of(page, Answer)[0].options] == pytest.approx([0.5, 0.3, 0.2])


def test_a_linear_row_shows_what_each_gram_adds(make_predictor, held_out, view):
    predictor = make_predictor()
    _, shard = held_out(predictor)
    model = NaiveBayes(predictor.tokenizer.vocab_size, NaiveBayesConfig(n_outputs=3, max_len=12))
    known = dataclasses.replace(shard, targets=np.arange(len(TEXTS), dtype=np.int32) % 3)
    model.fit(known, None, print)
    predictor.model = model
    page = view(predictor)
    assert sections(page) == ["Prediction", "What the prediction rests on", "Right and wrong",
                              "Largest coefficients"]  # fmt: skip
    text = predictor.tokenizer.encode("cabba").tolist()
    row = torch.tensor([[predictor.tokenizer.start, *text, predictor.tokenizer.end]])
    source = Inputs(row, torch.ones_like(row))
    answers = model.predict(source)[0]
    for output in range(3):
        index, values, weights = ngram_terms(model, source, output)
        bias = (model.bias - model.bias.mean())[output]
        assert float(values @ weights + bias) == pytest.approx(
            float((answers - answers.mean())[output])
        )
    names = [ngram_name(int(model.codes[i]), model, predictor.tokenizer) for i in index]
    whole = ["<S>", *"cabba", "<E>"]
    for name in names:
        assert name in "".join(whole)
    assert {"a", "b", "c"} <= set(names)
    *_, table = of(page, Table)
    assert [row[0] for row in table.rows] == list(CLASSES)


def test_every_component_can_be_drawn(tmp_path, monkeypatch, make_predictor, view):
    monkeypatch.setattr("regard.look.prediction_page.MOST_BARS", 2)
    words = {RecordList, Facts, Table, Text}
    for task in ("label", "labels", "value", "position-label"):
        page = view(make_predictor(task))
        assert {type(c) for c in page.components} - words <= set(DRAWINGS)
        assert page.render().count('data-kind="') == len(page.components)
    shown = [of(view(make_predictor()), kind)[0] for kind in (Logo, Scatter, Contributions)]
    shown += [of(view(make_predictor("value")), Scatter)[0]]
    assert len(save_all(shown, tmp_path, "svg")) == len(shown)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps on sixty records."""
    folder, random = tmp_path_factory.mktemp("looked"), np.random.default_rng(0)
    texts = ["".join(random.choice(list("abc"), 8)) for _ in range(60)]
    lines = [f"{text}\t{'more' if text.count('a') > 2 else 'few'}" for text in texts]
    (folder / "letters.tsv").write_text("\n".join(["text\tkind", *lines]) + "\n")
    keys = ["train.steps=2", "train.batch_tokens=256", "model.n_layers=1", "model.d_model=16"]
    data = {"input": "text", "target": "kind"}
    recipe, _ = plan_recipe([folder / "letters.tsv"], data=data, assignments=keys)
    return api.train_recipe(recipe, folder / "run").run


def test_the_verb_writes_the_page(look, run, tmp_path):
    out = tmp_path / "look.html"
    done = look(run, "abcabc", "--target", "few", "--out", out)
    assert done.exit_code == 0, done.output
    html = out.read_text()
    assert "abcabc" in html and "accuracy, validation" in html
    assert "records of the train split" in html  # too few are held out to show much
    done = look(run, "--out", out)
    assert done.exit_code == 0 and "held-out records" in out.read_text()


def test_what_the_verb_does_not_know_is_said(look, run, tmp_path):
    done = look(run, "abc", "--target", "moer", "--out", tmp_path / "look.html")
    assert isinstance(done.exception, UsageError) and "did you mean 'more'" in str(done.exception)
    done = look(run, "--target", "more")
    assert isinstance(done.exception, UsageError) and "--target needs a text" in str(done.exception)
    alone = tmp_path / "alone"
    shutil.copytree(run, alone)
    shutil.rmtree(alone / "data")
    (alone / "recipe.toml").unlink()  # nor can they be made again
    done = look(alone)
    assert isinstance(done.exception, UserError) and "no text given, and" in str(done.exception)
    done = look(alone, "abc", "--out", tmp_path / "text.html")
    assert done.exit_code == 0 and "Right and wrong" not in (tmp_path / "text.html").read_text()
