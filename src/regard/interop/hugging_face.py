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
from regard.interop import configuration, translators
from regard.interop.configuration import Format, named_format
from regard.interop.foreign import Stored, inside, open_tensors
from regard.models.stack import StackConfig
from regard.registry import TASKS, family
from regard.run import (
    CONFIG,
    FACTS,
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
CLOSE = 1e-2  # how near a constant must be: half precision rounds it
PIECES = (".spm", ".model")  # the files of sentencepiece
FORMATS = (*configuration.FORMATS, *translators.FORMATS)


def export_hf(run: Path, out: Path) -> dict[str, Any]:
    """Write the model of a run folder as a Hugging Face folder; `out` must not exist or be empty.

    Returns `class`, `files`, `parameters`, and `left_out`: what the class has no place for and
    inference does not need. A model that no class known here computes exactly is a UserError.
    """
    run = open_run(run)
    task, name, vocab_size, config = described(run)
    if name != "transformer":
        raise UserError(
            f"{run}: model {name!r} has no Hugging Face class; only 'transformer' can be exported"
        )
    kind = translators if task == "target" else configuration
    form = kind.choose_format(config)
    tokenizer = tokens.load(run / TOKENIZER)
    check_vocabulary(run, tokenizer, vocab_size)
    ours = weights(load_model(run))
    theirs: dict[str, Tensor] = {}
    for row in form.table.match(ours):
        theirs |= zip(row.theirs, row.change.forth(ours[row.ours], config), strict=True)
    parameters = sum(tensor.numel() for tensor in theirs.values())
    for key, constant in form.table.constants.items():
        theirs[key] = constant.values(constant.shape(vocab_size, config))
    ids, generation = markers(form, tokenizer, vocab_size, config.max_len)
    with new_folder(out) as folder:
        write_json(folder / CONFIG, kind.to_theirs(form, vocab_size, config) | ids)
        write_json(folder / "generation_config.json", generation)
        write_tensors(
            folder / WEIGHTS, theirs, {"format": "pt"}
        )  # transformers 4 asks for this mark
        write_tokenizer(folder, form, tokenizer, config.max_len)
        write_text(folder / "README.md", exported_readme(form, parameters, config, tokenizer))
        files = sorted(path.name for path in folder.iterdir())
    left_out = {"dropout": config.dropout} if config.dropout and not form.has_dropout else {}
    return {"class": form.name, "files": files, "parameters": parameters, "left_out": left_out}


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
    kind = translators if form.task == "target" else configuration
    vocab_size, config = kind.from_theirs(form, path, values)
    model = blank(path, form, vocab_size, config)
    with new_folder(out) as into:
        ours = read_weights(folder, form, model)
        tokenizer = adopt_tokenizer(folder)
        if form.task == "target":
            tokenizer = adopt_markers(path, tokenizer, *translators.start_and_end(path, values))
        check_vocabulary(folder, tokenizer, vocab_size)
        tokenizer.save(into / TOKENIZER)
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


def blank(path: Path, form: Format, vocab_size: int, config: StackConfig) -> Any:
    """The model of this configuration without memory: names and shapes only."""
    try:
        with torch.device("meta"):
            return family("transformer", form.task)(vocab_size, config)
    except ValueError as error:  # a width that some part refuses
        raise UserError(f"{path}: {error}") from None


def read_weights(folder: Path, form: Format, model: Any) -> dict[str, Tensor]:
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
            (embedding,) = (row.ours for row in rows if form.table.embedding in row.theirs)
            drop_copies(found, form, tuple(expected[embedding].shape))
        drop_constants(found, form, model)
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
    return {form.table.prefixed(name): stored for name, stored in found.items()}


def drop_copies(found: dict[str, Stored], form: Format, shape: tuple[int, ...]) -> None:
    """Forget the copies that some files keep of a tied matrix; they must not differ."""
    embedding = form.table.embedding
    for name in form.table.copies:
        if name not in found or embedding not in found:
            continue
        copy = found.pop(name)
        for stored in (copy, found[embedding]):
            stored.check(shape)
        if not torch.equal(copy.read(), found[embedding].read()):
            raise UserError(
                f"{copy.path}: tie_word_embeddings is true, but {name} and {embedding} differ; "
                "set it to false in config.json to keep both"
            )


def drop_constants(found: dict[str, Stored], form: Format, model: Any) -> None:
    """Forget the tensors whose values the class prescribes; they must not have others."""
    for name, constant in form.table.constants.items():
        if name in found:
            stored = found.pop(name)
            shape = constant.shape(model.vocab_size, model.config)
            stored.check(shape)  # what a hostile configuration asks for is at least in the file
            if not torch.allclose(stored.read(), constant.values(shape), rtol=0, atol=CLOSE):
                raise UserError(f"{stored.path}: {name} must be {constant.what}")


# Tokenizers


def check_vocabulary(folder: Path, tokenizer: tokens.Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer whose ids the model does not know; unused rows of the model are usual."""
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: {TOKENIZER} has ids up to {tokenizer.vocab_size - 1}, "
            f"the model only up to {vocab_size - 1}"
        )


def markers(
    form: Format, tokenizer: tokens.Tokenizer, vocab_size: int, max_len: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ids of specials as config.json has them, and all of generation_config.json."""
    if form.task == "target":
        ids = translators.marker_ids(tokenizer.start, tokenizer.end)
        never = tokenizer.never_produced(vocab_size)
        return ids, translators.generation(ids, max_len, never)
    ids = {
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
    }
    return ids, ids


def declared(document: dict[str, Any], task: str) -> dict[str, Any]:
    """Our tokenizer.json with its specials declared and `<S>` put before each text; in a
    translator, whose sources they are, `<E>` after it.
    """
    marks = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": id, "content": s, **marks, "special": True} for id, s in enumerate(SPECIALS)]
    mark = END if task == "target" else START
    special, a, b = (
        {"SpecialToken": {"id": SPECIALS[mark], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 0}},
    )
    spelt = {"id": SPECIALS[mark], "ids": [mark], "tokens": [SPECIALS[mark]]}
    template = {
        "type": "TemplateProcessing",
        "single": [a, special] if mark == END else [special, a],
        "pair": [a, b, special] if mark == END else [special, a, b],
        "special_tokens": {SPECIALS[mark]: spelt},
    }
    return {**document, "added_tokens": added, "post_processor": template}


def write_tokenizer(folder: Path, form: Format, tokenizer: tokens.Tokenizer, max_len: int) -> None:
    """Write the tokenizer for PreTrainedTokenizerFast to encode alike; a foreign one as it came."""
    if not isinstance(tokenizer, OwnTokenizer):
        tokenizer.save(folder / TOKENIZER)
        return
    reads = form.task == "target"  # whole sources, rather than prompts to continue
    document = declared(tokenizer.document(), form.task)
    write_text(folder / TOKENIZER, json.dumps(document, ensure_ascii=False))
    roles = {
        "bos_token": START,
        "eos_token": END,
        "pad_token": START if reads else PAD,
        "unk_token": UNK,
    }
    specials = {role: SPECIALS[id] for role, id in roles.items()}
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_len,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a `<S>` written out in a text stays three characters
        "padding_side": "right" if reads else "left",  # left: each row can be continued
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_json(folder / TOKENIZER_CONFIG, specials | options)
    write_json(folder / "special_tokens_map.json", specials)


def adopt_tokenizer(folder: Path) -> tokens.Tokenizer:
    """The folder's tokenizer; one that we exported becomes again what it was."""
    pieces = sorted(path.name for path in folder.iterdir() if path.suffix in PIECES)
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
    for kind in tokens.KINDS.values():
        if document in (declared(plain, task) for task in TASKS) and kind.recognises(plain):
            return kind.from_document(plain, str(path))
    return tokens.load(path)


def adopt_markers(
    path: Path, tokenizer: tokens.Tokenizer, start: int, end: int
) -> tokens.Tokenizer:
    """The tokenizer of a translator whose config.json says what starts and what ends a target."""
    if end != tokenizer.end:
        raise UserError(
            f"{path}: eos_token_id = {end}, but the tokenizer ends texts with {tokenizer.end}"
        )
    if start == tokenizer.start:
        return tokenizer
    if not isinstance(tokenizer, tokens.Pretrained):
        raise UserError(
            f"{path}: decoder_start_token_id = {start}, but the tokenizer has {tokenizer.start}"
        )
    t = tokenizer  # tokenizer_config.json has no word for what starts a target: usually `pad`
    again = tokens.Pretrained(t.source, start=start, end=end, pad=t.pad, unk=t.unk, name=t.name)
    again.config = {**t.config, **again.config}
    return again


# Pages


def exported_readme(
    form: Format, parameters: int, config: StackConfig, tokenizer: tokens.Tokenizer
) -> str:
    """How to load an exported folder."""
    own = isinstance(tokenizer, OwnTokenizer)  # then a prompt may be empty: `<S>` is put before it
    length = min(100, max(1, config.max_len // 2))
    kind, prompt, why = "CausalLM", "" if own else "Hello", "what is to be continued"
    options = f"max_new_tokens={length}, do_sample=True"
    if form.task == "target":
        kind, prompt, why = "Seq2SeqLM", "a source", "what is to be translated"
        options = "num_beams=5"
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
