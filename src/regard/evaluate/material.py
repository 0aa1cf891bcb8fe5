"""What a model is measured on: a user's files, texts in memory, or the part a run held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from regard.data.answers import marked
from regard.data.captions import Captions
from regard.data.clouds import Clouds
from regard.data.columns import Array
from regard.data.corpus import reopen
from regard.data.labelled import Asked, Labelled, columns_of
from regard.data.pairs import Pairs
from regard.data.pictures import Pictures
from regard.data.readers import Source
from regard.data.shards import Shard
from regard.data.targets import CHECKS, Targets, unchecked
from regard.data.views import Views
from regard.errors import UserError
from regard.tokens import Patches, Points, Tokenizer


def shard_of(texts: Sequence[str], tokenizer: Tokenizer, *, kind: str = "records") -> Shard:
    """Texts as a shard in memory: records, or documents of running text."""
    ids, lengths = tokenizer.encode_batch(list(texts))
    if ids.ndim == 2:
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


def shard_from(files: Sequence[Path], tokenizer: Tokenizer, *, format: str, column: str) -> Shard:
    """A user's files as a shard; every file of running text is one document."""
    source = Source(list(files), format=format, column=column)
    if source.format == "text":
        texts = ["".join(document.text()) for document in source.documents()]
        return shard_of(texts, tokenizer, kind="text")
    return shard_of([text for chunk in source.records() for text in chunk.texts], tokenizer)


def reader_of(
    files: Sequence[Path],
    source_tokenizer: Tokenizer,
    *,
    format: str,
    columns: tuple[str, str],
    side: int = 0,
) -> Pairs | Captions:
    """A user's pairs, of texts or, as the tokenizer says, of pictures and captions."""
    if isinstance(source_tokenizer, Patches):
        asked = Asked(inputs=(columns[0],), targets=columns_of(columns[1]))
        return Captions(list(files), asked, strict=True, side=side)
    return Pairs(list(files), format=format, columns=columns, strict=True)


def pairs_from(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    source_tokenizer: Tokenizer,
    *,
    format: str,
    columns: tuple[str, str],
    side: int = 0,
) -> Shard:
    """A user's pairs as a shard; files are as `Pairs` takes them, or `Captions`, whose pictures are
    brought to `side` pixels. A damaged pair is an error.
    """
    reader = reader_of(files, source_tokenizer, format=format, columns=columns, side=side)
    chunks = list(reader.records())
    sources = shard_of([text for chunk in chunks for text in chunk.sources], source_tokenizer)
    return shard_of([text for chunk in chunks for text in chunk.texts], tokenizer).paired(sources)


def labelled_from(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    targets: Targets,
    *,
    format: str,
    columns: tuple[str, str],
    views: Views | None = None,
    side: int = 0,
    surface: int = 0,
) -> Shard:
    """A user's labelled records as a shard; files are as `Labelled` takes them, and a damaged
    record is an error. Classes that a model does not know count as unknown.
    """
    asked = Asked(inputs=columns_of(columns[0]) or ("",), targets=columns_of(columns[1]))
    source: Labelled
    if isinstance(tokenizer, Patches):
        source = Pictures(list(files), asked, strict=True, side=side)
    elif isinstance(tokenizer, Points):
        source = Clouds(list(files), asked, strict=True, surface=surface)
    else:
        source = Labelled(list(files), asked, format=format, strict=True)
    source.check = CHECKS.get(targets.task, unchecked)
    chunks = list(source.examples())
    texts = [text for chunk in chunks for text in chunk.texts]
    found = shard_of(views.texts(texts) if views else texts, tokenizer)
    if source.two_texts:
        more = [text for chunk in chunks for text in chunk.sources]
        found = found.paired(shard_of(more, tokenizer))
    values = targets.encode([cells for chunk in chunks for cells in chunk.targets])
    if targets.task == "position-label":
        markers = 2 if found.ids.ndim == 1 else 1
        values = marked(values, np.diff(found.offsets) - markers, markers)
    if views:
        values = np.repeat(values, views.count, axis=0)
    return replace(found, targets=values, views=views.count if views else 1)


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
