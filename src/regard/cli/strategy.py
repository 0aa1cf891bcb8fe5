"""The options of decoding that verbs share, and the strategy they choose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.decode import Strategy

Name = Annotated[str, typer.Option(help="greedy, sample or beam.")]
Temperature = Annotated[float, typer.Option(help="Divides the logits; 0 is greedy.")]
TopK = Annotated[int, typer.Option(help="Keep only the K likeliest; 0 keeps all.")]
TopP = Annotated[float, typer.Option(help="Keep the fewest whose mass reaches P.")]
Beams = Annotated[int, typer.Option(min=1, help="Width of the beam.")]
Penalty = Annotated[float, typer.Option(help="Beam scores are divided by length to this power.")]
Others = Annotated[
    list[Path] | None,
    typer.Option("--with", help="Another run that has a say: probabilities are averaged."),
]
Seed = Annotated[int, typer.Option(help="Same seed, same samples.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:1.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Weights in int8: faster on a CPU, rounded.")]


def strategy_of(
    name: str,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    beams: int = 5,
    length_penalty: float = 0.0,
    n_best: int = 1,
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
