"""Hugging Face folders, both ways: what we train runs in their tools, what they publish in ours.

Exporting writes a folder that the stock classes load without any code of ours. Importing treats a
folder as untrusted data: no file outside it, no pickle, and no memory for weights before every name
and shape in the headers fits the configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard import tokenizers
from regard.errors import UserError
from regard.interop import hf_decoder, hf_encoder, hf_seq2seq
from regard.interop.exporters import find_exporter
from regard.interop.hf_format import Format, check_vocabulary, find_format, inside
from regard.run import CONFIG, METADATA, WEIGHTS, weights, write_config
from regard.storage import check_names, sync, write_json, write_tensors, write_text
from regard.tokenizers.tokenizer import read_json

FORMATS = (*hf_decoder.FORMATS, *hf_seq2seq.FORMATS, *hf_encoder.FORMATS)
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
    form = find_format(path, values, FORMATS)
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
