"""Recipes: what to do, typed. TOML in, TOML out, every default visible, unknown keys refused with a
hint.

The model table is the family's own frozen dataclass plus `name`, `preset` and `size`; pydantic
checks user input against these dataclasses here, as `documents` checks the other files.
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
from regard.registry import TASKS, family, task_named
from regard.storage import WHOLE, Malformed, adapter, described, dotted, examine, read_source

SHARES = ("shift", "zoom", "erase", "colour", "drop")
NOT_NEGATIVE = ["seed", "steps", "clip", "patience", "average", "consistency", "rotate", "jitter"]
NOT_NEGATIVE += ["eval_every", "checkpoint_every", "weight_decay", "warmup"]
TextTokens = Literal["auto", "characters", "bytes", "words", "bpe"]
Biology = Literal["nucleotides", "kmers", "residues", "motifs"]
OtherTokens = Literal[Biology, "smiles", "groups", "pretrained", "patches", "points"]
Lined = Literal["auto", "lines", "text", "files", "csv", "tsv", "jsonl", "fasta", "smi", "labelled"]
Predicting = Literal["next", "target", "masked"]
Answering = Literal["label", "labels", "value", "position-label"]
# Keys of [tokens] that only some kinds have.
TOKEN_OPTIONS = {"k": ["kmers"], "stride": ["kmers"], "case": ["nucleotides", "residues"]}
TOKEN_OPTIONS |= {"patch": ["patches"]}
TOKEN_OPTIONS |= {name: ["points"] for name in ("samples", "neighbours", "scale")}
# Cells of targets that say that there is none; an empty one always does.
MISSING = ("NA", "N/A", "n/a", "nan", "NaN", "?", "-")
# Formats of what is no text, and the tokens of each.
NUMBERED = {"images": "patches", "points": "points"}


def _word(value: Any) -> Any:
    """A number or truth value as it is written: the name of a class may look like one."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


Word = Annotated[str, BeforeValidator(_word)]


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """Where the records come from and how they are split."""

    train: tuple[str, ...] = ()  # for pairs: the sources and their targets, or tables
    valid: tuple[str, ...] = ()  # empty: held out from train
    test: tuple[str, ...] = ()  # empty: held out from train
    input: str = ""  # the column to read in a table; of pairs, the source; A,B of two texts
    target: str = ""  # the column of the target, or several, y1,y2; of FASTA, a key of the header
    pattern: str = ""  # a regular expression: its first group is the label in what target names
    labels: str = ""  # a file of the targets by id, beside FASTA or point clouds
    missing: tuple[str, ...] = MISSING  # targets that count as missing, as an empty cell does
    positive: Word = ""  # the class that F1, precision and recall are of; of two, the rarer one
    format: Literal[Lined, "images", "points"] = "auto"
    per_line: bool = False  # of class files and folders: each line of a text is a record
    encoding: str = "utf-8"
    split: str = ""  # of labelled records: random, stratified, scaffold, or a column that says it
    group: str = ""  # a column: records that share its value stay on one side
    folds: int = 0  # of labelled records: the test part is one of so many; -1 = leave one out
    fold: int = 0  # which, from 0
    split_seed: int = 0  # another gives other sides
    valid_fraction: float = 0.05  # of the records by hash, or of running text before its end
    test_fraction: float = 0.05
    train_fraction: float = 1.0  # of the rest that is used; the vocabulary is that of all of it
    augment: Literal["", "strands", "smiles"] = ""  # show other views of records that mean the same
    views: int = 0  # of each record, then; 0 = two strands, eight spellings of a molecule
    resize: int = 0  # of images: pixels that both sides are brought to; 0 = as they are
    surface: int = 1024  # of meshes (OFF, PLY): points drawn from the surface; 0 = the vertices
    max_ratio: float = 0.0  # of pairs that train: tokens of the longer side for one of the other
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
        if not 0 <= self.resize <= 1 << 14:
            raise ValueError(f"resize must be from 0 to {1 << 14}, got {self.resize}")
        if not 0 <= self.surface <= 1 << 20:
            raise ValueError(f"surface must be from 0 to {1 << 20}, got {self.surface}")
        if not 0 <= self.views <= 1000:
            raise ValueError(f"views must be from 0 to 1000, got {self.views}")
        if self.views and self.augment != "smiles":
            raise ValueError("views is for augment = 'smiles'; there are two strands, or one view")
        if self.max_ratio and not (self.max_ratio >= 1 and math.isfinite(self.max_ratio)):
            raise ValueError(f"max_ratio must be 0 (none) or at least 1, got {self.max_ratio}")


@dataclass(frozen=True, kw_only=True)
class TokensRecipe:
    """How text becomes ids."""

    kind: Literal[TextTokens, OtherTokens] = "auto"
    size: int = 0  # wanted vocabulary, specials included; 0 = the kind's default
    joint: bool = True  # of pairs: one vocabulary for both sides
    source: Literal["", "patches"] = ""  # of pairs whose sources are no text: the kind of theirs
    k: int = 0  # of kmers: bases of a word; 0 = six
    stride: int = 0  # of kmers: 1 = overlapping; 0 = k, side by side
    case: Literal["fold", "keep"] = "fold"  # of bases and residues: lower case is read as upper
    patch: int = 0  # of patches: pixels a side; 0 = by the size of the images
    samples: int = 0  # of points: how many are centres of a token; 0 = every point is
    neighbours: int = 0  # of points: how many a token has, its centre included; 0 = one
    scale: Literal["auto", "unit", "kept"] = "auto"  # of points: unit = the farthest is at 1
    strict: bool = False  # stop at the first record with an unknown symbol instead of counting it

    def __post_init__(self) -> None:
        if self.size < 0 or self.size > 1 << 20:
            raise ValueError(f"size must be from 0 to {1 << 20}, got {self.size}")
        for name, most in (("patch", 1 << 10), ("samples", 1 << 16), ("neighbours", 1 << 12)):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 0 to {most}, got {getattr(self, name)}")
        for name, kinds in TOKEN_OPTIONS.items():
            if name in self.options and self.kind not in kinds:
                raise ValueError(f"{name} is for {' and '.join(kinds)}, not for {self.kind}")

    @property
    def reads(self) -> str:
        """The kind of what a model reads: that of sources, where they have their own."""
        return self.source or self.kind

    @property
    def of_sources(self) -> TokensRecipe:
        """How sources become tokens, where they are no text."""
        return TokensRecipe(kind=self.source or self.kind, patch=self.patch)

    @property
    def options(self) -> dict[str, Any]:
        """What only this kind is told: the options that are not at their defaults."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        own = [name for name, kinds in TOKEN_OPTIONS.items() if self.source not in kinds]
        given = {name: getattr(self, name) for name in own}  # the others are for sources
        return {name: value for name, value in given.items() if value != defaults[name]}


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """Which family, which preset, how large; `config` is the family's own dataclass with all of it
    filled in.
    """

    name: str
    preset: str
    size: int  # the dial: n_layers = size, d_model = 64 · size, where those are not given
    config: Any


@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """How the model is fitted."""

    seed: int = 0
    start: str = ""  # a run whose tokenizer and weights are taken to begin with
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
    consistency: float = 0.0  # weight of R-Drop: two passes with different dropout shall agree
    balance: bool = False  # of classes: each weighs the same, however rare
    shift: float = 0.0  # of images, points: how far each is moved by chance, as a share of its side
    rotate: float = 0.0  # the same: how far it is turned, in degrees; 180 = in any way
    zoom: float = 0.0  # and by how much it is made larger or smaller, as a share
    flip: bool = False  # are half of them mirrored, left to right?
    erase: float = 0.0  # the side of a square that is covered, as a share
    colour: float = 0.0  # of images: how far brightness and contrast of each channel change
    jitter: float = 0.0  # of points: the deviation of what each is moved by
    drop: float = 0.0  # of points: the largest share that is left out
    mask: float = 0.15  # of the task masked: the share of tokens that are to be filled in
    average: int = 0  # validations at the end whose weights are averaged; 0 or 1 = none
    eval_every: int = 0  # steps between validations; 0 = up to twenty in all
    checkpoint_every: int = 0  # steps between checkpoints; 0 = as eval_every
    patience: int = 0  # validations without progress before stopping; 0 = never
    forbid: str = ""  # a file of forbidden transitions, or "unseen"
    device: str = "auto"  # auto, cpu, cuda, cuda:1
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"  # auto: bf16 on a GPU that has it
    compile: Literal["auto", "on", "off"] = "auto"  # auto: on a GPU, where it is repaid
    deterministic: bool = False  # bit-equal resumes on a GPU too; a CPU always is

    def __post_init__(self) -> None:
        least = dict.fromkeys(NOT_NEGATIVE, 0) | {"batch_tokens": 1, "micro_tokens": 1}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} must be at least {value}, got {getattr(self, name)}")
        for name in ("lr", "adam_lr", "minutes"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 < self.mask < 1:
            raise ValueError(f"mask must be above 0 and below 1, got {self.mask}")
        for name in ("momentum", "beta1", "beta2", "label_smoothing", *SHARES):
            if not 0 <= (share := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {share}")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The whole recipe."""

    task: Literal[Predicting, Answering, "vectors"] = "next"
    data: DataRecipe = field(default_factory=DataRecipe)
    tokens: TokensRecipe = field(default_factory=TokensRecipe)
    model: ModelRecipe
    train: TrainRecipe = field(default_factory=TrainRecipe)

    @property
    def family(self) -> Any:
        """The class of the model."""
        return family(self.model.name, self.task, self.tokens.reads)

    def replace(self, **sections: Mapping[str, Any]) -> Recipe:
        """A copy with some keys of some sections changed: recipe.replace(train={"steps": 100})."""
        return dataclasses.replace(
            self,
            **{
                name: dataclasses.replace(getattr(self, name), **keys)
                for name, keys in sections.items()
            },
        )


SECTIONS: dict[str, type] = {"data": DataRecipe, "tokens": TokensRecipe, "train": TrainRecipe}
MODEL_KEYS = ("name", "preset", "size")
MOST = 1 << 20  # bytes of a recipe


def build(values: Mapping[str, Any]) -> Recipe:
    """A validated recipe from nested tables as TOML gives them; UsageError names the key, the value
    and what is allowed.
    """
    check_tables(values)
    sections = {name: check(name, cls, values.get(name, {})) for name, cls in SECTIONS.items()}
    named = values.get("model", {}).get("name", "")
    task = values.get("task", task_named(str(named)) or "next")
    if task not in list(TASKS):
        raise UsageError(f"task: unknown task {task!r}; {did_you_mean(str(task), list(TASKS))}")
    kind = NUMBERED.get(sections["data"].format, sections["tokens"].reads)
    return Recipe(task=task, model=build_model(values.get("model", {}), task, kind), **sections)


def check_tables(values: Mapping[str, Any]) -> None:
    """Refuse unknown tables, what is no table, and values that no recipe can hold."""
    known = ["task", *SECTIONS, "model"]
    try:
        examine(values, largest=WHOLE, zeros=False)
    except Malformed as error:
        raise UsageError(str(error)) from None
    for key, value in values.items():
        if key not in known:
            raise UsageError(f"unknown key {key!r}; {did_you_mean(key, known)}")
        if key != "task" and not isinstance(value, Mapping):
            raise UsageError(f"{key} must be a table, got {quoted(value)}")


def build_model(values: Mapping[str, Any], task: str = "next", tokens: str = "") -> ModelRecipe:
    """Resolve name, preset and size into the family's configuration; given keys win over derived
    ones.
    """
    name = values.get("name", "transformer")
    cls = family(str(name), task, tokens)
    preset = str(values.get("preset") or next(iter(cls.PRESETS)))
    if preset not in cls.PRESETS:
        hint = did_you_mean(preset, list(cls.PRESETS))
        raise UsageError(f"model.preset: unknown preset {preset!r}; {hint}")
    options = {key: value for key, value in values.items() if key not in MODEL_KEYS}
    fields = [f.name for f in dataclasses.fields(cls.Config)]
    for key in options:
        if key not in fields:
            hint = did_you_mean(key, [*MODEL_KEYS, *fields])
            raise UsageError(f"unknown key 'model.{key}'; {hint}")
    dial = values.get("size", 4)
    if not isinstance(dial, int) or not 1 <= dial <= 1000:
        raise UsageError(f"model.size must be a whole number from 1 to 1000, got {dial!r}")
    n_layers, d_model = options.get("n_layers", dial), options.get("d_model", 64 * dial)
    for key, value in (("n_layers", n_layers), ("d_model", d_model)):
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"model.{key} must be a positive whole number, got {value!r}")
    try:
        derived = dataclasses.asdict(cls.PRESETS[preset](n_layers, d_model))
    except ValueError as error:
        raise UsageError(f"model.{error}") from None
    return ModelRecipe(
        name=name, preset=preset, size=dial, config=check("model", cls.Config, derived | options)
    )


def check(section: str, cls: type, values: Mapping[str, Any]) -> Any:
    """Validate one table against its dataclass."""
    names = [f.name for f in dataclasses.fields(cls)]
    try:
        examine(values, largest=WHOLE, zeros=False)
    except Malformed as error:
        raise UsageError(f"{section}.{error}") from None
    for key in values:
        if key not in names:
            raise UsageError(f"unknown key '{section}.{key}'; {did_you_mean(key, names)}")
    values = {
        k: [v] if k in ("train", "valid", "test", "missing") and isinstance(v, str) else v
        for k, v in values.items()
    }
    try:
        return adapter(cls).validate_python(values)
    except ValidationError as error:
        problem, where = described(error)
        raise UsageError(f"{dotted((section, *where))}: {problem}") from None


def override(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Apply dotted assignments ("train.lr=3e-4") to nested tables; values are read as TOML, else as
    plain text.
    """
    result = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        parts = path.strip().split(".")
        if not equals or len(parts) > 2 or not all(parts):
            raise UsageError(
                f"--set {assignment}: write section.key=value, as in --set train.lr=3e-4"
            )
        value = _toml_value(text)
        if len(parts) == 1:
            result[parts[0]] = value
        else:
            section = result.setdefault(parts[0], {})
            if not isinstance(section, dict):
                raise UsageError(f"--set {assignment}: {parts[0]} is not a section")
            section[parts[1]] = value
    return result


def _toml_value(text: str) -> Any:
    """What is given on the command line as TOML reads it, else as plain text."""
    try:
        values = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
        return text
    return values["x"] if values.keys() == {"x"} else text  # more where text has a line break


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML recipe, its data paths made absolute from the recipe's own folder."""
    if not path.exists():
        raise UserError(f"no recipe at {path}")
    try:
        values = tomllib.loads(read_source(path, MOST).decode())
        examine(values, largest=WHOLE, zeros=False)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError
        if isinstance(error, UserError):
            raise
        problem = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UserError(f"{path} is not valid TOML: {problem}") from None
    data = values.get("data")
    if isinstance(data, dict):
        for key in ("train", "valid", "test"):
            paths = data.get(key)
            paths = [paths] if isinstance(paths, str) else paths
            if isinstance(paths, list):
                data[key] = [str((path.parent / str(p)).resolve()) for p in paths]
        if isinstance(labels := data.get("labels"), str) and labels:
            data["labels"] = str((path.parent / labels).resolve())
        if data.get("format") in list(NUMBERED) and isinstance(target := data.get("target"), str):
            beside = (path.parent / target).resolve()  # a file of labels, or the name of a column
            data["target"] = str(beside) if beside.is_file() else target
    train = values.get("train")
    if isinstance(train, dict) and isinstance(start := train.get("start"), str) and start:
        train["start"] = str((path.parent / start).resolve())
    return values


def tables(recipe: Recipe) -> dict[str, Any]:
    """The recipe as nested tables; `build(tables(recipe)) == recipe`."""
    model = recipe.model
    return {
        "task": recipe.task,
        "data": {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in dataclasses.asdict(recipe.data).items()
        },
        "tokens": dataclasses.asdict(recipe.tokens),
        "model": {"name": model.name, "preset": model.preset, "size": model.size}
        | dataclasses.asdict(model.config),
        "train": dataclasses.asdict(recipe.train),
    }


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML, every key written out."""
    lines: list[str] = []
    for key, value in tables(recipe).items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *(f"{k} = {toml_value(v)}" for k, v in value.items())]
        else:
            lines.append(f"{key} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """One value as TOML writes it; JSON's spelling of strings, numbers, booleans and lists is
    TOML's too.
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return json.dumps(value)
