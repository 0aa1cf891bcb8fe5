"""Models of images: the Vision Transformer and a residual convolutional network.

ViT (Dosovitskiy et al. 2021, arXiv:2010.11929) is `encoder.EncoderModel` with patches in place of
tokens and positions on a plane. Presets: `modern` (RMSNorm, SwiGLU, QK-norm, two-dimensional rotary
positions, mean pooling) and `vit`, as in the paper (LayerNorm before each sublayer, exact GELU,
learned positions, `<S>` is pooled; Hugging Face's ViTForImageClassification).

`ConvNet`, its baseline, has residual blocks of 3 × 3 filters (He et al. 2016, arXiv:1512.03385, in
the order of arXiv:1603.05027). Where we differ: each position is normalised over its channels, as
in ConvNeXt (Liu et al. 2022, arXiv:2201.03545), so that nothing depends on the batch. It assembles
the image from the patches that ViT reads and downsamples it until each patch is one position.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.embeddings import (
    Inputs,
    PatchEmbedding,
    grid_sizes,
    patch_positions,
    to_image,
)
from regard.layers.feedforward import dropout
from regard.layers.norms import make_norm
from regard.layers.positions import GRID_POSITIONS, Positions, make_grid_positions
from regard.layers.tap import Tap, tapped
from regard.models import Presets, check_dropout, check_ranges, decoder
from regard.models.encoder import EncoderConfig, EncoderModel
from regard.models.supervised import HeadConfig, NeuralSupervisedModel

THETA = 100.0  # base of the rotary angles on a short grid (Heo et al. 2024, arXiv:2403.13298)


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """What a model of images takes from its data: see tokenizers/patches.py."""

    patch: int = 4  # pixels a side
    rows: int = 7  # of patches, in the largest training image
    columns: int = 7
    uniform: bool = True  # whether all training images have this size
    mean: tuple[float, ...] = (0.5,)  # of each channel, white being 1
    deviation: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        check_ranges(self, patch=1 << 10, rows=255, columns=255)
        if not 1 <= len(self.mean) == len(self.deviation) <= 64 or not min(self.deviation) > 0:
            raise ValueError("mean and deviation must be one number for each channel")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.rows, self.columns

    @property
    def channels(self) -> int:
        """The number of channels, C."""
        return len(self.mean)


@dataclass(frozen=True, kw_only=True)
class VisionConfig(ImageSettings, EncoderConfig):
    """Shape and parts of an encoder of images."""

    rope_theta: float = THETA

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        EncoderConfig.__post_init__(self)
        if self.positions not in GRID_POSITIONS:
            allowed = ", ".join(GRID_POSITIONS)
            raise ValueError(f"positions of images are {allowed}, got {self.positions!r}")
        if self.n_types:
            raise ValueError("n_types is for texts")

    @property
    def supports_packing(self) -> bool:
        """False: augmentation changes whole rows, so each image has its own."""
        return False

    @property
    def never_padded(self) -> bool:
        return self.uniform

    def make_embedding(self, vocab_size: int) -> nn.Module:
        return PatchEmbedding(vocab_size, self.d_model, self.grid, self.mean, self.deviation)

    def make_positions(self) -> Positions:
        return make_grid_positions(
            self.positions,
            d_model=self.d_model,
            d_head=self.d_head,
            grid=self.grid,
            theta=self.rope_theta,
        )


def modern(n_layers: int, d_model: int) -> VisionConfig:
    """The encoder's modern preset with positions on a plane."""
    settings = dataclasses.asdict(decoder.modern(n_layers, d_model)) | {"rope_theta": THETA}
    return VisionConfig(**settings)


def vit(n_layers: int, d_model: int) -> VisionConfig:
    """The paper's: pre-norm, exact GELU, learned positions, `<S>` is pooled."""
    settings = dataclasses.asdict(decoder.vaswani(n_layers, d_model)) | {
        "post_norm": False,
        "positions": "learned",
        "feedforward": "gelu_exact",
        "norm_eps": 1e-12,  # Hugging Face's
        "scale_embedding": False,
        "dropout": 0.0,
        "rope_theta": THETA,
    }
    return VisionConfig(**settings, pooling="first")


class VisionTransformer(EncoderModel):
    """An encoder of images that predicts labels or values."""

    Config = VisionConfig
    PRESETS: ClassVar[Presets] = {"modern": modern, "vit": vit}
    reads = "patches"

    def __init__(self, vocab_size: int, config: VisionConfig) -> None:
        super().__init__(vocab_size, config)
        self.static_shapes = config.uniform  # otherwise augmentation needs the sizes of images


NORM_EPS = 1e-6  # as in the Transformer's presets
NARROWEST = 4  # channels


@dataclass(frozen=True, kw_only=True)
class ConvNetConfig(ImageSettings, HeadConfig):
    """Shape of a convolutional network."""

    n_layers: int = 4  # residual blocks
    d_model: int = 128  # channels at the end; half as many before each downsampling
    max_len: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        HeadConfig.__post_init__(self)
        check_ranges(self, n_layers=1_000, d_model=1 << 16)
        check_dropout(self)

    @property
    def strides(self) -> list[int]:
        """The factors of downsampling, in order: twos, then the odd factor that remains."""
        size, strides = self.patch, []
        while size > 1:
            strides.append(2 if size % 2 == 0 else size)
            size //= strides[-1]
        return strides

    @property
    def widths(self) -> list[int]:
        """The number of channels at each resolution, from the highest on."""
        count = len(self.strides)
        return [max(NARROWEST, self.d_model >> (count - i)) for i in range(count)] + [self.d_model]


def residual(n_layers: int, d_model: int) -> ConvNetConfig:
    """Blocks of two layers of 3 × 3 filters."""
    return ConvNetConfig(n_layers=n_layers, d_model=d_model)


class ChannelNorm(nn.Module):
    """Normalisation of each position over its channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = make_norm("layer", channels, NORM_EPS, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, Y, X) to the same."""
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """x + f(f(x)), where f is norm, activation, convolution; padding does not affect the image."""

    def __init__(self, channels: int, drop: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(ChannelNorm(channels) for _ in range(2))
        self.filters = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)
        )
        for parameter in self.filters[1].parameters():
            nn.init.zeros_(parameter)  # the block starts as the identity
        self.drop = drop

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, C, Y, X) to the same; `mask` (B, 1, Y, X) is 0 at padding."""
        y = x
        for norm, filters in zip(self.norms, self.filters, strict=True):
            y = filters(F.gelu(norm(y)) * mask)
        return x + dropout(y, self.drop, self.training)


class ConvNet(NeuralSupervisedModel):
    """A residual network over images that predicts labels or values."""

    Config = ConvNetConfig
    PRESETS: ClassVar[Presets] = {"residual": residual}
    reads = "patches"
    mean: Tensor
    deviation: Tensor

    def __init__(self, vocab_size: int, config: ConvNetConfig) -> None:
        super().__init__(vocab_size, config)
        self.static_shapes = config.uniform  # otherwise it needs the sizes of images
        widths, strides = config.widths, config.strides
        self.first = nn.Conv2d(config.channels, widths[0], 3, padding=1)
        self.stages, self.downsampling = nn.ModuleList(), nn.ModuleList()
        for i, width in enumerate(widths):
            # blocks are distributed evenly, the lowest resolution has the most
            count = config.n_layers * (i + 1) // len(widths) - config.n_layers * i // len(widths)
            self.stages.append(
                nn.ModuleList(ResidualBlock(width, config.dropout) for _ in range(count))
            )
        for stride, width, wider in zip(strides, widths[:-1], widths[1:], strict=True):
            self.downsampling.append(nn.Conv2d(width, wider, stride, stride=stride))
        self.norm = make_norm("layer", config.d_model, NORM_EPS, bias=True)
        for name in ("mean", "deviation"):
            values = 255 * torch.tensor(getattr(config, name), dtype=torch.float32)[:, None, None]
            self.register_buffer(name, values, persistent=False)
        self.add_head(config.d_model)

    def grid(self, source: Inputs) -> tuple[int, int]:
        """Return the rows and columns of patches that hold all images of a batch."""
        if self.training and self.config.uniform:
            return self.config.grid  # type: ignore[no-any-return]  # without waiting for the GPU
        rows, columns = grid_sizes(source).amax(0).tolist()
        return int(rows), int(columns)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return (B, N, D) vectors of the patches; that of `<S>` is their mean."""
        rows, columns = self.grid(source)
        image, mask = to_image(source, rows, columns, self.config.patch)
        x = (image.to(self.mean.dtype) - self.mean) / self.deviation * mask  # (B, C, Y, X)
        x = self.first(x.contiguous(memory_format=torch.channels_last))
        for i, stage in enumerate(self.stages):
            for block in stage:  # type: ignore[attr-defined]
                x = block(x, mask)
            if i < len(self.downsampling):
                stride = self.config.strides[i]
                x = self.downsampling[i](x * mask)
                mask = mask[..., ::stride, ::stride]
        cells = self.norm(x.flatten(2).mT)  # (B, rows · columns, D)
        cells = tapped(tap, "filters.output", cells)
        return self.patch_vectors(cells, columns, source)

    def patch_vectors(self, cells: Tensor, columns: int, source: Inputs) -> Tensor:
        """Return the (B, N, D) vectors of patches from those of grid cells, row by row."""
        position = patch_positions(source)  # (B, N, 2)
        index = ((position[..., 0] - 1) * columns + position[..., 1] - 1).clamp_min(0)  # (B, N)
        x = cells.gather(1, index[..., None].expand(-1, -1, cells.size(-1)))  # (B, N, D)
        valid = (source.segments > 0)[:, 1:, None].to(x.dtype)
        count = valid.sum(1, keepdim=True).clamp_min(1)  # rows may be empty
        mean = (x[:, 1:] * valid).sum(1, keepdim=True) / count
        return torch.cat((mean, x[:, 1:]), 1)
