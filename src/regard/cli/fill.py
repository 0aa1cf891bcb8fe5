"""regard fill"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, RunFolder

if TYPE_CHECKING:
    from regard.pipelines.masked_predictor import MaskedPredictor


def command(
    run: RunFolder,
    text: Annotated[str, typer.Argument(help="A text with [MASK] or <mask> in it, once or more.")],
    num: Annotated[int, typer.Option(min=1, help="Candidates for each mask.")] = 5,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """What a masked language model would put in place of [MASK].

    Example: regard fill runs/text-masked "the [MASK] sat on the mat"

    Proteins, DNA and molecules: regard fill runs/proteins "MKT[MASK]YIA[MASK]QR" --num 3

    Each mask stands for one token. Several are unknown together: their candidates do not depend on
    each other.

    Prints a line for each candidate: the position of the mask among the tokens, from 1, a tab, its
    probability, a tab and the token.
    """
    from regard.api import load
    from regard.console import plain, print_json

    predictor: MaskedPredictor = load(run, verb="fill", device=device)
    masks = predictor.fill(text, num=num)
    if json:
        print_json({"masks": [mask.to_json() for mask in masks]})
        return
    for mask in masks:
        for one in mask.candidates:
            print(f"{mask.position}\t{one.probability:.4f}\t{plain(one.token)}")
