"""Steps through IBM model 1: which source word a target word comes from, mixed with a bigram."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from regard.layers.embeddings import Inputs
from regard.look.steps.counting import order_steps
from regard.look.steps.operations import Add, Apply, Combine, Mix, Multiply, Normalize, Scale
from regard.look.steps.outputs import sampling_steps, vocabulary
from regard.look.steps.stages import Names, Stage, Tracer
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.ibm_model1 import DEFAULTS, ConditionedIBM1, IBM1Translator


@register_steps(IBM1Translator)
def translation_steps(subject: StepSubject) -> None:
    """Follow one word of the target: from the source, from the word before, and both mixed."""
    model, source = cast(IBM1Translator, subject.model), subject.tensors["source"]
    ids = subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    conditioned = model.condition(Inputs(source, torch.ones_like(source)))
    words = vocabulary(subject)
    reader = subject.pipeline.source_tokenizer
    read = ["NULL", *(reader.text(int(i)) for i in source[0].tolist())]
    translated = source_steps(t, cast(ConditionedIBM1, conditioned), read, words)
    with t.level("Bigram") as inner:
        p = order_steps(inner, model.bigram, ids, words, t.position)
    logits = mixture_steps(t, subject, cast(ConditionedIBM1, conditioned), translated, p)
    sampling_steps(t, logits, words)


def source_steps(t: Tracer, model: ConditionedIBM1, read: Names, words: Names) -> Stage:
    """Add what the words of the source translate to, each by how near it stands."""
    position = torch.tensor([[t.position]])
    known = (model.counts[0] > 0).double()
    decay = float(model.config.decay or DEFAULTS[0])
    columns: dict[str, Any] = {"columns": read}
    with t.level("Source word") as inner:
        distance = distances(model, t.position)
        formula = "|i − j|, of this word of the target and each of the source; 1 for NULL"
        x = inner.given("Distance", distance, shown=True, formula=formula, **columns)
        how = Scale(math.log(decay), f"ln {decay:g}")
        x = inner.step("Logarithms", how, x, formula="distance · ln decay", **columns)
        x = inner.step("Decay", Apply("exp"), x, formula="decay^distance", **columns)
        formula = "1 for each word that the table has: others leave their weight"
        mask = inner.given("Known", known, shown=True, formula=formula, **columns)
        x = inner.step("Of known words", Multiply(), x, mask, formula="0 elsewhere", **columns)
        if known.any():
            measured = model.weights(position)[0, 0]
            formula = "wⱼ: the sum is 1"
            x = inner.step("Weights", Normalize(), x, formula=formula, measured=measured, **columns)
        table = inner.given("translations t(f | e)", rows_of(model), rows=read, columns=words)
        formula = "Σⱼ wⱼ t(f | eⱼ): what the source says"
        return inner.step("From the source", Mix(), x, table, formula=formula, columns=words)


def distances(model: ConditionedIBM1, position: int) -> Tensor:
    """Return how far a position of the target is from NULL and from each source word (1 + S,)."""
    last = max(0, int(model.lengths[0, 0]) - 1)
    columns = torch.arange(-1, model.words.size(1) - 1)
    distance = (min(position, last) - columns).abs().double()
    distance[0] = 1
    return distance


def rows_of(model: ConditionedIBM1) -> Tensor:
    """Return t(f | e) of every word of the source, (1 + S, V)."""
    row, column, words, t = model.entries()
    table = torch.zeros(model.words.size(1), model.vocab_size, dtype=torch.float64)
    table[column[row == 0], words[row == 0]] = t[row == 0].double()
    return table


def mixture_steps(
    t: Tracer, subject: StepSubject, model: ConditionedIBM1, source: Stage, bigram: Stage
) -> Stage:
    """Add the mixture of both, and whether the target ends."""
    end, share = int(model.translator.end_id), model.share
    ends = float(model.ends(torch.tensor([[t.position]]))[0, 0])
    columns: dict[str, Any] = {"columns": source.columns}
    with t.level("Mixture") as inner:
        factor = 1 / (1 - float(bigram.values[end]))
        formula = "pᵢ / (1 − p of <E>): the end is decided by itself"
        words = inner.step("Words alone", Scale(factor), bigram, formula=formula, **columns)
        how = Combine((1 - share, share), ("1 − share", "share"))
        formula = f"(1 − share) of the bigram + share of the source, share = {share:g}"
        x = inner.step("Both", how, words, source, formula=formula, **columns)
        going = torch.full((len(source.values),), 1 - ends, dtype=torch.float64)
        stop = torch.zeros_like(going)
        going[end], stop[end] = 0, ends
        formula = "1 − P(<E>): as often as targets of this length went on in training"
        going_on = inner.given("Going on", going, shown=True, formula=formula, **columns)
        x = inner.step(
            "If it goes on", Multiply(), x, going_on, formula="(1 − P(<E>)) pᵢ", **columns
        )
        stopped = inner.given("P(<E>)", stop, shown=True, formula="if it ends", **columns)
        x = inner.step("Probabilities", Add(), x, stopped, formula="with the end", **columns)
    with t.level("Output") as inner:
        measured = subject.output[0, t.position]
        formula = "zᵢ = ln pᵢ"
        return inner.step("Logits", Apply("log"), x, formula=formula, measured=measured, **columns)
