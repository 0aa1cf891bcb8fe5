"""What `regard.load` returns: a trained model with its tokenizers, ready to use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data import Progress, no_progress
from regard.data.inputs import InputReader, RecordNotes, TokenLimit, quiet
from regard.data.shards import Shard
from regard.decoding import ForbiddenTransitions
from regard.errors import UsageError, UserError, quoted
from regard.evaluation import (
    Metrics,
    Report,
    eval_data,
    metric_rows,
    metric_title,
    to_document,
)
from regard.evaluation.bootstrap import Floats
from regard.evaluation.record_errors import RecordErrors
from regard.layers.int8 import to_int8
from regard.layers.tap import Tap
from regard.notebook import html_table
from regard.pipelines.vector_sets import VectorSet, token_table
from regard.registry import MODALITIES, TASKS
from regard.run import CONFIG, FORBIDDEN, Run
from regard.tokenizers import Tokenizer
from regard.tokenizers import load as load_tokenizer
from regard.training.step import choose_device


def is_text(value: object) -> bool:
    """Return whether the value is a str."""
    return isinstance(value, str)


def is_path(value: object) -> bool:
    """Return whether the value is a str or a Path."""
    return isinstance(value, str | Path)


def one_or_many(
    name: str,
    value: Any,
    is_item: Callable[[object], bool] = is_text,
    what: str = "a str",
    is_single: Callable[[object], bool] | None = None,
) -> tuple[list[Any], bool]:
    """Return the items of the argument `name`, and whether it was a single item, which `is_single`
    tells where `is_item` does not.

    `what` names an item in the TypeError that any other value raises.
    """
    if (is_single or is_item)(value):
        return [value], True
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping | AbstractSet):
        raise TypeError(
            f"{name} must be {what} or a list of them, got {type(value).__name__} {quoted(value)}"
        )
    items = list(value)
    for number, item in enumerate(items):
        if not is_item(item):
            raise TypeError(
                f"{name}[{number}] must be {what}, got {type(item).__name__} {quoted(item)}"
            )
    return items, False


P = TypeVar("P", bound="Pipeline")
MOST_RECORDS = 50_000  # whose errors are listed
GIVEN = "given"  # the name of the user's files, in place of a split


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate on, and how: the user's files, or the held-out split of a run."""

    files: Sequence[Path] = ()
    format: str = "auto"
    input: str = ""  # columns of a table; by default those of the run
    target: str = ""
    strict: bool = False
    stride: int = 0  # advance of windows in running text; 0 = half of max_len
    strategy: Callable[[Tokenizer], Any] | None = None  # makes the decoding strategy
    strategy_name: str = "beam"
    bleu: Mapping[str, Any] = field(default_factory=dict)  # options of BLEU
    log: Callable[[str], None] = quiet
    run: Run | None = None  # whose data and columns are read; by default that of the pipeline
    progress: Progress = no_progress


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Reports by split or file, a document for --json, and lines to print below the table."""

    reports: Mapping[str, Report]
    document: dict[str, Any]
    lines: list[str]

    @property
    def metrics(self) -> Metrics:
        """The metrics of the first report, by name."""
        return next(iter(self.reports.values())).metrics()

    def __repr__(self) -> str:
        name, metric = next(iter(self.metrics.items()))
        shown = f"{metric_title(name, metric)} {metric}"
        return f"<{type(self).__name__} of {', '.join(self.reports)}: {shown}>"

    def _repr_html_(self) -> str:
        splits = {name: report.metrics() for name, report in self.reports.items()}
        return html_table(("", *splits), metric_rows(splits), notes=self.lines)

    def against(self, other: Evaluation, name: str) -> None:
        """Add the differences from another evaluation of the same data, in pairs."""
        gaps: dict[str, Any] = {}
        verdict = ""
        for column, report in self.reports.items():
            ours, others = report.estimates, other.reports[column].estimates
            shared = [key for key in ours if key in others]
            main = next(key for key in (*report.ranking, *shared) if key in shared)
            for key in shared:
                prefix = "" if len(self.reports) == 1 else f"{column}: "
                gaps[prefix + key] = ours[key].minus(others[key])
            gap, verdict = ours[main].minus(others[main]), ours[main].verdict(others[main])
            title = report.estimates[main].title
            where = "" if len(self.reports) == 1 else f"{column}, "
            self.lines.append(f"{where}against {name}: {gap} {title}: {verdict}")
        self.document["against"] = to_document(gaps) | {"run": name, "verdict": verdict}


class HeldOutPart(NamedTuple):
    """Records of a held-out split, and their numbers there."""

    split: str
    shard: Shard
    numbers: NDArray[np.int64]


def spaced(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` numbers below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


class PreparedInput(NamedTuple):
    """One input as tensors by name, and a function that runs the model on it once."""

    tensors: dict[str, torch.Tensor]
    run: Callable[[Tap], torch.Tensor]


class Pipeline(ABC):
    """A model with its tokenizers. `run` is None if it was not loaded from a run folder."""

    task: ClassVar[str]
    activities: ClassVar[tuple[str, ...]] = ()  # what it can be played with, for pages
    scores_masked: ClassVar[bool] = False  # `score` masks each token in turn

    def __init__(self, model: Any, tokenizer: Tokenizer, run: Run | None = None) -> None:
        self.model, self.tokenizer, self.run = model, tokenizer, run

    @property
    def facts(self) -> dict[str, str]:
        """What the pipeline consists of, for people."""
        size = sum(parameter.numel() for parameter in self.model.parameters())
        stored = sum(buffer.numel() for buffer in self.model.buffers())  # of models that count
        return {
            "model": type(self.model).__name__,
            "size": f"{size:,} parameters" if size else f"{stored:,} numbers",
            "tokens": repr(self.tokenizer),
        }

    def __repr__(self) -> str:
        where = f" {self.run}" if self.run else ""
        return f"<{type(self).__name__}{where}: {', '.join(self.facts.values())}>"

    def _repr_html_(self) -> str:
        rows = [("run", self.run or "none"), *self.facts.items()]
        return html_table(("", ""), rows, title=type(self).__name__)

    @property
    def data(self) -> Mapping[str, Any]:
        """The metadata of the training data."""
        return {} if self.run is None else self.run.data

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer or featurizer of the inputs."""
        return self.tokenizer

    @property
    def modality(self) -> Any:
        """The modality of the inputs, with the settings of the run."""
        stored = dict(self.data.get("input", {}))
        cls = MODALITIES[stored.get("name", self.source_tokenizer.modality)]
        return cls(cls.Config(**stored) if stored else None)

    @property
    def reader(self) -> InputReader:
        """The reader of files, with the settings of the training files."""
        return InputReader.stored(self.data)

    @property
    def texts(self) -> Pipeline:
        """The part that embeds the texts that belong to the inputs."""
        raise UserError(
            f"{self.run} embeds its inputs alone; a run of `regard train FILE --task contrastive` "
            "embeds texts beside them"
        )

    @property
    def context(self) -> TokenLimit | None:
        """How much of a long record is used; None if all of it is."""
        return None

    def held_out(self, run: Run | None = None) -> tuple[str, Shard]:
        """Return the name and the shard of the split to report on, test or else valid, of `run` or
        of the run of this pipeline.
        """
        run = run or self.run
        if run is None:
            raise UserError("this pipeline belongs to no run: name a file to measure on")
        return eval_data.held_out(run.path, self.tokenizer, self.source_tokenizer)

    def check_comparable(self, other: Pipeline) -> None:
        """Raise a UserError if another pipeline predicts something else than this one."""
        if other.task != self.task:
            raise UserError(
                f"{other.run} is of task {other.task}, and {self.run} of task {self.task}: only "
                "runs of the same task can be compared"
            )

    def with_classes(self, classes: Sequence[str]) -> Any:
        """Return a pipeline that predicts classes that are named in words."""
        raise UserError(
            f"{self.run} predicts what it was trained for; classes are named for runs of "
            "`regard train FILE --task contrastive`"
        )

    def forecast_file(self, file: Path) -> list[dict[str, Any]] | None:
        """Return what comes after the end of a file, row by row; None for files of records."""
        return None

    @abstractmethod
    def read(self, files: Sequence[Path], reader: InputReader, *, strict: bool, log: Any) -> Shard:
        """Return the user's files as a shard."""

    @abstractmethod
    def measure(self, shard: Shard, request: EvaluationRequest) -> Report:
        """Return the metrics on a shard."""

    def prepare(self, item: str = "", target: str = "", record: int = 0) -> PreparedInput:
        """Return an item, and a target if the model reads two, ready to be read; without an item,
        a held-out record, numbered from 0.
        """
        raise UserError(f"a {type(self).__name__} reads no single inputs")

    def held_out_record(self, number: int) -> Shard:
        """Return one held-out record as a shard."""
        shard = self.held_out()[1]
        count = shard.records // shard.views
        if not 0 <= number < count:
            raise UsageError(
                f"record must be from 0 to {count - 1:,}, the held-out records, got {number:,}"
            )
        return shard.take(np.array([number * shard.views]))

    def record_losses(self, shard: Shard) -> tuple[Floats, Floats]:
        """Return the loss of each record (R,), or block of running text, and the number of targets
        it is the sum of.
        """
        raise UserError(f"a {type(self).__name__} has no loss of single records")

    @property
    def has_targets(self) -> bool:
        """Whether the files of records contain labels or values."""
        return False

    def record_errors(self, most: int = MOST_RECORDS) -> RecordErrors:
        """Return how well the model does on each held-out record, of at most `most` of them."""
        raise UserError(f"a {type(self).__name__} has no errors of single records")

    def held_out_part(self, most: int) -> HeldOutPart:
        """Return at most `most` of the held-out records, evenly spaced, all of their views."""
        split, shard = self.held_out()
        count = shard.records // shard.views
        numbers = spaced(count, count if shard.is_text else most)
        if len(numbers) < count:
            views = numbers[:, None] * shard.views + np.arange(shard.views)
            shard = shard.take(views.ravel())
        return HeldOutPart(split, shard, numbers)

    def describe_records(self, numbers: Sequence[int]) -> list[str]:
        """Return what is predicted for held-out records where `record_errors` leaves it out because
        it takes long; [] if it leaves nothing out.
        """
        return []

    @property
    def vector_sets(self) -> Mapping[str, Callable[[int], VectorSet]]:
        """What can be drawn as points, by name; a function makes at most so many vectors."""
        table = token_table(self.model, self.tokenizer)
        return {} if table is None else {"tokens": table}

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate on the user's files, or on the held-out split."""
        name, shard = self._shard(request)
        self._log_notes(shard, request)
        report = self.measure(shard, request)
        document, line = self.describe(report, request)
        document = {"split": name, **document, "metrics": to_document(report.metrics())}
        return Evaluation({name: report}, document, [line])

    def _shard(self, request: EvaluationRequest) -> tuple[str, Shard]:
        if not request.files:
            return self.held_out(request.run)
        options = {"input": request.input, "target": request.target, "format": request.format}
        reader = InputReader.stored(request.run.data) if request.run else self.reader
        reader = reader.asked(**options)
        return GIVEN, self.read(request.files, reader, strict=request.strict, log=request.log)

    def _log_notes(self, shard: Shard, request: EvaluationRequest) -> None:
        """Log how many records have unknown symbols or are truncated; an error if `strict`."""
        notes = RecordNotes(self.source_tokenizer, self.context)
        notes.of_shard(shard.source if self.reads_source and shard.source else shard)
        for line in notes.lines():
            request.log(f"note: {line}")
        if request.strict:
            notes.refuse()

    reads_source: ClassVar[bool] = False  # the model reads the sources of pairs

    def describe(self, report: Any, request: EvaluationRequest) -> tuple[dict[str, Any], str]:
        """Return the size of the data, for --json and in words."""
        symbols = int(report.symbols.sum())
        unknown = f", {report.unknown:,} unknown to the tokenizer" if report.unknown else ""
        document = {"records": report.records, "symbols": symbols, "unknown": report.unknown}
        return document, f"{report.records:,} records, {symbols:,} symbols{unknown}"


@overload
def load(
    run: str | Path | Run,
    *others: str | Path,
    kind: type[P],
    verb: str = ...,
    int8: bool = ...,
    device: str = ...,
) -> P: ...


@overload
def load(
    run: str | Path | Run,
    *others: str | Path,
    verb: str = ...,
    int8: bool = ...,
    device: str = ...,
) -> Any: ...


def load(
    run: str | Path | Run,
    *others: str | Path,
    kind: type[Pipeline] = Pipeline,
    verb: str = "",
    int8: bool = False,
    device: str = "cpu",
) -> Any:
    """Return the best model of a run folder as the pipeline of its task: a Generator, Translator,
    Predictor, MaskedPredictor, Matcher, WordVectors or Forecaster.

    With `kind`, one of these classes, type checkers know what is returned, and a run of another
    task is a UserError. With `others`, runs with the same tokenizers, the models form an ensemble.
    With `verb`, a run that this command does not apply to is a UserError. `int8` stores the weights
    of linear layers in int8, which is faster on a CPU and rounds them. `device` is cpu, cuda,
    cuda:1, or auto: a GPU if there is one.
    """
    opened, where = Run.open(run), choose_device("cpu" if int8 else device)
    task = TASKS[opened.description.task]()
    if verb and all(command.split()[0] != verb for command in task.card.verbs):
        first, *rest = task.card.verbs
        more = ", ".join(f"`regard {command.split()[0]}`" for command in rest)
        use = f"`regard {first.format(run=opened)}`, {more}"
        makers = [t.name for t in TASKS.values() if f"{verb} " in "".join(t.card.verbs)]
        made = f"; `regard train FILE --task {makers[0]}` makes a run for it" if makers else ""
        raise UserError(
            f"{opened} is of task {task.name} ({task.purpose}), and `regard {verb}` does not apply "
            f"to it: use {use}{made}"
        )
    pipeline = opened.pipeline(model_on(opened, where, int8))
    if not isinstance(pipeline, kind):
        raise UserError(
            f"{opened} is of task {task.name} ({task.purpose}): it is loaded as a "
            f"{type(pipeline).__name__}, not a {kind.__name__}"
        )
    if others:
        models = [model_on(Run.open(other), where, int8) for other in others]
        pipeline = task.ensemble(pipeline, [Run.open(other) for other in others], models)
    return pipeline


def model_on(run: Run, device: Any, int8: bool) -> Any:
    """Return the best model of a run on a device."""
    model = run.model().to(device)
    if int8:
        to_int8(model)
    return model


def load_forbidden(run: Run, vocab_size: int) -> ForbiddenTransitions | None:
    """Return the forbidden transitions of a run, if it has any."""
    path = run / FORBIDDEN
    forbidden = ForbiddenTransitions.load(path) if path.exists() else None
    if forbidden is not None and forbidden.vocab_size != vocab_size:
        raise UserError(f"{path} is for {forbidden.vocab_size} tokens, not {vocab_size}")
    return forbidden


def load_run_tokenizer(run: Run, name: str, size: int) -> Tokenizer:
    """Return a tokenizer of a run folder, which must have `size` tokens."""
    tokenizer = load_tokenizer(run / name)
    if not tokenizer.fits(size):
        raise UserError(f"{run}: {name} has {tokenizer.vocab_size} tokens, {CONFIG} says {size}")
    return tokenizer
