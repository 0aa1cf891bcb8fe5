"""The caption of the nearest training image: a baseline, and a strong one on few images.

The nearest image is the one with the least squared difference of pixels; its caption is repeated
word by word. As a language model it gives the word at each position of that caption the probability
`sure`, whatever came before, and leaves the rest to a bigram, so that every word is possible. With
so high a probability no decoding strategy finds another caption. Its loss in bits therefore means
little; its captions matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.embeddings import Inputs, grid_sizes, to_image
from regard.layers.tap import Tap
from regard.models import Presets
from regard.models.ibm_model1 import ConditionedPositional, PositionalTranslator, repeat_sources
from regard.models.ngrams import CountConfig
from regard.models.seq2seq import ConditionedLM
from regard.models.supervised import Budget, Log
from regard.models.vision import ImageSettings

CHUNK = 256  # training images compared at once


@dataclass(frozen=True, kw_only=True)
class NearestConfig(ImageSettings, CountConfig):
    """The size of images, and the probability of the repeated words."""

    sure: float = 0.99
    source_vocab: int = 0

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        CountConfig.__post_init__(self)
        if not 0 < self.sure < 1:
            raise ValueError(f"sure must be above 0 and below 1, got {self.sure}")

    @property
    def n_pixels(self) -> int:
        """The number of values of an image."""
        return self.rows * self.columns * self.patch**2 * self.channels


class NearestCaptioner(PositionalTranslator):
    """The training images and captions, and a bigram of the captions."""

    Config = NearestConfig
    PRESETS: ClassVar[Presets] = {"exact": lambda n_layers, d_model: NearestConfig()}
    reads: ClassVar[str] = "patches"
    variable = ("images", "captions")
    images: Tensor
    captions: Tensor

    def __init__(self, vocab_size: int, config: NearestConfig) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("images", torch.zeros(0, config.n_pixels, dtype=torch.uint8))
        self.register_buffer("captions", torch.zeros(0, 1, dtype=torch.int64))  # (N, T), `<E>` last

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        if train.source is None:
            raise ValueError("a captioner is fitted to pairs, but the shard has no source")
        self.bigram.fit(train, valid, log)
        lengths = np.diff(train.offsets) - 1  # without `<S>`
        captions = np.full((train.records, int(lengths.max())), train.ids[-1], np.int64)
        mask = np.ones(train.tokens, bool)
        mask[train.offsets[:-1]] = False
        captions[np.arange(captions.shape[1]) < lengths[:, None]] = np.asarray(train.ids)[mask]
        self.captions = torch.from_numpy(captions)
        rows = [self.pixels(one_image(train.source.record(i))) for i in range(train.records)]
        self.images = torch.cat(rows).round().clamp(0, 255).to(torch.uint8)
        log(f"{train.records:,} images and their captions")

    def pixels(self, source: Inputs) -> Tensor:
        """Return the pixels (B, F) of images, all resized to the largest of training."""
        c = self.config
        sizes = grid_sizes(source)
        height, width = (int(n) for n in sizes.amax(0).tolist())
        images, _ = to_image(source, height, width, c.patch)  # (B, C, Y, X)
        if (height, width) == c.grid and bool((sizes == sizes[:1]).all()):
            return images.flatten(1)
        size, resized = (c.rows * c.patch, c.columns * c.patch), []
        for image, (rows, columns) in zip(images, sizes.tolist(), strict=True):
            cropped = image[None, :, : rows * c.patch, : columns * c.patch]
            resized.append(F.interpolate(cropped, size, mode="bilinear", antialias=True))
        return torch.cat(resized).flatten(1)

    def nearest(self, source: Inputs) -> Tensor:
        """Return the index (B,) of the nearest training image, the first of equals.

        Pixels are integers, and so are sums of their squares: in fp64 they are exact.
        """
        x = self.pixels(source).double()
        best = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
        index = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        for first in range(0, len(self.images), CHUNK):
            images = self.images[first : first + CHUNK].double()
            distances = images.square().sum(1) - 2 * x @ images.T  # (B, n), less |x|²
            least, nearest = distances.min(1)
            better = least < best
            best, index = best.where(~better, least), index.where(~better, first + nearest)
        return index

    def condition(self, source: Inputs) -> ConditionedLM:
        return ConditionedNearest(self, source)

    def buffer_error(self) -> str:
        images, captions = self.images, self.captions
        fits = images.dim() == 2 and images.size(1) == self.config.n_pixels
        if not fits or captions.dim() != 2 or len(images) != len(captions):
            return "there must be a caption for each image, all of one size"
        if (
            captions.numel()
            and not 0 <= int(captions.min()) <= int(captions.max()) < self.vocab_size
        ):
            return f"captions must lie in [0, {self.vocab_size})"
        return ""


class ConditionedNearest(ConditionedPositional):
    """The captions of the nearest training images, mixed with the bigram."""

    translator: NearestCaptioner

    def set_source(self, source: Inputs, *, tap: Tap | None = None) -> None:
        super().set_source(source)
        self.captions = self.translator.captions[self.translator.nearest(source)]  # (B, T)

    def log_rows(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Beyond the end of a caption, the repeated word is `<E>`."""
        words = self.captions.gather(1, positions.clamp_max(self.captions.size(1) - 1))  # (B, T)
        words, sure = repeat_sources(words, len(ids)), self.translator.config.sure
        p = self.translator.bigram_probabilities(ids)  # (B·W, T, V)
        share = torch.full_like(words, sure, dtype=p.dtype)  # (B·W, T)
        p.mul_(1 - sure).scatter_add_(2, words[..., None], share[..., None])
        return p.log_().float()


def one_image(record: Any) -> Inputs:
    """Return a batch of one image."""
    ids = torch.from_numpy(np.array(record))[None]
    return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64))
