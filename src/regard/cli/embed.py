"""regard embed"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.records import Format, Input, Strict
from regard.cli.strategy import Device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Run = Annotated[Path, typer.Argument(help="A run folder of labels or values, or of word vectors.")]
File = Annotated[
    Path,
    typer.Argument(
        help="Records: FASTA, CSV, TSV, JSONL, lines, or - for standard input; or images."
    ),
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
    input: Input = "",
    format: Format = "auto",
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """The vector that a model makes of each record.

    Files are read as in training, from the columns that the run was trained on. Order kept,
    streaming where it goes to standard output.

    Example: regard embed runs/trec-transformer questions.txt --out questions.npy

    Of word vectors, a record's vector is the mean of its words'.

    Prints the id of the record (the number of its line where it has no id), its vector and a note:
    whether it has unknown symbols, is truncated, empty or damaged; --positions prints the id, the
    number of the token, and its vector. A record that could not be read has a vector of nan.
    """
    import numpy as np

    from regard.api import load_embedder
    from regard.cli.output import plain
    from regard.cli.records import noted, read, reading_for
    from regard.data.inputs import RecordNotes
    from regard.errors import UsageError

    if out is not None and out.suffix != ".npy":
        raise UsageError(f"--out must end in .npy, got {out.name!r}")
    embedder = load_embedder(run, device=device)
    embedder.refuse_pipe(file)
    reading = reading_for(run, input, format=format)
    notes = RecordNotes(embedder.tokenizer, embedder.context)
    kept: list[NDArray[np.float32] | None] = []
    width = 0  # of a vector, once there is one
    for items, words in noted(read(run, file, embedder.tokenizer, reading), notes, strict):
        whole = [item for item in items if not item.note]
        seconds = [item.second for item in whole] if len(reading.inputs) == 2 else None
        texts = [item.text for item in whole]
        found = embedder.embed(texts, seconds=seconds, positions=positions) if whole else []
        width = found[0].shape[-1] if found else width
        vectors = iter(found)
        for item, note in zip(items, words, strict=True):
            own = None if item.note else next(vectors)
            if out is not None:
                kept.append(own)
                continue
            rows = np.atleast_2d(np.full(width, np.nan) if own is None else own)
            for place, row in enumerate(rows):
                cells = [plain(item.id), *[str(place + 1)] * positions]
                cells += [f"{x:.6g}" for x in row]
                print("\t".join(cells if positions else [*cells, plain(note)]))
    if out is not None:
        save(out, [one for one in kept if one is not None] if positions else kept, width)


def save(out: Path, kept: Sequence[NDArray[np.float32] | None], width: int) -> None:
    """Write all vectors as one array; what could not be read is nan."""
    import numpy as np

    from regard.errors import UserError

    if not kept:
        raise UserError("there are no records, and no vectors to write")
    missing = np.full(width, np.nan, np.float32)
    whole = np.concatenate([np.atleast_2d(missing if one is None else one) for one in kept])
    try:
        np.save(out, whole, allow_pickle=False)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    print(f"{whole.shape[0]:,} vectors of {whole.shape[1]} → {out}")
