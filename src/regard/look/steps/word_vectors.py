"""Steps through word vectors: the words nearest to a word, and those that it predicts."""

from __future__ import annotations

from typing import Any, cast

from regard.look.steps.operations import Apply, Gather, RowDots, Softmax, Unit
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.word2vec import Word2Vec


@register_steps(Word2Vec)
def vector_steps(subject: StepSubject) -> None:
    """Follow a word to its neighbors in the space, and to those that it predicts in a text."""
    model, words = cast(Word2Vec, subject.model), subject.pipeline.words
    row = int(subject.tensors["rows"][0, 0])
    t = subject.start([words[row]])
    every: dict[str, Any] = {"columns": words}
    with t.level("Word") as inner:
        table = inner.given("input vectors", model.inputs, rows=words)
        formula = f"row {row + 1} of {len(words):,}, the most frequent word being the first"
        x = inner.step("Vector", Gather(row), table, formula=formula)
    with t.level("Similar words") as inner:
        unit = inner.step("Of length 1", Unit(), x, formula="v / |v|")
        table = inner.given("input vectors of length 1", subject.pipeline.unit, rows=words)
        formula, measured = "the cosine of the angle to the vector of each word", subject.output[0]
        known: dict[str, Any] = {"formula": formula, "measured": measured}
        inner.step("Cosines", RowDots(), table, unit, **known, **every)
    with t.level("Predicted neighbors") as inner:
        if model.mean:
            t.trace.notes.append("A window is read as the mean of its words: here it has this one.")
        table = inner.given("output vectors", model.outputs, rows=words)
        formula = "zᵢ = uᵢ · v, of the output vector of each word"
        x = inner.step("Scores", RowDots(), table, x, formula=formula, **every)
        if model.config.negatives:
            formula = "σ(zᵢ): is the word one of the window, and not one drawn as noise?"
            inner.step("Probabilities", Apply("sigmoid"), x, formula=formula, **every)
        else:
            formula = "pᵢ = exp(zᵢ) / Σₖ exp(zₖ): which word is in the window?"
            inner.step("Probabilities", Softmax(), x, formula=formula, **every)
