"""From files to shards: read, split, fit tokenizers on the training part, encode everything once.

The result is memory-mapped, so the data may be larger than memory; the files are streamed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data import Progress, no_progress
from regard.data.formats import split_member
from regard.data.inputs import UnknownSymbols
from regard.data.report import inspect_labelled
from regard.data.shards import CHUNK, ArrayWriter, Shard, ShardWriter, State
from regard.data.sources import UNUSED, DataSource, Log, SourceChunk, Views
from regard.data.targets import Targets, TargetWriter, survey, with_targets
from regard.data.windows import join_splits
from regard.errors import UsageError, UserError
from regard.recipe import SPLITS, Recipe, kind_of
from regard.registry import MODALITIES
from regard.storage import Manifest, PartialData, atomic_write, read_json, sweep, write_json
from regard.tokenizers import SOURCE_TOKENIZER, TOKENIZER, Tokenizer, load, load_sources
from regard.tokenizers.tokenizer import Featurizer

FOLDER, MANIFEST = "data", "manifest.json"
PARTIAL = "partial.json"  # in the folder while it is not complete
SOURCE = "-source"  # ends the names of shards that hold the sources of others
LONGEST_WORD = 1 << 20  # characters without a space that are still kept together
SAVE_SECONDS = 5.0  # of work that is lost if encoding is killed
EXTRA_TOKENS = 8  # that a source counts as longer, as in decoding/engine.py
MAX_NAMED_FILES = 100  # training files whose hashes are stored one by one
LARGE = 200 << 20  # bytes from which reading is announced


def at_borders(
    chunks: Iterable[SourceChunk], cut: Callable[[str], int], dropped: int
) -> Iterator[SourceChunk]:
    """Cut running text where its tokenizer allows it, so that no word becomes two.

    `dropped` characters after the cut are left out, where encoding puts one before every text.
    """
    rest = ""
    for chunk in chunks:
        if chunk.texts:
            text = rest + "".join(chunk.texts)
            position = cut(text)
            if position <= 0 or len(text) - position > LONGEST_WORD:
                yield SourceChunk(chunk.split, [text])
                rest = ""
            else:
                yield SourceChunk(chunk.split, [text[:position]])
                rest = text[position + dropped :]
            continue
        if chunk.ends and rest:
            yield SourceChunk(chunk.split, [rest])
            rest = ""
        yield chunk


class ShardTokenizer:
    """Writes one shard, and counts what is unknown in it."""

    def __init__(
        self, path: Path, tokenizer: Tokenizer, strict: bool, state: State | None = None
    ) -> None:
        self.writer, self.tokenizer = ShardWriter(path, tokenizer, state), tokenizer
        self.unknown = UnknownSymbols(tokenizer, strict)
        if state is not None:
            self.unknown.restore(state["unknown"])

    def state(self) -> dict[str, Any]:
        """Return what another one needs to go on from here."""
        return self.writer.state() | {"unknown": self.unknown.state()}

    def add(self, chunk: SourceChunk, text: bool, targets: TargetWriter | None = None) -> None:
        """Write a chunk: records, with their targets, or a stretch of running text."""
        if chunk.begins:
            self.writer.begin_text()
        if chunk.texts:
            ids, lengths = self.tokenizer.encode_batch(chunk.texts)
            before, after = self.tokenizer.markers
            if self.tokenizer.cuttable:  # features are never unknown
                self.unknown.add(chunk, ids, lengths)
            if text:
                self.writer.add_text(ids)
            else:
                self.writer.add(ids, lengths)
                if targets:
                    content = lengths if after else lengths - before  # features count `<S>`
                    targets.add(chunk.targets, content, chunk.place, before + after)
        if chunk.ends:
            self.writer.end_text()

    def facts(self, prefix: str = "") -> dict[str, Any]:
        """Return what the shard holds."""
        counts = {name: getattr(self.writer, name) for name in ("tokens", "symbols", "bytes")}
        return {prefix + name: n for name, n in (counts | self.unknown.facts()).items()}


@dataclass(frozen=True)
class Encoders:
    """The tokenizers or featurizers of records and, of pairs, of their sources."""

    records: Tokenizer
    sources: Tokenizer
    strict: bool = False  # refuse unknown symbols


class CorpusWriter:
    """Writes the shards of the three splits.

    What is written so far is recorded in FOLDER/partial.json every few seconds: with what was
    recorded there (`partial`), a killed writer goes on, and writes the same bytes as one that was
    not killed.
    """

    def __init__(
        self,
        sources: DataSource,
        encoders: Encoders,
        folder: Path,
        targets: Targets | None,
        key: dict[str, Any],
        partial: State | None = None,
    ) -> None:
        self.sources, self.encoders, self.folder, self.targets = sources, encoders, folder, targets
        self.key = key  # what the data depends on
        self.written = partial["chunks"] if partial else 0
        states = iter(partial["writers"] if partial else repeat(None))
        strict = encoders.strict
        self.records = [
            ShardTokenizer(folder / n, encoders.records, strict, next(states)) for n in SPLITS
        ]
        self.seconds = [
            ShardTokenizer(folder / (n + SOURCE), encoders.sources, strict, next(states))
            for n in SPLITS
            if sources.has_second
        ]
        self.labels = [TargetWriter(folder / n, targets, next(states)) for n in SPLITS if targets]
        self.shards = [shard.writer for shard in (*self.records, *self.seconds)]

    def write(self, views: Views | None, log: Log) -> dict[str, Any]:
        """Write everything; return what each split holds and what of it is unknown."""
        writers: list[ArrayWriter] = [*self.shards, *self.labels]
        try:
            self._encode(views)
            (self.folder / PARTIAL).unlink(missing_ok=True)
            for writer in writers:
                writer.close()
            for name in SPLITS if self.targets else ():
                self._order(self.folder / name, views.count if views else 1)
        except Exception:
            (self.folder / PARTIAL).unlink(missing_ok=True)
            for writer in writers:
                writer.abort()
            raise
        except BaseException:  # stopped
            for writer in writers:
                writer.leave()
            raise
        return self._facts(views, log)

    def _encode(self, views: Views | None) -> None:
        sources, tokenizer = self.sources, self.encoders.records
        stream = sources.chunks()
        if sources.text and sources.augmentation:
            stream = sources.augmentation.running_text(stream)
        if sources.text:
            stream = at_borders(stream, tokenizer.cut, len(tokenizer.prefix))
        saved = time.monotonic()
        for number, chunk in enumerate(stream):
            if chunk.split == UNUSED or number < self.written:
                continue
            labels = self.labels[chunk.split] if self.labels else None
            records = views.of(chunk) if views else chunk
            self.records[chunk.split].add(records, sources.text, labels)
            if self.seconds:
                second = SourceChunk(chunk.split, chunk.sources, place=chunk.place)
                self.seconds[chunk.split].add(second, False)
            if time.monotonic() - saved > SAVE_SECONDS:
                self._save(number + 1)
                saved = time.monotonic()

    def _save(self, chunks: int) -> None:
        """Record that these chunks are written."""
        states = [shard.state() for shard in (*self.records, *self.seconds)]
        states += [labels.state() for labels in self.labels]
        partial = {"key": self.key, "chunks": chunks, "writers": states}
        write_json(self.folder / PARTIAL, partial)

    def _facts(self, views: Views | None, log: Log) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for i, name in enumerate(SPLITS):
            records = self.records[i].writer.records // (views.count if views else 1)
            facts[name] = {"records": records} | self.records[i].facts()
            if self.seconds:
                facts[name] |= self.seconds[i].facts("source_")
            for shard in (self.records[i], *self.seconds[i : i + 1]):
                for line in shard.unknown.lines(name):
                    log(line)
        return facts

    def _order(self, path: Path, views: int) -> None:
        """Rewrite the labelled shard with stem `path` in the order of a hash of each record, its
        second text and its targets, so that the order of files and rows changes nothing.
        """
        assert self.targets is not None
        shard, second = with_targets(Shard.open(path), path), path.with_name(path.name + SOURCE)
        if self.seconds:
            shard = shard.paired(Shard.open(second))
        hashes = [_hash_record(shard, i, views) for i in range(shard.records // views)]
        first = np.argsort(np.array(hashes, np.uint64), kind="stable") * views
        order = (first[:, None] + np.arange(views)).ravel()
        targets, writers = (
            TargetWriter(path, self.targets),
            [ShardWriter(path, self.encoders.records)],
        )
        writers += [ShardWriter(second, self.encoders.sources)] if self.seconds else []
        files: list[ShardWriter | TargetWriter] = [*writers, targets]
        try:
            for indices in np.array_split(order, -(-shard.tokens // CHUNK) or 1):
                part = shard.take(indices)
                for writer, one in zip(writers, (part, part.source), strict=False):
                    assert one is not None
                    writer.add(*_without_markers(one))
                assert part.targets is not None
                targets.write(part.targets)
            for file in files:
                file.close()
        except BaseException:
            for file in files:
                file.abort()
            raise


def _hash_record(shard: Shard, number: int, views: int) -> int:
    """Return a hash of a record in all its views, its second text and its targets."""
    digest, first, last = blake2b(digest_size=8), number * views, (number + 1) * views
    for one in (shard, shard.source):
        if one is not None:
            digest.update(one.ids[one.offsets[first] : one.offsets[last]].tobytes())
    assert shard.targets is not None
    if shard.aligned:
        first, last = int(shard.offsets[first]), int(shard.offsets[last])
    digest.update(shard.targets[first:last].tobytes())
    return int.from_bytes(digest.digest(), "little")


def _without_markers(shard: Shard) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return ids and lengths of records as `ShardWriter.add` takes them."""
    offsets, lengths = np.asarray(shard.offsets), np.diff(shard.offsets)
    if not shard.cuttable:
        return shard.ids, lengths
    return np.delete(shard.ids, np.concatenate([offsets[:-1], offsets[1:] - 1])), lengths - 2


@dataclass(frozen=True)
class Corpus:
    """A tokenizer and the shards it made; an empty split is None. `facts` are for regard.json.

    `source_tokenizer` is that of the shards' sources, where there are pairs: `tokenizer` itself, or
    one of their own. `targets` describes the labels, where records have some.
    """

    tokenizer: Tokenizer
    train: Shard
    valid: Shard | None
    test: Shard | None
    facts: dict[str, Any]
    source_tokenizer: Tokenizer | None = None
    targets: Targets | None = None

    def split(self, name: str) -> Shard | None:
        """Return the shard called train, valid or test."""
        shard: Shard | None = getattr(self, name)
        return shard

    @property
    def splits(self) -> dict[str, Shard]:
        """The shards that are not empty, by name."""
        return {name: shard for name in SPLITS if (shard := self.split(name)) is not None}

    @property
    def reported_split(self) -> str:
        """The split that a run is judged by: test or, if it is empty, valid."""
        return SPLITS[1] if self.test is None else SPLITS[2]

    @property
    def reads(self) -> Tokenizer:
        """The tokenizer or featurizer of what the model reads."""
        return self.source_tokenizer or self.tokenizer

    def truncation_warnings(self, max_len: int) -> list[str]:
        """Return a line if labelled records are longer than a model's context."""
        if self.targets is None or not max_len or not self.train.cuttable:
            return []
        lengths = np.concatenate([_input_lengths(shard) for shard in self.splits.values()])
        long = int(np.count_nonzero(lengths > max_len))
        if not long:
            return []
        return [
            f"{long:,} of {len(lengths):,} records are longer than model.max_len = {max_len} "
            f"tokens and were cut to their first {max_len}; --set model.max_len={lengths.max()} "
            "reads all of the longest"
        ]

    @property
    def warnings(self) -> list[str]:
        """What one who trains on this should know, a line each: what was left out, what looks wrong
        with the targets, what leaks, what is unknown.
        """
        facts, lines = self.facts, list[str]()
        if facts["skipped"]:
            first = facts["problems"][0]
            lines.append(f"damaged records left out: {facts['skipped']:,}; first: {first}")
        lines += [*facts.get("remarks", ()), *facts.get("warnings", ())]
        for split, leak in facts["leaks"].items():
            if leak["records"]:
                example = leak["examples"][0]
                lines.append(
                    f"{leak['records']:,} {split} records also occur in train, e.g. {example!r}"
                )
        for split, counts in facts["splits"].items():
            if unknown := counts["unknown"] + counts.get("source_unknown", 0):
                lines.append(f"{unknown:,} symbols of {split} are unknown: they count as <unk>")
        return lines


def _input_lengths(shard: Shard) -> NDArray[np.int64]:
    """Return the tokens of every record as a model reads it, both texts where there are two."""
    lengths = np.diff(np.asarray(shard.offsets))[:: shard.views]
    if shard.source is not None:
        lengths = lengths + np.diff(np.asarray(shard.source.offsets)) - 1
    return lengths


def prepare(
    recipe: Recipe,
    folder: Path,
    log: Log,
    *,
    fixed: bool = False,
    init_from: str = "",
    progress: Progress = no_progress,
) -> Corpus:
    """Encode the data of a recipe once, into FOLDER/data; an encoding of the same files with the
    same settings is used again, and one that was stopped goes on.

    `fixed` says that a checkpoint depends on it: then the files must still hold the same bytes. The
    tokenizers are those of the run `init_from`, if one is named.
    """
    sources = DataSource.of(recipe, init_from)
    sources.watch(progress)
    key = _key(recipe, sources, init_from)
    data = folder / FOLDER
    if (stored := _stored(data / MANIFEST)) is not None:
        same = stored["key"] == key
        if fixed and not same:
            same = stored["facts"]["fingerprints"] == sources.fingerprints()
            if not same:
                raise UserError(
                    f"the data of {folder} has changed since its checkpoint was written "
                    f"({', '.join(map(str, sources.train.files[:3]))}): train a new run"
                )
        try:
            if same:
                return reopen(folder, verify=True)
        except UserError as error:
            log(f"{error}")
    facts = _build(recipe, sources, folder, log, init_from, key, progress)
    write_json(data / MANIFEST, {"key": key, "facts": facts})
    return reopen(folder)


def _key(recipe: Recipe, sources: DataSource, init_from: str) -> dict[str, Any]:
    """Return what the encoded data depends on."""
    tables = {
        name: getattr(recipe, name) for name in ("task", "data", "input", "output", "augment")
    }
    key: dict[str, Any] = {
        name: _plain(dataclasses.asdict(table)) for name, table in tables.items() if table
    }
    key["files"] = [
        [str(file), file.stat().st_size, file.stat().st_mtime_ns]
        for reader in sources.readers
        for file in dict.fromkeys(split_member(path)[0] for path in reader.all_files)
    ]
    return key | ({"init_from": init_from} if init_from else {})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _build(
    recipe: Recipe,
    sources: DataSource,
    run: Path,
    log: Log,
    init_from: str,
    key: dict[str, Any],
    progress: Progress,
) -> dict[str, Any]:
    """Fit the tokenizers, or take those of `init_from`, and write the shards; return the facts."""
    folder = run / FOLDER
    partial = _partial(folder, key)
    if partial is not None:
        log("encoding goes on where it was stopped")
    elif sources.train.size > LARGE:
        log(f"reading and encoding {sources.train.size / 2**30:.1f} GB once")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        if partial is None:
            sweep(folder)
            for path in (folder / PARTIAL, run / SOURCE_TOKENIZER, run / Featurizer.file):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None
    _refuse_too_little(sources)
    sources.keep_some_training(log)
    views, targets = _views(sources), _targets(sources)
    strict = bool(getattr(recipe.encoded, "strict", False))
    if partial is None:
        _write_tokenizers(run, _fit_tokenizers(recipe, sources, views, init_from))
    records = load(run / TOKENIZER)
    encoders = Encoders(records, load_sources(run, records) if sources.paired else records, strict)
    sources.watch(progress, "encoding")
    counts = CorpusWriter(sources, encoders, folder, targets, key, partial).write(views, log)
    sources.watch(progress)
    hashes = sources.hashes()
    files = hashes["train"][1]
    return {
        "paired": sources.has_second,
        "format": sources.train.format,
        "why": sources.train.why,
        "fingerprints": {split: total for split, (total, _) in hashes.items()},
        "reading": sources.reading() | {"files": files if len(files) <= MAX_NAMED_FILES else {}},
        "input": dataclasses.asdict(sources.modality.config),
        "skipped": sum(reader.skipped for reader in sources.readers),
        "problems": [problem for reader in sources.readers for problem in reader.problems],
        "blank": sum(reader.blank for reader in sources.readers),
        "remarks": sources.remarks,
        "leaks": sources.leaks(),
        "splits": counts,
        **(_output_lengths(folder) if sources.paired else {}),
        **({"augment": dataclasses.asdict(recipe.augment)} if recipe.augment else {}),
        **({"views": views.count} if views else {}),
        **({} if targets is None else _label_facts(sources, targets)),
    }


def _partial(folder: Path, key: dict[str, Any]) -> State | None:
    """Return what a writer of the same data recorded before it was stopped, or None."""
    try:
        partial: State = read_json(folder / PARTIAL, PartialData)
        for state in partial["writers"]:
            for name, size in state["sizes"].items():
                if (folder / f".{name}.part").stat().st_size < size:
                    return None
    except (UserError, OSError):
        return None
    return partial if partial["key"] == key else None


def _write_tokenizers(run: Path, tokenizers: Mapping[str, Tokenizer]) -> None:
    """Write the tokenizers into the run folder."""
    for name, one in tokenizers.items():
        with atomic_write(run / (name if one.file == TOKENIZER else one.file)) as temporary:
            one.save(temporary)


def _fit_tokenizers(
    recipe: Recipe, sources: DataSource, views: Views | None, init_from: str
) -> dict[str, Tokenizer]:
    """Return the tokenizer of the records and, where it is another, that of the sources."""
    parts = {TOKENIZER: ("targets", recipe.encoded), SOURCE_TOKENIZER: ("sources", recipe.input)}
    if not sources.paired or _shares_vocabulary(recipe):
        parts = {TOKENIZER: ("both", recipe.encoded)}
    if init_from:
        return {name: load(Path(init_from) / name) for name in parts}
    tokenizers: dict[str, Tokenizer] = {}
    for name, (part, config) in parts.items():
        modality = MODALITIES[config.name](config)
        limit = modality.training_limit
        tokenizers[name] = modality.fit_encoder(_training_items(sources, part, views, limit))
    return tokenizers


def _shares_vocabulary(recipe: Recipe) -> bool:
    """Return whether sources and targets have one tokenizer."""
    same_kind = kind_of(recipe.input) == kind_of(recipe.output)
    return same_kind and bool(getattr(recipe.task, "shared_vocab", False))


def _training_items(
    sources: DataSource, part: str, views: Views | None, limit: float
) -> Iterator[Any]:
    """Yield what a vocabulary may be learned from: training only; of pairs, which part."""
    count = 0
    for chunk in sources.training_chunks():
        for items, unwanted in ((chunk.sources, "targets"), (chunk.texts, "sources")):
            if part != unwanted:
                yield from views.texts(items) if views else items
                count += sum(map(len, items))
        if count > limit:
            return


def _refuse_too_little(sources: DataSource) -> None:
    """Raise a UserError if there is one record: nothing could be held out."""
    if sources.text or sources.train.continuous or any(sources.held_out_files):
        return
    full = 0
    for chunk in sources.train.records():
        full += sum(not isinstance(item, str) or bool(item.strip()) for item in chunk.texts)
        if full > 1:
            return
    if not full:
        raise UserError(f"{sources.train.files[0]} holds nothing but blanks")
    unit = "pair" if sources.paired else "record"
    cut = "; --set data.format=text reads one long sequence or text as running text"
    raise UserError(
        f"{sources.train.files[0]} holds one {unit}: training needs at least two, of which one can "
        f"be held out{'' if sources.labelled or sources.paired else cut}"
    )


def _views(sources: DataSource) -> Views | None:
    """Return the views of every record that the augmentation makes."""
    views: Views | None = sources.augmentation.views() if sources.augmentation else None
    if views is None:
        return None
    if sources.kind.aligned or sources.has_second:
        raise UsageError(
            f"augment.name = {sources.augmentation.config.name!r}: only for records "
            "of one text with one label or value"
        )
    if not sources.labelled:
        if sources.text and sources.roles.output:
            return None  # the augmentation adds documents of running text instead
        raise UsageError(
            "[augment] is for labelled records and, to predict the next symbol, for running text: "
            "set data.format = 'text'"
        )
    return views


def _targets(sources: DataSource) -> Targets | None:
    """Return what labelled records are labelled with, the classes being those of training."""
    if not sources.roles.labels:
        return None
    names = sources.train.names
    columns = survey(sources.training_chunks(), len(names))
    targets = Targets.learn(sources.kind.name, names, columns, sources.recipe.positive)
    count = max(len(c.different) for c in columns)
    if (len(targets.classes[0]) if targets.kind.aligned else count) == 1:
        label = next(cell for column in columns for cell in column.different)
        raise UserError(
            f"all {columns[0].filled:,} training records are {label[:40]!r} under {names[0]!r}: "
            "there is nothing to tell apart; at least two classes or values are needed: give more "
            "of others, or hold out fewer records"
        )
    return targets


def _label_facts(sources: DataSource, targets: Targets) -> dict[str, Any]:
    """Return what the manifest says of labels, and what a user must know of them."""
    report = inspect_labelled(sources)
    return {
        "targets": dataclasses.asdict(targets),
        "labels": report.to_json(),
        "warnings": [f"{name}: {line}" for name, line in report.warnings()],
    }


def _output_lengths(folder: Path) -> dict[str, float]:
    """Return how long a generated target may be: tokens for one token of its source and
    EXTRA_TOKENS or, for sources that are no text, tokens in all; as in all but one of a thousand
    training pairs, and a tenth more.
    """
    shards = [Shard.open(folder / (SPLITS[0] + end)) for end in ("", SOURCE)]
    target, source = (np.diff(shard.offsets) - 2 for shard in shards)
    if not shards[1].cuttable:
        return {"longest": int(np.ceil(np.quantile(target + 1, 0.999) * 1.1))}
    ratio = np.quantile((target + 1) / (source + EXTRA_TOKENS), 0.999)
    return {"ratio": round(float(ratio) * 1.1, 3)}


def _stored(manifest: Path) -> dict[str, Any] | None:
    """Return the manifest of data encoded before; None if there is none, or a damaged one."""
    try:
        stored: dict[str, Any] = read_json(manifest, Manifest)
        return stored if "fingerprints" in stored["facts"] else None
    except UserError:
        return None


def reopen(run: Path, *, verify: bool = False, held_out: bool = False) -> Corpus:
    """Return the corpus that `prepare` left in a run folder; `verify` checks all checksums,
    `held_out` those of validation and test.
    """
    verified = SPLITS if verify else SPLITS[1:] if held_out else ()
    folder = run / FOLDER
    facts = read_json(folder / MANIFEST, Manifest)["facts"]
    paired, targets = facts.get("paired", False), _stored_targets(facts)
    shards: dict[str, Shard | None] = {}
    for name in SPLITS:
        shards[name] = None
        if not facts["splits"][name]["records"]:
            continue
        shard = Shard.open(folder / name, verify=name in verified)
        if paired:
            shard = shard.paired(Shard.open(folder / (name + SOURCE), verify=name in verified))
        if targets is not None:
            shard = with_targets(shard, folder / name, verify=name in verified)
            shard = dataclasses.replace(shard, views=facts.get("views", 1))
        shards[name] = shard
    tokenizer = load(run / TOKENIZER)
    if tokenizer.window:
        shards = join_splits(shards, *tokenizer.window)
    train = shards["train"]
    if train is None:
        raise UserError(
            "nothing is left to train on after the split; give more data or smaller fractions"
        )
    sources = load_sources(run, tokenizer) if paired else None
    return Corpus(tokenizer, train, shards["valid"], shards["test"], facts, sources, targets)


def _stored_targets(facts: dict[str, Any]) -> Targets | None:
    try:
        return Targets.stored(facts["targets"]) if "targets" in facts else None
    except ValueError as error:
        raise UserError(f"{MANIFEST} is damaged: targets: {error}") from None
