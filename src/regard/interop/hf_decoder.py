"""Three Hugging Face decoders, to and from our DecoderConfig.

GPT-2: Radford et al. 2019. Llama: Touvron et al. 2023 (arXiv:2302.13971). Qwen3: Yang et al. 2025
(arXiv:2505.09388).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from regard.errors import UserError
from regard.interop import register_format
from regard.interop.hugging_face import (
    GATE_UP,
    QKV,
    TRANSPOSE,
    ConfigReader,
    Format,
    TensorName,
    TensorNames,
    Values,
    linear,
)
from regard.models.decoder import Decoder, DecoderConfig

MAX_ROTATIONS = 1 << 28  # positions times head width; a million positions of 128 are half of it

GPT2_NAMES = TensorNames(
    prefix="transformer.",
    rows=(
        TensorName("embedding.weight", ("transformer.wte.weight",)),
        TensorName("positions.embedding.weight", ("transformer.wpe.weight",)),
        *linear("blocks.{i}.mixer_norm", "transformer.h.{i}.ln_1"),
        *linear("blocks.{i}.mixer.qkv", "transformer.h.{i}.attn.c_attn", conversion=TRANSPOSE),
        *linear("blocks.{i}.mixer.out", "transformer.h.{i}.attn.c_proj", conversion=TRANSPOSE),
        *linear("blocks.{i}.feedforward_norm", "transformer.h.{i}.ln_2"),
        *linear("blocks.{i}.feedforward.up", "transformer.h.{i}.mlp.c_fc", conversion=TRANSPOSE),
        *linear(
            "blocks.{i}.feedforward.down", "transformer.h.{i}.mlp.c_proj", conversion=TRANSPOSE
        ),
        *linear("norm", "transformer.ln_f"),
        TensorName("head.weight", ("lm_head.weight",)),
    ),
    buffers=("transformer.h.{i}.attn.bias", "transformer.h.{i}.attn.masked_bias"),  # causal masks
)

LAYER = "model.layers.{i}"
LLAMA_NAMES = TensorNames(
    prefix="model.",
    rows=(
        TensorName("embedding.weight", ("model.embed_tokens.weight",)),
        TensorName("blocks.{i}.mixer_norm.weight", (f"{LAYER}.input_layernorm.weight",)),
        *linear(
            "blocks.{i}.mixer.qkv",
            *(f"{LAYER}.self_attn.{part}_proj" for part in "qkv"),
            conversion=QKV,
        ),
        *linear("blocks.{i}.mixer.out", f"{LAYER}.self_attn.o_proj"),
        TensorName(
            "blocks.{i}.feedforward_norm.weight", (f"{LAYER}.post_attention_layernorm.weight",)
        ),
        *linear(
            "blocks.{i}.feedforward.gate_up",
            f"{LAYER}.mlp.gate_proj",
            f"{LAYER}.mlp.up_proj",
            conversion=GATE_UP,
        ),
        *linear("blocks.{i}.feedforward.down", f"{LAYER}.mlp.down_proj"),
        TensorName("norm.weight", ("model.norm.weight",)),
        TensorName("head.weight", ("lm_head.weight",)),
    ),
    buffers=(f"{LAYER}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
)
QWEN3_NAMES = replace(
    LLAMA_NAMES,
    rows=(
        *LLAMA_NAMES.rows,
        TensorName("blocks.{i}.mixer.q_norm.weight", (f"{LAYER}.self_attn.q_norm.weight",)),
        TensorName("blocks.{i}.mixer.k_norm.weight", (f"{LAYER}.self_attn.k_norm.weight",)),
    ),
)


class DecoderFormat(Format):
    """A decoder-only class."""

    Model = Decoder
    tied: ClassVar[bool]  # what it means to leave out tie_word_embeddings

    def check_heads(self, config: DecoderConfig) -> None:
        """Refuse head sizes that the class cannot have."""

    def extra_keys(self, config: DecoderConfig) -> dict[str, Any]:
        return {"tie_word_embeddings": config.tied, "use_cache": True}

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        plain = ("n_layers", "d_model", "n_heads", "max_len")
        fields: dict[str, Any] = {field: read.integer(self.sizes[field]) for field in plain}
        return fields | {"tied": read.boolean("tie_word_embeddings", self.tied)}


class GPT2Format(DecoderFormat):
    """GPT-2: learned positions, biases everywhere, matrices stored as (in, out)."""

    tied = True

    def check_heads(self, config: DecoderConfig) -> None:
        self.check_equal_heads(config)

    def extra_keys(self, config: DecoderConfig) -> dict[str, Any]:
        dropout = {"resid_pdrop": config.dropout, "embd_pdrop": config.dropout, "attn_pdrop": 0.0}
        return super().extra_keys(config) | dropout

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        fields = super().read_fields(read) | read.equal_heads("n_embd", "n_head")
        return fields | {
            "d_ff": read.integer("n_inner", 4 * fields["d_model"]),
            "norm_eps": read.number("layer_norm_epsilon", 1e-5),
            "dropout": read.number("resid_pdrop", 0.1),  # of their dropouts, that of the residuals
        }


class RotaryFormat(DecoderFormat):
    """What Llama and Qwen3 share: rotary positions, RMSNorm and SwiGLU."""

    tied = False
    has_dropout = False

    def extra_keys(self, config: DecoderConfig) -> dict[str, Any]:
        # Version 5 moved rope_theta into a table; each version ignores the other's key.
        return super().extra_keys(config) | {
            "rope_theta": config.rope_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
            "attention_dropout": 0.0,
        }

    def read_config(self, path: Path, values: Values) -> tuple[int, DecoderConfig]:
        vocab_size, config = super().read_config(path, values)
        if config.max_len * config.d_head > MAX_ROTATIONS:
            raise ConfigReader(path, values).error(
                "max_position_embeddings",
                f"times head_dim may be at most {MAX_ROTATIONS} positions",
            )
        return vocab_size, config

    def default_head(self, fields: Values) -> int:
        """Return what it means to leave out head_dim."""
        return fields["d_model"] // max(fields["n_heads"], 1)  # type: ignore[no-any-return]

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        fields = super().read_fields(read)
        fields["d_ff"] = read.integer("intermediate_size")
        fields["n_kv_heads"] = read.integer("num_key_value_heads", fields["n_heads"])
        fields["d_head"] = read.integer("head_dim", self.default_head(fields))
        fields["norm_eps"] = read.number("rms_norm_eps", 1e-6)
        if not fields["norm_eps"] > 0:
            raise read.error("rms_norm_eps", "must be positive")
        fields["rope_theta"] = read_rope_theta(read)
        layer_types = read.values.get("layer_types") or []
        if not isinstance(layer_types, list) or set(map(str, layer_types)) - {"full_attention"}:
            raise read.error("layer_types", "every layer must be 'full_attention'")
        return fields


class LlamaFormat(RotaryFormat):
    """Llama."""

    def check_heads(self, config: DecoderConfig) -> None:
        if config.d_model % config.n_heads:
            raise UserError(
                f"cannot export n_heads = {config.n_heads}: {self.name} needs it to divide "
                f"d_model, got {config.d_model}"
            )

    def extra_keys(self, config: DecoderConfig) -> dict[str, Any]:
        biases = {"attention_bias": config.bias, "mlp_bias": config.bias}
        return super().extra_keys(config) | biases

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        bias = read.boolean("attention_bias", False)
        if read.boolean("mlp_bias", False) != bias:
            raise read.error(
                "mlp_bias", f"must be as attention_bias = {bias}: biases everywhere or nowhere"
            )
        return super().read_fields(read) | {"bias": bias}


class Qwen3Format(RotaryFormat):
    """Qwen3: Llama with normalised queries and keys, and no biases."""

    def default_head(self, fields: Values) -> int:
        return 128


PLAIN: Values = {  # what all three classes have in common
    "post_norm": False,
    "score": "scaled_dot",
    "projections": "learned",
    "scale_embedding": False,
    "window": 0,  # Qwen3 has windows, but not all tools that load its folders apply them
    "mixers": (),
}
ROTARY: Values = {**PLAIN, "norm": "rms", "positions": "rotary", "feedforward": "swiglu"}
ROTARY_SIZES = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "d_head": "head_dim",
    "d_ff": "intermediate_size",
    "max_len": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
}
SILU = ("silu", "swish")  # two names of one function

FORMATS = (
    GPT2Format(
        name="GPT2LMHeadModel",
        model_type="gpt2",
        table=GPT2_NAMES,
        sizes={
            "n_layers": "n_layer",
            "d_model": "n_embd",
            "n_heads": "n_head",
            "d_ff": "n_inner",
            "max_len": "n_positions",
            "norm_eps": "layer_norm_epsilon",
        },
        needs={
            **PLAIN,
            "norm": "layer",
            "positions": "learned",
            "feedforward": "gelu",
            "bias": True,
            "qk_norm": False,
        },
        fixed={
            "activation_function": ("gelu_new", "gelu_pytorch_tanh"),  # two names of one function
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
        },
    ),
    LlamaFormat(
        name="LlamaForCausalLM",
        model_type="llama",
        table=LLAMA_NAMES,
        sizes=ROTARY_SIZES,
        needs={**ROTARY, "qk_norm": False},
        fixed={"hidden_act": SILU, "sliding_window": (None,)},
    ),
    Qwen3Format(
        name="Qwen3ForCausalLM",
        model_type="qwen3",
        table=QWEN3_NAMES,
        sizes=ROTARY_SIZES,
        needs={**ROTARY, "qk_norm": True, "bias": False},
        fixed={"hidden_act": SILU, "attention_bias": (False,), "use_sliding_window": (False,)},
    ),
)


@register_format("hf", Decoder)
def choose_format(config: DecoderConfig) -> Format:
    """Return the class that computes what this configuration does; a UserError where none does."""
    mismatches = []
    for form in FORMATS:
        needs = {key: value for key, value in form.needs.items() if getattr(config, key) != value}
        if not needs:
            form.check_heads(config)
            return form
        mismatches.append((form.name, needs))
    for key in ROTARY:
        allowed = sorted({repr(form.needs[key]) for form in FORMATS})
        if repr(getattr(config, key)) not in allowed:
            raise UserError(
                f"cannot export {key} = {getattr(config, key)!r}: it has no sure counterpart in "
                f"Hugging Face's classes; allowed: {' or '.join(allowed)}"
            )
    fewest = min(len(needs) for _, needs in mismatches)
    nearest = [
        f"{name} needs " + ", ".join(f"{key} = {value!r}" for key, value in needs.items())
        for name, needs in mismatches
        if len(needs) == fewest
    ]
    parts = ("norm", "positions", "feedforward", "bias", "qk_norm")
    got = ", ".join(f"{key} = {getattr(config, key)!r}" for key in parts)
    raise UserError(f"cannot export {got} together: {'; '.join(nearest)}")


def read_rope_theta(read: ConfigReader) -> float:
    """Return the base of the rotary angles, from either key; scaled rotations are refused."""
    bases = []
    if read.values.get("rope_theta") is not None:
        bases.append(read.number("rope_theta", 0))
    if read.values.get("partial_rotary_factor", 1.0) not in (None, 1):
        raise read.error("partial_rotary_factor", "only rotations of complete heads are read")
    for key in ("rope_parameters", "rope_scaling"):
        table = read.values.get(key)
        if table is None:
            continue
        if not isinstance(table, dict):
            raise read.error(key, "must be a table")
        known = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1}
        for name, value in table.items():
            if name == "rope_theta":
                bases.append(read.check_number(key, value, 0))
            elif name not in known or value != known[name]:
                raise read.error(key, "only unscaled rotations (rope_type 'default') are read")
    if len(set(bases)) > 1 or 0 in bases:
        raise read.error("rope_theta", f"rope_theta must be one positive number, got {bases}")
    return bases[0] if bases else 10_000.0  # the default of both classes
