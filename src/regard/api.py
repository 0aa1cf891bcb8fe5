"""The library as functions: plan a recipe, train it, load a run, ask it things.

The command line is a thin skin over this.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.arguments import is_path, one_or_many
from regard.data.corpus import prepare
from regard.data.point_clouds import form_of
from regard.data.shards import Shard
from regard.data.sources import SPLITS, DataSource
from regard.data.task_inference import InferredTask, infer_task
from regard.errors import UsageError, UserError
from regard.evaluation import eval_data
from regard.evaluation.comparison import Comparison
from regard.evaluation.eval_data import shard_of
from regard.look.comparison_page import Strip, comparison_page
from regard.pipelines.generator import Continuation, Generator, continuations
from regard.pipelines.loading import (
    load,
    load_embedder,
    load_generator,
    load_predictor,
    load_sequence_model,
    load_translator,
    load_word_vectors,
)
from regard.pipelines.predictor import Predictor
from regard.pipelines.translator import Translation, Translator
from regard.pipelines.word_vectors import WordVectors
from regard.recipe import (
    NUMBERED,
    DataRecipe,
    Recipe,
    TrainRecipe,
    build,
    check,
    check_tables,
    override,
    read,
)
from regard.registry import NUMBERS, family, task_named
from regard.run import write_json, write_text
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
from regard.training.defaults import choose
from regard.training.distributed import ProcessGroup, joined
from regard.training.final_report import TrainResult, evaluate_and_write
from regard.training.init_from import inherit
from regard.training.progress import Reporter
from regard.training.session import Session, context

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
    "held_out",
    "load",
    "load_embedder",
    "load_generator",
    "load_predictor",
    "load_sequence_model",
    "load_translator",
    "load_word_vectors",
    "plan",
    "shard_of",
    "train",
]


def plan(
    source: str | Path | Sequence[str | Path],
    *,
    assignments: str | Sequence[str] = (),
    **tables: Mapping[str, Any],
) -> tuple[Recipe, list[str]]:
    """A complete recipe from a TOML file, data files, or both, and lines that say what and why.

    There are two, and one before them where the files could be read in more than one way.

    Data files stand in for all that the TOML file names, those held out too. `tables` (data=,
    tokens=, model=, train=) and then `assignments` ("train.lr=3e-4") override it.
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
    build(values)  # wrong keys are told before any file is read
    if files:
        own = {k: v for k, v in values.get("data", {}).items() if k not in SPLITS}
        values["data"] = {**own, "train": files}
    for section, keys in tables.items():
        given = {k: v for k, v in keys.items() if v not in (None, (), [])}
        values[section] = {**values.get(section, {}), **given}
    values = override(values, assignments)
    check_tables(values)
    for section, cls in (("data", DataRecipe), ("train", TrainRecipe)):
        check(section, cls, values.get(section, {}))
    values = absolute(values)
    first = []
    if "task" not in values:
        model = str(values.get("model", {}).get("name", ""))
        reading = InferredTask(task_named(model))
        if not reading.task:
            reading = infer_task(check("data", DataRecipe, values.get("data", {})), model)
        values["task"], first = reading.task, [reading.line] if reading.line else []
    values = inherit(with_file_kind(values))
    build(values)
    chosen, lines = choose(values)
    recipe = build(chosen)
    if recipe.tokens.kind == "pretrained" and not recipe.train.start:
        raise UsageError(
            "tokens.kind = 'pretrained' is the tokenizer of another run: name the run with "
            "train.start=RUN, or choose another kind"
        )
    return recipe, first + lines


def with_file_kind(values: dict[str, Any]) -> dict[str, Any]:
    """The tables with what follows from files of what is no text: the kind of its tokens, or of
    those of sources, where the targets are captions.
    """
    data, task = values.get("data", {}), values.get("task")
    form = str(data.get("format", "auto"))
    if form == "auto":
        form = form_of([Path(str(path)) for path in data.get("train", ())])
        if not form and task == "target" and data.get("target"):  # a table of paths, perhaps
            form = DataSource(check("data", DataRecipe, data), task).train.format
    if form in NUMBERED:
        values["data"] = {**data, "format": form}
        tokens, kind = dict(values.get("tokens", {})), NUMBERED[form]
        asked = tokens.get("kind", "auto")
        if task not in NUMBERS[kind]:
            allowed = ", ".join(NUMBERS[kind])
            raise UsageError(f"task: {form} are asked for {allowed}, got {task!r}")
        if task == "target" and asked in NUMBERS:
            raise UsageError(f"tokens.kind: captions are texts, got {asked!r}")
        if task != "target" and asked not in ("auto", kind):
            raise UsageError(f"tokens.kind: those of {form} are {kind}, got {asked!r}")
        values["tokens"] = tokens | {"source" if task == "target" else "kind": kind}
    return values


def absolute(values: dict[str, Any]) -> dict[str, Any]:
    """The tables with every path made absolute, so that a run can be resumed from anywhere."""
    data, train = values.get("data", {}), values.get("train", {})
    for key in SPLITS:
        paths = data.get(key, [])
        paths = [paths] if isinstance(paths, str) else paths
        if isinstance(paths, list | tuple):
            data[key] = [str(Path(str(p)).resolve()) for p in paths]
    if labels := data.get("labels"):
        data["labels"] = str(Path(str(labels)).resolve())
    target = Path(str(data.get("target", "")))  # of what is no text, perhaps a file
    if target.is_file() and form_of([Path(path) for path in data.get("train", ())]):
        data["target"] = str(target.resolve())
    forbid = train.get("forbid", "")
    if isinstance(forbid, str) and forbid not in ("", "unseen"):
        train["forbid"] = str(Path(forbid).resolve())
    if isinstance(start := train.get("start", ""), str) and start:
        train["start"] = str(Path(start).resolve())
    return values


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    began: float | None = None,
    world: ProcessGroup | None = None,
) -> TrainResult:
    """Train as the recipe says into the run folder `out`; with `resume`, go on where it stopped.

    `began` (time.monotonic) is when the clock of train.minutes started; now, if not given. `world`
    is the processes that train together, as `joined` gives them; those that torchrun started, if
    not given. The first alone measures the end: the figures of the others are empty.
    """
    began = time.monotonic() if began is None else began
    if world is None:
        with joined() as world:
            return train(recipe, out, resume=resume, reporter=reporter, began=began, world=world)
    told = world.reporter(reporter or Reporter(quiet=True))
    fitted = Session(Path(out), resume, told, began, world).fit(recipe)
    return world.together(lambda: evaluate_and_write(Path(out), fitted, measures=world.first))


@dataclass(frozen=True)
class ComparisonResult:
    """What `compare` returns: the table, a text's surprise by model, and where all of it is."""

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
    data: Mapping[str, Any] | None = None,
    transformer: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    began: float | None = None,
) -> ComparisonResult:
    """Train every model on the same split, each in its own process, and put them in one table.

    Neural rows have as many parameters as the Transformer that suits the data, or that is asked for
    (`transformer`: its n_layers, d_model, …), and share `minutes`. With `folds`, labelled records
    are cross-validated: each is tested once, by models that have not seen it; -1 leaves one out at
    a time. A folder that holds a part of it already is completed. `minutes` are for everything,
    from `began` (time.monotonic; now, if not given); rows that they do not hold are left out.
    """
    began = time.monotonic() if began is None else began
    reporter = reporter or Reporter(quiet=True)
    source = one_or_many("source", source, is_path, "a str or Path")[0]
    models = one_or_many("models", models)[0]
    folder = Path(out or Path("runs") / f"{Path(source[0]).stem}-compare")
    table = {"name": "transformer", **(transformer or {})}
    asked = {**(data or {}), **({"folds": folds} if folds else {})}
    chosen, lines = plan(source, assignments=assignments, data=asked, model=table)
    if chosen.task in ("masked", "vectors"):
        raise UsageError(
            f"compare: task {chosen.task} has no ladder; `regard evaluate` has --against"
        )
    if chosen.task == "target" and chosen.data.folds:
        raise UsageError("--folds is for labels and values; captions are compared on one split")
    if scaling and chosen.data.folds:
        raise UsageError("--scaling and --folds answer different questions: ask one at a time")
    for name in models:
        family(name, chosen.task, chosen.tokens.reads)  # says what is allowed
    for line in lines[:-1]:  # the last is about one model
        reporter.say(line)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = prepare(chosen.data, chosen.tokens, folder, reporter.say, task=chosen.task)
    for line in (*corpus.warnings, *corpus.cut(context(chosen.model.config))):
        reporter.warn(line)
    models = models or default_models(chosen.task, corpus, reporter.say)
    recipes, parts = match_parameters(chosen, models, corpus), range(folds_of(chosen))
    comparison_runs = [
        comparison_run(recipe, folder, seed, fold=fold)
        for seed in range(seeds)
        for recipe in recipes
        for fold in parts
    ]
    if scaling:
        comparison_runs += [
            comparison_run(recipe, folder, 0, part) for part in FRACTIONS for recipe in recipes
        ]
    found: dict[Path, RunResult] = {}
    end = began + minutes * 60 - CLOSING - PER_ROW * len(recipes)

    def judge(one: ComparisonRun) -> None:
        found[one.run] = run_result(one, folder)

    with ProgressTable(reporter, comparison_runs) as board:
        made = train_all(comparison_runs, end, folder, board, judge=judge, warn=reporter.warn)
    missing = dict.fromkeys(one.row.name for one in comparison_runs if one not in made)
    comparison = build_comparison(made, folder, found, left_out=list(missing))
    strip = surprise(comparison)
    page = comparison_page(comparison, title=f"{Path(source[0]).name} compared", strip=strip)
    page.write(folder / "compare.html")
    write_text(folder / "compare.md", comparison.to_markdown())
    write_json(folder / "compare.json", comparison.to_json())
    return ComparisonResult(comparison, strip, folder)


def surprise(comparison: Comparison, most: int = 60) -> Strip | None:
    """The bits that each model's first run gives the symbols of one held-out text; None where
    models answer instead.
    """
    if comparison.rows[0].answers is not None:
        return None
    found: list[tuple[str, list[float]]] = []
    tokens: list[str] = []
    text, source = one_held_out(load_sequence_model(comparison.rows[0].runs[0]), most)
    for row in comparison.rows:
        model = load_sequence_model(row.runs[0])
        if isinstance(model, Translator):
            (scored,) = model.score([(source, text)])
            tokens, logs = scored.tokens, scored.log_probs
        else:
            ((tokens, logs),) = model.score([text])
        found.append((row.model, [-x / math.log(2) for x in logs[:most]]))
    return (tokens[:most], found) if len({len(bits) for _, bits in found}) == 1 else None


def one_held_out(model: Generator | Translator, most: int) -> tuple[str, Any]:
    """The first held-out text of a run, at most so many tokens of running text, and its source."""
    assert model.run is not None
    _, shard = held_out(model.run, model)
    record = [int(i) for i in shard.record(0)]
    if isinstance(model, Translator):
        assert shard.source is not None
        asked = model.source_tokenizer.read_back(shard.source.record(0))
        return model.tokenizer.decode(record[1:-1]), asked
    return model.tokenizer.decode(record[1 : 1 + most] if model.text else record[1:-1]), ""


def held_out(
    run: str | Path, generator: Generator | Translator | Predictor | WordVectors
) -> tuple[str, Shard]:
    """The part of a run's data to report on and its name: test, or else valid."""
    source = generator.source_tokenizer if isinstance(generator, Translator) else None
    return eval_data.held_out(Path(run), generator.tokenizer, source)
