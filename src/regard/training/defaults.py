"""Defaults: which network, how large, on which batches and with which augmentation.

Everything that a recipe leaves open follows from three facts: the amount of data, the time, and
whether there is a GPU. The tables below hold the rules, one for each kind of model. Their numbers
were chosen on validation data; the comment on each table names the data sets.

The size follows the amount of data, since a small file is soon memorized, and the time: a network
that could read the data only a few times gives way to a smaller one. Dropout is used if the data is
read many times. Which network learns most within some minutes was measured, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.models import Shape
from regard.recipe import DataRecipe, TrainRecipe, check, modality_name
from regard.registry import MODALITIES, MODELS, TASKS

Tables = dict[str, Any]

ONE_PASS = ("count", "solve")  # loops of families that are fitted at once, without steps
TIMED = ("gradient", "em")  # loops of families that train for as long as they are given
REFERENCE = "transformer"  # the network that is sized first in a comparison


@dataclass(frozen=True)
class SizeTable:
    """Networks for one kind of data.

    `rows` are an upper limit of the amount of data and the shapes of a Transformer up to it, on a
    CPU and on a GPU; other networks have as many parameters. `epochs` is how often a network should
    read the data, `tokens` how many it should read if the data is that large. The first of
    `networks` is sized; short trials decide which of several is trained. The dropout of a row is
    that of a network which reads the data at least `dropout_epochs` times; fewer times have less,
    in proportion.
    """

    rows: Sequence[tuple[float, Shape, Shape]]
    epochs: float
    tokens: float = math.inf
    networks: Sequence[str] = (REFERENCE,)
    dropout_epochs: float = 0.0


def sizes(*rows: tuple[float, tuple[int, int, float], tuple[int, int, float]]) -> Any:
    """Return rows of shapes from plain tuples of depth, width and dropout."""
    return [(most, Shape(*cpu), Shape(*gpu)) for most, cpu, gpu in rows]


# Language models, by characters: names, tiny Shakespeare, WikiText-2. After 50 seconds of one core
# on names, LSTM and GRU have 2.055 nats on validation, the best Transformer 2.10. 15,000 German
# words, which 55 seconds of one core read 7 times: dropout 0.1 instead of 0.2 lowers the bits of a
# Transformer of 3 × 64 from 2.93 to 2.69, and 1,024 tokens a step instead of 2,048 to 2.63.
LANGUAGE_MODELS = SizeTable(
    sizes(
        (20_000, (2, 64, 0.2), (2, 64, 0.2)),
        (100_000, (3, 64, 0.2), (3, 64, 0.2)),
        (400_000, (8, 64, 0.25), (8, 64, 0.25)),
        (3_000_000, (4, 128, 0.1), (6, 384, 0.2)),
        (30_000_000, (5, 192, 0.0), (8, 512, 0.1)),
        (math.inf, (6, 256, 0.0), (12, 768, 0.0)),
    ),
    epochs=10,
    tokens=2e6,
    networks=(REFERENCE, "lstm"),
    dropout_epochs=20,
)
# Labels and values of texts, DNA, proteins and molecules, by records: TREC, MR, UCI splice, the E.
# coli promoters of cnnprom, AMPlify's peptides, ESOL, Lipophilicity. Which network is best depends
# on the data: after 30 to 70 seconds of one core the Transformer leads on TREC (accuracy 0.813, CNN
# 0.775, LSTM 0.752 on validation), the LSTM on splice (0.976, CNN 0.798, Transformer 0.706). With
# all the time they need, the CNN is as good as the Transformer on five of these seven.
SEQUENCE_CLASSIFIERS = SizeTable(
    sizes(
        (500, (1, 64, 0.3), (1, 64, 0.3)),
        (5_000, (2, 96, 0.3), (2, 128, 0.3)),
        (50_000, (2, 128, 0.3), (4, 256, 0.3)),
        (math.inf, (4, 192, 0.1), (6, 384, 0.2)),
    ),
    epochs=8,
    tokens=4e6,
    networks=(REFERENCE, "cnn", "lstm"),
)
# Translators, by characters of both sides: dates, Multi30k. Trials of seconds mislead: on dates the
# recurrent one is ahead after 3 seconds, and the Transformer translates 77% exactly after a minute.
TRANSLATORS = SizeTable(
    sizes(
        (1_500_000, (2, 128, 0.1), (3, 192, 0.1)),
        (12_000_000, (3, 192, 0.1), (4, 256, 0.3)),
        (100_000_000, (4, 256, 0.1), (6, 512, 0.2)),
        (math.inf, (4, 256, 0.0), (6, 512, 0.1)),
    ),
    epochs=8,
    tokens=4e6,
)
# Images, by images: scikit-learn's digits, MNIST, Fashion-MNIST. The residual network is the better
# one on the latter two, with all the time it takes.
IMAGE_MODELS = SizeTable(
    sizes(
        (500, (2, 64, 0.1), (2, 64, 0.1)),
        (5_000, (4, 64, 0.1), (4, 128, 0.1)),
        (50_000, (4, 96, 0.1), (6, 192, 0.1)),
        (math.inf, (4, 128, 0.0), (6, 256, 0.1)),
    ),
    epochs=6,
    networks=("cnn",),
)
# Point clouds and molecules in space, by items: generated shapes, QM7.
POINT_CLOUD_MODELS = SizeTable(
    sizes(
        (500, (2, 64, 0.1), (2, 64, 0.1)),
        (5_000, (3, 64, 0.05), (4, 128, 0.1)),
        (50_000, (4, 96, 0.0), (6, 192, 0.1)),
        (math.inf, (4, 128, 0.0), (6, 256, 0.1)),
    ),
    epochs=10,
)
# Labels and values of series, by series: generated waves of three kinds.
SERIES_CLASSIFIERS = SizeTable(
    sizes(
        (500, (2, 64, 0.2), (2, 64, 0.2)),
        (5_000, (3, 64, 0.1), (3, 128, 0.1)),
        (50_000, (4, 96, 0.1), (4, 192, 0.1)),
        (math.inf, (4, 128, 0.0), (6, 256, 0.1)),
    ),
    epochs=20,
    networks=(REFERENCE, "cnn", "lstm"),
)
# Forecasters, by steps of all series: the months of ETTh1.
FORECASTERS = SizeTable(
    sizes(
        (20_000, (2, 16, 0.3), (2, 16, 0.3)),
        (200_000, (3, 16, 0.3), (3, 16, 0.3)),
        (2_000_000, (3, 64, 0.2), (3, 128, 0.2)),
        (math.inf, (3, 64, 0.1), (3, 128, 0.1)),
    ),
    epochs=2,
    networks=(REFERENCE, "nlinear", "dlinear"),
)

# The default of images helps wherever data is scarce, and mirrors nothing, since letters and digits
# are not the same in a mirror.
AUGMENT_IMAGES = {"shift": 0.1, "rotate": 10.0, "scale": 0.1}
# Point clouds of three and of two dimensions; molecules are not changed. Rotations in space are
# left to a model that is invariant to them.
AUGMENT_3D = {"rotate": 0.0, "scale": 0.1, "jitter": 0.01, "drop": 0.2}
AUGMENT_2D = {"rotate": 10.0, "scale": 0.1, "jitter": 0.01, "drop": 0.2}

# Defaults of fine-tuning. Rates are a tenth of those from scratch. Published models took a quarter
# (GPT: 2.5e-4, then 6.25e-5; Radford et al. 2018, section 4.1) to a fifth (BERT: 1e-4, then 5e-5 to
# 2e-5; Devlin et al. 2019, appendix A) with Adam; Muon's steps stay large if gradients are small.
# Warmup over a tenth of the steps is the default of BERT's fine-tuning code.
FINE_TUNING = {"lr": 0.1, "adam_lr": 0.1}  # as a share of the default
FINE_TUNING_WARMUP = 0.1
# After some minutes of pre-training on masked tokens weights are still far from those of a
# published model: rates of half and a third were best for TREC and the promoters of cnnprom.
AFTER_PRETRAINING = {"lr": 0.5, "adam_lr": 1 / 3}
UNLABELLED = 1.0  # rows without a target, per row with one, from which pre-training on all is tried

# Labelled records held out for validation, and as many for the test: an accuracy is then known to
# about 0.04. A larger file holds out the share of other tasks, a small one at most MOST_HELD_OUT.
HELD_OUT = 500
MOST_HELD_OUT = 0.15

FLOPS_CPU = 2e10  # of a core in a second of training; measured with 4 to 8 layers of 64 to 128
FLOPS_GPU = 2e13  # of a GPU, likewise: small networks leave most of it idle
FEW_STEPS = 800  # below which smaller batches learn more
SHARE = 0.8  # of the minutes that a network has for its steps


def has_gpu() -> bool:
    """Return whether the model will be trained on a GPU by default."""
    return torch.cuda.is_available()


def hardware() -> str:
    """Return what the model will be trained on, in words."""
    cores = torch.get_num_threads()
    return "a GPU" if has_gpu() else f"{cores} CPU core{'' if cores == 1 else 's'}"


def minutes_of(train: Mapping[str, Any]) -> float:
    """Return the minutes of a table [train]; infinity if it sets the number of steps."""
    return math.inf if train.get("steps") else float(train.get("minutes") or TrainRecipe().minutes)


def default_network(table: SizeTable, tables: Tables) -> str:
    """Fill in the model, if nothing is said of it and there is time to try some; return its name.

    Settings of a model without a name are those of the Transformer.
    """
    model, task = tables["model"], TASKS[tables["task"]["name"]]
    if not model and task.compares and math.isfinite(minutes_of(tables["train"])):
        known = MODELS.names(task.name, kind_of(tables))
        model["choose"] = [name for name in table.networks if name in known] or [REFERENCE]
        model["name"] = model["choose"][0]
    name: str = model.setdefault("name", REFERENCE)
    return name


def default_shape(table: SizeTable, amount: float, tokens: float, tables: Tables) -> Shape:
    """Return the shape for an amount of data of so many tokens or, if there is no time for it, the
    largest smaller one for which there is.
    """
    number = next(i for i, row in enumerate(table.rows) if amount < row[0])
    shapes = [gpu if has_gpu() else cpu for _, cpu, gpu in table.rows[: number + 1]]
    reads = min(table.epochs * tokens, table.tokens)
    affordable = [shape for shape in shapes if training_seconds(shape, reads) <= seconds(tables)]
    chosen = shapes[-1]
    if chosen not in affordable and shapes[:-1]:
        smaller = max(affordable, key=size_of, default=min(shapes, key=size_of))
        chosen = replace(smaller, dropout=min(smaller.dropout, chosen.dropout))
    return less_dropout(table, chosen, tokens, tables)


def less_dropout(table: SizeTable, shape: Shape, tokens: float, tables: Tables) -> Shape:
    """Return a shape with less dropout if there is time to read the data a few times only."""
    if not table.dropout_epochs or not tokens:
        return shape
    epochs = seconds(tables) / training_seconds(shape, tokens)
    share = min(1.0, epochs / table.dropout_epochs)
    return replace(shape, dropout=round(shape.dropout * share, 2))


def size_of(shape: Shape) -> int:
    """Return about how many parameters the blocks of a Transformer of this shape have."""
    return 12 * shape.n_layers * shape.d_model**2


def seconds(tables: Tables) -> float:
    """Return how long the steps of a network may take."""
    return SHARE * 60 * minutes_of(tables["train"])


def training_seconds(shape: Shape, tokens: float) -> float:
    """Return about how long training on so many tokens takes: 6 operations for each parameter and
    token (Kaplan et al. 2020, arXiv:2001.08361, section 2.1).
    """
    rate = FLOPS_GPU if has_gpu() else FLOPS_CPU * torch.get_num_threads()
    return 6 * size_of(shape) * tokens / rate


def fill_shape(model: Tables, fields: Mapping[str, object], shape: Shape) -> bool:
    """Fill in depth, width and dropout; return whether depth or width was given already."""
    given = any(key in model for key in ("size", "n_layers", "d_model"))
    if not given:
        model["n_layers"], model["d_model"] = shape.n_layers, shape.d_model
    if "dropout" in fields:
        model.setdefault("dropout", shape.dropout)
    return given


def fill_steps(tables: Tables) -> None:
    """Fill in the tokens of a step of a sequence model: half or a quarter of the usual number, if
    there would be few steps otherwise. At 30 seconds of one core, tiny Transformers of names gain
    0.02 nats by half of it.
    """
    model, train = tables["model"], tables["train"]
    shape = Shape(model.get("n_layers", 1), model.get("d_model", 64), 0.0)
    reads = seconds(tables) / training_seconds(shape, 1)
    usual = TrainRecipe().batch_tokens
    if reads < 2 * FEW_STEPS * usual:
        fitting = 2 ** max(0, int(math.log2(max(1, reads / FEW_STEPS))))
        train.setdefault("batch_tokens", max(usual // 4, min(usual, fitting)))


def fill_split(data: Tables, records: int) -> None:
    """Fill in the shares of labelled records that are held out, if neither is given; folds have
    shares of their own.
    """
    keys = ("valid_fraction", "test_fraction")
    if not data.get("folds") and not any(key in data for key in keys):
        least = DataRecipe().valid_fraction
        share = round(min(MOST_HELD_OUT, max(least, HELD_OUT / max(1, records))), 3)
        data |= dict.fromkeys(keys, share)


def fill_batch(train: Tables, tokens: int, *, large: bool) -> None:
    """Fill in the tokens of a step, four times as many on a GPU if the data is `large`."""
    if "batch_tokens" not in train:
        train["batch_tokens"] = tokens * (4 if has_gpu() and large else 1)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))


def fill_gentle_rates(train: Tables, shares: Mapping[str, float] = FINE_TUNING) -> None:
    """Fill in learning rates and warmup for a model that was trained before."""
    default = TrainRecipe()
    for key, share in shares.items():
        train.setdefault(key, getattr(default, key) * share)
    train.setdefault("warmup", FINE_TUNING_WARMUP)


def settings_from_scratch() -> Tables:
    """Return the settings of training from random weights in place of those of fine-tuning."""
    default = TrainRecipe()
    rates = {key: getattr(default, key) for key in (*FINE_TUNING, "warmup")}
    return {"init_from": "", **rates}


def budget(train: Mapping[str, Any]) -> str:
    """Return how long training will take, in words."""
    if train.get("steps"):
        return f"{train['steps']:,} steps, as asked"
    if train.get("minutes"):
        return f"{in_minutes(train['minutes'])}, as asked"
    return f"{in_minutes(TrainRecipe().minutes)} (--minutes changes that)"


def in_minutes(minutes: float) -> str:
    """Return minutes in words."""
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def fill_defaults(values: Mapping[str, Any]) -> tuple[Tables, list[str]]:
    """Return the tables of a recipe, whose task is known, with all defaults, and lines that explain
    them.
    """
    task = TASKS[values["task"]["name"]]
    tables: Tables = {name: dict(table) for name, table in values.items()}
    for name in ("data", *task.roles.encoded, "model", "augment", "train"):
        tables.setdefault(name, {})
    lines = task(check("task", task.Config, tables["task"])).defaults(tables)
    for name in task.roles.encoded:
        tables[name]["name"] = modality_name(tables[name])
    family = MODELS.get(tables["model"]["name"], task.name, kind_of(tables))
    if family.loop in TIMED:
        lines[-1] += f", {budget(tables['train'])}"
    return {name: table for name, table in tables.items() if table}, lines


def kind_of(tables: Tables) -> str:
    """Return the kind of input that the model reads."""
    kind: str = MODALITIES[modality_name(tables.get("input") or tables["output"])].kind
    return kind
