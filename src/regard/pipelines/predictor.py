"""Labels of words, and the spans that they make up: names of people, places, chemicals.

Many models tag words in a scheme of prefixes: `B-PER I-PER O` is one person of two words (Ramshaw
and Marcus 1995, arXiv:cmp-lg/9505040). With `E-` or `L-` for the last word and `S-` or `U-` for the
only one it is called BIOES or BILOU.

What `regard.load` returns for a model of labels or values: texts in, answers and vectors out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from regard.arguments import one_or_many
from regard.data.batching import LabelledExamples
from regard.data.collate import Ints
from regard.data.inputs import TokenLimit, opened
from regard.data.shards import Shard
from regard.data.targets import Targets
from regard.data.views import Views
from regard.decoding.engine import device_of, evaluating
from regard.errors import UsageError, UserError
from regard.evaluation.eval_data import shard_of
from regard.evaluation.masked_lm import measure_masked_lm
from regard.evaluation.predictions import Predictions, predict_shard
from regard.layers.embeddings import Inputs
from regard.models.encoder import MaskedLM
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel
from regard.tokenizers import Patches, Points, Tokenizer

OUTSIDE = "O"
TAG = re.compile(r"([BIELSU])-(.+)")
FIRST, LAST = "BSU", "ELSU"  # prefixes that begin and that end a span


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` of a text, the label they have, and the probability of each
    label, of several words on average.
    """

    text: str
    start: int
    end: int
    label: str
    scores: dict[str, float]
    score: float

    def to_json(self) -> dict[str, Any]:
        """An entry of `words` or `spans` in `regard classify --json`."""
        keys = ("text", "start", "end", "label", "score")
        return {key: getattr(self, key) for key in keys}


def tag_words(classes: Sequence[str]) -> bool:
    """Are these labels tags of a scheme, such as O, B-PER and I-PER?"""
    others = [name for name in classes if name != OUTSIDE]
    return bool(others) and all(TAG.fullmatch(name) for name in others)


def merge_spans(text: str, words: Sequence[Span]) -> list[Span]:
    """Words with tags as spans with the types of these; words outside of spans as they are.

    What follows no scheme is read as it was probably meant: an `I-` that continues nothing begins.
    """
    groups: list[tuple[str, list[Span]]] = []
    before = ""  # the prefix of the word before
    for word in words:
        match = TAG.fullmatch(word.label)
        prefix, kind = match.groups() if match else ("", OUTSIDE)
        begins = not match or not before or prefix in FIRST or before in LAST
        if begins or groups[-1][0] != kind:
            groups.append((kind, []))
        groups[-1][1].append(word)
        before = prefix
    return [join_spans(text, kind, group) for kind, group in groups]


def join_spans(text: str, label: str, words: Sequence[Span]) -> Span:
    """Some words in a row as one span."""
    start, end, many = words[0].start, words[-1].end, len(words)
    scores = {name: sum(word.scores[name] for word in words) / many for name in words[0].scores}
    score = sum(word.score for word in words) / many
    return Span(text[start:end], start, end, label, scores, score)


@dataclass(frozen=True)
class Prediction:
    """What a model says of one text.

    `label` is the likeliest class, the labels that are likelier than not, with commas between, or
    the likeliest at every position or word; of values there is none. `scores` are probabilities by
    class, or values by name; `positions` the probability of the label at each position.

    A model that labels words gives each of its `words` a label, where it stands and a score.
    `spans` are words that belong together, where labels say so (B-PER, I-PER), and single words.
    """

    text: str
    label: str
    scores: dict[str, float]
    positions: tuple[float, ...] | None = None
    words: tuple[Span, ...] | None = None
    spans: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard classify --json`."""
        found: dict[str, Any] = {"text": self.text, "label": self.label, "scores": self.scores}
        if self.positions is not None:
            found["positions"] = list(self.positions)
        if self.words is not None:
            found["words"] = [word.to_json() for word in self.words]
            found["spans"] = [span.to_json() for span in self.spans]
        return found


class Predictor:
    """A model that answers, its tokenizer and the names of its answers; with `views`, what it says
    of a text is what it says of all views of it, on average.
    """

    def __init__(
        self,
        model: SupervisedModel,
        tokenizer: Tokenizer,
        targets: Targets,
        run: Path | None = None,
        views: Views | None = None,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """`told` is what the run knows of its data."""
        self.model, self.tokenizer, self.targets, self.run = model, tokenizer, targets, run
        self.views, self.told = views, told or {}

    @property
    def labels_words(self) -> bool:
        """Does the model label each word of a text?"""
        return self.targets.kind.aligned and self.tokenizer.word_spans("") is not None

    def shard(self, texts: Sequence[Any], seconds: Sequence[str] | None = None) -> Shard:
        """Texts, or pairs of them, as a shard of which nothing is known."""
        texts = opened(texts, self.tokenizer, self.told)
        found = shard_of(self.views.texts(texts) if self.views else texts, self.tokenizer)
        if self.views:
            found = replace(found, views=self.views.count)
        if seconds is not None:
            found = found.paired(shard_of(seconds, self.tokenizer))
        kind = self.targets.kind
        targets = kind.unlabelled(self.targets, found.records, found.tokens)
        return replace(found, targets=targets, aligned=kind.aligned)

    @overload
    def classify(self, texts: str | Path, seconds: str | None = ...) -> Prediction: ...

    @overload
    def classify(
        self, texts: Sequence[Any], seconds: Sequence[str] | None = ...
    ) -> list[Prediction]: ...

    def classify(
        self, texts: str | Path | Sequence[Any], seconds: str | Sequence[str] | None = None
    ) -> Prediction | list[Prediction]:
        """What the model says of a text, or of each of several; of an empty text, nothing. Of
        pairs, `seconds` are the second texts; pictures and point clouds are named by their paths,
        or given.
        """
        tokenizer = self.tokenizer
        several, one = one_or_many("texts", texts, tokenizer.reads, tokenizer.item)
        more = None if seconds is None else one_or_many("seconds", seconds)[0]
        if more is not None and len(more) != len(several):
            raise ValueError(
                f"seconds must be as many as texts, got {len(more)} and {len(several)}"
            )
        found = self._classify(several, more)
        return found[0] if one else found

    def _classify(self, texts: Sequence[Any], seconds: Sequence[str] | None) -> list[Prediction]:
        if isinstance(self.model, MaskedLM):
            raise UserError(
                "a run of task masked fills in tokens and answers nothing else; learn labels from "
                "it with `regard train FILE --target COLUMN --pretrain RUN`"
            )
        empty = () if self.labels_words else None
        found = [Prediction(x if isinstance(x, str) else "", "", {}, words=empty) for x in texts]
        there = [i for i, text in enumerate(texts) if not isinstance(text, str) or text.strip()]
        if not there:
            return found
        others = None if seconds is None else [seconds[i] for i in there]
        said = self.measure(self.shard([texts[i] for i in there], others))
        likely = self.model.output.probabilities(torch.from_numpy(said.scores))
        first = 0
        for i, length in zip(there, said.lengths.tolist(), strict=True):
            own = likely[first : first + length]
            found[i] = self._answer(found[i].text, own if said.positional else own[0])
            first += length
        return found

    def _answer(self, text: str, likely: torch.Tensor) -> Prediction:
        kind, names = self.targets.kind, self.targets.names
        if kind.per_column:
            scores = dict(zip(names, likely.tolist(), strict=True))
            label = ",".join(n for n, p in scores.items() if p >= 0.5) if kind.categorical else ""
            return Prediction(text, label, scores)
        classes = self.targets.classes[0]
        if kind.aligned:
            # without the markers, of which numbers have one
            inside = likely[1:-1] if not isinstance(self.tokenizer, Points) else likely[1:]
            return self._labelled(text, inside)
        best = classes[int(likely.argmax())]
        return Prediction(text, best, dict(zip(classes, likely.tolist(), strict=True)))

    def _labelled(self, text: str, likely: torch.Tensor) -> Prediction:
        """What a model says of the positions of a text (T, C) or, where they are parts of words, of
        these: a word has the label of its first token, as in training such models.
        """
        classes = self.targets.classes[0]
        spans = self.tokenizer.word_spans(text)
        if spans is None:
            sure, best = (x.tolist() for x in likely.max(-1))
            letters = "".join if max(map(len, classes)) == 1 else " ".join
            mean = {"mean": sum(sure) / len(sure) if sure else 1.0}
            return Prediction(text, letters(classes[i] for i in best), mean, tuple(sure))
        words = []
        for start, end, token in spans:
            if token < len(likely):  # what is longer than the context is cut
                scores = dict(zip(classes, likely[token].tolist(), strict=True))
                label = max(scores, key=scores.__getitem__)
                words.append(Span(text[start:end], start, end, label, scores, scores[label]))
        label = " ".join(word.label for word in words)
        mean = {"mean": sum(word.score for word in words) / len(words) if words else 1.0}
        together = merge_spans(text, words) if tag_words(classes) else words
        return Prediction(text, label, mean, words=tuple(words), spans=tuple(together))

    @property
    def labels(self) -> bool:
        """Does an answer have a label, or values alone?"""
        return self.targets.kind.categorical

    @property
    def context(self) -> TokenLimit | None:
        """What of a long record is used; images and point clouds are never cut."""
        if isinstance(self.tokenizer, Patches | Points):
            return None
        room = int(self.model.config.max_len) - 2  # without `<S>` and `<E>`
        return TokenLimit(room, room)

    def refuse_pipe(self, file: Path) -> None:
        """A UsageError where standard input (`-`) cannot hold what this model is for."""
        if str(file) == "-" and isinstance(self.tokenizer, Patches | Points):
            what = "images" if isinstance(self.tokenizer, Patches) else "point clouds"
            raise UsageError(f"name a file or a folder of {what}; they are not read from a pipe")

    @overload
    def embed(
        self, texts: str | Path, *, seconds: str | None = ..., positions: bool = ...
    ) -> NDArray[np.float32]: ...

    @overload
    def embed(
        self, texts: Sequence[Any], *, seconds: Sequence[str] | None = ..., positions: bool = ...
    ) -> list[NDArray[np.float32]]: ...

    def embed(
        self,
        texts: str | Path | Sequence[Any],
        *,
        seconds: str | Sequence[str] | None = None,
        positions: bool = False,
    ) -> NDArray[np.float32] | list[NDArray[np.float32]]:
        """A vector (D,) of a text, or of each of several, or with `positions` one of each of its
        tokens (T, D); of several views, those of the text itself. Of pairs, `seconds` are the
        second texts.
        """
        tokenizer = self.tokenizer
        several, one = one_or_many("texts", texts, tokenizer.reads, tokenizer.item)
        more = None if seconds is None else one_or_many("seconds", seconds)[0]
        found = self.vectors(self.shard(several, more), positions=positions) if several else []
        return found[0] if one else found

    @torch.inference_mode()
    def vectors(
        self, shard: Shard, records: Ints | None = None, *, positions: bool = False
    ) -> list[NDArray[np.float32]]:
        """What `embed` gives, of the records of a shard, or of those named, in their order."""
        model = self.model
        if not isinstance(model, NeuralSupervisedModel):
            raise UserError(f"{type(model).__name__} has no vectors to embed texts by")
        found: dict[int, NDArray[np.float32]] = {}
        asked = LabelledExamples(shard, self.tokenizer, int(model.config.max_len), first=True)
        with evaluating(model):
            for batch in asked.batches(1 << 14, records):
                assert batch.segments is not None
                source = Inputs(batch.ids, batch.segments).to(device_of(model))
                vectors = (model.vectors if positions else model.embed)(source).float().cpu()
                for row, record in enumerate(batch.items.tolist()):
                    # without the markers, of which numbers have one
                    last = int(asked.lengths[record]) - (batch.ids.dim() == 2)
                    inside = slice(1, last)
                    found[record] = (vectors[row][inside] if positions else vectors[row]).numpy()
        return [found[i] for i in (sorted(found) if records is None else records.tolist())]

    def measure(self, shard: Shard) -> Predictions:
        """What the model answers to a labelled shard, beside the truths."""
        with evaluating(self.model):
            if isinstance(self.model, MaskedLM):
                return measure_masked_lm(self.model, shard, self.tokenizer)
            return predict_shard(self.model, shard, self.tokenizer, self.targets)
