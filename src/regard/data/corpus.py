"""From pieces of files to shards: tokenised once, side by side, with what is asked of them.

From files to shards: read, split, learn the tokens on the training part, encode everything once.

What comes out is memory-mapped, so the data may be larger than memory; what goes in is streamed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.archives import located
from regard.data.inputs import UnknownSymbols
from regard.data.labelled import LabelledFiles
from regard.data.report import inspect_labelled
from regard.data.shards import CHUNK, Shard, ShardWriter
from regard.data.sources import SPLITS, UNUSED, DataSource, Say, SourceChunk
from regard.data.targets import Targets, TargetWriter, survey, with_targets
from regard.data.views import Views, both_strands, views_of
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe, TokensRecipe
from regard.run import PREPROCESSOR, SOURCE_TOKENIZER, TOKENIZER, replacing, sweep, write_json
from regard.schemas import Manifest
from regard.storage import read_json
from regard.tokenizers import LEARNED, Tokenizer, learn, load, load_sources

SOURCE = "-source"  # ends the names of shards that hold the sources of others
LONGEST_WORD = 1 << 20  # characters without a space that are still held together
QUIET = 15.0  # seconds of reading between two signs of life


def at_borders(
    pieces: Iterable[SourceChunk], cut: Callable[[str], int], dropped: int
) -> Iterator[SourceChunk]:
    """Running text cut where its tokenizer says, instead of anywhere: no word becomes two.

    `dropped` characters after the cut are left out, where encoding puts one before every text.
    """
    held = ""
    for piece in pieces:
        if piece.texts:
            text = held + "".join(piece.texts)
            at = cut(text)
            if at <= 0 or len(text) - at > LONGEST_WORD:
                yield SourceChunk(piece.side, [text])
                held = ""
            else:
                yield SourceChunk(piece.side, [text[:at]])
                held = text[at + dropped :]
            continue
        if piece.ends and held:
            yield SourceChunk(piece.side, [held])
            held = ""
        yield piece


class ShardTokenizer:
    """Writes one shard, and takes account of what is unknown in it."""

    def __init__(self, path: Path, tokenizer: Tokenizer, strict: bool) -> None:
        self.writer, self.tokenizer = ShardWriter(path, tokenizer), tokenizer
        self.unknown = UnknownSymbols(tokenizer, strict)

    def add(self, piece: SourceChunk, text: bool, answers: TargetWriter | None = None) -> None:
        """Write a piece: records, with what is asked of them, or a stretch of running text."""
        if piece.begins:
            self.writer.begin_text()
        if piece.texts:
            ids, lengths = self.tokenizer.encode_batch(piece.texts)
            features = ids.shape[1:]
            if not features:  # of which none is unknown
                self.unknown.note(piece, ids, lengths)
            if text:
                self.writer.add_text(ids)
            else:
                self.writer.add(ids, lengths)
                if answers:
                    markers = 1 if features else 2  # features have no `<E>`, and count `<S>`
                    inside = lengths if markers == 2 else lengths - 1
                    answers.add(piece.targets, inside, piece.place, markers)
        if piece.ends:
            self.writer.end_text()

    def facts(self, prefix: str = "") -> dict[str, Any]:
        """What the shard holds."""
        found = {name: getattr(self.writer, name) for name in ("tokens", "symbols", "bytes")}
        return {prefix + name: n for name, n in (found | self.unknown.facts()).items()}


def encode(
    sources: DataSource,
    learned: tuple[Tokenizer, Tokenizer],
    folder: Path,
    say: Say,
    asked: Targets | None,
    views: Views | None,
    *,
    strict: bool,
) -> dict[str, Any]:
    """Write the shards of the three sides; count what each holds and what of it is unknown."""
    tokenizer, own = learned  # of what is predicted, and of the sources
    targets = [ShardTokenizer(folder / name, tokenizer, strict) for name in SPLITS]
    beside = [
        ShardTokenizer(folder / (n + SOURCE), own, strict) for n in SPLITS if sources.two_sided
    ]
    answers = [TargetWriter(folder / name, asked) for name in SPLITS if asked]
    done, told = 0, time.monotonic()
    try:
        stream = sources.pieces()
        if sources.text and sources.recipe.augment:
            stream = both_strands(stream)
        if sources.text:
            stream = at_borders(stream, tokenizer.cut, len(tokenizer.prefix))
        for piece in stream:
            if piece.side == UNUSED:
                continue
            done += sum(map(len, piece.texts)) + sum(map(len, piece.sources))
            if time.monotonic() - told > QUIET:
                told = time.monotonic()
                unit = "rows of pixels or points" if sources.numbered else "characters"
                say(f"tokenised {done:,} {unit} of about {sources.train.size:,}")
            writer = answers[piece.side] if answers else None
            shown = views.of(piece) if views else piece
            targets[piece.side].add(shown, sources.text, writer)
            if beside:
                source = SourceChunk(piece.side, piece.sources, place=piece.place)
                beside[piece.side].add(source, False)
        for encoder in (*targets, *beside):
            encoder.writer.close()
        for answer in answers:
            answer.close()
        if asked is not None:
            for name in SPLITS:
                count = views.count if views else 1
                order_records(folder / name, learned, asked, count, paired=sources.two_sided)
    except BaseException:
        for encoder in (*targets, *beside):
            encoder.writer.abort()
        for answer in answers:
            answer.abort()
        raise
    sides: dict[str, Any] = {}
    for i, name in enumerate(SPLITS):
        records = targets[i].writer.records // (views.count if views else 1)
        sides[name] = {"records": records} | targets[i].facts()
        if beside:
            sides[name] |= beside[i].facts("source_")
        for encoder in (targets[i], *beside[i : i + 1]):
            for line in encoder.unknown.words(name):
                say(line)
    return sides


def order_records(
    path: Path, learned: tuple[Tokenizer, Tokenizer], asked: Targets, views: int, *, paired: bool
) -> None:
    """Rewrite the labelled shard with stem `path` in the order of a hash of each record, its second
    text and its targets, so that neither the order of files nor that of rows changes anything.
    """
    shard, beside = Shard.open(path), path.with_name(path.name + SOURCE)
    whole = with_targets(shard, path)
    if paired:
        whole = whole.paired(Shard.open(beside))
    hashes = [_content(whole, i, views) for i in range(whole.records // views)]
    first = np.argsort(np.array(hashes, np.uint64), kind="stable") * views
    order = (first[:, None] + np.arange(views)).ravel()
    targets, writers = TargetWriter(path, asked), [ShardWriter(path, learned[0])]
    writers += [ShardWriter(beside, learned[1])] if paired else []
    everything: list[ShardWriter | TargetWriter] = [*writers, targets]
    try:
        for some in np.array_split(order, -(-whole.tokens // CHUNK) or 1):
            part = whole.take(some)
            for writer, one in zip(writers, (part, part.source), strict=False):
                assert one is not None
                writer.add(*_unmarked(one))
            assert part.targets is not None
            targets.write(part.targets)
        for each in everything:
            each.close()
    except BaseException:
        for each in everything:
            each.abort()
        raise


def _content(shard: Shard, number: int, views: int) -> int:
    """A hash of record `number` in all its views, of its second text and its targets."""
    found, first, last = blake2b(digest_size=8), number * views, (number + 1) * views
    for one in (shard, shard.source):
        if one is not None:
            found.update(one.ids[one.offsets[first] : one.offsets[last]].tobytes())
    assert shard.targets is not None
    if shard.aligned:
        first, last = int(shard.offsets[first]), int(shard.offsets[last])
    found.update(shard.targets[first:last].tobytes())
    return int.from_bytes(found.digest(), "little")


def _unmarked(shard: Shard) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Ids and lengths of records as `ShardWriter.add` takes them: it puts markers around ids, and
    none around numbers.
    """
    offsets, lengths = np.asarray(shard.offsets), np.diff(shard.offsets)
    if not shard.cuttable:
        return shard.ids, lengths
    return np.delete(shard.ids, np.concatenate([offsets[:-1], offsets[1:] - 1])), lengths - 2


FOLDER, MANIFEST = "data", "manifest.json"
MORE = 8  # tokens that a source counts as longer, as in decode/translation.py
NAMED = 100  # training files whose hashes are kept one by one; of more, that of all together
SLOW = 200 << 20  # bytes from which reading is announced


@dataclass(frozen=True)
class Corpus:
    """A tokenizer and the shards it made; an empty side is None. `facts` are for regard.json.

    `source_tokenizer` is that of the shards' sources, where there are pairs: `tokenizer` itself, or
    one of their own. `targets` says what is asked of labelled records.
    """

    tokenizer: Tokenizer
    train: Shard
    valid: Shard | None
    test: Shard | None
    facts: dict[str, Any]
    source_tokenizer: Tokenizer | None = None
    targets: Targets | None = None

    def side(self, name: str) -> Shard | None:
        """The shard called train, valid or test."""
        found: Shard | None = getattr(self, name)
        return found

    def cut(self, max_len: int) -> list[str]:
        """What one should know of records that are asked about as a whole and longer than a model's
        context: no more than one line.
        """
        shards = [one for one in (self.train, self.valid, self.test) if one is not None]
        if self.targets is None or not max_len or not self.train.cuttable:
            return []
        lengths = np.concatenate([_read_lengths(shard) for shard in shards])
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
        told, found = self.facts, list[str]()
        if told["skipped"]:
            first = told["problems"][0]
            found.append(f"damaged records left out: {told['skipped']:,}; first: {first}")
        found += [*told.get("remarks", ()), *told.get("warnings", ())]
        for side, leak in told["leaks"].items():
            if leak["records"]:
                example = leak["examples"][0]
                found.append(
                    f"{leak['records']:,} {side} records also occur in train, e.g. {example!r}"
                )
        for side, held in told["sides"].items():
            if unknown := held["unknown"] + held.get("source_unknown", 0):
                found.append(f"{unknown:,} symbols of {side} are unknown: they count as <unk>")
        return found


def _read_lengths(shard: Shard) -> NDArray[np.int64]:
    """The tokens of every record as a model reads it, both texts where there are two."""
    lengths = np.diff(np.asarray(shard.offsets))[:: shard.views]
    if shard.source is not None:
        lengths = lengths + np.diff(np.asarray(shard.source.offsets)) - 1
    return lengths


def prepare(
    data: DataRecipe,
    tokens: TokensRecipe,
    run: Path,
    say: Say,
    *,
    fixed: bool = False,
    task: str = "next",
    start: str = "",
) -> Corpus:
    """Tokenise once into RUN/data; what is there for the same files and settings is used again.

    `fixed` says that a checkpoint depends on it: then the files must still hold the same bytes. The
    task `target` reads pairs, those of `targets.LABELLED` labelled records. The tokenizer is that
    of the run `start`, where one is named.
    """
    sources = DataSource(data, task, tokens, start)
    key = {
        "task": task,
        "data": _plain(dataclasses.asdict(data)),
        "tokens": dataclasses.asdict(tokens),
        "files": [
            [str(file), file.stat().st_size, file.stat().st_mtime_ns]
            for source in (sources.train, *sources.held_out_files)
            if source
            for file in dict.fromkeys(located(path)[0] for path in source.all_files)
        ],
    }
    key |= {"start": start} if start else {}
    folder = run / FOLDER
    if (stored := _stored(folder / MANIFEST)) is not None:
        same = stored["key"] == key
        if fixed and not same:
            same = stored["facts"]["fingerprints"] == sources.fingerprints()
            if not same:
                raise UserError(
                    f"the data of {run} has changed since its checkpoint was written "
                    f"({', '.join(map(str, sources.train.files[:3]))}): train a new run"
                )
        try:
            if same:
                return reopen(run, verify=True)
        except UserError as error:
            say(f"{error}")
    facts = _build(sources, tokens, run, say, start)
    write_json(folder / MANIFEST, {"key": key, "facts": facts})
    return reopen(run)


def _build(
    sources: DataSource, tokens: TokensRecipe, run: Path, say: Say, start: str
) -> dict[str, Any]:
    """Learn the tokens, or take those of `start`, and write the shards, but for the manifest; what
    it is to say.
    """
    folder = run / FOLDER
    if sources.train.size > SLOW:
        say(f"reading and tokenising {sources.train.size / 2**30:.1f} GB once")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        for path in (folder / MANIFEST, run / SOURCE_TOKENIZER, run / PREPROCESSOR):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None
    _refuse_too_little(sources)
    sources.leave_something(say)
    views = _views(sources)
    targets = _targets(sources)
    parts = {TOKENIZER: "targets", SOURCE_TOKENIZER: "sources"}
    if not sources.paired or (tokens.joint and not tokens.source):
        parts = {TOKENIZER: "both"}
    learned: dict[str, Tokenizer] = {}
    for name, part in parts.items():
        if start:
            learned[name] = load(Path(start) / name)
            continue
        own = tokens.of_sources if tokens.source and part == "sources" else tokens
        learned[name] = learn(own, _training_texts(sources, own.kind, part, views))
    both = (learned[TOKENIZER], learned.get(SOURCE_TOKENIZER, learned[TOKENIZER]))
    counts = encode(sources, both, folder, say, targets, views, strict=tokens.strict)
    for name, one in learned.items():
        with replacing(run / (name if one.file == TOKENIZER else one.file)) as temporary:
            one.save(temporary)
    read = [files for files in (sources.train, *sources.held_out_files) if files is not None]
    asked = {} if targets is None else _asked(sources, targets)
    hashes = sources.hashes()
    files = hashes["train"][1]
    return {
        "paired": sources.two_sided,
        "format": sources.train.format,
        "why": sources.train.why,
        "fingerprints": {side: total for side, (total, _) in hashes.items()},
        "reading": sources.reading() | {"files": files if len(files) <= NAMED else {}},
        "skipped": sum(files.skipped for files in read),
        "problems": [problem for files in read for problem in files.problems],
        "blank": sum(files.blank for files in read),
        "remarks": sources.remarks,
        "leaks": sources.leaks(),
        "sides": counts,
        **(_lengths(folder, sources.numbered) if sources.paired else {}),
        **({"resize": sources.recipe.resize} if sources.recipe.resize else {}),
        **({"surface": sources.recipe.surface} if sources.train.format == "points" else {}),
        **({"augment": sources.recipe.augment, "views": views.count} if views else {}),
        **asked,
    }


def _refuse_too_little(sources: DataSource) -> None:
    """One record teaches nothing: what can be learned is what several have in common."""
    if sources.text or any(sources.held_out_files):
        return
    full = count = 0
    for chunk in sources.train.records():
        count += len(chunk)
        full += len(chunk) if sources.numbered else sum(map(bool, map(str.strip, chunk.texts)))
        if full > 1:
            return
    unit = "pair" if sources.paired else "record"
    has = f"one {unit}" if full else f"{count:,} {unit}s of nothing but blanks"
    cut = "; --set data.format=text reads one long sequence or text as running text"
    raise UserError(
        f"{sources.train.files[0]} holds {has}: training needs at least two, of which one can be "
        f"held out{'' if not full or sources.labelled or sources.paired else cut}"
    )


def _views(sources: DataSource) -> Views | None:
    """What every record is also shown as."""
    recipe = sources.recipe
    if recipe.augment and (sources.aligned or sources.two_sided):
        raise UsageError("data.augment is for records of one text that are asked about as a whole")
    if recipe.augment and not sources.labelled:
        if sources.task == "next" and sources.text:
            return None  # the other strand is one more text to learn from: see both_strands
        raise UsageError(
            "data.augment is for labelled records and, to predict the next base, for running text: "
            "set data.format = 'text'"
        )
    return views_of(recipe.augment, recipe.views)


def _targets(sources: DataSource) -> Targets | None:
    """What is asked of labelled records, the classes being those of training."""
    if not isinstance(sources.train, LabelledFiles) or sources.task in ("masked", "target"):
        return None
    names = sources.train.names
    training = (piece for piece in sources.pieces() if piece.side in (0, UNUSED))
    columns = survey(training, len(names))
    targets = Targets.learn(sources.task, names, columns, sources.recipe.positive)
    aligned = targets.kind.aligned
    if (len(targets.classes[0]) if aligned else max(len(c.different) for c in columns)) == 1:
        found = next(cell for column in columns for cell in column.different)
        raise UserError(
            f"all {columns[0].filled:,} training records are {found[:40]!r} under {names[0]!r}: "
            "there is nothing to tell apart; at least two classes or values are needed: give more "
            "of others, or hold out fewer records"
        )
    return targets


def _asked(sources: DataSource, targets: Targets) -> dict[str, Any]:
    """What the manifest says of labelled records, and what a user must know of them."""
    found = inspect_labelled(sources)
    return {
        "targets": dataclasses.asdict(targets),
        "labels": found.to_json(),
        "warnings": [f"{name}: {line}" for name, line in found.warnings()],
    }


def _lengths(folder: Path, pictures: bool) -> dict[str, float]:
    """What a translation may have: tokens of a training target for one of its source and MORE or,
    of pictures, as many as targets have, in all but one of a thousand pairs, and a tenth more.
    """
    target, source = (
        np.diff(Shard.open(folder / (SPLITS[0] + end)).offsets) - 2 for end in ("", SOURCE)
    )
    if pictures:
        return {"longest": int(np.ceil(np.quantile(target + 1, 0.999) * 1.1))}
    return {"ratio": round(float(np.quantile((target + 1) / (source + MORE), 0.999)) * 1.1, 3)}


def _stored(manifest: Path) -> dict[str, Any] | None:
    """The manifest of data tokenised before; None if there is none, or a damaged one."""
    try:
        stored: dict[str, Any] = read_json(manifest, Manifest)
        return stored if "fingerprints" in stored["facts"] else None
    except UserError:
        return None


def reopen(run: Path, *, verify: bool = False, held_out: bool = False) -> Corpus:
    """The corpus that `prepare` left in a run folder; `verify` reads all of it to check it,
    `held_out` what was held out.
    """
    verified = SPLITS if verify else SPLITS[1:] if held_out else ()
    folder = run / FOLDER
    facts = read_json(folder / MANIFEST, Manifest)["facts"]
    held = {name: facts["sides"][name]["records"] for name in SPLITS}
    shards = {
        name: Shard.open(folder / name, verify=name in verified) if records else None
        for name, records in held.items()
    }
    paired = facts.get("paired", False)
    for name, shard in shards.items():
        if paired and shard is not None:
            source = Shard.open(folder / (name + SOURCE), verify=name in verified)
            shards[name] = shard.paired(source)
    train = shards["train"]
    if train is None:
        raise UserError(
            "nothing is left to train on after the split; give more data or smaller fractions"
        )
    tokenizer = load(run / TOKENIZER)
    sources = load_sources(run, tokenizer) if paired else None
    asked = _reopened(facts)
    for name, shard in shards.items():
        if asked is not None and shard is not None:
            shard = with_targets(shard, folder / name, verify=name in verified)
            shards[name] = dataclasses.replace(shard, views=facts.get("views", 1))
    train = shards["train"] or train
    return Corpus(tokenizer, train, shards["valid"], shards["test"], facts, sources, asked)


def _reopened(facts: dict[str, Any]) -> Targets | None:
    """What is asked, as the manifest has it."""
    try:
        return Targets.stored(facts["targets"]) if "targets" in facts else None
    except ValueError as error:
        raise UserError(f"{MANIFEST} is damaged: targets: {error}") from None


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _training_texts(
    sources: DataSource, kind: str, part: str, views: Views | None
) -> Iterator[str]:
    """What the vocabulary may be learned from: the training side only; of pairs, which part."""
    taken = 0
    for piece in sources.pieces():
        if piece.side in (0, UNUSED):
            for texts, unwanted in ((piece.sources, "targets"), (piece.texts, "sources")):
                if part != unwanted:
                    yield from views.texts(texts) if views else texts
                    taken += sum(map(len, texts))
            if taken > LEARNED[kind].learns_from:
                return
