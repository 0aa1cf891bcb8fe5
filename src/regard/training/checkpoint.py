"""Checkpoints: the state that resuming needs, safe against a kill at any moment.

A checkpoint is a folder that is written under a temporary name, flushed, then renamed; its manifest
has a checksum of every file and of itself. The newest intact checkpoint is loaded; damaged ones are
reported and skipped.

`inherit` starts from another run, with its tokenizer, and its tensors that the new model has too.
The settings that follow from the other run are added to a recipe before it is built; contradictions
are errors. Heads start from new random weights, since classes of one task mean nothing to another,
except in masked language models. From word vectors only the embedding starts, word by word: the new
model has its own tokenizer, and the width of the vectors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UsageError, UserError
from regard.models.word2vec import list_words, token_word
from regard.recipe import read
from regard.registry import MODELS, TASKS
from regard.run import CONFIG, RECIPE, ModelDescription, Run, weights
from regard.storage import Checkpoint, read_json, read_tensors, sync, write_json, write_tensors
from regard.tokenizers import TOKENIZER, Tokenizer
from regard.tokenizers import load as load_tokenizer
from regard.training.defaults import fill_gentle_rates

FOLDER, MANIFEST = "checkpoints", "checkpoint.json"


def checksum(path: Path) -> str:
    """Return the BLAKE2b checksum of a file."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def seal(manifest: dict[str, Any]) -> str:
    """Return the checksum of a manifest."""
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def save(
    run: Path,
    step: int,
    tensors: dict[str, dict[str, Tensor]],
    state: dict[str, Any],
    *,
    keep: int = 2,
) -> Path:
    """Write checkpoints/step-NNNNNN with a file for each group of tensors and the `state`; remove
    all but the newest `keep`.
    """
    parent = run / FOLDER
    final = parent / f"step-{step:06d}"
    temporary = parent / f".{final.name}.{os.getpid()}.tmp"
    try:
        parent.mkdir(exist_ok=True)
        sweep(run)
        temporary.mkdir()
        sums = {}
        for name, group in tensors.items():
            write_tensors(temporary / f"{name}.safetensors", group)
            sums[f"{name}.safetensors"] = checksum(temporary / f"{name}.safetensors")
        manifest = {"step": step, "checksums": sums, "state": state}
        write_json(temporary / MANIFEST, manifest | {"seal": seal(manifest)})
        if final.exists():  # left by an earlier session that went further
            discard(final)
        os.replace(temporary, final)
        sync(parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot write {final}: {error.strerror or error}") from error
        raise
    for old in steps(run)[:-keep]:
        discard(old)
    return final


def discard(path: Path) -> None:
    """Remove a checkpoint; it is renamed first, so that it is never seen without some files."""
    doomed = path.with_name(f".{path.name}.old.tmp")
    os.replace(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(run: Path) -> None:
    """Remove temporary folders of a process that was killed while saving."""
    for left in (run / FOLDER).glob(".*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


def steps(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    paths = [path for path in (run / FOLDER).glob("step-*") if path.name[5:].isdigit()]
    return sorted(paths, key=lambda path: int(path.name[5:]))


def load(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return the tensors by group and the state of a checkpoint; damage is a UserError."""
    manifest = read_json(path / MANIFEST, Checkpoint)
    try:
        written = manifest.pop("seal")
        sums, state = manifest["checksums"], manifest["state"]
        if written != seal(manifest):
            raise UserError(f"{path / MANIFEST} is damaged: its checksum differs")
        for name, expected in sums.items():
            if Path(name).name != name:
                raise UserError(f"{path / MANIFEST} names a file outside its folder: {name}")
            if checksum(path / name) != expected:
                raise UserError(f"{path / name} is damaged: its checksum differs")
    except OSError as error:
        raise UserError(f"{path} is damaged: {error.strerror}: {error.filename}") from None
    return {name.removesuffix(".safetensors"): read_tensors(path / name) for name in sums}, state


def newest(
    run: Path, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
    """Return the newest intact checkpoint; None if there is none.

    `say` is called with the damage of others. If all are damaged, that is a UserError.
    """
    paths = steps(run)
    for i, path in reversed(list(enumerate(paths))):
        try:
            return load(path)
        except UserError as error:
            say(f"{error}; " + (f"trying {paths[i - 1].name}" if i else "there is none before it"))
    if paths:
        raise UserError(
            f"every checkpoint in {run / FOLDER} is damaged; delete that folder to start over"
        )
    return None


PRETRAINED = "pretrained"  # the folder, in a run, of the run that it starts from
# Settings that may differ: regularization, and what comes after the encoder.
FREE = ("dropout", "tied", "task", "n_outputs", "pooling", "pooler", "transform", "source_vocab")
HEAD_TENSORS = ("head.", "pool.", "shift", "scale")  # of classifiers and regressors
Tables = dict[str, Any]


def inherit(values: Mapping[str, Any]) -> Tables:
    """Return the tables with the settings of the run `train.init_from`; contradictions are a
    UsageError.
    """
    path = values.get("train", {}).get("init_from", "")
    if not path:
        return dict(values)
    run = Run.open(str(path))
    description = run.description
    source, task = TASKS[description.task], TASKS[values["task"]["name"]]
    result: Tables = {k: dict(v) for k, v in values.items()}
    if source.lends_embeddings and not task.lends_embeddings:
        width = {"d_model": description.config.d_model}
        _require(result.setdefault("model", {}), "model", width, str(run))
        return result
    if not task.starts_from:
        raise UsageError(
            f"train.init_from: a model of task {task.name} cannot start from another run"
        )
    if source.model_task not in task.starts_from:
        raise UsageError(
            f"train.init_from: {run} is of task {source.name}, from which {task.name!r} cannot "
            "start"
        )
    stored = read(run / RECIPE) if (run / RECIPE).exists() else {}
    tokenizer = load_tokenizer(run / TOKENIZER)
    table = stored.get("input") or stored.get("output")
    table = table or {"name": tokenizer.modality, "tokenizer": tokenizer.name}
    preset = stored.get("model", {}).get("preset", "")
    result["model"] = adopt(result.get("model", {}), str(run), description, task.name, preset)
    for role in task.roles.encoded:
        settings = {k: v for k, v in (stored.get(role) or table).items() if k != "strict"}
        _require(result.setdefault(role, {}), role, settings, str(run))
    fill_gentle_rates(result.setdefault("train", {}))
    return result


def adopt(model: Tables, run: str, description: ModelDescription, task: str, preset: str) -> Tables:
    """Return the [model] table with family and shape of a run."""
    name, config = description.family, description.config
    _require(model, "model", {"name": name}, run)
    cls = MODELS.get(name, task, description.reads)
    fields = [f.name for f in dataclasses.fields(cls.Config)]
    if not hasattr(config, "d_model"):
        raise UsageError(
            f"train.init_from: {run} is not trained by gradients; nothing to start from"
        )
    dial = model.get("size")  # stands for depth and width that are not given
    implied = {} if dial is None else {"n_layers": dial, "d_model": 64 * dial}
    if any(key not in model and getattr(config, key) != n for key, n in implied.items()):
        raise UsageError(
            f"model.size = {dial}, but {run} has n_layers = {config.n_layers} and "
            f"d_model = {config.d_model}; leave it out"
        )
    _require(model, "model", {"preset": preset or nearest(cls, config)}, run)
    shape = {key: getattr(config, key) for key in shared(config, fields)}
    _require(model, "model", shape, run)
    if "dropout" in fields and hasattr(config, "dropout"):
        model.setdefault("dropout", config.dropout)
    return model


def _require(table: Tables, section: str, values: Mapping[str, Any], run: str) -> None:
    for key, value in values.items():
        got = table.get(key, value)
        got = tuple(got) if isinstance(got, list) else got  # TOML has no tuples
        if got != value and got not in ("", "auto"):
            raise UsageError(
                f"{section}.{key} = {got!r}, but {run} has {value!r}: leave it out, or start from "
                "another run"
            )
        table[key] = value


def shared(config: Any, fields: list[str]) -> list[str]:
    """Return the fields of a configuration that must not differ: those that determine the shapes of
    tensors or the computation.
    """
    free = list(FREE)
    if getattr(config, "positions", "") != "learned":  # others have no maximum
        free.append("max_len")
    known = {f.name for f in dataclasses.fields(config)}
    return [name for name in fields if name in known and name not in free]


def nearest(cls: Any, config: Any) -> str:
    """Return the preset of a family that has most in common with a configuration."""

    def common(preset: str) -> int:
        values = dataclasses.asdict(cls.PRESETS[preset](config.n_layers, config.d_model))
        return sum(getattr(config, key, None) == value for key, value in values.items())

    return str(max(cls.PRESETS, key=common))


def tokens_of(init_from: str) -> str:
    """Return the run whose tokenizer is used if training starts from a run: that run, or "" if only
    its embeddings are used. A run that was removed since was needed at the start only.
    """
    gone = not init_from or not (Path(init_from) / CONFIG).exists()
    lends = not gone and TASKS[Run.open(init_from).description.task].lends_embeddings
    return "" if lends else init_from


def copy_weights(model: nn.Module, run: Path) -> str:
    """Copy the tensors of a run that have the same names and shapes; return a line about them.

    A run of another shape or vocabulary is a UserError.
    """
    known: Any = model
    description = Run.open(run).description
    vocab_size, config = description.vocab_size, description.config
    for key in shared(config, [f.name for f in dataclasses.fields(known.config)]):
        ours, other = getattr(known.config, key), getattr(config, key)
        if ours != other:
            raise UserError(f"train.init_from: {run} has {key} = {other!r}, this model {ours!r}")
    if vocab_size != known.vocab_size:
        raise UserError(
            f"train.init_from: {run} has {vocab_size:,} tokens, this model {known.vocab_size:,}"
        )
    ours = weights(model)
    excluded = () if TASKS[known.task].keeps_head else HEAD_TENSORS
    copied = {
        name: tensor
        for name, tensor in weights(Run(run).model()).items()
        if name in ours and tensor.shape == ours[name].shape and not name.startswith(excluded)
    }
    if not copied:
        raise UserError(f"train.init_from: {run} has no tensor that this model has too")
    model.load_state_dict(copied, strict=False)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    count = sum(n for name, n in sizes.items() if name in copied)
    rest = [n for name, n in sizes.items() if name not in copied]
    return (
        f"start: {len(copied)} tensors with {count:,} parameters from {run}; "
        f"{len(rest)} with {sum(rest):,} begin anew"
    )


@torch.no_grad()
def copy_embeddings(model: nn.Module, run: Path, tokenizer: Tokenizer) -> str:
    """Copy the word vectors of a run into the embeddings of a model, by the text of tokens; return
    a line about them.

    They are scaled to the mean square of the rows that they replace, which the next layers expect.
    Tokens without a vector are unchanged.
    """
    vectors = Run(run).model()
    rows = {word: i for i, word in enumerate(list_words(vectors, load_tokenizer(run / TOKENIZER)))}
    texts = [tokenizer.text(i) for i in range(tokenizer.vocab_size)]
    names = [token_word(tokenizer, i) for i in range(tokenizer.vocab_size)]
    matches = [rows.get(n, rows.get(t.strip(), -1)) for n, t in zip(names, texts, strict=True)]
    ids = torch.tensor(
        [i for i, row in enumerate(matches) if row >= 0 and i not in tokenizer.names]
    )
    width = vectors.config.d_model
    embeddings = [
        part.weight
        for part in model.modules()
        if isinstance(part, nn.Embedding) and part.weight.shape == (tokenizer.vocab_size, width)
    ]
    if not embeddings or not len(ids):
        why = "no token has a vector there" if embeddings else f"no embedding here is {width} wide"
        raise UserError(f"train.init_from: {run} holds word vectors, but {why}")
    copied = vectors.inputs[torch.tensor(matches)[ids]]
    for weight in embeddings:
        weight[ids] = copied * (weight[ids].square().mean() / copied.square().mean()).sqrt()
    return f"start: vectors from {run} for {len(ids):,} of {tokenizer.vocab_size:,} tokens"
