"""config.json of three Hugging Face decoders, to and from our DecoderConfig.

The class follows from the fields of a configuration, never from a preset's name, and whatever one
side cannot say is refused by name: a folder that loads but computes something else is worse than
none.

GPT-2: Radford et al. 2019. Llama: Touvron et al. 2023 (arXiv:2302.13971). Qwen3: Yang et al. 2025
(arXiv:2505.09388).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import UserError
from regard.interop.tensor_names import GPT2, LLAMA, QWEN3, TensorNames
from regard.models.decoder import DecoderConfig

Values = Mapping[str, Any]

MAX_VOCAB = 1 << 24  # what a run folder may hold, exclusive
LARGEST = (1 << 31) - 1  # whole number of a config.json
MAX_ROTATIONS = 1 << 28  # positions times head width; a million positions of 128 are half of it


@dataclass(frozen=True)
class Format:
    """One class: its tensors, and how its configuration says what ours says."""

    name: str
    model_type: str
    table: TensorNames
    sizes: Mapping[str, str]  # our field to their key: numbers that are the same on both sides
    needs: Values  # our fields that can have only this value there
    fixed: Mapping[str, tuple[Any, ...]]  # their keys, and the values that mean what we compute
    tied: bool  # what it means to leave out tie_word_embeddings
    has_dropout: bool = False  # on embeddings and residuals, where ours acts
    task: str = "next"


PLAIN: Values = {  # what all three classes have in common
    "post_norm": False,
    "score": "scaled_dot",
    "projections": "learned",
    "scale_embedding": False,
    "window": 0,  # Qwen3 has windows, but tools that load its folders differ in heeding them
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
    Format(
        "GPT2LMHeadModel",
        "gpt2",
        GPT2,
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
        tied=True,
        has_dropout=True,
    ),
    Format(
        "LlamaForCausalLM",
        "llama",
        LLAMA,
        sizes=ROTARY_SIZES,
        needs={**ROTARY, "qk_norm": False},
        fixed={"hidden_act": SILU, "sliding_window": (None,)},
        tied=False,
    ),
    Format(
        "Qwen3ForCausalLM",
        "qwen3",
        QWEN3,
        sizes=ROTARY_SIZES,
        needs={**ROTARY, "qk_norm": True, "bias": False},
        fixed={"hidden_act": SILU, "attention_bias": (False,), "use_sliding_window": (False,)},
        tied=False,
    ),
)

# Keys that any folder may have, the values that change nothing, and why others are refused.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "auto_map": ((None, {}), "it asks for code from the folder, which is never run"),
    "quantization_config": (
        (None,),
        "quantised weights are not read; take the full-precision model",
    ),
    "compression_config": (
        (None,),
        "compressed weights are not read; take the full-precision model",
    ),
    "pruned_heads": ((None, {}), "pruned heads have no counterpart"),
    "add_cross_attention": ((None, False), "cross-attention has no counterpart"),
    "is_encoder_decoder": ((None, False), "this class is a decoder alone"),
}


def choose_format(config: DecoderConfig) -> Format:
    """The class that computes what this configuration does, or a UserError naming what it lacks."""
    mismatches = []
    for form in FORMATS:
        wrong = {key: value for key, value in form.needs.items() if getattr(config, key) != value}
        if not wrong:
            check_heads(form, config)
            return form
        mismatches.append((form.name, wrong))
    for key in ROTARY:
        allowed = sorted({repr(form.needs[key]) for form in FORMATS})
        if repr(getattr(config, key)) not in allowed:
            raise UserError(
                f"cannot export {key} = {getattr(config, key)!r}: it has no sure counterpart in "
                f"Hugging Face's classes; allowed: {' or '.join(allowed)}"
            )
    least = min(len(wrong) for _, wrong in mismatches)
    nearest = [
        f"{name} needs " + ", ".join(f"{key} = {value!r}" for key, value in wrong.items())
        for name, wrong in mismatches
        if len(wrong) == least
    ]
    parts = ("norm", "positions", "feedforward", "bias", "qk_norm")
    got = ", ".join(f"{key} = {getattr(config, key)!r}" for key in parts)
    raise UserError(f"cannot export {got} together: {'; '.join(nearest)}")


def check_heads(form: Format, config: DecoderConfig) -> None:
    """Refuse head sizes that the class cannot have."""
    c = config
    if form.table is GPT2 and c.n_kv_heads != c.n_heads:
        raise UserError(
            f"cannot export n_kv_heads = {c.n_kv_heads}: {form.name} has no grouped heads, "
            f"n_kv_heads must be n_heads = {c.n_heads}"
        )
    if form.table is GPT2 and c.n_heads * c.d_head != c.d_model:
        raise UserError(
            f"cannot export d_head = {c.d_head}: {form.name} needs n_heads · d_head = d_model, "
            f"got {c.n_heads} · {c.d_head} and {c.d_model}"
        )
    if form.table is LLAMA and c.d_model % c.n_heads:
        raise UserError(
            f"cannot export n_heads = {c.n_heads}: {form.name} needs it to divide d_model, "
            f"got {c.d_model}"
        )


def to_theirs(form: Format, vocab_size: int, config: DecoderConfig) -> dict[str, Any]:
    """Their config.json but for the ids of specials, read alike by transformers 4.5x and 5."""
    stored: dict[str, Any] = {
        "architectures": [form.name],
        "model_type": form.model_type,
        "vocab_size": vocab_size,
        "tie_word_embeddings": config.tied,
        "dtype": "float32",
        "torch_dtype": "float32",  # its name before 4.56
        "use_cache": True,
    }
    stored |= {theirs: getattr(config, ours) for ours, theirs in form.sizes.items()}
    stored |= {key: allowed[0] for key, allowed in form.fixed.items()}
    if form.table is GPT2:
        return stored | {
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": 0.0,
        }
    # Version 5 moved rope_theta into a table of its own; each version ignores the other's place.
    stored["rope_theta"] = config.theta
    stored["rope_parameters"] = {"rope_type": "default", "rope_theta": config.theta}
    stored["attention_dropout"] = 0.0
    if form.table is LLAMA:
        stored |= {"attention_bias": config.bias, "mlp_bias": config.bias}
    return stored


class ConfigReader:
    """Typed access to their config.json; a wrong type is a UserError naming file, key and value."""

    def __init__(self, path: Path, values: Values) -> None:
        self.path, self.values = path, values

    def error(self, key: str, why: str) -> UserError:
        """The error that names this key and its value."""
        return UserError(f"{self.path}: {key} = {shown(self.values.get(key))}: {why}")

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number; null counts as absent, and without a default the key must be there."""
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{self.path} lacks {key}, a whole number")
        if type(value) is not int:
            raise self.error(key, "must be a whole number")
        if abs(value) > LARGEST:
            raise self.error(key, f"must be at most {LARGEST:,}")
        return value

    def number(self, key: str, default: float) -> float:
        """A finite number that is not negative."""
        return non_negative(self.values.get(key), default, lambda why: self.error(key, why))

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value


def shown(value: Any) -> str:
    """A value of a stranger's file, short enough for one line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def non_negative(value: Any, default: float, error: Any) -> float:
    """`value`, or the default for None; anything but a finite number from 0 raises error(why)."""
    value = default if value is None else value
    if type(value) not in (int, float) or not 0 <= value < 1e30 or not math.isfinite(value):
        raise error("must be a finite number, not negative")
    return float(value)


def check_keys(form: Format, read: ConfigReader) -> int:
    """Refuse what no folder or this class may say; returns the size of the vocabulary."""
    check_refused(form, read)
    vocab_size = read.whole("vocab_size")
    if not 0 < vocab_size < MAX_VOCAB:
        raise read.error("vocab_size", f"must be from 1 to {MAX_VOCAB - 1}")
    return vocab_size


def check_refused(form: Format, read: ConfigReader) -> None:
    """Refuse what no folder or this class may say."""
    for key, (allowed, why) in REFUSED.items():
        if key not in form.fixed and read.values.get(key) not in allowed:
            raise read.error(key, why)
    for key, accepted in form.fixed.items():
        if read.values.get(key, accepted[0]) not in accepted:
            raise read.error(key, f"only {' or '.join(map(repr, accepted))} can be read")


def from_theirs(form: Format, path: Path, values: Values) -> tuple[int, DecoderConfig]:
    """Vocabulary size and our configuration from their config.json, read from `path`."""
    read = ConfigReader(path, values)
    vocab_size = check_keys(form, read)
    fields: dict[str, Any] = {**form.needs, "tied": read.flag("tie_word_embeddings", form.tied)}
    fields |= gpt2_fields(form, read) if form.table is GPT2 else rotary_fields(form, read)
    try:
        config = DecoderConfig(**fields)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    if config.positions == "rotary" and config.max_len * config.d_head > MAX_ROTATIONS:
        raise read.error(
            "max_position_embeddings", f"times head_dim may be at most {MAX_ROTATIONS} positions"
        )
    return vocab_size, config


def named_format(path: Path, values: Values, formats: Sequence[Format]) -> Format:
    """The class that `architectures` names, when `model_type` agrees."""
    names = values.get("architectures")
    for form in formats:
        if names == [form.name]:
            if values.get("model_type", form.model_type) != form.model_type:
                raise UserError(
                    f"{path}: model_type = {shown(values['model_type'])} contradicts architectures "
                    f"= {names}, which is {form.model_type!r}"
                )
            return form
    if names is None and "family" in values:
        raise UserError(f"{path} belongs to a run folder of regard, which needs no import")
    known = ", ".join(form.name for form in formats)
    raise UserError(
        f"{path}: architectures = {shown(names)} is not known; one of [{known}] is read"
    )


def gpt2_fields(form: Format, read: ConfigReader) -> dict[str, Any]:
    """The fields that GPT-2's configuration decides; of its dropouts, that of the residuals."""
    fields: dict[str, Any] = {
        ours: read.whole(form.sizes[ours]) for ours in ("n_layers", "d_model", "n_heads", "max_len")
    }
    d_model, n_heads = fields["d_model"], fields["n_heads"]
    if n_heads < 1 or d_model % n_heads:
        raise read.error("n_head", f"must divide n_embd = {d_model}")
    fields["d_ff"] = read.whole("n_inner", 4 * d_model)
    fields |= {"n_kv_heads": n_heads, "d_head": d_model // n_heads}
    fields["norm_eps"] = read.number("layer_norm_epsilon", 1e-5)
    fields["dropout"] = read.number("resid_pdrop", 0.1)
    return fields


def rotary_fields(form: Format, read: ConfigReader) -> dict[str, Any]:
    """The fields that the configurations of Llama and Qwen3 decide."""
    plain = ("n_layers", "d_model", "n_heads", "d_ff", "max_len")
    fields: dict[str, Any] = {ours: read.whole(form.sizes[ours]) for ours in plain}
    d_model, n_heads = fields["d_model"], fields["n_heads"]
    fields["n_kv_heads"] = read.whole("num_key_value_heads", n_heads)
    usual = 128 if form.table is QWEN3 else d_model // max(n_heads, 1)
    fields["d_head"] = read.whole("head_dim", usual)
    fields["norm_eps"] = read.number("rms_norm_eps", 1e-6)
    if not fields["norm_eps"] > 0:
        raise read.error("rms_norm_eps", "must be positive")
    fields["theta"] = rope_theta(read)
    kinds = read.values.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise read.error("layer_types", "every layer must be 'full_attention'")
    if form.table is LLAMA:
        fields["bias"] = read.flag("attention_bias", False)
        if read.flag("mlp_bias", False) != fields["bias"]:
            raise read.error(
                "mlp_bias",
                f"must be as attention_bias = {fields['bias']}: biases everywhere or nowhere",
            )
    return fields


def rope_theta(read: ConfigReader) -> float:
    """The base of the rotary angles, wherever it stands; scaled or partial rotations: refused."""
    found = []
    if read.values.get("rope_theta") is not None:
        found.append(read.number("rope_theta", 0))
    if read.values.get("partial_rotary_factor", 1.0) not in (None, 1):
        raise read.error("partial_rotary_factor", "only rotations of whole heads are read")
    for key in ("rope_parameters", "rope_scaling"):
        table = read.values.get(key)
        if table is None:
            continue
        if not isinstance(table, dict):
            raise read.error(key, "must be a table")
        known = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1}
        for name, value in table.items():
            if name == "rope_theta":
                found.append(non_negative(value, 0, lambda why, key=key: read.error(key, why)))
            elif name not in known or value != known[name]:
                raise read.error(key, "only unscaled rotations (rope_type 'default') are read")
    if len(set(found)) > 1 or 0 in found:
        raise read.error("rope_theta", f"rope_theta must be one positive number, got {found}")
    return found[0] if found else 10_000.0  # the default of both classes
