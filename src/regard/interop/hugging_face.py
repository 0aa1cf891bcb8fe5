"""Hugging Face folders, both ways: what we train runs in their tools, what they publish in ours.

Exporting writes a folder that the stock classes load without any code of ours. Importing treats a
folder as untrusted data: no file outside it, no pickle, and no memory for weights before every name
and shape in the headers fits the configuration.

`TensorNames` is one table per class, read in both directions: a row pairs one of our tensors with
one or more tensors of the class and says how values are converted. `Format` describes one class for
exporting and importing. The class follows from the fields of a configuration, never from the name
of a preset, and what it cannot express is refused by name: a folder that loads but computes
something else is worse than none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard import tokenizers
from regard.data.targets import Targets
from regard.errors import UserError
from regard.interop import find_exporter
from regard.models.transformer import TransformerConfig
from regard.registry import TOKENIZERS
from regard.run import CONFIG, METADATA, WEIGHTS, weights, write_config
from regard.storage import check_names, sync, write_json, write_tensors, write_text
from regard.tokenizers import TOKENIZER, Tokenizer, Words
from regard.tokenizers.tokenizer import END, PAD, SPECIALS, START, UNK, read_document, read_json

Values = Mapping[str, Any]

MAX_VOCAB = 1 << 24  # what a run folder may hold, exclusive
MAX_INTEGER = (1 << 31) - 1  # in a config.json
TOKENIZER_CONFIG = "tokenizer_config.json"
SENTENCEPIECE = (".spm", ".model")


def inside(folder: Path, name: str) -> Path:
    """Return the path of the plain file `name` in an untrusted folder.

    One that is missing, or that a link or `..` puts elsewhere, is a UserError. The cache of the
    Hugging Face hub is known: its snapshots are links into the `blobs` folder next to them.
    """
    path = folder / name
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise UserError(
            f"{folder} names the file {name[:80]!r}; only files in the folder itself are read"
        )
    if not os.path.lexists(path):
        raise UserError(f"{folder} has no {name}: not a Hugging Face folder, or an incomplete one")
    try:
        home, target = folder.resolve(strict=True), path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a link to nowhere, or in a circle
        raise UserError(f"{path} cannot be read: {error}") from None
    allowed = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(target.is_relative_to(parent) for parent in allowed):
        raise UserError(f"{path} is a link to a file outside the folder, which is not followed")
    if not target.is_file():
        raise UserError(f"{path} is not a file")
    return path


# Tensors


@dataclass(frozen=True)
class Conversion:
    """How values are converted; `from_hf` undoes `to_hf` bit for bit."""

    to_hf: Callable[[Tensor, Any], tuple[Tensor, ...]]  # our tensor and configuration
    from_hf: Callable[[Sequence[Tensor]], Tensor]


COPY = Conversion(lambda x, config: (x,), lambda parts: parts[0])
TRANSPOSE = Conversion(lambda x, config: (x.mT,), lambda parts: parts[0].mT)


def split_rows(sizes: Callable[[Any], tuple[int, ...]]) -> Conversion:
    """Split one matrix or bias of ours by rows into several tensors of the class."""
    return Conversion(
        lambda x, config: torch.split(x, list(sizes(config))), lambda parts: torch.cat(list(parts))
    )


def sines_first(dim: int, then: Conversion = COPY) -> Conversion:
    """Put all sines before all cosines; in our residual stream they alternate.

    `dim` is the dimension of our tensor that runs over the residual stream.
    """

    def order(x: Tensor) -> Tensor:
        index = torch.arange(x.size(dim), device=x.device)
        return torch.cat((index[::2], index[1::2]))

    def from_hf(parts: Sequence[Tensor]) -> Tensor:
        x = then.from_hf(parts)
        return x.index_select(dim, order(x).argsort())

    return Conversion(lambda x, c: then.to_hf(x.index_select(dim, order(x)), c), from_hf)


def _query_key_value(config: TransformerConfig) -> tuple[int, ...]:
    shared = config.n_kv_heads * config.d_head
    return config.n_heads * config.d_head, shared, shared


QKV = split_rows(_query_key_value)  # the rows of SelfAttention.qkv
GATE_UP = split_rows(lambda config: (config.d_ff, config.d_ff))  # of SwiGLU.gate_up


@dataclass(frozen=True)
class TensorName:
    """One tensor of ours and its counterparts; `{i}` stands for the number of a block."""

    name: str
    hf_names: tuple[str, ...]
    conversion: Conversion = COPY


def linear(
    name: str, *hf_names: str, conversion: Conversion = COPY
) -> tuple[TensorName, TensorName]:
    """Return the rows of a linear layer or norm: a weight, and a bias that is never transposed."""
    bias = COPY if conversion is TRANSPOSE else conversion
    return (
        TensorName(f"{name}.weight", tuple(f"{n}.weight" for n in hf_names), conversion),
        TensorName(f"{name}.bias", tuple(f"{n}.bias" for n in hf_names), bias),
    )


@dataclass(frozen=True)
class Constant:
    """A tensor whose values the class prescribes; a file may leave it out."""

    description: str
    shape: Callable[[int, Any], tuple[int, int]]  # from vocabulary size and configuration
    values: Callable[[tuple[int, int]], Tensor]


@dataclass(frozen=True)
class TensorNames:
    """The names of one class. A row whose tensor a model lacks (a bias, a tied head) is idle."""

    prefix: str  # of their inner model; some uploads were saved without it
    rows: tuple[TensorName, ...]
    buffers: tuple[str, ...] = ()  # in older uploads; the configuration determines their values
    copies: tuple[str, ...] = ("lm_head.weight",)  # of a tied embedding
    constants: Mapping[str, Constant] = field(default_factory=dict)
    # tensors of ours without a counterpart, and the value that changes nothing
    neutral: Mapping[str, float] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)  # copies of other tensors of the class
    spellings: Mapping[str, str] = field(default_factory=dict)  # older suffixes → today's

    def match(self, names: Iterable[str]) -> list[TensorName]:
        """Return the row of each of our names, with the block's number filled in."""
        rows = {row.name: row for row in self.rows}
        matches = []
        for name in names:
            number = re.search(r"\.(\d+)\.", name)
            row = rows[name.replace(number[0], ".{i}.", 1) if number else name]
            block = number[1] if number else ""
            hf_names = tuple(hf_name.replace("{i}", block) for hf_name in row.hf_names)
            matches.append(replace(row, name=name, hf_names=hf_names))
        return matches

    def copied(self) -> dict[str, str]:
        """Return the names of tensors that repeat another where embeddings are tied."""
        embedding = next(
            row.hf_names[0] for row in self.rows if row.name.endswith("embedding.weight")
        )
        return dict.fromkeys(self.copies, embedding) | dict(self.twins)

    def normalize(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors of a file under today's full names, without buffers."""
        tensors = {self._respell(name): tensor for name, tensor in tensors.items()}
        if not any(name.startswith(self.prefix) for name in tensors):
            bare = (*self.copies, *self.constants)  # names that have no prefix
            tensors = {n if n in bare else self.prefix + n: t for n, t in tensors.items()}
        return {
            name: tensor
            for name, tensor in tensors.items()
            if re.sub(r"\.\d+\.", ".{i}.", name, count=1) not in self.buffers
        }

    def _respell(self, name: str) -> str:
        for old, new in self.spellings.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name


# config.json


class ConfigReader:
    """Typed access to their config.json; a wrong type is a UserError naming file, key and value."""

    def __init__(self, path: Path, values: Values) -> None:
        self.path, self.values = path, values

    def error(self, key: str, why: str) -> UserError:
        return UserError(f"{self.path}: {key} = {shorten(self.values.get(key))}: {why}")

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer; null counts as absent, and without a default the key is required."""
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{self.path} lacks {key}, a whole number")
        if type(value) is not int:
            raise self.error(key, "must be a whole number")
        if abs(value) > MAX_INTEGER:
            raise self.error(key, f"must be at most {MAX_INTEGER:,}")
        return value

    def number(self, key: str, default: float) -> float:
        """Return a finite number that is not negative."""
        return self.check_number(key, self.values.get(key), default)

    def check_number(self, key: str, value: Any, default: float) -> float:
        """Return a value found under `key`, or the default for None, as a non-negative number."""
        value = default if value is None else value
        if type(value) not in (int, float) or not 0 <= value < 1e30 or not math.isfinite(value):
            raise self.error(key, "must be a finite number, not negative")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def vocab_size(self) -> int:
        size = self.integer("vocab_size")
        if not 0 < size < MAX_VOCAB:
            raise self.error("vocab_size", f"must be from 1 to {MAX_VOCAB - 1}")
        return size

    def equal_heads(self, d_model_key: str, n_heads_key: str) -> dict[str, int]:
        """Return the fields of heads that divide the width evenly and share nothing."""
        d_model, n_heads = self.integer(d_model_key), self.integer(n_heads_key)
        if n_heads < 1 or d_model % n_heads:
            raise self.error(n_heads_key, f"must divide {d_model_key} = {d_model}")
        return {"n_kv_heads": n_heads, "d_head": d_model // n_heads}


def shorten(value: Any) -> str:
    """Return the repr of a value of an untrusted file, short enough for one line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


# Tokenizers


@dataclass(frozen=True, kw_only=True)
class TextTemplate:
    """What surrounds a text, and the roles of special tokens in tokenizer_config.json.

    A part of a template is a special token or a text (A, B), with its type after a colon.
    """

    single: tuple[str, ...]
    pair: tuple[str, ...]
    roles: Mapping[str, int]
    padding_side: str = "right"
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    reads_mask: bool = False  # a mask written out in a text is read as one token

    def declare(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return our tokenizer.json with its special tokens declared and put around texts."""
        marks = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        added = [
            {"id": id, "content": s, **marks, "special": True} for id, s in enumerate(SPECIALS)
        ]
        if self.reads_mask and document.get("normalizer") == Words.layout["normalizer"]:
            # words carry the space before them, so a mask also stands for the spaces around it
            added[PAD] |= {"lstrip": True, "rstrip": True}
        used = [s for s in SPECIALS if s in self.single]
        processor = {
            "type": "TemplateProcessing",
            "single": [_template_part(part) for part in self.single],
            "pair": [_template_part(part) for part in self.pair],
            "special_tokens": {
                s: {"id": s, "ids": [SPECIALS.index(s)], "tokens": [s]} for s in used
            },
        }
        return {**document, "added_tokens": added, "post_processor": processor}

    def save(self, folder: Path, tokenizer: Tokenizer, max_len: int) -> None:
        """Write a tokenizer that PreTrainedTokenizerFast reads; an imported one as it was."""
        document = tokenizer.document()
        if document is None:
            tokenizer.save(folder / TOKENIZER)
            return
        write_text(folder / TOKENIZER, json.dumps(self.declare(document), ensure_ascii=False))
        specials = {role: SPECIALS[id] for role, id in self.roles.items()}
        options = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_len,
            "clean_up_tokenization_spaces": False,
            # a `<S>` written out in a text stays three characters
            "split_special_tokens": not self.reads_mask,
            "padding_side": self.padding_side,
            "model_input_names": list(self.inputs),
        }
        write_json(folder / TOKENIZER_CONFIG, specials | options)
        write_json(folder / "special_tokens_map.json", specials)


def _template_part(part: str) -> dict[str, Any]:
    name, _, type_id = part.partition(":")
    of = "SpecialToken" if name in SPECIALS else "Sequence"
    return {of: {"id": name, "type_id": int(type_id or 0)}}


LM_TEXT = TextTemplate(
    single=("<S>", "A"),
    pair=("<S>", "A", "B"),
    roles={"bos_token": START, "eos_token": END, "pad_token": PAD, "unk_token": UNK},
    padding_side="left",  # so that rows can be continued
)
SOURCE_TEXT = TextTemplate(
    single=("A", "<E>"),
    pair=("A", "B", "<E>"),
    roles={"bos_token": START, "eos_token": END, "pad_token": START, "unk_token": UNK},
)
ENCODER_TEXT = TextTemplate(
    single=("<S>", "A", "<E>"),
    pair=("<S>", "A", "<E>", "B:1", "<E>:1"),
    roles={
        "cls_token": START,
        "sep_token": END,
        "pad_token": PAD,
        "unk_token": UNK,
        "mask_token": PAD,  # see Tokenizer.mask
    },
    inputs=("input_ids", "token_type_ids", "attention_mask"),
)
MASKED_TEXT = replace(ENCODER_TEXT, reads_mask=True)
TEXT_TEMPLATES = (LM_TEXT, SOURCE_TEXT, ENCODER_TEXT, MASKED_TEXT)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a Hugging Face folder; one that we exported is of its old kind."""
    pieces = sorted(path.name for path in folder.iterdir() if path.suffix in SENTENCEPIECE)
    if pieces and not os.path.lexists(folder / TOKENIZER):
        raise UserError(
            f"{folder}: its tokenizer is a file of sentencepiece, {pieces[0]}, which is not read; "
            f"only {TOKENIZER} is"
        )
    path = inside(folder, TOKENIZER)
    if os.path.lexists(folder / TOKENIZER_CONFIG):
        inside(folder, TOKENIZER_CONFIG)
    document = read_document(path)[1]
    plain = {**document, "added_tokens": [], "post_processor": None}
    declared = document in (t.declare(plain) for t in TEXT_TEMPLATES)
    for kind in TOKENIZERS.values():
        if declared and kind.reads_text and kind.recognises(plain):
            tokenizer: Tokenizer = kind.from_document(plain, str(path))
            return tokenizer
    return tokenizers.load(path)


def check_vocabulary(folder: Path, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer with ids that the model lacks; unused rows of the model are common."""
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: {TOKENIZER} has ids up to {tokenizer.vocab_size - 1}, "
            f"the model only up to {vocab_size - 1}"
        )


# Classes

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
README = """# {name}, {parameters:,} parameters

Trained with regard. Loads with Hugging Face transformers (4.51 or newer) and the tools that read
its folders:

```python
{example}
```
"""
GENERATE = """from transformers import AutoModelFor{auto}, AutoTokenizer

folder = "PATH/TO/THIS/FOLDER"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelFor{auto}.from_pretrained(folder)
prompt = tokenizer("{prompt}", return_tensors="pt")  # {comment}
ids = model.generate(**prompt, {options})
text = tokenizer.decode(ids[0], skip_special_tokens=True)
print(text)"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Format:
    """One class: its tensors, its configuration, its tokenizer, its readme."""

    name: str
    model_type: str
    table: TensorNames
    sizes: Mapping[str, str]  # our field → their key, for numbers that are equal
    needs: Values  # our fields that can have only this value there
    fixed: Mapping[str, tuple[Any, ...]]  # their keys, and the values that mean what we compute

    Model: ClassVar[type[Any]]
    has_dropout: ClassVar[bool] = True  # on embeddings and residuals, where ours acts
    text: ClassVar[TextTemplate] = LM_TEXT

    # Export

    def check_equal_heads(self, config: Any) -> None:
        """Refuse grouped heads, and heads that do not divide the width."""
        if config.n_kv_heads != config.n_heads:
            raise UserError(
                f"cannot export n_kv_heads = {config.n_kv_heads}: {self.name} has no grouped "
                f"heads, n_kv_heads must be n_heads = {config.n_heads}"
            )
        if config.n_heads * config.d_head != config.d_model:
            raise UserError(
                f"cannot export d_head = {config.d_head}: {self.name} needs n_heads · d_head = "
                f"d_model, got {config.n_heads} · {config.d_head} and {config.d_model}"
            )

    def check_needs(self, config: Any, hint: str = "") -> None:
        """Refuse a field whose value the class cannot have."""
        for key, value in self.needs.items():
            if getattr(config, key) != value:
                raise UserError(
                    f"cannot export {key} = {getattr(config, key)!r}: {self.name} needs {key} = "
                    f"{value!r}{hint}"
                )

    def check_tokenizer(self, run: Path, tokenizer: Tokenizer, vocab_size: int) -> None:
        check_vocabulary(run, tokenizer, vocab_size)

    def to_hf(self, weights: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for row in self.table.match(weights):
            parts = row.conversion.to_hf(weights[row.name], config)
            tensors |= zip(row.hf_names, parts, strict=True)
        return tensors

    def config_json(self, vocab_size: int, config: Any) -> dict[str, Any]:
        """Return config.json without token ids and labels, for transformers 4.5x and 5."""
        return {
            "architectures": [self.name],
            "model_type": self.model_type,
            "vocab_size": vocab_size,
            "dtype": "float32",
            "torch_dtype": "float32",  # its name before 4.56
            **{key: getattr(config, field) for field, key in self.sizes.items()},
            **{key: allowed[0] for key, allowed in self.fixed.items()},
            **self.extra_keys(config),
        }

    def extra_keys(self, config: Any) -> dict[str, Any]:
        """Return the keys of config.json that only this class has."""
        return {}

    def token_ids(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {
            "bos_token_id": tokenizer.start,
            "eos_token_id": tokenizer.end,
            "pad_token_id": tokenizer.pad,
        }

    def generation_json(
        self, tokenizer: Tokenizer, vocab_size: int, max_len: int
    ) -> dict[str, Any] | None:
        """Return generation_config.json; None for classes that do not generate."""
        return self.token_ids(tokenizer)

    def label_keys(self, run: Path, config: Any) -> dict[str, Any]:
        return {}

    def save_tokenizer(self, folder: Path, tokenizer: Tokenizer, max_len: int) -> None:
        self.text.save(folder, tokenizer, max_len)

    def readme(self, parameters: int, config: Any, tokenizer: Tokenizer) -> str:
        example = self.example(config, tokenizer)
        return README.format(name=self.name, parameters=parameters, example=example)

    def example(self, config: Any, tokenizer: Tokenizer) -> str:
        """Return Python code that loads the folder and uses it."""
        length = min(100, max(1, config.max_len // 2))
        return GENERATE.format(
            auto="CausalLM",
            # a prompt may be empty where `<S>` is put before it
            prompt="" if tokenizer.beginning else "Hello",
            comment="what is to be continued",
            options=f"max_new_tokens={length}, do_sample=True",
        )

    def warnings(self, run: Path, tokenizer: Tokenizer) -> list[str]:
        """Return what an exported folder does differently from the run."""
        return tokenizer.export_warnings

    # Import

    def read_config(self, path: Path, values: Values) -> tuple[int, Any]:
        """Return the vocabulary size and our configuration from config.json at `path`."""
        read = ConfigReader(path, values)
        self.check_keys(read)
        vocab_size = read.vocab_size()
        return vocab_size, self.build_config(path, self.read_fields(read))

    def read_fields(self, read: ConfigReader) -> dict[str, Any]:
        """Return the fields of our configuration that config.json decides."""
        raise NotImplementedError

    def build_config(self, path: Path, fields: Values) -> Any:
        """Return our configuration; a value that it refuses is a UserError."""
        try:
            return self.Model.Config(**{**self.needs, **fields})
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None

    def check_keys(self, read: ConfigReader) -> None:
        """Refuse what no folder, or this class, may say."""
        for key, (allowed, why) in REFUSED.items():
            if key not in self.fixed and read.values.get(key) not in allowed:
                raise read.error(key, why)
        for key, accepted in self.fixed.items():
            if read.values.get(key, accepted[0]) not in accepted:
                raise read.error(key, f"only {' or '.join(map(repr, accepted))} can be read")

    def load_tokenizer(self, folder: Path, values: Values, config: Any) -> Tokenizer:
        return load_tokenizer(folder)

    def with_tokenizer(self, config: Any, tokenizer: Tokenizer) -> Any:
        """Return our configuration with what only the tokenizer knows."""
        return config

    def read_targets(self, path: Path, values: Values) -> Targets | None:
        """Return what the model predicts, as config.json says; None where it predicts tokens."""
        return None


def find_format(path: Path, values: Values, formats: Sequence[Format]) -> Format:
    """Return the class that `architectures` names, when `model_type` agrees."""
    names = values.get("architectures")
    for form in formats:
        if names == [form.name]:
            if values.get("model_type", form.model_type) != form.model_type:
                raise UserError(
                    f"{path}: model_type = {shorten(values['model_type'])} contradicts "
                    f"architectures = {names}, which is {form.model_type!r}"
                )
            return form
    if names is None and "family" in values:
        raise UserError(f"{path} belongs to a run folder of regard, which needs no import")
    known = ", ".join(form.name for form in formats)
    raise UserError(
        f"{path}: architectures = {shorten(names)} is not known; one of [{known}] is read"
    )


def known_formats() -> tuple[Format, ...]:
    """Return the kinds of folders that can be read."""
    from regard.interop import hf_decoder, hf_encoder, hf_seq2seq

    return (*hf_decoder.FORMATS, *hf_seq2seq.FORMATS, *hf_encoder.FORMATS)


INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
DTYPES = ("F32", "F16", "BF16")  # as safetensors spells them; every value is exact in fp32
TOLERANCE = 1e-2  # of constants: half precision rounds them


def export_hf(run: Path, out: Path) -> dict[str, Any]:
    """Write the model of a run folder as a Hugging Face folder; `out` must not exist or be empty.

    Returns `class`, `files`, `parameters`, `left_out`: what the class has no key for and inference
    does not need, and `warnings`. A model that no class known here computes exactly is a UserError.
    """
    choose_format, model = find_exporter("hf", run)
    vocab_size, config = model.vocab_size, model.config
    form: Format = choose_format(config)
    tokenizer = tokenizers.load(run / tokenizers.TOKENIZER)
    form.check_tokenizer(run, tokenizer, vocab_size)
    tensors = form.to_hf(weights(model), config)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    for key, constant in form.table.constants.items():
        tensors[key] = constant.values(constant.shape(vocab_size, config))
    with new_folder(out) as folder:
        ids, labels = form.token_ids(tokenizer), form.label_keys(run, config)
        write_json(folder / CONFIG, form.config_json(vocab_size, config) | ids | labels)
        if generation := form.generation_json(tokenizer, vocab_size, config.max_len):
            write_json(folder / "generation_config.json", generation)
        write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})  # transformers 4 requires it
        form.save_tokenizer(folder, tokenizer, config.max_len)
        write_text(folder / "README.md", form.readme(parameters, config, tokenizer))
        files = sorted(path.name for path in folder.iterdir())
    return {
        "class": form.name,
        "files": files,
        "parameters": parameters,
        "left_out": {"dropout": config.dropout} if config.dropout and not form.has_dropout else {},
        "warnings": form.warnings(run, tokenizer),
    }


def import_hf(folder: Path, out: Path) -> dict[str, Any]:
    """Write a run folder from a Hugging Face folder; `out` must not exist or be empty.

    Weights become fp32. Returns `class`, `files` and `parameters`. A folder that is damaged or
    hostile, or that computes anything our models do not, is a UserError.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    path = inside(folder, CONFIG)
    values = read_json(path)[1]
    form = find_format(path, values, known_formats())
    vocab_size, config = form.read_config(path, values)
    model = empty_model(path, form, vocab_size, config)
    with new_folder(out) as into:
        tensors = read_weights(folder, form, model)
        tokenizer = form.load_tokenizer(folder, values, config)
        check_vocabulary(folder, tokenizer, vocab_size)
        tokenizer.save(into / tokenizer.file)
        model.config = form.with_tokenizer(model.config, tokenizer)
        parameters = sum(x.numel() for n, x in tensors.items() if n not in form.table.neutral)
        source = folder.resolve().name
        facts = {"imported_from": form.name, "folder": source, "parameters": parameters}
        if targets := form.read_targets(path, values):
            facts["data"] = {"targets": dataclasses.asdict(targets)}
        write_config(into, "transformer", model)
        write_tensors(into / WEIGHTS, tensors)
        write_json(into / METADATA, facts)
        write_text(into / "README.md", imported_readme(form, parameters, source))
        files = sorted(path.name for path in into.iterdir())
    return {"class": form.name, "files": files, "parameters": parameters}


def imported_readme(form: Format, parameters: int, source: str) -> str:
    return f"""# {form.name}, {parameters:,} parameters

A run folder of regard, imported from the Hugging Face folder `{source.replace("`", "'")}`.
Weights are fp32.
"""


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `out`, renamed to it on success and removed on failure."""
    out = Path(os.path.abspath(out))
    if os.path.lexists(out) and not out.is_dir():
        raise UserError(f"{out} is a file; a new folder was expected")
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        if out.is_dir() and any(out.iterdir()):
            raise UserError(f"{out} exists and is not empty; choose a new folder")
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        for path in (*temporary.iterdir(), temporary):
            sync(path)
        os.replace(temporary, out)  # replaces an empty folder
        sync(out.parent)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise UserError(f"cannot make {out}: {error.strerror or error}{where}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


# Weights


def empty_model(path: Path, form: Format, vocab_size: int, config: Any) -> Any:
    """Return the model of this configuration without memory: names and shapes only."""
    try:
        with torch.device("meta"):
            return form.Model(vocab_size, config)
    except ValueError as error:  # a width that some part refuses
        raise UserError(f"{path}: {error}") from None


def read_weights(folder: Path, form: Format, model: Any) -> dict[str, Tensor]:
    """Return our tensors from a folder, in fp32; headers are checked before a value is read."""
    table, config, empty = form.table, model.config, weights(model)
    rows = table.match(name for name in empty if name not in table.neutral)
    shapes: dict[str, tuple[int, ...]] = {}
    for row in rows:
        parts = row.conversion.to_hf(empty[row.name], config)
        shapes |= zip(row.hf_names, (tuple(part.shape) for part in parts), strict=True)
    with contextlib.ExitStack() as stack:
        stored = table.normalize(open_tensors(folder, stack))
        if config.tied:
            drop_copies(stored, form, shapes)
        drop_constants(stored, form, model)
        check_names(folder, set(stored), set(shapes))
        for name, shape in shapes.items():
            stored[name].check(shape)
        tensors = {
            row.name: row.conversion.from_hf([stored[name].read() for name in row.hf_names])
            for row in rows
        }
    return tensors | {n: torch.full(empty[n].shape, value) for n, value in table.neutral.items()}


def drop_copies(
    stored: dict[str, StoredTensor], form: Format, shapes: dict[str, tuple[int, ...]]
) -> None:
    """Remove the copies that some files have of a tied matrix; they must not differ."""
    for name, other in form.table.copied().items():
        if name not in stored or other not in stored:
            continue
        copy = stored.pop(name)
        for tensor in (copy, stored[other]):
            tensor.check(shapes[other])
        if not torch.equal(copy.read(), stored[other].read()):
            raise UserError(
                f"{copy.path}: tie_word_embeddings is true, but {name} and {other} differ; "
                "set it to false in config.json to keep both"
            )


def drop_constants(stored: dict[str, StoredTensor], form: Format, model: Any) -> None:
    """Remove the tensors whose values the class prescribes; they must not have others."""
    for name, constant in form.table.constants.items():
        if name in stored:
            tensor = stored.pop(name)
            shape = constant.shape(model.vocab_size, model.config)
            tensor.check(shape)  # a hostile configuration gets no more memory than the file has
            if not torch.allclose(tensor.read(), constant.values(shape), rtol=0, atol=TOLERANCE):
                raise UserError(f"{tensor.path}: {name} must be {constant.description}")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in an open safetensors file."""

    path: Path
    file: Any
    name: str

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse another shape or a type that fp32 cannot hold, from the header alone."""
        part = self.file.get_slice(self.name)
        if tuple(part.get_shape()) != shape:
            raise UserError(
                f"{self.path}: {self.name} has shape {tuple(part.get_shape())}, expected {shape}"
            )
        if part.get_dtype() not in DTYPES:
            raise UserError(
                f"{self.path}: {self.name} is of type {part.get_dtype()}; "
                f"one of {', '.join(DTYPES)} is read"
            )

    def read(self) -> Tensor:
        """Return the values, in fp32; NaN and infinity are refused."""
        try:
            tensor: Tensor = self.file.get_tensor(self.name).float()
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"{self.path} is damaged: {error}") from None
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{self.path}: {self.name} holds NaN or infinite values")
        return tensor


def open_tensors(folder: Path, stack: contextlib.ExitStack) -> dict[str, StoredTensor]:
    """Return every tensor by its name, from one file or several; `stack` closes the files."""
    if os.path.lexists(folder / WEIGHTS):
        return open_file(inside(folder, WEIGHTS), stack)
    if not os.path.lexists(folder / INDEX):
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
        if pickles:
            raise UserError(
                f"{folder / pickles[0]} is an unsafe pickle, which could run code; re-save the "
                "model as safetensors: model.save_pretrained(FOLDER)"
            )
        raise UserError(f"{folder} has neither {WEIGHTS} nor {INDEX}: there are no weights to read")
    index = inside(folder, INDEX)
    files = read_json(index)[1].get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise UserError(f"{index}: weight_map must map tensors to files")
    shards: dict[str, set[str]] = {}
    for tensor, shard in files.items():
        if not shard.endswith(".safetensors"):
            raise UserError(f"{index}: {shard[:80]!r} is not a .safetensors file")
        shards.setdefault(shard, set()).add(tensor)
    paths = {inside(folder, shard): names for shard, names in shards.items()}
    tensors: dict[str, StoredTensor] = {}
    for path, names in paths.items():
        part = open_file(path, stack)
        check_names(path, set(part), names)
        tensors |= part
    return tensors


def open_file(path: Path, stack: contextlib.ExitStack) -> dict[str, StoredTensor]:
    try:
        file = stack.enter_context(safe_open(path, framework="pt"))
        return {name: StoredTensor(path, file, name) for name in file.keys()}  # noqa: SIM118 - no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
