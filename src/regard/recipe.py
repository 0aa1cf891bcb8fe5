"""Recipes: the typed settings of a run. TOML in, TOML out, every default visible, unknown keys
refused with a hint.

A recipe has the tables [task], [data], [input], [output], [model], [augment] and [train]. [task],
[input], [output], [model] and [augment] have a `name` and the settings of the class registered
under it, its own frozen dataclass `Config`; pydantic checks user input against these dataclasses.
[input] is what a model reads and [output] the text it predicts, each by its modality; a task has
one of them or both.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationError

from regard.errors import UsageError, UserError, did_you_mean, quoted
from regard.registry import AUGMENTATIONS, LOGGERS, MODALITIES, MODELS, TASKS, TOKENIZERS
from regard.storage import (
    MAX_INT,
    Malformed,
    adapter,
    check_values,
    dotted,
    first_problem,
    read_bytes,
)

# Cells that mark a missing target; an empty cell always does.
MISSING = ("NA", "N/A", "n/a", "nan", "NaN", "?", "-")
MAX_RECIPE_BYTES = 1 << 20
SPLITS = ("train", "valid", "test")


def _as_written(value: Any) -> Any:
    """A number or truth value as it is written: the name of a class may look like one."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


Word = Annotated[str, BeforeValidator(_as_written)]


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """Where the records come from and how they are split."""

    train: tuple[str, ...] = ()  # for pairs: the sources and their targets, or tables
    valid: tuple[str, ...] = ()  # empty: held out from train
    test: tuple[str, ...] = ()  # empty: held out from train
    input: str = ""  # the column to read in a table; of pairs, the source; A,B of two texts
    target: str = ""  # the column of the target, or several, y1,y2; of FASTA, a key of the header
    pattern: str = ""  # a regular expression: its first group is the label in the target's cell
    labels: str = ""  # a file of targets by id, for FASTA or point clouds
    missing: tuple[str, ...] = MISSING  # targets that count as missing, as an empty cell does
    positive: Word = ""  # the class that F1, precision and recall are of; of two, the rarer one
    format: str = "auto"
    per_line: bool = False  # in class files and folders, each line of a text is a record
    encoding: str = "utf-8"
    split: str = ""  # of labelled records: random, stratified, scaffold, or a column of splits
    group: str = ""  # a column: records that share its value stay in one split
    folds: int = 0  # of labelled records: the test part is one of so many; -1 = leave one out
    fold: int = 0  # which, from 0
    split_seed: int = 0
    valid_fraction: float = 0.05  # of the records by hash, or of running text before its end
    test_fraction: float = 0.05
    train_fraction: float = 1.0  # of the training split that is used; vocabularies see all of it
    strict: bool = False  # stop at the first damaged or overlong record instead of counting it

    def __post_init__(self) -> None:
        if min(self.valid_fraction, self.test_fraction) < 0:
            raise ValueError("valid_fraction and test_fraction must not be negative")
        if self.valid_fraction + self.test_fraction > 0.9:
            raise ValueError("valid_fraction + test_fraction must leave a tenth to train on")
        if not 0 < self.train_fraction <= 1:
            raise ValueError(
                f"train_fraction must be above 0, at most 1, got {self.train_fraction}"
            )
        if self.folds not in (-1, 0) and not 2 <= self.folds <= 1000:
            raise ValueError(f"folds must be 0 (none), from 2 to 1000, or -1, got {self.folds}")
        if self.fold < 0 or (self.folds != -1 and self.fold >= max(1, self.folds)):
            raise ValueError(f"fold must be at least 0 and below folds, got {self.fold}")


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """Which family, which preset, how large; `config` is the family's own dataclass, filled in."""

    name: str
    preset: str
    size: int  # the dial: n_layers = size, d_model = 64 · size, where those are not given
    choose: tuple[str, ...] = ()  # networks: they and cheap rows are tried, and the best is kept
    config: Any


NOT_NEGATIVE = ["seed", "steps", "clip", "patience", "average_last", "r_drop", "eval_every"]
NOT_NEGATIVE += ["checkpoint_every", "weight_decay", "warmup"]


@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """How the model is fitted."""

    seed: int = 0
    init_from: str = ""  # a run whose tokenizer and weights training starts from
    steps: int = 0  # 0 = as many as fit into `minutes`, planned by timing
    minutes: float = 5.0
    batch_tokens: int = 4096
    micro_tokens: int = 32768  # at most so many positions at once; more are accumulated
    optimizer: Literal["muon", "adamw"] = "muon"
    lr: float = 0.02  # of Muon's matrices, or of everything under adamw
    adam_lr: float = 0.003  # of embeddings, head, norms and biases beside Muon
    momentum: float = 0.95
    beta1: float = 0.9
    beta2: float = 0.98
    weight_decay: float = 0.1
    schedule: Literal["cosine", "linear", "inverse_sqrt"] = "linear"
    warmup: float = 0.02  # share of the steps
    clip: float = 1.0  # largest norm of the gradient; 0 = off
    label_smoothing: float = 0.0
    r_drop: float = 0.0  # weight of R-Drop: two passes with different dropout shall agree
    class_weights: bool = False  # weight classes by the inverse of their frequency
    average_last: int = 0  # validations at the end whose weights are averaged; 0 or 1 = none
    eval_every: int = 0  # steps between validations; 0 = up to twenty in all
    checkpoint_every: int = 0  # steps between checkpoints; 0 = as eval_every
    patience: int = 0  # validations without progress before stopping; 0 = never
    device: str = "auto"  # auto, cpu, cuda, cuda:1
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"  # auto: bf16 on a GPU that has it
    compile: Literal["auto", "on", "off"] = "auto"  # auto: on a GPU, if it saves time
    deterministic: bool = False  # bit-equal resumes on a GPU too; a CPU always is
    log: tuple[str, ...] = ()  # loggers besides metrics.jsonl: csv, tensorboard, wandb, mlflow
    film: bool = False  # record in film.safetensors what the model makes of 64 records

    def __post_init__(self) -> None:
        minima = dict.fromkeys(NOT_NEGATIVE, 0) | {"batch_tokens": 1, "micro_tokens": 1}
        for name, least in minima.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("lr", "adam_lr", "minutes"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("momentum", "beta1", "beta2", "label_smoothing"):
            check_fraction(name, getattr(self, name))
        for name in self.log:
            if name not in LOGGERS:
                raise ValueError(f"unknown logger {name!r}; {did_you_mean(name, list(LOGGERS))}")


def check_fraction(name: str, value: float) -> None:
    """Raise a ValueError if a setting is not at least 0 and below 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")


def check_range(name: str, value: int, most: int) -> None:
    """Raise a ValueError if a setting is not from 0 to `most`."""
    if not 0 <= value <= most:
        raise ValueError(f"{name} must be from 0 to {most}, got {value}")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The whole recipe. `task`, `input`, `output` and `augment` are the Config of the registered
    class, of which `name` is one field; None where the task has no such table.
    """

    task: Any
    data: DataRecipe = field(default_factory=DataRecipe)
    input: Any = None
    output: Any = None
    model: ModelRecipe
    augment: Any = None
    train: TrainRecipe = field(default_factory=TrainRecipe)

    @property
    def encoded(self) -> Any:
        """The table whose tokenizer or featurizer makes the records: [output], or else [input]."""
        return self.output or self.input

    @property
    def reads(self) -> str:
        """The kind of input that the model reads."""
        return kind_of(self.input or self.output)

    @property
    def family(self) -> Any:
        """The class of the model."""
        return MODELS.get(self.model.name, self.task.name, self.reads)

    def build_task(self) -> Any:
        """Return the task object."""
        return TASKS[self.task.name](self.task)

    def modality(self, role: str) -> Any:
        """Return the modality object of "input" or "output", or None."""
        config = getattr(self, role)
        return config and MODALITIES[config.name](config)

    def augmentation(self) -> Any:
        """Return the augmentation object, or None."""
        return self.augment and AUGMENTATIONS[self.augment.name](self.augment)

    def replace(self, **sections: Mapping[str, Any]) -> Recipe:
        """Return a copy with some keys of some tables changed: replace(train={"steps": 100})."""
        return dataclasses.replace(
            self,
            **{
                name: dataclasses.replace(getattr(self, name), **keys)
                for name, keys in sections.items()
            },
        )


def kind_of(config: Any) -> str:
    """Return the kind of input that a modality's encoder makes."""
    kind: str = MODALITIES[config.name].kind
    return kind


TABLES = ("task", "data", "input", "output", "model", "augment", "train")
MODEL_KEYS = ("name", "preset", "size", "choose")
# What keys are called elsewhere, for hints.
FOREIGN_KEYS = {
    "learning_rate": "lr",
    "epochs": "steps",
    "num_epochs": "steps",
    "num_train_epochs": "steps",
    "max_steps": "steps",
    "batch_size": "batch_tokens",
    "lr_scheduler_type": "schedule",
    "scheduler": "schedule",
    "early_stopping": "patience",
    "gradient_clipping": "clip",
    "random_state": "seed",
    "hidden_size": "d_model",
    "n_embd": "d_model",
    "num_hidden_layers": "n_layers",
    "n_layer": "n_layers",
    "num_heads": "n_heads",
    "n_head": "n_heads",
}


def build(values: Mapping[str, Any]) -> Recipe:
    """Return the validated recipe of nested tables as TOML gives them.

    A UsageError names the key, the value and what is allowed.
    """
    check_tables(values)
    sections: dict[str, Any] = {
        "data": check("data", DataRecipe, values.get("data", {})),
        "train": check("train", TrainRecipe, values.get("train", {})),
    }
    name = task_name(values) or "next"
    task = sections["task"] = registered("task", TASKS, values.get("task", {}), name)
    roles = TASKS[name].roles
    for role in ("input", "output"):
        table = values.get(role, {})
        if role in roles.encoded:
            sections[role] = registered(role, MODALITIES, table, modality_name(table))
            if table.get("tokenizer") == "pretrained" and not sections["train"].init_from:
                raise UsageError(
                    f"{role}.tokenizer = 'pretrained' is the tokenizer of another run: name the "
                    "run with train.init_from=RUN, or choose another tokenizer"
                )
        elif table:
            tables = " and ".join(f"[{one}]" for one in roles.encoded)
            raise UsageError(f"[{role}]: task {name} has no such table; it has {tables}")
    config = sections.get("input") or sections["output"]
    reads = kind_of(config)
    if table := values.get("augment"):
        augment = sections["augment"] = registered("augment", AUGMENTATIONS, table, config.name)
        if AUGMENTATIONS[augment.name].kind != reads:
            words = MODALITIES[config.name].words[1]
            raise UsageError(f"augment.name = {augment.name!r} does not apply to {words}")
    model = build_model(values.get("model", {}), task.name, reads)
    return Recipe(model=model, **sections)


def registered(section: str, registry: Any, table: Mapping[str, Any], default: str) -> Any:
    """Validate one table against the Config of the class that its `name` is registered for."""
    name = str(table.get("name") or default)
    if name not in registry:
        hint = did_you_mean(name, list(registry))
        raise UsageError(f"{section}.name: unknown {registry.noun} {name!r}; {hint}")
    return check(section, registry[name].Config, {**table, "name": name})


def task_name(values: Mapping[str, Any]) -> str:
    """Return the task that tables name, or the only one that their model is for; else ""."""
    named = str(values.get("task", {}).get("name", ""))
    tasks = MODELS.tasks(str(values.get("model", {}).get("name", "")))
    return named or (tasks[0] if tasks == ["vectors"] else "")


def modality_name(table: Mapping[str, Any]) -> str:
    """Return the modality of an [input] or [output] table: as named, or that of its tokenizer."""
    tokenizer = str(table.get("tokenizer"))
    if "name" in table or tokenizer not in TOKENIZERS:
        return str(table.get("name", "text"))
    cls = TOKENIZERS[tokenizer]
    return str(cls.modality) if cls.reads_text else "text"


def check_tables(values: Mapping[str, Any]) -> None:
    """Raise a UsageError for unknown tables, for what is no table, and for unusable values."""
    try:
        check_values(values, max_int=MAX_INT, zeros=False)
    except Malformed as error:
        raise UsageError(str(error)) from None
    for key, value in values.items():
        if key not in TABLES:
            raise UsageError(f"unknown key {key!r}; {did_you_mean(key, list(TABLES))}")
        if not isinstance(value, Mapping):
            raise UsageError(f"{key} must be a table, got {quoted(value)}")


def build_model(
    values: Mapping[str, Any], task: str = "next", reads: str = "tokens"
) -> ModelRecipe:
    """Resolve name, preset and size into the family's configuration; given keys win."""
    name = values.get("name", "transformer")
    cls = MODELS.get(str(name), task, reads)
    preset = str(values.get("preset") or next(iter(cls.PRESETS)))
    if preset not in cls.PRESETS:
        hint = did_you_mean(preset, list(cls.PRESETS))
        raise UsageError(f"model.preset: unknown preset {preset!r}; {hint}")
    options = {key: value for key, value in values.items() if key not in MODEL_KEYS}
    fields = [f.name for f in dataclasses.fields(cls.Config)]
    for key in options:
        if key not in fields:
            hint = did_you_mean(FOREIGN_KEYS.get(key, key), [*MODEL_KEYS, *fields])
            raise UsageError(f"unknown key 'model.{key}'; {hint}")
    size = values.get("size", 4)
    if not isinstance(size, int) or not 1 <= size <= 1000:
        raise UsageError(f"model.size must be a whole number from 1 to 1000, got {size!r}")
    n_layers, d_model = options.get("n_layers", size), options.get("d_model", 64 * size)
    for key, value in (("n_layers", n_layers), ("d_model", d_model)):
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"model.{key} must be a positive whole number, got {value!r}")
    try:
        derived = dataclasses.asdict(cls.PRESETS[preset](n_layers, d_model))
    except ValueError as error:
        raise UsageError(f"model.{error}") from None
    choose = values.get("choose", ())
    if not isinstance(choose, list | tuple):
        raise UsageError(f"model.choose must be a list of models, got {quoted(choose)}")
    for network in choose:
        MODELS.get(str(network), task, reads)  # raises if the model is unknown
    config = check("model", cls.Config, derived | options)
    return ModelRecipe(
        name=name, preset=preset, size=size, choose=tuple(map(str, choose)), config=config
    )


def check(section: str, cls: type, values: Mapping[str, Any]) -> Any:
    """Validate one table against its dataclass."""
    names = [f.name for f in dataclasses.fields(cls)]
    try:
        check_values(values, max_int=MAX_INT, zeros=False)
    except Malformed as error:
        raise UsageError(f"{section}.{error}") from None
    for key in values:
        if key not in names:
            hint = did_you_mean(FOREIGN_KEYS.get(key, key), names)
            raise UsageError(f"unknown key '{section}.{key}'; {hint}")
    values = {
        k: [v] if k in (*SPLITS, "missing") and isinstance(v, str) else v for k, v in values.items()
    }
    try:
        return adapter(cls).validate_python(values)
    except ValidationError as error:
        problem, keys = first_problem(error)
        raise UsageError(f"{dotted((section, *keys))}: {problem}") from None


def override(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Apply dotted assignments ("train.lr=3e-4") to nested tables; values are read as TOML, else as
    plain text.
    """
    result = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        parts = path.strip().split(".")
        if not equals or len(parts) != 2 or not all(parts):
            raise UsageError(f"--set {assignment}: write table.key=value, as in train.lr=3e-4")
        table = result.setdefault(parts[0], {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {assignment}: {parts[0]} is not a table")
        table[parts[1]] = parse_value(text)
    return result


def parse_value(text: str) -> Any:
    """Return a value that is written as in TOML, else the text itself."""
    try:
        values = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
        return text
    return values["x"] if values.keys() == {"x"} else text  # more where text has a line break


def read(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML recipe, its paths made absolute from the recipe's own folder."""
    if not path.exists():
        raise UserError(f"no recipe at {path}")
    try:
        values = tomllib.loads(read_bytes(path, MAX_RECIPE_BYTES).decode())
        check_values(values, max_int=MAX_INT, zeros=False)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError
        problem = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UserError(f"{path} is not valid TOML: {problem}") from None
    return absolute_paths(values, path.parent)


def absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make every path in the tables absolute, relative ones from `folder`, so that a run can be
    resumed from anywhere.
    """
    data = values.get("data")
    if isinstance(data, dict):
        for key in SPLITS:
            paths = data.get(key)
            paths = [paths] if isinstance(paths, str) else paths
            if isinstance(paths, list | tuple):
                data[key] = [str((folder / str(p)).resolve()) for p in paths]
        target = data.get("target")
        if isinstance(target, str) and Path(target).suffix and (folder / target).is_file():
            data["target"] = str((folder / target).resolve())  # a file of labels, not a column
    for table, key in (("data", "labels"), ("train", "init_from"), ("task", "forbid")):
        section = values.get(table)
        section = section if isinstance(section, dict) else {}
        name = section.get(key)
        if isinstance(name, str) and name not in ("", "unseen"):  # forbid = "unseen" is no path
            section[key] = str((folder / name).resolve())
    return values


def tables(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as nested tables; `build(tables(recipe)) == recipe`."""
    result: dict[str, Any] = {}
    for name in TABLES:
        value = getattr(recipe, name)
        if value is None:
            continue
        table = dataclasses.asdict(value)
        table |= table.pop("config") if name == "model" else {}
        result[name] = {k: list(v) if isinstance(v, tuple) else v for k, v in table.items()}
    return result


def to_toml(recipe: Recipe) -> str:
    """Return the recipe as TOML, every key written out."""
    lines: list[str] = []
    for name, table in tables(recipe).items():
        lines += ["", f"[{name}]", *(f"{key} = {toml_value(v)}" for key, v in table.items())]
    return "\n".join(lines[1:]) + "\n"


def toml_value(value: Any) -> str:
    """Return one value as TOML writes it; strings, numbers and lists are spelled as in JSON."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return json.dumps(value)
