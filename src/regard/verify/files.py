"""Checks of what a run stores: weights come back bit by bit, texts character by character, and
training that is killed and resumed ends with the same bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from regard.data.corpus import FOLDER, MANIFEST, Corpus, reopen
from regard.data.shards import Shard
from regard.data.sources import UNUSED, DataSource
from regard.decoding import ForbiddenTransitions
from regard.errors import UserError
from regard.evaluation.language_modeling import truncate_shard
from regard.recipe import SPLITS, Recipe, build, read
from regard.run import CONFIG, FORBIDDEN, METRICS, RECIPE, WEIGHTS, Run, weights, write_config
from regard.storage import Event, Manifest, read_json, read_lines, read_tensors, write_tensors
from regard.tokenizers import TOKENIZER, Tokenizer, load, load_sources
from regard.tokenizers.tokenizer import Ids, library_errors, open_tokenizer
from regard.training import checkpoint
from regard.training.checkpoint import tokens_of
from regard.training.loop import EMLoop, Loop, seed_of
from regard.training.progress import Reporter, Status
from regard.training.trainer import Trainer, fit_config
from regard.training.word2vec_training import Word2VecLoop
from regard.verify.fixtures import Finding, Fixture, has_data, held_out_shard


def save_and_load(fixture: Fixture) -> Finding:
    """A model that is written to a new folder and loaded has the same bits and outputs."""
    model = fixture.model
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_config(folder, Run(fixture.run).description.family, model)
        write_tensors(folder / WEIGHTS, weights(model))
        size = (folder / WEIGHTS).stat().st_size
        loaded = Run(folder).model()
    before, after = weights(model), weights(loaded)
    if before.keys() != after.keys():
        return False, f"only one of both has {sorted(before.keys() ^ after.keys())[0]}"
    for name, tensor in before.items():
        if tensor.dtype != after[name].dtype or not torch.equal(tensor, after[name]):
            return False, f"{name} comes back changed"
    if not torch.equal(fixture.compute(loaded), fixture.outputs):
        return False, "the tensors come back equal, but the loaded model predicts something else"
    return True, f"{len(before)} tensors, {size:,} bytes, and the logits are equal bit by bit"


# Tokenizers

N_TEXTS = 20  # records of each split, or made-up texts
MAX_CHARACTERS = 4000  # of running text; records ten times as long are skipped


@dataclass(frozen=True)
class TextSample:
    """A text to encode; `stored` are the ids that the run's data has for it, if known."""

    text: str
    stored: Ids | None = None


def tokenizer_round_trip(fixture: Fixture) -> Finding:
    """Texts come back from their tokens, which are those of the `tokenizers` library and of the
    run's data; images and point clouds come back from theirs.
    """
    tokenizer = load(fixture.run / TOKENIZER)
    if not tokenizer.reads_text:
        return items_round_trip(fixture.run, tokenizer)
    if tokenizer.vocab_size > fixture.model.vocab_size:
        sizes = tokenizer.vocab_size, fixture.model.vocab_size
        return False, f"{TOKENIZER} has {sizes[0]} tokens, {CONFIG} says {sizes[1]}"
    ok, detail = texts_round_trip(fixture.run, tokenizer)
    sources = load_sources(fixture.run, tokenizer)
    if not ok or sources.reads_text:
        return ok, detail
    ok, source_detail = items_round_trip(fixture.run, sources)
    return ok, f"{detail}; {source_detail}" if ok else source_detail


def texts_round_trip(run: Path, tokenizer: Tokenizer) -> Finding:
    """Encode and decode texts; those with unknown symbols cannot come back and are counted."""
    path = run / TOKENIZER
    library = open_tokenizer(path.read_text(encoding="utf-8"), str(path))
    samples, origin = gather_texts(run, tokenizer)
    n_tokens = n_unknown = n_symbols = n_compared = 0
    for sample in samples:
        ids, shown = tokenizer.encode(sample.text), repr(sample.text[:40])
        spelling = tokenizer.spell_for_library(sample.text)
        with library_errors(str(path)):
            library_ids = library.encode(spelling, add_special_tokens=False).ids
        if library_ids != ids.tolist():
            return False, f"the tokenizers library gives other ids for {shown}"
        if sample.stored is not None:
            n_compared += 1
            if not np.array_equal(ids, sample.stored):
                return False, f"the data holds other ids for {shown}"
        if not tokenizer.round_trip(sample.text):
            return False, f"{shown} comes back as {tokenizer.decode(ids)[:40]!r}"
        n_tokens += len(ids)
        if tokenizer.unk != tokenizer.end and tokenizer.unk in ids:
            n_unknown, n_symbols = n_unknown + 1, n_symbols + int((ids == tokenizer.unk).sum())
    parts = [f"{len(samples)} texts {origin}, {n_tokens:,} tokens; the tokenizers library agrees"]
    parts += [f"{n_compared} agree with the stored ids"] * bool(n_compared)
    parts += [f"{n_unknown} left out for {n_symbols} unknown symbols"] * bool(n_unknown)
    return True, "; ".join(parts)


def items_round_trip(run: Path, tokenizer: Any) -> Finding:
    """Save and load a featurizer; encode and decode made-up items, and records of the data."""
    with TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / tokenizer.file)
        if not tokenizer.equals(load(Path(folder) / TOKENIZER)):
            return False, f"{tokenizer.file} does not come back"
    item, items = tokenizer.words
    samples = tokenizer.sample_items(2)
    for sample in samples:
        if not tokenizer.round_trip(sample):
            return False, f"a made-up {item} does not come back from its tokens"
    count, n_numbers = len(samples), 0
    if has_data(run):
        shard = held_out_shard(reopen(run))
        shard = shard.source or shard
        for number in range(min(shard.records, N_TEXTS)):
            record = shard.record(number)
            if not tokenizer.record_round_trip(record):
                return False, f"record {number} of the data has other tokens than its {item}"
            count, n_numbers = count + 1, n_numbers + record.size
    return True, f"{count} {items} come back from their tokens, {n_numbers:,} numbers as stored"


def gather_texts(run: Path, tokenizer: Tokenizer) -> tuple[list[TextSample], str]:
    """Return texts and where they are from: the run's files if these are still the same, else its
    data, else the vocabulary.
    """
    if has_data(run):
        corpus = reopen(run)
        if (run / RECIPE).exists() and unchanged(read_json(run / FOLDER / MANIFEST, Manifest)):
            recipe = build(read(run / RECIPE))
            sources = DataSource.of(recipe, tokens_of(recipe.train.init_from))
            read_texts = running_text if sources.text else file_records
            if samples := list(read_texts(sources, corpus)):
                return samples, "of the run's own files"
        if samples := list(stored_texts(held_out_shard(corpus), tokenizer)):
            return samples, "of the run's own data"
    return list(random_texts(tokenizer)), "made up from the vocabulary"


def unchanged(manifest: dict[str, Any]) -> bool:
    """Return whether the files that the data was made from have their old sizes and times."""
    try:
        for name, size, time in manifest["key"]["files"]:
            file = Path(name).stat()
            if (file.st_size, file.st_mtime_ns) != (size, time):
                return False
    except OSError:
        return False
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{FOLDER}/{MANIFEST} is damaged: {error!r}") from None
    return True


def file_records(sources: DataSource, corpus: Corpus) -> Iterator[TextSample]:
    """Yield the first records of each split as the files spell them, with their stored ids."""
    splits: set[int] = set()
    for chunk in sources.chunks():
        if chunk.split == UNUSED:
            continue
        if chunk.split in splits:
            return
        splits.add(chunk.split)
        split = SPLITS[chunk.split]
        shard = corpus.split(split)
        for number, text in enumerate(chunk.texts[:N_TEXTS]):
            index = None if shard is None else find_record(shard, corpus, number, text)
            if shard is None or index is None:
                raise UserError(f"{FOLDER}/{split} lacks records that the files have")
            if len(text) <= 10 * MAX_CHARACTERS:
                yield TextSample(text, corpus.tokenizer.content(shard.record(index)))


def find_record(shard: Shard, corpus: Corpus, number: int, text: str) -> int | None:
    """Return where a shard has the record with this number in its files; None if nowhere."""
    if corpus.targets is None:
        index = number * shard.views
        return index if index < shard.records else None
    # Labelled records are stored in another order: take the first with these ids.
    tokenizer = corpus.tokenizer
    ids = [tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.end]
    candidates = np.flatnonzero(np.diff(shard.offsets) == len(ids)).tolist()
    return next((i for i in candidates if np.array_equal(shard.record(i), ids)), None)


def running_text(sources: DataSource, corpus: Corpus) -> Iterator[TextSample]:
    """Yield the first part of running text: in pieces, and once as far as a cut surely changes no
    token, with its stored ids.
    """
    tokenizer = corpus.tokenizer
    text = next(sources.train.text())[:MAX_CHARACTERS]
    ids = tokenizer.content(corpus.train.record(0))
    while len(text) > 1 and 2 * len(tokenizer.encode(text)) > len(ids):
        text = text[: len(text) // 2]  # surely within the training split
    length = MAX_CHARACTERS // N_TEXTS
    for start in range(0, len(text), length):
        yield TextSample(text[start : start + length])
    if text := text[: tokenizer.cut(text)]:
        yield TextSample(text, ids[: len(tokenizer.encode(text))])


def stored_texts(shard: Shard, tokenizer: Tokenizer) -> Iterator[TextSample]:
    """Yield the first records of a shard, or parts of them, as texts without unknown symbols."""
    for number in range(min(shard.records, N_TEXTS)):
        ids = tokenizer.content(shard.record(number))
        complete = shard.has_records and len(ids) <= MAX_CHARACTERS
        if tokenizer.unk not in ids[:MAX_CHARACTERS]:
            text = tokenizer.decode(ids[:MAX_CHARACTERS])
            yield TextSample(text, ids if complete else None)


def random_texts(tokenizer: Tokenizer) -> Iterator[TextSample]:
    tokens = np.setdiff1d(np.arange(tokenizer.vocab_size), list(tokenizer.names))
    random = np.random.default_rng(0)
    for length in range(1, N_TEXTS + 1):
        text = "".join(map(tokenizer.text, random.choice(tokens, length).tolist()))
        yield TextSample(text.strip(" "))  # words begin with a space


# Training

N_STEPS, CHECKPOINT_EVERY, KILLED_AT = 4, 2, 3
BATCH_TOKENS = 256
MAX_PARAMETERS = 50_000_000  # that are trained for this check
MAX_COUNTED = 20_000_000  # tokens to which a model is fitted again
VARYING = ("seconds", "read_per_second", "memory_bytes")  # what differs between equal runs


class Killed(Exception):
    """The simulated end of a process."""


class Killer(Reporter):
    """A reporter that ends training in the middle of a step, as a kill would, saving nothing."""

    def show(self, status: Status) -> None:
        if status.done == KILLED_AT:
            raise Killed


def resume_bit_equality(fixture: Fixture) -> Finding | None:
    """Training that is killed and resumed gives the bits of training that is not; a model that is
    fitted at once gives the same bits when it is fitted again.
    """
    if not has_data(fixture.run):
        return None
    return REPEAT[fixture.model.loop](fixture)


def fit_again(fixture: Fixture) -> Finding:
    """Fit twice: both results are equal, and equal to the run's if all of its data was used."""
    model, corpus = fixture.model, reopen(fixture.run)
    shard = truncate_shard(corpus.train, MAX_COUNTED)
    tables = []
    for _ in range(2):
        refit = type(model)(model.vocab_size, model.config)
        refit.fit(shard, corpus.valid, lambda line: None)
        tables.append(weights(refit))
    complete = shard.tokens == corpus.train.tokens
    if complete:
        tables.append(weights(model))
    for table in tables[1:]:
        for name, tensor in tables[0].items():
            if name not in table or not torch.equal(tensor, table[name]):
                return False, f"{name} differs when {shard.tokens:,} tokens are fitted again"
    run = ", equal to the run's" if complete else ""
    return True, f"fitting {shard.tokens:,} tokens twice gives the same table{run}"


def resume_killed(fixture: Fixture) -> Finding | None:
    """Train a few steps without a break, and killed and resumed."""
    run = fixture.run
    if not (run / RECIPE).exists():
        return None
    if fixture.n_parameters > MAX_PARAMETERS:
        size = f"{fixture.n_parameters:,} parameters"
        return True, f"does not apply: {size} are too many to train here ({MAX_PARAMETERS:,})"
    recipe = build(read(run / RECIPE))
    corpus = replace(reopen(run), valid=None)
    with TemporaryDirectory() as folder, torch.enable_grad():
        straight, stopped = Path(folder) / "straight", Path(folder) / "stopped"
        train(make_loop(recipe, corpus, straight, run))
        with contextlib.suppress(Killed):
            train(make_loop(recipe, corpus, stopped, run, Killer(quiet=True)))
        # Other initial weights show what a checkpoint fails to restore.
        resumed = make_loop(recipe, corpus, stopped, run, seed_offset=1)
        if not resumed.resume():
            return False, f"no checkpoint was left after step {CHECKPOINT_EVERY}"
        step = resumed.progress.step
        train(resumed)
        return compare_runs(straight, stopped, step)


REPEAT = {
    "count": fit_again,
    "solve": fit_again,
    "gradient": resume_killed,
    "em": resume_killed,
    "word2vec": resume_killed,
}


def train(loop: Loop) -> None:
    """Train to the end; an interrupt, on which training saves and stops, ends verifying."""
    if loop.run() == "interrupted":
        raise KeyboardInterrupt


def make_loop(
    recipe: Recipe,
    corpus: Corpus,
    folder: Path,
    run: Path,
    reporter: Reporter | None = None,
    *,
    seed_offset: int = 0,
) -> Loop:
    """Return the training of a run, short and small, on the CPU."""
    settings = {
        "steps": N_STEPS,
        "batch_tokens": min(BATCH_TOKENS, recipe.train.batch_tokens),
        "patience": 0,
        "eval_every": N_STEPS,
        "checkpoint_every": CHECKPOINT_EVERY,
        "device": "cpu",
        "precision": "fp64" if recipe.train.precision == "fp64" else "fp32",
        "compile": "off",
    }
    folder.mkdir(exist_ok=True)
    torch.manual_seed(seed_of(recipe.train.seed) + seed_offset)
    path = run / FORBIDDEN
    forbidden = ForbiddenTransitions.load(path) if path.exists() else None
    recipe, reporter = recipe.replace(train=settings), reporter or Reporter(quiet=True)
    return LOOPS[recipe.family.loop](recipe, corpus, folder, reporter, forbidden=forbidden)


def gradient_loop(
    recipe: Recipe, corpus: Corpus, folder: Path, reporter: Reporter, **options: Any
) -> Loop:
    model = recipe.family(corpus.tokenizer.vocab_size, fit_config(recipe.model.config, corpus))
    model.prepare(corpus.train)
    return Trainer(model, corpus, recipe, folder, reporter, **options)


def em_loop(recipe: Recipe, corpus: Corpus, *rest: Any, **options: Any) -> Loop:
    """Return the loop of expectation maximization, of which a step reads all data, over a part."""
    part = truncate_shard(corpus.train, N_STEPS * BATCH_TOKENS)
    return EMLoop(recipe, replace(corpus, train=part), *rest, **options)


LOOPS: dict[str, Callable[..., Loop]] = {
    "gradient": gradient_loop,
    "em": em_loop,
    "word2vec": Word2VecLoop,
}


def compare_runs(straight: Path, stopped: Path, from_step: int) -> Finding:
    """Compare the last checkpoints byte by byte, and the metrics but for timings."""
    total = 0
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (checkpoint.steps(folder)[-1] / name for folder in (straight, stopped))
        if checkpoint.checksum(one) != checkpoint.checksum(other):
            return False, f"resumed from step {from_step}, {different_tensor(one, other)} differs"
        total += one.stat().st_size
    if logged_events(straight) != logged_events(stopped):
        return False, f"resumed from step {from_step}, {METRICS} differs beyond timings"
    detail = f"{N_STEPS} steps straight = killed in step {KILLED_AT}, resumed from step {from_step}"
    return True, f"{detail}: {total:,} bytes of weights and optimizer are equal"


def different_tensor(one: Path, other: Path) -> str:
    left, right = read_tensors(one), read_tensors(other)
    for name in sorted(left.keys() | right.keys()):
        if name not in left or name not in right or not torch.equal(left[name], right[name]):
            return name
    return one.name


def logged_events(folder: Path) -> list[dict[str, object]]:
    events = read_lines(folder / METRICS, Event)
    return [{k: v for k, v in event.items() if k not in VARYING} for event in events]
