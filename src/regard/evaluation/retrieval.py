"""Metrics of models that match pairs: recall among all sources and texts of a split.

A source is a query for its text among all different texts, a text is a query for its source among
all different sources. Recall@k is the share of queries for which a right one is among the first k:
any text that belongs to the source, or any source that belongs to the text. Where others match as
well as the right one, their order is random and the probability of success counts, so that a model
that cannot tell anything apart has the recall of chance. The bootstrap draws sources with all their
texts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln

from regard.data.matched_pairs import PairExamples
from regard.data.shards import Shard
from regard.decoding.engine import device_of, gpu_lock
from regard.errors import UserError
from regard.evaluation import Report, estimate_metrics, register_metric
from regard.evaluation.bootstrap import BootstrapEstimate, Floats, Resamples, digest
from regard.layers.embeddings import Inputs
from regard.storage import read_tensors, write_tensors
from regard.tokenizers import Tokenizer

CUTOFFS = (1, 5, 10)
AT_ONCE = 256  # pairs embedded together, and queries compared
RETRIEVAL = "retrieval.safetensors"  # of a run: the recall of each query of the reported split
MAX_DIFFERENT = 20_000  # sources and texts of a split that are compared: the first


@dataclass(frozen=True, eq=False)
class EmbeddedPairs:
    """The vectors of the different sources (I, E) and texts (J, E) of a shard, and which pairs
    (P, 2) of their numbers belong together.
    """

    sources: NDArray[np.float32]
    texts: NDArray[np.float32]
    pairs: NDArray[np.int64]
    first: NDArray[np.int64]  # (P,) the record where a pair first occurs

    @classmethod
    def of(cls, model: Any, shard: Shard, tokenizer: Tokenizer) -> EmbeddedPairs:
        """Embed the pairs of a shard."""
        examples = PairExamples(shard, tokenizer, int(model.config.max_len))
        number = min(MAX_DIFFERENT, examples.records)
        pairs, first = np.unique(examples.keys[:number], axis=0, return_index=True)
        sources, texts = embed_examples(model, examples, np.arange(number))
        at = [np.unique(examples.keys[:number, i], return_index=True)[1] for i in range(2)]
        return cls(sources[at[0]], texts[at[1]], pairs, first)

    @property
    def products(self) -> NDArray[np.float32]:
        """How well each source matches each text, (I, J)."""
        return self.sources @ self.texts.T

    def recall(self) -> tuple[Floats, Floats]:
        """Return the probability that a right answer is among the first CUTOFFS, of each source
        (I, K) and of each text (J, K).
        """
        products, right = self.products, np.zeros((len(self.sources), len(self.texts)), bool)
        right[self.pairs[:, 0], self.pairs[:, 1]] = True
        return found_within(products, right), found_within(products.T, right.T)

    def chance(self) -> Floats:
        """Return the mean recall (K,) of random orders, over both directions."""
        blind = replace(self, sources=np.zeros((len(self.sources), 1), np.float32))
        blind = replace(blind, texts=np.zeros((len(self.texts), 1), np.float32))
        of_sources, of_texts = blind.recall()
        mean: Floats = (of_sources.mean(0) + of_texts[self.pairs[:, 1]].mean(0)) / 2
        return mean


@torch.inference_mode()
def embed_examples(
    model: Any, examples: PairExamples, records: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the vectors (R, E) of the sources and of the texts of records."""
    device, parts = device_of(model), []
    for first in range(0, len(records), AT_ONCE):
        batch = examples.fill(records[first : first + AT_ONCE])
        assert batch.segments is not None and batch.source is not None
        texts = Inputs(batch.ids, batch.segments).to(device)
        with gpu_lock(device):
            vectors = model.embed_sources(batch.source.to(device)), model.embed_texts(texts)
            parts.append([x.float().cpu().numpy() for x in vectors])
    sources, texts_ = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sources, texts_


def found_within(scores: NDArray[Any], right: NDArray[np.bool_]) -> Floats:
    """Return for each query (Q,) the probability that one of its right candidates is among the
    first CUTOFFS by score (Q, N), (Q, K); equal scores are in random order.
    """
    best = np.where(right, scores, -np.inf).max(1, keepdims=True)  # (Q, 1)
    others = ~right
    above = (others & (scores > best)).sum(1)  # (Q,)
    tied = (others & (scores == best)).sum(1)
    also_right = (right & (scores == best)).sum(1)
    return np.stack([1 - _all_later(k - above, tied, also_right) for k in CUTOFFS], axis=1)


def _all_later(
    places: NDArray[np.int64], others: NDArray[np.int64], right: NDArray[np.int64]
) -> Floats:
    """Return the probability that none of the first `places` of so many right ones and others in
    random order is right: C(others, places) / C(others + right, places).
    """
    k, total = np.maximum(places, 0), others + right
    inside = k <= others
    k = np.where(inside, k, 0)
    logs = (
        gammaln(others + 1) - gammaln(others - k + 1) - gammaln(total + 1) + gammaln(total - k + 1)
    )
    later: Floats = np.where(inside, np.exp(logs), 0.0)
    return later


@dataclass(frozen=True, eq=False)
class RetrievalResult(Report):
    """The recall of every query: of sources (I, K), and of the texts of all pairs (P, K), which
    belong to the sources `owners` (P,).
    """

    ranking: ClassVar[tuple[str, ...]] = ("mean_recall",)
    of_sources: Floats
    of_texts: Floats
    owners: NDArray[np.int64]
    chance: Floats  # (K,)
    seconds: float = 0.0
    unknown: int = 0
    targets: None = None  # there are no labels
    scored: ClassVar[bool] = True

    @property
    def report(self) -> RetrievalResult:
        return self

    @property
    def records(self) -> int:
        """The number of pairs."""
        return len(self.of_texts)

    @property
    def symbols(self) -> NDArray[np.int64]:
        """One for each pair."""
        return np.ones(self.records, np.int64)

    def first(self, records: int) -> RetrievalResult:
        """Return the result; it cannot be reduced to fewer pairs, which would be easier."""
        raise UserError("the models were measured on different numbers of pairs: measure again")

    @cached_property
    def estimates(self) -> Mapping[str, BootstrapEstimate]:
        return estimate_metrics("retrieval", RetrievalResamples(self))

    @property
    def chance_line(self) -> str:
        """The recall of chance, in words."""
        shares = ", ".join(f"{p:.4f} at {k}" for k, p in zip(CUTOFFS, self.chance, strict=True))
        return f"recall by chance: {shares}, mean {self.chance.mean():.4f}"


class RetrievalResamples(Resamples):
    """The queries of sources and of texts; sources are drawn with all their texts."""

    def __init__(self, result: RetrievalResult) -> None:
        owners = np.concatenate([np.arange(len(result.of_sources)), result.owners])
        super().__init__(digest(result.owners), owners, len(result.of_sources))
        n_sources = len(result.of_sources)
        self.is_text = np.arange(len(owners)) >= n_sources
        self.recall = np.concatenate([result.of_sources, result.of_texts])  # (I + P, K)

    def mean(self, column: int, *, texts: bool) -> Floats:
        """Return the recall at CUTOFFS[column] of the queries of texts or of sources."""
        chosen = self.is_text == texts
        return self.sum(self.recall[:, column] * chosen) / self.sum(chosen)


@register_metric("retrieval", "mean_recall", title="mean recall")
def mean_recall(queries: RetrievalResamples) -> BootstrapEstimate:
    """The mean of recall@1, 5 and 10 in both directions."""
    parts = [queries.mean(i, texts=texts) for texts in (False, True) for i in range(len(CUTOFFS))]
    return queries.estimate(np.mean(parts, axis=0))


def _register_cutoff(column: int, texts: bool) -> None:
    answer, query = ("source", "text") if texts else ("text", "source")
    k = CUTOFFS[column]

    @register_metric(
        "retrieval", f"{answer}_recall_{k}", title=f"recall@{k} of {answer}s", in_table=k != 5
    )
    def recall(queries: RetrievalResamples) -> BootstrapEstimate:
        return queries.estimate(queries.mean(column, texts=texts))

    recall.__doc__ = f"The share of {query}s whose {answer} is among the best {k}."


for _texts in (False, True):
    for _column in range(len(CUTOFFS)):
        _register_cutoff(_column, _texts)


def measure_retrieval(model: Any, shard: Shard, tokenizer: Tokenizer) -> RetrievalResult:
    """Return the recall of a model on the pairs of a shard."""
    began = time.monotonic()
    embedded = EmbeddedPairs.of(model, shard, tokenizer)
    of_sources, of_texts = embedded.recall()
    owners, texts = embedded.pairs.T
    seconds = time.monotonic() - began
    return RetrievalResult(of_sources, of_texts[texts], owners, embedded.chance(), seconds)


def store_retrieval(run: Path, result: RetrievalResult) -> None:
    """Write the recall of all queries to a run folder."""
    arrays = {name: getattr(result, name) for name in ("of_sources", "of_texts", "owners")}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in arrays.items()}
    tensors["chance"] = torch.from_numpy(result.chance)
    tensors["seconds"] = torch.tensor(result.seconds, dtype=torch.float64)
    write_tensors(run / RETRIEVAL, tensors)


def load_retrieval(run: Path) -> RetrievalResult:
    """Read the recall of the reported split, stored when training ended."""
    tensors = read_tensors(run / RETRIEVAL)
    try:
        return RetrievalResult(
            tensors["of_sources"].numpy(),
            tensors["of_texts"].numpy(),
            tensors["owners"].numpy(),
            tensors["chance"].numpy(),
            float(tensors["seconds"]),
        )
    except KeyError as error:
        raise UserError(f"{run / RETRIEVAL} is damaged: {error} is missing") from None
