"""The report on a run: which checks it lists, and what becomes of errors."""

import json
import re

import pytest
import torch
from small_runs import decoder, detail, failed, lstm, names, translator

from regard.errors import UserError
from regard.models.decoder import Decoder
from regard.run import Run
from regard.verify import Check, VerifyReport, verify
from regard.verify.checks import LM_CHECKS, SEQ2SEQ_CHECKS, checks_for


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
