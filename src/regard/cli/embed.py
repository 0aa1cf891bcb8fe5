"""regard embed"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.strategy import Device

Run = Annotated[Path, typer.Argument(help="A run folder of labels or values, or of word vectors.")]
File = Annotated[
    Path, typer.Argument(help="Texts, a line each, or - for standard input; or images.")
]
Out = Annotated[Path | None, typer.Option(help="A .npy file; without it, TSV on standard output.")]
Positions = Annotated[
    bool, typer.Option("--positions", help="A vector for every token, not one for the text.")
]


def command(
    run: Run,
    file: File = Path("-"),
    out: Out = None,
    positions: Positions = False,
    device: Device = "auto",
) -> None:
    """The vector that a model makes of each line.

    Order kept, streaming where it goes to standard output.

    Example: regard embed runs/trec-transformer questions.txt --out questions.npy

    Of word vectors, a line's vector is the mean of its words'.

    --positions prints the number of the line, that of the token, and its vector.
    """
    import numpy as np

    from regard.api import load_embedder
    from regard.errors import UsageError, UserError

    if out is not None and out.suffix != ".npy":
        raise UsageError(f"--out must end in .npy, got {out.name!r}")
    embedder = load_embedder(run, device=device)
    kept, number = [], 0
    for _, records in embedder.records(None if str(file) == "-" else file):
        for vectors in embedder.embed(records, positions=positions):
            number += 1
            if out is not None:
                kept.append(vectors)
                continue
            for place, vector in enumerate(np.atleast_2d(vectors)):
                where = f"{number}\t{place + 1}\t" if positions else ""
                print(where + "\t".join(f"{x:.6g}" for x in vector))
    if out is not None:
        whole = np.concatenate(kept) if positions else np.stack(kept)
        try:
            np.save(out, whole, allow_pickle=False)
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror}") from None
        print(f"{whole.shape[0]:,} vectors of {whole.shape[1]} → {out}")
