"""ViT: the Hugging Face class of our encoder of pictures with the preset `vit`, to and from its
Config, and the preprocessor_config.json beside it.

ViTForImageClassification (Dosovitskiy et al. 2021, arXiv:2010.11929): their class token is our
vector of `<S>`, their convolution over patches our linear map of their pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import UserError
from regard.interop.hf_decoder import ConfigReader, Format, Values, check_refused
from regard.interop.hf_encoder import UNITS, names_of, targets
from regard.interop.tensor_names import QKV, TensorName, TensorNames, linear
from regard.interop.untrusted_folder import inside
from regard.models.vision import VisionConfig
from regard.run import PREPROCESSOR
from regard.tokenizers.patches import PLACE, Patches


@dataclass(frozen=True)
class Shaped:
    """The same values in another shape; `shape` gives theirs from our tensor and configuration."""

    shape: Callable[[Tensor, Any], tuple[int, ...]]
    dims: int  # ours has so many

    def forth(self, ours: Tensor, config: Any) -> tuple[Tensor, ...]:
        """See Change."""
        return (ours.reshape(self.shape(ours, config)),)

    def back(self, theirs: Sequence[Tensor]) -> Tensor:
        """See Change."""
        found = theirs[0]
        if self.dims == 1:
            return found.reshape(-1)
        return found[0] if found.dim() == 3 else found.flatten(1)


def filters(ours: Tensor, config: Any) -> tuple[int, ...]:
    """(D, C, patch, patch)."""
    return len(ours), config.channels, config.patch, config.patch


AT, OURS, THEIRS = "vit.embeddings", "encoder.blocks.{i}", "vit.encoder.layer.{i}"
STEM = "encoder.embedding"
VIT = TensorNames(
    prefix="vit.",
    rows=(
        TensorName(f"{STEM}.marker", (f"{AT}.cls_token",), Shaped(lambda x, c: (1, 1, len(x)), 1)),
        TensorName(
            "encoder.positions.embedding.weight",
            (f"{AT}.position_embeddings",),
            Shaped(lambda x, c: (1, *x.shape), 2),
        ),
        TensorName(
            f"{STEM}.project.weight",
            (f"{AT}.patch_embeddings.projection.weight",),
            Shaped(filters, 2),
        ),
        TensorName(f"{STEM}.project.bias", (f"{AT}.patch_embeddings.projection.bias",)),
        *linear(
            f"{OURS}.mixer.qkv",
            *(f"{THEIRS}.attention.attention.{name}" for name in ("query", "key", "value")),
            change=QKV,
        ),
        *linear(f"{OURS}.mixer.out", f"{THEIRS}.attention.output.dense"),
        *linear(f"{OURS}.mixer_norm", f"{THEIRS}.layernorm_before"),
        *linear(f"{OURS}.feedforward.up", f"{THEIRS}.intermediate.dense"),
        *linear(f"{OURS}.feedforward.down", f"{THEIRS}.output.dense"),
        *linear(f"{OURS}.feedforward_norm", f"{THEIRS}.layernorm_after"),
        *linear("encoder.norm", "vit.layernorm"),
        *linear("head", "classifier"),
    ),
    buffers=("vit.pooler.dense.weight", "vit.pooler.dense.bias"),  # of older uploads, not used
    copies=(),
    own=UNITS,
)
NEEDS: Values = {
    "norm": "layer",
    "post_norm": False,
    "positions": "learned",
    "feedforward": "gelu_exact",
    "bias": True,
    "qk_norm": False,
    "embedding_norm": False,
    "scale_embedding": False,
    "score": "scaled_dot",
    "projections": "learned",
    "window": 0,
    "pooling": "first",
    "pooler": False,
}
SIZES = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "patch": "patch_size",
    "channels": "num_channels",
}
FIXED: Mapping[str, tuple[Any, ...]] = {"hidden_act": ("gelu",), "qkv_bias": (True,)}
WHOLE = Format(
    "ViTForImageClassification",
    "vit",
    VIT,
    sizes=SIZES,
    needs=NEEDS,
    fixed=FIXED,
    tied=False,
    has_dropout=True,
    task="label",
)
FORMATS = (WHOLE,)


def choose_format(config: VisionConfig) -> Format:
    """The class that computes what this configuration does, or a UserError naming what it lacks."""
    for key, value in NEEDS.items():
        if getattr(config, key) != value:
            raise UserError(
                f"cannot export {key} = {getattr(config, key)!r}: {WHOLE.name} needs {key} = "
                f"{value!r}; of our encoders of pictures only the preset vit has a class in "
                "Hugging Face's library"
            )
    if config.n_kv_heads != config.n_heads or config.n_heads * config.d_head != config.d_model:
        raise UserError(f"cannot export these heads: {WHOLE.name} shares d_model out evenly")
    return WHOLE


def check_tokenizer(tokenizer: Patches) -> None:
    """A UserError where their class would see other pixels."""
    if tokenizer.height % tokenizer.patch or tokenizer.width % tokenizer.patch:
        raise UserError(
            f"cannot export images of {tokenizer.height} × {tokenizer.width} pixels in patches of "
            f"{tokenizer.patch}: {WHOLE.name} fills nothing up; choose a tokens.patch that divides "
            "both sides"
        )


def to_theirs(config: VisionConfig) -> dict[str, Any]:
    """Their config.json but for the names of answers."""
    sides = [config.rows * config.patch, config.columns * config.patch]
    stored: dict[str, Any] = {
        "architectures": [WHOLE.name],
        "model_type": WHOLE.model_type,
        "image_size": sides[0] if sides[0] == sides[1] else sides,
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        "dtype": "float32",
        "torch_dtype": "float32",  # its name before 4.56
    }
    stored |= {theirs: getattr(config, ours) for ours, theirs in SIZES.items()}
    return stored | {key: allowed[0] for key, allowed in FIXED.items()}


def from_theirs(form: Format, path: Path, values: Values) -> tuple[int, VisionConfig]:
    """Numbers of a token and our configuration from their config.json, read from `path`, and the
    preprocessor_config.json beside it.
    """
    read = ConfigReader(path, values)
    check_refused(form, read)
    patch, channels = read.whole("patch_size", 16), read.whole("num_channels", 3)
    size = values.get("image_size", 224)
    sides = [size, size] if isinstance(size, int) else size
    if not isinstance(sides, list) or len(sides) != 2 or not all(type(n) is int for n in sides):
        raise read.error("image_size", "must be one whole number or two")
    if patch < 1 or any(n < 1 or n % patch for n in sides):
        raise read.error("patch_size", f"must divide image_size = {sides}")
    fields: dict[str, Any] = {k: read.whole(v) for k, v in SIZES.items() if k != "channels"}
    d_model, n_heads = fields["d_model"], fields["n_heads"]
    if n_heads < 1 or d_model % n_heads:
        raise read.error(SIZES["n_heads"], f"must divide hidden_size = {d_model}")
    tokenizer = opened(path.parent, patch)
    if tokenizer.channels != channels:
        raise read.error("num_channels", f"{PREPROCESSOR} has {tokenizer.channels} means")
    asked = targets(form, path, values)
    fields |= {"n_kv_heads": n_heads, "d_head": d_model // n_heads, **NEEDS}
    fields |= {"patch": patch, "rows": sides[0] // patch, "columns": sides[1] // patch}
    fields |= {"mean": tokenizer.mean, "deviation": tokenizer.deviation}
    fields |= {"task": asked.task, "n_outputs": len(names_of(asked))}
    fields |= {"max_len": 1 + sides[0] * sides[1] // patch**2}
    fields["norm_eps"] = read.number("layer_norm_eps", 1e-12)
    fields["dropout"] = read.number("hidden_dropout_prob", 0.0)
    try:
        return PLACE + patch * patch * channels, VisionConfig(**fields)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def opened(folder: Path, patch: int) -> Patches:
    """The tokenizer of their folder."""
    return Patches.load(inside(folder, PREPROCESSOR), patch=patch)


def readme(parameters: int) -> str:
    """How to load an exported folder."""
    return f"""# {WHOLE.name}, {parameters:,} parameters

Trained with regard. Loads with Hugging Face transformers (4.51 or newer) and the tools that read
its folders:

```python
import numpy as np
from transformers import ViTForImageClassification, ViTImageProcessor

folder = "PATH/TO/THIS/FOLDER"
process = ViTImageProcessor.from_pretrained(folder)
model = ViTForImageClassification.from_pretrained(folder)
image = np.zeros((model.config.num_channels, 64, 64), dtype=np.uint8)  # or one of PIL's, in colours
logits = model(**process(image, input_data_format="channels_first", return_tensors="pt")).logits
print(model.config.id2label[logits.argmax().item()])
```
"""
