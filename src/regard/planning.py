"""From files and settings to the recipe of a run.

`plan_recipe` fills in what is left open: what is read, the task, the tokenizer, the model and its
size. `plan_both` plans two stages: a masked language model, then its fine-tuning for labels or
values. The first run, in OUT/pretrained, predicts masked tokens; the second starts from it
(`train.init_from`). Both have the same tokenizer and the same encoder, and each has half of the
minutes. If both read the same labelled file, they hold out the same records. `plan_run` chooses
between the two and names the run folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from regard.data.sources import DataSource, recognize_modality
from regard.data.table_columns import column_like, complete_data
from regard.data.task_inference import infer_task, task_of_model
from regard.errors import UsageError, UserError, did_you_mean
from regard.interop import export_refusal
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
)
from regard.recipe import tables as tables_of
from regard.registry import MODALITIES, MODELS, TABLES, TASKS
from regard.run import CONFIG, METADATA, RECIPE
from regard.run_folders import RUNS
from regard.training.checkpoint import PRETRAINED, inherit
from regard.training.defaults import (
    AFTER_PRETRAINING,
    REFERENCE,
    UNLABELLED,
    fill_defaults,
    fill_gentle_rates,
)
from regard.training.progress import Reporter

Paths = Sequence[str | Path]


def plan_recipe(
    paths: Paths,
    *,
    assignments: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    modality: str = "",
    **tables: Any,
) -> tuple[Recipe, list[str]]:
    """Return a complete recipe from a TOML file, data files, or both, and lines that explain the
    defaults that were chosen.

    Data files replace all files that the TOML file names, including validation and test files.
    `tables` (task=, data=, input=, output=, model=, augment=, train=) and then `assignments`
    ("train.lr=3e-4") override the TOML file. `options` ({"tokenizer": "bpe"}) are settings of the
    task or of the modalities; each goes into the table that has it. `modality` names what is read,
    which the files decide by default.
    """
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
        named = {"name": modality} if modality else {}
        settings = {**values.get("input", {}), **(options or {}), **named}
        inferred = infer_task(data, model, settings)
        name, lines = inferred.task, lines + ([inferred.line] if inferred.line else [])
    values["task"] = {**values.get("task", {}), "name": name}
    values = add_options(add_modality(values, data, modality), options or {})
    values = absolute_paths(values, Path.cwd())  # paths among the options, such as --forbid
    values = {k: v for k, v in inherit(values).items() if v}
    build(values)
    complete, more = fill_defaults(values)
    recipe = build(complete)
    return recipe, [*lines, *more, *export_note(recipe)]


def export_note(recipe: Recipe) -> list[str]:
    """Return a line if the model was chosen by its name and cannot be exported as it is."""
    chosen = recipe.model
    if chosen.choose:
        return []
    family = MODELS.get(chosen.name, recipe.task.name, recipe.reads)
    refusal = export_refusal(family, chosen.config)
    return [f"note: {refusal} (only `regard export` needs it)"] if refusal else []


def task_of(options: Mapping[str, Any]) -> str:
    """Return the task that one of the options is made for, or ""."""
    return next((name for name in TASKS if set(TASKS[name].own_options) & set(options)), "")


def add_modality(values: dict[str, Any], data: DataRecipe, modality: str) -> dict[str, Any]:
    """Return the tables with the modality of what is read, recognized from the files if not given:
    that of the input, or of the output of tasks that have no other.
    """
    name = values["task"]["name"]
    if name not in TASKS:
        raise UsageError(f"task.name: unknown task {name!r}; {did_you_mean(name, list(TASKS))}")
    role = TASKS[name].roles.encoded[0]
    table = {**values.get(role, {}), **({"name": modality} if modality else {})}
    input_name = table.get("name") or recognize_modality(data, TASKS[name].roles)
    if input_name == "text" and name not in MODALITIES[input_name].tasks():
        # not recognized: what the task can read
        input_name = next(one for one in MODALITIES if name in MODALITIES[one].tasks())
    if input_name == "text" and "name" not in table:
        return values  # the tokenizer may name another modality of texts
    cls = MODALITIES[input_name]
    allowed = cls.tasks()
    if name not in allowed:
        items = cls.words[1]
        raise UsageError(f"task: {items} are for {', '.join(allowed)}, got {name!r}")
    return values | {role: {**table, "name": input_name}}


def add_options(values: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables with each option added to those that have a setting of that name."""
    task = TASKS[values["task"]["name"]]
    tokenizer = {key: options[key] for key in ("tokenizer",) if key in options}
    classes = {"task": task} | {
        role: MODALITIES[modality_name({**tokenizer, **values.get(role, {})})]
        for role in task.roles.encoded
    }
    names = {table: settings_of(cls) for table, cls in classes.items()}
    result = {table: dict(keys) for table, keys in values.items()}
    for key in options:
        if not any(key in known for known in names.values()):
            read = " and ".join(cls.name for table, cls in classes.items() if table != "task")
            hint = did_you_mean(key, [name for known in names.values() for name in known])
            raise UsageError(f"no setting {key!r} for task {task.name} of {read}; {hint}")
    for table, cls in classes.items():
        given = {key: value for key, value in options.items() if key in names[table]}
        if given:  # some settings are for one tokenizer only, so that they are checked together
            chosen = {
                key: values[table][key] for key in ("tokenizer",) if key in values.get(table, {})
            }
            checked = check(table, cls.Config, {**chosen, **given})
            result.setdefault(table, {}).update({key: getattr(checked, key) for key in given})
    return result


def settings_of(cls: Any) -> list[str]:
    """Return the settings of a task or modality."""
    return [field.name for field in fields(cls.Config) if field.name != "name"]


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
    paths: Paths,
    file: Path,
    out: Path,
    *,
    assignments: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    modality: str = "",
    **tables: Any,
) -> tuple[Recipe | None, Recipe, list[str]]:
    """Return the recipe of pre-training on `file`, the recipe for `paths`, and lines that explain
    the defaults. If `file` is a run folder, training starts from it, and there is no first recipe.

    If no model is given, one that starts from the pre-trained one is tried beside others.
    """
    planned = partial(plan_recipe, paths, modality=modality)
    chooses = not any((tables.get("model") or {}).values())
    if (file / CONFIG).exists():
        start = {**tables.get("train", {}), "init_from": str(file.resolve())}
        both = {**tables, "train": start}
        recipe, lines = planned(assignments=assignments, options=options, **both)
        return None, tried(check_pretrainable(recipe), chooses), lines
    settings, assignments, options = separate_settings(assignments, options or {})
    tables["model"] = {"name": REFERENCE, **{k: v for k, v in tables.get("model", {}).items() if v}}
    recipe, lines = planned(assignments=assignments, options=options, **tables)
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
    assignments: Sequence[str], options: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """Return the settings of pre-training tasks, such as --mask, and the other assignments and
    options.
    """
    tasks = {task.pretrains_with for task in TASKS.values()} - {""}
    names = {setting for name in tasks for setting in settings_of(TASKS[name])}
    prefixes = tuple(f"task.{name}=" for name in names)
    taken = [one for one in assignments if one.startswith(prefixes)]
    given = {key: value for key, value in options.items() if key in names}
    return (
        override({"task": given}, taken)["task"],
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


def plan_run(
    files: Sequence[Path],
    out: Path | None,
    tables: Mapping[str, Mapping[str, Any]],
    *,
    assignments: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    modality: str = "",
    pretrain: Path | None = None,
    resume: bool = False,
    reporter: Reporter,
) -> tuple[dict[str, Any] | None, dict[str, Any], str]:
    """Return the tables of the recipe of pre-training, if there is one, the tables of the recipe
    and the run folder, by default runs/NAME. A run that is resumed has stored them.
    """
    options = options or {}
    if len(files) == 1 and (files[0] / RECIPE).exists():  # a run
        if not resume:
            raise UserError(
                f"{files[0]} is a run: --resume goes on with it; or give your own files"
            )
        out = out or files[0]
    if resume and out is not None and (out / RECIPE).exists():
        if assignments or options or any(v for keys in tables.values() for v in keys.values()):
            reporter.warn(f"{out / RECIPE} decides: other options do not change a run that goes on")
        first = stored(out)
        recipe = build(read(out / RECIPE))
        return (tables_of(first) if first else None), tables_of(recipe), str(out)
    settings: Any = {"assignments": assignments, "options": options, "modality": modality, **tables}
    first, name = None, tables.get("model", {}).get("name") or ""
    if pretrain is None:
        recipe, lines = plan_recipe(files, **settings)
        name = "" if recipe.model.choose else recipe.model.name
        pretrain = unlabelled_file(recipe, reporter.say)
    folder = out or default_folder(files[0], name, resume)
    if pretrain is not None:
        first, recipe, lines = plan_both(files, pretrain, folder, **settings)
    for line in lines:
        reporter.say(line)
    return (tables_of(first) if first else None), tables_of(recipe), str(folder)


def default_folder(file: Path, model: str, resume: bool, parent: Path = Path(RUNS)) -> Path:
    """Return runs/NAME-MODEL, or runs/NAME if the model is chosen on validation, with a number if
    it exists; to resume, the last that exists.
    """
    name = file.resolve().name.split(".")[0]
    base = parent / (f"{name}-{model}" if model else name)
    folder, number = base, 1
    while folder.exists():
        number += 1
        latest, folder = folder, base.with_name(f"{base.name}-{number}")
        if resume and not folder.exists():
            return latest
    return folder
