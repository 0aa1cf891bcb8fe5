"""Steps from the vector that the head reads to an answer: the next token, or labels and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from regard.look.steps.operations import (
    Apply,
    Draw,
    KeepTopK,
    KeepTopP,
    Largest,
    LinearAt,
    LogSoftmax,
    Mix,
    Operation,
    Softmax,
    Temper,
)
from regard.look.steps.stages import Names, Stage, Tracer, Ways
from regard.look.steps.subject import StepSubject
from regard.models.supervised import ClassHead, Head, LabelsHead, Pooling, ValueHead

HEADS = Ways()  # (head) -> title, operation, formula of the probabilities


def next_token(
    t: Tracer, subject: StepSubject, head: Any, x: Stage, *, sampled: bool = True
) -> None:
    """Add the logits of every token, and how one of them is drawn."""
    names = vocabulary(subject)
    with t.level("Output") as inner:
        logits = inner.linear(
            "Logits",
            head,
            x,
            "zᵢ = Σₖ xₖ Wᵢₖ: a number for every token",
            measured=last_logits(t, subject),
            columns=names,
            lecture="logits",
        )
    sampling_steps(t, logits, names, sampled)


def last_logits(t: Tracer, subject: StepSubject) -> Any:
    """Return the logits of the position, as the model computed them."""
    return subject.output[0, t.position]


def vocabulary(subject: StepSubject) -> Names:
    """Return how every token of the vocabulary is displayed."""
    size = int(subject.output.size(-1))
    return [subject.pipeline.tokenizer.text(i) for i in range(size)]


def sampling_steps(t: Tracer, logits: Stage, names: Names, sampled: bool = True) -> None:
    """Add temperature, softmax, top-K, top-P and the draw; the page recomputes them."""
    if not sampled:
        with t.level("Output") as inner:
            probabilities(inner, logits, names)
        return
    with t.level("Sampling") as inner:
        how, words = Temper(1.0), "zᵢ / T"
        x = inner.step("Temperature", how, logits, formula=words, columns=names, lecture="sample")
        x = probabilities(inner, x, names)
        words = "the K most probable, scaled to sum to 1"
        x = inner.step("Top-K", KeepTopK(len(names)), x, formula=words, columns=names)
        words = "the fewest that hold P of the probability, scaled to sum to 1"
        x = inner.step("Top-P", KeepTopP(1.0), x, formula=words, columns=names)
        words = "Fᵢ = p₁ + … + pᵢ; the sample is the first token whose F exceeds u"
        inner.step("Sample", Draw(0.5), x, formula=words, columns=names)


def probabilities(t: Tracer, logits: Stage, names: Names) -> Stage:
    """Add the softmax of logits."""
    formula = "pᵢ = exp(zᵢ) / Σₖ exp(zₖ)"
    return t.step("Probabilities", Softmax(), logits, formula=formula, columns=names)


def pooled_classes(
    t: Tracer, subject: StepSubject, x: Stage, vectors: Any, names: Names, after: Sequence[Any] = ()
) -> None:
    """Add the vector of the whole sequence, made of `vectors` (T, D) of all positions, and its
    scores; those of the position itself where each has its own. `after` are layers with a tanh.
    """
    model = subject.model
    with t.level("Output") as inner:
        if not model.output.positional:
            weights = t.activations.get("pooling.weights")
            x = pool_steps(inner, model.pool, vectors, names, weights)
            for layer in after:
                y = inner.linear("Pooler", layer, x, "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ")
                x = inner.step("tanh", Apply("tanh"), y, formula="tanh yᵢ")
    class_steps(t, subject, model, x)


def pool_steps(t: Tracer, pool: Pooling, vectors: Any, names: Names, weights: Any) -> Stage:
    """Add the pooled vector of all positions (T, D), each with its weight (T,)."""
    every = t.given("vectors of all positions", vectors, rows=names, mark=t.position)
    if pool.name in MAXIMUM:
        return t.step("Pooled", Largest(), every, formula="yᵢ = maxⱼ xⱼᵢ over the positions")
    title = f"Weights of the positions ({pool.name})"
    given = t.given(title, weights, shown=True, columns=names, mark=t.position)
    return t.step("Pooled", Mix(), given, every, formula="yᵢ = Σⱼ wⱼ xⱼᵢ")


MAXIMUM = ("max",)  # poolings without weights


def class_steps(t: Tracer, subject: StepSubject, model: Any, x: Stage) -> None:
    """Add the scores of a supervised model, and what they mean."""
    output = cast(Head, model.output)
    words: dict[str, Any] = {"columns": target_names(subject), "mark": largest(t, subject)}
    with t.level("Output") as inner:
        formula, known = "zᵢ = Σₖ xₖ Wᵢₖ + bᵢ", measured(t, subject)
        scores = inner.linear("Scores", model.head, x, formula, **known, **words)
        way = HEADS.find(output)
        if way is not None:
            title, how, formula = way(output, model)
            inner.step(title, how, scores, formula=formula, **words)


def largest(t: Tracer, subject: StepSubject) -> int:
    """Return the number of the largest score: the class that is predicted."""
    output = subject.output
    row = output[0, t.position] if subject.model.output.positional else output[0]
    return int(row.argmax())


def fitted_answer(
    t: Tracer,
    subject: StepSubject,
    how: Operation,
    *inputs: Stage,
    formula: str,
    logs: bool = False,
) -> None:
    """Add what a model predicts that is fitted at once: values as they are, or scores and their
    probabilities; with `logs` the scores are normalized to be log-probabilities.
    """
    output = cast(Head, subject.model.output)
    row = subject.output[0, t.position] if output.positional else subject.output[0]
    title = "Value" if output.scaled else "Scores"
    words: dict[str, Any] = {"columns": target_names(subject), "mark": largest(t, subject)}
    with t.level("Output") as inner:
        known = {} if logs else {"measured": row}
        scores = inner.step(title, how, *inputs, formula=formula, **known, **words)
        if logs:
            formula = "ln P(class | text) = zᵢ − ln Σₖ exp(zₖ): Bayes' rule"
            scores = inner.step(
                "Log-probabilities", LogSoftmax(), scores, formula=formula, measured=row, **words
            )
        way = HEADS.find(output)
        if way is not None and not output.scaled:
            title, how, formula = way(output, subject.model)
            inner.step(title, how, scores, formula=formula, **words)


def measured(t: Tracer, subject: StepSubject) -> dict[str, Any]:
    """Return the scores as the model computed them, before they are scaled."""
    model, output = subject.model, subject.output
    row = output[0, t.position] if model.output.positional else output[0]
    additive = bool(getattr(model.config, "additive", False))
    return {} if additive else {"measured": (row - model.shift) / model.scale}


def target_names(subject: StepSubject) -> Names:
    """Return the names of classes, labels or values."""
    targets, count = subject.pipeline.targets, subject.model.n_outputs
    return list(targets.names if len(targets.names) == count else targets.classes[0])


Way = tuple[str, Operation, str]


@HEADS.register(ClassHead)
def class_probabilities(head: ClassHead, model: Any) -> Way:
    return "Probabilities", Softmax(), "pᵢ = exp(zᵢ) / Σₖ exp(zₖ)"


@HEADS.register(LabelsHead)
def label_probabilities(head: LabelsHead, model: Any) -> Way:
    return "Probabilities", Apply("sigmoid"), "pᵢ = 1 / (1 + e^−zᵢ), each label by itself"


@HEADS.register(ValueHead)
def value_in_units(head: ValueHead, model: Any) -> Way:
    scale, shift = float(model.scale[0]), float(model.shift[0])
    return "Value", LinearAt(scale, shift), "zᵢ · deviation + mean of the training values"
