"""Two encoders and one space: CLIP (Radford et al. 2021, arXiv:2103.00020), and its baselines.

One encoder reads sources, images or texts, the other one the texts that belong to them. Each output
is pooled, projected into a space of `d_embedding` numbers and scaled to length 1; the product of
two vectors says how well source and text match. In training, each source must find its text among
all those of the batch, and each text its source: the mean of two cross-entropies, whose temperature
is learned (`training/contrastive_objective.py`).

Where we differ: the encoder of texts attends to both sides and its output is pooled, since nothing
is generated; batches are small, and pairs that share their source or their text do not count as
wrong.

`Chance` cannot tell pairs apart. `TokenCorrelation` and `ColorCorrelation` are linear: canonical
correlation analysis (Hotelling 1936), regularised, of the tokens of a text with those of the other
text, or with the colour histogram of the image (as in Gong et al. 2014, arXiv:1212.4522).
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.matched_pairs import PairExamples
from regard.data.shards import Shard
from regard.layers.embeddings import N_COORDINATES, Inputs
from regard.layers.tap import Tap
from regard.models import LossMetric, Model, Presets, VariableBuffers, check_choices, check_ranges
from regard.models.encoder import Encoder
from regard.models.encoder_decoder import (
    CaptionerConfig,
    EncoderDecoderConfig,
    modern,
    modern_captioner,
    vaswani,
    vit,
)
from regard.models.ngrams import CountConfig
from regard.models.supervised import POOLINGS, Budget, Log, Pooling
from regard.models.vision import ImageSettings

START_SCALE = 1 / 0.07  # of products at the start, and ...
MAX_SCALE = 100.0  # ... at most (Radford et al. 2021, section 2.5)


class PairEncoder(Model):
    """Turns sources, and the texts that belong to them, into vectors of length 1 whose product says
    how well they match. Its vocabulary is that of the texts.
    """

    task: ClassVar[str] = "contrastive"
    loss_metric: ClassVar[LossMetric] = LossMetric("nats_per_pair", "nats", "{} nats/pair", "pairs")

    @abstractmethod
    def embed_sources(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return the vectors (B, E) of sources."""

    @abstractmethod
    def embed_texts(self, texts: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return the vectors (B, E) of texts."""

    @property
    def scale(self) -> Tensor:
        """The number by which products are multiplied to be logits."""
        return torch.tensor(START_SCALE)


@dataclass(frozen=True, kw_only=True)
class DualEncoderConfig(EncoderDecoderConfig):
    """Shape and parts of both encoders; `n_layers` is that of the encoder of texts."""

    main_stack: ClassVar[str] = "text"
    d_embedding: int = 128  # of the space that they share
    pooling: str = "mean"

    def __post_init__(self) -> None:
        EncoderDecoderConfig.__post_init__(self)
        check_ranges(self, d_embedding=1 << 16)
        check_choices(self, pooling=POOLINGS)


@dataclass(frozen=True, kw_only=True)
class ImageTextConfig(CaptionerConfig):
    """Shape and parts of both encoders; `n_layers` is that of the encoder of texts."""

    main_stack: ClassVar[str] = "text"
    d_embedding: int = 128  # of the space that they share
    pooling: str = "mean"

    def __post_init__(self) -> None:
        CaptionerConfig.__post_init__(self)
        check_ranges(self, d_embedding=1 << 16)
        check_choices(self, pooling=POOLINGS)


def of_texts(config: EncoderDecoderConfig) -> DualEncoderConfig:
    """Return the parts of a translator as those of two encoders."""
    return DualEncoderConfig(**dataclasses.asdict(config), d_embedding=config.d_model)


def of_images(config: CaptionerConfig) -> ImageTextConfig:
    """Return the parts of a captioner as those of two encoders."""
    return ImageTextConfig(**dataclasses.asdict(config), d_embedding=config.d_model)


class DualEncoder(PairEncoder):
    """An encoder of sources and one of texts, each with a projection into the shared space."""

    loop = "gradient"
    static_shapes = True
    Config: ClassVar[type] = DualEncoderConfig
    PRESETS: ClassVar[Presets] = {
        "modern": lambda n_layers, d_model: of_texts(modern(n_layers, d_model)),
        "vaswani": lambda n_layers, d_model: of_texts(vaswani(n_layers, d_model)),
    }

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__(vocab_size, config)
        self.texts = Encoder(vocab_size, config)
        self.sources = Encoder(config.source_vocab or vocab_size, config.encoder)
        if not config.source_vocab:
            self.sources.embedding = self.texts.embedding
        self.pool_texts = Pooling(config.pooling, config.d_model)
        self.pool_sources = Pooling(config.pooling, config.d_model)
        self.project_texts = nn.Linear(config.d_model, config.d_embedding, bias=False)
        self.project_sources = nn.Linear(config.d_model, config.d_embedding, bias=False)
        for projection in (self.project_texts, self.project_sources):
            nn.init.normal_(projection.weight, std=config.d_model**-0.5)
        self.log_scale = nn.Parameter(torch.tensor(math.log(START_SCALE)))

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp().clamp(max=MAX_SCALE)

    def embed_sources(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        x = self.sources(source, tap=None if tap is None else tap.at("sources"))  # (B, S, D)
        return unit(self.project_sources(self.pool_sources(x, source.segments)))

    def embed_texts(self, texts: Inputs, *, tap: Tap | None = None) -> Tensor:
        x = self.texts(texts, tap=None if tap is None else tap.at("texts"))  # (B, T, D)
        return unit(self.project_texts(self.pool_texts(x, texts.segments)))

    def forward(self, texts: Inputs, source: Inputs) -> tuple[Tensor, Tensor]:
        """Return the vectors (B, E) of sources and of texts."""
        return self.embed_sources(source), self.embed_texts(texts)


class ImageTextEncoder(DualEncoder):
    """An encoder of images and one of texts."""

    Config = ImageTextConfig
    PRESETS: ClassVar[Presets] = {
        "modern": lambda n_layers, d_model: of_images(modern_captioner(n_layers, d_model)),
        "vit": lambda n_layers, d_model: of_images(vit(n_layers, d_model)),
    }
    reads: ClassVar[str] = "patches"

    def __init__(self, vocab_size: int, config: ImageTextConfig) -> None:
        super().__init__(vocab_size, config)
        self.static_shapes = config.uniform  # otherwise augmentation needs the sizes of images


def unit(x: Tensor) -> Tensor:
    """Scale vectors (..., E) to length 1, in single precision at least."""
    return F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)


@dataclass(frozen=True, kw_only=True)
class ChanceConfig(ImageSettings, CountConfig):
    """Nothing is learned; what the data decides is stored all the same."""

    source_vocab: int = 0

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        CountConfig.__post_init__(self)


class Chance(PairEncoder):
    """All pairs match equally well: the order of an answer is left to chance."""

    loop = "count"
    Config = ChanceConfig
    PRESETS: ClassVar[Presets] = {"uniform": lambda n_layers, d_model: ChanceConfig()}
    vector: Tensor

    def __init__(self, vocab_size: int, config: ChanceConfig) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("vector", torch.zeros(1))

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        """Do nothing."""

    def embed_sources(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self.vector.expand(len(source.ids), 1)

    def embed_texts(self, texts: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self.vector.expand(len(texts.ids), 1)


@dataclass(frozen=True, kw_only=True)
class CorrelationConfig(ChanceConfig):
    """Settings of canonical correlation analysis; 0 is chosen on the validation split."""

    n_components: int = 0  # dimensions of the shared space
    ridge: float = 0.0  # added to the variances, as a share of their mean
    bins: int = 4  # of each channel of a colour histogram

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, least=0, n_components=1 << 12)
        check_ranges(self, bins=64)


COMPONENTS = (16, 32, 64, 128)
RIDGES = (0.01, 0.1, 1.0, 10.0)
MAX_TOKENS = 1024  # different tokens that are features: the most frequent
MAX_FITTED = 50_000  # pairs
MAX_CHOSEN = 1_000  # pairs of the validation split


class TokenCorrelation(VariableBuffers, PairEncoder):
    """Linear maps of two bags of features into directions that are most correlated."""

    loop = "solve"
    Config = CorrelationConfig
    PRESETS: ClassVar[Presets] = {"ridge": lambda n_layers, d_model: CorrelationConfig()}
    tokens: Tensor  # (F,) ids that are features of texts
    source_tokens: Tensor  # (F,) ids that are features of sources
    source_map: Tensor  # (1 + F, E), the first row is added
    text_map: Tensor  # (1 + F, E)

    def __init__(self, vocab_size: int, config: CorrelationConfig) -> None:
        super().__init__(vocab_size, config)
        for name in ("tokens", "source_tokens"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.int64))
        for name in ("source_map", "text_map"):
            self.register_buffer(name, torch.zeros(1, 1))

    def text_features(self, texts: Inputs) -> Tensor:
        """Return the features (B, F) of texts: which tokens occur."""
        return bag(texts, self.tokens, self.vocab_size)

    def source_features(self, source: Inputs) -> Tensor:
        """Return the features (B, F) of sources."""
        size = self.config.source_vocab or self.vocab_size
        return bag(source, self.source_tokens, size)

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        examples = PairExamples(train, None, self.config.max_len)
        x, y = self._features(examples, MAX_FITTED, learn=True)
        chosen = x, y  # without a validation split, the training pairs decide
        if valid is not None:
            held_out = PairExamples(valid, None, self.config.max_len)
            chosen = self._features(held_out, MAX_CHOSEN, learn=False)
        best = -1.0
        c = self.config
        for ridge in (c.ridge,) if c.ridge else RIDGES:
            maps, strengths = canonical_directions(x, y, ridge)
            for count in (c.n_components,) if c.n_components else COMPONENTS:
                source_map, text_map = (weighted(m, strengths, count) for m in maps)
                rank = mean_reciprocal_rank(
                    apply(source_map, chosen[0]), apply(text_map, chosen[1])
                )
                if rank > best:
                    best, self.source_map, self.text_map = rank, source_map, text_map
                    fields = {"ridge": ridge, "n_components": count}
                    self.config = dataclasses.replace(c, **fields)
        log(
            f"{len(x):,} pairs; {self.config.n_components} directions and ridge "
            f"{self.config.ridge:g} are the best of those tried"
        )

    def _features(
        self, examples: PairExamples, most: int, *, learn: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the features of sources and of texts, (R, F) each, of at most so many pairs."""
        records = np.arange(min(most, examples.records))
        if learn:
            self.tokens = frequent(examples.text_ids(records), self.vocab_size)
            self._learn_sources(examples, records)
        parts: list[tuple[Tensor, Tensor]] = []
        for first in range(0, len(records), 256):
            batch = examples.fill(records[first : first + 256])
            assert batch.segments is not None and batch.source is not None
            texts = Inputs(batch.ids, batch.segments)
            parts.append((self.source_features(batch.source), self.text_features(texts)))
        x, y = (torch.cat(part).double().numpy() for part in zip(*parts, strict=True))
        return x, y

    def _learn_sources(self, examples: PairExamples, records: NDArray[np.int64]) -> None:
        size = self.config.source_vocab or self.vocab_size
        self.source_tokens = frequent(examples.source_ids(records), size)

    def embed_sources(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return unit(apply(self.source_map, self.source_features(source).double()))

    def embed_texts(self, texts: Inputs, *, tap: Tap | None = None) -> Tensor:
        return unit(apply(self.text_map, self.text_features(texts).double()))

    def buffer_error(self) -> str:
        sizes = len(self.tokens), len(self.text_map) - 1
        if self.text_map.dim() != 2 or self.source_map.dim() != 2 or sizes[0] != sizes[1]:
            return "there must be a row of the map for each token, and one to add"
        return ""


class ColorCorrelation(TokenCorrelation):
    """Bags of tokens against histograms of colours."""

    reads: ClassVar[str] = "patches"

    def source_features(self, source: Inputs) -> Tensor:
        """Return the share (B, bins^C) of the pixels of an image that have each colour."""
        c = self.config
        pixels = source.ids[..., N_COORDINATES:].unflatten(-1, (c.channels, -1)).long()
        bins = pixels * c.bins // 256  # (B, N, C, P²)
        powers = c.bins ** torch.arange(c.channels, device=bins.device)
        colors = (bins * powers[:, None]).sum(2)  # (B, N, P²)
        inside = (source.ids[..., 0] > 0) & (source.segments > 0)  # `<S>` has no pixels
        counts = torch.zeros(len(colors), c.bins**c.channels, device=bins.device)
        ones = inside[..., None].expand_as(colors).float()
        counts.scatter_add_(1, colors.flatten(1), ones.flatten(1))
        return (counts / counts.sum(1, keepdim=True).clamp_min(1)).sqrt()

    def _learn_sources(self, examples: PairExamples, records: NDArray[np.int64]) -> None:
        """Colours are known beforehand."""


def frequent(ids: NDArray[Any], size: int) -> Tensor:
    """Return the most frequent ids, sorted."""
    counts = np.bincount(ids, minlength=size)
    chosen = np.argsort(-counts, kind="stable")[: min(MAX_TOKENS, int((counts > 0).sum()))]
    return torch.from_numpy(np.sort(chosen).astype(np.int64))


def bag(inputs: Inputs, tokens: Tensor, size: int) -> Tensor:
    """Return whether each of the tokens (F,) occurs in sequences, (B, F), scaled to length 1."""
    counts = torch.zeros(len(inputs.ids), size, device=inputs.ids.device)
    counts.scatter_add_(1, inputs.ids, (inputs.segments > 0).float())
    return F.normalize((counts[:, tokens] > 0).float(), dim=-1)


def canonical_directions(
    x: NDArray[np.float64], y: NDArray[np.float64], ridge: float
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the maps (1 + F, E) of two sets of features (R, F) to their canonical directions, the
    most correlated first, and the correlations (E,).
    """
    whiteners = []
    for features in (x, y):
        mean = features.mean(0)
        covariance = np.cov(features, rowvar=False, bias=True).reshape(len(mean), len(mean))
        values, vectors = np.linalg.eigh(covariance)
        power = (values.clip(0) + ridge * max(values.mean(), 1e-12)) ** -0.5
        whiteners.append((mean, (vectors * power) @ vectors.T))
    (mean_x, white_x), (mean_y, white_y) = whiteners
    between = (x - mean_x).T @ (y - mean_y) / len(x)
    u, strengths, v = np.linalg.svd(white_x @ between @ white_y, full_matrices=False)
    maps = []
    for mean, weights in ((mean_x, white_x @ u), (mean_y, white_y @ v.T)):
        maps.append(torch.from_numpy(np.vstack([-mean @ weights, weights])))
    return (maps[0], maps[1]), torch.from_numpy(strengths)


def weighted(matrix: Tensor, strengths: Tensor, count: int) -> Tensor:
    """Return the first directions of a map, each times its correlation."""
    return (matrix[:, :count] * strengths[:count]).contiguous()


def apply(matrix: Tensor, features: Any) -> Tensor:
    """Return the vectors (B, E) of features (B, F); the first row of the map is added."""
    x = torch.as_tensor(features, dtype=matrix.dtype, device=matrix.device)
    return matrix[0] + x @ matrix[1:]


def mean_reciprocal_rank(sources: Tensor, texts: Tensor) -> float:
    """Return the mean of one over the rank of its partner, over sources and over texts."""
    products = unit(sources) @ unit(texts).T
    partners = products.diagonal()
    ranks = torch.cat([1 + (products > partners[:, None]).sum(1), 1 + (products > partners).sum(0)])
    return float((1 / ranks).mean())
