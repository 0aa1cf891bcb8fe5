"""What a model is measured on: a user's files, texts in memory, or the part a run held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from regard.data.array_files import read_arrays
from regard.data.captions import Captions
from regard.data.corpus import reopen
from regard.data.formats import extension
from regard.data.images import ImageFiles
from regard.data.inputs import InputReader, Item, Say, quiet
from regard.data.labelled import ColumnSelection, LabelledFiles, class_of, classes_like
from regard.data.pairs import Pairs
from regard.data.point_clouds import PointCloudFiles
from regard.data.readers import TABLES, FileSet, TextFiles
from regard.data.shards import Array, Shard
from regard.data.tables import columns_in, listed
from regard.data.targets import GAP, Targets, marked
from regard.data.views import Views
from regard.errors import UsageError, UserError
from regard.tokenizers import Patches, Points, Tokenizer

SHOWN = 5  # labels that a message names


def shard_of(texts: Sequence[str], tokenizer: Tokenizer, *, kind: str = "records") -> Shard:
    """Texts as a shard in memory: records, or documents of running text."""
    ids, lengths = tokenizer.encode_batch(list(texts))
    if ids.shape[1:]:
        return shard_of_numbers(ids, lengths, tokenizer)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths) + 2)]).astype(np.int64)
    flat = np.empty(int(offsets[-1]), dtype=tokenizer.dtype)
    inside = np.ones(len(flat), dtype=bool)
    inside[offsets[:-1]] = inside[offsets[1:] - 1] = False
    flat[offsets[:-1]], flat[offsets[1:] - 1], flat[inside] = tokenizer.start, tokenizer.end, ids
    return Shard(
        path=Path("memory"),
        kind=kind,
        ids=flat,
        offsets=offsets,
        vocab_size=tokenizer.vocab_size,
        records=len(lengths),
        tokens=len(flat),
        symbols=int(tokenizer.symbols[ids].sum()) + len(lengths),
        bytes=int(tokenizer.byte_counts[ids].sum()),
    )


def shard_of_numbers(ids: Array, lengths: Array, tokenizer: Tokenizer) -> Shard:
    """Tokens (N, V) that are numbers as a shard in memory."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Shard(
        path=Path("memory"),
        kind="records",
        ids=ids,
        offsets=offsets,
        vocab_size=tokenizer.vocab_size,
        records=len(lengths),
        tokens=len(ids),
        symbols=len(ids),
        bytes=ids.size,
    )


def shard_from(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    reading: InputReader,
    *,
    strict: bool = False,
    say: Say = quiet,
) -> Shard:
    """A user's files as a shard, read as a run read its own; every file of running text is one
    document. What is left out is counted and said, or refused when `strict`.
    """
    format = reading.format_to_measure(files)
    column = next(iter(reading.inputs), "") if _tables(files, format) else ""
    shared = {"strict": strict, "encoding": reading.encoding}
    source = TextFiles(list(files), format=format, column=column, **shared)  # type: ignore[arg-type]
    if source.format == "text":
        texts = ["".join(document.text()) for document in source.documents()]
        found = shard_of(texts, tokenizer, kind="text")
    else:
        found = shard_of([text for chunk in source.records() for text in chunk.texts], tokenizer)
    tell_of(source, reading, say)
    return found


def _of_arrays(files: Sequence[Path], reading: InputReader) -> ColumnSelection:
    """What to read of images or point clouds. The run's names of columns may be those of a table: a
    file of arrays without them is read as one whose names nobody has given.
    """
    inputs, targets = reading.inputs, reading.targets
    if Path(files[0]).suffix == ".npz":
        names = set(read_arrays(Path(files[0])))
        inputs = inputs if reading.input_asked else tuple(n for n in inputs if n in names)
        targets = targets if reading.target_asked else tuple(n for n in targets if n in names)
    return ColumnSelection(inputs=inputs or ("",), targets=targets, missing=reading.missing)


def reader_of(
    files: Sequence[Path],
    source_tokenizer: Tokenizer,
    reading: InputReader,
    *,
    side: int = 0,
    strict: bool = False,
) -> Pairs | Captions:
    """A user's pairs, of texts or, as the tokenizer says, of pictures and captions."""
    if isinstance(source_tokenizer, Patches):
        asked = _of_arrays(files, reading.first_text)
        return Captions(list(files), asked, strict=strict, side=side)
    format = reading.format_asked or (
        "auto" if len(files) > 1 else _format_of_pairs(files, reading)
    )
    columns = ("", "")
    if _tables(files, format):
        columns = (next(iter(reading.inputs), ""), next(iter(reading.targets), ""))
    return Pairs(
        list(files), format=format, columns=columns, strict=strict, encoding=reading.encoding
    )


def _format_of_pairs(files: Sequence[Path], reading: InputReader) -> str:
    """That of one file: a table, if it is one."""
    found = reading.format_to_measure(files)
    return found if found in TABLES else "auto"


def pairs_from(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    source_tokenizer: Tokenizer,
    reading: InputReader,
    *,
    side: int = 0,
    strict: bool = False,
    say: Say = quiet,
) -> Shard:
    """A user's pairs as a shard; files are as `Pairs` takes them, or `Captions`, whose pictures are
    brought to `side` pixels. Damaged pairs are as in `shard_from`.
    """
    reader = reader_of(files, source_tokenizer, reading, side=side, strict=strict)
    chunks = list(reader.records())
    tell_of(reader, reading, say)
    sources = shard_of([text for chunk in chunks for text in chunk.sources], source_tokenizer)
    return shard_of([text for chunk in chunks for text in chunk.texts], tokenizer).paired(sources)


def pair_items(
    files: Sequence[Path], source_tokenizer: Tokenizer, reading: InputReader, side: int, say: Say
) -> Iterator[list[Item]]:
    """A user's pairs one by one, in their places: sources with their targets as `second`."""
    if not isinstance(source_tokenizer, Patches):
        yield from reading.pairs(files, say)
        return
    reader = reader_of(files, source_tokenizer, reading, side=side)
    for chunk in reader.records():
        yield [
            Item(picture, chunk.place(i), text, shown=chunk.place(i))
            for i, (picture, text) in enumerate(zip(chunk.sources, chunk.texts, strict=True))
        ]
    tell_of(reader, reading, say)


def labelled_from(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    targets: Targets,
    reading: InputReader,
    *,
    views: Views | None = None,
    side: int = 0,
    surface: int = 0,
    strict: bool = False,
    say: Say = quiet,
) -> Shard:
    """A user's labelled records as a shard; files are as `LabelledFiles` takes them, and damaged
    records as in `shard_from`. Classes that a model does not know are said; only such ones are an
    error.
    """
    source: LabelledFiles
    if isinstance(tokenizer, Patches | Points):
        asked = _of_arrays(files, reading)
        if isinstance(tokenizer, Patches):
            source = ImageFiles(list(files), asked, strict=strict, side=side)
        else:
            source = PointCloudFiles(list(files), asked, strict=strict, surface=surface)
    else:
        format = reading.format_to_measure(files)
        asked, how = _asked(files, format, reading)
        if how:
            say(f"classes {how}")
        shared = {"strict": strict, "encoding": reading.encoding}
        source = LabelledFiles(list(files), asked, format=format, **shared)  # type: ignore[arg-type]
    source.kind = targets.kind
    chunks = list(source.examples())
    tell_of(source, reading, say)
    texts = [text for chunk in chunks for text in chunk.texts]
    found = shard_of(views.texts(texts) if views else texts, tokenizer)
    if source.two_texts:
        more = [text for chunk in chunks for text in chunk.sources]
        found = found.paired(shard_of(more, tokenizer))
    cells = [row for chunk in chunks for row in chunk.targets]
    _compare_classes(cells, targets, say)
    values = targets.encode(cells)
    if targets.kind.aligned:
        values = marked(values, np.diff(found.offsets) - found.markers, found.markers)
    if views:
        values = np.repeat(values, views.count, axis=0)
    aligned = targets.kind.aligned
    return replace(found, targets=values, aligned=aligned, views=views.count if views else 1)


def _tables(files: Sequence[Path], format: str) -> bool:
    """Do these files have columns?"""
    return (extension(files[0]) if format == "auto" else format) in TABLES


def _asked(files: Sequence[Path], format: str, reading: InputReader) -> tuple[ColumnSelection, str]:
    """What labelled files are asked for, as those of the run were, and how classes were found where
    each file holds one.
    """
    columns = _tables(files, format)
    inputs = (reading.inputs or ("",)) if columns else ("",)
    names, classes, how = reading.targets, tuple[str, ...](), ""
    if reading.classes and not names:
        if columns and len(files) == 1 and class_of(files[0]) not in reading.classes:
            kind = extension(files[0]) or format
            found = columns_in(files[0], kind, encoding=reading.encoding, named=False)
            raise UsageError(
                f"{files[0]}: which column has the labels? say --target COLUMN; it has "
                f"{listed(found)}"
            )
        classes, how = classes_like(files, reading.classes)
    elif reading.format in TABLES and not columns and not reading.target_asked and len(files) > 1:
        names, how = (), "by the names of the files"  # the run had a column instead
    labels = Path(reading.labels) if reading.labels and not columns else None
    asked = ColumnSelection(
        inputs=inputs,
        targets=names,
        pattern=reading.pattern,
        labels=labels,
        classes=classes,
        missing=reading.missing,
        per_line=reading.per_line,
    )
    return asked, how


def tell_of(source: FileSet, reading: InputReader, say: Say) -> None:
    """Say what a pass over a user's files has left out, and which of them trained the run."""
    if source.skipped:
        damaged = (
            "record is damaged and was" if source.skipped == 1 else "records are damaged and were"
        )
        say(f"{source.skipped:,} {damaged} skipped; first: {source.problems[0]}")
    for remark in source.remarks:
        say(remark)
    same = reading.trained_on(source)
    if same:
        more = f" and {len(same) - 1:,} more" if len(same) > 1 else ""
        say(
            f"{same[0]}{more}: the run was trained on this file, so the figures include records "
            "that it has learned; without a file, evaluate measures the part held out"
        )


def _compare_classes(cells: Sequence[tuple[str, ...]], targets: Targets, say: Say) -> None:
    """Say which labels are no classes of the run; an error where none is one."""
    for place, classes in enumerate(targets.classes):
        found: Counter[str] = Counter()
        for row in cells:
            found.update(targets.kind.counts(row[place]))
        del found[""], found[GAP]
        wrong = {label: n for label, n in found.items() if label not in classes}
        if not wrong:
            continue
        shown = _several(sorted(wrong, key=lambda label: -wrong[label]))
        if len(wrong) == len(found):
            raise UserError(
                f"none of the labels {shown} is a class of this run: {_several(classes)}"
            )
        total, all_ = sum(wrong.values()), sum(found.values())
        say(f"{total:,} of {all_:,} labels are no class of this run and are not measured: {shown}")


def _several(names: Sequence[str]) -> str:
    """Some names in a few words."""
    shown = ", ".join(repr(name[:40]) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")


def held_out(
    run: Path, tokenizer: Tokenizer, source_tokenizer: Tokenizer | None = None
) -> tuple[str, Shard]:
    """The part of a run's data to report on and its name: test, or else valid.

    Other tokenizers than the run's own read the same texts afresh.
    """
    if not (run / "data" / "manifest.json").exists():
        raise UserError(
            f"{run} holds no data (imported, or data/ deleted): name a file to measure on"
        )
    corpus = reopen(run, held_out=True)
    side = "test" if corpus.test is not None else "valid"
    shard = corpus.side(side)
    if shard is None:
        raise UserError(f"nothing was held out when {run} was trained: name a file to measure on")
    found = afresh(shard, corpus.tokenizer, tokenizer)
    if shard.source is not None and corpus.source_tokenizer is not None:
        reads = source_tokenizer or tokenizer
        found = found.paired(afresh(shard.source, corpus.source_tokenizer, reads))
    return side, found


def afresh(shard: Shard, own: Tokenizer, tokenizer: Tokenizer) -> Shard:
    """A shard that one tokenizer made as another one reads it."""
    if own.raw == tokenizer.raw and type(own) is type(tokenizer):
        return shard
    if isinstance(own, Patches | Points) or isinstance(tokenizer, Patches | Points):
        raise UserError(
            f"{shard.path} holds other tokens of numbers: name the files to measure both on"
        )
    if bool(np.any(np.asarray(shard.ids) == own.unk)):
        raise UserError(
            f"{shard.path} holds unknown symbols, which another tokenizer cannot read: "
            "name the files to measure both on"
        )
    texts = [own.decode(shard.record(i)[1:-1]) for i in range(shard.records)]
    found = shard_of(texts, tokenizer, kind=shard.kind)
    if shard.targets is None:
        return found
    if len(shard.targets) == shard.tokens != found.tokens:
        raise UserError(f"{shard.path} asks about positions, which another tokenizer has not")
    return replace(found, targets=shard.targets, views=shard.views)
