"""Inputs to try a model on, and how differences are measured."""

import math

import pytest
import torch
from small_runs import LETTERS, decoder, lstm, translator

from regard.run import Run
from regard.verify.fixtures import Gap, LMFixture, PredictionFixture, Seq2SeqFixture


@pytest.mark.parametrize(
    ("got", "expected", "worst"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([math.inf, -math.inf], [math.inf, -math.inf], 0.0),
        ([math.inf], [-math.inf], math.inf),
        ([math.nan], [math.nan], math.inf),
        ([], [], 0.0),
    ],
)
def test_the_worst_difference_counts(got, expected, worst):
    gap = Gap()
    gap.add(torch.zeros(3), torch.zeros(3), 3)
    gap.add(torch.tensor(got), torch.tensor(expected), len(got))
    assert gap.worst == worst and gap.positions == 3 + len(got)
    assert gap.finding(0.1)[0] == (worst <= 0.1)


def test_tensors_of_different_shapes_are_not_compared():
    with pytest.raises(ValueError, match=r"got shape \(2,\), expected \(3,\)"):
        Gap().add(torch.zeros(2), torch.zeros(3), 3)


def test_sequences_fit_the_model_and_packing_keeps_their_prefixes(tmp_path):
    run = lstm(tmp_path / "run")
    fixture = LMFixture.open(run, Run(run).model())
    assert fixture.ids.shape == (3, 17) and fixture.ids[:, 0].eq(fixture.tokenizer.start).all()
    assert len(set(fixture.prefixes)) == 3 and max(fixture.prefixes) <= 15
    ids, segments = fixture.pack()
    assert ids.shape == segments.shape == (1, sum(fixture.prefixes) + 1)
    assert segments[0].bincount().tolist() == [1, *fixture.prefixes]
    assert torch.equal(fixture.pack_values(fixture.ids), ids[:, :-1])


def test_sequences_come_from_the_data_if_there_is_any(language_runs, tmp_path):
    run = language_runs / "records"
    fixture = LMFixture.open(run, Run(run).model())
    first = fixture.ids[0].tolist()
    text = fixture.tokenizer.decode(first[1 : first.index(fixture.end)])
    assert text in (language_runs / "names.txt").read_text().split()


def test_a_translator_is_tried_for_one_source(tmp_path):
    run = translator(tmp_path / "run")
    fixture = Seq2SeqFixture.open(run, Run(run).model())
    source = fixture.source.ids[0]
    assert len(source) == 7 and source[-1] == fixture.tokenizer.end
    assert fixture.outputs.shape == (*fixture.ids.shape, 11)
    assert not torch.equal(fixture.outputs[0, 0], fixture.outputs[0, 5])


def test_records_are_padded_in_batches_and_random_padding_is_no_pad(prediction_runs):
    run = prediction_runs / "label"
    fixture = PredictionFixture.open(run, Run(run).model())
    assert len(fixture.records) > 8 and len({len(record) for record in fixture.records}) > 3
    order = [3, 0, 2, 1]
    (batch,) = fixture.batches(order, 4)
    assert batch.records == order
    for row, number in enumerate(order):
        inside = batch.source.segments[row] > 0
        assert torch.equal(batch.source.ids[row][inside], fixture.records[number])
        assert batch.source.ids[row][~inside].eq(fixture.pad).all()
    (longer,) = fixture.batches(order, 4, extra=3)
    assert longer.source.ids.size(1) == batch.source.ids.size(1) + 3
    assert not longer.source.ids[longer.source.segments == 0].eq(fixture.pad).all()


def test_without_a_tokenizer_the_model_is_still_tried(tmp_path):
    run = decoder(tmp_path / "run")
    (run / "tokenizer.json").write_text("{")
    fixture = LMFixture.open(run, Run(run).model())
    assert fixture.tokenizer is None and fixture.outputs.isfinite().all()
    assert fixture.model.vocab_size == 4 + len(LETTERS)
