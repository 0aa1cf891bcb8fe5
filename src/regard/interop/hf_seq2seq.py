"""Marian and Pegasus: the Hugging Face classes of our encoder–decoder, to and from its Config.

Marian (Junczys-Dowmunt et al. 2018, arXiv:1804.00344) is the Transformer of 2017, our `vaswani`;
Pegasus (Zhang et al. 2020, arXiv:1912.08777) the same with the norms first, our `modern`. Both have
all sines of a position before all cosines, so that the whole residual stream changes its order on
the way; and both pad with the token that starts a target, which tools that convert their folders
rely on. Padding is never looked at, so that which token it is changes nothing.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.interop.hf_decoder import ConfigReader, Format, Values, check_keys
from regard.interop.tensor_names import (
    QKV,
    SAME,
    Change,
    Constant,
    InterleavedHalves,
    SplitRows,
    TensorName,
    TensorNames,
    linear,
)
from regard.layers.positions import sinusoids
from regard.models.encoder_decoder import EncoderDecoderConfig
from regard.models.transformer import TransformerConfig
from regard.models.vision import ImageSettings

ALONG, ACROSS = 0, 1  # where a tensor's rows, or its columns, run over the residual stream


def key_value(config: TransformerConfig) -> tuple[int, ...]:
    """Rows of CrossAttention.kv that make keys and values."""
    return config.d_model, config.d_model


KV = SplitRows(key_value)


def reads(ours: str, *theirs: str, change: Change = SAME) -> tuple[TensorName, TensorName]:
    """The rows of a linear layer that reads the residual stream; its bias is not of the stream."""
    weight, bias = linear(ours, *theirs, change=change)
    return dataclasses.replace(weight, change=InterleavedHalves(ACROSS, change)), bias


def writes(ours: str, theirs: str) -> tuple[TensorName, TensorName]:
    """The rows of a linear layer that writes to the residual stream, or of a norm on it."""
    return linear(ours, theirs, change=InterleavedHalves(ALONG))


def attention(ours: str, theirs: str) -> tuple[TensorName, ...]:
    """The rows of self-attention."""
    parts = [f"{theirs}.{part}_proj" for part in "qkv"]
    return (
        *reads(f"{ours}.qkv", *parts, change=QKV),
        *writes(f"{ours}.out", f"{theirs}.out_proj"),
    )


def block(stack: str) -> tuple[TensorName, ...]:
    """The rows of a block that both stacks have."""
    ours, theirs = f"{stack}.blocks.{{i}}", f"model.{stack}.layers.{{i}}"
    return (
        *writes(f"{ours}.mixer_norm", f"{theirs}.self_attn_layer_norm"),
        *attention(f"{ours}.mixer", f"{theirs}.self_attn"),
        *writes(f"{ours}.feedforward_norm", f"{theirs}.final_layer_norm"),
        *reads(f"{ours}.feedforward.up", f"{theirs}.fc1"),
        *writes(f"{ours}.feedforward.down", f"{theirs}.fc2"),
    )


def halved_sinusoids(shape: tuple[int, int]) -> Tensor:
    """(positions, D): the waves of the 2017 paper, sines first."""
    length, d_model = shape
    waves = sinusoids(torch.arange(length), d_model)
    return torch.cat((waves[:, ::2], waves[:, 1::2]), dim=1)


ZEROS = Constant("zeros", lambda vocab_size, _: (1, vocab_size), lambda shape: torch.zeros(shape))
WAVES = Constant(
    "the sinusoids of 2017", lambda _, config: (config.max_len, config.d_model), halved_sinusoids
)
ACROSS_OURS, ACROSS_THEIRS = "decoder.blocks.{i}.cross", "model.decoder.layers.{i}.encoder_attn"

MARIAN = TensorNames(
    prefix="model.",
    rows=(
        TensorName("decoder.embedding.weight", ("model.shared.weight",), InterleavedHalves(ACROSS)),
        *block("encoder"),
        *block("decoder"),
        *writes(f"{ACROSS_OURS}_norm", f"{ACROSS_THEIRS}_layer_norm"),
        *reads(f"{ACROSS_OURS}.q", f"{ACROSS_THEIRS}.q_proj"),
        *reads(
            f"{ACROSS_OURS}.kv", f"{ACROSS_THEIRS}.k_proj", f"{ACROSS_THEIRS}.v_proj", change=KV
        ),
        *writes(f"{ACROSS_OURS}.out", f"{ACROSS_THEIRS}.out_proj"),
    ),
    copies=(
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    ),
    constants={
        "final_logits_bias": ZEROS,
        "model.encoder.embed_positions.weight": WAVES,
        "model.decoder.embed_positions.weight": WAVES,
    },
)
PEGASUS = dataclasses.replace(
    MARIAN,
    rows=(
        *MARIAN.rows,
        *writes("encoder.norm", "model.encoder.layer_norm"),
        *writes("decoder.norm", "model.decoder.layer_norm"),
    ),
)

NEEDS: Values = {  # what both classes have in common
    "norm": "layer",
    "norm_eps": 1e-5,  # torch's default, which neither can change
    "positions": "sinusoidal",
    "feedforward": "relu",
    "bias": True,
    "qk_norm": False,
    "tied": True,
    "score": "scaled_dot",
    "projections": "learned",
    "window": 0,
    "mixers": (),
}
SIZES = {
    "n_encoder_layers": "encoder_layers",
    "n_layers": "decoder_layers",
    "d_model": "d_model",
    "n_heads": "decoder_attention_heads",
    "d_ff": "decoder_ffn_dim",
    "max_len": "max_position_embeddings",
}
# Keys of the encoder that must say what the decoder's say.
ALIKE = {
    "encoder_attention_heads": "decoder_attention_heads",
    "encoder_ffn_dim": "decoder_ffn_dim",
}


def make_format(name: str, model_type: str, table: TensorNames, *, post_norm: bool) -> Format:
    """One of the two classes. Of the keys that they only remember, a converter asks for some."""
    return Format(
        name,
        model_type,
        table,
        sizes=SIZES,
        needs={**NEEDS, "post_norm": post_norm},
        fixed={
            "is_encoder_decoder": (True,),
            "activation_function": ("relu",),
            "static_position_embeddings": (True,),
            "normalize_before": (not post_norm,),
            "normalize_embedding": (False,),
            "layernorm_embedding": (False,),
            "add_final_layer_norm": (not post_norm,),
            "add_bias_logits": (False,),
            "share_encoder_decoder_embeddings": (True,),
            "tie_word_embeddings": (True,),
        },
        tied=True,
        has_dropout=True,
        task="target",
    )


FORMATS = (
    make_format("MarianMTModel", "marian", MARIAN, post_norm=True),
    make_format("PegasusForConditionalGeneration", "pegasus", PEGASUS, post_norm=False),
)


def choose_format(config: EncoderDecoderConfig) -> Format:
    """The class that computes what this configuration does, or a UserError naming what it lacks."""
    c = config
    if isinstance(c, ImageSettings):
        raise UserError(
            "cannot export a captioner: no class known here computes the same; models of images "
            "that answer (preset vit), of texts and of pairs of texts have one"
        )
    if c.source_vocab:
        raise UserError(
            f"cannot export source_vocab = {c.source_vocab}: one joint vocabulary is needed, "
            "source_vocab must be 0"
        )
    names = " and ".join(form.name for form in FORMATS)
    for key, value in NEEDS.items():
        if getattr(c, key) != value:
            raise UserError(
                f"cannot export {key} = {getattr(c, key)!r}: {names} need {key} = {value!r}"
            )
    if c.n_kv_heads != c.n_heads:
        raise UserError(
            f"cannot export n_kv_heads = {c.n_kv_heads}: {names} have no grouped heads, "
            f"n_kv_heads must be n_heads = {c.n_heads}"
        )
    if c.n_heads * c.d_head != c.d_model:
        raise UserError(
            f"cannot export d_head = {c.d_head}: {names} need n_heads · d_head = d_model, "
            f"got {c.n_heads} · {c.d_head} and {c.d_model}"
        )
    return next(form for form in FORMATS if form.needs["post_norm"] == c.post_norm)


def to_theirs(form: Format, vocab_size: int, config: EncoderDecoderConfig) -> dict[str, Any]:
    """Their config.json but for the ids of specials, read alike by transformers 4.5x and 5."""
    stored: dict[str, Any] = {
        "architectures": [form.name],
        "model_type": form.model_type,
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "scale_embedding": config.scale_embedding,
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "dtype": "float32",
        "torch_dtype": "float32",  # its name before 4.56
        "use_cache": True,
    }
    stored |= {theirs: getattr(config, ours) for ours, theirs in form.sizes.items()}
    stored |= {key: stored[other] for key, other in ALIKE.items()}
    return stored | {key: allowed[0] for key, allowed in form.fixed.items()}


def from_theirs(form: Format, path: Path, values: Values) -> tuple[int, EncoderDecoderConfig]:
    """Vocabulary size and our configuration from their config.json, read from `path`."""
    # Left out, the activation is not the one of the table but their default.
    read = ConfigReader(path, {"activation_function": "gelu", **values})
    vocab_size = check_keys(form, read)
    if read.whole("decoder_vocab_size", vocab_size) != vocab_size:
        raise read.error(
            "decoder_vocab_size",
            f"one joint vocabulary is needed, it must be vocab_size = {vocab_size}",
        )
    fields: dict[str, Any] = {ours: read.whole(key) for ours, key in form.sizes.items()}
    for key, other in ALIKE.items():
        if read.whole(key) != read.whole(other):
            raise read.error(key, f"must be as {other} = {read.whole(other)}")
    d_model, n_heads = fields["d_model"], fields["n_heads"]
    if n_heads < 1 or d_model % n_heads:
        raise read.error(form.sizes["n_heads"], f"must divide d_model = {d_model}")
    fields |= {"n_kv_heads": n_heads, "d_head": d_model // n_heads}
    fields["scale_embedding"] = read.flag("scale_embedding", False)
    fields["dropout"] = read.number("dropout", 0.1)
    try:
        return vocab_size, EncoderDecoderConfig(**form.needs, **fields)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def start_and_end(path: Path, values: Values) -> tuple[int, int]:
    """The ids that start and end a target, as their config.json says."""
    read = ConfigReader(path, values)
    return read.whole("decoder_start_token_id"), read.whole("eos_token_id")


def marker_ids(start: int, end: int) -> dict[str, Any]:
    """What their config.json says of specials; padding is done with the token that starts."""
    return {
        "decoder_start_token_id": start,
        "bos_token_id": start,
        "eos_token_id": end,
        "pad_token_id": start,
        "forced_eos_token_id": None,
    }


def generation(ids: Values, max_len: int, never: list[int]) -> dict[str, Any]:
    """Their generation_config.json: the search that `regard translate` does by default."""
    search = {"num_beams": 5, "length_penalty": 1.0, "early_stopping": "never"}
    return {**ids, **search, "max_length": max_len, "suppress_tokens": never}
