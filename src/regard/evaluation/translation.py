"""Metrics of translations: BLEU, chrF and exact matches, from 0 to 100, with 95% intervals.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are sacrebleu's (Post 2018, arXiv:1804.08771)
and come with its signature of how they were computed. Each is a function of sums over sentences:
for an interval the counts of sentences are resampled and the score is computed from their sums.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from regard.data.batching import drawn_order
from regard.data.shards import Array, Shard
from regard.decoding import Generated, Strategy
from regard.errors import UsageError, did_you_mean, missing_extra
from regard.evaluation.bootstrap import BootstrapEstimate, resample_sums
from regard.evaluation.language_modeling import TokenLosses
from regard.evaluation.metrics import Report, estimate_metrics, register_metric
from regard.schemas import StoredTranslations
from regard.storage import read_json, write_json
from regard.tokenizers import Tokenizer

TRANSLATIONS = "translations.json"  # of a run: its translations of held-out sentences
TOKENIZERS = ("13a", "none", "intl", "char", "zh")  # those of sacrebleu that need nothing else


def load_sacrebleu(tokenize: str, lowercase: bool, lenient: bool) -> dict[str, Any]:
    """Return sacrebleu's metrics by name; none if it is not installed and `lenient` allows that."""
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
    bleu = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)  # no warnings about the data
    return {"bleu": bleu, "chrf": CHRF(lowercase=lowercase)}


class TranslatedTexts:
    """Translations with one reference each; sentences, or groups of them, are resampled."""

    def __init__(
        self,
        translations: Sequence[str],
        references: Sequence[str],
        sacrebleu: dict[str, Any],
        lowercase: bool,
        groups: Sequence[str] | None,
    ) -> None:
        self.translations, self.references = translations, references
        self.sacrebleu, self.lowercase = sacrebleu, lowercase
        self.data = f"{len(references):,} sentences"
        self.groups = np.arange(len(references))
        if groups is not None:
            names, self.groups = np.unique(np.array(groups), return_inverse=True)
            self.data += f" in {len(names):,} groups"

    def estimate(
        self, counts: Any, score: Callable[[list[float]], float], signature: str
    ) -> BootstrapEstimate:
        """Return the estimate of a score that is a function of the sums of (N, K) counts."""
        sentences = np.array(counts, dtype=np.float64)
        table = np.zeros((int(self.groups.max()) + 1, sentences.shape[1]))
        np.add.at(table, self.groups, sentences)
        samples = np.array([score(sums) for sums in resample_sums(table).tolist()])
        value = score(table.sum(0).tolist())
        return BootstrapEstimate(value, samples, self.data, digits=2, signature=signature)

    def estimate_sacrebleu(self, name: str) -> BootstrapEstimate | None:
        metric = self.sacrebleu.get(name)
        if metric is None:
            return None
        # sacrebleu's own significance tests rest on these two methods
        counts = metric._extract_corpus_statistics(self.translations, [self.references])

        def score(sums: list[float]) -> float:
            return float(metric._compute_score_from_stats(sums).score)

        return self.estimate(counts, score, str(metric.get_signature()))


@register_metric("text", "bleu", title="BLEU")
def bleu(texts: TranslatedTexts) -> BootstrapEstimate | None:
    return texts.estimate_sacrebleu("bleu")


@register_metric("text", "chrf", title="chrF")
def chrf(texts: TranslatedTexts) -> BootstrapEstimate | None:
    return texts.estimate_sacrebleu("chrf")


@register_metric("text", "exact", title="exact %")
def exact(texts: TranslatedTexts) -> BootstrapEstimate:
    """The share of translations that equal their reference, up to white space."""

    def normalize(text: str) -> str:
        text = " ".join(text.split())
        return text.lower() if texts.lowercase else text

    pairs = zip(texts.translations, texts.references, strict=True)
    counts = [
        [normalize(translation) == normalize(reference), 1] for translation, reference in pairs
    ]
    signature = f"case:{'lc' if texts.lowercase else 'mixed'}"
    return texts.estimate(counts, lambda sums: 100 * sums[0] / sums[1], signature)


def score_translations(
    translations: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    lenient: bool = False,
    groups: Sequence[str] | None = None,
) -> dict[str, BootstrapEstimate]:
    """Return `bleu`, `chrf` and `exact` of translations with one reference each.

    `tokenize` is how BLEU splits words. With `lenient`, only `exact` is computed if sacrebleu is
    not installed. `groups` has a name for each sentence; sentences of one group, which are similar
    to each other, are resampled together.
    """
    if len(translations) != len(references) or not references:
        raise ValueError(
            "there must be a reference for each translation, one at least, "
            f"got {len(translations)} translations and {len(references)} references"
        )
    sacrebleu = load_sacrebleu(tokenize, lowercase, lenient)
    texts = TranslatedTexts(translations, references, sacrebleu, lowercase, groups)
    return estimate_metrics("text", texts)


@dataclass(frozen=True)
class Sentence:
    """A source, its reference translation, and a model's translation."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True, eq=False)
class TranslationReport(Report):
    """The loss of the reference translations, and how good a model's own translations are."""

    ranking = ("bleu", "nats_per_symbol")

    losses: TokenLosses
    quality: dict[str, BootstrapEstimate]
    sentences: tuple[Sentence, ...]
    seconds: float  # of translating

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        return self.quality | self.losses.estimates

    def store(self, run: Path, split: str) -> None:
        """Write the translations of a split to a run folder."""
        sentences = [asdict(sentence) for sentence in self.sentences]
        document = {"split": split, "seconds": round(self.seconds, 3), "sentences": sentences}
        write_json(run / TRANSLATIONS, document)


def load_translations(run: Path) -> tuple[list[Sentence], float]:
    """Read the translations that a run stored when training ended, and the seconds they took."""
    document = read_json(run / TRANSLATIONS, StoredTranslations)
    keys = [field.name for field in fields(Sentence)]
    sentences = [Sentence(**{key: one[key] for key in keys}) for one in document["sentences"]]
    return sentences, float(document["seconds"])


class TranslationSystem(Protocol):
    """A model that translates, with its tokenizers (pipelines.Translator)."""

    tokenizer: Tokenizer

    @property
    def source_tokenizer(self) -> Tokenizer: ...

    def translate_ids(
        self,
        sources: Sequence[Sequence[int] | np.ndarray],
        strategy: Strategy | None = None,
        *,
        batch_size: int = 64,
    ) -> list[list[Generated]]:
        """Translate sources given as ids without markers, the best translation first."""
        ...

    def losses(self, shard: Shard) -> TokenLosses:
        """Return the loss of the targets of a shard of pairs."""
        ...


def measure_translation(
    translator: TranslationSystem,
    shard: Shard,
    strategy: Strategy | None = None,
    *,
    max_sentences: int = 0,
    part: Shard | None = None,
    deadline: float = math.inf,
    batch_size: int = 64,
    tokenize: str = "13a",
    lowercase: bool = False,
    lenient: bool = False,
) -> TranslationReport:
    """Measure a translator on a shard of pairs, its loss on a `part` of it if one is given.

    It translates `max_sentences` of the pairs, drawn with a fixed seed (0: all), and fewer if more
    would take longer than until the `deadline` (time.monotonic).
    """
    if shard.source is None:
        raise ValueError("a translator is measured on pairs, but the shard has no source")
    load_sacrebleu(tokenize, lowercase, lenient)  # an error before the work
    numbers = np.arange(shard.records)
    if 0 < max_sentences < shard.records:
        numbers = drawn_order(shard, 0)[:max_sentences]
    source_tokenizer = translator.source_tokenizer
    sources = [source_tokenizer.content(shard.source.record(i)) for i in numbers.tolist()]
    began = time.monotonic()
    translations = _translate_until(deadline, translator, sources, strategy, batch_size)
    seconds = time.monotonic() - began
    sentences = []
    for number, source, candidates in zip(numbers.tolist(), sources, translations, strict=False):
        described = source_tokenizer.decode(source)
        if not source_tokenizer.reads_text:
            described = f"{source_tokenizer.words[0]} {number + 1:,}, {described}"
        reference = translator.tokenizer.decode(shard.record(number)[1:-1])
        translation = translator.tokenizer.decode(candidates[0].ids)
        sentences.append(Sentence(described, reference, translation))
    quality = score_translations(
        [sentence.translation for sentence in sentences],
        [sentence.reference for sentence in sentences],
        tokenize=tokenize,
        lowercase=lowercase,
        lenient=lenient,
    )
    losses = translator.losses(part or shard)
    return TranslationReport(losses, quality, tuple(sentences), seconds)


def _translate_until(
    deadline: float,
    translator: TranslationSystem,
    sources: Sequence[Array],
    strategy: Strategy | None,
    batch_size: int,
) -> list[list[Generated]]:
    """Translate the first sources, doubling their number as long as the time allows it."""
    began = time.monotonic()
    translations: list[list[Generated]] = []
    while len(translations) < len(sources):
        done, now = len(translations), time.monotonic()
        if done and now + (now - began) > deadline:
            break
        size = len(sources) if deadline == math.inf else done or batch_size
        batch = sources[done : done + size]
        translations += translator.translate_ids(batch, strategy, batch_size=batch_size)
    return translations
