"""Single records: their texts, true targets, pictures, and the wrong ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from page_parts import TEXTS, of

from regard import api
from regard.data.targets import Targets
from regard.evaluation.predictions import conformal_reach
from regard.look.page import Answer, Confusion, RecordList
from regard.look.prediction_page import prediction_page
from regard.look.records import Records, draw_picture, find_target, signed
from regard.models.vision import VisionTransformer, vit
from regard.pipelines import load
from regard.pipelines.predictor import Predictor
from regard.planning import plan_recipe
from regard.tokenizers import Patches

KEYS = ["train.steps=2", "train.batch_tokens=256", "model.n_layers=1", "model.d_model=16"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A run on questions, many words of which are rare and thus unknown to its tokenizer."""
    folder, random = tmp_path_factory.mktemp("words"), np.random.default_rng(0)
    rows = [f"who saw {''.join(random.choice(list('klmnopq'), 6))} ?\tperson" for _ in range(60)]
    rows += [f"where is {''.join(random.choice(list('klmnopq'), 6))} ?\tplace" for _ in range(60)]
    (folder / "asked.tsv").write_text("\n".join(["question\tkind", *rows]) + "\n")
    data = {"input": "question", "target": "kind"}
    keys = [*KEYS, "input.vocab_size=16"]
    recipe, _ = plan_recipe([folder / "asked.tsv"], data=data, assignments=keys)
    lines = dict(row.split("\t") for row in rows)
    return load(api.train_recipe(recipe, folder / "run").run), lines


def test_records_have_the_text_of_the_file_and_not_unknown_words(words):
    predictor, lines = words
    split, shard = predictor.held_out()
    records = Records(predictor, split, shard)
    everything = list(range(shard.records))
    texts = records.texts(everything)
    names = predictor.targets.classes[0]
    assert len(set(texts)) == len(texts) > 4 and set(texts) <= set(lines)
    assert [lines[text] for text in texts] == [names[k] for k in shard.targets]
    decoded = [predictor.tokenizer.decode_record(records.row(i)) for i in everything]
    assert any("<unk>" in text for text in decoded)
    for i, text in enumerate(texts):
        assert np.array_equal(predictor.tokenizer.encode(text), records.row(i)[1:-1])


def test_unknown_words_are_shown_as_they_are_written(words):
    predictor, _ = words
    page = prediction_page(predictor, "who saw zebras ?", title="t")
    (answer,) = of(page, Answer)
    assert any("zebras" in note and "vocabulary" in note for note in answer.notes)
    assert "<unk>" not in "".join(note for note in answer.notes)
    assert answer.picture == {"text": "who saw zebras ?"}


def test_a_record_of_the_run_has_its_true_target_and_a_verdict(words):
    predictor, _ = words
    split, shard = predictor.held_out()
    records = Records(predictor, split, shard)
    for text in records.texts(range(6)):
        page = prediction_page(predictor, text, title="t", held_out=(split, shard))
        (answer,), said = of(page, Answer), predictor.predictions(text)
        known = find_target(predictor, predictor.shard([text]), [records])
        assert known.split == split
        right = said.label == predictor.targets.classes[0][int(known.values)]
        assert answer.verdict == ("right" if right else "wrong")
    assert find_target(predictor, predictor.shard(["who where is ?"]), [records]) is None


def test_wrong_records_are_listed_the_most_confident_first(make_predictor, held_out):
    predictor = make_predictor()
    split, shard = held_out(predictor)
    page = prediction_page(predictor, title="t", held_out=(split, shard))
    (confusion,) = of(page, Confusion)
    names, said = predictor.targets.classes[0], predictor.predictions(TEXTS)
    truths = [names[k] if k >= 0 else "" for k in shard.targets]
    wrong = [
        (max(one.scores.values()), text)
        for one, text, truth in zip(said, TEXTS, truths, strict=True)
        if truth and one.label != truth
    ]
    listed = [one for one in confusion.records if one.is_error]
    assert [one.picture["text"] for one in listed] == [t for _, t in sorted(wrong, reverse=True)]
    for one in confusion.records:
        i = TEXTS.index(one.picture["text"])
        assert list(one.cells) == [(names.index(truths[i]), names.index(said[i].label))]
    assert confusion.array().sum() == len(TEXTS) - 1  # the target of one is unknown


def test_sequences_list_the_positions_that_are_wrong(make_predictor, held_out):
    predictor = make_predictor("position-label")
    split, shard = held_out(predictor)
    page = prediction_page(predictor, title="t", held_out=(split, shard))
    (confusion,) = of(page, Confusion)
    shares = []
    for one in confusion.records:
        track = [(t, p) for _, t, p in one.picture["track"] if t is not None]
        shares.append(sum(t != p for t, p in track) / len(track))
        text = "".join(token for token, _, _ in one.picture["track"])
        assert "".join(p for _, _, p in one.picture["track"]) == predictor.predictions(text).label
    assert shares == sorted(shares, reverse=True) and min(shares) > 0


def test_the_largest_errors_of_a_value_come_first(make_predictor, held_out):
    predictor = make_predictor("value")
    split, shard = held_out(predictor)
    page = prediction_page(predictor, "cabba", title="t", held_out=(split, shard))
    (listed,) = of(page, RecordList)
    values = [one.scores["share"] for one in predictor.predictions(TEXTS)]
    errors = np.abs(np.array(values) - shard.targets[:, 0])
    order = [TEXTS[i] for i in np.argsort(-errors[1:], kind="stable") + 1]
    assert [one.picture["text"] for one in listed.records] == order


def test_an_interval_holds_its_share_of_new_errors():
    random = np.random.default_rng(0)
    held = [np.abs(random.normal(size=400)) for _ in range(200)]
    inside = [np.mean(np.abs(random.normal(size=400)) <= conformal_reach(e)) for e in held]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)


def test_large_images_become_small_ones_of_the_same_colours():
    image = np.zeros((256, 128, 3), np.uint8)
    image[:128] = (200, 100, 50)
    tokenizer = Patches.train([image], patch=16)
    config = dataclasses.replace(vit(1, 32), n_outputs=2, **tokenizer.model_config)
    model = VisionTransformer(tokenizer.vocab_size, config).eval()
    predictor = Predictor(model, tokenizer, Targets("label", ("k",), (("a", "b"),)))
    picture = draw_picture(tokenizer, predictor.shard([image]).record(0))
    assert picture["size"] == [64, 32, 3] and len(picture["pixels"]) < 10_000
    assert (signed(-1234.4), signed(0.36764)) == ("−1,234", "0.368")
