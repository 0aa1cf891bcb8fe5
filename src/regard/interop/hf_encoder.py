"""BERT: the Hugging Face classes of our encoder with the preset `bert`, to and from its Config.

One encoder and three heads (Devlin et al. 2019, arXiv:1810.04805): tokens that are filled in, an
answer to the whole text from a tanh layer on its first position, and one at every position. What
labels and values are called stands in `id2label`, and what is asked in `problem_type`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.data.targets import Targets
from regard.errors import UserError
from regard.evaluation.predictions import targets_of
from regard.interop.hf_decoder import ConfigReader, Format, Values, check_keys
from regard.interop.tensor_names import QKV, TensorName, TensorNames, linear
from regard.models.encoder import EncoderConfig, MaskedLMConfig
from regard.run import read_metadata
from regard.tokenizers import Tokenizer
from regard.tokenizers.biology import Kmers

AT, OURS, THEIRS = "bert.embeddings", "encoder.blocks.{i}", "bert.encoder.layer.{i}"
BODY = (
    TensorName("encoder.embedding.weight", (f"{AT}.word_embeddings.weight",)),
    TensorName("encoder.positions.embedding.weight", (f"{AT}.position_embeddings.weight",)),
    TensorName("encoder.types.weight", (f"{AT}.token_type_embeddings.weight",)),
    *linear("encoder.embedding_norm", f"{AT}.LayerNorm"),
    *linear(
        f"{OURS}.mixer.qkv",
        *(f"{THEIRS}.attention.self.{name}" for name in ("query", "key", "value")),
        change=QKV,
    ),
    *linear(f"{OURS}.mixer.out", f"{THEIRS}.attention.output.dense"),
    *linear(f"{OURS}.mixer_norm", f"{THEIRS}.attention.output.LayerNorm"),
    *linear(f"{OURS}.feedforward.up", f"{THEIRS}.intermediate.dense"),
    *linear(f"{OURS}.feedforward.down", f"{THEIRS}.output.dense"),
    *linear(f"{OURS}.feedforward_norm", f"{THEIRS}.output.LayerNorm"),
)
POOLER = linear("pooler", "bert.pooler.dense")
# Older uploads spell the gains and biases of norms in the words of TensorFlow.
OLDER = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
BUFFERS = (f"{AT}.position_ids",)
UNITS = {"shift": 0.0, "scale": 1.0}  # of values; theirs are in the head
ANSWERING = TensorNames(
    prefix="bert.",
    rows=(*BODY, *POOLER, *linear("head", "classifier")),
    buffers=BUFFERS,
    copies=(),
    own=UNITS,
    spellings=OLDER,
)
EACH = dataclasses.replace(
    ANSWERING,
    rows=(*BODY, *linear("head", "classifier")),
    buffers=(*BUFFERS, "bert.pooler.dense.weight", "bert.pooler.dense.bias"),
)
PREDICTIONS = "cls.predictions"
FILLING = TensorNames(
    prefix="bert.",
    rows=(
        *BODY,
        *linear("dense", f"{PREDICTIONS}.transform.dense"),
        *linear("norm", f"{PREDICTIONS}.transform.LayerNorm"),
        TensorName("bias", (f"{PREDICTIONS}.bias",)),
    ),
    # The first uploads also hold what guessed whether two sentences follow each other.
    buffers=(
        *EACH.buffers,
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    ),
    copies=(f"{PREDICTIONS}.decoder.weight",),
    twins={f"{PREDICTIONS}.decoder.bias": f"{PREDICTIONS}.bias"},
    spellings=OLDER,
)

NEEDS: Values = {
    "norm": "layer",
    "post_norm": True,
    "positions": "learned",
    "feedforward": "gelu_exact",
    "bias": True,
    "qk_norm": False,
    "embedding_norm": True,
    "scale_embedding": False,
    "score": "scaled_dot",
    "projections": "learned",
    "window": 0,
    "mixers": (),
}
SIZES = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "max_len": "max_position_embeddings",
    "n_types": "type_vocab_size",
}
FIXED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False,),
    "chunk_size_feed_forward": (0,),
}
MOST_LABELS = 1 << 20  # that a config.json without names may have
PROBLEMS = {
    "label": "single_label_classification",
    "labels": "multi_label_classification",
    "value": "regression",
}


def make_format(name: str, table: TensorNames, task: str, needs: Values) -> Format:
    """One of the three classes."""
    return Format(
        name,
        "bert",
        table,
        sizes=SIZES,
        needs={**NEEDS, **needs},
        fixed=FIXED,
        tied=True,
        has_dropout=True,
        task=task,
    )


MASKED = make_format("BertForMaskedLM", FILLING, "masked", {"transform": True, "tied": True})
WHOLE = make_format(
    "BertForSequenceClassification", ANSWERING, "label", {"pooling": "first", "pooler": True}
)
TOKENS = make_format("BertForTokenClassification", EACH, "position-label", {})
FORMATS = (MASKED, WHOLE, TOKENS)


def choose_format(config: EncoderConfig) -> Format:
    """The class that computes what this configuration does, or a UserError naming what it lacks."""
    c = config
    form = next((form for form in (MASKED, TOKENS) if form.task == c.task), WHOLE)
    for key, value in form.needs.items():
        if getattr(c, key) != value:
            raise UserError(
                f"cannot export {key} = {getattr(c, key)!r}: {form.name} needs {key} = {value!r}; "
                "of our encoders only the preset bert has a class in Hugging Face's library"
            )
    if c.n_kv_heads != c.n_heads:
        raise UserError(
            f"cannot export n_kv_heads = {c.n_kv_heads}: {form.name} has no grouped heads, "
            f"n_kv_heads must be n_heads = {c.n_heads}"
        )
    if c.n_heads * c.d_head != c.d_model:
        raise UserError(
            f"cannot export d_head = {c.d_head}: {form.name} needs n_heads · d_head = d_model, "
            f"got {c.n_heads} · {c.d_head} and {c.d_model}"
        )
    if not c.n_types:
        raise UserError(f"cannot export n_types = 0: {form.name} tells at least one kind of text")
    return form


def to_theirs(form: Format, vocab_size: int, config: EncoderConfig) -> dict[str, Any]:
    """Their config.json but for the ids of specials and the names of answers."""
    stored: dict[str, Any] = {
        "architectures": [form.name],
        "model_type": form.model_type,
        "vocab_size": vocab_size,
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": config.dropout,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "torch_dtype": "float32",  # its name before 4.56
    }
    stored |= {theirs: getattr(config, ours) for ours, theirs in form.sizes.items()}
    return stored | {key: allowed[0] for key, allowed in form.fixed.items()}


def from_theirs(form: Format, path: Path, values: Values) -> tuple[int, EncoderConfig]:
    """Vocabulary size and our configuration from their config.json, read from `path`."""
    read = ConfigReader(path, values)
    vocab_size = check_keys(form, read)
    fields: dict[str, Any] = {
        ours: read.whole(key) for ours, key in SIZES.items() if ours != "n_types"
    }
    fields["n_types"] = read.whole("type_vocab_size", 2)
    d_model, n_heads = fields["d_model"], fields["n_heads"]
    if n_heads < 1 or d_model % n_heads:
        raise read.error(SIZES["n_heads"], f"must divide hidden_size = {d_model}")
    if fields["n_types"] < 1:
        raise read.error("type_vocab_size", "must be at least 1")
    fields |= {"n_kv_heads": n_heads, "d_head": d_model // n_heads, **form.needs}
    fields["norm_eps"] = read.number("layer_norm_eps", 1e-12)
    fields["dropout"] = read.number("hidden_dropout_prob", 0.1)
    try:
        if form is MASKED:
            if not read.flag("tie_word_embeddings", True):
                raise read.error("tie_word_embeddings", "only a tied embedding is read")
            return vocab_size, MaskedLMConfig(**fields)
        asked = targets(form, path, values)
        fields |= {"task": asked.task, "n_outputs": len(names_of(asked)), "tied": True}
        return vocab_size, EncoderConfig(**fields)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def names_of(asked: Targets) -> tuple[str, ...]:
    """What the outputs of a model are called, in order."""
    return asked.names if asked.task in ("labels", "value") else asked.classes[0]


def answers(run: Path, config: EncoderConfig) -> dict[str, Any]:
    """What their config.json says of the answers of a run: their names, and what is asked."""
    if config.task == "masked":
        return {}
    names = names_of(targets_of(run))
    told: dict[str, Any] = {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
    if config.task in PROBLEMS:
        told["problem_type"] = PROBLEMS[config.task]
    return told


def targets(form: Format, path: Path, values: Values) -> Targets:
    """What is asked, as their config.json says; without names, by theirs: LABEL_0, LABEL_1, …"""
    read, told = ConfigReader(path, values), values.get("id2label")
    if told is None:
        count = read.whole("num_labels", 2)
        if not 0 < count <= MOST_LABELS:
            raise read.error("num_labels", f"must be from 1 to {MOST_LABELS:,}")
        told = {str(i): f"LABEL_{i}" for i in range(count)}
    if not isinstance(told, dict) or set(told) != {str(i) for i in range(len(told))} or not told:
        raise read.error("id2label", "must name the labels 0, 1, 2, …")
    names = tuple(str(told[str(i)]) for i in range(len(told)))
    if len(set(names)) < len(names):
        raise read.error("id2label", "names must differ")
    if form is TOKENS:
        return Targets("position-label", ("label",), (names,))
    problem = values.get("problem_type") or PROBLEMS["value" if len(names) == 1 else "label"]
    tasks = {theirs: ours for ours, theirs in PROBLEMS.items()}
    if problem not in list(tasks):
        raise read.error("problem_type", f"must be one of {', '.join(tasks)}")
    task = tasks[problem]
    if task == "label":
        return Targets(task, ("label",), (names,))
    return Targets(task, names, tuple(("0", "1") for _ in names) if task == "labels" else ())


def outgoing(form: Format, ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors as theirs can hold them: units of values go into the head, and what answers at
    every position has no use for a layer on the first.
    """
    found = dict(ours)
    if form.table.own:
        shift, scale = (found.pop(name) for name in UNITS)
        found["head.weight"] = found["head.weight"] * scale[:, None]  # (O, D)
        found["head.bias"] = found["head.bias"] * scale + shift
    if form is TOKENS:
        found = {name: x for name, x in found.items() if not name.startswith("pooler.")}
    return found


def readme(form: Format, parameters: int, tokenizer: Tokenizer) -> str:
    """How to load an exported folder."""
    use = {MASKED.name: "fill-mask", WHOLE.name: "text-classification"}
    shown = tokenizer.text(tokenizer.mask)
    text = f"a {shown} text" if form is MASKED else "a text"
    return f"""# {form.name}, {parameters:,} parameters

Trained with regard. Loads with Hugging Face transformers (4.51 or newer) and the tools that read
its folders:

```python
from transformers import pipeline

ask = pipeline("{use.get(form.name, "token-classification")}", model="PATH/TO/THIS/FOLDER")
print(ask("{text}"))
```
"""


def warnings(run: Path, tokenizer: Tokenizer) -> list[str]:
    """What an exported folder does otherwise than the run."""
    found = []
    if isinstance(tokenizer, Kmers) and tokenizer.overlap:
        found.append(
            "words that overlap cannot be cut by the tokenizers library: give it the words, with "
            "spaces between, rather than the sequence"
        )
    data = read_metadata(run).get("data", {})
    if data.get("augment"):
        found.append(
            f"this run averages its answers over several views ({data['augment']}), the exported "
            "folder answers for the one it is shown"
        )
    return found
