"""regard embed"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Format, Input, Strict

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

Texts = Annotated[
    bool, typer.Option("--texts", help="Contrastive runs: FILE holds texts, not their sources.")
]


def command(
    run: Run,
    file: File = Path("-"),
    out: Out = None,
    positions: Positions = False,
    texts: Texts = False,
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

    from regard.api import load
    from regard.cli.options import noted, read_records
    from regard.console import plain
    from regard.data.inputs import RecordNotes
    from regard.errors import UsageError

    if out is not None and out.suffix != ".npy":
        raise UsageError(f"--out must end in .npy, got {out.name!r}")
    embedder = load(run, verb="embed", device=device)
    if texts:
        embedder = embedder.texts
    reader = embedder.reader.asked(input=input, format=format)
    notes = RecordNotes(embedder.source_tokenizer, embedder.context)
    stored: list[NDArray[np.float32] | None] = []
    width = 0  # of a vector, once there is one
    for items, lines in noted(read_records(embedder, file, reader), notes, strict):
        valid = [item for item in items if not item.note]
        seconds = [item.second for item in valid] if len(reader.inputs) == 2 else None
        records = [item.text for item in valid]
        vectors = embedder.embed(records, seconds=seconds, positions=positions) if valid else []
        width = vectors[0].shape[-1] if vectors else width
        remaining = iter(vectors)
        for item, note in zip(items, lines, strict=True):
            vector = None if item.note else next(remaining)
            if out is not None:
                stored.append(vector)
                continue
            rows = np.atleast_2d(np.full(width, np.nan) if vector is None else vector)
            for number, row in enumerate(rows, start=1):
                cells = [plain(item.id), *[str(number)] * positions]
                cells += [f"{x:.6g}" for x in row]
                print("\t".join(cells if positions else [*cells, plain(note)]))
    if out is not None:
        save(out, [one for one in stored if one is not None] if positions else stored, width)


def save(out: Path, vectors: Sequence[NDArray[np.float32] | None], width: int) -> None:
    """Write all vectors as one array; None becomes nan."""
    import numpy as np

    from regard.errors import UserError

    if not vectors:
        raise UserError("there are no records, and no vectors to write")
    missing = np.full(width, np.nan, np.float32)
    matrix = np.concatenate([np.atleast_2d(missing if one is None else one) for one in vectors])
    try:
        np.save(out, matrix, allow_pickle=False)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    print(f"{matrix.shape[0]:,} vectors of {matrix.shape[1]} → {out}")
