"""The checks of contrastive models find what is wrong with one."""

from __future__ import annotations

import pytest
import torch

from regard.run import Run
from regard.verify import contrastive_checks as checks


@pytest.fixture
def fixture(contrastive_run):
    return checks.ContrastiveFixture.open(contrastive_run, Run(contrastive_run).model())


@torch.no_grad()
def test_a_sound_model_passes(fixture):
    for check in (checks.batch_is_single, checks.shuffled_is_ordered, checks.fused_is_explicit):
        ok, detail = check(fixture)
        assert ok, detail
    assert checks.metrics_are_on_record(fixture)[0]


@torch.no_grad()
def test_a_vector_that_depends_on_its_batch_is_found(fixture, monkeypatch):
    embed = fixture.model.embed_texts
    monkeypatch.setattr(fixture.model, "embed_texts", lambda texts: embed(texts) * len(texts.ids))
    assert not checks.batch_is_single(fixture)[0]


@torch.no_grad()
def test_a_vector_that_depends_on_padding_is_found(fixture, monkeypatch):
    embed = fixture.model.embed_sources

    def with_padding(source):
        return embed(source) + source.ids.float().mean((1, 2))[:, None] / 255

    monkeypatch.setattr(fixture.model, "embed_sources", with_padding)
    assert not checks.shuffled_is_ordered(fixture)[0]


@torch.no_grad()
def test_other_weights_are_not_those_that_were_measured(fixture):
    fixture.model.project_texts.weight.neg_()
    ok, detail = checks.metrics_are_on_record(fixture)
    assert not ok and "on record is" in detail
