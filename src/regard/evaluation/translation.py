"""Metrics of translations and captions, and of what their models know.

Metrics of translations: BLEU, chrF and exact matches, from 0 to 100, with 95% intervals.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are sacrebleu's (Post 2018, arXiv:1804.08771)
and come with its signature of how they were computed. Each is a function of sums over sentences:
for an interval the counts of sentences are resampled and the score is computed from their sums.

Whether a captioner knows which caption belongs to which image: each is scored with every other.

Recall at k is the share of images whose caption is among the first k of all captions, and of
captions whose image is among the first k of all images, in per cent. For an image, captions are
ranked by log P(c | i) minus the logarithm of the mean of P(c | i') over all images, since short
captions would otherwise be first for every image; for a caption, images are ranked by log P(c | i).
Images with equal captions do not compete.

Which cross-attention head aligns words: how often each agrees with IBM model 1.

Cross-attention weights are no alignment by themselves, but one or two heads come close to it. They
are found by their agreement with an aligner that is independent of the network (Garg et al. 2019,
arXiv:1909.02074, who use GIZA++; here IBM model 1, fitted to the pairs the network was trained on).

The query of a target word is the position that predicts it, whose input is the word before. Heads
of the first layers may align the word they have just read instead, and agree little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data import Progress, no_progress
from regard.data.batching import drawn_order
from regard.data.shards import Array, Shard
from regard.decoding import Generated, Strategy
from regard.decoding.engine import device_of, evaluating
from regard.errors import UsageError, did_you_mean, missing_extra
from regard.evaluation import Report, estimate_metrics, register_metric
from regard.evaluation.bootstrap import BootstrapEstimate, Floats, resample_sums
from regard.evaluation.language_modeling import TokenLosses, truncate_shard
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.ibm_model1 import NULL, TranslationTable, fit_table, pad_records
from regard.models.language_model import IGNORE, NeuralLanguageModel
from regard.models.ngrams import Ints
from regard.models.seq2seq import Seq2SeqModel
from regard.storage import StoredTranslations, read_json, write_json
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


@register_metric("text", "bleu", title="BLEU", most=100)
def bleu(texts: TranslatedTexts) -> BootstrapEstimate | None:
    return texts.estimate_sacrebleu("bleu")


@register_metric("text", "chrf", title="chrF", most=100)
def chrf(texts: TranslatedTexts) -> BootstrapEstimate | None:
    return texts.estimate_sacrebleu("chrf")


@register_metric("text", "exact", title="exact %", most=100)
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

    ranking = ("bleu", "bits_per_symbol")

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
    progress: Progress = no_progress,
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
    translations = _translate_until(deadline, translator, sources, strategy, batch_size, progress)
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
    progress: Progress,
) -> list[list[Generated]]:
    """Translate the first sources, doubling their number as long as the time allows it."""
    began = time.monotonic()
    translations: list[list[Generated]] = []
    while len(translations) < len(sources):
        done, now = len(translations), time.monotonic()
        if done and now + (now - began) > deadline:
            break
        progress("translating", done, len(sources), translator.source_tokenizer.words[1])
        size = AT_ONCE * batch_size if deadline == math.inf else done or batch_size
        batch = sources[done : done + size]
        translations += translator.translate_ids(batch, strategy, batch_size=batch_size)
    return translations


AT_ONCE = 8  # batches that are translated between two looks at the progress
RANKS = (1, 5)  # k of recall at k
POSITIONS = 1 << 14  # scored at once


def measure_recall(
    model: Seq2SeqModel, tokenizer: Tokenizer, pairs: Shard
) -> dict[str, BootstrapEstimate]:
    """Return `caption_1`, `caption_5`, `image_1` and `image_5` over the images of pairs."""
    scores, captions = score_captions(model, tokenizer, pairs)
    numbers = {caption: i for i, caption in enumerate(captions)}
    truths = [numbers[tuple(pairs.record(i)[1:].tolist())] for i in range(pairs.records)]
    return recall_from_scores(scores, np.array(truths))


def score_captions(
    model: Seq2SeqModel, tokenizer: Tokenizer, pairs: Shard
) -> tuple[Floats, list[tuple[int, ...]]]:
    """Return log P (N, M) of M different captions given each of N images, and the captions."""
    assert pairs.source is not None
    records = (tuple(pairs.record(i)[1:].tolist()) for i in range(pairs.records))
    captions = sorted(dict.fromkeys(records), key=len)
    rows, device = max(1, POSITIONS // len(captions[-1])), device_of(model)
    batches = [
        _pad_captions(captions[i : i + rows], tokenizer.start)
        for i in range(0, len(captions), rows)
    ]
    table = []
    with evaluating(model), torch.inference_mode():
        for number in range(pairs.records):
            ids = torch.from_numpy(np.array(pairs.source.record(number)))[None].to(device)
            segments = torch.ones(ids.shape[:2], dtype=torch.int64, device=device)
            conditioned = model.condition(Inputs(ids, segments))
            scores = [conditioned.score(x.to(device), y.to(device)) for x, y in batches]
            table.append(torch.cat([score.double().sum(1) for score in scores]).cpu())
    return torch.stack(table).numpy(), captions


def _pad_captions(captions: Sequence[tuple[int, ...]], start: int) -> tuple[Tensor, Tensor]:
    """Return (M, T) ids and targets of captions that end with `<E>`."""
    targets = torch.full((len(captions), max(map(len, captions))), IGNORE)
    for row, caption in enumerate(captions):
        targets[row, : len(caption)] = torch.tensor(caption)
    ids = torch.cat((torch.full((len(captions), 1), start), targets[:, :-1]), 1)
    return ids.clamp_min(0), targets


def recall_from_scores(scores: Floats, truths: NDArray[np.int64]) -> dict[str, BootstrapEstimate]:
    """Return the recall from log P (N, M), where caption truths[i] belongs to image i.

    The rank of the true one is one more than the number of others that score at least as high.
    """
    count = len(scores)
    true_scores = scores[np.arange(count), truths]  # (N,)
    relative = scores - (np.logaddexp.reduce(scores, axis=0) - math.log(count))
    true_relative = relative[np.arange(count), truths]
    same_caption = truths[:, None] == truths[None]
    rivals = (true_scores[:, None] <= scores[:, truths].T) & ~same_caption  # (N, N) other images
    ranks = {
        "caption": (relative >= true_relative[:, None]).sum(1),  # the true one is among them
        "image": 1 + rivals.sum(1),
    }
    return {
        f"{name}_{k}": _estimate_share(rank <= k, f"{count:,} images")
        for name, rank in ranks.items()
        for k in RANKS
    }


def _estimate_share(hits: NDArray[np.bool_], data: str) -> BootstrapEstimate:
    """Return the estimate of the share of hits, in per cent."""
    sums = resample_sums(np.stack([hits, np.ones_like(hits)], 1).astype(np.float64))
    samples = 100 * sums[:, 0] / sums[:, 1]
    return BootstrapEstimate(100 * float(hits.mean()), samples, data, digits=1)


CROSS = "*cross.weights"  # the names of the activations
ITERATIONS = 5  # of model 1: 94% of the links are those of 20 iterations (English to German)
FIT_PAIRS = 30_000  # to which model 1 is fitted, at most,
FIT_CELLS = 1 << 23  # with at most so many pairs of positions: seconds
TEST_PAIRS = 400  # on which heads and model 1 are compared
ROWS = 32  # of them at once


@dataclass(frozen=True)
class HeadAlignment:
    """The share of model 1's links on which each head agrees, (L, H), and the number of links.
    Layers and heads count from 0. `diagonal` is the share of a baseline without any model, which
    links a word to the source word at the same fraction of its sentence; 0 where not measured.
    """

    per_head: list[list[float]]
    links: int
    diagonal: float = 0.0

    def __post_init__(self) -> None:
        if len({len(heads) for heads in self.per_head}) != 1 or not self.per_head[0]:
            raise ValueError("per_head must hold as many heads for every layer, one at least")
        if not all(0 <= share <= 1 for heads in self.per_head for share in heads):
            raise ValueError("the agreement of a head must be from 0 to 1")

    @property
    def best(self) -> tuple[int, int]:
        """The layer and the head that agree most, the first of equals."""
        layer, head = np.unravel_index(int(np.argmax(self.per_head)), np.shape(self.per_head))
        return int(layer), int(head)

    @property
    def beats_diagonal(self) -> bool:
        """Whether the best head agrees on more links than the diagonal does."""
        layer, head = self.best
        return self.per_head[layer][head] > self.diagonal

    def to_json(self) -> dict[str, Any]:
        """Return what regard.json stores under `alignment`."""
        layer, head = self.best
        shares = [[round(share, 4) for share in heads] for heads in self.per_head]
        return {
            "layer": layer,
            "head": head,
            "agreement": shares[layer][head],
            "per_head": shares,
            "links": self.links,
            "diagonal": round(self.diagonal, 4),
        }

    @classmethod
    def from_json(cls, stored: Any) -> HeadAlignment:
        """Read `to_json`; ValueError if it is malformed."""
        try:
            heads = [[float(share) for share in heads] for heads in stored["per_head"]]
            return cls(heads, int(stored["links"]), float(stored.get("diagonal", 0.0)))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"alignment must hold per_head and links: {error}") from None


def measure_head_alignment(
    model: Seq2SeqModel,
    train: Shard,
    pairs: Shard | None = None,
    *,
    on_start: Callable[[], object] = bool,
) -> HeadAlignment | None:
    """Compare every cross-attention head with model 1 of `train`, on the first of `pairs` (by
    default training pairs).

    Return None for models without cross-attention, and where model 1 links nothing. `on_start` is
    called before the work, if there is any.
    """
    pairs = pairs or train
    assert pairs.source is not None
    lengths = [np.diff(shard.offsets[: TEST_PAIRS + 1]) for shard in (pairs, pairs.source)]
    numbers = np.flatnonzero(np.maximum(*lengths) <= model.config.max_len)
    if not len(numbers) or not _has_cross_attention(model, pairs, numbers[:1]):
        return None
    on_start()
    table, agreements, n_links = fit_model_1(model, train), torch.zeros(()), 0
    on_diagonal = 0
    for batch in np.split(numbers, range(ROWS, len(numbers), ROWS)):
        weights = _cross_attention(model, pairs, batch)
        links = _link(table, pairs, batch)
        sources, targets = pad_records(pairs.source, batch), pad_records(pairs, batch)
        agreements = agreements + count_agreements(weights, sources, links)
        on_diagonal += int(count_agreements(diagonal_weights(sources, targets), sources, links))
        n_links += int((links != NULL).sum())
    if not n_links:
        return None
    shares = (agreements.double() / n_links).tolist()
    return HeadAlignment(shares, n_links, on_diagonal / n_links)


def diagonal_weights(sources: Tensor, targets: Tensor) -> Tensor:
    """Return (1, B, 1, T, S): a head that links word t of T to the source word at the same fraction
    of its sentence. Both sentences end with `<E>`, then IGNORE.
    """
    n_sources, n_targets = ((ids != IGNORE).sum(1) - 1 for ids in (sources, targets))  # (B,)
    fractions = torch.arange(targets.size(1)) / (n_targets[:, None] - 1).clamp_min(1)  # (B, T)
    positions = (fractions * (n_sources[:, None] - 1)).round().long()
    positions = positions.clamp(0, sources.size(1) - 1)
    return torch.nn.functional.one_hot(positions, sources.size(1)).float()[None, :, None]


def fit_model_1(model: Seq2SeqModel, train: Shard) -> TranslationTable:
    """Fit IBM model 1 to the first training pairs."""
    assert train.source is not None
    target, source = (np.diff(s.offsets[: FIT_PAIRS + 1]) - 1 for s in (train, train.source))
    count = max(1, int(np.searchsorted(np.cumsum(target * source), FIT_CELLS)))
    part = truncate_shard(train, int(train.offsets[min(count, len(target))]))
    source_vocab = model.config.source_vocab or model.vocab_size
    return fit_table(part, source_vocab, ITERATIONS, longest=model.config.max_len)


def _inputs(model: Seq2SeqModel, pairs: Shard, numbers: Ints) -> tuple[Inputs, Tensor]:
    """Return the sources of pairs, and their targets shifted right (B, T)."""
    assert pairs.source is not None
    ids, targets = (pad_records(shard, numbers) for shard in (pairs.source, pairs))
    start = torch.full_like(targets[:, :1], int(pairs.ids[0]))
    shifted = torch.cat((start, targets[:, :-1]), dim=1).clamp_min(0)
    device = device_of(model)
    return Inputs(ids.clamp_min(0), (ids != IGNORE).long()).to(device), shifted.to(device)


def _has_cross_attention(model: Seq2SeqModel, pairs: Shard, numbers: Ints) -> bool:
    source, shifted = _inputs(model, pairs, numbers)
    tap = Tap([CROSS])
    with evaluating(model):
        model.condition(source).logits(shifted, tap=tap)
    return bool(tap.activations)


def _cross_attention(model: Seq2SeqModel, pairs: Shard, numbers: Ints) -> Tensor:
    """Return the weights (L, B, H, T, S) with which every head predicts the targets and `<E>`."""
    source, shifted = _inputs(model, pairs, numbers)
    tap = Tap([CROSS])
    with evaluating(model):
        # only neural models attend; without the head, which costs as much as all layers
        cast(NeuralLanguageModel, model.condition(source)).hidden(shifted, tap=tap)
    return torch.stack(list(tap.activations.values())).float().cpu()


def _link(table: TranslationTable, pairs: Shard, numbers: Ints) -> Tensor:
    """Return the source position (B, T) that model 1 links each target word to; NULL for `<E>`."""
    assert pairs.source is not None
    links = torch.full(pad_records(pairs, numbers).shape, NULL)
    for row, number in enumerate(numbers.tolist()):
        source, target = (shard.record(number)[1:-1].tolist() for shard in (pairs.source, pairs))
        links[row, : len(target)] = torch.tensor(table.links(source, target), dtype=torch.long)
    return links


def count_agreements(weights: Tensor, sources: Tensor, links: Tensor) -> Tensor:
    """Return for how many of the links (B, T) a head of weights (L, B, H, T, S) has its greatest
    weight, among the words of the source (B, S), at the linked word: (L, H).

    Sources end with `<E>`, then IGNORE. Model 1 cannot distinguish equal words of a source: any of
    them agrees.
    """
    end = (sources != IGNORE).sum(dim=1, keepdim=True) - 1  # (B, 1) the position of `<E>`
    is_word = torch.arange(sources.size(1)) < end  # (B, S)
    positions = weights.masked_fill(~is_word[:, None, None], -1).argmax(dim=-1)  # (L, B, H, T)
    words = sources[None, :, None].expand(*positions.shape[:3], -1).gather(3, positions)
    linked = sources.gather(1, links.clamp_min(0))  # (B, T)
    return ((words == linked[:, None]) & (links != NULL)[:, None]).sum(dim=(1, 3))
