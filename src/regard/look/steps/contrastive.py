"""Steps through models of pairs: a source and a text become two vectors, whose product says how
well they match.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from regard.layers.embeddings import Inputs
from regard.look.steps.operations import (
    Apply,
    Dot,
    Occurrences,
    RowDots,
    Scale,
    Stack,
    Unit,
)
from regard.look.steps.outputs import pool_steps
from regard.look.steps.parts import ids_given
from regard.look.steps.stacks import encode
from regard.look.steps.stages import Names, Stage, Tracer, Ways
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.contrastive import (
    Chance,
    ColorCorrelation,
    DualEncoder,
    PairEncoder,
    TokenCorrelation,
)

TEXTS = Ways()  # (tracer, subject) -> the vector of the text
SOURCES = Ways()  # (tracer, subject) -> the vector of the source


@register_steps(PairEncoder)
def pair_steps(subject: StepSubject) -> None:
    """Follow a token of the text to its vector, and compare it with that of the source."""
    model, ids = cast(PairEncoder, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    of_source, of_text = SOURCES.find(model), TEXTS.find(model)
    assert of_source is not None and of_text is not None
    with t.level("Source") as inner:
        source = of_source(inner, subject)
    with t.level("Text") as inner:
        text = of_text(inner, subject)
    with t.level("Match") as inner:
        row = inner.step("Source", Stack(), source, shown=False, rows=("source",))
        formula = "the product of both vectors: the cosine of the angle between them"
        measured = subject.output[0]
        x = inner.step("Similarity", RowDots(), row, text, formula=formula, measured=measured)
        scale = model.scale.item()
        formula = "in training, the softmax of these over a batch tells which text belongs here"
        inner.step("Logit", Scale(scale, f"{scale:.4g}"), x, formula=formula)


@SOURCES.register(Chance)
def any_source(t: Tracer, subject: StepSubject) -> Stage:
    formula = "the same number for every source"
    return t.given("Vector", subject.model.vector, shown=True, formula=formula)


@TEXTS.register(Chance)
def any_text(t: Tracer, subject: StepSubject) -> Stage:
    formula = "the same number for every text: all pairs match equally well"
    return t.given("Vector", subject.model.vector, shown=True, formula=formula)


@SOURCES.register(DualEncoder)
def encoded_source(t: Tracer, subject: StepSubject) -> Stage:
    """Pool what the encoder makes of the source, and project it."""
    model, ids = cast(DualEncoder, subject.model), subject.tensors["source"]
    names = subject.source_names(model.sources.embedding, ids)
    vectors = t.activations["sources.norm"]
    words = f"what the encoder makes of the {len(names)} positions of the source"
    t.given("Encoded source", vectors, shown=True, formula=words, rows=names)
    weights = model.pool_sources.weights(vectors[None], torch.ones(1, len(names)).long())[0]
    x = pool_steps(t, model.pool_sources, vectors, names, weights)
    return projected(t, model.project_sources, x)


@TEXTS.register(DualEncoder)
def encoded_text(t: Tracer, subject: StepSubject) -> Stage:
    """Follow one token through the encoder, then pool all of them, and project."""
    model, ids = cast(DualEncoder, subject.model), subject.tensors["ids"]
    with t.level("", "texts") as inner:
        encode(inner, model.texts, ids, t.tokens)
    vectors = t.activations["texts.norm"]
    weights = model.pool_texts.weights(vectors[None], torch.ones_like(ids))[0]
    with t.level("Output") as inner:
        x = pool_steps(inner, model.pool_texts, vectors, t.tokens, weights)
        return projected(inner, model.project_texts, x)


def projected(t: Tracer, layer: Any, x: Stage) -> Stage:
    """Add the projection into the shared space."""
    x = t.linear("Projection", layer, x, "yᵢ = Σₖ xₖ Wᵢₖ, into the shared space")
    return t.step("Vector", Unit(), x, formula="y / |y|, of length 1")


@SOURCES.register(TokenCorrelation)
def bag_of_source(t: Tracer, subject: StepSubject) -> Stage:
    model, ids = cast(TokenCorrelation, subject.model), subject.tensors["source"]
    tokenizer = subject.pipeline.source_tokenizer
    names = [tokenizer.text(int(i)) for i in ids[0].tolist()]
    numbers = t.given("Ids", ids[0], shown=True, columns=names)
    features = model.source_features(inputs_of(ids))[0].nonzero().flatten()
    known = model.source_tokens[features]
    return bag_steps(t, numbers, known, model.source_map, features, tokenizer)


@TEXTS.register(TokenCorrelation)
def bag_of_text(t: Tracer, subject: StepSubject) -> Stage:
    model, ids = cast(TokenCorrelation, subject.model), subject.tensors["ids"]
    numbers = ids_given(t, ids[0])
    features = model.text_features(inputs_of(ids))[0].nonzero().flatten()
    known = model.tokens[features]
    return bag_steps(t, numbers, known, model.text_map, features, subject.pipeline.tokenizer)


def inputs_of(ids: torch.Tensor) -> Inputs:
    """Return one sequence as the input of a model."""
    return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64))


def bag_steps(
    t: Tracer, numbers: Stage, known: Any, matrix: Any, features: Any, tokenizer: Any
) -> Stage:
    """Add which tokens occur, scaled to length 1, and their directions."""
    ids = known.tolist()
    names = [tokenizer.text(i) for i in ids]
    how = Occurrences(tuple(((i,), 0, len(numbers.values)) for i in ids))
    x = t.step("Counts", how, numbers, formula="of tokens that the model knows", columns=names)
    x = t.step("Present", Apply("present"), x, formula="1 for each that occurs", columns=names)
    x = t.step("Features", Unit(), x, formula="x / |x|", columns=names)
    return directed(t, x, matrix, features, names)


def directed(t: Tracer, x: Stage, matrix: Any, features: Any, names: Names) -> Stage:
    """Add the directions (1 + F, E) of features, the first row being added, and the unit vector."""
    weights = t.given("directions", matrix[1:][features].T, columns=names)
    bias = t.given("minus the mean", matrix[0])
    formula = "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ, along the directions that are most correlated"
    x = t.step("Directions", Dot(), x, weights, bias, formula=formula)
    return t.step("Vector", Unit(), x, formula="y / |y|, of length 1")


@SOURCES.register(ColorCorrelation)
def colors_of_source(t: Tracer, subject: StepSubject) -> Stage:
    """Read the colors of an image."""
    model = cast(ColorCorrelation, subject.model)
    values = model.source_features(inputs_of(subject.tensors["source"]))[0]
    features = values.nonzero().flatten()
    c = model.config
    names = [
        " ".join(str(int(i) // c.bins**n % c.bins + 1) for n in range(c.channels)) for i in features
    ]
    formula = f"the share of pixels of each color, of {c.bins} levels of each channel"
    shares = values[features].double() ** 2
    x = t.given("Colors", shares, shown=True, formula=formula, columns=names)
    x = t.step("Features", Apply("sqrt"), x, formula="√ of the share", columns=names)
    return directed(t, x, model.source_map, features, names)
