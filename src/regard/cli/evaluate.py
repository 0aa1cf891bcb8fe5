"""regard evaluate"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.strategy import Beams, Device, Others, Penalty, Way

if TYPE_CHECKING:
    from regard.api import Examiner, Glossary, Interpreter, Predictor
    from regard.data.shards import Shard
    from regard.evaluate.report import Figure, Measured
    from regard.evaluate.translation import Translated

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
Column = Annotated[str, typer.Option(help="The column of a table to read.")]
Target = Annotated[str, typer.Option(help="The column of a table that has the targets of pairs.")]
Format = Annotated[str, typer.Option(help="auto, lines, text, csv, tsv or jsonl.")]
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
    strategy: Way = "beam",
    beams: Beams = None,
    length_penalty: Penalty = 1.0,
    tokenize: Tokenize = "13a",
    lowercase: Lowercase = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Bits per symbol, and BLEU of translators, with 95% intervals.

    On the part held out when the run was trained, or on your own files. Word vectors take texts,
    and files of word pairs with scores or of analogies, recognised by their lines.

    Example: regard evaluate runs/names-transformer --against runs/names-bigram

    Several translators as one: regard evaluate runs/en-de --with runs/seed-1

    By agreement of many instead of the likeliest: regard evaluate runs/en-de --strategy consensus

    Of vectors: regard evaluate runs/text-skipgram wordsim353.tsv questions-words.txt
    """
    from regard.api import Examiner, Glossary, Interpreter, load, load_interpreter
    from regard.cli.output import print_figures, print_json
    from regard.errors import UsageError

    material = Material(run, files or [], format, input, target, device)
    found = load_interpreter(run, *others, device=device) if others else load(run, device=device)
    if isinstance(found, Interpreter):
        trial = Trial(strategy, beams, length_penalty, tokenize, lowercase)
        document, columns, line = of_pairs(found, against, material, trial)
        if others:
            document["with"] = [str(other) for other in others]
            line += f"\n{run} together with {', '.join(document['with'])}"
    elif isinstance(found, Glossary):
        document, columns, line = of_vectors(found, against, material)
    elif isinstance(found, Examiner):
        document, columns, line = of_answers(found, against, material)
    elif target:
        raise UsageError(f"{run} predicts the next symbol (task next): it has no --target")
    else:
        document, columns, line = of_symbols(found, against, material, stride)
    if json:
        print_json(document)
        return
    print_figures(columns)
    print(line)


@dataclass(frozen=True)
class Material:
    """What is measured on: the user's files, or what a run held out."""

    run: Path
    files: list[Path]
    format: str
    input: str
    target: str
    device: str  # where models compute

    def read(self, model: Predictor | Interpreter | Examiner | Glossary) -> tuple[str, Shard]:
        """Its name, and the shard as a model's tokenizers read it."""
        from regard.api import Examiner, Interpreter, held_out
        from regard.evaluate.material import labelled_from, pairs_from, shard_from

        if not self.files:
            return held_out(self.run, model)
        if isinstance(model, Examiner) and model.targets.task != "masked":
            columns = self.input, self.target
            shard = labelled_from(
                self.files,
                model.tokenizer,
                model.targets,
                format=self.format,
                columns=columns,
                views=model.views,
                side=int(model.told.get("resize", 0)),
                surface=int(model.told.get("surface", 1024)),
            )
            return "given", shard
        if isinstance(model, Interpreter):
            columns = self.input, self.target
            readers = model.tokenizer, model.source_tokenizer
            return "given", pairs_from(
                self.files, *readers, format=self.format, columns=columns, side=model.side
            )
        return "given", shard_from(
            self.files, model.tokenizer, format=self.format, column=self.input
        )


@dataclass(frozen=True)
class Trial:
    """How translations are made, and judged."""

    strategy: str
    beams: int | None
    length_penalty: float
    tokenize: str
    lowercase: bool

    def of(self, interpreter: Interpreter, shard: Shard) -> Translated:
        """What a translator makes of pairs."""
        from regard.cli.strategy import strategy_of
        from regard.evaluate.translation import measure_translation

        strategy = strategy_of(
            self.strategy,
            beams=self.beams,
            length_penalty=self.length_penalty,
            text=interpreter.tokenizer.decode,
        )
        return measure_translation(
            interpreter, shard, strategy, tokenize=self.tokenize, lowercase=self.lowercase
        )


Columns = dict[str, "dict[str, Figure]"]  # figures, by what was measured on
Result = tuple[dict[str, Any], Columns, str]  # for --json, for the table, below it


def of_symbols(ours: Predictor, against: Path | None, material: Material, stride: int) -> Result:
    """What a language model costs."""
    from regard.api import load_predictor
    from regard.evaluate.report import figures

    side, shard = material.read(ours)
    measured = ours.measure(shard, stride)
    found = figures(measured)
    document, line = summary(side, measured, found)
    if against is not None:
        theirs = load_predictor(against, device=material.device)
        other = theirs.measure(material.read(theirs)[1], stride)
        document["against"], more = compared(against, measured, other)
        line += more
    return document, {side: found}, line


def of_pairs(
    ours: Interpreter,
    against: Path | None,
    material: Material,
    trial: Trial,
) -> Result:
    """What a translator costs, and how good its translations are."""
    import numpy as np

    from regard.api import load_interpreter
    from regard.cli.translate import warn_of_length
    from regard.evaluate.report import verdict

    side, shard = material.read(ours)
    assert shard.source is not None
    lengths = np.diff(shard.source.offsets) - 2
    for record in np.flatnonzero(lengths > ours.room).tolist():
        warn_of_length(f"the source of pair {record + 1:,}", int(lengths[record]), ours.room)
    result = trial.of(ours, shard)
    found = result.figures()
    document, line = summary(side, result.measured, found)
    document["strategy"] = trial.strategy
    document["signatures"] = {name: one.signature for name, one in result.judged.items()}
    for name in ("bleu", "chrf"):
        line += f"\n{name}: {result.judged[name].signature}"
    line += "" if trial.strategy == "beam" else f"\ntranslated by {trial.strategy}"
    if against is not None:
        theirs = load_interpreter(against, device=material.device)
        other = trial.of(theirs, material.read(theirs)[1])
        told, more = compared(against, result.measured, other.measured)
        gaps = {name: one.minus(other.judged[name]) for name, one in result.judged.items()}
        told |= {name: gap.to_json() for name, gap in gaps.items()}
        told["verdict"] = verdict(gaps["bleu"].negative())
        line += f"{more}\nagainst {against}: {gaps['bleu']} BLEU: {told['verdict']}"
        document["against"] = told
    return document, {side: found}, line


def of_answers(ours: Examiner, against: Path | None, material: Material) -> Result:
    """How good answers are."""
    from regard.api import load_examiner
    from regard.errors import UserError
    from regard.evaluate.report import title, to_document

    side, shard = material.read(ours)
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
        theirs = load_examiner(against, device=material.device)
        if theirs.targets != ours.targets:
            raise UserError(f"{against} was asked something else, or knows other classes")
        others = theirs.measure(material.read(theirs)[1]).estimates
        gaps = {name: one.minus(others[name]) for name, one in estimates.items() if name in others}
        first = next(iter(gaps))
        words = estimates[first].verdict(others[first])
        document["against"] = to_document(gaps) | {"run": str(against), "verdict": words}
        line += f"\nagainst {against}: {gaps[first]} {title(first, found[first])}: {words}"
    return document, {side: found}, line


def of_vectors(ours: Glossary, against: Path | None, material: Material) -> Result:
    """What guessing costs word vectors, and what files of questions say of them."""
    from regard.api import load_glossary
    from regard.evaluate.vectors import estimates_of

    def measured(glossary: Glossary) -> tuple[Any, list[Any]]:
        asked, texts = estimates_of(glossary, material.files)
        if asked and not texts:
            return None, asked
        side, shard = replace(material, files=texts).read(glossary)
        return (side, glossary.measure(shard).estimates), asked

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
        theirs, others = measured(load_glossary(against))
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


def summary(side: str, measured: Measured, found: dict[str, Figure]) -> tuple[dict[str, Any], str]:
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


def compared(against: Path, ours: Measured, theirs: Measured) -> tuple[dict[str, Any], str]:
    """The difference in cost to another run, for --json and in words."""
    from regard.evaluate.report import difference, verdict

    gap = difference(ours, theirs)
    words = verdict(gap)
    bits = f" ({gap.value / math.log(2):+.4f} bits)" if math.isfinite(gap.value) else ""
    line = f"\nagainst {against}: {gap} nats per symbol{bits}: {words}"
    return {"run": str(against), "nats_per_symbol": gap.to_json(), "verdict": words}, line
