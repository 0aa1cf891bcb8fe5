"""regard generate"""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import (
    Beams,
    Device,
    Format,
    Input,
    Int8,
    Name,
    Penalty,
    RunFolder,
    Sampling,
    Seed,
    Strict,
    Temperature,
    TopK,
    TopP,
    noted,
    read_records,
    rows_reporter,
    strategy_of,
)
from regard.errors import UsageError, quoted

if TYPE_CHECKING:
    from regard.api import Continuation, Generator
    from regard.data.inputs import InputReader, Item

Prompt = Annotated[list[str] | None, typer.Option(help="What to continue; several make a batch.")]
PromptFile = Annotated[
    Path | None,
    typer.Option(help="Prompts, read as records are: lines, FASTA, tables; - is standard input."),
]
Num = Annotated[int, typer.Option(min=1, help="Sequences for each prompt.")]
MaxNew = Annotated[int, typer.Option(min=1, help="Most tokens to add.")]
Forbid = Annotated[str, typer.Option(help="A file of forbidden transitions.")]
Stream = Annotated[bool, typer.Option("--stream", help="Print tokens as they come (one sequence).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: RunFolder,
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    input: Input = "",
    format: Format = "auto",
    strict: Strict = False,
    num: Num = 10,
    strategy: Name = "sample",
    max_new: MaxNew = 200,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    beams: Beams = None,
    length_penalty: Penalty = 0.0,
    forbid: Forbid = "",
    seed: Seed = 0,
    int8: Int8 = False,
    device: Device = "auto",
    stream: Stream = False,
    json: Json = False,
) -> None:
    """New sequences from a trained model.

    Example: regard generate runs/names --prompt ma --num 5 --temperature 0.8

    Prompts from a file: regard generate runs/names --prompt-file others.txt --num 1

    Of molecules and sequences it also prints, to standard error, how many are valid (RDKit can
    parse them; no letters but those of bases or amino acids), different, and not in the training
    data.

    Sampling applies, in this order: forbidden transitions, temperature, top-K, top-P.
    """
    from regard.api import load
    from regard.decoding import ForbiddenTransitions

    sampling = Sampling(temperature, top_k, top_p, seed)
    decoding = strategy_of(
        strategy, sampling, beams=beams, length_penalty=length_penalty, n_best=num
    )
    if stream and (json or prompt_file or len(prompt or []) > 1 or strategy == "beam"):
        raise UsageError(
            "--stream is for one sequence as it comes: no --json, beam, --prompt-file or 2nd "
            "--prompt"
        )
    if prompt and prompt_file:
        raise UsageError("give --prompt or --prompt-file, not both")
    generator = load(run, verb="generate", int8=int8, device=device)
    reader = generator.reader.asked(input=input, format=format) if prompt_file else None
    records = read_prompts(generator, prompt, prompt_file, reader, strict)
    rules = ForbiddenTransitions.from_file(forbid, generator.tokenizer) if forbid else None
    copies = num if strategy == "sample" and not stream else 1
    on_token = start_stream(generator, records[0][0].text) if stream else None
    sequences = generator.continuations(
        [item.text for item, _ in records],
        decoding,
        copies=copies,
        max_new=max_new,
        forbidden=rules,
        on_token=on_token,
    )
    print_sequences(generator, records, sequences, json, stream)


def read_prompts(
    generator: Generator,
    prompts: Sequence[str] | None,
    file: Path | None,
    reader: InputReader | None,
    strict: bool,
) -> list[tuple[Item, str]]:
    """Return the prompts of a file or of the command line, each with its note."""
    from regard.data.inputs import RecordNotes

    batches: Iterable[list[Item]] = (
        read_records(generator, file, reader)
        if file and reader
        else [prompt_items(generator, prompts)]
    )
    notes = RecordNotes(generator.tokenizer, generator.context, empty=False)
    return [
        record
        for items, lines in noted(batches, notes, strict, rows_reporter(), "reading")
        for record in zip(items, lines, strict=True)
    ]


def print_sequences(
    generator: Generator,
    records: Sequence[tuple[Item, str]],
    sequences: Sequence[Continuation],
    json: bool,
    stream: bool,
) -> None:
    """Print the sequences of each prompt, and a warning for those that nothing could continue."""
    from regard.console import plain, print_json

    for sequence in sequences:
        if sequence.dead_end:
            text = quoted(sequence.text)
            print(f"warning: {text} ended where all is forbidden", file=sys.stderr)
    validity = generator.validity([sequence.text for sequence in sequences])
    each = len(sequences) // max(1, len(records))  # sequences of a prompt
    rows = [(*records[i // each], sequence) for i, sequence in enumerate(sequences)]
    if json:
        entries = [{"id": i.id} | s.to_json() | {"note": n} for i, n, s in rows]
        measured = {} if validity is None else {"validity": validity.to_json()}
        print_json({"sequences": entries, **measured})
        return
    for item, note, sequence in rows:
        text = "" if stream else sequence.text if generator.text else plain(sequence.text)
        print(f"{plain(item.id)}\t{text}\t{plain(note)}" if item.named else text)
    for line in validity.lines() if validity else ():
        print(line, file=sys.stderr)


def start_stream(generator: Generator, prompt: str) -> Callable[[int, int], None]:
    """Print the prompt; return a function that prints each new token."""
    print(prompt, end="")
    decoder = getincrementaldecoder("utf-8")("replace")  # a character may be more than one token

    def print_token(row: int, token: int) -> None:
        print(decoder.decode(generator.tokenizer.raw[token]), end="", flush=True)

    return print_token


def prompt_items(generator: Generator, prompts: Sequence[str] | None) -> list[Item]:
    """Return the prompts of the command line; running text starts after a line break."""
    from regard.data.inputs import Item

    if not any(prompts or [""]) and generator.text:
        print("no --prompt: running text is entered after a line break", file=sys.stderr)
        prompts = ["\n"]
    return [Item(text, str(i)) for i, text in enumerate(prompts or [""], start=1)]
