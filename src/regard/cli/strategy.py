"""The decoding options that several verbs share, and the strategy built from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from regard.decoding import Strategy

Name = Annotated[str, typer.Option(help="greedy, sample or beam.")]
Way = Annotated[str, typer.Option("--strategy", help="greedy, sample, beam or mbr.")]
Temperature = Annotated[float, typer.Option(help="Divides the logits; 0 is greedy.")]
TopK = Annotated[int, typer.Option(help="Keep only the K likeliest; 0 keeps all.")]
TopP = Annotated[float, typer.Option(help="Keep the fewest whose mass reaches P.")]
Beams = Annotated[
    int | None, typer.Option(min=1, help="Width of the beam; by default 5, of mbr 24.")
]
Penalty = Annotated[float, typer.Option(help="Beam scores are divided by length to this power.")]
Others = Annotated[
    list[Path] | None,
    typer.Option("--ensemble", help="Another run: probabilities are averaged."),
]
Seed = Annotated[int, typer.Option(help="Same seed, same samples.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:1.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Weights in int8: faster on a CPU, rounded.")]


class Sampling(NamedTuple):
    """The options of random sampling."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


def strategy_of(
    name: str,
    sampling: Sampling = Sampling(),  # noqa: B008  # immutable
    *,
    beams: int | None = None,
    length_penalty: float = 0.0,
    n_best: int = 1,
    text: Callable[[Sequence[int]], str] | None = None,
) -> Strategy:
    """Return the decoding strategy of that name; a value out of range is a UsageError.

    mbr needs `text`, which decodes ids.
    """
    from regard.decoding import Beam, Greedy, MinimumBayesRisk, Sample
    from regard.errors import UsageError, did_you_mean

    try:
        if name == "greedy":
            return Greedy()
        if name == "sample":
            return Sample(**sampling._asdict())
        if name == "beam":
            width = max(beams or Beam.width, n_best)
            return Beam(width, length_penalty=length_penalty, n_best=n_best)
        if name == "mbr" and text is not None:
            return MinimumBayesRisk(text, width=beams or MinimumBayesRisk.width)
    except ValueError as error:
        raise UsageError(str(error)) from None
    known = ["greedy", "sample", "beam", *(["mbr"] if text is not None else [])]
    raise UsageError(f"unknown strategy {name!r}; {did_you_mean(name, known)}")
