"""regard evaluate"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Beams, Device, Format, Others, Penalty, RunFolder, Way

if TYPE_CHECKING:
    from regard.decoding import Strategy
    from regard.tokenizers import Tokenizer

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
    run: RunFolder,
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

    Example: regard evaluate runs/names others.txt

    Against another run, in pairs: regard evaluate runs/names --against runs/names-bigram

    Several translators as one: regard evaluate runs/train --ensemble runs/train-2

    By agreement of many instead of the likeliest: regard evaluate runs/train --strategy mbr

    Of vectors: regard evaluate runs/text-skipgram pairs.tsv analogies.txt
    """
    from regard.api import evaluate_run
    from regard.console import print_json, print_metrics
    from regard.errors import UsageError
    from regard.pipelines import EvaluationRequest
    from regard.training.progress import Reporter

    if not files and (input or target):
        option = f"--input {input}" if input else f"--target {target}"
        raise UsageError(f"{option} names a column of a file to measure on, and no FILE is given")
    remarks: list[str] = []
    with open_files(files or []) as paths, Reporter() as reporter:
        request = EvaluationRequest(
            files=paths,
            format=format,
            input=input,
            target=target,
            strict=strict,
            stride=stride,
            strategy=partial(decoding_strategy, strategy, beams, length_penalty),
            strategy_name=strategy,
            bleu={"tokenize": tokenize, "lowercase": lowercase},
            log=partial(log_remark, paths, remarks),
            progress=reporter.progress,
        )
        result = evaluate_run(run, request, others or [], against, device)
    if json:
        print_json(result.document | ({"remarks": remarks} if remarks else {}))
        return
    print_metrics({name: report.metrics() for name, report in result.reports.items()})
    print("\n".join(result.lines))


def decoding_strategy(
    name: str, beams: int | None, length_penalty: float, tokenizer: Tokenizer
) -> Strategy:
    """Return the decoding strategy for translations."""
    from regard.cli.options import strategy_of

    return strategy_of(name, beams=beams, length_penalty=length_penalty, text=tokenizer.decode)


def log_remark(files: Sequence[Path], remarks: list[str], line: str) -> None:
    """Print a remark on the files, and keep it for --json."""
    from regard.cli.options import log
    from regard.data.inputs import STANDARD

    for file in files:
        if file.name == STANDARD:
            line = line.replace(str(file), STANDARD)
    remarks.append(line)
    log(line)


@contextmanager
def open_files(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the files; standard input (`-`) is saved to a temporary file."""
    from regard.data.inputs import STANDARD, saved

    with ExitStack() as stack:
        yield [
            stack.enter_context(saved(sys.stdin.buffer, b"", STANDARD))
            if str(file) == "-"
            else file
            for file in files
        ]
