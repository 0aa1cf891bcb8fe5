"""The library as functions: train a model, load a run, ask it things. The command line is a thin skin over this."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from regard.data.corpus import Corpus, prepare, reopen
from regard.data.shards import Shard
from regard.decode import Beam, Forbidden, Generated, Greedy, Sample, Strategy, generate
from regard.errors import UsageError, UserError
from regard.evaluate.report import Figure, Measured, figures, measure
from regard.layers.tap import Tap
from regard.models.counts import CountingModel
from regard.models.language_model import LanguageModel
from regard.recipe import Recipe, build, override, read, to_toml
from regard.registry import family
from regard.run import (
    CONFIG,
    FACTS,
    RECIPE,
    TOKENIZER,
    WEIGHTS,
    Metrics,
    load_model,
    open_run,
    read_json,
    weights,
    write_config,
    write_json,
    write_tensors,
    write_text,
)
from regard.tokens import Tokenizer
from regard.tokens import load as load_tokenizer
from regard.train import checkpoint
from regard.train.choose import choose
from regard.train.loop import Trainer, calibrate, facts, seed_of
from regard.train.precision import settings
from regard.train.progress import Reporter

FORBIDDEN = "forbidden.safetensors"


@dataclass(frozen=True)
class Trained:
    """What training left behind: the run folder, how it ended, and the figures of each held-out side."""

    run: Path
    outcome: str  # done, early or interrupted
    steps: int
    seconds: float
    parameters: int
    figures: dict[str, dict[str, Figure]]  # side -> metric -> figure

    def to_json(self) -> dict[str, Any]:
        """The document `regard train --json` prints."""
        return {
            "run": str(self.run),
            "outcome": self.outcome,
            "steps": self.steps,
            "train_seconds": round(self.seconds, 3),
            "parameters": self.parameters,
            "metrics": {
                side: {name: figure.to_json() for name, figure in found.items()}
                for side, found in self.figures.items()
            },
        }


def plan(source: Sequence[str | Path], *, assignments: Sequence[str] = (), **tables: Mapping[str, Any]) -> tuple[Recipe, list[str]]:
    """A complete recipe from a TOML file or data files, overrides applied, open choices made; and what was chosen."""
    paths = [Path(p) for p in source]
    values: dict[str, Any] = {}
    if len(paths) == 1 and paths[0].suffix == ".toml":
        values = read(paths[0])
    else:
        values = {"data": {"train": [str(p.resolve()) for p in paths]}}
    for section, keys in tables.items():
        given = {k: v for k, v in keys.items() if v not in (None, (), [])}
        values[section] = {**values.get(section, {}), **given}
    values = override(values, assignments)
    build(values)  # wrong keys are told before any file is read
    chosen, lines = choose(values)
    return build(chosen), lines


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    began: float | None = None,
) -> Trained:
    """Train as the recipe says into the run folder `out`; with `resume`, go on where it stopped.

    `began` (time.monotonic) is when the clock of train.minutes started; now, if not given.
    """
    began = time.monotonic() if began is None else began
    reporter = reporter or Reporter(quiet=True)
    run = Path(out)
    new = open_folder(run, resume, reporter)
    if new:
        write_text(run / RECIPE, to_toml(recipe))
    elif (run / RECIPE).exists():
        recipe = build(read(run / RECIPE))
    corpus = corpus_of(recipe, run, reporter)
    torch.manual_seed(seed_of(recipe.train.seed))
    cls = family(recipe.model.name)
    forbidden = forbidden_of(recipe, corpus, run)
    model: LanguageModel = cls(corpus.tokenizer.vocab_size, recipe.model.config)
    write_config(run, recipe.model.name, model)
    if isinstance(model, CountingModel):
        outcome, extra = count(model, corpus, run)
    else:
        with settings(recipe.train, torch.device("cpu")):
            outcome, extra = descend(model, corpus, recipe, run, reporter, forbidden, began, new)
    if outcome == "interrupted":
        return Trained(run, outcome, extra["steps"], extra["train_seconds"], extra["parameters"], {})
    return finish(run, recipe, corpus, outcome, extra, forbidden)


def open_folder(run: Path, resume: bool, reporter: Reporter) -> bool:
    """Create the run folder, or accept one to resume; True if training starts from nothing."""
    started = (run / RECIPE).exists()
    if run.exists() and not run.is_dir():
        raise UserError(f"--out {run} is a file")
    if run.exists() and any(run.iterdir()) and not resume:
        hint = "add --resume to go on, or choose another --out" if started else "choose another --out"
        raise UserError(f"{run} exists and is not empty: {hint}")
    if resume and not checkpoint.steps(run):
        reporter.say(f"no checkpoint in {run}: starting from the beginning")
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {run}: {error.strerror}") from None
    return not (resume and started)


def corpus_of(recipe: Recipe, run: Path, reporter: Reporter) -> Corpus:
    """The tokenised data, from RUN/data where it is whole; says what was left out."""
    corpus = prepare(recipe.data, recipe.tokens, run, reporter.say)
    told = corpus.facts
    if told["skipped"]:
        reporter.warn(f"{told['skipped']:,} damaged records left out; first: {told['problems'][0]}")
    for side, leak in told["leaks"].items():
        if leak["records"]:
            reporter.warn(f"{leak['records']:,} {side} records also occur in train, e.g. {leak['examples'][0]!r}")
    for side, held in told["sides"].items():
        if held["unknown"]:
            reporter.warn(f"{held['unknown']:,} symbols of {side} are not in the vocabulary and count as <unk>")
    return corpus


def forbidden_of(recipe: Recipe, corpus: Corpus, run: Path) -> Forbidden | None:
    """The forbidden transitions of a recipe, saved in the run; a training record that breaks them is an error."""
    asked, tokenizer, shard = recipe.train.forbid, corpus.tokenizer, corpus.train
    if not asked:
        return None
    if asked == "unseen":
        found = Forbidden.unseen([shard.ids], tokenizer.vocab_size, start=tokenizer.start, end=tokenizer.end)
    else:
        found = Forbidden.from_file(asked, tokenizer)
        broken = found.violations(shard.ids, shard.offsets)
        if len(broken):
            first = tokenizer.decode(shard.record(int(broken[0]))[:60])
            raise UserError(
                f"{asked}: {len(broken):,} training records contain a forbidden transition, "
                f"the first is record {int(broken[0])}: {first!r}"
            )
    found.save(run / FORBIDDEN)
    return found


def count(model: CountingModel, corpus: Corpus, run: Path) -> tuple[str, dict[str, Any]]:
    """Fit a model that counts."""
    began = time.monotonic()
    shard, tokenizer = corpus.train, corpus.tokenizer
    model.count(pairs(shard, tokenizer))
    seconds = time.monotonic() - began
    write_tensors(run / WEIGHTS, weights(model))
    metrics = Metrics(run)
    metrics.log("train", step=1, symbols=shard.symbols, seconds=seconds)
    metrics.close()
    return "done", {
        "parameters": sum(t.numel() for t in model.state_dict().values()),
        "steps": 1,
        "train_seconds": round(seconds, 3),
        "symbols_per_second": round(shard.symbols / max(seconds, 1e-9), 1),
        "device": "cpu",
    }


def pairs(shard: Shard, tokenizer: Tokenizer, size: int = 1 << 22) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All (previous, next) ids of a shard, a chunk at a time, none across the border of two records."""
    borders = np.asarray(shard.offsets[1:-1])
    for first in range(0, shard.tokens - 1, size):
        ids = np.asarray(shard.ids[first : first + size + 1])
        inside = np.ones(len(ids) - 1, dtype=bool)
        low, high = np.searchsorted(borders, [first + 1, first + len(ids)])
        inside[borders[low:high] - first - 1] = False
        yield ids[:-1][inside], ids[1:][inside]


def descend(
    model: LanguageModel,
    corpus: Corpus,
    recipe: Recipe,
    run: Path,
    reporter: Reporter,
    forbidden: Forbidden | None,
    began: float,
    new: bool,
) -> tuple[str, dict[str, Any]]:
    """Fit a model by gradients, from nothing or from its newest checkpoint."""

    def trainer(recipe: Recipe) -> Trainer:
        torch.manual_seed(seed_of(recipe.train.seed))
        fresh = type(model)(model.vocab_size, recipe.model.config)
        return Trainer(fresh, corpus, recipe, run, reporter, forbidden=forbidden)

    if not recipe.train.steps:
        budget = recipe.train.minutes * 60 - (time.monotonic() - began)
        steps = calibrate(trainer(recipe), max(1.0, budget * 0.95))
        recipe = recipe.replace(train={"steps": steps})
        write_text(run / RECIPE, to_toml(recipe))
    worker = trainer(recipe)
    if worker.loader.windowed and recipe.data.strict:
        raise UserError(
            f"{worker.loader.windowed:,} records are longer than model.max_len = {recipe.model.config.max_len} "
            "and data.strict is set; raise max_len or drop strict to have them cut"
        )
    resumed = not new and worker.resume()
    size = sum(p.numel() for p in worker.model.parameters())
    loader = worker.loader
    cut = f", {loader.windowed:,} long records cut" if loader.windowed and not loader.running else ""
    reporter.say(
        f"training {size:,} parameters for {worker.steps:,} steps of about {recipe.train.batch_tokens:,} tokens "
        f"({worker.steps / loader.steps_per_epoch:.1f} epochs, padding {loader.padding:.1%}{cut}) on {worker.device}"
        + (f", from step {worker.progress.step:,}" if resumed else "")
    )
    outcome = worker.run()
    return outcome, facts(worker)


def finish(
    run: Path,
    recipe: Recipe,
    corpus: Corpus,
    outcome: str,
    extra: dict[str, Any],
    forbidden: Forbidden | None,
) -> Trained:
    """Measure the best model on what was held out and write regard.json and README.md."""
    model = load_model(run)
    found: dict[str, dict[str, Figure]] = {}
    for side in ("valid", "test"):
        shard = corpus.side(side)
        if shard is not None:
            found[side] = figures(measure(model, shard, corpus.tokenizer, constrain=forbidden))
    document = {
        "regard": regard.__version__,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seed": recipe.train.seed,
        "outcome": outcome,
        "data": corpus.facts,
        **extra,
        "metrics": {
            side: {name: figure.to_json() for name, figure in figs.items()} for side, figs in found.items()
        },
    }
    write_json(run / FACTS, document)
    result = Trained(run, outcome, extra["steps"], extra["train_seconds"], extra["parameters"], found)
    write_text(run / "README.md", model_card(recipe, result))
    return result


def model_card(recipe: Recipe, result: Trained) -> str:
    """A short README for the run folder, from its own figures."""
    rows = [
        f"| {side} | {figs['nats_per_symbol']} | {figs['bits_per_symbol']} |"
        for side, figs in result.figures.items()
    ]
    table = ["| side | nats per symbol | bits per symbol |", "|---|---|---|", *rows] if rows else []
    return "\n".join(
        [
            f"# {recipe.model.name}, trained with regard",
            "",
            f"{result.parameters:,} parameters, {recipe.tokens.kind} tokens, {result.steps:,} steps, "
            f"{result.seconds:,.0f} seconds of training. Intervals are 95%.",
            "",
            *table,
            "",
            "`recipe.toml` says how it was made; `regard generate .`, `regard evaluate .`, `regard look . TEXT` and",
            "`regard verify .` use it. `data/` and `checkpoints/` are only needed to resume training.",
            "",
        ]
    )


class Predictor:
    """A trained model and its tokenizer, ready to generate, score and explain; what `load` returns."""

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, run: Path, forbidden: Forbidden | None) -> None:
        self.model, self.tokenizer, self.run, self.forbidden = model, tokenizer, run, forbidden

    @property
    def text(self) -> bool:
        """Was it trained on running text rather than on records?"""
        path = self.run / FACTS
        return path.exists() and read_json(path).get("data", {}).get("format") == "text"

    def prompt_ids(self, prompt: str) -> list[int]:
        """`<S>` and the ids of a prompt; running text is entered in its middle, so it goes without `<S>`."""
        ids = [int(i) for i in self.tokenizer.encode(prompt)]
        return ids if self.text and ids else [self.tokenizer.start, *ids]

    def generate(
        self,
        prompts: Sequence[str] = ("",),
        strategy: Strategy | None = None,
        *,
        max_new: int = 200,
        forbidden: Forbidden | None = None,
        on_token: Callable[[int, int], None] | None = None,
        batch_size: int = 64,
    ) -> list[list[Generated]]:
        """Continue each prompt; samples by default. `<pad>`, `<S>` and `<unk>` are never produced."""
        tokenizer = self.tokenizer
        rules = [r for r in (self.forbidden, forbidden) if r is not None]
        constraint = rules[0] | rules[1] if len(rules) == 2 else rules[0] if rules else None
        banned = {tokenizer.pad, tokenizer.start, tokenizer.unk} - {tokenizer.end}
        limited = getattr(self.model.config, "positions", None) is not None
        return generate(
            self.model,
            [self.prompt_ids(p) for p in prompts],
            strategy or Sample(),
            max_new=max_new,
            end=tokenizer.end,
            pad=tokenizer.pad,
            banned=sorted(banned),
            constraint=constraint,
            context=self.model.config.max_len if limited else None,
            on_token=on_token,
            batch_size=batch_size,
        )

    def score(self, texts: Sequence[str]) -> list[tuple[list[str], list[float]]]:
        """For each text its tokens (without `<S>`, with `<E>`) and their natural log-probabilities."""
        from regard.train.validation import log_probs

        shard = shard_of(texts, self.tokenizer)
        values, _ = log_probs(self.model, shard, self.tokenizer, constrain=self.forbidden)
        results = []
        for i in range(shard.records):
            span = slice(int(shard.offsets[i]) + 1, int(shard.offsets[i + 1]))
            tokens = [self.tokenizer.text(int(t)) for t in shard.ids[span]]
            results.append((tokens, values[span].tolist()))
        return results

    def measure(self, shard: Shard, stride: int = 0) -> Measured:
        """What this model costs on a shard, by unit."""
        return measure(self.model, shard, self.tokenizer, stride=stride, constrain=self.forbidden)

    @torch.inference_mode()
    def activations(self, text: str, patterns: Iterable[str]) -> dict[str, torch.Tensor]:
        """The named activations (`*.attention.weights`, `logits`) while the model reads `<S> text`."""
        tap = Tap(patterns)
        self.model.logits(torch.tensor([self.prompt_ids(text)]), tap=tap)
        return tap.found


def shard_of(texts: Sequence[str], tokenizer: Tokenizer, *, kind: str = "records") -> Shard:
    """Texts as a shard in memory: records, or documents of running text."""
    ids, lengths = tokenizer.encode_batch(list(texts))
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


def load(run: str | Path) -> Predictor:
    """The best model of a run folder, with its tokenizer and forbidden transitions."""
    folder = open_run(run)
    model = load_model(folder)
    tokenizer = load_tokenizer(folder / TOKENIZER)
    if tokenizer.vocab_size != model.vocab_size:
        raise UserError(
            f"{folder}: {TOKENIZER} has {tokenizer.vocab_size} tokens, {CONFIG} says {model.vocab_size}"
        )
    path = folder / FORBIDDEN
    return Predictor(model, tokenizer, folder, Forbidden.load(path) if path.exists() else None)


def strategy_of(
    name: str, *, temperature: float, top_k: int, top_p: float, seed: int, beams: int, length_penalty: float, n_best: int
) -> Strategy:
    """The decoding strategy of that name."""
    try:
        if name == "greedy":
            return Greedy()
        if name == "sample":
            return Sample(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        if name == "beam":
            return Beam(width=beams, length_penalty=length_penalty, n_best=n_best)
    except ValueError as error:
        raise UsageError(str(error)) from None
    raise UsageError(f"unknown strategy {name!r}; choose one of greedy, sample, beam")


@dataclass(frozen=True)
class Continuation:
    """One generated sequence as text."""

    input: str
    text: str  # prompt and continuation
    tokens: list[str]
    score: float
    finished: bool
    dead_end: bool

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard generate --json`."""
        return {
            "input": self.input,
            "text": self.text,
            "tokens": self.tokens,
            "score": self.score if np.isfinite(self.score) else None,
            "finished": self.finished,
        }


def continuations(
    predictor: Predictor,
    prompts: Sequence[str],
    strategy: Strategy,
    *,
    copies: int = 1,
    max_new: int = 200,
    forbidden: Forbidden | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> list[Continuation]:
    """Each prompt `copies` times, continued, as text."""
    repeated = [p for p in prompts for _ in range(copies)]
    results = predictor.generate(repeated, strategy, max_new=max_new, forbidden=forbidden, on_token=on_token)
    tokenizer = predictor.tokenizer
    return [
        Continuation(
            input=prompt,
            text=prompt + tokenizer.decode(one.ids),
            tokens=[tokenizer.text(i) for i in one.ids],
            score=one.score,
            finished=one.finished,
            dead_end=one.dead_end,
        )
        for prompt, found in zip(repeated, results, strict=True)
        for one in found
    ]


@dataclass(frozen=True)
class ScoredRecord:
    """A record and what each of its symbols cost."""

    text: str
    tokens: list[str]
    log_probs: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the whole record in nats."""
        return float(sum(self.log_probs))

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard score --json`; what is impossible is null."""
        finite = [x if np.isfinite(x) else None for x in self.log_probs]
        total = None if None in finite else self.total
        return {"tokens": self.tokens, "log_probs": finite, "total": total}


def scored_records(predictor: Predictor, file: Path, *, format: str, column: str) -> Iterator[ScoredRecord]:
    """Score a file's records (or standard input's lines, `-`) in order, a chunk at a time."""
    import sys

    from regard.data.readers import Source

    if str(file) == "-":
        chunks: Iterable[list[str]] = ([line.rstrip("\r\n")] for line in sys.stdin)
    else:
        chunks = (chunk.texts for chunk in Source([file], format=format, column=column).records())
    for texts in chunks:
        for first in range(0, len(texts), 1024):
            part = texts[first : first + 1024]
            for text, (tokens, values) in zip(part, predictor.score(part), strict=True):
                yield ScoredRecord(text, tokens, values)


def held_out(run: Path, predictor: Predictor) -> tuple[str, Shard]:
    """The part of the run's own data to report on: test where there is one, else validation."""
    if not (Path(run) / "data" / "manifest.json").exists():
        raise UserError(f"{run} holds no data of its own (imported, or data/ deleted): name a file to measure on")
    corpus = reopen(Path(run))
    side = "test" if corpus.test is not None else "valid"
    shard = corpus.side(side)
    if shard is None:
        raise UserError(f"nothing was held out when {run} was trained: name a file to measure on")
    if predictor.tokenizer.vocab_size != shard.vocab_size:
        raise UserError("the two runs have different vocabularies: name a file to measure both on")
    return side, shard


def shard_from(files: Sequence[Path], predictor: Predictor, *, format: str, column: str) -> Shard:
    """A user's files as a shard for this predictor."""
    from regard.data.readers import Source

    source = Source(list(files), format=format, column=column)
    if source.format == "text":
        texts = ["".join(document.text()) for document in source.documents()]
        return shard_of(texts, predictor.tokenizer, kind="text")
    return shard_of([t for chunk in source.records() for t in chunk.texts], predictor.tokenizer)
