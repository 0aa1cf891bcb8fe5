"""Hugging Face folders, both ways: what we train runs in their tools, what they publish in ours.

Exporting writes a folder that the stock classes load without any code of ours. Importing reads such
a folder as data only, and takes no memory for weights before every name and shape in the headers
fits the configuration.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import tokens
from regard.errors import UserError
from regard.interop.configuration import Format, choose_format, from_theirs, to_theirs
from regard.interop.foreign import Stored, inside, open_tensors
from regard.models.decoder import Decoder, DecoderConfig
from regard.run import (
    CONFIG,
    FACTS,
    TOKENIZER,
    WEIGHTS,
    check_names,
    load_model,
    open_run,
    read_config,
    sync,
    weights,
    write_config,
    write_json,
    write_tensors,
    write_text,
)
from regard.tokens.tokenizer import (
    END,
    PAD,
    SPECIALS,
    START,
    UNK,
    OwnTokenizer,
    read_document,
    read_json,
)

TOKENIZER_CONFIG = "tokenizer_config.json"
HEAD, EMBEDDING = "head.weight", "embedding.weight"  # our names of what may be tied


def export_hf(run: Path, out: Path) -> dict[str, Any]:
    """Write the model of a run folder as a Hugging Face folder; `out` must not exist or be empty.

    Returns `class`, `files`, `parameters`, and `left_out`: what the class has no place for and
    inference does not need. A model that no class known here computes exactly is a UserError.
    """
    run = open_run(run)
    name, vocab_size, config = read_config(run)
    if name != "transformer":
        raise UserError(
            f"{run}: model {name!r} has no Hugging Face class; only 'transformer' can be exported"
        )
    form = choose_format(config)
    tokenizer = tokens.load(run / TOKENIZER)
    check_vocabulary(run, tokenizer, vocab_size)
    ours = weights(load_model(run))
    theirs: dict[str, Tensor] = {}
    for row in form.table.match(ours):
        theirs |= zip(row.theirs, row.change.forth(ours[row.ours], config), strict=True)
    parameters = sum(tensor.numel() for tensor in theirs.values())
    ids = {
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
    }
    with new_folder(out) as folder:
        write_json(folder / CONFIG, to_theirs(form, vocab_size, config) | ids)
        write_json(folder / "generation_config.json", ids)
        write_tensors(
            folder / WEIGHTS, theirs, {"format": "pt"}
        )  # transformers 4 asks for this mark
        write_tokenizer(folder, tokenizer, config.max_len)
        write_text(folder / "README.md", exported_readme(form, parameters, config, tokenizer))
        files = sorted(path.name for path in folder.iterdir())
    left_out = {"dropout": config.dropout} if config.dropout and not form.has_dropout else {}
    return {"class": form.name, "files": files, "parameters": parameters, "left_out": left_out}


def import_hf(folder: Path, out: Path) -> dict[str, Any]:
    """Write a run folder from a Hugging Face folder; `out` must not exist or be empty.

    Weights become fp32. Returns `class`, `files` and `parameters`. A folder that is damaged or
    hostile, or that computes anything our decoder does not, is a UserError.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    path = inside(folder, CONFIG)
    form, vocab_size, config = from_theirs(path, read_json(path)[1])
    model = blank(path, vocab_size, config)
    with new_folder(out) as into:
        ours = read_weights(folder, form, model)
        check_vocabulary(folder, adopt_tokenizer(folder, into), vocab_size)
        parameters = sum(tensor.numel() for tensor in ours.values())
        source = folder.resolve().name
        facts = {"imported_from": form.name, "folder": source, "parameters": parameters}
        write_config(into, "transformer", model)
        write_tensors(into / WEIGHTS, ours)
        write_json(into / FACTS, facts)
        write_text(into / "README.md", imported_readme(form, parameters, source))
        files = sorted(path.name for path in into.iterdir())
    return {"class": form.name, "files": files, "parameters": parameters}


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


def blank(path: Path, vocab_size: int, config: DecoderConfig) -> Decoder:
    """The model of this configuration without memory: names and shapes only."""
    try:
        with torch.device("meta"):
            return Decoder(vocab_size, config)
    except ValueError as error:  # a width that some part refuses
        raise UserError(f"{path}: {error}") from None


def read_weights(folder: Path, form: Format, model: Decoder) -> dict[str, Tensor]:
    """Our tensors from theirs, in fp32; every header is checked before the first value is read."""
    expected = weights(model)
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
            drop_tied_head(found, form, tuple(expected[EMBEDDING].shape))
        check_names(folder, set(found), set(shapes))
        for name, shape in shapes.items():
            found[name].check(shape)
        return {
            row.ours: row.change.back([found[name].read() for name in row.theirs]) for row in rows
        }


def with_prefix(found: dict[str, Stored], form: Format) -> dict[str, Stored]:
    """The tensors under their full names: the first upload of GPT-2 left out `transformer.`."""
    if any(name.startswith(form.table.prefix) for name in found):
        return found
    (head,) = form.table.match([HEAD])[0].theirs
    return {name if name == head else form.table.prefix + name: found[name] for name in found}


def drop_tied_head(found: dict[str, Stored], form: Format, shape: tuple[int, ...]) -> None:
    """Forget the second copy that some files keep of a tied matrix; it must not differ."""
    head, embedding = (row.theirs[0] for row in form.table.match([HEAD, EMBEDDING]))
    if head not in found or embedding not in found:
        return
    copy = found.pop(head)
    for stored in (copy, found[embedding]):
        stored.check(shape)
    if not torch.equal(copy.read(), found[embedding].read()):
        raise UserError(
            f"{copy.path}: tie_word_embeddings is true, but {head} and {embedding} differ; "
            "set it to false in config.json to keep both"
        )


# Tokenizers


def check_vocabulary(folder: Path, tokenizer: tokens.Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer whose ids the model does not know; unused rows of the model are usual."""
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: {TOKENIZER} has ids up to {tokenizer.vocab_size - 1}, "
            f"the model only up to {vocab_size - 1}"
        )


def declared(document: dict[str, Any]) -> dict[str, Any]:
    """Our tokenizer.json with its specials declared and `<S>` put before each text."""
    marks = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": id, "content": s, **marks, "special": True} for id, s in enumerate(SPECIALS)]
    start, a, b = (
        {"SpecialToken": {"id": SPECIALS[START], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 0}},
    )
    spelt = {"id": SPECIALS[START], "ids": [START], "tokens": [SPECIALS[START]]}
    template = {
        "type": "TemplateProcessing",
        "single": [start, a],
        "pair": [start, a, b],
        "special_tokens": {SPECIALS[START]: spelt},
    }
    return {**document, "added_tokens": added, "post_processor": template}


def write_tokenizer(folder: Path, tokenizer: tokens.Tokenizer, max_len: int) -> None:
    """Write the tokenizer for PreTrainedTokenizerFast to encode alike; a foreign one as it came."""
    if not isinstance(tokenizer, OwnTokenizer):
        tokenizer.save(folder / TOKENIZER)
        return
    document = declared(tokenizer.document())
    write_text(folder / TOKENIZER, json.dumps(document, ensure_ascii=False))
    roles = {"bos_token": START, "eos_token": END, "pad_token": PAD, "unk_token": UNK}
    specials = {role: SPECIALS[id] for role, id in roles.items()}
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_len,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a `<S>` written out in a text stays three characters
        "padding_side": "left",  # so that a batch of prompts can be continued
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_json(folder / TOKENIZER_CONFIG, specials | options)
    write_json(folder / "special_tokens_map.json", specials)


def adopt_tokenizer(folder: Path, into: Path) -> tokens.Tokenizer:
    """Copy the folder's tokenizer; one that we exported becomes again what it was."""
    path = inside(folder, TOKENIZER)
    if os.path.lexists(folder / TOKENIZER_CONFIG):
        inside(folder, TOKENIZER_CONFIG)
    document = read_document(path)[1]
    plain = {**document, "added_tokens": [], "post_processor": None}
    for kind in tokens.KINDS.values():
        if document == declared(plain) and kind.recognises(plain):
            tokenizer: tokens.Tokenizer = kind.from_document(plain, str(path))
            break
    else:
        tokenizer = tokens.load(path)
    tokenizer.save(into / TOKENIZER)
    return tokenizer


# Pages


def exported_readme(
    form: Format, parameters: int, config: DecoderConfig, tokenizer: tokens.Tokenizer
) -> str:
    """How to load an exported folder."""
    own = isinstance(tokenizer, OwnTokenizer)  # then a prompt may be empty: `<S>` is put before it
    length = min(100, max(1, config.max_len // 2))
    return f"""# {form.name}, {parameters:,} parameters

Trained with regard. Loads with Hugging Face transformers (4.51 or newer) and the tools that read
its folders:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "PATH/TO/THIS/FOLDER"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
prompt = tokenizer("{"" if own else "Hello"}", return_tensors="pt")  # what is to be continued
ids = model.generate(**prompt, max_new_tokens={length}, do_sample=True)
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
