"""Exactness, proved on a run folder itself: every way to a number must give the same number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.errors import UserError, one_line
from regard.models.contrastive import PairEncoder
from regard.models.encoder import MaskedLM
from regard.models.forecaster import ForecastModel
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.models.series_classifiers import MaskedSeries
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel
from regard.models.word2vec import Word2Vec
from regard.run import Run
from regard.verify import contrastive_checks, files, forecast_checks, lm_checks, prediction_checks
from regard.verify.fixtures import (
    Finding,
    Fixture,
    LMFixture,
    PredictionFixture,
    Seq2SeqFixture,
    Word2VecFixture,
)

# A check returns whether its law holds and what it measured; None if it does not apply.
CheckFunction = Callable[[Any], Finding | None]
Checks = dict[str, CheckFunction]

FILE_CHECKS: Checks = {
    "save/load identity": files.save_and_load,
    "tokenizer round trip": files.tokenizer_round_trip,
    "resume bit-equality": files.resume_bit_equality,
}
LM_CHECKS: Checks = {
    "fused = explicit": lm_checks.fused_is_explicit,
    "cached = uncached": lm_checks.cached_is_uncached,
    "batch = single": lm_checks.batch_is_single,
    "padded = unpadded": lm_checks.padded_is_unpadded,
    "scores = logits": lm_checks.scores_are_logits,
    "beam 1 = greedy": lm_checks.beam_one_is_greedy,
    "beam = brute force": lm_checks.beam_is_brute_force,
    "causality by gradient": lm_checks.causality_by_gradient,
    "probabilities sum to one": lm_checks.probabilities_sum_to_one,
    **FILE_CHECKS,
}
SEQ2SEQ_CHECKS: Checks = {
    "sources together = alone": lm_checks.sources_together_are_alone,
    "translated together = alone": lm_checks.translated_together_is_alone,
    **LM_CHECKS,
}
PREDICTION_CHECKS: Checks = {
    "fused = explicit": prediction_checks.fused_is_explicit,
    "batch = single": prediction_checks.batch_is_single,
    "shuffled = in order": prediction_checks.shuffled_is_ordered,
    "permuted = in order": prediction_checks.permuted_is_ordered,
    "probabilities sum to one": prediction_checks.probabilities_sum_to_one,
    **FILE_CHECKS,
}
RECORDED: Checks = {"metrics on record": prediction_checks.metrics_are_on_record}
NEURAL_CHECKS: Checks = {
    "embedded together = alone": prediction_checks.embedded_together_is_alone,
    "gradient = finite differences": prediction_checks.gradient_is_slope,
    **PREDICTION_CHECKS,
}
WORD2VEC_CHECKS: Checks = {
    "one thread = many": prediction_checks.one_thread_is_many,
    "metrics on record": prediction_checks.word_loss_is_on_record,
    **FILE_CHECKS,
}
CONTRASTIVE_CHECKS: Checks = {
    "fused = explicit": contrastive_checks.fused_is_explicit,
    "batch = single": contrastive_checks.batch_is_single,
    "shuffled = in order": contrastive_checks.shuffled_is_ordered,
    "vectors have length one": contrastive_checks.vectors_have_length_one,
    "metrics on record": contrastive_checks.metrics_are_on_record,
    **FILE_CHECKS,
}
BY_MODEL: Mapping[type, tuple[type[Fixture], Checks]] = {  # the nearest base class decides
    LanguageModel: (LMFixture, LM_CHECKS),
    Seq2SeqModel: (Seq2SeqFixture, SEQ2SEQ_CHECKS),
    SupervisedModel: (PredictionFixture, PREDICTION_CHECKS | RECORDED),
    NeuralSupervisedModel: (PredictionFixture, NEURAL_CHECKS | RECORDED),
    MaskedLM: (PredictionFixture, NEURAL_CHECKS),
    MaskedSeries: (PredictionFixture, NEURAL_CHECKS),
    Word2Vec: (Word2VecFixture, WORD2VEC_CHECKS),
    PairEncoder: (contrastive_checks.ContrastiveFixture, CONTRASTIVE_CHECKS),
    ForecastModel: (forecast_checks.ForecastFixture, forecast_checks.CHECKS | FILE_CHECKS),
}


@dataclass(frozen=True)
class Check:
    """One law, whether it holds for a run, and what was measured."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class VerifyReport:
    """All checks that apply to a run, in order."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the document that `regard verify --json` prints."""
        checks = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in self.checks]
        return {"checks": checks, "ok": self.ok}


def checks_for(run: Run) -> tuple[Fixture, Checks]:
    """Return the fixture of a run folder, and the checks to apply to it."""
    model = run.model()
    fixture, checks = next(BY_MODEL[cls] for cls in type(model).__mro__ if cls in BY_MODEL)
    return fixture.open(run.path, model), checks


def verify(run: str | Path) -> VerifyReport:
    """Apply every check to the model of a run folder, on the CPU in single precision.

    The folder is not changed, nor is torch's random state. A check that raises has failed, and its
    detail is the error in one line; a UserError is raised only if there is no model to check.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        fixture, checks = checks_for(Run.open(run))
        results = [apply(name, check, fixture) for name, check in checks.items()]
    return VerifyReport(tuple(result for result in results if result is not None))


def apply(name: str, check: CheckFunction, fixture: Fixture) -> Check | None:
    """Return the result of one check; None if it does not apply."""
    try:
        finding = check(fixture)
    except UserError as error:
        return Check(name, False, one_line(str(error))[:300])
    except Exception as error:  # whatever goes wrong inside a check is its result
        message = " ".join(str(error).split())
        return Check(name, False, f"{type(error).__name__}: {message}"[:300])
    return None if finding is None else Check(name, *finding)
