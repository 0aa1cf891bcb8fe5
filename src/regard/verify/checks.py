"""The list of checks and the function that runs them on a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch

from regard.errors import UserError
from regard.models.supervised import SupervisedModel
from regard.models.word2vec import Word2Vec
from regard.run import load_model, open_run
from regard.verify import prediction_checks, word2vec_checks
from regard.verify.files import resume_bit_equality, save_and_load, tokenizer_round_trip
from regard.verify.fixtures import Fixture, SequenceFixture, open_fixture
from regard.verify.lm_checks import (
    batch_is_single,
    beam_is_brute_force,
    beam_one_is_greedy,
    cached_is_uncached,
    causality_by_gradient,
    fused_is_explicit,
    padded_is_unpadded,
    probabilities_sum_to_one,
    scores_are_logits,
)
from regard.verify.prediction_checks import PredictionFixture
from regard.verify.report import Check, Finding, Report
from regard.verify.seq2seq_checks import sources_together_are_alone, translated_together_is_alone
from regard.verify.word2vec_checks import Word2VecFixture

Tried = TypeVar("Tried", bound=Fixture)

# A check says whether its property holds and what it measured; None where it does not apply.
CHECKS: dict[str, Callable[[SequenceFixture], Finding | None]] = {
    "fused = explicit": fused_is_explicit,
    "cached = uncached": cached_is_uncached,
    "batch = single": batch_is_single,
    "padded = unpadded": padded_is_unpadded,
    "scores = logits": scores_are_logits,
    "sources together = alone": sources_together_are_alone,
    "translated together = alone": translated_together_is_alone,
    "beam 1 = greedy": beam_one_is_greedy,
    "beam = brute force": beam_is_brute_force,
    "causality by gradient": causality_by_gradient,
    "probabilities sum to one": probabilities_sum_to_one,
    "save/load identity": save_and_load,
    "tokenizer round trip": tokenizer_round_trip,
    "resume bit-equality": resume_bit_equality,
}

ANSWERING: dict[
    str, Callable[[PredictionFixture], Finding | None]
] = {  # of models of labels and values
    "fused = explicit": prediction_checks.fused_is_explicit,
    "batch = single": prediction_checks.batch_is_single,
    "shuffled = in order": prediction_checks.shuffled_is_ordered,
    "points permuted = in order": prediction_checks.permuted_is_ordered,
    "embedded together = alone": prediction_checks.embedded_together_is_alone,
    "probabilities sum to one": prediction_checks.probabilities_are_some,
    "gradient = finite differences": prediction_checks.gradient_is_a_difference,
    "figures on record": prediction_checks.figures_are_on_record,
    "save/load identity": save_and_load,
    "tokenizer round trip": tokenizer_round_trip,
    "resume bit-equality": resume_bit_equality,
}

GUESSING: dict[str, Callable[[Word2VecFixture], Finding | None]] = {  # of word vectors
    "one thread = many": word2vec_checks.threads_do_not_matter,
    "figures on record": word2vec_checks.figures_are_on_record,
    "save/load identity": save_and_load,
    "tokenizer round trip": tokenizer_round_trip,
    "resume bit-equality": resume_bit_equality,
}


def verify(run: str | Path) -> Report:
    """Try every check that applies to the model in a run folder, on the CPU in single precision.

    The folder is not changed, nor is torch's random state. A check that raises has failed, and its
    detail is the error in one line; UserError is raised only where there is no model to check.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        folder = open_run(run)
        model = load_model(folder)
        if isinstance(model, SupervisedModel):
            checks = tried(ANSWERING, prediction_checks.open_prediction_fixture(folder, model))
        elif isinstance(model, Word2Vec):
            checks = tried(GUESSING, word2vec_checks.open_word2vec_fixture(folder, model))
        else:
            checks = tried(CHECKS, open_fixture(folder, model))
    return Report(checks)


def tried(
    checks: Mapping[str, Callable[[Tried], Finding | None]], subject: Tried
) -> tuple[Check, ...]:
    """The results of the checks that apply."""
    found = (try_check(name, check, subject) for name, check in checks.items())
    return tuple(check for check in found if check is not None)


def try_check(name: str, check: Callable[[Tried], Finding | None], subject: Tried) -> Check | None:
    """The result of one check; None where it does not apply."""
    try:
        finding = check(subject)
    except Exception as error:  # whatever goes wrong inside a check is what the check has found
        message = " ".join(str(error).split())
        kind = "" if isinstance(error, UserError) and message else f"{type(error).__name__}: "
        return Check(name, False, f"{kind}{message}"[:300])
    return None if finding is None else Check(name, *finding)
