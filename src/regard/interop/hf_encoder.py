"""BERT and ViT: the Hugging Face classes of our encoders with the presets `bert` and `vit`.

BERT (Devlin et al. 2019, arXiv:1810.04805) is one encoder with three heads: masked tokens, a
prediction for the text from a tanh layer on its first position, and one at every position.
ViT (Dosovitskiy et al. 2021, arXiv:2010.11929) reads patches of an image: their class token is our
vector of `<S>`, their convolution over patches our linear map of their pixels. The names of labels
and values are in `id2label`, what is predicted is in `problem_type`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from regard.data.targets import Targets
from regard.errors import UserError
from regard.evaluation.predictions import read_targets
from regard.interop import register_format
from regard.interop.hugging_face import (
    ENCODER_TEXT,
    MASKED_TEXT,
    QKV,
    ConfigReader,
    Conversion,
    Format,
    TensorName,
    TensorNames,
    Values,
    inside,
    linear,
)
from regard.models.encoder import EncoderConfig, EncoderModel, MaskedLM, MaskedLMConfig
from regard.models.vision import VisionConfig, VisionTransformer
from regard.run import Run
from regard.tokenizers import PREPROCESSOR, Tokenizer
from regard.tokenizers.patches import N_COORDINATES, Patches

MAX_LABELS = 1 << 20  # that a config.json without names may have
PROBLEM_TYPES = {  # in config.json → our task
    "single_label_classification": "label",
    "multi_label_classification": "labels",
    "regression": "value",
}
UNITS = {"shift": 0.0, "scale": 1.0}  # of values; the class has them in its head
BLOCK = "encoder.blocks.{i}"

NEEDS: Values = {  # what BERT and ViT have in common
    "norm": "layer",
    "positions": "learned",
    "feedforward": "gelu_exact",
    "bias": True,
    "qk_norm": False,
    "scale_embedding": False,
    "score": "scaled_dot",
    "projections": "learned",
    "window": 0,
}
SIZES = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
}


class EncoderFormat(Format):
    """An encoder of texts or images with a head that predicts labels or values."""

    def to_hf(self, weights: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        """Multiply the units of values into the head, then rename."""
        weights = dict(weights)
        shift, scale = (weights.pop(name) for name in UNITS)
        weights["head.weight"] = weights["head.weight"] * scale[:, None]  # (O, D)
        weights["head.bias"] = weights["head.bias"] * scale + shift
        return super().to_hf(weights, config)

    def extra_keys(self, config: Any) -> dict[str, Any]:
        return {
            "layer_norm_eps": config.norm_eps,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": 0.0,
        }

    def generation_json(self, tokenizer: Tokenizer, vocab_size: int, max_len: int) -> None:
        return None

    def label_keys(self, run: Path, config: Any) -> dict[str, Any]:
        targets = read_targets(run)
        names = output_names(targets)
        problems = {task: problem for problem, task in PROBLEM_TYPES.items()}
        problem = problems.get(targets.task)  # none for a label at every position
        return {
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {name: i for i, name in enumerate(names)},
            **({"problem_type": problem} if problem else {}),
        }

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        fields: dict[str, Any] = {field: read.integer(key) for field, key in SIZES.items()}
        fields |= read.equal_heads("hidden_size", "num_attention_heads")
        fields["norm_eps"] = read.number("layer_norm_eps", 1e-12)
        return fields | self.target_fields(read)

    def target_fields(self, read: ConfigReader) -> dict[str, Any]:
        """Return the fields that what is predicted decides."""
        targets = self.read_targets(read.path, read.values)
        return {"task": targets.task, "n_outputs": len(output_names(targets))}

    def read_targets(self, path: Path, values: Values) -> Targets:
        """Return the targets; labels without names in config.json are LABEL_0, LABEL_1, …"""
        read, labels = ConfigReader(path, values), values.get("id2label")
        if labels is None:
            count = read.integer("num_labels", 2)
            if not 0 < count <= MAX_LABELS:
                raise read.error("num_labels", f"must be from 1 to {MAX_LABELS:,}")
            labels = {str(i): f"LABEL_{i}" for i in range(count)}
        numbers = {str(i) for i in range(len(labels))} if isinstance(labels, dict) else set()
        if not numbers or set(labels) != numbers:
            raise read.error("id2label", "must name the labels 0, 1, 2, …")
        names = tuple(str(labels[str(i)]) for i in range(len(labels)))
        if len(set(names)) < len(names):
            raise read.error("id2label", "names must differ")
        return self.make_targets(read, names)

    def make_targets(self, read: ConfigReader, names: tuple[str, ...]) -> Targets:
        """Return the targets with these names of outputs."""
        default = "regression" if len(names) == 1 else "single_label_classification"
        problem = read.values.get("problem_type") or default
        if problem not in list(PROBLEM_TYPES):
            raise read.error("problem_type", f"must be one of {', '.join(PROBLEM_TYPES)}")
        if problem == "single_label_classification":
            return Targets("label", ("label",), (names,))
        classes = tuple(("0", "1") for _ in names) if problem != "regression" else ()
        return Targets(PROBLEM_TYPES[problem], names, classes)


def output_names(targets: Targets) -> tuple[str, ...]:
    """Return the names of a model's outputs, in order."""
    return targets.names if targets.kind.per_column else targets.classes[0]


# BERT

EMBEDDINGS, LAYER = "bert.embeddings", "bert.encoder.layer.{i}"
BODY = (
    TensorName("encoder.embedding.weight", (f"{EMBEDDINGS}.word_embeddings.weight",)),
    TensorName("encoder.positions.embedding.weight", (f"{EMBEDDINGS}.position_embeddings.weight",)),
    TensorName("encoder.types.weight", (f"{EMBEDDINGS}.token_type_embeddings.weight",)),
    *linear("encoder.embedding_norm", f"{EMBEDDINGS}.LayerNorm"),
    *linear(
        f"{BLOCK}.mixer.qkv",
        *(f"{LAYER}.attention.self.{name}" for name in ("query", "key", "value")),
        conversion=QKV,
    ),
    *linear(f"{BLOCK}.mixer.out", f"{LAYER}.attention.output.dense"),
    *linear(f"{BLOCK}.mixer_norm", f"{LAYER}.attention.output.LayerNorm"),
    *linear(f"{BLOCK}.feedforward.up", f"{LAYER}.intermediate.dense"),
    *linear(f"{BLOCK}.feedforward.down", f"{LAYER}.output.dense"),
    *linear(f"{BLOCK}.feedforward_norm", f"{LAYER}.output.LayerNorm"),
)
SEQUENCE_NAMES = TensorNames(
    prefix="bert.",
    rows=(*BODY, *linear("pooler", "bert.pooler.dense"), *linear("head", "classifier")),
    buffers=(f"{EMBEDDINGS}.position_ids",),
    copies=(),
    neutral=UNITS,
    # Older uploads spell the gains and biases of norms as TensorFlow does.
    spellings={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
)
TOKEN_NAMES = replace(
    SEQUENCE_NAMES,
    rows=(*BODY, *linear("head", "classifier")),
    buffers=(*SEQUENCE_NAMES.buffers, "bert.pooler.dense.weight", "bert.pooler.dense.bias"),
)
MASKED_HEAD = "cls.predictions"
MASKED_NAMES = replace(
    SEQUENCE_NAMES,
    rows=(
        *BODY,
        *linear("dense", f"{MASKED_HEAD}.transform.dense"),
        *linear("norm", f"{MASKED_HEAD}.transform.LayerNorm"),
        TensorName("bias", (f"{MASKED_HEAD}.bias",)),
    ),
    # The first uploads also have the head that predicted whether one sentence follows another.
    buffers=(*TOKEN_NAMES.buffers, "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
    copies=(f"{MASKED_HEAD}.decoder.weight",),
    neutral={},
    twins={f"{MASKED_HEAD}.decoder.bias": f"{MASKED_HEAD}.bias"},
)


class BertFormat(EncoderFormat):
    """BertForSequenceClassification: labels, values or one of several classes of a text."""

    Model: ClassVar[type[Any]] = EncoderModel
    text = ENCODER_TEXT
    pipeline = "text-classification"

    def extra_keys(self, config: EncoderConfig) -> dict[str, Any]:
        dropout = {"classifier_dropout": config.dropout, "tie_word_embeddings": True}
        return super().extra_keys(config) | dropout

    def example(self, config: EncoderConfig, tokenizer: Tokenizer) -> str:
        return f"""from transformers import pipeline

ask = pipeline("{self.pipeline}", model="PATH/TO/THIS/FOLDER")
print(ask("{self.example_text(tokenizer)}"))"""

    def example_text(self, tokenizer: Tokenizer) -> str:
        return "a text"

    def warnings(self, run: Path, tokenizer: Tokenizer) -> list[str]:
        messages = super().warnings(run, tokenizer)
        augment = Run(run).data.get("augment")
        if augment:
            messages.append(
                f"this run averages its predictions over several views ({augment}), the exported "
                "folder predicts for the one it is given"
            )
        return messages

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        fields = super().read_fields(read)
        fields["max_len"] = read.integer("max_position_embeddings")
        fields["n_types"] = read.integer("type_vocab_size", 2)
        if fields["n_types"] < 1:
            raise read.error("type_vocab_size", "must be at least 1")
        return fields | {"dropout": read.number("hidden_dropout_prob", 0.1), "tied": True}

    def with_tokenizer(self, config: EncoderConfig, tokenizer: Tokenizer) -> EncoderConfig:
        return replace(config, separator=tokenizer.end)


class BertTokenFormat(BertFormat):
    """BertForTokenClassification: one label at every position."""

    pipeline = "token-classification"

    def to_hf(self, weights: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        """Leave out the pooler: it reads the first position alone."""
        rest = {name: x for name, x in weights.items() if not name.startswith("pooler.")}
        return super().to_hf(rest, config)

    def make_targets(self, read: ConfigReader, names: tuple[str, ...]) -> Targets:
        return Targets("position-label", ("label",), (names,))


class BertMaskedFormat(BertFormat):
    """BertForMaskedLM: the tokens behind masks."""

    Model = MaskedLM
    text = MASKED_TEXT
    pipeline = "fill-mask"

    def to_hf(self, weights: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        return Format.to_hf(self, weights, config)

    def label_keys(self, run: Path, config: Any) -> dict[str, Any]:
        return {}

    def example_text(self, tokenizer: Tokenizer) -> str:
        return f"a {tokenizer.text(tokenizer.mask)} text"

    def target_fields(self, read: ConfigReader) -> dict[str, Any]:
        if not read.boolean("tie_word_embeddings", True):
            raise read.error("tie_word_embeddings", "only a tied embedding is read")
        return {}

    def read_targets(self, path: Path, values: Values) -> None:  # type: ignore[override]
        return None


BERT: dict[str, Any] = {
    "model_type": "bert",
    "sizes": {**SIZES, "max_len": "max_position_embeddings", "n_types": "type_vocab_size"},
    "fixed": {
        "hidden_act": ("gelu",),
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False,),
        "chunk_size_feed_forward": (0,),
    },
}
BERT_NEEDS: Values = {**NEEDS, "post_norm": True, "embedding_norm": True, "mixers": ()}
MASKED = BertMaskedFormat(
    name="BertForMaskedLM",
    table=MASKED_NAMES,
    needs={**BERT_NEEDS, "transform": True, "tied": True},
    **BERT,
)
SEQUENCE = BertFormat(
    name="BertForSequenceClassification",
    table=SEQUENCE_NAMES,
    needs={**BERT_NEEDS, "pooling": "first", "pooler": True},
    **BERT,
)
TOKEN = BertTokenFormat(
    name="BertForTokenClassification", table=TOKEN_NAMES, needs=BERT_NEEDS, **BERT
)


@register_format("hf", EncoderModel)
def choose_format(config: EncoderConfig) -> Format:
    """Return the class that computes what this configuration does; a UserError where none does."""
    return check_bert(TOKEN if config.head.positional else SEQUENCE, config)


@register_format("hf", MaskedLM)
def choose_masked(config: MaskedLMConfig) -> Format:
    """Return the class of a masked language model; a UserError where it computes something else."""
    return check_bert(MASKED, config)


def check_bert(form: Format, config: EncoderConfig | MaskedLMConfig) -> Format:
    """Return the class; a UserError where it does not compute what the configuration does."""
    form.check_needs(
        config, "; of our encoders only the preset bert has a class in Hugging Face's library"
    )
    form.check_equal_heads(config)
    if not config.n_types:
        raise UserError(f"cannot export n_types = 0: {form.name} has at least one type of text")
    return form


# ViT


def reshape(
    shape: Callable[[Tensor, Any], tuple[int, ...]], from_hf: Callable[[Tensor], Tensor]
) -> Conversion:
    """Return the conversion to another shape, which our tensor and configuration decide."""
    return Conversion(
        lambda x, config: (x.reshape(shape(x, config)),), lambda parts: from_hf(parts[0])
    )


VIT_EMBEDDINGS, VIT_LAYER, STEM = "vit.embeddings", "vit.encoder.layer.{i}", "encoder.embedding"
VIT_NAMES = TensorNames(
    prefix="vit.",
    rows=(
        TensorName(
            f"{STEM}.marker",
            (f"{VIT_EMBEDDINGS}.cls_token",),
            reshape(lambda x, config: (1, 1, len(x)), lambda x: x.reshape(-1)),
        ),
        TensorName(
            "encoder.positions.embedding.weight",
            (f"{VIT_EMBEDDINGS}.position_embeddings",),
            reshape(lambda x, config: (1, *x.shape), lambda x: x[0]),
        ),
        TensorName(
            f"{STEM}.project.weight",
            (f"{VIT_EMBEDDINGS}.patch_embeddings.projection.weight",),
            reshape(
                lambda x, config: (len(x), config.channels, config.patch, config.patch),
                lambda x: x.flatten(1),
            ),
        ),
        TensorName(f"{STEM}.project.bias", (f"{VIT_EMBEDDINGS}.patch_embeddings.projection.bias",)),
        *linear(
            f"{BLOCK}.mixer.qkv",
            *(f"{VIT_LAYER}.attention.attention.{name}" for name in ("query", "key", "value")),
            conversion=QKV,
        ),
        *linear(f"{BLOCK}.mixer.out", f"{VIT_LAYER}.attention.output.dense"),
        *linear(f"{BLOCK}.mixer_norm", f"{VIT_LAYER}.layernorm_before"),
        *linear(f"{BLOCK}.feedforward.up", f"{VIT_LAYER}.intermediate.dense"),
        *linear(f"{BLOCK}.feedforward.down", f"{VIT_LAYER}.output.dense"),
        *linear(f"{BLOCK}.feedforward_norm", f"{VIT_LAYER}.layernorm_after"),
        *linear("encoder.norm", "vit.layernorm"),
        *linear("head", "classifier"),
    ),
    buffers=("vit.pooler.dense.weight", "vit.pooler.dense.bias"),  # in older uploads, not used
    copies=(),
    neutral=UNITS,
)
VIT_EXAMPLE = """import numpy as np
from transformers import ViTForImageClassification, ViTImageProcessor

folder = "PATH/TO/THIS/FOLDER"
process = ViTImageProcessor.from_pretrained(folder)
model = ViTForImageClassification.from_pretrained(folder)
image = np.zeros((model.config.num_channels, 64, 64), dtype=np.uint8)  # or one of PIL's, in colours
logits = model(**process(image, input_data_format="channels_first", return_tensors="pt")).logits
print(model.config.id2label[logits.argmax().item()])"""


class VitFormat(EncoderFormat):
    """ViTForImageClassification, with the preprocessor_config.json beside its config.json."""

    Model = VisionTransformer

    def check_tokenizer(self, run: Path, tokenizer: Any, vocab_size: int) -> None:
        """Refuse images that are padded: their class would see other pixels."""
        if tokenizer.height % tokenizer.patch or tokenizer.width % tokenizer.patch:
            raise UserError(
                f"cannot export images of {tokenizer.height} × {tokenizer.width} pixels in patches "
                f"of {tokenizer.patch}: {self.name} fills nothing up; choose an input.patch that "
                "divides both sides"
            )

    def config_json(self, vocab_size: int, config: VisionConfig) -> dict[str, Any]:
        stored = super().config_json(vocab_size, config)
        del stored["vocab_size"]
        return stored

    def extra_keys(self, config: VisionConfig) -> dict[str, Any]:
        height, width = config.rows * config.patch, config.columns * config.patch
        size = {"image_size": height if height == width else [height, width]}
        return super().extra_keys(config) | size

    def token_ids(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {}

    def save_tokenizer(self, folder: Path, tokenizer: Tokenizer, max_len: int) -> None:
        tokenizer.save(folder / PREPROCESSOR)

    def example(self, config: VisionConfig, tokenizer: Tokenizer) -> str:
        return VIT_EXAMPLE

    def read_config(self, path: Path, values: Values) -> tuple[int, VisionConfig]:
        read = ConfigReader(path, values)
        self.check_keys(read)
        config = self.build_config(path, self.read_fields(read))
        return N_COORDINATES + config.patch**2 * config.channels, config

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        patch, channels = read.integer("patch_size", 16), read.integer("num_channels", 3)
        size = read.values.get("image_size", 224)
        size = [size, size] if isinstance(size, int) else size
        if not isinstance(size, list) or len(size) != 2 or not all(type(n) is int for n in size):
            raise read.error("image_size", "must be one whole number or two")
        height, width = size
        if patch < 1 or any(n < 1 or n % patch for n in size):
            raise read.error("patch_size", f"must divide image_size = {size}")
        tokenizer = load_patches(read.path.parent, patch)
        if tokenizer.channels != channels:
            raise read.error("num_channels", f"{PREPROCESSOR} has {tokenizer.channels} means")
        return {
            **super().read_fields(read),
            "dropout": read.number("hidden_dropout_prob", 0.0),
            "patch": patch,
            "rows": height // patch,
            "columns": width // patch,
            "max_len": 1 + height * width // patch**2,
            "mean": tokenizer.mean,
            "deviation": tokenizer.deviation,
        }

    def load_tokenizer(self, folder: Path, values: Values, config: VisionConfig) -> Tokenizer:
        return load_patches(folder, config.patch)


def load_patches(folder: Path, patch: int) -> Patches:
    """Return the preprocessor of their folder."""
    return Patches.load(inside(folder, PREPROCESSOR), patch=patch)


VIT = VitFormat(
    name="ViTForImageClassification",
    model_type="vit",
    table=VIT_NAMES,
    sizes={**SIZES, "patch": "patch_size", "channels": "num_channels"},
    needs={
        **NEEDS,
        "post_norm": False,
        "embedding_norm": False,
        "pooling": "first",
        "pooler": False,
    },
    fixed={"hidden_act": ("gelu",), "qkv_bias": (True,)},
)
FORMATS = (MASKED, SEQUENCE, TOKEN, VIT)


@register_format("hf", VisionTransformer)
def choose_vit(config: VisionConfig) -> Format:
    """Return the class of an image classifier; a UserError where it computes something else."""
    VIT.check_needs(
        config,
        "; of our encoders of images only the preset vit has a class in Hugging Face's library",
    )
    VIT.check_equal_heads(config)
    return VIT
