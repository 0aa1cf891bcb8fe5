"""The pipeline of models that fill in what is masked: candidates for masks, embeddings,
pseudo-log-likelihoods and the effects of variants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard.data import Progress, no_progress
from regard.data.inputs import InputReader, Item, RecordNotes, quiet
from regard.data.shards import Shard
from regard.decoding.engine import evaluating
from regard.errors import UsageError, UserError, quoted
from regard.evaluation.bootstrap import Floats
from regard.evaluation.eval_data import shard_from
from regard.evaluation.language_modeling import ScoredRecord, measure_masked
from regard.evaluation.masked_tokens import (
    ALL,
    MASK,
    all_substitutions,
    encode_masked,
    parse_variants,
    predict_masked,
    pseudo_log_likelihood,
    score_variants,
)
from regard.evaluation.predictions import Predictions
from regard.evaluation.record_errors import RecordErrors
from regard.pipelines import MOST_RECORDS
from regard.pipelines.predictor import Predictor


@dataclass(frozen=True)
class Candidate:
    """A token that may be filled in, and its probability."""

    token: str
    probability: float

    def to_json(self) -> dict[str, Any]:
        return {"token": self.token, "probability": self.probability}


@dataclass(frozen=True)
class FilledMask:
    """The candidates for a mask, the most probable first; `position` is its number among the tokens
    of the text, from 1.
    """

    position: int
    candidates: tuple[Candidate, ...]

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `regard fill --json`."""
        return {"position": self.position, "candidates": [c.to_json() for c in self.candidates]}


@dataclass(frozen=True)
class VariantScore:
    """The log-probability of a variant, less that of the text as it is."""

    variant: str
    score: float

    def to_json(self) -> dict[str, Any]:
        return {"variant": self.variant, "score": self.score}


class MaskedPredictor(Predictor):
    """A masked language model, which fills in tokens, embeds texts and scores them."""

    scores_masked: ClassVar[bool] = True

    @property
    def activities(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("fill",) if self.tokenizer.reads_text else ()

    def fill(self, text: str, *, num: int = 5) -> list[FilledMask]:
        """Return the most probable tokens for each `[MASK]` or `<mask>` of a text; all masks are
        unknown together.
        """
        self._require_text("filled in")
        tokenizer, most = self.tokenizer, int(self.model.config.max_len)
        ids = encode_masked(text, tokenizer)
        masks = [i for i, id in enumerate(ids) if id == tokenizer.mask]
        if not masks:
            raise UsageError(
                f"write [MASK] or {MASK} where a token is to be filled in: {quoted(text)}"
            )
        if len(ids) > most:
            raise UserError(
                f"the text has {len(ids):,} tokens with its markers, and the model reads {most:,}: "
                "shorten it around the masks"
            )
        rows = np.exp(predict_masked(self.model, ids, masks, tokenizer.mask))
        usual = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.names]
        filled = []
        for position, row in zip(masks, rows[:, usual], strict=True):
            best = np.argsort(-row, kind="stable")[:num].tolist()
            chosen = [Candidate(tokenizer.text(usual[i]), float(row[i])) for i in best]
            filled.append(FilledMask(position, tuple(chosen)))
        return filled

    def pseudo_log_likelihoods(self, texts: Sequence[str]) -> list[ScoredRecord]:
        """Return the tokens of each text and the log-probability of each of them, masked alone."""
        self._require_text("scored")
        return [pseudo_log_likelihood(self.model, text, self.tokenizer) for text in texts]

    def variant_effects(self, text: str, variants: str | Sequence[str] = ALL) -> list[VariantScore]:
        """Return the effect of each variant of a sequence, such as "A12G" or, of several places,
        "A12G:M1V": above 0, the model prefers it. "all" stands for every single substitution.
        """
        self._require_text("scored")
        named = variants if isinstance(variants, str) else ",".join(variants)
        everything = named == ALL
        parsed = all_substitutions(text, self.tokenizer) if everything else parse_variants(named)
        scores = score_variants(self.model, text, parsed, self.tokenizer)
        names = (":".join(map(str, variant)) for variant in parsed)
        return [VariantScore(name, score) for name, score in zip(names, scores, strict=True)]

    def _require_text(self, done: str) -> None:
        """Raise a UserError if items are no texts."""
        if not self.tokenizer.reads_text:
            items = self.tokenizer.words[1]
            raise UserError(
                f"{self.run} reads {items}, which are not {done} token by token; `regard look "
                f"{self.run}` shows what it fills in"
            )

    def score_files(
        self, files: Sequence[Path], reader: InputReader, log: Any
    ) -> tuple[Iterator[list[Item]], RecordNotes]:
        """Return the records of a file, or of standard input (`-`), and an object for notes."""
        self._require_text("scored")
        if len(files) > 1 or reader.target_asked:
            raise UsageError(f"{self.run} fills in masked tokens (task masked): it has no targets")
        path = None if str(files[0]) == "-" else files[0]
        items = reader.records(path, self.modality, self.tokenizer, log)
        return items, RecordNotes(self.tokenizer)

    def score_items(self, items: Sequence[Item]) -> list[ScoredRecord]:
        return self.pseudo_log_likelihoods([item.text for item in items])

    def _outputs(
        self, items: Sequence[Any], seconds: Sequence[str] | None, one: bool
    ) -> tuple[list[tuple[str, Any]], bool]:
        raise UserError(
            "a run of task masked fills in tokens and predicts nothing else; learn labels from it "
            "with `regard train FILE --target COLUMN --pretrain RUN`"
        )

    def read(
        self, files: Sequence[Path], reader: InputReader, *, strict: bool = False, log: Any = quiet
    ) -> Shard:
        return shard_from(files, self.tokenizer, self.modality, reader, strict=strict, log=log)

    def predict_shard(self, shard: Shard, progress: Progress = no_progress) -> Predictions:
        with evaluating(self.model):
            return measure_masked(self.model, shard, self.tokenizer)

    def record_errors(self, most: int = MOST_RECORDS) -> RecordErrors:
        split, shard, numbers = self.held_out_part(most)
        sums = self.predict_shard(shard).scores
        texts = [self.record_text(shard, i) for i in range(shard.records)]
        counts = sums[:, 2]
        losses = np.where(counts > 0, sums[:, 0] / np.maximum(counts, 1) / math.log(2), math.nan)
        lengths = np.diff(shard.offsets) - sum(self.tokenizer.markers)
        return RecordErrors(split, numbers, texts, losses, "bits per masked token", lengths)

    def record_losses(self, shard: Shard) -> tuple[Floats, Floats]:
        sums = self.predict_shard(shard).scores
        return sums[:, 0], sums[:, 2]
