"""ViT: an encoder whose tokens are patches of a picture (Dosovitskiy et al. 2021,
arXiv:2010.11929).

It is `encoder.EncoderModel`, block for block: a stem stands where the embedding of ids stands, and
positions are those of a plane. Presets: `modern` (RMSNorm, SwiGLU, QK-norm, two-dimensional rotary
positions; the mean of all positions answers) and `vit`, as in the paper (LayerNorm before each
part, exact GELU, learned positions, `<S>` answers; Hugging Face's ViTForImageClassification).

A convolutional network over pictures that answers: what ViT is compared with.

Residual blocks of 3 × 3 filters (He et al. 2016, arXiv:1512.03385; the order within a block is that
of arXiv:1603.05027), each position normalised over its channels as in ConvNeXt (Liu et al. 2022,
arXiv:2201.03545), so that nothing depends on the batch. The picture is put together again from the
same tokens that ViT reads, and halved until a patch is a position; pooling, head and trainer are
those of the encoder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs, PatchEmbedding, extents, places, to_image
from regard.layers.feedforward import dropout
from regard.layers.norms import make_norm
from regard.layers.positions import GRID_POSITIONS, Positions, make_grid_positions
from regard.models import decoder
from regard.models.encoder import EncoderConfig, EncoderModel
from regard.models.supervised import HeadConfig, NeuralSupervisedModel

THETA = 100.0  # of angles on a grid, which is short (Heo et al. 2024, arXiv:2403.13298)


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """What a model of pictures has from its data: see tokens/patches.py."""

    patch: int = 4  # pixels a side
    rows: int = 7  # of patches, in the largest picture of training
    columns: int = 7
    uniform: bool = True  # are all pictures of training so large?
    mean: tuple[float, ...] = (0.5,)  # of each channel, white being 1
    deviation: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        for name, most in (("patch", 1 << 10), ("rows", 255), ("columns", 255)):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {getattr(self, name)}")
        if not 1 <= len(self.mean) == len(self.deviation) <= 64 or not min(self.deviation) > 0:
            raise ValueError("mean and deviation must be one number for each channel")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def channels(self) -> int:
        """C."""
        return len(self.mean)


@dataclass(frozen=True, kw_only=True)
class VisionConfig(ImageSettings, EncoderConfig):
    """Shape and parts of an encoder of pictures."""

    theta: float = THETA

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        EncoderConfig.__post_init__(self)
        if self.positions not in GRID_POSITIONS:
            allowed = ", ".join(GRID_POSITIONS)
            raise ValueError(f"positions of pictures are {allowed}, got {self.positions!r}")
        if self.n_types:
            raise ValueError("n_types is for texts")

    @property
    def supports_packing(self) -> bool:
        """A picture has a row of its own: what changes pictures changes rows."""
        return False

    @property
    def never_padded(self) -> bool:
        """See StackConfig."""
        return self.uniform

    def make_stem(self, vocab_size: int) -> nn.Module:
        """See StackConfig."""
        return PatchEmbedding(vocab_size, self.d_model, self.grid, self.mean, self.deviation)

    def make_positions(self) -> Positions:
        """See StackConfig."""
        return make_grid_positions(
            self.positions,
            d_model=self.d_model,
            d_head=self.d_head,
            grid=self.grid,
            theta=self.theta,
        )


def modern(n_layers: int, d_model: int) -> VisionConfig:
    """The encoder's modern preset, on a plane."""
    told = dataclasses.asdict(decoder.modern(n_layers, d_model)) | {"theta": THETA}
    return VisionConfig(**told)


def vit(n_layers: int, d_model: int) -> VisionConfig:
    """The paper's: pre-norm, exact GELU, learned positions, `<S>` answers."""
    base = decoder.vaswani(n_layers, d_model)
    told = dataclasses.asdict(base) | {
        "post_norm": False,
        "positions": "learned",
        "feedforward": "gelu_exact",
        "norm_eps": 1e-12,  # Hugging Face's
        "scale_embedding": False,
        "dropout": 0.0,
        "theta": THETA,
    }
    return VisionConfig(**told, pooling="first")


class VisionTransformer(EncoderModel):
    """An encoder of pictures that answers."""

    Config = VisionConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"modern": modern, "vit": vit}
    tokens = "patches"

    def __init__(self, vocab_size: int, config: VisionConfig) -> None:
        super().__init__(vocab_size, config)
        self.static_shapes = config.uniform  # else changing pictures asks how large they are


NORM_EPS = 1e-6  # as in the Transformer's presets
NARROWEST = 4  # channels


@dataclass(frozen=True, kw_only=True)
class ConvNetConfig(ImageSettings, HeadConfig):
    """Shape of a convolutional network."""

    n_layers: int = 4  # residual blocks
    d_model: int = 128  # channels after the last halving; half as many before each
    max_len: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        HeadConfig.__post_init__(self)
        if not 1 <= self.n_layers <= 1000 or not 1 <= self.d_model <= 1 << 16:
            raise ValueError("n_layers must be from 1 to 1000, d_model from 1 to 65536")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    @property
    def strides(self) -> list[int]:
        """By what the picture is made smaller, one after the other: twos, and the odd rest."""
        left, found = self.patch, []
        while left > 1:
            found.append(2 if left % 2 == 0 else left)
            left //= found[-1]
        return found

    @property
    def widths(self) -> list[int]:
        """Channels at each size, from the largest picture on."""
        halvings = len(self.strides)
        return [max(NARROWEST, self.d_model >> (halvings - i)) for i in range(halvings)] + [
            self.d_model
        ]


def residual(n_layers: int, d_model: int) -> ConvNetConfig:
    """Blocks of two layers of 3 × 3 filters."""
    return ConvNetConfig(n_layers=n_layers, d_model=d_model)


class ChannelNorm(nn.Module):
    """Every position normalised over its channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = make_norm("layer", channels, NORM_EPS, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, Y, X) to the same."""
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """x + filters(filters(x)), each normalised and bent before; nothing leaks out of padding."""

    def __init__(self, channels: int, drop: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(ChannelNorm(channels) for _ in range(2))
        self.filters = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)
        )
        for parameter in self.filters[1].parameters():
            nn.init.zeros_(parameter)  # at first a block is the identity
        self.drop = drop

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """(B, C, Y, X), of which (B, 1, Y, X) `there` is no padding, to the same."""
        y = x
        for norm, filters in zip(self.norms, self.filters, strict=True):
            y = filters(F.gelu(norm(y)) * there)
        return x + dropout(y, self.drop, self.training)


class ConvNet(NeuralSupervisedModel):
    """A residual network over pictures that answers."""

    Config = ConvNetConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"residual": residual}
    tokens = "patches"
    mean: Tensor
    deviation: Tensor

    def __init__(self, vocab_size: int, config: ConvNetConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        self.static_shapes = config.uniform  # else it asks how large they are
        widths, strides = config.widths, config.strides
        self.first = nn.Conv2d(config.channels, widths[0], 3, padding=1)
        sizes = len(widths)
        self.stages, self.smaller = nn.ModuleList(), nn.ModuleList()
        for i, width in enumerate(widths):
            # the blocks are shared out evenly, the smallest picture has the most
            count = (config.n_layers * (i + 1)) // sizes - (config.n_layers * i) // sizes
            self.stages.append(
                nn.ModuleList(ResidualBlock(width, config.dropout) for _ in range(count))
            )
        for stride, width, wider in zip(strides, widths[:-1], widths[1:], strict=True):
            self.smaller.append(nn.Conv2d(width, wider, stride, stride=stride))
        self.norm = make_norm("layer", config.d_model, NORM_EPS, bias=True)
        for name in ("mean", "deviation"):
            each = 255 * torch.tensor(getattr(config, name), dtype=torch.float32)[:, None, None]
            self.register_buffer(name, each, persistent=False)
        self.add_head(config.d_model)

    def grid(self, source: Inputs) -> tuple[int, int]:
        """Rows and columns that hold all pictures of a batch."""
        if self.training and self.config.uniform:
            return self.config.grid  # type: ignore[no-any-return]  # without asking the device
        rows, columns = extents(source).amax(0).tolist()
        return int(rows), int(columns)

    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See NeuralAssessor: a vector for every patch, and for `<S>` the mean of them."""
        rows, columns = self.grid(source)
        picture, there = to_image(source, rows, columns, self.config.patch)
        picture = picture.to(self.mean.dtype)
        x = (picture - self.mean) / self.deviation * there  # (B, C, Y, X)
        x = self.first(x.contiguous(memory_format=torch.channels_last))
        for i, stage in enumerate(self.stages):
            for block in stage:  # type: ignore[attr-defined]
                x = block(x, there)
            if i < len(self.smaller):
                stride = self.config.strides[i]
                x = self.smaller[i](x * there)
                there = there[..., ::stride, ::stride]
        flat = self.norm(x.flatten(2).mT)  # (B, rows · columns, D)
        if tap is not None:
            tap("filters.output", flat)
        place = places(source)
        cell = ((place[..., 0] - 1) * columns + place[..., 1] - 1).clamp_min(0)  # (B, N)
        found = flat.gather(1, cell[..., None].expand(-1, -1, flat.size(-1)))
        inside = (source.segments > 0)[:, 1:, None].to(found.dtype)
        count = inside.sum(1, keepdim=True).clamp_min(1)  # rows may be empty
        mean = (found[:, 1:] * inside).sum(1, keepdim=True) / count
        return torch.cat((mean, found[:, 1:]), 1)
