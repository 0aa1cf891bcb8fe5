"""How good translations are: BLEU, chrF and exact matches, from 0 to 100, with 95% intervals.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are sacrebleu's (Post 2018, arXiv:1804.08771)
and come with its signature, which says how they were computed. Each is a function of sums over
sentences: for an interval the sentences' counts are resampled and their sums judged again, and two
systems on the same sentences are compared in pairs (Koehn 2004, "Statistical significance tests for
machine translation evaluation").

Does a captioner know which caption belongs to which picture? Each is scored with every other.

Recall at k is the share of pictures whose caption is among the first k of all captions, and of
captions whose picture is among the first k of all pictures, in per cent. Captions are ranked for a
picture by how much likelier it makes them than the pictures do on average, log P(c | p) less the
logarithm of the mean of P(c | p'), or else short ones would be everyone's first; pictures are
ranked for a caption by log P(c | p) alone. What is told alike is right wherever it stands.

Which head of a translator aligns: how often each agrees with IBM model 1 on which word a word
comes from.

Cross-attention weights are no alignment by themselves, but of all heads one or two come close to
it, and which ones is found by their agreement with an aligner that knows nothing of the network
(Garg et al. 2019, arXiv:1909.02074, who take GIZA++ for it; here it is `models.alignment`,
estimated on the pairs the network was trained on).

The query that counts for a target word is the one that predicts it, whose input is the word before:
its row of the weights says where the network looked to say that word. Heads of the first layers may
align the word they have just read instead, and count for little here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import drawn_order
from regard.data.shards import Shard
from regard.decoding import Strategy
from regard.decoding.engine import device_of, evaluating
from regard.errors import UsageError, did_you_mean, missing_extra
from regard.evaluation.bootstrap import resampled_sums
from regard.evaluation.estimates import BootstrapEstimate
from regard.evaluation.language_modeling import Metric, TokenLosses, metrics_of
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.ibm_model1 import NULL, TranslationTable, estimate, rectangle
from regard.models.language_model import IGNORE, NeuralLanguageModel
from regard.models.ngrams import Ints
from regard.models.seq2seq import NeuralSeq2Seq, Seq2SeqModel
from regard.pipelines.translator import Translator
from regard.run import write_json
from regard.schemas import StoredTranslations
from regard.storage import read_json
from regard.training.validation import beginning

TRANSLATIONS = "translations.json"  # of a run: what it made of sentences that were held out
TOKENIZERS = ("13a", "none", "intl", "char", "zh")  # those of sacrebleu that need nothing else
DIGITS = 2  # of a figure from 0 to 100


def corpus_metrics(
    translations: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    lenient: bool = False,
    groups: Sequence[str] | None = None,
) -> dict[str, BootstrapEstimate]:
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
) -> BootstrapEstimate:
    """Judge the sum of (N, K) counts, and the sums of resamples."""
    table = np.array(counts, dtype=np.float64)
    data = f"{len(table):,} sentences"
    if groups is not None:
        names, places = np.unique(np.array(groups), return_inverse=True)
        table = np.stack([np.bincount(places, column) for column in table.T], axis=1)  # (G, K)
        data += f" in {len(names):,} groups"
    samples = np.array([score(sums) for sums in resampled_sums(table).tolist()])
    value = score(table.sum(0).tolist())
    return BootstrapEstimate(value, samples, data, digits=DIGITS, signature=signature)


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

    measured: TokenLosses
    judged: dict[str, BootstrapEstimate]
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

    def figures(self) -> dict[str, Metric]:
        """The metrics by name."""
        return {name: one.figure() for name, one in self.judged.items()} | metrics_of(self.measured)


def measure_translation(
    translator: Translator,
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
    content = translator.source_tokenizer.content
    sources = [content(shard.source.record(i)) for i in numbers.tolist()]
    began = time.monotonic()
    answers: list[Any] = []
    while len(answers) < len(sources) and (not answers or goes_on(began, until)):
        size = len(answers) or batch_size if until < math.inf else len(sources)  # doubling
        some = sources[len(answers) : len(answers) + size]
        answers += translator.answers(some, strategy, batch_size=batch_size)
    sources = sources[: len(answers)]
    seconds = time.monotonic() - began
    decode, read = translator.tokenizer.decode, translator.source_tokenizer.decode
    told = [
        f"{f'picture {i + 1:,}, ' if translator.sees else ''}{read(source)}"
        for i, source in zip(numbers.tolist(), sources, strict=False)
    ]
    made = tuple(
        Sentence(source, decode(shard.record(i)[1:-1]), decode(several[0].ids))
        for source, i, several in zip(told, numbers.tolist(), answers, strict=False)
    )
    judged = score_translations(made, tokenize=tokenize, lowercase=lowercase, lenient=lenient)
    return Translated(translator.measure(part or shard), judged, made, seconds)


def goes_on(began: float, until: float) -> bool:
    """Is there time to translate as many again, at the pace since `began`?"""
    now = time.monotonic()
    return now + (now - began) <= until


def score_translations(made: Sequence[Sentence], **options: Any) -> dict[str, BootstrapEstimate]:
    """See `judge`, which takes the same options."""
    return corpus_metrics(
        [one.translation for one in made], [one.reference for one in made], **options
    )


def load_translations(run: Path) -> tuple[list[Sentence], float]:
    """What a run made of the first held-out sentences when it ended, and the seconds it took."""
    document = read_json(run / TRANSLATIONS, StoredTranslations)
    keys = [field.name for field in fields(Sentence)]
    made = [Sentence(**{key: one[key] for key in keys}) for one in document["sentences"]]
    return made, float(document["seconds"])


FIRST = (1, 5)  # of the ranks that count
TOGETHER = 1 << 14  # positions scored at once

Floats = NDArray[np.float64]


def scores(translator: Translator, pairs: Shard) -> tuple[Floats, list[tuple[int, ...]]]:
    """(N, M) log P of each of M different captions given each of N pictures, and the captions."""
    assert pairs.source is not None
    told = dict.fromkeys(tuple(pairs.record(i)[1:].tolist()) for i in range(pairs.records))
    captions = sorted(told, key=len)
    start, table, device = translator.tokenizer.start, [], device_of(translator.model)
    rows = max(1, TOGETHER // len(captions[-1]))
    parts = [
        caption_rectangle(captions[i : i + rows], start) for i in range(0, len(captions), rows)
    ]
    with evaluating(translator.model), torch.inference_mode():
        for number in range(pairs.records):
            ids = torch.from_numpy(np.array(pairs.source.record(number)))[None].to(device)
            there = torch.ones(ids.shape[:2], dtype=torch.int64, device=device)
            given = translator.model.condition(Inputs(ids, there))
            logs = [given.score(x.to(device), y.to(device)).double().sum(1) for x, y in parts]
            table.append(torch.cat(logs).cpu())
    return torch.stack(table).numpy(), captions


def caption_rectangle(captions: Sequence[tuple[int, ...]], start: int) -> tuple[Tensor, Tensor]:
    """(M, T) ids and targets of captions that end with `<E>`."""
    longest = max(map(len, captions))
    targets = torch.full((len(captions), longest), IGNORE)
    for row, caption in enumerate(captions):
        targets[row, : len(caption)] = torch.tensor(caption)
    ids = torch.cat((torch.full((len(captions), 1), start), targets[:, :-1]), 1)
    return ids.clamp_min(0), targets


def recall(translator: Translator, pairs: Shard) -> dict[str, BootstrapEstimate]:
    """`caption_1`, `caption_5`, `picture_1` and `picture_5`, each over the pictures of pairs."""
    logs, captions = scores(translator, pairs)
    places = {caption: i for i, caption in enumerate(captions)}
    right = [places[tuple(pairs.record(i)[1:].tolist())] for i in range(pairs.records)]
    return recall_of(logs, np.array(right))


def recall_of(logs: Floats, right: NDArray[np.int64]) -> dict[str, BootstrapEstimate]:
    """The same of log P (N, M), where caption right[i] belongs to picture i.

    The rank of what is right is one more than how many others are better; ties count against it.
    """
    count = len(logs)
    own = logs[np.arange(count), right]  # (N,)
    likelier = logs - (np.logaddexp.reduce(logs, axis=0) - math.log(count))
    mine = likelier[np.arange(count), right]
    better = likelier >= mine[:, None]  # (N, M), the right one among them
    ranks = {"caption": better.sum(1)}
    alike = right[:, None] == right[None]  # pictures that are told alike
    rivals = (own[:, None] <= logs[:, right].T) & ~alike  # (N, N): picture j for caption of i
    ranks["picture"] = 1 + rivals.sum(1)
    return {
        f"{name}_{k}": _hit_share(rank <= k, f"{count:,} pictures")
        for name, rank in ranks.items()
        for k in FIRST
    }


def _hit_share(found: NDArray[np.bool_], data: str) -> BootstrapEstimate:
    """How many of them are, in per cent."""
    table = np.stack([found, np.ones_like(found)], 1).astype(np.float64)
    sums = resampled_sums(table)
    samples = 100 * sums[:, 0] / sums[:, 1]
    return BootstrapEstimate(100 * float(found.mean()), samples, data, digits=1)


CROSS = "*cross.weights"  # the activations that are judged
PASSES = 5  # of expectation–maximisation: 94% of links are those of 20 (English to German)
PAIRS = 30_000  # that model 1 is estimated on, at most,
CELLS = 1 << 23  # with no more than so many pairs of positions: seconds
JUDGED = 400  # pairs on which heads and model 1 are compared
ROWS = 32  # of them at once


@dataclass(frozen=True)
class Agreement:
    """The share of model 1's links that each head of each layer has too, (L, H), and how many links
    there were. Layers and heads count from 0.
    """

    per_head: list[list[float]]
    links: int

    def __post_init__(self) -> None:
        if len({len(heads) for heads in self.per_head}) != 1 or not self.per_head[0]:
            raise ValueError("per_head must hold as many heads for every layer, one at least")
        if not all(0 <= share <= 1 for heads in self.per_head for share in heads):
            raise ValueError("the agreement of a head must be from 0 to 1")

    @property
    def best(self) -> tuple[int, int]:
        """The layer and the head that agree most: the alignment head. Of equals the first."""
        layer, head = np.unravel_index(int(np.argmax(self.per_head)), np.shape(self.per_head))
        return int(layer), int(head)

    def to_json(self) -> dict[str, Any]:
        """What regard.json says under `alignment`."""
        layer, head = self.best
        shares = [[round(share, 4) for share in heads] for heads in self.per_head]
        return {
            "layer": layer,
            "head": head,
            "agreement": shares[layer][head],
            "per_head": shares,
            "links": self.links,
        }

    @classmethod
    def from_json(cls, stored: Any) -> Agreement:
        """Read it back; what is malformed is a ValueError."""
        try:
            heads = [[float(share) for share in heads] for heads in stored["per_head"]]
            return cls(heads, int(stored["links"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"alignment must hold per_head and links: {error}") from None


def agreement(
    model: Seq2SeqModel,
    train: Shard,
    pairs: Shard | None = None,
    *,
    begins: Callable[[], object] = bool,
) -> Agreement | None:
    """How well every cross-attention head agrees with model 1 of `train`, on the first of `pairs`,
    or of the training pairs where there are none.

    None of a translator that does not look at its source, and where model 1 links nothing. `begins`
    is called before the work, if there is any to do.
    """
    pairs = pairs or train
    assert pairs.source is not None
    lengths = [np.diff(side.offsets[: JUDGED + 1]) for side in (pairs, pairs.source)]
    fitting = np.flatnonzero(np.maximum(*lengths) <= model.config.max_len)
    if not len(fitting) or looks(model, pairs, fitting[:1]) is None:
        return None
    begins()
    lexicon, agreed, links = model_1(model, train), torch.zeros(()), 0
    for first in range(0, len(fitting), ROWS):
        numbers = fitting[first : first + ROWS]
        weights = looks(model, pairs, numbers)
        assert weights is not None
        linked = links_of(lexicon, pairs, numbers)
        agreed = agreed + agrees(weights, rectangle(pairs.source, numbers), linked)
        links += int((linked != NULL).sum())
    return Agreement((agreed.double() / links).tolist(), links) if links else None


def model_1(model: Seq2SeqModel, train: Shard) -> TranslationTable:
    """The table of IBM model 1 of the first training pairs."""
    assert train.source is not None
    target, source = (np.diff(shard.offsets[: PAIRS + 1]) - 1 for shard in (train, train.source))
    count = max(1, int(np.searchsorted(np.cumsum(target * source), CELLS)))
    part = beginning(train, int(train.offsets[min(count, len(target))]))
    vocabulary = model.config.source_vocab or model.vocab_size
    return estimate(part, vocabulary, PASSES, longest=model.config.max_len)


def looks(model: Seq2SeqModel, pairs: Shard, numbers: Ints) -> Tensor | None:
    """(L, B, H, T, S) where every head looked to say each word and `<E>` of these pairs, the words
    before it given; None if the model has no heads.
    """
    if not isinstance(model, NeuralSeq2Seq):
        return None
    assert pairs.source is not None
    ids, targets = (rectangle(shard, numbers) for shard in (pairs.source, pairs))
    start = torch.full_like(targets[:, :1], int(pairs.ids[0]))
    said = torch.cat((start, targets[:, :-1]), dim=1).clamp_min(0)
    tap, device = Tap([CROSS]), device_of(model)
    with evaluating(model):
        given = model.condition(Inputs(ids.clamp_min(0), (ids != IGNORE).long()).to(device))
        assert isinstance(given, NeuralLanguageModel)
        given.hidden(said.to(device), tap=tap)
    return torch.stack(list(tap.found.values())).float().cpu() if tap.found else None


def links_of(lexicon: TranslationTable, pairs: Shard, numbers: Ints) -> Tensor:
    """(B, T) the source position that model 1 links each target word to; NULL for `<E>` too."""
    assert pairs.source is not None
    found = torch.full(rectangle(pairs, numbers).shape, NULL)
    for row, number in enumerate(numbers.tolist()):
        source, target = (shard.record(number)[1:-1].tolist() for shard in (pairs.source, pairs))
        found[row, : len(target)] = torch.tensor(lexicon.links(source, target), dtype=torch.long)
    return found


def agrees(weights: Tensor, sources: Tensor, links: Tensor) -> Tensor:
    """(L, H) how many of the links (B, T) a head of weights (L, B, H, T, S) has too: its weight is
    greatest, among the words of the source (B, S), at the linked one.

    Sources end with `<E>`, then IGNORE. Where a word stands in its source more than once, model 1
    cannot tell which one is meant: any of them will do.
    """
    last = (sources != IGNORE).sum(dim=1, keepdim=True) - 1  # (B, 1) where `<E>` is
    words = torch.arange(sources.size(1)) < last  # (B, S)
    looked = weights.masked_fill(~words[:, None, None], -1).argmax(dim=-1)  # (L, B, H, T)
    found = sources[None, :, None].expand(*looked.shape[:3], -1).gather(3, looked)
    meant = sources.gather(1, links.clamp_min(0))  # (B, T)
    return ((found == meant[:, None]) & (links != NULL)[:, None]).sum(dim=(1, 3))
