"""Inputs to try a model on, and how differences are measured."""

import json
import math
import re

import pytest
import torch
from small_runs import LETTERS, decoder, detail, failed, lstm, names, translator

from regard.errors import UserError
from regard.models.decoder import Decoder
from regard.run import Run
from regard.verify import LM_CHECKS, SEQ2SEQ_CHECKS, Check, VerifyReport, checks_for, verify
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


def test_the_base_class_of_a_model_decides_which_checks_apply(tmp_path):
    fixture, checks = checks_for(Run.open(decoder(tmp_path / "decoder")))
    assert checks.keys() == LM_CHECKS.keys() and fixture.lm is fixture.model
    fixture, checks = checks_for(Run.open(translator(tmp_path / "translator")))
    assert checks.keys() == SEQ2SEQ_CHECKS.keys() and fixture.lm is not fixture.model
    assert SEQ2SEQ_CHECKS.keys() > LM_CHECKS.keys()


def test_checks_that_do_not_apply_are_left_out_of_the_report(tmp_path):
    report = verify(lstm(tmp_path / "run"))
    assert LM_CHECKS.keys() - names(report) == {"fused = explicit", "resume bit-equality"}


def test_verifying_changes_neither_the_folder_nor_the_random_state(language_runs):
    def contents():
        paths = sorted(p for p in (language_runs / "records").rglob("*") if p.is_file())
        return {p: p.read_bytes() for p in paths}

    before, state = contents(), torch.get_rng_state()
    verify(language_runs / "records")
    assert contents() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_details_give_measured_numbers_and_the_document_has_its_keys(tmp_path):
    report = verify(lstm(tmp_path / "run"))
    measured = r"max difference \d\.\de[+-]\d\d over \d+ positions.* \(allowed 1\.\de-05 .*\)"
    for name in ("cached = uncached", "batch = single", "padded = unpadded", "scores = logits"):
        assert re.fullmatch(measured, detail(report, name)), detail(report, name)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document.keys() == {"checks", "ok"} and document["ok"] is True
    assert all(check.keys() == {"name", "ok", "detail"} for check in document["checks"])


def test_one_failed_check_fails_the_report():
    assert not VerifyReport((Check("a", True, ""), Check("b", False, ""))).ok


def test_a_folder_without_a_model_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        verify(tmp_path / "absent")
    with pytest.raises(UserError, match="not a run folder"):
        verify(tmp_path)


def test_a_check_that_raises_has_failed_with_one_line(tmp_path, monkeypatch):
    def score(self, *arguments, **options):
        raise RuntimeError("no\nscore")

    monkeypatch.setattr(Decoder, "score", score)
    report = verify(decoder(tmp_path / "run"))
    assert detail(report, "scores = logits") == "RuntimeError: no score"
    assert failed(report) == {"scores = logits", "beam = brute force", "probabilities sum to one"}
