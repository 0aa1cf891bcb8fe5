"""regard generate"""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from regard.api import Continuation, Predictor

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Prompt = Annotated[list[str] | None, typer.Option(help="What to continue; several make a batch.")]
Num = Annotated[int, typer.Option(min=1, help="Sequences for each prompt.")]
MaxNew = Annotated[int, typer.Option(min=1, help="Most tokens to add.")]
Forbid = Annotated[str, typer.Option(help="A file of forbidden transitions.")]
Stream = Annotated[bool, typer.Option("--stream", help="Print tokens as they come (one sequence).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: Run,
    prompt: Prompt = None,
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

    Sampling applies, in this order: forbidden transitions, temperature, top-K, top-P.
    """
    from regard.api import continuations, load_predictor
    from regard.cli.output import plain, print_json
    from regard.decode import Forbidden
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
    if stream and (json or len(prompt or []) > 1 or strategy == "beam"):
        raise UsageError(
            "--stream is for one sequence as it comes: no --json, beam or 2nd --prompt"
        )
    predictor = load_predictor(run, int8=int8, device=device)
    prompts = entered(predictor, list(prompt or [""]))
    rules = Forbidden.from_file(forbid, predictor.tokenizer) if forbid else None
    if stream:
        print(prompts[0], end="")
    copies = num if strategy == "sample" and not stream else 1
    told = teller(predictor) if stream else None
    found = continuations(
        predictor, prompts, chosen, copies=copies, max_new=max_new, forbidden=rules, on_token=told
    )
    warn_of_dead_ends(found)
    if json:
        print_json({"sequences": [item.to_json() for item in found]})
        return
    for item in found:
        print("" if stream else item.text if predictor.text else plain(item.text))


def warn_of_dead_ends(found: Sequence[Continuation]) -> None:
    """Say which sequences ended because nothing was allowed any more."""
    for item in found:
        if item.dead_end:
            text = quoted(item.text)
            print(f"warning: {text} ended where all is forbidden", file=sys.stderr)


def teller(predictor: Predictor) -> Callable[[int, int], None]:
    """Prints tokens as they come; a character may come in several."""
    whole = getincrementaldecoder("utf-8")("replace")

    def tell(row: int, token: int) -> None:
        print(whole.decode(predictor.tokenizer.raw[token]), end="", flush=True)

    return tell


def entered(predictor: Predictor, prompts: list[str]) -> list[str]:
    """The prompts, running text being entered after a line break; says what is unknown in them."""
    if prompts == [""] and predictor.text:
        print("no --prompt: running text is entered after a line break", file=sys.stderr)
        return ["\n"]
    tokenizer = predictor.tokenizer
    for text in prompts:
        unknown = int((tokenizer.encode(text) == tokenizer.unk).sum())
        if unknown:
            shown = quoted(text)
            print(f"warning: {unknown} symbols of {shown} are unknown here", file=sys.stderr)
    return prompts
