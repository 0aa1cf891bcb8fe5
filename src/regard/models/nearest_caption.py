"""The nearest picture: its caption is the answer. A floor, and on few pictures a high one.

Of all pictures of training, the one with the least squared difference of pixels has been told
before, and what was said of it is said again, word by word. As a language model it gives the word
at each place of that caption the share `sure`, whatever was said before, and leaves the rest to a
bigram, so that nothing is impossible: with a share this high no search finds anything else. Its
cost in bits therefore says little; its captions are what it is here for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs, extents, to_image
from regard.models.counts import CountConfig, Say
from regard.models.ibm_model1 import ConditionedPositional, PositionalTranslator, repeated
from regard.models.seq2seq import ConditionedLM
from regard.models.supervised import Budget
from regard.models.vision import ImageSettings

TOGETHER = 256  # pictures compared with all others at once


@dataclass(frozen=True, kw_only=True)
class NearestConfig(ImageSettings, CountConfig):
    """How sure it is of what it repeats."""

    sure: float = 0.99
    source_vocab: int = 0

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        CountConfig.__post_init__(self)
        if not 0 < self.sure < 1:
            raise ValueError(f"sure must be above 0 and below 1, got {self.sure}")


class NearestCaptioner(PositionalTranslator):
    """Pictures and their captions, and a bigram of these."""

    Config = NearestConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "exact": lambda n_layers, d_model: NearestConfig()
    }
    tokens: ClassVar[str] = "patches"
    grown = ("pictures", "captions")
    pictures: Tensor
    captions: Tensor

    def __init__(self, vocab_size: int, config: NearestConfig) -> None:
        super().__init__(vocab_size, config)
        pixels = config.rows * config.columns * config.patch**2 * config.channels
        self.register_buffer("pictures", torch.zeros(0, pixels, dtype=torch.uint8))  # (N, F)
        self.register_buffer("captions", torch.zeros(0, 1, dtype=torch.int64))  # (N, T), `<E>` last

    def fit(
        self, train: Shard, valid: Shard | None, say: Say, budget: Budget | None = None
    ) -> None:
        """See Counting."""
        if train.source is None:
            raise ValueError("a captioner is fitted to pairs, but the shard has no source")
        self.bigram.fit(train, valid, say)
        lengths = np.diff(train.offsets) - 1  # without `<S>`
        captions = np.full((train.records, int(lengths.max())), train.ids[-1], np.int64)
        inside = np.arange(captions.shape[1]) < lengths[:, None]
        starts = np.ones(train.tokens, bool)
        starts[train.offsets[:-1]] = False
        captions[inside] = np.asarray(train.ids)[starts]
        self.captions = torch.from_numpy(captions)
        rows = [self.pixels(one(train.source.record(i))) for i in range(train.records)]
        self.pictures = torch.cat(rows).round().clamp(0, 255).to(torch.uint8)
        say(f"{train.records:,} pictures and what was said of them")

    def pixels(self, source: Inputs) -> Tensor:
        """(B, F) the pixels of pictures, all brought to the size of the largest of training."""
        c = self.config
        sizes = extents(source)
        tall, wide = (int(n) for n in sizes.amax(0).tolist())
        picture, _ = to_image(source, tall, wide, c.patch)  # (B, C, Y, X)
        size = c.rows * c.patch, c.columns * c.patch
        if (tall, wide) == c.grid and bool((sizes == sizes[:1]).all()):
            return picture.flatten(1)
        found = []
        for own, (rows, columns) in zip(picture, sizes.tolist(), strict=True):
            cut = own[None, :, : rows * c.patch, : columns * c.patch]
            found.append(F.interpolate(cut, size, mode="bilinear", antialias=True))
        return torch.cat(found).flatten(1)

    def nearest(self, source: Inputs) -> Tensor:
        """(B,) the number of the picture of training that is nearest to each; the first of equals.

        Pixels are whole numbers, and so are sums of their squares: in fp64 they are exact.
        """
        asked = self.pixels(source)
        best = torch.full((len(asked),), torch.inf, dtype=torch.float64, device=asked.device)
        found = torch.zeros(len(asked), dtype=torch.int64, device=asked.device)
        x = asked.double()
        for first in range(0, len(self.pictures), TOGETHER):
            some = self.pictures[first : first + TOGETHER].double()
            gaps = some.square().sum(1) - 2 * x @ some.T  # (B, n), less |x|²
            least, which = gaps.min(1)
            better = least < best
            best, found = best.where(~better, least), found.where(~better, first + which)
        return found

    def condition(self, source: Inputs) -> ConditionedLM:
        """See Translator."""
        return ConditionedNearest(self, source)

    def wrong(self) -> str:
        """See Grown."""
        pixels = self.config.rows * self.config.columns * self.config.patch**2
        wide = self.pictures.dim() == 2 and self.pictures.size(1) == pixels * self.config.channels
        if not wide or self.captions.dim() != 2 or len(self.pictures) != len(self.captions):
            return "there must be a caption for each picture, all of one size"
        if self.captions.numel() and not (
            int(self.captions.min()) >= 0 and int(self.captions.max()) < self.vocab_size
        ):
            return f"captions must lie in [0, {self.vocab_size})"
        return ""


class ConditionedNearest(ConditionedPositional):
    """The captions of the pictures nearest to some others, and the bigram."""

    translator: NearestCaptioner

    def read(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """See Given."""
        super().read(source)
        self.told = self.translator.captions[self.translator.nearest(source)]  # (B, T)

    def rows(self, ids: Tensor, places: Tensor) -> Tensor:
        """See GivenByPlace; beyond the end of a caption there is `<E>`."""
        words = self.told.gather(1, places.clamp_max(self.told.size(1) - 1))  # (B, T)
        words, sure = repeated(words, len(ids)), self.translator.config.sure
        p = self.translator.after(ids)  # (B·W, T, V)
        share = torch.full_like(words, sure, dtype=p.dtype)  # (B·W, T)
        p.mul_(1 - sure).scatter_add_(2, words[..., None], share[..., None])
        return p.log_().float()


def one(record: Any) -> Inputs:
    """One picture."""
    ids = torch.from_numpy(np.array(record))[None]
    return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64))
