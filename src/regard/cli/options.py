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

from regard.errors import UsageError, did_you_mean, one_line

if TYPE_CHECKING:
    from regard.data.inputs import InputReader, Item, RecordNotes
    from regard.decoding import Strategy
    from regard.pipelines import Pipeline


def absolute(paths: Sequence[Path] | None) -> list[str]:
    """Return absolute paths, as a recipe has them."""
    return [str(path.resolve()) for path in paths or []]


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
    its context hold them.
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
                self._check_name(name, declared)
                extra += [word] if equals else [word, *islice(words, 1)]
        super().parse_args(ctx, known)
        ctx.args = extra
        return extra

    def _check_name(self, name: str, declared: set[str]) -> None:
        names = dict(settings())
        if name not in names:
            hint = did_you_mean(name, [*sorted(declared), *names])
            raise UsageError(f"no such option: {name}; {hint} (see regard {self.name} --help)")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Settings of tasks and modalities (--NAME VALUE)"):
            formatter.write_dl(list(settings()))


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
    from regard.errors import UsageError, did_you_mean

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


def noted(
    batches: Iterable[list[Item]], notes: RecordNotes, strict: bool
) -> Iterator[tuple[list[Item], list[str]]]:
    """Yield batches of records with their notes, then print how many there are of each note; with
    `strict`, notes are an error.
    """
    for items in batches:
        yield items, notes.of(items)
    for line in notes.lines():
        log(f"note: {line}")
    if strict:
        notes.refuse()


def name_of(item: Item) -> str:
    """Return the id of a record or, if it has none, its text, for a line of output."""
    from regard.console import plain

    return plain(item.id if item.named else item.shown or item.text)
