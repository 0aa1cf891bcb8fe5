"""Checks of what a run keeps on disk: weights come back bit by bit, texts letter by letter.

The check that training is repeatable: killed and resumed, it ends with the very same bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tokenizers
import torch

from regard.data.corpus import FOLDER, MANIFEST, Corpus, reopen
from regard.data.shards import Shard
from regard.data.sources import SPLITS, DataSource
from regard.decoding import ForbiddenTransitions
from regard.errors import UserError
from regard.models.counts import CountingFit
from regard.models.hidden_markov import EMModel
from regard.models.supervised import FittedModel, NeuralSupervisedModel
from regard.models.word2vec import Word2Vec
from regard.recipe import Recipe, build, read
from regard.run import (
    CONFIG,
    METRICS,
    RECIPE,
    TOKENIZER,
    WEIGHTS,
    load_model,
    read_config,
    read_tensors,
    weights,
    write_config,
    write_tensors,
)
from regard.schemas import Event, Manifest
from regard.storage import read_json, read_lines
from regard.tokenizers import Patches, Points, Tokenizer, load, load_sources
from regard.tokenizers.tokenizer import Ids, OwnTokenizer, blaming
from regard.training import checkpoint
from regard.training.em_loop import EMLoop
from regard.training.loop import Loop, seed_of
from regard.training.progress import Reporter, Status
from regard.training.session import fitting
from regard.training.trainer import Trainer
from regard.training.validation import beginning
from regard.training.word2vec_training import Word2VecLoop
from regard.verify.fixtures import Fixture, has_data
from regard.verify.report import Finding

TEXTS = 20  # records tried of each side, or texts made up
CHARACTERS = 4000  # of running text tried; records ten times as long are passed over


def save_and_load(subject: Fixture) -> Finding:
    """Write the model to a new folder and load it: the same bits, and bit-equal predictions."""
    model = subject.whole
    with TemporaryDirectory() as folder:
        write_config(Path(folder), read_config(subject.run)[0], model)
        write_tensors(Path(folder) / WEIGHTS, weights(model))
        size = (Path(folder) / WEIGHTS).stat().st_size
        loaded = load_model(Path(folder))
    before, after = weights(model), weights(loaded)
    if before.keys() != after.keys():
        return False, f"{sorted(before.keys() ^ after.keys())[0]} is on one side only"
    for name, tensor in before.items():
        if tensor.dtype != after[name].dtype or not torch.equal(tensor, after[name]):
            return False, f"{name} comes back changed"
    if not torch.equal(subject.tried(loaded), subject.logits):
        return False, "the tensors come back equal, but the loaded model predicts something else"
    return True, f"{len(before)} tensors, {size:,} bytes, and the logits are equal bit by bit"


@dataclass(frozen=True)
class RoundTripSample:
    """A text to encode; `stored` are the ids that the run's data has for it, where known."""

    text: str
    stored: Ids | None = None


def tokenizer_round_trip(subject: Fixture) -> Finding:
    """Encode and decode: the text again, with the ids of the `tokenizers` library and of the data.

    Texts with unknown symbols cannot come back and are counted. A foreign tokenizer may normalise a
    text once; what it gives back must then stay as it is.
    """
    path = subject.run / TOKENIZER
    tokenizer = load(path)
    if isinstance(tokenizer, Patches):
        return pictures_round_trip(subject.run, tokenizer)
    if isinstance(tokenizer, Points):
        return clouds_round_trip(subject.run, tokenizer)
    if tokenizer.vocab_size > subject.whole.vocab_size:
        told = f"{CONFIG} says {subject.whole.vocab_size}"
        return False, f"{TOKENIZER} has {tokenizer.vocab_size} tokens, {told}"
    with blaming(str(path)):
        library = tokenizers.Tokenizer.from_file(str(path))
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # a special written out in a text stays text
    sources = load_sources(subject.run, tokenizer)
    pictures = ""
    if isinstance(sources, Patches):
        same, pictures = pictures_round_trip(subject.run, sources)
        if not same:
            return False, pictures
    samples, origin = gather(subject.run, tokenizer)
    tokens = unknown = symbols = normalised = compared = 0
    for sample in samples:
        ids = tokenizer.encode(sample.text)
        with blaming(str(path)):
            spelt = tokenizer.spelt(sample.text)
            theirs = library.encode(spelt, add_special_tokens=False).ids
        if theirs != ids.tolist():
            return False, f"the tokenizers library gives other ids for {sample.text[:40]!r}"
        if sample.stored is not None:
            compared += 1
            if not np.array_equal(ids, sample.stored):
                return False, f"the data holds other ids for {sample.text[:40]!r}"
        tokens += len(ids)
        if tokenizer.unk != tokenizer.end and tokenizer.unk in ids:
            unknown += 1
            symbols += int((ids == tokenizer.unk).sum())
            continue
        back = tokenizer.decode(ids)
        if back != sample.text and not isinstance(tokenizer, OwnTokenizer):
            normalised += 1
            sample, back = RoundTripSample(back), tokenizer.decode(tokenizer.encode(back))
        if back != tokenizer.normal(sample.text):
            return False, f"{sample.text[:40]!r} comes back as {back[:40]!r}"
    parts = [f"{len(samples)} texts {origin}, {tokens:,} tokens; the tokenizers library agrees"]
    parts += [f"{compared} agree with the stored ids"] * bool(compared)
    parts += [f"{unknown} left out for {symbols} unknown symbols"] * bool(unknown)
    parts += [f"{normalised} normalised once"] * bool(normalised)
    parts += [pictures] * bool(pictures)
    return True, "; ".join(parts)


def pictures_round_trip(run: Path, tokenizer: Patches) -> Finding:
    """Pictures cut into patches and put together again: the same pixels, and the tokens of the
    data.
    """
    random, pixels, count = np.random.default_rng(0), 0, 0
    sides = (tokenizer.height, tokenizer.width), (tokenizer.patch, 2 * tokenizer.patch + 1)
    for tall, wide in sides:
        image = random.integers(0, 256, (tall, wide, tokenizer.channels), dtype=np.uint8)
        back = tokenizer.picture(tokenizer.encode_batch([image])[0])[:tall, :wide]
        if not np.array_equal(back, image):
            return False, f"a picture of {tall} × {wide} pixels does not come back"
        pixels, count = pixels + image.size, count + 1
    if has_data(run):
        corpus = reopen(run)
        shard = corpus.test or corpus.valid or corpus.train
        shard = shard.source or shard
        for number in range(min(shard.records, TEXTS)):
            stored = shard.record(number)
            image = tokenizer.picture(stored)
            if not np.array_equal(tokenizer.encode_batch([image])[0], stored):
                return False, f"record {number} of the data is cut otherwise"
            pixels, count = pixels + image.size, count + 1
    return True, f"{count} pictures of {pixels:,} bytes come back from their patches"


def clouds_round_trip(run: Path, tokenizer: Points) -> Finding:
    """The file says all there is to know; and of the data, clouds of which every point is a token
    are tokenised to what is stored, and all others have centres that are their own neighbours.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / tokenizer.file
        tokenizer.save(path)
        if Points.load(path).raw != tokenizer.raw:
            return False, "the tokenizer does not come back from its file"
    count = numbers = 0
    if has_data(run):
        corpus = reopen(run)
        shard = corpus.test or corpus.valid or corpus.train
        for number in range(min(shard.records, TEXTS)):
            stored = np.asarray(shard.record(number))
            own = tokenizer.groups(stored[1:])[:, 0]
            sound = (own[:, 0] == 1).all() and not own[:, 1 : 1 + tokenizer.dimensions].any()
            if not tokenizer.samples:
                again = tokenizer.encode_batch([tokenizer.cloud(stored)])[0]
                sound &= bool(np.allclose(again, stored, atol=1e-4 * tokenizer.reach))
            if not sound or stored[0].any():
                return False, f"record {number} of the data is tokenised otherwise"
            count, numbers = count + 1, numbers + stored.size
    return True, f"its file comes back; {count} clouds of {numbers:,} numbers are as stored"


def gather(run: Path, tokenizer: Tokenizer) -> tuple[list[RoundTripSample], str]:
    """Texts of the run: from its files if they are still the same, else its data, else made up."""
    if has_data(run):
        corpus = reopen(run)
        if (run / RECIPE).exists() and unchanged(read_json(run / FOLDER / MANIFEST, Manifest)):
            recipe = build(read(run / RECIPE))
            sources = DataSource(recipe.data, recipe.task, recipe.tokens, recipe.train.start)
            samples = list(stream(sources, corpus) if sources.text else records(sources, corpus))
            if samples:
                return samples, "of the run's own files"
        samples = list(stored(corpus.test or corpus.valid or corpus.train, tokenizer))
        if samples:
            return samples, "of the run's own data"
    return list(made_up(tokenizer)), "made up from the vocabulary"


def unchanged(manifest: dict[str, Any]) -> bool:
    """Are the files that the data was made from still there, with their sizes and times?"""
    try:
        for name, size, time in manifest["key"]["files"]:
            found = Path(name).stat()
            if (found.st_size, found.st_mtime_ns) != (size, time):
                return False
    except OSError:
        return False
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{FOLDER}/{MANIFEST} is damaged: {error!r}") from None
    return True


def records(sources: DataSource, corpus: Corpus) -> Iterator[RoundTripSample]:
    """The first records of each side, as the files spell them, with their ids in the shards."""
    met: set[int] = set()
    for piece in sources.pieces():
        if piece.side in met:
            return
        met.add(piece.side)
        shard = corpus.side(SPLITS[piece.side])
        if shard is None:
            raise UserError(f"{FOLDER}/{SPLITS[piece.side]} lacks records that the files have")
        find = _by_content if corpus.targets is not None else _by_number
        for number, text in enumerate(piece.texts[:TEXTS]):
            found = find(shard, corpus.tokenizer, number, text)
            if found >= shard.records:
                raise UserError(f"{FOLDER}/{SPLITS[piece.side]} lacks records that the files have")
            if len(text) <= 10 * CHARACTERS:
                yield RoundTripSample(text, shard.record(found)[1:-1])


def _by_number(shard: Shard, tokenizer: Tokenizer, number: int, text: str) -> int:
    """Records lie in the order of their files."""
    return number * shard.views


def _by_content(shard: Shard, tokenizer: Tokenizer, number: int, text: str) -> int:
    """Labelled records lie in an order of their own: the first with the ids of the text, if any."""
    wanted = [tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.end]
    alike = np.flatnonzero(np.diff(shard.offsets) == len(wanted)).tolist()
    same = (i for i in alike if np.array_equal(shard.record(i), wanted))
    return next(same, shard.records)


def stream(sources: DataSource, corpus: Corpus) -> Iterator[RoundTripSample]:
    """The beginning of running text, in pieces for themselves and whole with its ids.

    Whole is as far as a cut surely changes no token before it.
    """
    text = next(sources.train.text())[:CHARACTERS]
    ids = corpus.train.record(0)[1:-1]
    while len(text) > 1 and 2 * len(corpus.tokenizer.encode(text)) > len(ids):
        text = text[: len(text) // 2]  # surely within the part that was trained on
    for first in range(0, len(text), CHARACTERS // TEXTS):
        yield RoundTripSample(text[first : first + CHARACTERS // TEXTS])
    text = text[: corpus.tokenizer.cut(text)]
    if text:
        yield RoundTripSample(text, ids[: len(corpus.tokenizer.encode(text))])


def stored(shard: Shard, tokenizer: Tokenizer) -> Iterator[RoundTripSample]:
    """The first records of a shard, or their beginnings, as text; those with unknowns left out."""
    for number in range(min(shard.records, TEXTS)):
        ids = shard.record(number)[1:-1]
        whole = shard.kind == "records" and len(ids) <= CHARACTERS
        if tokenizer.unk not in ids[:CHARACTERS]:
            yield RoundTripSample(tokenizer.decode(ids[:CHARACTERS]), ids if whole else None)


def made_up(tokenizer: Tokenizer) -> Iterator[RoundTripSample]:
    """Texts of random tokens, no specials among them."""
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), list(tokenizer.names))
    random = np.random.default_rng(0)
    for length in range(1, TEXTS + 1):
        chosen = random.choice(ordinary, length).tolist()
        yield RoundTripSample(
            "".join(map(tokenizer.text, chosen)).strip(" ")
        )  # words begin with a space


STEPS, KEPT, KILLED = 4, 2, 3  # trained; a checkpoint every so many; the kill comes after this one
BATCH_TOKENS = 256
LARGEST = 50_000_000  # parameters that are trained for this check at most
COUNTED = 20_000_000  # tokens counted again at most
TIMINGS = ("seconds", "symbols_per_second")  # what differs between equal runs
FORBIDDEN = "forbidden.safetensors"  # where a run keeps its forbidden transitions


class Killed(Exception):
    """The simulated end of a process."""


class Killer(Reporter):
    """A reporter that ends training in the middle of a step, as a kill would, saving nothing."""

    def update(self, status: Status) -> None:
        """See Reporter."""
        if status.step == KILLED:
            raise Killed


def resume_bit_equality(subject: Fixture) -> Finding | None:
    """A few steps of the run's recipe, straight and killed and resumed; or counting again."""
    if not has_data(subject.run):
        return None
    if isinstance(subject.whole, (CountingFit, FittedModel)):
        return recount(subject.whole, reopen(subject.run))
    if not (subject.run / RECIPE).exists():
        return None
    if subject.parameters > LARGEST:
        many = f"{subject.parameters:,} parameters"
        return True, f"does not apply: {many} are too many to train here (at most {LARGEST:,})"
    recipe = build(read(subject.run / RECIPE))
    corpus = replace(reopen(subject.run), valid=None)
    with TemporaryDirectory() as folder, torch.enable_grad():
        straight, stopped = Path(folder) / "straight", Path(folder) / "stopped"
        finish(trainer(recipe, corpus, straight, subject.run))
        with contextlib.suppress(Killed):
            finish(trainer(recipe, corpus, stopped, subject.run, Killer(quiet=True)))
        resumed = trainer(recipe, corpus, stopped, subject.run, other_start=True)
        if not resumed.resume():
            return False, f"no checkpoint was left after step {KEPT}"
        from_step = resumed.progress.step
        finish(resumed)
        return compare(straight, stopped, from_step)


def finish(worker: Loop) -> None:
    """Train to the end; Ctrl-C, which training takes as a wish to save and stop, ends verifying."""
    if worker.run() == "interrupted":
        raise KeyboardInterrupt


def trainer(
    recipe: Recipe,
    corpus: Corpus,
    folder: Path,
    run: Path,
    reporter: Reporter | None = None,
    *,
    other_start: bool = False,
) -> Loop:
    """The run's own training, short and small, on the CPU.

    `other_start` begins with other weights: whatever a checkpoint fails to bring back then shows.
    """
    precision = "fp64" if recipe.train.precision == "fp64" else "fp32"
    small = {
        "steps": STEPS, "batch_tokens": min(BATCH_TOKENS, recipe.train.batch_tokens), "patience": 0,
        "eval_every": STEPS, "checkpoint_every": KEPT,
        "device": "cpu", "precision": precision, "compile": "off",
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    torch.manual_seed(seed_of(recipe.train.seed) + other_start)
    path = run / FORBIDDEN
    forbidden = ForbiddenTransitions.load(path) if path.exists() else None
    recipe, reporter = recipe.replace(train=small), reporter or Reporter(quiet=True)
    cls = recipe.family
    if issubclass(cls, Word2Vec):
        return Word2VecLoop(recipe, corpus, folder, reporter)
    if issubclass(cls, EMModel):  # a step of it is a pass over all there is
        part = replace(corpus, train=beginning(corpus.train, STEPS * BATCH_TOKENS))
        return EMLoop(recipe, part, folder, reporter, forbidden=forbidden)
    model = cls(corpus.tokenizer.vocab_size, fitting(recipe.model.config, corpus))
    if isinstance(model, NeuralSupervisedModel):
        model.measure(corpus.train)
    return Trainer(model, corpus, recipe, folder, reporter, forbidden=forbidden)


def compare(straight: Path, stopped: Path, from_step: int) -> Finding:
    """The last checkpoints byte by byte, and the metrics but for timings."""
    total = 0
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (checkpoint.steps(folder)[-1] / name for folder in (straight, stopped))
        if checkpoint.checksum(one) != checkpoint.checksum(other):
            return False, f"resumed from step {from_step}, {differing(one, other)} differs"
        total += one.stat().st_size
    if logged(straight) != logged(stopped):
        return False, f"resumed from step {from_step}, {METRICS} differs beyond timings"
    detail = f"{STEPS} steps straight = killed in step {KILLED}, resumed from step {from_step}"
    return True, f"{detail}: {total:,} bytes of weights and optimizer are equal"


def differing(one: Path, other: Path) -> str:
    """The first tensor in which two files differ."""
    left, right = read_tensors(one), read_tensors(other)
    for name in sorted(left.keys() | right.keys()):
        if name not in left or name not in right or not torch.equal(left[name], right[name]):
            return name
    return one.name


def logged(folder: Path) -> list[dict[str, object]]:
    """The lines of metrics.jsonl without what the clock put there."""
    events = read_lines(folder / METRICS, Event)
    return [{k: v for k, v in event.items() if k not in TIMINGS} for event in events]


def recount(model: Any, corpus: Corpus) -> Finding:
    """Fit again, twice: one table, and the run's own if all of its data could be counted."""
    shard, part = corpus.train, beginning(corpus.train, COUNTED)
    valid = corpus.valid if isinstance(model, FittedModel) else None  # which chooses for these
    tables = []
    for _ in range(2):
        fresh = type(model)(model.vocab_size, model.config)
        fresh.fit(part, valid, lambda said: None)
        tables.append(weights(fresh))
    if whole := part.tokens == shard.tokens:
        tables.append(weights(model))
    for table in tables[1:]:
        for name, tensor in tables[0].items():
            if name not in table or not torch.equal(tensor, table[name]):
                return False, f"{name} differs when {part.tokens:,} tokens are counted again"
    own = ", and so does the run's own" if whole else ""
    return True, f"counting {part.tokens:,} tokens twice gives the same table{own}"
