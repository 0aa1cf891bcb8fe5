"""The page of `regard look` about labels and values: its numbers against the models' own."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from regard import api
from regard.data.batching import LabelledExamples
from regard.data.targets import Targets
from regard.data.views import views_of
from regard.errors import UsageError, UserError
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look import prediction_page
from regard.look.attribution import of_outputs
from regard.look.figures import DRAWERS, save
from regard.look.ngram_weights import of_grams, spelt
from regard.look.page import (
    AttentionMaps,
    Bars,
    Contributions,
    Facts,
    Heatmap,
    Lines,
    Logo,
    Scatter,
    Table,
    Tagged,
    Text,
)
from regard.look.prediction_page import prediction_page as answer_page
from regard.look.unit_motifs import LEAST, REACH, Peaks, motifs, peaks
from regard.models.encoder import EncoderModel
from regard.models.linear import NaiveBayes, NaiveBayesConfig
from regard.models.motifs import DNA
from regard.models.sequence_classifiers import ConvolutionalClassifier, RecurrentClassifier
from regard.models.supervised import FittedModel, HeadConfig
from regard.pipelines.predictor import Predictor
from regard.tokenizers import KINDS, Words

TEXTS = ["acca", "bab", "cabb", "abcabc", "b", "ccc", "bacab", "aabbcc", "cb", "abba", "ca", "bca"]
CLASSES = ("high", "low", "middle")
TARGETS = {
    "label": Targets("label", ("kind",), (CLASSES,)),
    "labels": Targets("labels", ("has_a", "has_b"), (("0", "1"), ("0", "1"))),
    "value": Targets("value", ("share",)),
    "position-label": Targets("position-label", ("where",), (("X", "Y", "Z"),)),
}
WIDTHS = {"label": 3, "labels": 2, "value": 1, "position-label": 3}
TEXT_PARTS = ["Answer", "What the answer rests on", "Attention"]
MANY_PARTS = ["Records in the plane", "What each head looks for", "Right and wrong"]


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def examiner_of(task="label", family=EncoderModel, texts=TEXTS, kind="characters", **options):
    torch.manual_seed(0)
    tokenizer = (Words if kind == "words" else KINDS[kind]).train(texts)
    preset = next(iter(family.PRESETS.values()))
    shape = {"task": task, "n_outputs": WIDTHS[task], "max_len": 12, "dropout": 0.1}
    if family is EncoderModel:
        shape |= {"n_heads": 2, "n_kv_heads": 2, "d_head": 4}
    config = dataclasses.replace(preset(2, 16), **shape | options)
    model = family(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        model.head.weight *= 4
    return Predictor(model, tokenizer, TARGETS[task])


def held(predictor, texts=TEXTS):
    """The texts with made-up truths, one of them unknown."""
    shard, random = predictor.shard(texts), np.random.default_rng(0)
    shape, task = shard.targets.shape, predictor.targets.task
    if task == "value":
        truths = random.normal(size=shape).astype(np.float32)
        truths[0] = np.nan
    else:
        truths = random.integers(0, 2 if task == "labels" else 3, shape).astype(shard.targets.dtype)
        if task == "position-label":
            truths[shard.offsets[:-1]] = truths[shard.offsets[1:] - 1] = -1  # the markers
        truths[0] = -1
    return "test", dataclasses.replace(shard, targets=truths)


def view(predictor, text="cabba", **options):
    return answer_page(predictor, text, title="a view", **{"held": held(predictor)} | options)


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def sections(page):
    return [section.title for section in page._sections]


def test_what_is_said_of_a_text_is_what_the_model_says():
    predictor = examiner_of()
    page = view(predictor)
    assert sections(page) == [*TEXT_PARTS, *MANY_PARTS]
    (said,) = predictor.classify(["cabba"])
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
    expected = of_outputs(predictor.model, source, outputs).numpy()
    for (_, values), wanted in zip(first.rows, expected, strict=True):
        assert values == pytest.approx(wanted.tolist(), abs=1e-6)
    largest = int(np.abs(expected[0]).argmax())
    assert strongest.labels[0] == f"{first.tokens[largest]} ({largest + 1})"
    assert [name for name, _ in read.rows] == ["attention rollout"]  # a mean has no weights to see
    assert sum(read.rows[0][1]) == pytest.approx(1, abs=1e-5)
    tap = Tap(["*.attention.weights"])
    with torch.no_grad():
        predictor.model.answers(source, tap=tap)
    weights = torch.stack([x[0] for x in tap.found.values()]).numpy()
    assert of(page, AttentionMaps)[0].array() == pytest.approx(weights, abs=1e-6)


def test_another_class_may_be_asked_for():
    predictor = examiner_of()
    best = predictor.classify(["cabba"])[0].label
    for name in CLASSES:
        rows = of(view(predictor, other=name), Contributions)[0].rows
        assert [who for who, _ in rows] == list(dict.fromkeys([f"for {best}", f"for {name}"]))
    with pytest.raises(
        UsageError, match=r"--target: the model knows no 'hihg'; did you mean 'high'"
    ):
        view(predictor, other="hihg")


def test_letters_are_exchanged_and_words_left_out():
    changed = of(view(examiner_of()), Heatmap)[0]
    assert list(changed.rows) == ["a", "b", "c"] and list(changed.columns) == list("cabba")
    assert all(changed.array()["abc".index(c), t] == pytest.approx(0, abs=1e-5)
               for t, c in enumerate("cabba"))  # fmt: skip
    texts = ["who is maria", "what is it", "who was it", "where was maria", "what was where"]
    predictor = examiner_of(texts=texts, kind="words")
    page = answer_page(predictor, "who was maria", title="words", held=held(predictor, texts))
    lost = of(page, Contributions)[-1]
    assert [name for name, _ in lost.rows] == ["left out"]
    assert lost.rows[0][1][0] == 0 and len(lost.tokens) == 5
    (table,) = [t for t in of(page, Table) if t.columns[0] == "head"]
    assert len(table.rows) == 4 and "looks for" in sections(page)[-2]


def test_held_out_records_alone_need_no_text():
    page = view(examiner_of(), "")
    assert sections(page) == MANY_PARTS
    assert all(not scatter.marks for scatter in of(page, Scatter)) and not of(page, Table)
    page = answer_page(examiner_of(), "cab", title="", held=None)
    assert sections(page) == TEXT_PARTS


def test_neighbours_are_the_nearest_records():
    predictor = examiner_of()
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
        assert scatter.groups[-1] == predictor.classify(["cabba"])[0].label
    centred = vectors - vectors[:-1].mean(0)
    values, directions = np.linalg.eigh(np.cov(vectors[:-1].T))
    for axis in range(2):
        along = centred @ directions[:, -1 - axis]
        assert np.abs(linear.array()[:, axis]) == pytest.approx(np.abs(along), abs=1e-6)
    assert linear.x_label.endswith(f"{values[-1] / values.sum():.0%} of the variance")


def test_right_and_wrong_are_counted():
    predictor = examiner_of()
    side, shard = held(predictor)
    page = view(predictor, "")
    (confusion,) = of(page, Heatmap)
    by_hand = np.zeros((3, 3))
    for answer, truth in zip(predictor.classify(TEXTS), shard.targets, strict=True):
        if truth >= 0:
            by_hand[truth, CLASSES.index(answer.label)] += 1
    assert (confusion.array() == by_hand).all() and by_hand.sum() == len(TEXTS) - 1
    assert confusion.marks == [(0, 0), (1, 1), (2, 2)]
    (lines,) = of(page, Lines)
    (name, sure, right), (_, ideal, same) = lines.series
    assert ideal == same and len(sure) == len(right)
    low, high = lines.bands[name]
    assert all(a <= b <= c for a, b, c in zip(low, right, high, strict=True))
    none = dataclasses.replace(shard, targets=np.full_like(shard.targets, -1))
    page = answer_page(predictor, "", title="", held=(side, none))
    assert "none of them the truth is known" in of(page, Text)[0].text


def test_several_labels_and_values():
    predictor = examiner_of("labels")
    page = view(predictor)
    answer, _, columns = of(page, Bars)
    (said,) = predictor.classify(["cabba"])
    assert dict(zip(answer.labels, answer.values, strict=True)) == pytest.approx(said.scores)
    assert [answer.labels[i] for i in answer.highlight] == [n for n in said.label.split(",") if n]
    assert set(columns.labels) == {"has_a", "has_b"}
    predictor = examiner_of("value")
    page = view(predictor)
    (facts,) = of(page, Facts)
    assert dict(facts.facts) == pytest.approx(predictor.classify(["cabba"])[0].scores)
    *_, against = of(page, Scatter)
    _, shard = held(predictor)
    said = [answer.scores["share"] for answer in predictor.classify(TEXTS[1:])]
    assert against.diagonal and against.array()[:, 1] == pytest.approx(said)
    assert against.array()[:, 0] == pytest.approx(shard.targets[1:, 0])
    assert len(of(page, Scatter)[0].values) == len(TEXTS) + 1


def test_positions_have_their_letters_and_a_reach():
    predictor = examiner_of("position-label")
    page = view(predictor)
    (tagged,) = of(page, Tagged)
    assert "".join(tagged.tags) == predictor.classify(["cabba"])[0].label
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
    _, shard = held(predictor)
    assert len(plane.texts) == int((shard.targets >= 0).sum())
    at = np.flatnonzero(shard.targets >= 0)[3]
    assert plane.groups[3] == "XYZ"[shard.targets[at]]
    assert plane.texts[3].split("[")[1][0] == predictor.tokenizer.text(int(shard.ids[at]))


def test_readers_without_attention_have_what_they_have():
    page = view(examiner_of(family=ConvolutionalClassifier))
    assert sections(page) == [*TEXT_PARTS[:2], MANY_PARTS[0], "What each filter looks for",
                              MANY_PARTS[2]]  # fmt: skip
    assert [name for name, _ in of(page, Contributions)[1].rows] == ["pooling"]
    page = view(examiner_of(family=RecurrentClassifier))
    assert sections(page) == [*TEXT_PARTS[:2], MANY_PARTS[0], MANY_PARTS[2]]


@dataclass(frozen=True, kw_only=True)
class PriorConfig(HeadConfig):
    """Of class shares."""

    max_len: int = 12


class Prior(FittedModel):
    """Says the same of everything."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_buffer("shares", torch.tensor([0.5, 0.3, 0.2]))

    def fit(self, shard, valid, say):
        """It is fitted."""

    def answers(self, source, *, tap=None):
        return self.shares.log().expand(len(source.ids), -1)


def test_a_fitted_model_is_judged_and_not_looked_into():
    predictor = examiner_of()
    predictor.model = Prior(PriorConfig(n_outputs=3))
    page = view(predictor)
    assert sections(page) == ["Answer", "Right and wrong"]
    assert of(page, Bars)[0].values == pytest.approx([0.5, 0.3, 0.2])


def test_a_linear_row_shows_what_each_gram_adds():
    predictor = examiner_of()
    _, shard = held(predictor)
    model = NaiveBayes(predictor.tokenizer.vocab_size, NaiveBayesConfig(n_outputs=3, max_len=12))
    known = dataclasses.replace(shard, targets=np.arange(len(TEXTS), dtype=np.int32) % 3)
    model.fit(known, None, print)
    predictor.model = model
    page = view(predictor)
    assert sections(page) == ["Answer", "What the answer rests on", "Largest coefficients",
                              "Right and wrong"]  # fmt: skip
    text = predictor.tokenizer.encode("cabba").tolist()
    row = torch.tensor([[predictor.tokenizer.start, *text, predictor.tokenizer.end]])
    source = Inputs(row, torch.ones_like(row))
    answers = model.answers(source)[0]
    for output in range(3):
        columns, added = of_grams(model, source, output)
        bias = (model.bias - model.bias.mean())[output]
        assert float(added.sum() + bias) == pytest.approx(float((answers - answers.mean())[output]))
    names = [spelt(int(model.codes[i]), model, predictor.tokenizer) for i in columns]
    whole = ["<S>", *"cabba", "<E>"]
    for name in names:
        assert name in "".join(whole)
    assert {"a", "b", "c"} <= set(names)
    *_, table = of(page, Table)
    assert [row[0] for row in table.rows] == list(CLASSES)


def test_views_are_averaged_and_the_text_itself_explained():
    texts = ["ACGT", "TTACG", "GGCA", "CATTG", "TACGA", "AACC"]
    predictor = examiner_of(texts=texts, kind="nucleotides")
    predictor.views = views_of("strands")
    page = answer_page(predictor, "AACCG", title="", held=held(predictor, texts))
    assert list(of(page, Contributions)[0].tokens) == ["<S>", *"AACCG", "<E>"]
    (said,) = predictor.classify(["AACCG"])
    assert max(of(page, Bars)[0].values) == pytest.approx(max(said.scores.values()))
    assert of(page, Scatter)[0].texts[:-1] == texts
    assert "mean over 2 views" in page.render()


def test_peaks_are_where_a_head_looks_most():
    predictor = examiner_of(pooling="attention")
    with torch.no_grad():
        predictor.model.pool.score.weight.normal_()
    _, shard = held(predictor)
    asked = LabelledExamples(shard, predictor.tokenizer, 12)
    found = peaks(predictor.model, asked, predictor.tokenizer, np.arange(len(TEXTS)))
    order = [int(i) for batch in asked.batches(2048) for i in batch.items]
    assert found.names == [f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2)]
    for r, record in enumerate(order):
        ids = torch.from_numpy(np.asarray(shard.record(record)).astype(np.int64))[None]
        tap = Tap(["*.weights"])
        with torch.no_grad():
            predictor.model.answers(Inputs(ids, torch.ones_like(ids)), tap=tap)
        length, pooled = ids.size(1), tap.found["pooling.weights"][0]
        for unit, (layer, head) in enumerate(np.ndindex(2, 2)):
            weights = tap.found[f"block.{layer}.attention.weights"][0, head]
            looked = pooled @ weights if layer == 1 else weights.mean(0)
            place = int(looked[1:-1].argmax()) + 1
            assert found.strength[unit, r] == pytest.approx(float(looked[place]) * length, rel=1e-4)
            for offset, seen in zip(range(-REACH, REACH + 1), found.windows[unit, r], strict=True):
                inside = 0 < place + offset < length - 1
                assert seen == (int(ids[0, place + offset]) if inside else -1)


def test_a_logo_is_of_the_half_in_which_a_head_is_strongest():
    texts = {4: "A", 5: "C", 6: "G", 7: "T"}
    windows = np.full((1, 40, 3), -1)
    windows[0, :20] = [4, 7, 5]  # A T C where it is strong
    windows[0, 20:] = 6
    strength = np.concatenate([np.full(20, 3.0), np.full(20, 1.0)])[None]
    ((unit, matrix),) = motifs(Peaks(["layer 1, head 1"], windows, strength), texts, DNA)
    assert unit == 0 and matrix.consensus == "ATC" and matrix.sites == 20
    few = Peaks(["x"], windows[:, : LEAST - 1], strength[:, : LEAST - 1])
    assert motifs(few, texts, DNA) == []
    silent = Peaks(["x"], windows, np.zeros((1, 40)))
    assert motifs(silent, texts, DNA) == []


def test_every_picture_can_be_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_page, "MOST_BARS", 2)
    words = {Facts, Table, Text}
    for task in TARGETS:
        page = view(examiner_of(task))
        assert {type(c) for c in page.components} - words <= set(DRAWERS)
        assert page.render().count('data-kind="') == len(page.components)
    shown = [of(view(examiner_of()), kind)[0] for kind in (Logo, Scatter, Contributions)]
    shown += [of(view(examiner_of("value")), Scatter)[0]]
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
    assert "records of the train part" in html  # too few are held out to show much
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
