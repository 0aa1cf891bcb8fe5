"""Pages about classifiers that are fitted in one go: their terms against the models' answers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.layers.embeddings import Inputs
from regard.look.classifier_views import written
from regard.look.page import Contributions, Facts, Heatmap, Logo, Table
from regard.look.prediction_page import prediction_page
from regard.models.class_counts import ClassMarkov, MarkovConfig, PWMClassifier, PwmConfig
from regard.models.linear import (
    LinearConfig,
    LinearSvm,
    Logistic,
    NaiveBayes,
    NaiveBayesConfig,
    NbSvm,
    NbSvmConfig,
    Ridge,
    WindowConfig,
    WindowLogistic,
)
from regard.pipelines.predictor import Predictor
from regard.registry import TOKENIZERS
from regard.tokenizers import Kmers, Words

CLASSES = ("none", "promoter")
TARGETS = Targets("label", ("kind",), (CLASSES,))
WIDTH, SITE = 14, 5  # the motif begins at position 6, counted from 1
FAMILIES = {
    "logistic": (Logistic, LinearConfig(order=2, places="each", weighting="tf-idf", strength=1.0)),
    "svm": (LinearSvm, LinearConfig(order=3, places="each", weighting="counts", strength=1.0)),
    "nb-svm": (NbSvm, NbSvmConfig(order=2, places="each", strength=1.0)),
    "naive-bayes": (NaiveBayes, NaiveBayesConfig(order=2, places="each", alpha=1.0)),
    "anywhere": (Logistic, LinearConfig(order=2, places="any", weighting="counts", strength=1.0)),
}
READ = "GATTCTATAGATTA"  # has the motif


def drawn(count=60, width=WIDTH):
    """Half of them have TATA at one place."""
    random = np.random.default_rng(0)
    found = []
    for i in range(count):
        letters = random.choice(list("ACGT"), width)
        if i % 2:
            letters[SITE : SITE + 4] = list("TATA")
        found.append("".join(letters))
    return found


def fitted(
    family,
    config,
    texts=None,
    targets=TARGETS,
    truths=None,
    kind="nucleotides",
    max_len=WIDTH + 4,
):
    """An examiner whose model has learned from texts, in turn of the one class and the other."""
    texts = texts or drawn()
    tokenizer = TOKENIZERS[kind].train(texts)
    width = len(targets.names if targets.task == "value" else targets.classes[0])
    config = dataclasses.replace(config, task=targets.task, n_outputs=width, max_len=max_len)
    model = family(tokenizer.vocab_size, config)
    predictor = Predictor(model, tokenizer, targets)
    truths = np.arange(len(texts), dtype=np.int32) % 2 if truths is None else truths
    model.fit(dataclasses.replace(predictor.shard(texts), targets=truths), None, lambda line: None)
    return predictor


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def decision(predictor, text):
    """The scores of all classes less their mean, as the model itself says them."""
    tokenizer = predictor.tokenizer
    row = [tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.end]
    ids = torch.tensor([row])
    scores = predictor.model.predict(Inputs(ids, torch.ones_like(ids)))[0].double()
    return (scores - scores.mean()).tolist() if predictor.targets.task == "label" else scores


@pytest.mark.parametrize("name", FAMILIES)
def test_the_features_that_are_named_make_up_the_score(name):
    """Features placed at positions were read as others: `<unk>VM (second text)` for DNA, or an
    error about the id -1.
    """
    predictor = fitted(*FAMILIES[name])
    page = prediction_page(predictor, READ, title="")
    (table,) = [t for t in of(page, Table) if t.title.startswith("The score of")]
    best = predictor.predict([READ])[0].label
    assert table.title == f"The score of {best}"
    *terms, bias, score = table.rows
    assert (bias[0], score[0]) == ("bias", "score")
    wanted = decision(predictor, READ)[CLASSES.index(best)]
    assert score[3] == pytest.approx(wanted, abs=1e-6)
    assert sum(v * w for _, v, w, _ in terms) + bias[3] == pytest.approx(wanted, abs=1e-6)
    assert [v * w for _, v, w, _ in terms] == pytest.approx([added for *_, added in terms])
    framed, order = ["<S>", *READ, "<E>"], predictor.model.config.order
    positional = predictor.model.config.n_positions > 1
    there = set()
    for n in range(1, order + 1):
        for at in range(len(framed) - n + 1):
            gram = framed[at : at + n]
            if n == 1 and gram[0] in ("<S>", "<E>"):
                continue
            place = f" at {at}" if positional and gram[0] != "<S>" else ""
            there.add("".join(gram) + place)
    named = [row[0] for row in terms]
    assert len(set(named)) == len(named) and set(named) <= there
    assert len(named) > 10


def test_the_largest_coefficients_are_those_of_the_planted_site():
    page = prediction_page(fitted(*FAMILIES["svm"]), "", title="")
    (table,) = of(page, Table)
    site = {f"{'TATA'[i : i + n]} at {SITE + 1 + i}" for n in (1, 2, 3) for i in range(5 - n)}
    first = table.rows[CLASSES.index("promoter")][1].split(", ")[:6]
    assert len(first) == 6 and {term.partition(" (")[0] for term in first} <= site
    assert "second text" not in page.render() and "&lt;unk&gt;" not in page.render()


def test_values_are_sums_of_named_terms_too():
    """Ridge regression, whose scores are values in their own unit."""
    texts = drawn()
    truths = np.array([[text.count("A") * 1.5 + 7] for text in texts], np.float32)
    config = LinearConfig(order=1, places="any", weighting="counts", strength=0.01)
    predictor = fitted(Ridge, config, texts, Targets("value", ("share",)), truths)
    page = prediction_page(predictor, READ, title="")
    (table,) = [t for t in of(page, Table) if t.title == "The score of share"]
    *terms, bias, _ = table.rows
    assert {name: value for name, value, *_ in terms} == {c: READ.count(c) for c in "ACGT"}
    assert sum(v * w for _, v, w, _ in terms) + bias[3] == pytest.approx(
        READ.count("A") * 1.5 + 7, abs=0.01
    )


def test_overlapping_words_are_written_apart():
    tokenizer = Kmers.train(["ACGT"], k=3, stride=1)
    ids = tokenizer.encode("ACGTA").tolist()
    assert written(ids[2:4], tokenizer) == "ACG CGT"
    words = Words.train(["to be"])
    assert written(words.encode("to be").tolist(), words) == "to be"


def test_spaces_are_part_of_a_name():
    texts = ["a b", "ab ", " ab", "b a", "ba ", " ba"] * 4
    config = LinearConfig(order=2, places="any", weighting="counts", strength=1.0)
    predictor = fitted(Logistic, config, texts, kind="characters")
    page = prediction_page(predictor, "a b", title="")
    (table,) = [t for t in of(page, Table) if t.title.startswith("The score of")]
    names = {row[0] for row in table.rows[:-2]}
    assert names == {"a", "b", "·", "<S>a", "a·", "·b", "b<E>"}


def test_pwm_shows_its_matrix_and_its_logo():
    predictor = fitted(PWMClassifier, PwmConfig(pseudocount=1.0))
    page = prediction_page(predictor, READ, title="")
    wanted = decision(predictor, READ)
    best = int(np.argmax(wanted))
    (added,) = of(page, Contributions)
    (sums,) = [f for f in of(page, Facts) if f.title]
    assert list(added.tokens) == list(READ)
    facts = dict(sums.facts)
    assert sum(added.rows[0][1]) + facts["bias"] == pytest.approx(wanted[best], abs=1e-6)
    assert facts["score"] == pytest.approx(wanted[best], abs=1e-6)
    (matrix,) = [h for h in of(page, Heatmap) if h.title.startswith("Weight matrix")]
    assert matrix.title == "Weight matrix of promoter"
    assert list(matrix.rows) == list("ACGT")
    assert list(matrix.columns) == [str(i + 1) for i in range(WIDTH)]
    by_hand = sum(
        matrix.array()["ACGT".index(letter), i] for i, letter in enumerate(READ)
    )  # the promoter's
    bias = float(predictor.model.bias[1] - predictor.model.bias.mean())
    assert by_hand + bias == pytest.approx(wanted[1], abs=1e-6)
    logos = of(page, Logo)
    assert [logo.title for logo in logos] == [f"Sequence logo of {name}" for name in CLASSES]
    tall = logos[1].array()
    assert "".join("ACGT"[i] for i in tall[SITE : SITE + 4].argmax(1)) == "TATA"
    counts = np.array([[t[j] == a for a in "ACGT"] for t in drawn()[1::2] for j in [SITE]])
    shares = (counts.sum(0) + 0.25) / (len(counts) + 1)
    most = 2 + (shares * np.log2(shares)).sum()
    assert tall[SITE].sum() == pytest.approx(most, abs=0.1)  # the prior is not quite even


def test_long_matrices_have_logos_in_pieces():
    config = PwmConfig(pseudocount=1.0)
    predictor = fitted(PWMClassifier, config, drawn(20, 120), max_len=200)
    page = prediction_page(predictor, "", title="")
    logos = of(page, Logo)
    assert [(one.first, len(one.array())) for one in logos] == 2 * [(1, 50), (51, 50), (101, 20)]
    assert of(page, Heatmap)[0].array().shape == (4, 120)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_markov_shows_its_transitions(order):
    texts = [text[: 8 + i % 5] for i, text in enumerate(drawn())]
    predictor = fitted(ClassMarkov, MarkovConfig(order=order), texts)
    page = prediction_page(predictor, READ, title="")
    wanted = decision(predictor, READ)
    best = int(np.argmax(wanted))
    (added,) = of(page, Contributions)
    facts = dict(next(f for f in of(page, Facts) if f.title).facts)
    assert list(added.tokens) == [*READ, "<E>"]
    assert sum(added.rows[0][1]) + facts["bias"] == pytest.approx(wanted[best], abs=1e-5)
    *tables, differ = of(page, Heatmap)
    assert [t.title for t in tables] == [f"P(next | before), {name}" for name in CLASSES]
    assert differ.title == "What a transition adds to the score of promoter"
    for table in tables:
        assert set(table.columns) == {*"ACGT", "<E>"}
        assert table.array().sum(1) == pytest.approx(np.ones(len(table.rows)), abs=0.05)
    total = float(predictor.model.bias[1] - predictor.model.bias.mean())
    framed = ["<S>", *READ, "<E>"]
    for at in range(1, len(framed)):
        context = "".join(framed[max(0, at - order + 1) : at]) if order > 1 else "any"
        if context not in differ.rows:  # `<S>` alone, which is shorter than the rows
            assert order > 2 and at == 1
            total += added.rows[0][1][0] * (1 if best == 1 else -1)
            continue
        cell = list(differ.rows).index(context), list(differ.columns).index(framed[at])
        total += differ.array()[cell]
    assert total == pytest.approx(wanted[1], abs=1e-4)


def test_labels_at_positions_show_the_coefficients_around_them():
    targets = Targets("position-label", ("where",), (("X", "Y"),))
    texts = drawn(20)
    config = WindowConfig(window=3, strength=1.0)
    tokenizer = TOKENIZERS["nucleotides"].train(texts)
    config = dataclasses.replace(config, task="position-label", n_outputs=2, max_len=WIDTH + 4)
    model = WindowLogistic(tokenizer.vocab_size, config)
    predictor = Predictor(model, tokenizer, targets)
    shard = predictor.shard(texts)
    truths = np.full(shard.tokens, -1, np.int16)
    follows = np.asarray(shard.ids)[1:] == tokenizer.encode("A")[0]
    inside = np.asarray(shard.ids) > 3
    truths[inside] = np.append(follows, False)[inside]
    model.fit(dataclasses.replace(shard, targets=truths), None, lambda line: None)
    page = prediction_page(predictor, READ, title="")
    one = next(h for h in of(page, Heatmap) if h.title == "Coefficients of Y")
    assert list(one.columns) == ["-1", "0", "+1"]
    place = np.unravel_index(one.array().argmax(), one.array().shape)
    assert (one.rows[place[0]], one.columns[place[1]]) == ("A", "+1")
