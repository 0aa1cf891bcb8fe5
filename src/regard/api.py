"""The functions of the library: plan a recipe, train it, compare models, load a run.

The command line calls these functions.

`train_both` trains a masked language model, then fine-tunes it for labels or values. The first run,
in OUT/pretrained, predicts masked tokens; the second starts from it (`train.init_from`). Both have
the same tokenizer and the same encoder, and each has half of the minutes. If both read the same
labelled file, they hold out the same records.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from regard.data.corpus import prepare
from regard.data.sources import DataSource, recognize_modality
from regard.data.table_columns import column_like, complete_data
from regard.data.task_inference import infer_task, task_of_model
from regard.errors import UsageError, UserError, did_you_mean
from regard.evaluation.comparison import Comparison
from regard.evaluation.eval_data import shard_of
from regard.look.comparison_page import Strip, comparison_page
from regard.pipelines import is_path, load, one_or_many
from regard.pipelines.generator import Continuation, Generator, continuations
from regard.pipelines.predictor import Predictor
from regard.pipelines.translator import Translation, Translator
from regard.pipelines.word_vectors import WordVectors
from regard.recipe import (
    SPLITS,
    DataRecipe,
    Recipe,
    TrainRecipe,
    absolute_paths,
    build,
    check,
    check_tables,
    modality_name,
    override,
    read,
    task_name,
    to_toml,
)
from regard.recipe import tables as tables_of
from regard.registry import MODALITIES, MODELS, TABLES, TASKS
from regard.run import CONFIG, METADATA, RECIPE
from regard.storage import write_json, write_text
from regard.training.checkpoint import PRETRAINED, inherit
from regard.training.comparison_runs import (
    CLOSING,
    FRACTIONS,
    PER_ROW,
    ComparisonRun,
    ProgressTable,
    RunResult,
    build_comparison,
    comparison_run,
    default_models,
    folds_of,
    match_parameters,
    run_result,
    train_all,
)
from regard.training.defaults import (
    AFTER_PRETRAINING,
    REFERENCE,
    TIMED,
    UNLABELLED,
    fill_defaults,
    fill_gentle_rates,
)
from regard.training.distributed import ProcessGroup, joined
from regard.training.progress import Reporter
from regard.training.selection import Selection
from regard.training.trainer import Session, TrainResult, context, evaluate_and_write

__all__ = [
    "ComparisonResult",
    "Continuation",
    "Generator",
    "Predictor",
    "TrainResult",
    "Translation",
    "Translator",
    "WordVectors",
    "compare",
    "continuations",
    "load",
    "plan",
    "shard_of",
    "train",
]


def plan(
    source: str | Path | Sequence[str | Path],
    *,
    assignments: str | Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    **tables: Mapping[str, Any],
) -> tuple[Recipe, list[str]]:
    """Return a complete recipe from a TOML file, data files, or both, and lines that explain the
    defaults that were chosen.

    Data files replace all files that the TOML file names, including validation and test files.
    `tables` (task=, data=, input=, output=, model=, augment=, train=) and then `assignments`
    ("train.lr=3e-4") override the TOML file. `options` ({"tokenizer": "bpe"}) are settings of the
    task or of the modalities; each goes into the table that has it.
    """
    paths = one_or_many("source", source, is_path, "a str or Path")[0]
    assignments = one_or_many("assignments", assignments)[0]
    recipes = [Path(path) for path in paths if Path(path).suffix == ".toml"]
    files = [str(Path(path).resolve()) for path in paths if Path(path) not in recipes]
    if len(recipes) > 1:
        raise UsageError(f"give one recipe.toml, got {' and '.join(map(str, recipes))}")
    try:
        values = read(recipes[0]) if recipes else {}
    except OSError as error:
        raise UserError(f"cannot read {recipes[0]}: {error.strerror}") from None
    check_tables(values)
    if files:
        others = {k: v for k, v in values.get("data", {}).items() if k not in SPLITS}
        values["data"] = {**others, "train": files}
    for section, keys in tables.items():
        filled = {k: v for k, v in keys.items() if v not in (None, (), [])}
        values[section] = {**values.get(section, {}), **filled}
    values = override(values, assignments)
    check_tables(values)
    data = check("data", DataRecipe, values.get("data", {}))
    check("train", TrainRecipe, values.get("train", {}))
    if not data.train:
        raise UserError("data.train names no file")
    values = absolute_paths({k: dict(v) for k, v in values.items()}, Path.cwd())
    data = check("data", DataRecipe, values.get("data", {}))
    model = str(values.get("model", {}).get("name", ""))
    name = task_name(values) or task_of(options or {})
    chosen, lines = complete_data(data, name or task_of_model(model))
    values["data"] |= chosen
    data = check("data", DataRecipe, values["data"])
    if not name:
        settings = {**values.get("input", {}), **(options or {})}
        inferred = infer_task(data, model, settings)
        name, lines = inferred.task, lines + ([inferred.line] if inferred.line else [])
    values["task"] = {**values.get("task", {}), "name": name}
    values = add_options(add_modality(values, data), options or {})
    values = absolute_paths(values, Path.cwd())  # paths among the options, such as --forbid
    values = {k: v for k, v in inherit(values).items() if v}
    build(values)
    complete, more = fill_defaults(values)
    return build(complete), lines + more


def task_of(options: Mapping[str, str]) -> str:
    """Return the task that one of the options is made for, or ""."""
    return next((name for name in TASKS if set(TASKS[name].own_options) & set(options)), "")


def add_modality(values: dict[str, Any], data: DataRecipe) -> dict[str, Any]:
    """Return the tables with the modality of what is read, recognized from the files if not given:
    that of the input, or of the output of tasks that have no other.
    """
    name = values["task"]["name"]
    if name not in TASKS:
        raise UsageError(f"task.name: unknown task {name!r}; {did_you_mean(name, list(TASKS))}")
    role = TASKS[name].roles.encoded[0]
    table = values.get(role, {})
    input_name = table.get("name") or recognize_modality(data, TASKS[name].roles)
    if input_name == "text" and name not in MODALITIES[input_name].tasks():
        # not recognized: what the task can read
        input_name = next(one for one in MODALITIES if name in MODALITIES[one].tasks())
    if input_name == "text" and "name" not in table:
        return values  # the tokenizer may name another modality of texts
    modality = MODALITIES[input_name]
    allowed = modality.tasks()
    if name not in allowed:
        items = modality.words[1]
        raise UsageError(f"task: {items} are for {', '.join(allowed)}, got {name!r}")
    return values | {role: {**table, "name": input_name}}


def add_options(values: dict[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables with each option added to those that have a setting of that name."""
    task = TASKS[values["task"]["name"]]
    tokenizer = {key: options[key] for key in ("tokenizer",) if key in options}
    classes = {"task": task} | {
        role: MODALITIES[modality_name({**tokenizer, **values.get(role, {})})]
        for role in task.roles.encoded
    }
    fields = {
        table: [f.name for f in dataclasses.fields(cls.Config) if f.name != "name"]
        for table, cls in classes.items()
    }
    assignments = []
    for key, text in options.items():
        owners = [table for table, names in fields.items() if key in names]
        if not owners:
            known = [f"--{name.replace('_', '-')}" for names in fields.values() for name in names]
            option = f"--{key.replace('_', '-')}"
            raise UsageError(f"no such option: {option}; {did_you_mean(option, known)}")
        assignments += [f"{table}.{key}={text}" for table in owners]
    return override(values, assignments)


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    began: float | None = None,
    world: ProcessGroup | None = None,
) -> TrainResult:
    """Train the model of a recipe into the run folder `out`; with `resume`, continue a stopped run.

    `began` (time.monotonic) is when the time of train.minutes started; by default now. `world` is
    the process group to train in, as `joined` yields it; by default the processes that torchrun
    started. Only the first process evaluates the model: the metrics of the others are empty.
    """
    began = time.monotonic() if began is None else began
    if world is None:
        with joined() as world:
            return train(recipe, out, resume=resume, reporter=reporter, began=began, world=world)
    reporter = world.reporter(reporter or Reporter(quiet=True))
    if recipe.model.choose and world.size == 1:
        return Selection(Path(out), resume, reporter, began).fit(recipe)
    outcome = Session(Path(out), resume, reporter, began, world).fit(recipe)
    return world.together(lambda: evaluate_and_write(Path(out), outcome, measures=world.first))


def rehearse(recipe: Recipe, reporter: Reporter | None = None) -> None:
    """Print what training a recipe would do, with its memory and time; nothing is kept."""
    reporter, began = reporter or Reporter(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        corpus = Session(run, False, reporter, began).rehearse(recipe)
        if recipe.model.choose:
            Selection(run, False, reporter, began).rows(corpus, recipe)


@dataclass(frozen=True)
class ComparisonResult:
    """The result of `compare`: the table, the bits of one text by model, and the folder."""

    comparison: Comparison
    strip: Strip | None
    folder: Path


def compare(
    source: str | Path | Sequence[str | Path],
    *,
    models: str | Sequence[str] = (),
    minutes: float = 10.0,
    seeds: int = 1,
    folds: int = 0,
    scaling: bool = False,
    out: str | Path | None = None,
    assignments: str | Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    task: str = "",
    data: Mapping[str, Any] | None = None,
    transformer: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    began: float | None = None,
) -> ComparisonResult:
    """Train every model on the same split, each in its own process, and compare them in a table.

    Neural models have as many parameters as the default Transformer for the data, or as the one
    given by `transformer` (n_layers, d_model, …), and share `minutes`. With `folds`, labelled
    records are cross-validated; -1 leaves one out at a time. A comparison that was stopped is
    completed in its folder. `minutes` include everything since `began` (time.monotonic; by default
    now); models for which there is no time are left out.
    """
    began = time.monotonic() if began is None else began
    reporter = reporter or Reporter(quiet=True)
    source = one_or_many("source", source, is_path, "a str or Path")[0]
    models = one_or_many("models", models)[0]
    folder = Path(out or Path("runs") / f"{Path(source[0]).stem}-compare")
    planned = partial(
        plan,
        source,
        assignments=assignments,
        options=options,
        task={"name": task or None},
        data={**(data or {}), **({"folds": folds} if folds else {})},
        model={"name": REFERENCE, **(transformer or {})},
    )
    recipe, lines = plan_for_rows(planned, models, minutes / seeds)
    check_comparison(recipe, models, scaling)
    for line in lines[:-1]:  # the last is about one model
        reporter.say(line)
    runs = plan_runs(recipe, models, folder, seeds, scaling, reporter)
    results: dict[Path, RunResult] = {}
    end = began + minutes * 60 - CLOSING - PER_ROW * len({run.model for run in runs})

    def evaluate(run: ComparisonRun) -> None:
        results[run.run] = run_result(run, folder)

    with ProgressTable(reporter, runs) as progress:
        trained = train_all(runs, end, folder, progress, judge=evaluate, warn=reporter.warn)
    missing = dict.fromkeys(run.row.name for run in runs if run not in trained)
    comparison = build_comparison(trained, folder, results, left_out=list(missing))
    strip = surprise(comparison)
    page = comparison_page(comparison, title=f"{Path(source[0]).name} compared", strip=strip)
    page.write(folder / "compare.html")
    write_text(folder / "compare.md", comparison.to_markdown())
    write_json(folder / "compare.json", comparison.to_json())
    return ComparisonResult(comparison, strip, folder)


def plan_for_rows(
    planned: Callable[..., tuple[Recipe, list[str]]], models: Sequence[str], minutes: float
) -> tuple[Recipe, list[str]]:
    """Return a recipe and its lines for rows that share the minutes: networks are as large as their
    share allows.
    """
    recipe, lines = planned()
    if recipe.train.steps:
        return recipe, lines
    task, kind = recipe.task.name, recipe.reads
    names = models or MODELS.names(task, kind)
    networks = sum(MODELS.get(name, task, kind).loop in TIMED for name in names)
    return planned(train={"minutes": minutes / max(1, networks)})


def check_comparison(recipe: Recipe, models: Sequence[str], scaling: bool) -> None:
    """Raise a UsageError if models cannot be compared on a recipe."""
    task = recipe.build_task()
    if not task.compares:
        raise UsageError(
            f"compare: task {task.name} has no table of models; `regard evaluate` has --against"
        )
    if recipe.data.folds and not task.roles.labels:
        raise UsageError(
            f"data.folds is for labelled records; task {task.name} is compared on one split"
        )
    if scaling and recipe.data.folds:
        raise UsageError("--scaling and --folds answer different questions: ask one at a time")
    for name in models:
        MODELS.get(name, task.name, recipe.reads)  # raises if the model is unknown


def plan_runs(
    recipe: Recipe,
    models: Sequence[str],
    folder: Path,
    seeds: int,
    scaling: bool,
    reporter: Reporter,
) -> list[ComparisonRun]:
    """Prepare the data in a folder; return the runs to compare."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = prepare(recipe, folder, reporter.say)
    for line in (*corpus.warnings, *corpus.truncation_warnings(context(recipe.model.config))):
        reporter.warn(line)
    rows = models or default_models(recipe, corpus, reporter.say)
    recipes = match_parameters(recipe, rows, corpus, None if models else reporter.say)
    parts = range(folds_of(recipe))
    runs = [
        comparison_run(recipe, folder, seed, fold=fold)
        for seed in range(seeds)
        for recipe in recipes
        for fold in parts
    ]
    if scaling:
        runs += [
            comparison_run(recipe, folder, 0, part) for part in FRACTIONS for recipe in recipes
        ]
    return runs


def surprise(comparison: Comparison, most: int = 60) -> Strip | None:
    """Return the bits of each symbol of one held-out text, by model; None if models predict labels
    or values, or have other tokens.
    """
    if comparison.rows[0].predictions is not None:
        return None
    rows: list[tuple[str, list[float]]] = []
    tokens: list[str] = []
    example = load(comparison.rows[0].runs[0]).example(most)
    for row in comparison.rows:
        tokens, log_probs = load(row.runs[0]).score_example(example)
        rows.append((row.model, [-x / math.log(2) for x in log_probs[:most]]))
    return (tokens[:most], rows) if len({len(bits) for _, bits in rows}) == 1 else None


DROPOUT = 0.1  # at most, in pre-training: random masks regularize enough
# Settings of supervised training that pre-training does not use.
UNUSED = {
    "label_smoothing": 0.0,
    "r_drop": 0.0,
    "class_weights": False,
    "patience": 0,
    "average_last": 0,
}


def plan_both(
    source: Sequence[str | Path],
    file: Path,
    out: Path,
    *,
    assignments: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    **tables: Mapping[str, Any],
) -> tuple[Recipe | None, Recipe, list[str]]:
    """Return the recipe of pre-training on `file`, the recipe for `source`, and lines that explain
    the defaults. If `file` is a run folder, training starts from it, and there is no first recipe.

    If no model is given, one that starts from the pre-trained one is tried beside others.
    """
    chooses = not any((tables.get("model") or {}).values())
    if (file / CONFIG).exists():
        start = {**tables.get("train", {}), "init_from": str(file.resolve())}
        recipe, lines = plan(
            source, assignments=assignments, options=options, **{**tables, "train": start}
        )
        return None, tried(check_pretrainable(recipe), chooses), lines
    settings, assignments, options = separate_settings(assignments, options or {})
    tables["model"] = {"name": REFERENCE, **{k: v for k, v in tables.get("model", {}).items() if v}}
    recipe, lines = plan(source, assignments=assignments, options=options, **tables)
    check_pretrainable(recipe)
    if recipe.train.init_from:
        raise UsageError("--pretrain and train.init_from both say where to begin: give one of them")
    if reads_all_rows(recipe, file):  # the same rows must be held out of both stages
        recipe = recipe.replace(data={"split": "random"})
    first = pretraining_recipe(recipe, file, settings)
    half = recipe.train.minutes / 2
    train = {"init_from": str((out / PRETRAINED).resolve()), "minutes": half}
    given = {key for key in tables.get("train") or {} if tables["train"][key] is not None}
    given |= {one.partition("=")[0].removeprefix("train.") for one in assignments}
    gentle: dict[str, Any] = dict.fromkeys(given)
    fill_gentle_rates(gentle, AFTER_PRETRAINING)
    train |= {key: value for key, value in gentle.items() if key not in given}
    recipe = tried(recipe.replace(train=train), chooses)
    spent = "" if recipe.train.steps else f", {half:g} minutes each"
    lines.append(f"pre-training on {file} first, in {out / PRETRAINED}{spent}")
    return first, recipe, lines


def tried(recipe: Recipe, chooses: bool) -> Recipe:
    """Return a recipe whose model is tried beside others, if nothing is said of a model."""
    timed = not recipe.train.steps and recipe.build_task().compares
    return recipe.replace(model={"choose": (recipe.model.name,)}) if chooses and timed else recipe


def unlabelled_file(recipe: Recipe, log: Callable[[str], None]) -> Path | None:
    """Return the file of a recipe if most of its rows have no target, so that a masked language
    model of all rows may help; it is logged. None if nothing is to be chosen.
    """
    if not recipe.model.choose or not recipe.build_task().pretrains_with:
        return None
    source = DataSource.of(recipe).train
    if len(recipe.data.train) > 1 or not recipe.data.target or source.format not in TABLES:
        return None
    labelled = sum(len(chunk.texts) for chunk in source.records())
    without = source.without_target
    if without < UNLABELLED * labelled:
        return None
    log(
        f"{without:,} of {without + labelled:,} rows have no {recipe.data.target!r}: a model that "
        "fills in masked tokens of all rows is trained first, and tried as a start"
    )
    return Path(recipe.data.train[0])


def separate_settings(
    assignments: Sequence[str], options: Mapping[str, str]
) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """Return the settings of pre-training tasks, such as --mask, and the other assignments and
    options.
    """
    tasks = {task.pretrains_with for task in TASKS.values()} - {""}
    names = {field.name for name in tasks for field in fields(TASKS[name].Config)} - {"name"}
    prefixes = tuple(f"task.{name}=" for name in names)
    taken = [one for one in assignments if one.startswith(prefixes)]
    taken += [f"task.{key}={value}" for key, value in options.items() if key in names]
    return (
        override({"task": {}}, taken)["task"],
        [one for one in assignments if one not in taken],
        {key: value for key, value in options.items() if key not in names},
    )


def check_pretrainable(recipe: Recipe) -> Recipe:
    """Return the recipe; raise a UsageError if its model cannot start from a pretrained one."""
    task = recipe.build_task()
    if not task.pretrains_with:
        raise UsageError(f"--pretrain is for labels and values, and this is of task {task.name}")
    models = MODELS.names(task.pretrains_with, recipe.reads)
    if recipe.model.name not in models:
        raise UsageError(f"--pretrain is for {', '.join(models)}, not {recipe.model.name}")
    return recipe


def pretraining_recipe(recipe: Recipe, file: Path, settings: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a masked language model of a file, for `recipe` to start from."""
    if not file.exists():
        raise UserError(f"--pretrain: no file or run folder at {file}")
    values = tables_of(recipe)
    if str(file.resolve()) not in recipe.data.train:
        train = [str(file.resolve())]
        column = column_like(DataRecipe(train=tuple(train)), DataSource.of(recipe).train)
        values["data"] = {"train": train, "input": column}
    elif reads_all_rows(recipe, file):
        for key in ("target", "pattern", "positive"):
            values["data"].pop(key)
    model = values["model"]
    for key in ("task", "n_outputs", "pooling", "pooler", "tied"):
        model.pop(key)
    model["dropout"] = min(model["dropout"], DROPOUT)
    values["train"] |= UNUSED | {"minutes": recipe.train.minutes / 2}
    values.pop("augment", None)
    return build(values | {"task": {"name": recipe.build_task().pretrains_with, **settings}})


def reads_all_rows(recipe: Recipe, file: Path) -> bool:
    """Return whether pre-training on the file of a recipe reads rows without a target too: the
    split of a row can then follow from its text alone.
    """
    data = recipe.data
    by_text = not (data.labels or data.group or data.folds or data.split not in ("", "random"))
    return by_text and str(file.resolve()) in data.train and bool(data.target)


def stored(out: Path) -> Recipe | None:
    """Return the recipe of pre-training of a run that is resumed, if it is not finished."""
    inner = out / PRETRAINED
    if (inner / METADATA).exists() or not (inner / RECIPE).exists():
        return None
    return build(read(inner / RECIPE))


def train_both(
    first: Recipe | None,
    recipe: Recipe,
    out: Path,
    *,
    resume: bool,
    reporter: Reporter,
    began: float,
    world: ProcessGroup,
) -> TrainResult:
    """Train both recipes, or the rest of them; return the first result if it was interrupted."""
    if first is None:
        return train(recipe, out, resume=resume, reporter=reporter, began=began, world=world)
    inner = out / PRETRAINED
    world.on_rank0(lambda: write_recipe(recipe, out, resume))
    try:
        result = train(first, inner, resume=resume, reporter=reporter, began=began, world=world)
    except Exception:
        if world.first and not inner.exists():  # an error before training: leave nothing behind
            (out / RECIPE).unlink(missing_ok=True)
            out.rmdir()
        raise
    if result.outcome == "interrupted":
        return result
    metrics = ", ".join(
        f"{name.replace('_', ' ')} {metric}"
        for name, metric in result.figures.get("valid", {}).items()
    )
    reporter.say(
        f"pre-training ended after {result.steps:,} steps: {metrics or 'nothing was held out'}"
    )
    now = time.monotonic()
    return train(recipe, out, resume=True, reporter=reporter, began=now, world=world)


def write_recipe(recipe: Recipe, out: Path, resume: bool) -> None:
    """Write the recipe of the outer run before the inner one starts, so that both can resume."""
    if resume and (out / RECIPE).exists():
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not empty: add --resume to go on, or choose another")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {out}: {error.strerror}") from None
    write_text(out / RECIPE, to_toml(recipe))
