"""The functions of the library: train, compare, evaluate and load models, from files or from data
in memory.

The command line calls the functions below those: `train_recipe`, `train_both`, `compare_files`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from regard.bundled.examples import write_example as example
from regard.data.corpus import prepare
from regard.data.in_memory import paths_of, read_table, write_tables
from regard.data.inputs import quiet
from regard.errors import UsageError, UserError
from regard.evaluation import Metric
from regard.evaluation.comparison import Comparison
from regard.evaluation.eval_data import shard_of
from regard.interop.hugging_face import export_hf, import_hf
from regard.interop.word2vec_format import export_vec, import_vec
from regard.keywords import (
    NO_SETTINGS,
    Columns,
    DataInput,
    Keywords,
    Out,
    Settings,
    check_settings,
    join_columns,
    recipe_tables,
)
from regard.look.comparison_page import comparison_page
from regard.look.page import Page
from regard.look.surprise_page import Strip, surprise_of
from regard.pipelines import Evaluation, EvaluationRequest, Pipeline, load
from regard.pipelines.forecaster import Forecaster
from regard.pipelines.generator import Continuation, Generator
from regard.pipelines.masked_predictor import MaskedPredictor
from regard.pipelines.matcher import Matcher
from regard.pipelines.predictor import Predictor
from regard.pipelines.translator import Translation, Translator
from regard.pipelines.word_vectors import WordVectors
from regard.planning import plan_recipe, plan_run
from regard.recipe import Recipe, build, parse_value, to_toml
from regard.registry import MODELS, TASKS
from regard.run import RECIPE, Run, refuse_used
from regard.storage import write_json, write_text
from regard.tasks import LookRequest
from regard.training.checkpoint import PRETRAINED
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
from regard.training.defaults import REFERENCE, TIMED
from regard.training.distributed import ProcessGroup, joined
from regard.training.launcher import Launcher
from regard.training.progress import Reporter
from regard.training.selection import Selection
from regard.training.trainer import Session, TrainResult, context, evaluate_and_write

__all__ = [
    "ComparisonResult",
    "Continuation",
    "Evaluation",
    "Forecaster",
    "Generator",
    "MaskedPredictor",
    "Matcher",
    "Metric",
    "Pipeline",
    "Predictor",
    "Recipe",
    "TrainResult",
    "Translation",
    "Translator",
    "WordVectors",
    "compare",
    "evaluate",
    "example",
    "export",
    "import_model",
    "load",
    "look_at",
    "plan",
    "shard_of",
    "train",
    "train_recipe",
]


def as_reporter(progress: bool | Reporter) -> Reporter:
    """Return a reporter that prints progress, or only warnings; one that is given is returned."""
    return Reporter(quiet=not progress) if isinstance(progress, bool) else progress


def plan(
    source: str | Path | Sequence[str | Path],
    *,
    target: Columns = "",
    input: Columns = "",
    task: str = "",
    model: str | Settings = "",
    modality: str = "",
    minutes: float | None = None,
    valid: str | Path | Sequence[str | Path] | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    data: Settings = NO_SETTINGS,
    train: Settings = NO_SETTINGS,
    augment: Settings = NO_SETTINGS,
    **settings: Any,
) -> tuple[Recipe, list[str]]:
    """Return the recipe that `train` would use for files, and lines that explain its defaults; the
    keywords are those of `train`. `train_recipe` trains it.
    """
    if paths_of(source) is None:
        raise TypeError("plan reads files: source must be a path, or a list of paths that exist")
    train = {"minutes": minutes, **train}
    tables = recipe_tables(target, input, task, model, data=data, train=train, augment=augment)
    with DataInput(source, None, valid, test, modality).files(None, False, tables) as files:
        given: Any = {"options": check_settings(settings), "modality": modality, **files.tables}
        return plan_recipe(files.paths, **given)


Predicts = Literal["label", "labels", "value", "position-label"]


@overload
def train(
    source: Any, out: Out = ..., *, task: Predicts, **keywords: Unpack[Keywords]
) -> TrainResult[Predictor]: ...


@overload
def train(
    source: Any, out: Out = ..., *, task: Literal["next"], **keywords: Unpack[Keywords]
) -> TrainResult[Generator]: ...


@overload
def train(
    source: Any, out: Out = ..., *, task: Literal["target"], **keywords: Unpack[Keywords]
) -> TrainResult[Translator]: ...


@overload
def train(
    source: Any, out: Out = ..., *, task: Literal["contrastive"], **keywords: Unpack[Keywords]
) -> TrainResult[Matcher]: ...


@overload
def train(
    source: Any, out: Out = ..., *, task: Literal["masked"], **keywords: Unpack[Keywords]
) -> TrainResult[MaskedPredictor]: ...


@overload
def train(
    source: Any, out: Out = ..., *, task: Literal["vectors"], **keywords: Unpack[Keywords]
) -> TrainResult[WordVectors]: ...


@overload
def train(
    source: Any, out: Out = ..., *, task: Literal["forecast"], **keywords: Unpack[Keywords]
) -> TrainResult[Forecaster]: ...


@overload
def train(
    source: Any, out: Out = ..., *, task: str = ..., **keywords: Unpack[Keywords]
) -> TrainResult[Any]: ...


def train(
    source: Any,
    out: Out = None,
    *,
    y: Any = None,
    target: Columns = "",
    input: Columns = "",
    task: str = "",
    model: str | Settings = "",
    modality: str = "",
    minutes: float | None = None,
    valid: Any = None,
    test: Any = None,
    seed: int | None = None,
    device: str = "",
    data: Settings = NO_SETTINGS,
    train: Settings = NO_SETTINGS,
    augment: Settings = NO_SETTINGS,
    pretrain: str | Path | None = None,
    resume: bool = False,
    progress: bool | Reporter = True,
    **settings: Any,
) -> TrainResult[Any]:
    """Train a model on files or on data in memory, into the run folder `out` (default runs/NAME).

    `source` is a path, a list of paths, a recipe.toml, a run folder to `resume`, or data: a frame
    of pandas or polars, a `datasets.Dataset`, a map-style data set of torch, an array, or a list of
    texts, of items, of (input, target), of dictionaries. An array of three or four axes holds
    images, one of two axes a series in each row or, without targets, one series to forecast;
    `modality` names something else. Data in memory are written to OUT/source, and the run reads
    them there whenever it is resumed or evaluated.

    `target` and `input` name columns; `y` are targets apart from their inputs. `valid` and `test`
    are held-out data of the same form, (X, y) where `y` is given. What is not given is chosen from
    the data: the task, the model, its size. `model` is a name or, like `data`, `train` and
    `augment`, a dictionary of keys of that table of the recipe: train={"lr": 3e-4}. Other keywords
    are settings of the task and the modality: tokenizer="bpe", horizon=24. `pretrain` is a file
    whose masked tokens are filled in first, or a run to start from.
    """
    began = time.monotonic()
    options = check_settings(settings)
    train = {"minutes": minutes, "seed": seed, "device": device or None, **train}
    tables = recipe_tables(target, input, task, model, data=data, train=train, augment=augment)
    given = DataInput(source, y, valid, test, modality)
    with joined() as world:
        reporter = world.reporter(as_reporter(progress))

        def prepare_run() -> tuple[dict[str, Any] | None, dict[str, Any], str]:
            with given.files(out, resume, tables) as files:
                more: Any = {"options": options, "modality": files.modality}
                more |= {"resume": resume, "reporter": reporter}
                more["pretrain"] = Path(pretrain) if pretrain else None
                return plan_run(files.paths, files.folder, files.tables, **more)

        first, values, folder = world.broadcast_from_rank0(prepare_run)
        shared: Any = {"resume": resume, "reporter": reporter, "began": began, "world": world}
        start = build(first) if first else None
        return train_both(start, build(values), Path(folder), **shared)


def train_recipe(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    began: float | None = None,
    world: ProcessGroup | None = None,
) -> TrainResult[Any]:
    """Train the model of a recipe into the run folder `out`; with `resume`, continue a stopped run.

    `began` (time.monotonic) is when the time of train.minutes started; by default now. `world` is
    the process group to train in, as `joined` yields it; by default the processes that torchrun
    started. Only the first process evaluates the model: the metrics of the others are empty.
    """
    began = time.monotonic() if began is None else began
    if world is None:
        with joined() as world:
            return train_recipe(
                recipe, out, resume=resume, reporter=reporter, began=began, world=world
            )
    with world.reporter(reporter or Reporter(quiet=True)) as reporter:
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


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """The result of `compare`: the table, the bits of one text by model, and the folder."""

    comparison: Comparison
    strip: Strip | None
    folder: Path

    @property
    def run(self) -> Path:
        """The run of the best model."""
        return self.comparison.rows[0].runs[0]

    @cached_property
    def model(self) -> Any:
        """The best model as the pipeline of its task, on the CPU."""
        return Run(self.run).pipeline()

    def __repr__(self) -> str:
        return repr(self.comparison)

    def _repr_html_(self) -> str:
        return self.comparison._repr_html_()


@dataclass(frozen=True)
class RowRequest:
    """The rows of a comparison: the models (none: all that suit the data), the minutes for all of
    them, how often each is trained, and whether also on fractions of the data. With `tokenizers`,
    such as bpe or kmers:k=3, every model is a row for each of them.
    """

    models: Sequence[str] = ()
    minutes: float = 10.0
    seeds: int = 1
    scaling: bool = False
    tokenizers: Sequence[str] = ()

    @property
    def share(self) -> RowRequest:
        """The rows of one tokenizer, with its share of the minutes."""
        return replace(self, minutes=self.minutes / max(1, len(self.tokenizers)))


def compare(
    source: Any,
    out: Out = None,
    *,
    y: Any = None,
    target: Columns = "",
    input: Columns = "",
    task: str = "",
    models: str | Sequence[str] = (),
    tokenizers: Sequence[str] = (),
    minutes: float = 10.0,
    seeds: int = 1,
    folds: int = 0,
    scaling: bool = False,
    modality: str = "",
    valid: Any = None,
    test: Any = None,
    model: Settings = NO_SETTINGS,
    data: Settings = NO_SETTINGS,
    train: Settings = NO_SETTINGS,
    augment: Settings = NO_SETTINGS,
    progress: bool | Reporter = True,
    **settings: Any,
) -> ComparisonResult:
    """Train every model on the same split, each in its own process, and compare them in a table.

    Data and other keywords are those of `train`; `models` names the rows, by default all that suit
    the data. Neural models have as many parameters as the default Transformer for the data, or as
    the one given by `model` (n_layers, d_model, …), and share `minutes`. With `folds`, labelled
    records are cross-validated; -1 leaves one out at a time. With `tokenizers`, such as
    ["nucleotides", "kmers:k=3"], every model is a row for each; all are measured per character or
    base, whatever their tokens. `seeds` is how often each model is
    trained. A comparison that was stopped is completed in its folder `out` (default
    runs/NAME-compare); models for which there is no time are left out.
    """
    began = time.monotonic()
    options = check_settings(settings)
    data = {**data, **({"folds": folds} if folds else {})}
    tables = recipe_tables(target, input, task, model, data=data, train=train, augment=augment)
    given = DataInput(source, y, valid, test, modality)
    names = (models,) if isinstance(models, str) else models
    rows = RowRequest(names, minutes, seeds, scaling, tokenizers)
    folder = Path(out or f"runs/{given.name(tables)}-compare")
    with given.files(folder, True, tables) as files:
        planned = partial(plan_recipe, files.paths, modality=files.modality)
        shared: Any = {"reporter": as_reporter(progress), "began": began, "options": options}
        return compare_rows(planned, rows, folder, tables=files.tables, **shared)


def compare_rows(
    planned: Callable[..., tuple[Recipe, list[str]]],
    rows: RowRequest,
    folder: Path,
    *,
    tables: Mapping[str, Mapping[str, Any]],
    options: Settings = NO_SETTINGS,
    reporter: Reporter,
    began: float,
) -> ComparisonResult:
    """Train and compare models in a folder. `planned` takes tables and options and returns the
    recipe of the reference model; the minutes began at `began` (time.monotonic).
    """
    named = {"name": REFERENCE, **tables.get("model", {})}
    runs: list[ComparisonRun] = []
    parts: list[tuple[str, Path, list[ComparisonRun]]] = []
    results: dict[Path, RunResult] = {}
    missing: dict[str, None] = {}
    with Launcher() as launcher:
        for label, chosen in tokenizer_options(rows.tokenizers):
            given = {**tables, "model": named, "options": {**options, **chosen}}
            recipe, lines = plan_for_rows(
                partial(planned, **given), rows.share, tables.get("train", {})
            )
            check_comparison(recipe, rows.models, rows.scaling)
            for line in lines[:-1]:  # the last is about one model
                reporter.say(line)
            inner = folder / label.replace(" ", "-").replace("=", "-") if label else folder
            parts.append((label, inner, plan_runs(recipe, rows, inner, reporter)))
        count = sum(len({run.model for run in part}) for *_, part in parts)
        end = began + rows.minutes * 60 - CLOSING - PER_ROW * count
        for number, (label, shared, part) in enumerate(parts):
            now = time.monotonic()
            until = now + (end - now) / (len(parts) - number)

            def evaluate(run: ComparisonRun, shared: Path = shared) -> None:
                results[run.run] = run_result(run, shared)

            with ProgressTable(reporter, part) as progress:
                trained = train_all(
                    part, until, shared, progress, launcher, judge=evaluate, warn=reporter.warn
                )
            left_out = [run for run in part if run not in trained]
            missing |= dict.fromkeys(str(run.row.relative_to(folder)) for run in left_out)
            runs += [replace(run, model=f"{run.model} {label}".strip()) for run in trained]
    comparison = build_comparison(runs, folder, results, left_out=list(missing))
    strip = None if rows.tokenizers else surprise(comparison)
    title = f"{Path(recipe.data.train[0]).name} compared"
    comparison_page(comparison, title=title, strip=strip).write(folder / "compare.html")
    write_text(folder / "compare.md", comparison.to_markdown())
    write_json(folder / "compare.json", comparison.to_json())
    return ComparisonResult(comparison, strip, folder)


def tokenizer_options(tokenizers: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the label and the settings of each tokenizer, written as kmers or kmers:k=3:stride=1;
    without any, one label "" without settings.
    """
    variants = dict[str, dict[str, Any]]()
    for text in tokenizers:
        name, *settings = text.strip().split(":")
        pairs = [setting.partition("=") for setting in settings]
        if not name or not all(key and equals and value for key, equals, value in pairs):
            raise UsageError(
                f"a tokenizer of a comparison is NAME or NAME:KEY=VALUE, as kmers:k=3, got {text!r}"
            )
        label = " ".join([name, *settings])
        if label in variants:
            raise UsageError(f"tokenizers must differ, got {text!r} twice")
        variants[label] = {"tokenizer": name} | {key: parse_value(v) for key, _, v in pairs}
    return list(variants.items()) or [("", {})]


def plan_for_rows(
    planned: Callable[..., tuple[Recipe, list[str]]], rows: RowRequest, train: Mapping[str, Any]
) -> tuple[Recipe, list[str]]:
    """Return a recipe and its lines for rows that share the minutes: networks are as large as their
    share allows.
    """
    recipe, lines = planned()
    if recipe.train.steps:
        return recipe, lines
    task, kind = recipe.task.name, recipe.reads
    names = rows.models or MODELS.names(task, kind)
    networks = sum(MODELS.get(name, task, kind).loop in TIMED for name in names)
    minutes = rows.minutes / rows.seeds / max(1, networks)
    return planned(train={**train, "minutes": minutes})


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
    recipe: Recipe, rows: RowRequest, folder: Path, reporter: Reporter
) -> list[ComparisonRun]:
    """Prepare the data in a folder; return the runs to compare."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = prepare(recipe, folder, reporter.say)
    for line in (*corpus.warnings, *corpus.truncation_warnings(context(recipe.model.config))):
        reporter.warn(line)
    names = rows.models or default_models(recipe, corpus, reporter.say)
    recipes = match_parameters(recipe, names, corpus, None if rows.models else reporter.say)
    parts = range(folds_of(recipe))
    runs = [
        comparison_run(recipe, folder, seed, fold=fold)
        for seed in range(rows.seeds)
        for recipe in recipes
        for fold in parts
    ]
    if rows.scaling:
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
    runs = {row.model: row.runs[0] for row in comparison.rows}
    return surprise_of(runs, load(comparison.rows[0].runs[0]).example(most), most)


def train_both(
    first: Recipe | None,
    recipe: Recipe,
    out: Path,
    *,
    resume: bool,
    reporter: Reporter,
    began: float,
    world: ProcessGroup,
) -> TrainResult[Any]:
    """Train both recipes, or the rest of them; return the first result if it was interrupted."""
    if first is None:
        return train_recipe(recipe, out, resume=resume, reporter=reporter, began=began, world=world)
    inner = out / PRETRAINED
    world.on_rank0(lambda: write_recipe(recipe, out, resume))
    try:
        result = train_recipe(
            first, inner, resume=resume, reporter=reporter, began=began, world=world
        )
    except Exception:
        if world.first and not inner.exists():  # an error before training: leave nothing behind
            (out / RECIPE).unlink(missing_ok=True)
            shutil.rmtree(out, ignore_errors=True)
        raise
    if result.outcome == "interrupted":
        return result
    metrics = ", ".join(
        f"{name.replace('_', ' ')} {metric}"
        for name, metric in result.splits.get("valid", {}).items()
    )
    reporter.say(
        f"pre-training ended after {result.steps:,} steps: {metrics or 'nothing was held out'}"
    )
    now = time.monotonic()
    return train_recipe(recipe, out, resume=True, reporter=reporter, began=now, world=world)


def write_recipe(recipe: Recipe, out: Path, resume: bool) -> None:
    """Write the recipe of the outer run before the inner one starts, so that both can resume."""
    if resume and (out / RECIPE).exists():
        return
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a new folder")
    refuse_used(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {out}: {error.strerror}") from None
    write_text(out / RECIPE, to_toml(recipe))


def evaluate(
    run: str | Path,
    data: Any = None,
    *,
    y: Any = None,
    input: Columns = "",
    target: Columns = "",
    against: str | Path | None = None,
    ensemble: Sequence[str | Path] = (),
    strict: bool = False,
    device: str = "cpu",
) -> Evaluation:
    """Measure a run on the part that was held out when it was trained, or on files or data in
    memory: what `regard evaluate` prints.

    Columns are those of the training data unless `input` and `target` name others. `against` is a
    run that is compared in pairs; `ensemble` are translators whose probabilities are averaged.
    """
    columns = {"input": join_columns(input), "target": join_columns(target)}
    request = EvaluationRequest(**columns, strict=strict)
    paths = [] if data is None else paths_of(data)
    if paths is not None:
        return evaluate_run(run, replace(request, files=paths), ensemble, against, device)
    with tempfile.TemporaryDirectory() as folder:
        table = read_table(data, y)
        written = write_tables({"train": table}, Path(folder))
        columns = {"input": request.input or written.input}
        columns |= {"target": request.target or written.target}
        request = replace(request, files=written.paths, **columns)
        return evaluate_run(run, request, ensemble, against, device)


def evaluate_run(
    run: str | Path,
    request: EvaluationRequest,
    others: Sequence[str | Path],
    against: str | Path | None,
    device: str,
) -> Evaluation:
    """Evaluate a run, or the ensemble of several, and compare it with `against` if given."""
    pipeline = load(run, *others, verb="evaluate", device=device)
    result: Evaluation = pipeline.evaluate(request)
    if against is not None:
        other = load(against, verb="evaluate", device=device)
        pipeline.check_comparable(other)
        same = replace(request, run=pipeline.run, log=quiet)
        result.against(other.evaluate(same), str(against))
    if others:
        result.document["ensemble"] = [str(other) for other in others]
        result.lines.append(f"{run} together with {', '.join(map(str, others))}")
    return result


def look_at(run: str | Path, text: str = "", *, target: str = "", beams: int = 0) -> Page:
    """Return the page of `regard look` on a text, a file or, by default, a held-out record; its
    method `write` saves it.
    """
    opened = Run.open(run)
    request = LookRequest(text=text, target=target, beams=beams, log=quiet)
    page: Page = TASKS[opened.description.task]().page(opened, request)
    return page


def export(run: str | Path, out: str | Path, to: str = "hf") -> dict[str, Any]:
    """Write the model of a run as a Hugging Face folder, or word vectors as text (`to="vec"`);
    return a report: `class`, `parameters`, `warnings`.
    """
    formats = {"hf": export_hf, "vec": export_vec}
    if to not in formats:
        raise UsageError(f"--to: unknown format {to!r}; choose one of {', '.join(formats)}")
    return formats[to](Path(run), Path(out))


def import_model(source: str | Path, out: str | Path) -> dict[str, Any]:
    """Read a Hugging Face folder, or word vectors as text, into the run folder `out`; return a
    report: `class`, `parameters`.
    """
    importer = import_vec if Path(source).is_file() else import_hf
    return importer(Path(source), Path(out))
