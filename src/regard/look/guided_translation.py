"""A translation, or a caption, that goes on from a beginning that the user gives: the best ones,
what else might stand at each place, and which source words each word comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding import Beam, Generated, Node, Trace
from regard.decoding.engine import device_of, evaluating
from regard.evaluation.translation import HeadAlignment
from regard.look.attribution import maps_over
from regard.look.internals import PairTrace, add_evidence, as_inputs
from regard.look.language_page import trace_pair
from regard.look.page import Component, Page
from regard.look.translation_page import add_head_alignment, add_word_maps, cross_attention
from regard.pipelines.translator import Translator

MOST_ALTERNATIVES = 6
Source = Sequence[int] | NDArray[Any]
Alternative = tuple[int, str, float]  # id, token, probability


@dataclass(frozen=True, eq=False)
class GuidedTranslation:
    """Continuations of a `prefix`, best first, all candidates of the search, and the trace of the
    best target.
    """

    prefix: list[int]
    results: list[Generated]
    nodes: list[Node]
    trace: PairTrace

    @property
    def target(self) -> list[int]:
        """The ids of the best target, with `<E>` if it is complete."""
        return [*self.prefix, *(self.results[0].ids if self.results else ())]

    @torch.inference_mode()
    def distributions(self) -> Tensor:
        """Return the probability (T, V) of each token at each place of the best target."""
        trace, count = self.trace, len(self.target)
        with evaluating(trace.model):
            ids = trace.tensor([trace.tokenizer.start, *self.target[:-1]])
            logits = trace.model.logits(ids)[0].float()  # (T, V)
            logits[:, list(trace.banned)] = -math.inf
            if trace.constrain is not None:
                logits = trace.constrain(logits, ids[0])
        return logits.softmax(-1)[:count].cpu()

    def alternatives(self, most: int = MOST_ALTERNATIVES) -> list[list[Alternative]]:
        """Return at each place the token of the best target, and then the most probable others."""
        rows = []
        for target, p in zip(self.target, self.distributions(), strict=True):
            order = p.sort(descending=True, stable=True).indices[:most].tolist()
            ids = [target, *(i for i in order if i != target)][:most]
            text = self.trace.tokenizer.text
            rows.append([(i, text(i), float(p[i])) for i in ids if p[i] > 0 or i == target])
        return rows

    def links(self, alignment: HeadAlignment | None) -> list[Component]:
        """Return drawings of which part of the source, words or patches, each token comes from."""
        page, trace = Page(""), self.trace
        with evaluating(trace.translator):
            if trace.sources:
                add_head_alignment(page, trace, alignment)
            elif (weights := cross_attention(trace)) is not None:
                item = maps_over(trace.source_tokenizer, np.asarray(trace.source))
                add_word_maps(page, trace, item, weights)
            add_evidence(page, trace)
        return list(page.components)


@torch.inference_mode()
def encode_prefix(translator: Translator, source: Source, text: str) -> list[int]:
    """Return a typed beginning as ids. A last word that is not in the vocabulary and may not be
    complete becomes the most probable one that begins like it.
    """
    tokenizer, model = translator.tokenizer, translator.model
    ids: list[int] = tokenizer.encode(text).tolist()
    words = text.split()
    if not words or text[-1].isspace() or ids[-1] != tokenizer.unk:
        return ids
    usual = (i for i in range(tokenizer.vocab_size) if i not in tokenizer.names)
    longer = [i for i in usual if tokenizer.decode([i]).strip().startswith(words[-1])]
    if not longer or len(ids) >= int(model.config.max_len):
        return ids
    with evaluating(model):
        conditioned = model.condition(as_inputs(translator.readable(source), device_of(model)))
        row = torch.tensor([[tokenizer.start, *ids[:-1]]], device=device_of(model))
        logits = conditioned.logits(row)[0, -1].cpu()
    return [*ids[:-1], max(longer, key=lambda i: float(logits[i]))]


def guide_translation(
    translator: Translator, source: Source, prefix: Sequence[int], beam: Beam, max_new: int = 0
) -> GuidedTranslation:
    """Translate a source, given as ids without markers, from a beginning on."""
    trace = Trace()
    beam = replace(beam, trace=trace)
    (results,) = translator.translate_ids([source], beam, max_new=max_new, prefixes=[prefix])
    ids = [*prefix, *(results[0].ids if results else ())]
    complete = bool(results) and results[0].finished
    pair = trace_pair(translator, source, ids[:-1] if complete else ids, complete)
    return GuidedTranslation(list(prefix), results, trace.trees.get(0, []), pair)
