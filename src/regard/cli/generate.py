"""regard generate"""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.records import Format, Input, Strict
from regard.cli.strategy import (
    Beams,
    Device,
    Int8,
    Name,
    Penalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    strategy_of,
)
from regard.errors import quoted

if TYPE_CHECKING:
    from regard.api import Continuation, Generator
    from regard.data.inputs import Item

Run = Annotated[Path, typer.Argument(help="A run folder.")]
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
    run: Run,
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

    Example: regard generate runs/names-transformer --prompt ma --num 5 --temperature 0.8

    Prompts from a file: regard generate runs/names-transformer --prompt-file some.txt

    Sampling applies, in this order: forbidden transitions, temperature, top-K, top-P.
    """
    from regard.api import continuations, load_generator
    from regard.cli.output import plain, print_json
    from regard.cli.records import noted, read, reading_for
    from regard.data.inputs import RecordNotes
    from regard.decoding import ForbiddenTransitions
    from regard.errors import UsageError

    chosen = strategy_of(
        strategy,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        beams=beams,
        length_penalty=length_penalty,
        n_best=num,
    )
    if stream and (json or prompt_file or len(prompt or []) > 1 or strategy == "beam"):
        raise UsageError(
            "--stream is for one sequence as it comes: no --json, beam, --prompt-file or 2nd "
            "--prompt"
        )
    if prompt and prompt_file:
        raise UsageError("give --prompt or --prompt-file, not both")
    generator = load_generator(run, int8=int8, device=device)
    batches: Iterable[list[Item]] = [given(generator, prompt)]
    if prompt_file:
        batches = read(run, prompt_file, generator.tokenizer, reading_for(run, input, "", format))
    notes = RecordNotes(generator.tokenizer, generator.context, empty=False)
    entries = [entry for some in noted(batches, notes, strict) for entry in zip(*some, strict=True)]
    prompts = [item.text for item, _ in entries]
    rules = ForbiddenTransitions.from_file(forbid, generator.tokenizer) if forbid else None
    if stream:
        print(prompts[0], end="")
    copies = num if strategy == "sample" and not stream else 1
    told = teller(generator) if stream else None
    found = continuations(
        generator, prompts, chosen, copies=copies, max_new=max_new, forbidden=rules, on_token=told
    )
    warn_of_dead_ends(found)
    each = len(found) // max(1, len(entries))  # sequences of a prompt
    rows = [(*entries[i // each], sequence) for i, sequence in enumerate(found)]
    if json:
        print_json({"sequences": [{"id": i.id} | s.to_json() | {"note": n} for i, n, s in rows]})
        return
    for item, note, sequence in rows:
        text = "" if stream else sequence.text if generator.text else plain(sequence.text)
        print(f"{plain(item.id)}\t{text}\t{plain(note)}" if item.named else text)


def warn_of_dead_ends(found: Sequence[Continuation]) -> None:
    """Say which sequences ended because nothing was allowed any more."""
    for item in found:
        if item.dead_end:
            text = quoted(item.text)
            print(f"warning: {text} ended where all is forbidden", file=sys.stderr)


def teller(generator: Generator) -> Callable[[int, int], None]:
    """Prints tokens as they come; a character may come in several."""
    whole = getincrementaldecoder("utf-8")("replace")

    def tell(row: int, token: int) -> None:
        print(whole.decode(generator.tokenizer.raw[token]), end="", flush=True)

    return tell


def given(generator: Generator, prompts: Sequence[str] | None) -> list[Item]:
    """The prompts of the command line; running text is entered after a line break."""
    from regard.data.inputs import Item

    if not any(prompts or [""]) and generator.text:
        print("no --prompt: running text is entered after a line break", file=sys.stderr)
        prompts = ["\n"]
    return [Item(text, str(i)) for i, text in enumerate(prompts or [""], start=1)]
