"""Steps through linear models of tokens: sums over the n-grams of a text, or over the tokens around
a position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from regard.look.classical_views import count_unknown, ngram_name
from regard.look.page.document import visible
from regard.look.steps.operations import (
    Apply,
    Dot,
    Multiply,
    Occurrences,
    Scale,
    SumRows,
    Unit,
)
from regard.look.steps.outputs import fitted_answer, target_names
from regard.look.steps.parts import ids_given
from regard.look.steps.stages import Names, Next, Stage, Tracer, Ways, chain
from regard.look.steps.subject import READS_ALL, StepSubject, register_steps
from regard.models.linear import NaiveBayes, NGramModel, WindowLogistic, decode_ngram

FORMULAS = Ways()  # (model) -> the formula of a score, and whether scores are normalized


@register_steps(NGramModel)
def ngram_steps(subject: StepSubject) -> None:
    """Count the n-grams of a text, weight the counts, and add them up."""
    model, ids = cast(NGramModel, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids), [READS_ALL])
    features = model.features(subject.inputs())  # sparse (1, F)
    order = np.argsort(features.indices)
    index = features.indices[order]
    codes = model.codes[index].tolist()
    if unknown := count_unknown(model, subject.inputs(), len(codes)):
        words = "other n-grams are not in the training records and add nothing."
        t.trace.notes.append(f"{unknown:,} {words}")
    classes = target_names(subject)
    way = FORMULAS.find(model)
    assert way is not None
    formula, logs = way(model)
    bias = t.given("bias", model.bias, columns=classes)
    if not codes:
        formula = "no n-gram of the text is known: what is left is the bias"
        fitted_answer(t, subject, Scale(1.0), bias, formula=formula, logs=logs)
        return
    names = [ngram_name(code, model, subject.pipeline.tokenizer) for code in codes]
    x = count_steps(t, model, ids[0].tolist(), codes, names)
    with t.level("Features") as inner:
        parts = WEIGHTINGS[model.weighting or model.config.weighting](inner, model.idf[index])
        for part in parts:
            part.words["columns"] = names
        x = chain(inner, x, parts, features.data[order])
    weights = t.given("coefficients", model.coefficients[index].T, rows=classes, columns=names)
    fitted_answer(t, subject, Dot(), x, weights, bias, formula=formula, logs=logs)


def count_steps(
    t: Tracer, model: NGramModel, ids: Sequence[int], codes: Sequence[int], names: Names
) -> Stage:
    """Add the tokens, and how often each known n-gram stands among them."""
    end = int(model.markers[1])
    border = ids.index(end) if end in ids else len(ids)  # n-grams of a second text begin here
    ngrams = []
    for code in codes:
        ngram = decode_ngram(code, model.vocab_size, model.config.n_positions)
        first, stop = (border, len(ids)) if ngram.second else (0, border)
        if ngram.position is not None:
            first, stop = ngram.position, ngram.position + 1
        ngrams.append((ngram.ids, first, stop))
    with t.level("Input") as inner:
        numbers = ids_given(inner, ids)
        formula = "nᵢ: how often each n-gram that the model knows stands in the text"
        how = Occurrences(tuple(ngrams))
        return inner.step("Counts", how, numbers, formula=formula, columns=names)


def plain_counts(t: Tracer, idf: Any) -> list[Next]:
    """Leave counts as they are."""
    return [Next("Features", Scale(1.0), (), "xᵢ = nᵢ")]


def presence(t: Tracer, idf: Any) -> list[Next]:
    """Say of every n-gram that it occurs."""
    return [Next("Features", Apply("present"), (), "xᵢ = 1: how often it occurs does not matter")]


def tf_idf(t: Tracer, idf: Any) -> list[Next]:
    """(1 + ln n) · idf, scaled to length 1."""
    words = "idfᵢ = ln((1 + R) / (1 + Rᵢ)) + 1: Rᵢ of R training records have the n-gram"
    rare = t.given("Rarity", idf, shown=True, formula=words)
    return [
        Next("Damped counts", Apply("log_count"), (), "1 + ln nᵢ"),
        Next("Weighted counts", Multiply(), (rare,), "yᵢ = (1 + ln nᵢ) idfᵢ"),
        Next("Features", Unit(), (), "xᵢ = yᵢ / |y|: long texts count no more than short ones"),
    ]


WEIGHTINGS: dict[str, Callable[[Tracer, Any], list[Next]]] = {
    "counts": plain_counts,
    "binary": presence,
    "tf-idf": tf_idf,
}


@FORMULAS.register(NGramModel)
def sum_of_ngrams(model: NGramModel) -> tuple[str, bool]:
    return "zᵢ = Σₖ xₖ Wᵢₖ + bᵢ, over the n-grams of the text", False


@FORMULAS.register(NaiveBayes)
def bayes(model: NaiveBayes) -> tuple[str, bool]:
    return "zᵢ = ln P(class i) + Σₖ nₖ ln P(n-gram k | class i)", True


@register_steps(WindowLogistic)
def window_steps(subject: StepSubject) -> None:
    """Add up a coefficient for each token around a position."""
    model, ids = cast(WindowLogistic, subject.model), subject.tensors["ids"][0].tolist()
    t = subject.start(subject.token_names(subject.tensors["ids"]))
    half, rows, names = model.config.window // 2, [], []
    for d in range(model.config.window):
        at = t.position + d - half
        if 0 <= at < len(ids):
            rows.append(d * model.vocab_size + ids[at])
            names.append(f"{visible(t.tokens[at])} at {d - half:+d}")
    classes = target_names(subject)
    with t.level("Input") as inner:
        ids_given(inner, ids)
    with t.level("Window") as inner:
        formula = "of every token around this one, by its distance: a coefficient for each class"
        coefficients = model.coefficients[rows]
        words: dict[str, Any] = {"formula": formula, "rows": names, "columns": classes}
        x = inner.given("Coefficients of the window", coefficients, shown=True, **words)
    bias = t.given("bias", model.bias, columns=classes)
    fitted_answer(t, subject, SumRows(), x, bias, formula="zᵢ = Σ of the column + bᵢ")
