"""Who takes part in a comparison: which rows when nobody says, how large each, over which folds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from regard.data.corpus import Corpus
from regard.data.labelled import Labelled
from regard.data.sides import Sources
from regard.data.targets import LABELLED
from regard.models.sizing import parameters, sized
from regard.recipe import Recipe, build
from regard.recipe import tables as tables_of
from regard.registry import families, family
from regard.train.choose import choose
from regard.train.session import fitting

# Of labelled records, from the simplest; which of them a task has, the registry says.
ANSWERING = (
    "majority",
    "naive-bayes",
    "nb-svm",
    "logistic",
    "coulomb",
    "svm",
    "pwm",
    "markov",
    "cnn",
    "lstm",
    "hyena",
    "transformer",
)
ALPHABET = 64  # tokens that there may be for a chain of them to be counted


def default_rows(task: str, corpus: Corpus, say: Callable[[str], None]) -> list[str]:
    """The rows for a task; `say` hears which are left out, and why."""
    known = list(families(task, (corpus.source_tokenizer or corpus.tokenizer).kind))
    if task not in LABELLED:
        return known
    rows = [name for name in ANSWERING if name in known]
    reasons = {}
    if not of_one_length(corpus):
        reasons["pwm"] = "records are of different lengths"
    if corpus.tokenizer.vocab_size > ALPHABET:
        reasons["markov"] = f"there are more than {ALPHABET} tokens"
    if not corpus.tokenizer.decides.get("elements"):
        reasons["coulomb"] = "points have no elements"
    for name, why in reasons.items():
        if name in rows:
            rows.remove(name)
            say(f"{name} is left out: {why}")
    return rows


def of_one_length(corpus: Corpus) -> bool:
    """Have all records, training and held out, as many tokens?"""
    shards = [one for one in (corpus.train, corpus.valid, corpus.test) if one is not None]
    if any(one.source is not None for one in shards):
        return False
    lengths = np.concatenate([np.diff(one.offsets) for one in shards])
    return bool((lengths == lengths[0]).all())


def folds_of(recipe: Recipe) -> int:
    """Into how many parts the records are split that are tested one after the other; 1: no such."""
    if not recipe.data.folds:
        return 1
    sources = Sources(recipe.data, recipe.task, recipe.tokens, recipe.train.start)
    assert sources.plan is not None and isinstance(sources.train, Labelled)
    return sources.plan.count_folds(sources.train)


def as_large(chosen: Recipe, models: Sequence[str], corpus: Corpus) -> list[Recipe]:
    """The recipes of a comparison: neural models as large as the chosen Transformer, to a tenth,
    with its dropout; all with its context.
    """
    config, vocab_size = fitting(chosen.model.config, corpus), corpus.tokenizer.vocab_size
    kind = chosen.tokens.reads
    shape = {"n_layers": config.n_layers, "max_len": config.max_len, "task": chosen.task}
    own = {"source_vocab": getattr(config, "source_vocab", 0)}
    reads = corpus.source_tokenizer or corpus.tokenizer
    own = {key: value for key, value in own.items() if value} | reads.decides
    shape |= {"tokens": kind, "decided": own}
    found = []
    for name in models:
        told: dict[str, Any] = {"name": name}
        fields = family(name, chosen.task, kind).Config.__dataclass_fields__
        if "d_model" in fields and name != "transformer":
            size = parameters("transformer", vocab_size, config, chosen.task, kind)
            told |= dataclasses.asdict(sized(name, size, vocab_size, **shape))
        told |= {key: getattr(config, key) for key in ("max_len", "dropout") if key in fields}
        whole = {**tables_of(chosen), "model": told}
        found.append(chosen if name == "transformer" else build(choose(whole)[0]))
    return found
