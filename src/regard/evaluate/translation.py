"""How good translations are: BLEU, chrF and exact matches, from 0 to 100, with 95% intervals.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are sacrebleu's (Post 2018, arXiv:1804.08771)
and come with its signature, which says how they were computed. Each is a function of sums over
sentences: for an interval the sentences' counts are resampled and their sums judged again, and two
systems on the same sentences are compared in pairs (Koehn 2004, "Statistical significance tests for
machine translation evaluation").
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.sample import drawn_order
from regard.data.shards import Shard
from regard.decode import Strategy
from regard.documents import read_json
from regard.errors import UsageError, did_you_mean, missing_extra
from regard.evaluate.estimates import Estimate
from regard.evaluate.intervals import resampled_sums
from regard.evaluate.report import Figure, Measured, figures
from regard.interpreter import Interpreter
from regard.run import write_json
from regard.schemas import Translations

TRANSLATIONS = "translations.json"  # of a run: what it made of sentences that were held out
TOKENIZERS = ("13a", "none", "intl", "char", "zh")  # those of sacrebleu that need nothing else
DIGITS = 2  # of a figure from 0 to 100


def judge(
    translations: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    lenient: bool = False,
    groups: Sequence[str] | None = None,
) -> dict[str, Estimate]:
    """`bleu`, `chrf` and `exact` of translations beside one reference each.

    `tokenize` is how BLEU splits words. Without sacrebleu a `lenient` judge knows `exact` alone.
    Sentences that say much the same have a name in `groups`, one for each sentence: intervals draw
    groups then, and all of one or none.
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
        found[name] = _judged(counts, _scorer(metric), str(metric.get_signature()), groups)
    sides = zip(translations, references, strict=True)
    same = [_plain(one, lowercase) == _plain(two, lowercase) for one, two in sides]
    signature = f"case:{'lc' if lowercase else 'mixed'}"
    return found | {"exact": _judged([[x, 1] for x in same], _share, signature, groups)}


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


def _judged(
    counts: Any,
    score: Callable[[list[float]], float],
    signature: str,
    groups: Sequence[str] | None,
) -> Estimate:
    """Judge the sum of (N, K) counts, and the sums of resamples."""
    table = np.array(counts, dtype=np.float64)
    data = f"{len(table):,} sentences"
    if groups is not None:
        names, places = np.unique(np.array(groups), return_inverse=True)
        table = np.stack([np.bincount(places, column) for column in table.T], axis=1)  # (G, K)
        data += f" in {len(names):,} groups"
    samples = np.array([score(sums) for sums in resampled_sums(table).tolist()])
    value = score(table.sum(0).tolist())
    return Estimate(value, samples, data, digits=DIGITS, signature=signature)


def _scorer(metric: Any) -> Callable[[list[float]], float]:
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


def _share(sums: list[float]) -> float:
    return 100 * sums[0] / sums[1]


def _plain(text: str, lowercase: bool) -> str:
    """A text without what does not show: white space at the ends and its runs."""
    text = " ".join(text.split())
    return text.lower() if lowercase else text


@dataclass(frozen=True)
class Sentence:
    """A source, how it should be translated, and how it was."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True, eq=False)
class Translated:
    """What the targets of some pairs cost a translator, and how good its own are."""

    measured: Measured
    judged: dict[str, Estimate]
    made: tuple[Sentence, ...]
    seconds: float  # that making them took

    @property
    def sentences(self) -> int:
        """How many were translated."""
        return len(self.made)

    def keep(self, run: Path, side: str) -> None:
        """Store what was made of a held-out side in a run folder, for `kept`."""
        sentences = [asdict(one) for one in self.made]
        document = {"side": side, "seconds": round(self.seconds, 3), "sentences": sentences}
        write_json(run / TRANSLATIONS, document)

    def figures(self) -> dict[str, Figure]:
        """The metrics by name."""
        return {name: one.figure() for name, one in self.judged.items()} | figures(self.measured)


def measure_translation(
    interpreter: Interpreter,
    shard: Shard,
    strategy: Strategy | None = None,
    *,
    most: int = 0,
    part: Shard | None = None,
    until: float = math.inf,
    batch_size: int = 64,
    tokenize: str = "13a",
    lowercase: bool = False,
    lenient: bool = False,
) -> Translated:
    """Measure a translator on a shard of pairs, its loss on a `part` of it if one is given.

    It translates `most` of the pairs, drawn by a fixed seed (0: all), and fewer where more would
    take longer than `until` (time.monotonic).
    """
    if shard.source is None:
        raise ValueError("a translator is measured on pairs, but the shard has no source")
    metrics(tokenize, lowercase, lenient)  # what is missing is told before the work
    numbers = np.arange(shard.records)
    if 0 < most < shard.records:
        numbers = drawn_order(shard, 0)[:most]
    content = interpreter.source_tokenizer.content
    sources = [content(shard.source.record(i)) for i in numbers.tolist()]
    began = time.monotonic()
    answers: list[Any] = []
    while len(answers) < len(sources) and (not answers or goes_on(began, until)):
        size = len(answers) or batch_size if until < math.inf else len(sources)  # doubling
        some = sources[len(answers) : len(answers) + size]
        answers += interpreter.answers(some, strategy, batch_size=batch_size)
    sources = sources[: len(answers)]
    seconds = time.monotonic() - began
    decode, read = interpreter.tokenizer.decode, interpreter.source_tokenizer.decode
    told = [
        f"{f'picture {i + 1:,}, ' if interpreter.sees else ''}{read(source)}"
        for i, source in zip(numbers.tolist(), sources, strict=False)
    ]
    made = tuple(
        Sentence(source, decode(shard.record(i)[1:-1]), decode(several[0].ids))
        for source, i, several in zip(told, numbers.tolist(), answers, strict=False)
    )
    judged = judged_of(made, tokenize=tokenize, lowercase=lowercase, lenient=lenient)
    return Translated(interpreter.measure(part or shard), judged, made, seconds)


def goes_on(began: float, until: float) -> bool:
    """Is there time to translate as many again, at the pace since `began`?"""
    now = time.monotonic()
    return now + (now - began) <= until


def judged_of(made: Sequence[Sentence], **options: Any) -> dict[str, Estimate]:
    """See `judge`, which takes the same options."""
    return judge([one.translation for one in made], [one.reference for one in made], **options)


def kept(run: Path) -> tuple[list[Sentence], float]:
    """What a run made of the first held-out sentences when it ended, and the seconds it took."""
    document = read_json(run / TRANSLATIONS, Translations)
    keys = [field.name for field in fields(Sentence)]
    made = [Sentence(**{key: one[key] for key in keys}) for one in document["sentences"]]
    return made, float(document["seconds"])
