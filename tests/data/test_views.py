"""Views of records: the other strand, other spellings; one is shown in training, all answer."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.api import load, plan, train
from regard.data.batching import LabelledExamples, LabelledLoader
from regard.data.corpus import reopen
from regard.data.views import spellings, strands, views_of
from regard.errors import UsageError
from regard.models.heads import HEADS


def test_the_other_strand_by_hand():
    assert strands("AACGTN") == ["AACGTN", "NACGTT"]
    assert strands("RYKMSWBDHVN")[1] == "NBDHVWSKMRY"
    assert strands("acgu")[1] == "acgt"
    assert strands(strands("GATTACA")[1])[1] == "GATTACA"


def test_spellings_are_the_same_molecule_and_the_same_every_time():
    chem = pytest.importorskip("rdkit.Chem", reason="needs rdkit")
    found = spellings("CC(=O)Oc1ccccc1C(=O)O", 6)
    assert found == spellings("CC(=O)Oc1ccccc1C(=O)O", 6) and len(found) == 6
    assert found[0] == "CC(=O)Oc1ccccc1C(=O)O" and len(set(found)) > 3
    assert len({chem.MolToSmiles(chem.MolFromSmiles(one)) for one in found}) == 1
    assert spellings("not a molecule", 3) == ["not a molecule"] * 3


def test_no_name_no_views():
    assert views_of("") is None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Whether TTG, on either strand, is in a sequence; a run of strands."""
    folder = tmp_path_factory.mktemp("views")
    draw = np.random.default_rng(0)
    rows = ["bases\tlabel"]
    for _ in range(300):
        text = "".join(draw.choice(list("ACGT"), 12))
        rows.append(f"{text}\t{'yes' if 'TTG' in text or 'CAA' in text else 'no'}")
    (folder / "all.tsv").write_text("\n".join(rows) + "\n")
    recipe, _ = plan(
        [folder / "all.tsv"],
        data={"input": "bases", "target": "label", "augment": "strands"},
        assignments=["model.n_layers=1", "model.d_model=16", "train.steps=12"],
    )
    return train(recipe, folder / "run").run


def test_every_record_has_two_rows_and_counts_once(run):
    corpus = reopen(run)
    facts = json.loads((run / "regard.json").read_text())["data"]
    assert facts["views"] == 2 and facts["sides"]["train"]["records"] * 2 == corpus.train.records
    texts = [corpus.tokenizer.decode(corpus.train.record(i)[1:-1]) for i in range(6)]
    assert texts[1::2] == [strands(text)[1] for text in texts[::2]]
    assert np.array_equal(corpus.train.targets[::2], corpus.train.targets[1::2])


def test_a_pass_shows_each_record_once_in_one_of_its_views(run):
    corpus = reopen(run)
    loader = LabelledLoader(corpus.train, corpus.tokenizer, max_len=16, batch_tokens=140, seed=3)
    seen = []
    for n in range(2 * round(loader.steps_per_epoch)):
        seen += [row for batch in loader.step(n) for row in batch.items.tolist()]
    whole = seen[: loader.items]
    assert sorted(row // 2 for row in whole) == list(range(loader.items))
    assert 0.3 < np.mean([row % 2 for row in whole]) < 0.7
    again = {row // 2: row % 2 for row in seen[loader.items : 2 * loader.items]}
    assert any(again.get(row // 2, row % 2) != row % 2 for row in whole)  # another view later


def test_the_answer_is_the_mean_of_both_strands(run):
    predictor = load(run)
    texts = ["ACGTTGACCATG", "GGGGGGGGCCCC", "TTGCAA"]
    for text, answer in zip(texts, predictor.classify(texts), strict=True):
        alone = load(run)
        alone.views = None
        one, other = (each.scores for each in alone.classify(strands(text)))
        for name, value in answer.scores.items():
            assert value == pytest.approx((one[name] + other[name]) / 2, abs=1e-6)
    swapped = predictor.classify([strands(text)[1] for text in texts])
    for one, other in zip(predictor.classify(texts), swapped, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-6)


def test_measuring_asks_about_records(run):
    corpus = reopen(run)
    predictor = load(run)
    found = predictor.measure(corpus.test)
    records = corpus.test.records // 2
    assert found.scores.shape == (records, 2) and len(found.truths) == records
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
    recipe, _ = plan(
        [tmp_path / "some.tsv"],
        data={"input": "a", "target": "b", "augment": "strands"},
        assignments=["task=position-label", "train.steps=2"],
    )
    with pytest.raises(UsageError, match=r"data\.augment"):
        train(recipe, tmp_path / "run")
    with pytest.raises(UsageError, match="views"):
        plan([tmp_path / "some.tsv"], assignments=["data.views=3"])
