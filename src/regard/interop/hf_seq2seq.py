"""Marian and Pegasus: the Hugging Face classes of our encoder–decoder, to and from its Config.

Marian (Junczys-Dowmunt et al. 2018, arXiv:1804.00344) is the Transformer of 2017, our `vaswani`;
Pegasus (Zhang et al. 2020, arXiv:1912.08777) the same with the norms first, our `modern`. Both put
all sines of a position before all cosines, so that the residual stream is reordered; and both
pad with the token that starts a target, which tools that convert their folders rely on. Padding is
masked, so that the choice of its token changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.interop import register_format
from regard.interop.hugging_face import (
    COPY,
    GENERATE,
    QKV,
    SOURCE_TEXT,
    ConfigReader,
    Constant,
    Conversion,
    Format,
    TensorName,
    TensorNames,
    Values,
    linear,
    load_tokenizer,
    sines_first,
    split_rows,
)
from regard.layers.positions import sinusoids
from regard.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from regard.run import CONFIG
from regard.tokenizers import Tokenizer

ROWS, COLUMNS = 0, 1  # the dimension of a tensor that runs over the residual stream
KV = split_rows(lambda config: (config.d_model, config.d_model))  # the rows of CrossAttention.kv


def reading(name: str, *hf_names: str, conversion: Conversion = COPY) -> tuple[TensorName, ...]:
    """Return the rows of a linear layer that reads the residual stream; its bias is outside it."""
    weight, bias = linear(name, *hf_names, conversion=conversion)
    return replace(weight, conversion=sines_first(COLUMNS, conversion)), bias


def writing(name: str, hf_name: str) -> tuple[TensorName, ...]:
    """Return the rows of a linear layer that writes to the residual stream, or of a norm on it."""
    return linear(name, hf_name, conversion=sines_first(ROWS))


def block_names(stack: str) -> tuple[TensorName, ...]:
    """Return the rows of a block that encoder and decoder have."""
    block, layer = f"{stack}.blocks.{{i}}", f"model.{stack}.layers.{{i}}"
    parts = [f"{layer}.self_attn.{part}_proj" for part in "qkv"]
    return (
        *writing(f"{block}.mixer_norm", f"{layer}.self_attn_layer_norm"),
        *reading(f"{block}.mixer.qkv", *parts, conversion=QKV),
        *writing(f"{block}.mixer.out", f"{layer}.self_attn.out_proj"),
        *writing(f"{block}.feedforward_norm", f"{layer}.final_layer_norm"),
        *reading(f"{block}.feedforward.up", f"{layer}.fc1"),
        *writing(f"{block}.feedforward.down", f"{layer}.fc2"),
    )


def sinusoids_sines_first(shape: tuple[int, int]) -> Tensor:
    """Return the (positions, D) sinusoids of the 2017 paper in their order."""
    length, d_model = shape
    waves = sinusoids(torch.arange(length), d_model)
    return torch.cat((waves[:, ::2], waves[:, 1::2]), dim=1)


ZEROS = Constant("zeros", lambda vocab_size, _: (1, vocab_size), lambda shape: torch.zeros(shape))
WAVES = Constant(
    "the sinusoids of 2017",
    lambda _, config: (config.max_len, config.d_model),
    sinusoids_sines_first,
)
CROSS, HF_CROSS = "decoder.blocks.{i}.cross", "model.decoder.layers.{i}.encoder_attn"

MARIAN_NAMES = TensorNames(
    prefix="model.",
    rows=(
        TensorName("decoder.embedding.weight", ("model.shared.weight",), sines_first(COLUMNS)),
        *block_names("encoder"),
        *block_names("decoder"),
        *writing(f"{CROSS}_norm", f"{HF_CROSS}_layer_norm"),
        *reading(f"{CROSS}.q", f"{HF_CROSS}.q_proj"),
        *reading(f"{CROSS}.kv", f"{HF_CROSS}.k_proj", f"{HF_CROSS}.v_proj", conversion=KV),
        *writing(f"{CROSS}.out", f"{HF_CROSS}.out_proj"),
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
PEGASUS_NAMES = replace(
    MARIAN_NAMES,
    rows=(
        *MARIAN_NAMES.rows,
        *writing("encoder.norm", "model.encoder.layer_norm"),
        *writing("decoder.norm", "model.decoder.layer_norm"),
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
# Keys of the encoder that must have the values of the decoder's.
EQUAL_KEYS = {
    "encoder_attention_heads": "decoder_attention_heads",
    "encoder_ffn_dim": "decoder_ffn_dim",
}


class Seq2SeqFormat(Format):
    """One of the two encoder–decoder classes."""

    Model = EncoderDecoder
    text = SOURCE_TEXT

    def extra_keys(self, config: EncoderDecoderConfig) -> dict[str, Any]:
        return {
            "encoder_attention_heads": config.n_heads,
            "encoder_ffn_dim": config.d_ff,
            "scale_embedding": config.scale_embedding,
            "dropout": config.dropout,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "use_cache": True,
        }

    def config_json(self, vocab_size: int, config: EncoderDecoderConfig) -> dict[str, Any]:
        return super().config_json(vocab_size, config) | {"decoder_vocab_size": vocab_size}

    def token_ids(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {
            "decoder_start_token_id": tokenizer.start,
            "bos_token_id": tokenizer.start,
            "eos_token_id": tokenizer.end,
            "pad_token_id": tokenizer.start,
            "forced_eos_token_id": None,
        }

    def generation_json(
        self, tokenizer: Tokenizer, vocab_size: int, max_len: int
    ) -> dict[str, Any]:
        return {
            **self.token_ids(tokenizer),
            "num_beams": 5,  # the search that `regard translate` does by default
            "length_penalty": 1.0,
            "early_stopping": "never",
            "max_length": max_len,
            "suppress_tokens": tokenizer.never_produced(vocab_size),
        }

    def example(self, config: EncoderDecoderConfig, tokenizer: Tokenizer) -> str:
        return GENERATE.format(
            auto="Seq2SeqLM",
            prompt="a source",
            comment="what is to be translated",
            options="num_beams=5",
        )

    def read_config(self, path: Path, values: Values) -> tuple[int, EncoderDecoderConfig]:
        # Left out, the activation is not the one of the table but their default.
        return super().read_config(path, {"activation_function": "gelu", **values})

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        vocab_size = read.vocab_size()
        if read.integer("decoder_vocab_size", vocab_size) != vocab_size:
            raise read.error(
                "decoder_vocab_size",
                f"one joint vocabulary is needed, it must be vocab_size = {vocab_size}",
            )
        for key, other in EQUAL_KEYS.items():
            if read.integer(key) != read.integer(other):
                raise read.error(key, f"must be as {other} = {read.integer(other)}")
        return {
            **{field: read.integer(key) for field, key in self.sizes.items()},
            **read.equal_heads("d_model", self.sizes["n_heads"]),
            "scale_embedding": read.boolean("scale_embedding", False),
            "dropout": read.number("dropout", 0.1),
        }

    def load_tokenizer(self, folder: Path, values: Values, config: Any) -> Tokenizer:
        """Return the tokenizer with the tokens that start and end a target in config.json."""
        path, tokenizer = folder / CONFIG, load_tokenizer(folder)
        read = ConfigReader(path, values)
        start, end = read.integer("decoder_start_token_id"), read.integer("eos_token_id")
        if end != tokenizer.end:
            raise UserError(
                f"{path}: eos_token_id = {end}, but the tokenizer ends texts with {tokenizer.end}"
            )
        if start == tokenizer.start:
            return tokenizer
        try:
            return tokenizer.with_start(start)
        except ValueError as error:
            raise read.error("decoder_start_token_id", str(error)) from None


def make_format(
    name: str, model_type: str, table: TensorNames, *, post_norm: bool
) -> Seq2SeqFormat:
    """Return one of the two classes. Some of the fixed keys only matter to converters."""
    return Seq2SeqFormat(
        name=name,
        model_type=model_type,
        table=table,
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
    )


MARIAN = make_format("MarianMTModel", "marian", MARIAN_NAMES, post_norm=True)
PEGASUS = make_format("PegasusForConditionalGeneration", "pegasus", PEGASUS_NAMES, post_norm=False)
FORMATS = (MARIAN, PEGASUS)


@register_format("hf", EncoderDecoder)
def choose_format(config: EncoderDecoderConfig) -> Format:
    """Return the class that computes what this configuration does; a UserError where none does."""
    if config.source_vocab:
        raise UserError(
            f"cannot export source_vocab = {config.source_vocab}: one joint vocabulary is needed, "
            "source_vocab must be 0"
        )
    form = MARIAN if config.post_norm else PEGASUS
    form.check_needs(config)
    form.check_equal_heads(config)
    return form
