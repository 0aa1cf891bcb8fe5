"""Which tensor of ours is which of theirs: one table per Hugging Face class, read in both ways.

A row pairs one of our names with one or more of theirs and says how the values change on the way.
Four changes suffice: none; a transpose, since GPT-2 stores its matrices as (in, out); a split by
rows, since we keep queries, keys and values, and gate and up, as one matrix each; another order of
the residual stream's coordinates, since Marian and Pegasus have all sines before all cosines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from regard.models.transformer import TransformerConfig


class Change(Protocol):
    """How values change between the two formats; `back` undoes `forth` bit for bit."""

    def forth(self, ours: Tensor, config: TransformerConfig) -> tuple[Tensor, ...]:
        """Our tensor as theirs, one per name of theirs."""

    def back(self, theirs: Sequence[Tensor]) -> Tensor:
        """Their tensors as ours."""


class Same:
    """The same values under another name."""

    def forth(self, ours: Tensor, config: TransformerConfig) -> tuple[Tensor, ...]:
        """See Change."""
        return (ours,)

    def back(self, theirs: Sequence[Tensor]) -> Tensor:
        """See Change."""
        return theirs[0]


class Transpose:
    """(out, in) here, (in, out) there."""

    def forth(self, ours: Tensor, config: TransformerConfig) -> tuple[Tensor, ...]:
        """See Change."""
        return (ours.mT,)

    def back(self, theirs: Sequence[Tensor]) -> Tensor:
        """See Change."""
        return theirs[0].mT


@dataclass(frozen=True)
class SplitRows:
    """One matrix (or bias) here, several there: ours is theirs stacked; `sizes` says how."""

    sizes: Callable[[TransformerConfig], tuple[int, ...]]

    def forth(self, ours: Tensor, config: TransformerConfig) -> tuple[Tensor, ...]:
        """See Change."""
        return torch.split(ours, list(self.sizes(config)))

    def back(self, theirs: Sequence[Tensor]) -> Tensor:
        """See Change."""
        return torch.cat(list(theirs))


def query_key_value(config: TransformerConfig) -> tuple[int, ...]:
    """Rows of SelfAttention.qkv that make queries, keys and values."""
    shared = config.n_kv_heads * config.d_head
    return config.n_heads * config.d_head, shared, shared


def gate_and_up(config: TransformerConfig) -> tuple[int, ...]:
    """Rows of SwiGLU.gate_up that make the gate and the rest."""
    return config.d_ff, config.d_ff


SAME, TRANSPOSE = Same(), Transpose()
QKV, GATE_UP = SplitRows(query_key_value), SplitRows(gate_and_up)


@dataclass(frozen=True)
class InterleavedHalves:
    """Sines and cosines alternate here; there the sines come first, and so does whatever else
    stands at their coordinates of the residual stream, which run along `dim` of our tensor.
    """

    dim: int
    then: Change = SAME

    def forth(self, ours: Tensor, config: TransformerConfig) -> tuple[Tensor, ...]:
        """See Change."""
        return self.then.forth(ours.index_select(self.dim, self.order(ours)), config)

    def back(self, theirs: Sequence[Tensor]) -> Tensor:
        """See Change."""
        ours = self.then.back(theirs)
        return ours.index_select(self.dim, self.order(ours).argsort())

    def order(self, ours: Tensor) -> Tensor:
        """Our coordinates in their order."""
        each = torch.arange(ours.size(self.dim), device=ours.device)
        return torch.cat((each[::2], each[1::2]))


@dataclass(frozen=True)
class TensorName:
    """One tensor of ours and its counterparts; `{i}` stands for the number of a block."""

    ours: str
    theirs: tuple[str, ...]
    change: Change = SAME


@dataclass(frozen=True)
class Constant:
    """A tensor that the class has but no choice in; a file may leave it out."""

    what: str
    shape: Callable[
        [int, TransformerConfig], tuple[int, int]
    ]  # of the vocabulary and configuration
    values: Callable[[tuple[int, int]], Tensor]


@dataclass(frozen=True)
class TensorNames:
    """The names of one class. A row whose tensor a model lacks (a bias, a tied head) is idle."""

    prefix: str  # their inner model; some uploads were saved without it
    rows: tuple[TensorName, ...]
    # buffers that older uploads carry; the configuration says what is in them
    buffers: tuple[str, ...] = ()
    # what repeats the embedding where it is tied; some files keep a copy
    copies: tuple[str, ...] = ("lm_head.weight",)
    constants: Mapping[str, Constant] = field(default_factory=dict)
    # tensors of ours that theirs have no place for, and the value that changes nothing
    own: Mapping[str, float] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)  # copies of other tensors of theirs
    spellings: Mapping[str, str] = field(default_factory=dict)  # older endings of names, and theirs

    def match(self, names: Iterable[str]) -> list[TensorName]:
        """The row of each of our names, with the block's number filled in; each has one."""
        rows = {row.ours: row for row in self.rows}
        found = []
        for name in names:
            number = re.search(r"\.(\d+)\.", name)
            row = rows[name.replace(number[0], ".{i}.", 1) if number else name]
            i = number[1] if number else ""
            found.append(
                TensorName(name, tuple(t.replace("{i}", i) for t in row.theirs), row.change)
            )
        return found

    @property
    def embedding(self) -> str:
        """Their name of the matrix that embeds."""
        return next(row.theirs[0] for row in self.rows if row.ours.endswith("embedding.weight"))

    def spelt(self, name: str) -> str:
        """The name of a tensor that an older upload may spell in another way."""
        for old, new in self.spellings.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def prefixed(self, name: str) -> str:
        """The full name of a tensor in a file that was saved without the prefix."""
        return name if name in (*self.copies, *self.constants) else self.prefix + name

    def is_buffer(self, name: str) -> bool:
        """Is this one of the buffers that need not be read?"""
        return re.sub(r"\.\d+\.", ".{i}.", name, count=1) in self.buffers


def linear(ours: str, *theirs: str, change: Change = SAME) -> tuple[TensorName, TensorName]:
    """The rows of a linear layer: a matrix, and a bias that no transpose concerns."""
    return (
        TensorName(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), change),
        TensorName(
            f"{ours}.bias",
            tuple(f"{name}.bias" for name in theirs),
            SAME if change is TRANSPOSE else change,
        ),
    )


GPT2 = TensorNames(
    prefix="transformer.",
    rows=(
        TensorName("embedding.weight", ("transformer.wte.weight",)),
        TensorName("positions.embedding.weight", ("transformer.wpe.weight",)),
        *linear("blocks.{i}.mixer_norm", "transformer.h.{i}.ln_1"),
        *linear("blocks.{i}.mixer.qkv", "transformer.h.{i}.attn.c_attn", change=TRANSPOSE),
        *linear("blocks.{i}.mixer.out", "transformer.h.{i}.attn.c_proj", change=TRANSPOSE),
        *linear("blocks.{i}.feedforward_norm", "transformer.h.{i}.ln_2"),
        *linear("blocks.{i}.feedforward.up", "transformer.h.{i}.mlp.c_fc", change=TRANSPOSE),
        *linear("blocks.{i}.feedforward.down", "transformer.h.{i}.mlp.c_proj", change=TRANSPOSE),
        *linear("norm", "transformer.ln_f"),
        TensorName("head.weight", ("lm_head.weight",)),
    ),
    buffers=("transformer.h.{i}.attn.bias", "transformer.h.{i}.attn.masked_bias"),  # causal masks
)

LLAMA = TensorNames(
    prefix="model.",
    rows=(
        TensorName("embedding.weight", ("model.embed_tokens.weight",)),
        TensorName("blocks.{i}.mixer_norm.weight", ("model.layers.{i}.input_layernorm.weight",)),
        *linear(
            "blocks.{i}.mixer.qkv",
            "model.layers.{i}.self_attn.q_proj",
            "model.layers.{i}.self_attn.k_proj",
            "model.layers.{i}.self_attn.v_proj",
            change=QKV,
        ),
        *linear("blocks.{i}.mixer.out", "model.layers.{i}.self_attn.o_proj"),
        TensorName(
            "blocks.{i}.feedforward_norm.weight",
            ("model.layers.{i}.post_attention_layernorm.weight",),
        ),
        *linear(
            "blocks.{i}.feedforward.gate_up",
            "model.layers.{i}.mlp.gate_proj",
            "model.layers.{i}.mlp.up_proj",
            change=GATE_UP,
        ),
        *linear("blocks.{i}.feedforward.down", "model.layers.{i}.mlp.down_proj"),
        TensorName("norm.weight", ("model.norm.weight",)),
        TensorName("head.weight", ("lm_head.weight",)),
    ),
    buffers=("model.layers.{i}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
)

QWEN3 = TensorNames(
    prefix=LLAMA.prefix,
    rows=(
        *LLAMA.rows,
        TensorName("blocks.{i}.mixer.q_norm.weight", ("model.layers.{i}.self_attn.q_norm.weight",)),
        TensorName("blocks.{i}.mixer.k_norm.weight", ("model.layers.{i}.self_attn.k_norm.weight",)),
    ),
    buffers=LLAMA.buffers,
)
