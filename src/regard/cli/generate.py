"""regard generate"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.decode import Strategy


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="What to continue; several make a batch.")
    ] = None,
    num: Annotated[int, typer.Option(min=1, help="Sequences for each prompt.")] = 10,
    strategy: Annotated[str, typer.Option(help="greedy, sample or beam.")] = "sample",
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens to add.")] = 200,
    temperature: Annotated[float, typer.Option(help="Divides the logits; 0 is greedy.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Keep only the K likeliest; 0 keeps all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep the fewest whose mass reaches P.")] = 1.0,
    beams: Annotated[int, typer.Option(help="Width of the beam.")] = 5,
    length_penalty: Annotated[
        float, typer.Option(help="Beam scores are divided by length to this power.")
    ] = 0.0,
    forbid: Annotated[str, typer.Option(help="A file of forbidden transitions.")] = "",
    seed: Annotated[int, typer.Option(help="Same seed, same samples.")] = 0,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print tokens as they come (one sequence).")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """New sequences from a trained model.

    Example: regard generate runs/names-transformer --prompt ma --num 5 --temperature 0.8

    Sampling applies, in this order: forbidden transitions, temperature, top-K, top-P.
    """
    from regard.api import continuations, load
    from regard.cli.output import plain, print_json
    from regard.decode import Forbidden
    from regard.errors import UsageError

    chosen = strategy_of(
        strategy,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        beams=max(beams, num),
        length_penalty=length_penalty,
        n_best=num,
    )
    predictor = load(run)
    prompts = list(prompt or [""])
    if stream and (json or len(prompts) > 1):
        raise UsageError(
            "--stream prints one sequence as it comes: give one --prompt and no --json"
        )
    if prompts == [""] and predictor.text:
        prompts = ["\n"]
        print("no --prompt: running text is entered after a line break", file=sys.stderr)
    for text in prompts:
        unknown = int((predictor.tokenizer.encode(text) == predictor.tokenizer.unk).sum())
        if unknown:
            print(
                f"warning: {unknown} symbols of {text!r} are unknown to the model", file=sys.stderr
            )
    rules = Forbidden.from_file(forbid, predictor.tokenizer) if forbid else None
    copies = num if strategy == "sample" and not stream else 1

    def show(row: int, token: int) -> None:
        if token != predictor.tokenizer.end:
            print(predictor.tokenizer.decode([token]), end="", flush=True)

    if stream:
        print(prompts[0], end="")
    found = continuations(
        predictor,
        prompts,
        chosen,
        copies=copies,
        max_new=max_new,
        forbidden=rules,
        on_token=show if stream else None,
    )
    if stream:
        print()
        return
    if json:
        print_json({"sequences": [item.to_json() for item in found]})
        return
    for item in found:
        if item.dead_end:
            print(
                f"warning: {item.text!r} ended where every next token is forbidden", file=sys.stderr
            )
        print(item.text if predictor.text else plain(item.text))


def strategy_of(
    name: str,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    beams: int,
    length_penalty: float,
    n_best: int,
) -> Strategy:
    """The decoding strategy of that name; a value out of range is a UsageError."""
    from regard.decode import Beam, Greedy, Sample
    from regard.errors import UsageError, did_you_mean

    try:
        if name == "greedy":
            return Greedy()
        if name == "sample":
            return Sample(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        if name == "beam":
            return Beam(width=beams, length_penalty=length_penalty, n_best=n_best)
    except ValueError as error:
        raise UsageError(str(error)) from None
    hint = did_you_mean(name, ["greedy", "sample", "beam"])
    raise UsageError(f"unknown strategy {name!r}; {hint}")
