"""A counting language model: unigrams with one count added to each symbol (Laplace 1774)."""

from __future__ import annotations

from regard.models.ngrams import BackoffTable, NGrams, Uniform, maximum_likelihood, uniform
from regard.registry import register_model


@register_model("add-one", tasks=["next"])
class AddOne(Uniform):
    """Relative frequencies of symbols after adding one to each count."""

    def smooth(self, table: NGrams) -> BackoffTable:
        counts = table.unigrams + (uniform(table) > 0)
        return maximum_likelihood(table, counts / counts.sum())
