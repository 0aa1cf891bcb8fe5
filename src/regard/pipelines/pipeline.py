"""The base class of pipelines: a model with its tokenizers, to use and to measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from regard.data.inputs import InputReader, RecordNotes, TokenLimit, quiet
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation import eval_data
from regard.evaluation.metrics import Report, to_document
from regard.registry import MODALITIES
from regard.run import Run
from regard.tokenizers import Tokenizer

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


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Reports by split or file, a document for --json, and lines to print below the table."""

    reports: Mapping[str, Report]
    document: dict[str, Any]
    lines: list[str]

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


class Pipeline(ABC):
    """A model with its tokenizers. `run` is None if it was not loaded from a run folder."""

    task: ClassVar[str]

    def __init__(self, model: Any, tokenizer: Tokenizer, run: Run | None = None) -> None:
        self.model, self.tokenizer, self.run = model, tokenizer, run

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

    @abstractmethod
    def read(self, files: Sequence[Path], reader: InputReader, *, strict: bool, log: Any) -> Shard:
        """Return the user's files as a shard."""

    @abstractmethod
    def measure(self, shard: Shard, request: EvaluationRequest) -> Report:
        """Return the metrics on a shard."""

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
