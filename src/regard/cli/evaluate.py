"""regard evaluate"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.records import Format
from regard.cli.strategy import Beams, Device, Others, Penalty, Way

if TYPE_CHECKING:
    from regard.api import Generator, Predictor, Translator, WordVectors
    from regard.data.inputs import TokenLimit
    from regard.data.shards import Shard
    from regard.evaluation.language_modeling import Metric, TokenLosses
    from regard.evaluation.translation import Translated
    from regard.tokenizers import Tokenizer

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Files = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Data to measure on, for a translator SOURCE TARGET; default the held-out test part."
    ),
]
Against = Annotated[Path | None, typer.Option(help="Another run, compared in pairs.")]
Stride = Annotated[
    int, typer.Option(min=0, help="Advance of windows in running text; 0 is max_len / 2.")
]
Column = Annotated[
    str, typer.Option(help="The column of a table to read; by default the run's own.")
]
Target = Annotated[
    str, typer.Option(help="The column, or several, of the targets; by default the run's own.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse damaged records, unknown symbols and truncation.")
]
Tokenize = Annotated[str, typer.Option(help="How BLEU splits words: 13a, none, intl, char, zh.")]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Judge translations in lower case.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: Run,
    files: Files = None,
    against: Against = None,
    others: Others = None,
    stride: Stride = 0,
    input: Column = "",
    target: Target = "",
    format: Format = "auto",
    strict: Strict = False,
    strategy: Way = "beam",
    beams: Beams = None,
    length_penalty: Penalty = 1.0,
    tokenize: Tokenize = "13a",
    lowercase: Lowercase = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Accuracy and other metrics, bits per symbol, and BLEU of translators, with 95% intervals.

    On the part held out when the run was trained, or on your own files, which are read as in
    training, from the same columns; - is standard input. Where each file holds a class, classes go
    by the names of the files or, if those are others, by their order. Word vectors take texts, and
    files of word pairs with scores or of analogies, recognised by their lines.

    Example: regard evaluate runs/names-transformer --against runs/names-bigram

    Several translators as one: regard evaluate runs/en-de --with runs/seed-1

    By agreement of many instead of the likeliest: regard evaluate runs/en-de --strategy consensus

    Of vectors: regard evaluate runs/text-skipgram wordsim353.tsv questions-words.txt
    """
    from regard.api import load, load_translator
    from regard.cli.output import print_figures, print_json

    model = load_translator(run, *others, device=device) if others else load(run, device=device)
    trial = Trial(strategy, beams, length_penalty, tokenize, lowercase)
    with given(files or []) as paths:
        material = Material(run, paths, format, input, target, device, strict, [])
        document, columns, line = result_of(model, against, material, trial, stride)
    if others:
        document["with"] = [str(other) for other in others]
        line += f"\n{run} together with {', '.join(document['with'])}"
    if json:
        print_json(document | ({"remarks": material.remarks} if material.remarks else {}))
        return
    print_figures(columns)
    print(line)


@contextmanager
def given(files: Sequence[Path]) -> Iterator[list[Path]]:
    """The files, standard input (`-`) among them as one."""
    from regard.data.inputs import STANDARD, saved

    with ExitStack() as stack:
        yield [
            stack.enter_context(saved(sys.stdin.buffer, b"", STANDARD))
            if str(file) == "-"
            else file
            for file in files
        ]


def result_of(
    model: Generator | Translator | Predictor | WordVectors,
    against: Path | None,
    material: Material,
    trial: Trial,
    stride: int,
) -> Result:
    """What a model of any kind is worth."""
    from regard.api import Predictor, Translator, WordVectors
    from regard.errors import UsageError

    if isinstance(model, Translator):
        return of_pairs(model, against, material, trial)
    if isinstance(model, WordVectors):
        return of_vectors(model, against, material)
    if isinstance(model, Predictor):
        return of_answers(model, against, material)
    if material.target:
        run = material.run
        raise UsageError(f"{run} predicts the next symbol (task next): it has no --target")
    return of_symbols(model, against, material, stride)


@dataclass(frozen=True)
class Material:
    """What is measured on: the user's files, or what a run held out."""

    run: Path
    files: list[Path]
    format: str
    input: str
    target: str
    device: str  # where models compute
    strict: bool
    remarks: list[str]  # what was said of the files

    def read(
        self, model: Generator | Translator | Predictor | WordVectors, *, again: bool = False
    ) -> tuple[str, Shard]:
        """Its name, and the shard as a model's tokenizers read it; said is what a user should know
        of the files, unless they are read `again`.
        """
        from regard.api import Predictor, Translator, held_out
        from regard.cli.records import reading_for
        from regard.data.inputs import quiet
        from regard.evaluation.eval_data import labelled_from, pairs_from, shard_from

        if not self.files:
            return held_out(self.run, model)
        reading = reading_for(self.run, self.input, self.target, self.format)
        strict, say = self.strict, quiet if again else self.say
        if isinstance(model, Predictor) and model.targets.task != "masked":
            shard = labelled_from(
                self.files,
                model.tokenizer,
                model.targets,
                reading,
                views=model.views,
                side=int(model.told.get("resize", 0)),
                surface=int(model.told.get("surface", 1024)),
                strict=strict,
                say=say,
            )
            return "given", shard
        if isinstance(model, Translator):
            readers = model.tokenizer, model.source_tokenizer
            return "given", pairs_from(
                self.files, *readers, reading, side=model.side, strict=strict, say=say
            )
        return "given", shard_from(self.files, model.tokenizer, reading, strict=strict, say=say)

    def say(self, words: str) -> None:
        """Print a remark on the files, and keep it for --json."""
        from regard.cli.records import say
        from regard.data.inputs import STANDARD

        for file in self.files:
            if file.name == STANDARD:
                words = words.replace(str(file), STANDARD)
        self.remarks.append(words)
        say(words)

    def look_into(self, shard: Shard, tokenizer: Tokenizer, room: TokenLimit | None) -> None:
        """Say how many records have unknown symbols, or are cut; an error when `strict`."""
        from regard.data.inputs import RecordNotes

        notes = RecordNotes(tokenizer, room)
        notes.of_shard(shard)
        for line in notes.lines():
            self.say(f"note: {line}")
        if self.strict:
            notes.refuse()


@dataclass(frozen=True)
class Trial:
    """How translations are made, and judged."""

    strategy: str
    beams: int | None
    length_penalty: float
    tokenize: str
    lowercase: bool

    def of(self, translator: Translator, shard: Shard) -> Translated:
        """What a translator makes of pairs."""
        from regard.cli.strategy import strategy_of
        from regard.evaluation.translation import measure_translation

        strategy = strategy_of(
            self.strategy,
            beams=self.beams,
            length_penalty=self.length_penalty,
            text=translator.tokenizer.decode,
        )
        return measure_translation(
            translator, shard, strategy, tokenize=self.tokenize, lowercase=self.lowercase
        )


Columns = dict[str, "dict[str, Metric]"]  # metrics_of, by what was measured on
Result = tuple[dict[str, Any], Columns, str]  # for --json, for the table, below it


def of_symbols(ours: Generator, against: Path | None, material: Material, stride: int) -> Result:
    """What a language model costs."""
    from regard.api import load_generator
    from regard.evaluation.language_modeling import metrics_of

    side, shard = material.read(ours)
    measured = ours.measure(shard, stride)
    found = metrics_of(measured)
    document, line = summary(side, measured, found)
    if against is not None:
        theirs = load_generator(against, device=material.device)
        other = theirs.measure(material.read(theirs, again=True)[1], stride)
        document["against"], more = compared(against, measured, other)
        line += more
    return document, {side: found}, line


def of_pairs(
    ours: Translator,
    against: Path | None,
    material: Material,
    trial: Trial,
) -> Result:
    """What a translator costs, and how good its translations are."""
    from regard.api import load_translator
    from regard.evaluation.language_modeling import verdict

    side, shard = material.read(ours)
    assert shard.source is not None
    material.look_into(shard.source, ours.source_tokenizer, ours.context)
    result = trial.of(ours, shard)
    found = result.figures()
    document, line = summary(side, result.measured, found)
    document["strategy"] = trial.strategy
    document["signatures"] = {name: one.signature for name, one in result.judged.items()}
    for name in ("bleu", "chrf"):
        line += f"\n{name}: {result.judged[name].signature}"
    line += "" if trial.strategy == "beam" else f"\ntranslated by {trial.strategy}"
    if against is not None:
        theirs = load_translator(against, device=material.device)
        other = trial.of(theirs, material.read(theirs, again=True)[1])
        told, more = compared(against, result.measured, other.measured)
        gaps = {name: one.minus(other.judged[name]) for name, one in result.judged.items()}
        told |= {name: gap.to_json() for name, gap in gaps.items()}
        told["verdict"] = verdict(gaps["bleu"].negative())
        line += f"{more}\nagainst {against}: {gaps['bleu']} BLEU: {told['verdict']}"
        document["against"] = told
    return document, {side: found}, line


def of_answers(ours: Predictor, against: Path | None, material: Material) -> Result:
    """How good answers are."""
    from regard.api import load_predictor
    from regard.errors import UserError
    from regard.evaluation.language_modeling import title, to_document

    side, shard = material.read(ours)
    material.look_into(shard, ours.tokenizer, ours.context)
    result = ours.measure(shard)
    estimates = result.estimates
    found = {name: one.figure() for name, one in estimates.items()}
    document: dict[str, Any] = {
        "side": side,
        "task": result.task,
        "records": len(result.lengths),
        "metrics": to_document(found),
    }
    line = f"{len(result.lengths):,} records"
    if against is not None:
        theirs = load_predictor(against, device=material.device)
        if theirs.targets != ours.targets:
            raise UserError(f"{against} was asked something else, or knows other classes")
        others = theirs.measure(material.read(theirs, again=True)[1]).estimates
        gaps = {name: one.minus(others[name]) for name, one in estimates.items() if name in others}
        first = next(iter(gaps))
        words = estimates[first].verdict(others[first])
        document["against"] = to_document(gaps) | {"run": str(against), "verdict": words}
        line += f"\nagainst {against}: {gaps[first]} {title(first, found[first])}: {words}"
    return document, {side: found}, line


def of_vectors(ours: WordVectors, against: Path | None, material: Material) -> Result:
    """What guessing costs word vectors, and what files of questions say of them."""
    from regard.api import load_word_vectors
    from regard.evaluation.word_similarity import estimates_of

    def measured(word_vectors: WordVectors) -> tuple[Any, list[Any]]:
        asked, texts = estimates_of(word_vectors, material.files)
        if asked and not texts:
            return None, asked
        side, shard = replace(material, files=texts).read(word_vectors)
        return (side, word_vectors.measure(shard).estimates), asked

    held, asked = measured(ours)
    estimates = {held[0]: held[1]} if held else {}
    estimates |= {one.name: one.estimates for one in asked}
    document: dict[str, Any] = {
        "task": "vectors",
        "words": len(ours),
        "tests": [one.to_json() for one in asked],
    }
    columns = {key: {n: e.figure() for n, e in es.items()} for key, es in estimates.items()}
    if held:
        document["side"] = held[0]
        document["metrics"] = {n: f.to_json() for n, f in columns[held[0]].items()}
    lines = [f"{len(ours):,} words"]
    lines += [f"{one.name}: {one.covered:,} of {one.total:,} have vectors" for one in asked]
    if against is not None:
        theirs, others = measured(load_word_vectors(against))
        other = {theirs[0]: theirs[1]} if theirs else {}
        other |= {one.name: one.estimates for one in others}
        document["against"] = {"run": str(against)}
        for key, es in estimates.items():
            for name, one in es.items():
                gap = one.minus(other[key][name])
                document["against"][f"{key}: {name}"] = gap.to_json()
                words = one.verdict(other[key][name])
                lines.append(f"{key}, {name}: {gap} against {against}: {words}")
    return document, columns, "\n".join(lines)


def summary(
    side: str, measured: TokenLosses, found: dict[str, Metric]
) -> tuple[dict[str, Any], str]:
    """The document and the line that say what was measured."""
    symbols = int(measured.symbols.sum())
    document: dict[str, Any] = {
        "side": side,
        "records": measured.records,
        "symbols": symbols,
        "unknown": measured.unknown,
        "metrics": {name: figure.to_json() for name, figure in found.items()},
    }
    line = f"{measured.records:,} records, {symbols:,} symbols"
    line += f", {measured.unknown:,} unknown to the tokenizer" if measured.unknown else ""
    return document, line


def compared(against: Path, ours: TokenLosses, theirs: TokenLosses) -> tuple[dict[str, Any], str]:
    """The difference in cost to another run, for --json and in words."""
    from regard.evaluation.language_modeling import difference, verdict

    gap = difference(ours, theirs)
    words = verdict(gap)
    bits = f" ({gap.value / math.log(2):+.4f} bits)" if math.isfinite(gap.value) else ""
    line = f"\nagainst {against}: {gap} nats per symbol{bits}: {words}"
    return {"run": str(against), "nats_per_symbol": gap.to_json(), "verdict": words}, line
