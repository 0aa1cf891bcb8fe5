"""Hugging Face folders, both ways: what we train runs in their tools, what they publish in ours.

Exporting writes a folder that the stock classes load without any code of ours. Importing reads such
a folder as data only, and takes no memory for weights before every name and shape in the headers
fits the configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import tokenizers
from regard.errors import UserError
from regard.interop import hf_decoder, hf_encoder, hf_seq2seq, hf_vit
from regard.interop.hf_decoder import Format, named_format
from regard.interop.hf_tokenizer import (
    adopt_markers,
    adopt_tokenizer,
    check_vocabulary,
    markers,
    write_tokenizer,
)
from regard.interop.untrusted_folder import StoredTensor, inside, open_tensors
from regard.models.transformer import TransformerConfig
from regard.registry import family
from regard.run import (
    CONFIG,
    FACTS,
    PREPROCESSOR,
    TOKENIZER,
    WEIGHTS,
    check_names,
    described,
    load_model,
    open_run,
    sync,
    weights,
    write_config,
    write_json,
    write_tensors,
    write_text,
)
from regard.tokenizers.patches import Patches
from regard.tokenizers.points import Points
from regard.tokenizers.tokenizer import OwnTokenizer, read_json

CLOSE = 1e-2  # how near a constant must be: half precision rounds it
FORMATS = (*hf_decoder.FORMATS, *hf_seq2seq.FORMATS, *hf_encoder.FORMATS, *hf_vit.FORMATS)


def export_hf(run: Path, out: Path) -> dict[str, Any]:
    """Write the model of a run folder as a Hugging Face folder; `out` must not exist or be empty.

    Returns `class`, `files`, `parameters`, `left_out`: what the class has no place for and
    inference does not need, and `warnings`. A model that no class known here computes exactly is a
    UserError.
    """
    run = open_run(run)
    task, name, vocab_size, config = described(run)
    if name != "transformer":
        other = "write its word vectors with --to vec" if task == "vectors" else ""
        raise UserError(
            f"{run}: model {name!r} has no Hugging Face class; "
            + (other or "only 'transformer' can be exported")
        )
    tokenizer = tokenizers.load(run / TOKENIZER)
    if isinstance(tokenizer, Points):
        raise UserError(f"{run}: models of point clouds have no Hugging Face class")
    if isinstance(tokenizer, Patches):
        return export_images(run, out, config, tokenizer)
    kind = way(task)
    form = kind.choose_format(config)
    check_vocabulary(run, tokenizer, vocab_size)
    ours = weights(load_model(run))
    told: dict[str, Any] = {}
    if kind is hf_encoder:
        ours, told = hf_encoder.outgoing(form, ours), hf_encoder.answers(run, config)
    theirs = renamed(form, ours, config)
    parameters = sum(tensor.numel() for tensor in theirs.values())
    for key, constant in form.table.constants.items():
        theirs[key] = constant.values(constant.shape(vocab_size, config))
    ids, generation = markers(form, tokenizer, vocab_size, config.max_len)
    with new_folder(out) as folder:
        write_json(folder / CONFIG, kind.to_theirs(form, vocab_size, config) | ids | told)
        if kind is not hf_encoder:
            write_json(folder / "generation_config.json", generation)
        write_tensors(
            folder / WEIGHTS, theirs, {"format": "pt"}
        )  # transformers 4 asks for this mark
        write_tokenizer(folder, form, tokenizer, config.max_len)
        write_text(folder / "README.md", exported_readme(form, parameters, config, tokenizer))
        files = sorted(path.name for path in folder.iterdir())
    left_out = {"dropout": config.dropout} if config.dropout and not form.has_dropout else {}
    report = {"class": form.name, "files": files, "parameters": parameters, "left_out": left_out}
    return report | {"warnings": hf_encoder.warnings(run, tokenizer) if kind is hf_encoder else []}


def export_images(run: Path, out: Path, config: Any, tokenizer: Patches) -> dict[str, Any]:
    """The same of a model of pictures."""
    form = hf_vit.choose_format(config)
    hf_vit.check_tokenizer(tokenizer)
    ours = hf_encoder.outgoing(form, weights(load_model(run)))
    theirs, told = renamed(form, ours, config), hf_encoder.answers(run, config)
    parameters = sum(tensor.numel() for tensor in theirs.values())
    with new_folder(out) as folder:
        write_json(folder / CONFIG, hf_vit.to_theirs(config) | told)
        write_tensors(folder / WEIGHTS, theirs, {"format": "pt"})
        tokenizer.save(folder / PREPROCESSOR)
        write_text(folder / "README.md", hf_vit.readme(parameters))
        files = sorted(path.name for path in folder.iterdir())
    report = {"class": form.name, "files": files, "parameters": parameters}
    return report | {"left_out": {}, "warnings": []}


def renamed(form: Format, ours: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Our tensors under their names."""
    theirs: dict[str, Tensor] = {}
    for row in form.table.match(ours):
        theirs |= zip(row.theirs, row.change.forth(ours[row.ours], config), strict=True)
    return theirs


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
    form = named_format(path, values, FORMATS)
    shown = form in hf_vit.FORMATS
    kind = hf_vit if shown else way(form.task)
    vocab_size, config = kind.from_theirs(form, path, values)
    model = blank(path, form, vocab_size, config)
    with new_folder(out) as into:
        ours = read_weights(folder, form, model)
        tokenizer = hf_vit.opened(folder, config.patch) if shown else adopt_tokenizer(folder)
        if form.task == "target":
            tokenizer = adopt_markers(path, tokenizer, *hf_seq2seq.start_and_end(path, values))
        check_vocabulary(folder, tokenizer, vocab_size)
        tokenizer.save(into / tokenizer.file)
        asked: dict[str, Any] = {}
        if form in hf_encoder.FORMATS:
            model.config = dataclasses.replace(model.config, separator=tokenizer.end)
        if (form in hf_encoder.FORMATS and form.task != "masked") or shown:
            told = hf_encoder.targets(form, path, values)
            asked = {"data": {"targets": dataclasses.asdict(told)}}
        parameters = sum(x.numel() for name, x in ours.items() if name not in form.table.own)
        source = folder.resolve().name
        facts = {"imported_from": form.name, "folder": source, "parameters": parameters, **asked}
        write_config(into, "transformer", model)
        write_tensors(into / WEIGHTS, ours)
        write_json(into / FACTS, facts)
        write_text(into / "README.md", imported_readme(form, parameters, source))
        files = sorted(path.name for path in into.iterdir())
    return {"class": form.name, "files": files, "parameters": parameters}


def way(task: str) -> Any:
    """The module that knows the classes of a task."""
    return {"next": hf_decoder, "target": hf_seq2seq}.get(task, hf_encoder)


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out`, renamed to it on success and removed on failure."""
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
        os.replace(temporary, out)  # an empty folder gives way
        sync(out.parent)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise UserError(f"cannot make {out}: {error.strerror or error}{where}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


# Weights


def blank(path: Path, form: Format, vocab_size: int, config: TransformerConfig) -> Any:
    """The model of this configuration without memory: names and shapes only."""
    try:
        with torch.device("meta"):
            kind = "patches" if form in hf_vit.FORMATS else ""
            return family("transformer", form.task, kind)(vocab_size, config)
    except ValueError as error:  # a width that some part refuses
        raise UserError(f"{path}: {error}") from None


def read_weights(folder: Path, form: Format, model: Any) -> dict[str, Tensor]:
    """Our tensors from theirs, in fp32; every header is checked before the first value is read."""
    expected = {name: x for name, x in weights(model).items() if name not in form.table.own}
    rows = form.table.match(expected)
    shapes: dict[str, tuple[int, ...]] = {}
    for row in rows:
        parts = row.change.forth(expected[row.ours], model.config)
        shapes |= zip(row.theirs, (tuple(part.shape) for part in parts), strict=True)
    with contextlib.ExitStack() as stack:
        found = {
            name: stored
            for name, stored in with_prefix(open_tensors(folder, stack), form).items()
            if not form.table.is_buffer(name)
        }
        if model.config.tied:
            drop_copies(found, form, shapes)
        drop_constants(found, form, model)
        check_names(folder, set(found), set(shapes))
        for name, shape in shapes.items():
            found[name].check(shape)
        ours = {
            row.ours: row.change.back([found[name].read() for name in row.theirs]) for row in rows
        }
    held = weights(model)
    return ours | {n: torch.full(held[n].shape, value) for n, value in form.table.own.items()}


def with_prefix(found: dict[str, StoredTensor], form: Format) -> dict[str, StoredTensor]:
    """The tensors under their full names: the first upload of GPT-2 left out `transformer.`."""
    found = {form.table.spelt(name): stored for name, stored in found.items()}
    if any(name.startswith(form.table.prefix) for name in found):
        return found
    return {form.table.prefixed(name): stored for name, stored in found.items()}


def drop_copies(
    found: dict[str, StoredTensor], form: Format, shapes: dict[str, tuple[int, ...]]
) -> None:
    """Forget the copies that some files keep of a tied matrix; they must not differ."""
    pairs = {name: form.table.embedding for name in form.table.copies} | dict(form.table.twins)
    for name, other in pairs.items():
        if name not in found or other not in found:
            continue
        copy = found.pop(name)
        for stored in (copy, found[other]):
            stored.check(shapes[other])
        if not torch.equal(copy.read(), found[other].read()):
            raise UserError(
                f"{copy.path}: tie_word_embeddings is true, but {name} and {other} differ; "
                "set it to false in config.json to keep both"
            )


def drop_constants(found: dict[str, StoredTensor], form: Format, model: Any) -> None:
    """Forget the tensors whose values the class prescribes; they must not have others."""
    for name, constant in form.table.constants.items():
        if name in found:
            stored = found.pop(name)
            shape = constant.shape(model.vocab_size, model.config)
            stored.check(shape)  # what a hostile configuration asks for is at least in the file
            if not torch.allclose(stored.read(), constant.values(shape), rtol=0, atol=CLOSE):
                raise UserError(f"{stored.path}: {name} must be {constant.what}")


# Pages


def exported_readme(
    form: Format, parameters: int, config: TransformerConfig, tokenizer: tokenizers.Tokenizer
) -> str:
    """How to load an exported folder."""
    own = isinstance(tokenizer, OwnTokenizer)  # then a prompt may be empty: `<S>` is put before it
    length = min(100, max(1, config.max_len // 2))
    kind, prompt, why = "CausalLM", "" if own else "Hello", "what is to be continued"
    options = f"max_new_tokens={length}, do_sample=True"
    if form.task == "target":
        kind, prompt, why = "Seq2SeqLM", "a source", "what is to be translated"
        options = "num_beams=5"
    if form in hf_encoder.FORMATS:
        return hf_encoder.readme(form, parameters, tokenizer)
    return f"""# {form.name}, {parameters:,} parameters

Trained with regard. Loads with Hugging Face transformers (4.51 or newer) and the tools that read
its folders:

```python
from transformers import AutoModelFor{kind}, AutoTokenizer

folder = "PATH/TO/THIS/FOLDER"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelFor{kind}.from_pretrained(folder)
prompt = tokenizer("{prompt}", return_tensors="pt")  # {why}
ids = model.generate(**prompt, {options})
text = tokenizer.decode(ids[0], skip_special_tokens=True)
print(text)
```
"""


def imported_readme(form: Format, parameters: int, source: str) -> str:
    """What an imported run folder is."""
    return f"""# {form.name}, {parameters:,} parameters

A run folder of regard, imported from the Hugging Face folder `{source.replace("`", "'")}`.
Weights are fp32.
"""
