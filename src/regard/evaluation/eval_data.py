"""Evaluation data as shards: from files, from texts in memory, or from the held-out split."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.corpus import FOLDER, MANIFEST, Corpus, prepare, reopen
from regard.data.formats import extension
from regard.data.inputs import InputReader, Item, Log, quiet
from regard.data.labelled import ColumnSelection, class_of, classes_like
from regard.data.media import read_arrays
from regard.data.shards import Array, Shard
from regard.data.sources import ReadRequest, Views
from regard.data.tables import listed
from regard.data.targets import GAP, Targets, marked
from regard.data.text_files import FileSet
from regard.errors import UsageError, UserError
from regard.registry import TABLES
from regard.run import RECIPE, Run
from regard.tokenizers import Tokenizer

SHOWN = 5  # labels that a message names


def shard_of(texts: Sequence[str], tokenizer: Tokenizer, *, kind: str = "records") -> Shard:
    """Return texts as a shard in memory: records, or documents of running text."""
    ids, lengths = tokenizer.encode_batch(list(texts))
    if ids.shape[1:]:
        return shard_of_numbers(ids, lengths, tokenizer)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths) + 2)]).astype(np.int64)
    flat = np.empty(int(offsets[-1]), dtype=tokenizer.dtype)
    content = np.ones(len(flat), dtype=bool)
    content[offsets[:-1]] = content[offsets[1:] - 1] = False
    flat[offsets[:-1]], flat[offsets[1:] - 1], flat[content] = tokenizer.start, tokenizer.end, ids
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
    """Return tokens (N, V) that are vectors of numbers as a shard in memory."""
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
    modality: Any,
    reading: InputReader,
    *,
    strict: bool = False,
    log: Log = quiet,
) -> Shard:
    """Return files as a shard, read like the training files of a run; each file of running text is
    one document. Damaged records are skipped and logged, or an error if `strict`.
    """
    format = reading.format_to_measure(files)
    column = next(iter(reading.inputs), "") if _are_tables(files, format) else ""
    columns = ColumnSelection(inputs=(column,))
    source: FileSet = modality.read(
        ReadRequest(list(files), columns, format, strict=strict, encoding=reading.encoding)
    )
    if source.format == "text":
        texts = ["".join(document.text()) for document in source.documents()]
        shard = shard_of(texts, tokenizer, kind="text")
    else:
        shard = shard_of([text for chunk in source.records() for text in chunk.texts], tokenizer)
    log_remarks(source, reading, log)
    return shard


def _array_columns(files: Sequence[Path], reading: InputReader) -> ColumnSelection:
    """Return the columns to read of images or point clouds.

    The columns of the run may be those of a table: a file of arrays that lacks them is read as if
    no names were given.
    """
    inputs, targets = reading.inputs, reading.targets
    if Path(files[0]).suffix == ".npz":
        names = set(read_arrays(Path(files[0])))
        inputs = inputs if reading.input_asked else tuple(n for n in inputs if n in names)
        targets = targets if reading.target_asked else tuple(n for n in targets if n in names)
    return ColumnSelection(inputs=inputs or ("",), targets=targets, missing=reading.missing)


def pairs_reader(
    files: Sequence[Path], modality: Any, reading: InputReader, *, strict: bool = False
) -> FileSet:
    """Return the reader of pairs: of two texts, or of an item and a text."""
    if not modality.reads_text:
        columns, format = _array_columns(files, reading.first_text), "auto"
    else:
        format = reading.format_asked or "auto"
        if not reading.format_asked and len(files) == 1:
            recognized = reading.format_to_measure(files)
            format = recognized if recognized in TABLES else "auto"
        columns = ColumnSelection()
        if _are_tables(files, format):
            columns = ColumnSelection(
                inputs=reading.inputs[:1] or ("",), targets=reading.targets[:1]
            )
    reader: FileSet = modality.read(
        ReadRequest(
            list(files), columns, format, paired=True, strict=strict, encoding=reading.encoding
        )
    )
    return reader


def pairs_from(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    source_tokenizer: Tokenizer,
    modality: Any,
    reading: InputReader,
    *,
    strict: bool = False,
    log: Log = quiet,
) -> Shard:
    """Return the pairs of files as a shard."""
    reader = pairs_reader(files, modality, reading, strict=strict)
    chunks = list(reader.records())
    log_remarks(reader, reading, log)
    sources = shard_of([item for chunk in chunks for item in chunk.sources], source_tokenizer)
    return shard_of([text for chunk in chunks for text in chunk.texts], tokenizer).paired(sources)


def pair_items(
    files: Sequence[Path], modality: Any, reading: InputReader, log: Log
) -> Iterator[list[Item]]:
    """Yield the pairs of files in order: sources, with their targets as `second`."""
    if modality.reads_text:
        yield from reading.pairs(files, log)
        return
    reader = pairs_reader(files, modality, reading)
    for chunk in reader.records():
        yield [
            Item(item, chunk.place(i), text, shown=chunk.place(i))
            for i, (item, text) in enumerate(zip(chunk.sources, chunk.texts, strict=True))
        ]
    log_remarks(reader, reading, log)


def labelled_from(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    targets: Targets,
    modality: Any,
    reading: InputReader,
    *,
    views: Views | None = None,
    strict: bool = False,
    log: Log = quiet,
) -> Shard:
    """Return labelled records of files as a shard. Labels that are no class of the run are logged;
    it is an error if there are no others.
    """
    if tokenizer.reads_text:
        format = reading.format_to_measure(files)
        columns, reason = _labelled_columns(files, format, reading)
        if reason:
            log(f"classes {reason}")
    else:
        columns, format = _array_columns(files, reading), "auto"
    source: FileSet = modality.read(
        ReadRequest(
            list(files), columns, format, labelled=True, strict=strict, encoding=reading.encoding
        )
    )
    source.require(targets.kind, source)
    chunks: list[Any] = list(source.records())
    log_remarks(source, reading, log)
    texts = [text for chunk in chunks for text in chunk.texts]
    shard = shard_of(views.texts(texts) if views else texts, tokenizer)
    if source.two_texts:
        more = [text for chunk in chunks for text in chunk.sources]
        shard = shard.paired(shard_of(more, tokenizer))
    cells = [row for chunk in chunks for row in chunk.targets]
    _check_labels(cells, targets, log)
    values = targets.encode(cells)
    if targets.kind.aligned:
        values = marked(values, np.diff(shard.offsets) - shard.markers, shard.markers)
    if views:
        values = np.repeat(values, views.count, axis=0)
    aligned = targets.kind.aligned
    return replace(shard, targets=values, aligned=aligned, views=views.count if views else 1)


def _are_tables(files: Sequence[Path], format: str) -> bool:
    return (extension(files[0]) if format == "auto" else format) in TABLES


def _labelled_columns(
    files: Sequence[Path], format: str, reading: InputReader
) -> tuple[ColumnSelection, str]:
    """Return what to read of labelled files, as in training, and how classes were assigned if each
    file holds one.
    """
    tables = _are_tables(files, format)
    inputs = (reading.inputs or ("",)) if tables else ("",)
    names, classes, reason = reading.targets, tuple[str, ...](), ""
    if reading.classes and not names:
        if tables and len(files) == 1 and class_of(files[0]) not in reading.classes:
            kind = extension(files[0]) or format
            columns = TABLES[kind].columns(files[0], reading.encoding, named=False)
            raise UsageError(
                f"{files[0]}: which column has the labels? say --target COLUMN; it has "
                f"{listed(columns)}"
            )
        classes, reason = classes_like(files, reading.classes)
    elif reading.format in TABLES and not tables and not reading.target_asked and len(files) > 1:
        names, reason = (), "by the names of the files"  # the run had a column instead
    labels = Path(reading.labels) if reading.labels and not tables else None
    selection = ColumnSelection(
        inputs=inputs,
        targets=names,
        pattern=reading.pattern,
        labels=labels,
        classes=classes,
        missing=reading.missing,
        per_line=reading.per_line,
    )
    return selection, reason


def log_remarks(source: FileSet, reading: InputReader, log: Log) -> None:
    """Log the records that were left out, and files that the run was trained on."""
    if source.skipped:
        damaged = (
            "record is damaged and was" if source.skipped == 1 else "records are damaged and were"
        )
        log(f"{source.skipped:,} {damaged} skipped; first: {source.problems[0]}")
    for remark in source.remarks:
        log(remark)
    same = reading.trained_on(source)
    if same:
        more = f" and {len(same) - 1:,} more" if len(same) > 1 else ""
        log(
            f"{same[0]}{more}: the run was trained on this file, so the figures include records "
            "that it has learned; without a file, evaluate measures the part held out"
        )


def _check_labels(cells: Sequence[tuple[str, ...]], targets: Targets, log: Log) -> None:
    """Log the labels that are no class of the run; it is an error if there are no others."""
    for column, classes in enumerate(targets.classes):
        counts: Counter[str] = Counter()
        for row in cells:
            counts.update(targets.kind.counts(row[column]))
        del counts[""], counts[GAP]
        unknown = {label: n for label, n in counts.items() if label not in classes}
        if not unknown:
            continue
        shown = _list_names(sorted(unknown, key=lambda label: -unknown[label]))
        if len(unknown) == len(counts):
            raise UserError(
                f"none of the labels {shown} is a class of this run: {_list_names(classes)}"
            )
        total, labels = sum(unknown.values()), sum(counts.values())
        log(
            f"{total:,} of {labels:,} labels are no class of this run and are not measured: {shown}"
        )


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")


def held_out(
    run: Path, tokenizer: Tokenizer, source_tokenizer: Tokenizer | None = None
) -> tuple[str, Shard]:
    """Return the name and the shard of the split of a run to report on: test, or else valid.

    If a tokenizer is not that of the run, texts are tokenized again.
    """
    corpus = open_corpus(run, held_out=True)
    split = "test" if corpus.test is not None else "valid"
    shard = corpus.split(split)
    if shard is None:
        raise UserError(f"nothing was held out when {run} was trained: name a file to measure on")
    converted = retokenize(shard, corpus.tokenizer, tokenizer)
    if shard.source is not None and corpus.source_tokenizer is not None:
        target = source_tokenizer or tokenizer
        converted = converted.paired(retokenize(shard.source, corpus.source_tokenizer, target))
    return split, converted


def open_corpus(run: Path, *, held_out: bool = False) -> Corpus:
    """Return the data of a run; if its folder data/ was deleted, they are encoded again from the
    sources, which must be as they were.
    """
    if not (run / FOLDER / MANIFEST).exists():
        if not (run / RECIPE).exists():
            raise UserError(f"{run} holds no data (it was imported): name a file to measure on")
        with tempfile.TemporaryDirectory(dir=run, prefix=".data-") as folder:
            corpus = prepare(Run(run).recipe, Path(folder), quiet, init_from=str(run))
            stored = Run(run).data.get("fingerprints")
            if stored not in (None, corpus.facts["fingerprints"]):
                raise UserError(
                    f"{run} holds no data, and its sources have changed since it was trained: "
                    "name a file to measure on"
                )
            os.replace(Path(folder) / FOLDER, run / FOLDER)
    return reopen(run, held_out=held_out)


def retokenize(shard: Shard, original: Tokenizer, tokenizer: Tokenizer) -> Shard:
    """Return a shard of the `original` tokenizer encoded by another one."""
    if original.equals(tokenizer):
        return shard
    if not (original.reads_text and tokenizer.reads_text):
        raise UserError(
            f"{shard.path} holds other tokens of numbers: name the files to measure both on"
        )
    if bool(np.any(np.asarray(shard.ids) == original.unk)):
        raise UserError(
            f"{shard.path} holds unknown symbols, which another tokenizer cannot read: "
            "name the files to measure both on"
        )
    texts = [original.decode_record(shard.record(i)) for i in range(shard.records)]
    converted = shard_of(texts, tokenizer, kind=shard.kind)
    if shard.targets is None:
        return converted
    if len(shard.targets) == shard.tokens != converted.tokens:
        raise UserError(f"{shard.path} asks about positions, which another tokenizer has not")
    return replace(converted, targets=shard.targets, views=shard.views)
