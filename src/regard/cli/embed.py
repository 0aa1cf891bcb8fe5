"""regard embed"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Format, Input, RunFolder, Strict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.data.inputs import Item

    Vector = NDArray[np.float32]
    Row = tuple[Item, str, Vector]  # a record, the note on it, its vector or vectors

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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

Texts = Annotated[
    bool, typer.Option("--texts", help="Contrastive runs: FILE holds texts, not their sources.")
]


def command(
    run: RunFolder,
    file: File = Path("-"),
    out: Out = None,
    positions: Positions = False,
    texts: Texts = False,
    input: Input = "",
    format: Format = "auto",
    strict: Strict = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """The vector that a model makes of each record.

    Files are read as in training, from the columns that the run was trained on. Order kept,
    streaming where it goes to standard output.

    Example: regard embed runs/questions new.txt --out new.npy

    Of word vectors, a record's vector is the mean of its words'.

    Prints the id of the record (the number of its line where it has no id), its vector and a note:
    whether it has unknown symbols, is truncated, empty or damaged; --positions prints the id, the
    number of the token, and its vector. A record that could not be read has a vector of nan.
    """
    from regard.api import load
    from regard.cli.options import count_records, noted, read_records, rows_reporter
    from regard.console import print_json
    from regard.data.inputs import RecordNotes
    from regard.errors import UsageError

    if out is not None and out.suffix != ".npy":
        raise UsageError(f"--out must end in .npy, got {out.name!r}")
    embedder = load(run, verb="embed", device=device)
    if texts:
        embedder = embedder.texts
    reader = embedder.reader.asked(input=input, format=format)
    notes = RecordNotes(embedder.source_tokenizer, embedder.context)
    total = count_records(embedder, file, reader)
    batches = read_records(embedder, file, reader)
    reporter = rows_reporter(json or out is not None)
    records = noted(batches, notes, strict, reporter, "embedding", total)
    rows = vectors(embedder, records, positions, two_texts=len(reader.inputs) == 2)
    if out is not None:
        saved = save(out, rows, positions)
        print_json(saved) if json else print(
            "{vectors:,} vectors of {width} → {out}".format(**saved)
        )
    elif json:
        print_json({"embeddings": [document(*row) for row in rows]})
    else:
        print_rows(rows, positions)


def vectors(
    embedder: Any,
    records: Iterable[tuple[list[Item], list[str]]],
    positions: bool,
    *,
    two_texts: bool,
) -> Iterator[Row]:
    """Yield records with their notes and vectors, in order; a record that has a note of its own,
    since it could not be read, has nan.
    """
    import numpy as np

    width = 0  # of a vector, once there is one
    for items, lines in records:
        valid = [item for item in items if not item.note]
        seconds = [item.second for item in valid] if two_texts else None
        texts = [item.text for item in valid]
        made = embedder.embed(texts, seconds=seconds, positions=positions) if valid else []
        width = made[0].shape[-1] if made else width
        remaining = iter(made)
        for item, note in zip(items, lines, strict=True):
            missing = np.full(width, np.nan, np.float32) if item.note else None
            yield item, note, next(remaining) if missing is None else missing


def document(item: Item, note: str, vector: Vector) -> dict[str, Any]:
    """Return an entry of --json; the vectors of positions are a list of lists."""
    return {"id": item.id, "vector": None if item.note else vector.tolist(), "note": note}


def print_rows(rows: Iterable[Row], positions: bool) -> None:
    """Print a line for each vector."""
    import numpy as np

    from regard.console import plain

    for item, note, vector in rows:
        for number, line in enumerate(np.atleast_2d(vector), start=1):
            cells = [plain(item.id), *[str(number)] * positions]
            cells += [f"{x:.6g}" for x in line]
            print("\t".join(cells if positions else [*cells, plain(note)]))


def save(out: Path, rows: Iterable[Row], positions: bool) -> dict[str, Any]:
    """Write all vectors as one array, without the positions of records that could not be read;
    return its size.
    """
    import numpy as np

    from regard.errors import UserError

    vectors = [np.atleast_2d(vector) for item, _, vector in rows if not (positions and item.note)]
    if not vectors:
        raise UserError("there are no records, and no vectors to write")
    width = vectors[-1].shape[1]
    missing = np.full((1, width), np.nan, np.float32)  # before the first that could be read
    matrix = np.concatenate([one if one.shape[1] == width else missing for one in vectors])
    try:
        np.save(out, matrix, allow_pickle=False)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    return {"vectors": matrix.shape[0], "width": matrix.shape[1], "out": str(out)}
