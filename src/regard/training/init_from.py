"""Beginning where another run ended: its tokenizer, and its tensors that the new model has too.

What follows from the other run is filled into a recipe before it is built, and what contradicts it
is refused by name. A head that answers begins anew, unless the question is the same kind of filling
in: classes of one task mean nothing to another. Of word vectors only the embedding is begun with,
word by word: the new model has its own tokens, and the width of the vectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.errors import UsageError, UserError
from regard.models.heads import HEADS
from regard.models.word2vec import word_of, words_of
from regard.recipe import TrainRecipe, read
from regard.registry import family
from regard.run import CONFIG, RECIPE, TOKENIZER, described, load_model, open_run, weights
from regard.tokenizers import Tokenizer
from regard.tokenizers import load as load_tokenizer

PRETRAINED = "pretrained"  # the folder, in a run, of the run that it begins from
# What a configuration may say otherwise: what disturbs training, and what comes after the encoder.
FREE = ("dropout", "tied", "task", "n_outputs", "pooling", "pooler", "transform", "source_vocab")
ANSWERING = ("head.", "pool.", "shift", "scale")  # the tensors of a head that answers
# How a model that was trained before is trained on, where a recipe does not say. Rates are a tenth
# of those from scratch. Published models took a quarter (GPT: 2.5e-4, then 6.25e-5; Radford et al.
# 2018, section 4.1) to a fifth (BERT: 1e-4, then 5e-5 to 2e-5; Devlin et al. 2019, appendix A) with
# Adam; Muon's steps are as large where gradients are small. Warmup over a tenth of the steps is the
# default of BERT's own fine-tuning code.
RATES = {"lr": 0.1, "adam_lr": 0.1}  # as a share of the default
WARMUP = 0.1
Tables = dict[str, Any]


def inherit(values: Mapping[str, Any]) -> Tables:
    """The tables with what `train.start` decides filled in; a UsageError where they contradict."""
    start = values.get("train", {}).get("start", "")
    if not start:
        return dict(values)
    run = open_run(str(start))
    task, name, _, config = described(run)
    own = str(values.get("task", "next"))
    if task == "vectors" != own:
        result: Tables = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
        _settle(result.setdefault("model", {}), "model", {"d_model": config.d_model}, str(run))
        return result
    if own == "vectors":
        raise UsageError("train.start: word vectors begin anew, and from no other run")
    if own != task and not {own, task} <= set(HEADS):
        raise UsageError(f"train.start: {run} is of task {task}, from which {own!r} cannot begin")
    stored = read(run / RECIPE) if (run / RECIPE).exists() else {}
    kind = load_tokenizer(run / TOKENIZER).kind
    tokens = stored.get("tokens") or {"kind": kind}
    preset = stored.get("model", {}).get("preset", "")
    return adopt(values, str(run), name, config, preset=preset, tokens=tokens)


def adopt(
    values: Mapping[str, Any],
    run: str,
    name: str,
    config: Any,
    *,
    preset: str,
    tokens: Mapping[str, Any],
) -> Tables:
    """The tables with family, shape and tokens of a run, which errors call `run`."""
    result: Tables = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    model, asked = result.setdefault("model", {}), result.setdefault("tokens", {})
    _settle(model, "model", {"name": name}, run)
    kind = str(tokens.get("source") or tokens.get("kind", ""))
    cls = family(name, str(result.get("task", "next")), kind)
    fields = [f.name for f in dataclasses.fields(cls.Config)]
    if not hasattr(config, "d_model"):
        raise UsageError(f"train.start: {run} is not trained by gradients; nothing can begin there")
    dial = model.get("size")  # gives what is not given by itself
    meant = {} if dial is None else {"n_layers": dial, "d_model": 64 * dial}
    if any(key not in model and getattr(config, key) != n for key, n in meant.items()):
        raise UsageError(
            f"model.size = {dial}, but {run} has n_layers = {config.n_layers} and "
            f"d_model = {config.d_model}; leave it out"
        )
    shape = {key: getattr(config, key) for key in shared(config, fields)}
    _settle(model, "model", {"preset": preset or nearest(cls, config)}, run)
    _settle(model, "model", shape, run)
    _settle(asked, "tokens", {k: v for k, v in tokens.items() if k != "strict"}, run)
    if "dropout" in fields and hasattr(config, "dropout"):
        model.setdefault("dropout", config.dropout)
    gently(result.setdefault("train", {}))
    return result


def gently(train: Tables) -> None:
    """Fill in how a model is trained on that was trained before, where it is not given."""
    usual = TrainRecipe()
    for key, share in RATES.items():
        train.setdefault(key, getattr(usual, key) * share)
    train.setdefault("warmup", WARMUP)


def _settle(table: Tables, section: str, told: Mapping[str, Any], run: str) -> None:
    for key, value in told.items():
        got = table.get(key, value)
        got = tuple(got) if isinstance(got, list) else got  # TOML has no tuples
        if got != value and got not in ("", "auto"):
            raise UsageError(
                f"{section}.{key} = {got!r}, but {run} has {value!r}: leave it out, or begin from "
                "another run"
            )
        table[key] = value


def shared(config: Any, fields: list[str]) -> list[str]:
    """The fields of a configuration that must be the same in what begins from it: all that decide
    a tensor's shape or what is computed with it.
    """
    free = list(FREE)
    if getattr(config, "positions", "") != "learned":  # others reach as far as one likes
        free.append("max_len")
    known = {f.name for f in dataclasses.fields(config)}
    return [name for name in fields if name in known and name not in free]


def nearest(cls: Any, config: Any) -> str:
    """The preset of a family that has most in common with a configuration."""

    def common(preset: str) -> int:
        made = dataclasses.asdict(cls.PRESETS[preset](config.n_layers, config.d_model))
        return sum(getattr(config, key, None) == value for key, value in made.items())

    return str(max(cls.PRESETS, key=common))


def tokens_of(start: str) -> str:
    """The run whose tokenizer is taken by what begins from the run `start`: that, or none where it
    holds word vectors. One that is gone was needed at the beginning alone.
    """
    gone = not start or not (Path(start) / CONFIG).exists()
    return start if gone or described(open_run(start))[0] != "vectors" else ""


def begin(model: nn.Module, run: Path) -> str:
    """Give a model the tensors of a run that have its names and shapes; a line that says how many.

    A run of another shape or vocabulary is a UserError.
    """
    known: Any = model
    task, _, vocab_size, config = described(open_run(run))
    for key in shared(config, [f.name for f in dataclasses.fields(known.config)]):
        ours, theirs = getattr(known.config, key), getattr(config, key)
        if ours != theirs:
            raise UserError(f"train.start: {run} has {key} = {theirs!r}, this model {ours!r}")
    if vocab_size != known.vocab_size:
        raise UserError(
            f"train.start: {run} has {vocab_size:,} tokens, this model {known.vocab_size:,}"
        )
    held, own = weights(load_model(run)), weights(model)
    anew = ANSWERING if task in HEADS and known.task != "masked" else ()
    taken = {
        name: tensor
        for name, tensor in held.items()
        if name in own and tensor.shape == own[name].shape and not name.startswith(anew)
    }
    if not taken:
        raise UserError(f"train.start: {run} has no tensor that this model has too")
    model.load_state_dict(taken, strict=False)
    own_count = {name: p.numel() for name, p in model.named_parameters()}
    count = sum(n for name, n in own_count.items() if name in taken)
    rest = [n for name, n in own_count.items() if name not in taken]
    return (
        f"start: {len(taken)} tensors with {count:,} parameters from {run}; "
        f"{len(rest)} with {sum(rest):,} begin anew"
    )


@torch.no_grad()
def lend(model: nn.Module, run: Path, tokenizer: Tokenizer) -> str:
    """Give the embeddings of a model the word vectors of a run, by the text of its tokens; a line
    that says for how many.

    They come in the size that the rows have which they replace, so that what follows the embedding
    finds numbers as large as it was made for. What has no vector keeps its own beginning.
    """
    vectors = load_model(run)
    rows = {word: i for i, word in enumerate(words_of(vectors, load_tokenizer(run / TOKENIZER)))}
    texts = [tokenizer.text(i) for i in range(tokenizer.vocab_size)]
    names = [word_of(tokenizer, i) for i in range(tokenizer.vocab_size)]
    found = [rows.get(n, rows.get(t.strip(), -1)) for n, t in zip(names, texts, strict=True)]
    ids = torch.tensor([i for i, row in enumerate(found) if row >= 0 and i not in tokenizer.names])
    width = vectors.config.d_model
    homes = [
        part.weight
        for part in model.modules()
        if isinstance(part, nn.Embedding) and part.weight.shape == (tokenizer.vocab_size, width)
    ]
    if not homes or not len(ids):
        why = "no token has a vector there" if homes else f"no embedding here is {width} wide"
        raise UserError(f"train.start: {run} holds word vectors, but {why}")
    given = vectors.inputs[torch.tensor(found)[ids]]
    for weight in homes:
        weight[ids] = given * (weight[ids].square().mean() / given.square().mean()).sqrt()
    return f"start: vectors from {run} for {len(ids):,} of {tokenizer.vocab_size:,} tokens"
