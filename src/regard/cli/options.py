"""Options that verbs share: settings of tasks and modalities such as --tokenizer or --patch, the
decoding strategy, and how records of a file are read.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from regard.errors import SYNONYMS, UsageError, did_you_mean, one_line

if TYPE_CHECKING:
    from regard.data.inputs import InputReader, Item, RecordNotes
    from regard.decoding import Strategy
    from regard.pipelines import Pipeline
    from regard.training.progress import Reporter


def complete_runs(incomplete: str) -> list[str]:
    """Return the runs, comparisons and folders below runs/ whose paths begin so."""
    from regard.run_folders import RUNS, complete

    return complete(incomplete or f"{RUNS}/")


def announced(run: Path) -> Path:
    """Return the path of a run; of a comparison that of its best row, which is printed."""
    from regard.run_folders import winner

    best = winner(run)
    if best is not None:
        log(f"{run} is a comparison: its best row, {best}, is used")
    return best or run


RunFolder = Annotated[
    Path,
    typer.Argument(
        help="A run, such as runs/latest; or a comparison, whose best row is used.",
        callback=announced,
        autocompletion=complete_runs,
    ),
]


def absolute(paths: Sequence[Path] | None) -> list[str]:
    """Return absolute paths, as a recipe has them."""
    return [str(path.resolve()) for path in paths or []]


def names_of(text: str) -> list[str]:
    """Return the names of a list such as csv,tensorboard."""
    return [name.strip() for name in text.split(",") if name.strip()]


def extra_options(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the values of options given as --name value or --name=value, by name."""
    from regard.recipe import parse_value

    options: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            raise UsageError(f"unexpected argument {word!r}")
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = next(words, "")
            if not value or value.startswith("--"):
                raise UsageError(f"option --{name} needs a value; see regard train --help")
        options[name.replace("-", "_")] = parse_value(value)
    return options


class SettingsCommand(TyperCommand):
    """A command that also accepts the settings of tasks and modalities as options; the `args` of
    its context hold them. Its help lists what the registries have.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        declared = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        declared |= set(ctx.help_option_names)
        known: list[str] = []
        extra: list[str] = []
        words = iter(args)
        for word in words:
            name, equals, _ = word.partition("=")
            if word == "--":
                known += [word, *words]
            elif not word.startswith("--") or name in declared:
                known.append(word)
            else:
                if not ctx.resilient_parsing:  # as it is while a shell completes a line
                    self._check_name(name, declared)
                extra += [word] if equals else [word, *islice(words, 1)]
        super().parse_args(ctx, known)
        ctx.args = extra
        return extra

    def _check_name(self, name: str, declared: set[str]) -> None:
        names = dict(settings())
        if name in names:
            return
        hint = as_key(name) or did_you_mean(name, [*sorted(declared), *names])
        raise UsageError(f"no such option: {name}; {hint} (see regard {self.name} --help)")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Settings of tasks and modalities (--NAME VALUE)"):
            formatter.write_dl(list(settings()))
        for title, rows in registered():
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        completions = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            return completions
        item = type(super().shell_complete(ctx, "--help")[0])
        return completions + [item(name) for name, _ in settings() if name.startswith(incomplete)]


def as_key(option: str) -> str:
    """Return how a key of the recipe is given, if an option is called as one is; otherwise ""."""
    from regard.recipe import DataRecipe, TrainRecipe
    from regard.registry import MODELS

    name = option.removeprefix("--").replace("-", "_")
    keys = {name, SYNONYMS.get(name, "")}
    for table, cls in (("train", TrainRecipe), ("data", DataRecipe), ("model", None)):
        fields = dataclasses.fields(cls or MODELS.get("transformer").Config)
        for field in fields:
            if field.name in keys:
                return f"use --set {table}.{field.name}=VALUE"
    return ""


def registered() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the names that options may have, in sections of help."""
    from regard.data.text_files import known_formats
    from regard.registry import LOGGERS, MODELS, TASKS, TOKENIZERS

    yield "Tasks (--task)", [(name, TASKS[name].purpose) for name in TASKS]
    names = {task: ", ".join(MODELS.names(task)) for task in TASKS}
    yield "Models by task (--model)", list(names.items())
    yield (
        "Further names",
        [
            ("--tokenizer", ", ".join(TOKENIZERS)),
            ("--set data.format=", ", ".join(known_formats())),
            ("--log", ", ".join(LOGGERS)),
        ],
    )


def complete_tasks(incomplete: str) -> list[str]:
    """Return the tasks whose names begin so."""
    from regard.registry import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Return the models whose names begin so; of a list, after its last comma."""
    from regard.registry import MODELS

    return complete_list(incomplete, MODELS.names())


def complete_loggers(incomplete: str) -> list[str]:
    """Return the loggers whose names begin so; of a list, after its last comma."""
    from regard.registry import LOGGERS

    return complete_list(incomplete, list(LOGGERS))


def complete_list(incomplete: str, names: Sequence[str]) -> list[str]:
    """Return lists A,B with another name that begins as the last part does."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


TaskName = Annotated[
    str,
    typer.Option(
        "--task",
        help="What is predicted, as listed below; otherwise the files decide.",
        autocompletion=complete_tasks,
    ),
]


def settings() -> Iterator[tuple[str, str]]:
    """Yield each setting as an option, with the tasks or modalities that have it."""
    from regard.registry import MODALITIES, TASKS

    for registry, noun in ((TASKS, "task"), (MODALITIES, "input")):
        names: dict[str, list[str]] = {}
        for name in registry:
            for field in dataclasses.fields(registry[name].Config):
                if field.name != "name":
                    names.setdefault(field.name, []).append(name)
        for field_name, owners in names.items():
            yield f"--{field_name.replace('_', '-')}", f"{noun} {', '.join(owners)}"


Name = Annotated[str, typer.Option(help="greedy, sample or beam.")]
Way = Annotated[str, typer.Option("--strategy", help="greedy, sample, beam or mbr.")]
Temperature = Annotated[float, typer.Option(help="Divides the logits; 0 is greedy.")]
TopK = Annotated[int, typer.Option(help="Keep only the K likeliest; 0 keeps all.")]
TopP = Annotated[float, typer.Option(help="Keep the fewest whose mass reaches P.")]
Beams = Annotated[
    int | None, typer.Option(min=1, help="Width of the beam; by default 5, of mbr 24.")
]
Penalty = Annotated[float, typer.Option(help="Beam scores are divided by length to this power.")]
Others = Annotated[
    list[Path] | None,
    typer.Option("--ensemble", help="Another run: probabilities are averaged."),
]
Seed = Annotated[int, typer.Option(help="Same seed, same samples.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:1.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Weights in int8: faster on a CPU, rounded.")]


class Sampling(NamedTuple):
    """The options of random sampling."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


def strategy_of(
    name: str,
    sampling: Sampling = Sampling(),  # noqa: B008  # immutable
    *,
    beams: int | None = None,
    length_penalty: float = 0.0,
    n_best: int = 1,
    text: Callable[[Sequence[int]], str] | None = None,
) -> Strategy:
    """Return the decoding strategy of that name; a value out of range is a UsageError.

    mbr needs `text`, which decodes ids.
    """
    from regard.decoding import Beam, Greedy, MinimumBayesRisk, Sample
    from regard.errors import UsageError

    try:
        if name == "greedy":
            return Greedy()
        if name == "sample":
            return Sample(**sampling._asdict())
        if name == "beam":
            width = max(beams or Beam.width, n_best)
            return Beam(width, length_penalty=length_penalty, n_best=n_best)
        if name == "mbr" and text is not None:
            return MinimumBayesRisk(text, width=beams or MinimumBayesRisk.width)
    except ValueError as error:
        raise UsageError(str(error)) from None
    known = ["greedy", "sample", "beam", *(["mbr"] if text is not None else [])]
    raise UsageError(f"unknown strategy {name!r}; {did_you_mean(name, known)}")


Input = Annotated[
    str, typer.Option(help="The column of a table to read; by default the run's own.")
]
Format = Annotated[str, typer.Option(help="auto, lines, csv, tsv, jsonl, fasta or smi.")]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Exit with 1 if any record has a note."),
]


def log(line: str) -> None:
    """Print a line to standard error."""
    print(one_line(line), file=sys.stderr)


def read_records(
    pipeline: Pipeline, file: Path, reader: InputReader, *, paths: bool = False
) -> Iterator[list[Item]]:
    """Yield the records of a file, or of standard input (`-`), in batches.

    With `paths`, items that are no texts may be given by their paths on standard input.
    """
    path = None if str(file) == "-" else file
    if path is None and not paths:
        pipeline.source_tokenizer.check_pipe()
    return reader.records(path, pipeline.modality, pipeline.source_tokenizer, log)


COUNTED = 64 << 20  # bytes of the largest file whose records are counted beforehand


def count_records(pipeline: Pipeline, file: Path, reader: InputReader) -> int:
    """Return how many records a file of texts has; 0 if counting them would take long."""
    from regard.data.inputs import quiet

    encoder = pipeline.source_tokenizer
    if not encoder.reads_text or not file.is_file() or file.stat().st_size > COUNTED:
        return 0
    return sum(map(len, reader.records(file, pipeline.modality, encoder, quiet)))


def rows_reporter(json: bool = False) -> Reporter:
    """Return the reporter of a verb that prints rows as they come: on a terminal these show how far
    it is, unless a document is printed at the end.
    """
    from regard.training.progress import Reporter

    return Reporter(quiet=sys.stdout.isatty() and not json)


def noted(
    batches: Iterable[list[Item]],
    notes: RecordNotes,
    strict: bool,
    reporter: Reporter,
    activity: str,
    total: int = 0,
) -> Iterator[tuple[list[Item], list[str]]]:
    """Yield batches of records with their notes, report how many of `total` are done, and at last
    print how many there are of each note; with `strict`, notes are an error.
    """
    done = 0
    with reporter:
        reporter.progress(activity, done, total)
        for items in batches:
            yield items, notes.of(items)
            done += len(items)
            reporter.progress(activity, done, total)
    for line in notes.lines():
        log(f"note: {line}")
    if strict:
        notes.refuse()


def name_of(item: Item) -> str:
    """Return the id of a record or, if it has none, its text, for a line of output."""
    from regard.console import plain

    return plain(item.id if item.named else item.shown or item.text)
