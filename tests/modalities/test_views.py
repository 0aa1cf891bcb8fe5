"""Views of records, the other strand or other spellings: training shows one, all predict."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.api import load, train_recipe
from regard.data.batching import LabelledExamples, LabelledLoader
from regard.data.corpus import prepare, reopen
from regard.data.sources import SourceChunk, Views
from regard.errors import UsageError
from regard.modalities.biology import both_strands
from regard.modalities.chemistry import spellings
from regard.models.supervised import HEADS
from regard.planning import plan_recipe
from regard.recipe import build
from regard.registry import AUGMENTATIONS

GENOME = "".join("ACGT"[i] for i in np.random.default_rng(0).integers(0, 4, 1000))
COMPLEMENT = dict(zip("ACGT", "TGCA", strict=True))


def strands(text):
    return AUGMENTATIONS["strands"]().views().texts([text])


def test_all_views_of_a_record_have_its_target_and_its_place():
    views = Views(2, lambda text, count: [text, text.upper()])
    chunk = SourceChunk(
        1, ["a", "b"], targets=[("x",), ("y",)], keys=["k", "l"], place=lambda i: f"file:{i + 1}"
    )
    both = views.of(chunk)
    assert (both.split, both.texts) == (1, ["a", "A", "b", "B"])
    assert both.targets == [("x",), ("x",), ("y",), ("y",)] and both.keys == ["k", "k", "l", "l"]
    assert [both.place(i) for i in range(4)] == ["file:1", "file:1", "file:2", "file:2"]


def test_the_other_strand_by_hand():
    assert strands("AACGTN") == ["AACGTN", "NACGTT"]
    assert strands("RYKMSWBDHVN")[1] == "NBDHVWSKMRY"
    assert strands("acgu")[1] == "acgt"
    assert strands(strands("GATTACA")[1])[1] == "GATTACA"


def test_spellings_are_the_same_molecule_and_the_same_every_time():
    chem = pytest.importorskip("rdkit.Chem", reason="needs rdkit")
    aspirin = "CC(=O)Oc1ccccc1C(=O)O"
    views = spellings(aspirin, 6)
    assert views == spellings(aspirin, 6) and len(views) == 6
    assert views[0] == aspirin and len(set(views)) > 3
    assert len({chem.MolToSmiles(chem.MolFromSmiles(view)) for view in views}) == 1
    assert spellings("not a molecule", 3) == ["not a molecule"] * 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run with both strands that predicts whether TTG is on either of them."""
    folder = tmp_path_factory.mktemp("views")
    draw = np.random.default_rng(0)
    rows = ["bases\tlabel"]
    for _ in range(300):
        text = "".join(draw.choice(list("ACGT"), 12))
        rows.append(f"{text}\t{'yes' if 'TTG' in text or 'CAA' in text else 'no'}")
    (folder / "all.tsv").write_text("\n".join(rows) + "\n")
    recipe, _ = plan_recipe(
        [folder / "all.tsv"],
        data={"input": "bases", "target": "label"},
        augment={"name": "strands"},
        assignments=["model.n_layers=1", "model.d_model=16", "train.steps=12"],
    )
    return train_recipe(recipe, folder / "run").run


def test_every_record_has_two_rows_and_counts_once(run):
    corpus = reopen(run)
    facts = json.loads((run / "regard.json").read_text())["data"]
    assert facts["views"] == 2 and facts["splits"]["train"]["records"] * 2 == corpus.train.records
    texts = [corpus.tokenizer.decode(corpus.train.record(i)[1:-1]) for i in range(6)]
    assert texts[1::2] == [strands(text)[1] for text in texts[::2]]
    assert np.array_equal(corpus.train.targets[::2], corpus.train.targets[1::2])


def test_an_epoch_shows_each_record_once_in_one_of_its_views(run):
    corpus = reopen(run)
    loader = LabelledLoader(corpus.train, corpus.tokenizer, max_len=16, batch_tokens=140, seed=3)
    rows = []
    for n in range(2 * round(loader.steps_per_epoch)):
        rows += [row for batch in loader.step(n) for row in batch.items.tolist()]
    epoch = rows[: loader.items]
    assert sorted(row // 2 for row in epoch) == list(range(loader.items))
    assert 0.3 < np.mean([row % 2 for row in epoch]) < 0.7
    second = {row // 2: row % 2 for row in rows[loader.items : 2 * loader.items]}
    assert any(second.get(row // 2, row % 2) != row % 2 for row in epoch)  # another view later


def test_the_prediction_is_the_mean_of_both_strands(run):
    predictor = load(run)
    texts = ["ACGTTGACCATG", "GGGGGGGGCCCC", "TTGCAA"]
    for text, prediction in zip(texts, predictor.predictions(texts), strict=True):
        alone = load(run)
        alone.views = None
        one, other = (each.scores for each in alone.predictions(strands(text)))
        for name, value in prediction.scores.items():
            assert value == pytest.approx((one[name] + other[name]) / 2, abs=1e-6)
    swapped = predictor.predictions([strands(text)[1] for text in texts])
    for one, other in zip(predictor.predictions(texts), swapped, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-6)


def test_metrics_are_of_records(run):
    corpus = reopen(run)
    predictor = load(run)
    result = predictor.predict_shard(corpus.test)
    records = corpus.test.records // 2
    assert result.scores.shape == (records, 2) and len(result.truths) == records
    first = LabelledExamples(corpus.test, corpus.tokenizer, 16, first=True)
    assert len(first.sizes) == records


def test_averages_of_each_task_by_hand():
    scores = torch.tensor([[[0.0, 1.0], [2.0, -1.0]]]).double()  # one record in two views
    assert HEADS["value"].average(scores).tolist() == [[1.0, 0.0]]
    expected = scores[0].softmax(-1).mean(0)
    torch.testing.assert_close(HEADS["label"].average(scores).exp()[0], expected)
    both = scores[0].sigmoid().mean(0)
    torch.testing.assert_close(HEADS["labels"].average(scores).sigmoid()[0], both)


def test_views_are_refused_where_they_mean_nothing(tmp_path):
    (tmp_path / "some.tsv").write_text("a\tb\n" + "ACGT\tHHCC\n" * 40)
    recipe, _ = plan_recipe(
        [tmp_path / "some.tsv"],
        task={"name": "position-label"},
        data={"input": "a", "target": "b"},
        augment={"name": "strands"},
        assignments=["train.steps=2"],
    )
    with pytest.raises(UsageError, match=r"augment\.name = 'strands': only for records of one"):
        train_recipe(recipe, tmp_path / "run")
    for table, message in (
        ({"name": "strands", "views": 3}, r"unknown key 'augment\.views'"),
        ({"views": 3}, "unknown augmentation 'text'"),
        ({"name": "images", "shift": 0.1}, r"augment\.name = 'images' does not apply to texts"),
    ):
        with pytest.raises(UsageError, match=message):
            build({"task": {"name": "label"}, "augment": table})


def reverse_complement(text):
    return "".join(COMPLEMENT[letter] for letter in reversed(text))


def test_only_the_training_part_of_running_text_has_its_other_strand(tmp_path):
    file = tmp_path / "genome.txt"
    file.write_text(GENOME)
    recipe, _ = plan_recipe(
        [file],
        data={"format": "text"},
        output={"tokenizer": "nucleotides"},
        augment={"name": "strands"},
        model={"name": "hyena"},
    )
    corpus = prepare(recipe, tmp_path / "run", print)
    train, valid, test = (
        [corpus.tokenizer.decode(shard.record(i)).replace("\n", "") for i in range(shard.records)]
        for shard in (corpus.train, corpus.valid, corpus.test)
    )
    assert train == [GENOME[:900], reverse_complement(GENOME[:900])]
    assert valid == [GENOME[900:950]] and test == [GENOME[950:]]
    assert corpus.facts["splits"]["train"]["records"] == 2


def test_each_document_is_followed_by_its_own_strand():
    chunks = [
        SourceChunk(0, (), begins=True), SourceChunk(0, ["AAC"]), SourceChunk(0, ["GT"]),
        SourceChunk(0, (), ends=True), SourceChunk(1, (), begins=True), SourceChunk(1, ["CCA"]),
        SourceChunk(1, (), ends=True), SourceChunk(0, (), begins=True), SourceChunk(0, ["TTN"]),
        SourceChunk(0, (), ends=True),
    ]  # fmt: skip
    documents, text = [], ""
    for chunk in both_strands(chunks):
        text = "" if chunk.begins else text + "".join(chunk.texts)
        if chunk.ends:
            documents.append((chunk.split, text))
    assert documents == [(0, "AACGT"), (0, "ACGTT"), (1, "CCA"), (0, "TTN"), (0, "NAA")]


def test_records_to_be_continued_have_one_strand(tmp_path):
    file = tmp_path / "records.txt"
    file.write_text("ACGT\nGGCA\n" * 20)
    recipe, _ = plan_recipe(
        [file],
        data={"format": "lines"},
        output={"tokenizer": "nucleotides"},
        augment={"name": "strands"},
        model={"name": "bigram"},
    )
    with pytest.raises(UsageError, match=r"data\.format = 'text'"):
        prepare(recipe, tmp_path / "run", print)
