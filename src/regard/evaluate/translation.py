"""How good translations are: BLEU, chrF and exact matches, from 0 to 100, with 95% intervals.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are sacrebleu's (Post 2018, arXiv:1804.08771)
and come with its signature, which says how they were computed. Each is a function of sums over
sentences: for an interval the sentences' counts are resampled and their sums judged again, and two
systems on the same sentences are compared in pairs (Koehn 2004, "Statistical significance tests for
machine translation evaluation").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.shards import Shard
from regard.decode import Strategy
from regard.errors import UsageError, did_you_mean, missing_extra
from regard.evaluate.intervals import Floats, resampled_sums
from regard.evaluate.report import Figure, Measured, figures
from regard.interpreter import Interpreter

TOKENIZERS = ("13a", "none", "intl", "char", "zh")  # those of sacrebleu that need nothing else
DIGITS = 2  # of a figure from 0 to 100


@dataclass(frozen=True, eq=False)
class Judged:
    """One figure of some translations, and the same of RESAMPLES resamples of their sentences."""

    value: float
    samples: Floats
    signature: str

    def figure(self) -> Figure:
        """The value with its interval."""
        return _figure(self.value, self.samples)

    def minus(self, other: Judged) -> Figure:
        """The difference to other translations of the same sentences, in pairs."""
        return _figure(self.value - other.value, self.samples - other.samples)


def _figure(value: float, samples: Floats) -> Figure:
    low, high = np.quantile(samples, [0.025, 0.975]).tolist()
    return Figure(value, low, high, digits=DIGITS)


def judge(
    translations: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    lenient: bool = False,
) -> dict[str, Judged]:
    """`bleu`, `chrf` and `exact` of translations beside one reference each.

    `tokenize` is how BLEU splits words. Without sacrebleu a `lenient` judge knows `exact` alone.
    """
    if len(translations) != len(references) or not references:
        raise ValueError(
            "there must be a reference for each translation, one at least, "
            f"got {len(translations)} translations and {len(references)} references"
        )
    found = {}
    for name, metric in metrics(tokenize, lowercase, lenient).items():
        # sacrebleu's own significance tests rest on these two methods
        counts = metric._extract_corpus_statistics(translations, [references])
        found[name] = _judged(counts, _scorer(metric), str(metric.get_signature()))
    sides = zip(translations, references, strict=True)
    same = [_plain(one, lowercase) == _plain(two, lowercase) for one, two in sides]
    signature = f"case:{'lc' if lowercase else 'mixed'}"
    return found | {"exact": _judged([[x, 1] for x in same], _share, signature)}


def metrics(tokenize: str, lowercase: bool, lenient: bool = False) -> dict[str, Any]:
    """sacrebleu's metrics by name; none for the lenient where it is not installed."""
    if tokenize not in TOKENIZERS:
        hint = did_you_mean(tokenize, list(TOKENIZERS))
        raise UsageError(f"unknown tokenize {tokenize!r}; {hint}")
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ModuleNotFoundError:
        if lenient:
            return {}
        raise missing_extra("sacrebleu", "mt") from None
    bleu = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)  # no doubts about the data
    return {"bleu": bleu, "chrf": CHRF(lowercase=lowercase)}


def _judged(counts: Any, score: Callable[[list[float]], float], signature: str) -> Judged:
    """Judge the sum of (N, K) counts, and the sums of resamples."""
    table = np.array(counts, dtype=np.float64)
    samples = [score(sums) for sums in resampled_sums(table).tolist()]
    return Judged(score(table.sum(0).tolist()), np.array(samples), signature)


def _scorer(metric: Any) -> Callable[[list[float]], float]:
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


def _share(sums: list[float]) -> float:
    return 100 * sums[0] / sums[1]


def _plain(text: str, lowercase: bool) -> str:
    """A text without what does not show: white space at the ends and its runs."""
    text = " ".join(text.split())
    return text.lower() if lowercase else text


@dataclass(frozen=True, eq=False)
class Translated:
    """What the targets of some pairs cost a translator, and how good its own are."""

    measured: Measured
    judged: dict[str, Judged]
    sentences: int  # that were translated

    def figures(self) -> dict[str, Figure]:
        """The metrics by name."""
        return {name: one.figure() for name, one in self.judged.items()} | figures(self.measured)


def measure_translation(
    interpreter: Interpreter,
    shard: Shard,
    strategy: Strategy | None = None,
    *,
    most: int = 0,
    batch_size: int = 64,
    tokenize: str = "13a",
    lowercase: bool = False,
    lenient: bool = False,
) -> Translated:
    """Measure a translator on a shard of pairs, and translate the first `most` of them (0: all)."""
    if shard.source is None:
        raise ValueError("a translator is measured on pairs, but the shard has no source")
    metrics(tokenize, lowercase, lenient)  # what is missing is told before the work
    count = min(most or shard.records, shard.records)
    sources = [shard.source.record(i)[1:-1] for i in range(count)]
    answers = interpreter.answers(sources, strategy, batch_size=batch_size)
    decode = interpreter.tokenizer.decode
    judged = judge(
        [decode(several[0].ids) for several in answers],
        [decode(shard.record(i)[1:-1]) for i in range(count)],
        tokenize=tokenize,
        lowercase=lowercase,
        lenient=lenient,
    )
    return Translated(interpreter.measure(shard), judged, count)


def figures_of_translation(
    interpreter: Interpreter,
    shard: Shard,
    strategy: Strategy | None = None,
    *,
    most: int = 0,
    lenient: bool = False,
) -> dict[str, Figure]:
    """The metrics of a translator on a shard of pairs, by name; see `measure_translation`."""
    return measure_translation(interpreter, shard, strategy, most=most, lenient=lenient).figures()
