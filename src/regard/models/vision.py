"""ViT: an encoder whose tokens are patches of a picture (Dosovitskiy et al. 2021,
arXiv:2010.11929).

It is `encoder.EncoderOnly`, block for block: a stem stands where the embedding of ids stands, and
positions are those of a plane. Presets: `modern` (RMSNorm, SwiGLU, QK-norm, two-dimensional rotary
positions; the mean of all positions answers) and `vit`, as in the paper (LayerNorm before each
part, exact GELU, learned positions, `<S>` answers; Hugging Face's ViTForImageClassification).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from regard.layers.grid_positions import GRID_POSITIONS, make_grid_positions
from regard.layers.positions import Positions
from regard.layers.stems import PatchStem
from regard.models import decoder
from regard.models.encoder import EncoderConfig, EncoderOnly

THETA = 100.0  # of angles on a grid, which is short (Heo et al. 2024, arXiv:2403.13298)


@dataclass(frozen=True, kw_only=True)
class PictureConfig:
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
class VisionConfig(PictureConfig, EncoderConfig):
    """Shape and parts of an encoder of pictures."""

    theta: float = THETA

    def __post_init__(self) -> None:
        PictureConfig.__post_init__(self)
        EncoderConfig.__post_init__(self)
        if self.positions not in GRID_POSITIONS:
            allowed = ", ".join(GRID_POSITIONS)
            raise ValueError(f"positions of pictures are {allowed}, got {self.positions!r}")
        if self.n_types:
            raise ValueError("n_types is for texts")

    @property
    def keeps_apart(self) -> bool:
        """A picture has a row of its own: what changes pictures changes rows."""
        return False

    @property
    def never_padded(self) -> bool:
        """See StackConfig."""
        return self.uniform

    def make_stem(self, vocab_size: int) -> nn.Module:
        """See StackConfig."""
        return PatchStem(vocab_size, self.d_model, self.grid, self.mean, self.deviation)

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


class VisionTransformer(EncoderOnly):
    """An encoder of pictures that answers."""

    Config = VisionConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"modern": modern, "vit": vit}
    tokens = "patches"

    def __init__(self, vocab_size: int, config: VisionConfig) -> None:
        super().__init__(vocab_size, config)
        self.steps_alike = config.uniform  # else changing pictures asks how large they are
