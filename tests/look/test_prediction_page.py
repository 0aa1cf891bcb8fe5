"""The page about labels and values: its numbers against those of the models."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from regard import api
from regard.errors import UsageError, UserError
from regard.layers.embeddings import Inputs
from regard.look import prediction_views
from regard.look.classifier_views import ngram_name, ngram_terms
from regard.look.figures import DRAWINGS, save
from regard.look.page import (
    Bars,
    Contributions,
    Facts,
    Logo,
    Scatter,
    Table,
    Text,
)
from regard.look.prediction_page import prediction_page
from regard.models.linear import NaiveBayes, NaiveBayesConfig
from regard.models.supervised import FittedModel, HeadConfig

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


def test_held_out_records_alone_need_no_text(make_predictor, view):
    page = view(make_predictor(), "")
    assert sections(page) == MANY_PARTS
    assert all(not scatter.marks for scatter in of(page, Scatter)) and not of(page, Table)
    page = prediction_page(make_predictor(), "cab", title="", held_out=None)
    assert sections(page) == TEXT_PARTS


def test_several_labels_and_values(make_predictor, held_out, view):
    predictor = make_predictor("labels")
    page = view(predictor)
    answer, _, columns = of(page, Bars)
    (said,) = predictor.predict(["cabba"])
    assert dict(zip(answer.labels, answer.values, strict=True)) == pytest.approx(said.scores)
    assert [answer.labels[i] for i in answer.highlight] == [n for n in said.label.split(",") if n]
    assert set(columns.labels) == {"has_a", "has_b"}
    predictor = make_predictor("value")
    page = view(predictor)
    (facts,) = of(page, Facts)
    assert dict(facts.facts) == pytest.approx(predictor.predict(["cabba"])[0].scores)
    *_, against = of(page, Scatter)
    _, shard = held_out(predictor)
    said = [answer.scores["share"] for answer in predictor.predict(TEXTS[1:])]
    assert against.diagonal and against.array()[:, 1] == pytest.approx(said)
    assert against.array()[:, 0] == pytest.approx(shard.targets[1:, 0])
    assert len(of(page, Scatter)[0].values) == len(TEXTS) + 1


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
    assert of(page, Bars)[0].values == pytest.approx([0.5, 0.3, 0.2])


def test_a_linear_row_shows_what_each_gram_adds(make_predictor, held_out, view):
    predictor = make_predictor()
    _, shard = held_out(predictor)
    model = NaiveBayes(predictor.tokenizer.vocab_size, NaiveBayesConfig(n_outputs=3, max_len=12))
    known = dataclasses.replace(shard, targets=np.arange(len(TEXTS), dtype=np.int32) % 3)
    model.fit(known, None, print)
    predictor.model = model
    page = view(predictor)
    assert sections(page) == ["Prediction", "What the prediction rests on", "Largest coefficients",
                              "Right and wrong"]  # fmt: skip
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
    monkeypatch.setattr(prediction_views, "MOST_BARS", 2)
    words = {Facts, Table, Text}
    for task in ("label", "labels", "value", "position-label"):
        page = view(make_predictor(task))
        assert {type(c) for c in page.components} - words <= set(DRAWINGS)
        assert page.render().count('data-kind="') == len(page.components)
    shown = [of(view(make_predictor()), kind)[0] for kind in (Logo, Scatter, Contributions)]
    shown += [of(view(make_predictor("value")), Scatter)[0]]
    assert save(shown, tmp_path / "answers.svg").stat().st_size > 10_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps on sixty records."""
    folder, random = tmp_path_factory.mktemp("looked"), np.random.default_rng(0)
    texts = ["".join(random.choice(list("abc"), 8)) for _ in range(60)]
    lines = [f"{text}\t{'more' if text.count('a') > 2 else 'few'}" for text in texts]
    (folder / "letters.tsv").write_text("\n".join(["text\tkind", *lines]) + "\n")
    keys = ["train.steps=2", "train.batch_tokens=256", "model.n_layers=1", "model.d_model=16"]
    data = {"input": "text", "target": "kind"}
    recipe, _ = api.plan([folder / "letters.tsv"], data=data, assignments=keys)
    return api.train(recipe, folder / "run").run


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
    done = look(alone)
    assert isinstance(done.exception, UserError) and "no text given, and" in str(done.exception)
    done = look(alone, "abc", "--out", tmp_path / "text.html")
    assert done.exit_code == 0 and "Right and wrong" not in (tmp_path / "text.html").read_text()
