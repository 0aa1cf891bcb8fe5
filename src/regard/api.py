"""The library as functions: plan a recipe, train it, load a run, ask it things.

The command line is a thin skin over this.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from regard.data.corpus import prepare
from regard.data.shards import Shard
from regard.decode import Forbidden, Generated, Sample, Strategy, Workspace, generate
from regard.errors import UsageError, UserError
from regard.evaluate import material
from regard.evaluate.board import Board
from regard.evaluate.comparison import Comparison
from regard.evaluate.conclusion import Trained, conclude
from regard.evaluate.material import shard_of
from regard.evaluate.report import Measured, measure
from regard.evaluate.rungs import FRACTIONS, climb, compared, rung
from regard.evaluate.scoring import score
from regard.layers.int8 import to_int8
from regard.layers.tap import Tap
from regard.look.comparison import Strip, comparison_page
from regard.models.language_model import LanguageModel
from regard.models.sizing import parameters, sized
from regard.recipe import Recipe, build, override, read
from regard.registry import FAMILIES, family
from regard.run import (
    CONFIG,
    FACTS,
    FORBIDDEN,
    TOKENIZER,
    load_model,
    open_run,
    read_json,
    write_json,
    write_text,
)
from regard.tokens import Pretrained, Tokenizer
from regard.tokens import load as load_tokenizer
from regard.train.choose import choose
from regard.train.distributed import World, joined
from regard.train.progress import Reporter
from regard.train.session import Session

__all__ = [
    "Compared",
    "Continuation",
    "Predictor",
    "Trained",
    "compare",
    "continuations",
    "held_out",
    "load",
    "plan",
    "shard_of",
    "train",
]


def plan(
    source: Sequence[str | Path],
    *,
    assignments: Sequence[str] = (),
    **tables: Mapping[str, Any],
) -> tuple[Recipe, list[str]]:
    """A complete recipe from a TOML file or data files, and two lines that say what and why.

    `tables` (data=, tokens=, model=, train=) and then `assignments` ("train.lr=3e-4") override it.
    """
    paths = [Path(p) for p in source]
    if any(path.suffix == ".toml" for path in paths):
        if len(paths) > 1:
            raise UsageError(
                "a recipe names its own data: give either one recipe.toml or data files"
            )
        try:
            values = read(paths[0])
        except OSError as error:
            raise UserError(f"cannot read {paths[0]}: {error.strerror}") from None
    else:
        values = {"data": {"train": [str(p.resolve()) for p in paths]}}
    build(values)  # wrong keys are told before any file is read
    for section, keys in tables.items():
        given = {k: v for k, v in keys.items() if v not in (None, (), [])}
        values[section] = {**values.get(section, {}), **given}
    values = absolute(override(values, assignments))
    build(values)
    chosen, lines = choose(values)
    return build(chosen), lines


def absolute(values: dict[str, Any]) -> dict[str, Any]:
    """The tables with every path made absolute, so that a run can be resumed from anywhere."""
    data, train = values.get("data", {}), values.get("train", {})
    for key in ("train", "valid", "test"):
        paths = data.get(key, [])
        paths = [paths] if isinstance(paths, str) else paths
        if isinstance(paths, list | tuple):
            data[key] = [str(Path(str(p)).resolve()) for p in paths]
    forbid = train.get("forbid", "")
    if isinstance(forbid, str) and forbid not in ("", "unseen"):
        train["forbid"] = str(Path(forbid).resolve())
    return values


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    began: float | None = None,
    world: World | None = None,
) -> Trained:
    """Train as the recipe says into the run folder `out`; with `resume`, go on where it stopped.

    `began` (time.monotonic) is when the clock of train.minutes started; now, if not given. `world`
    is the processes that train together, as `joined` gives them; those that torchrun started, if
    not given. The first alone measures the end: the figures of the others are empty.
    """
    began = time.monotonic() if began is None else began
    if world is None:
        with joined() as world:
            return train(recipe, out, resume=resume, reporter=reporter, began=began, world=world)
    told = world.reporter(reporter or Reporter(quiet=True))
    fitted = Session(Path(out), resume, told, began, world).fit(recipe)
    return world.together(lambda: conclude(Path(out), fitted, measures=world.first))


def load(run: str | Path, *, int8: bool = False) -> Predictor:
    """The best model of a run folder, with its tokenizer and forbidden transitions.

    With `int8`, its linear layers hold int8 weights: faster on a CPU, and not quite the same.
    """
    folder = open_run(run)
    model = load_model(folder)
    if int8:
        to_int8(model)
    tokenizer = load_tokenizer(folder / TOKENIZER)
    rounded_up = isinstance(tokenizer, Pretrained) and tokenizer.vocab_size < model.vocab_size
    if tokenizer.vocab_size != model.vocab_size and not rounded_up:  # published models round up
        raise UserError(
            f"{folder}: {TOKENIZER} has {tokenizer.vocab_size} tokens, "
            f"{CONFIG} says {model.vocab_size}"
        )
    path = folder / FORBIDDEN
    forbidden = Forbidden.load(path) if path.exists() else None
    if forbidden is not None and forbidden.vocab_size != model.vocab_size:
        raise UserError(f"{path} is for {forbidden.vocab_size} tokens, not {model.vocab_size}")
    return Predictor(model, tokenizer, folder, forbidden)


class Predictor:
    """What `load` returns: a trained model and its tokenizer, to generate, score and explain."""

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, run: Path, forbidden: Forbidden | None
    ) -> None:
        self.model, self.tokenizer, self.run, self.forbidden = model, tokenizer, run, forbidden
        self.workspace = Workspace(model)  # one for all that it generates

    @cached_property
    def text(self) -> bool:
        """Was it trained on running text rather than on records?"""
        path = self.run / FACTS
        facts = read_json(path) if path.exists() else {}
        data = facts.get("data", {}) if isinstance(facts, dict) else {}
        return isinstance(data, dict) and data.get("format") == "text"

    def prompt_ids(self, prompt: str) -> list[int]:
        """`<S>` and the ids of a prompt; running text is entered in its middle: no `<S>`."""
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
        """Continue each prompt; samples by default. Never makes `<pad>`, `<S>` or `<unk>`."""
        tokenizer = self.tokenizer
        rules = [r for r in (self.forbidden, forbidden) if r is not None]
        constraint = rules[0] | rules[1] if len(rules) == 2 else rules[0] if rules else None
        limited = getattr(self.model.config, "positions", None) is not None
        return generate(
            self.model,
            [self.prompt_ids(p) for p in prompts],
            strategy or Sample(),
            max_new=max_new,
            end=tokenizer.end,
            pad=tokenizer.pad,
            banned=tokenizer.never_produced(self.model.vocab_size),
            constraint=constraint,
            context=self.model.config.max_len if limited else None,
            on_token=on_token,
            batch_size=batch_size,
            workspace=self.workspace,
        )

    def score(self, texts: Sequence[str]) -> list[tuple[list[str], list[float]]]:
        """Each text's tokens (without `<S>`, with `<E>`) and their natural log-probabilities."""
        found = score(self.model, self.tokenizer, texts, constrain=self.forbidden)
        return [(record.tokens, record.log_probs) for record in found]

    def measure(self, shard: Shard, stride: int = 0) -> Measured:
        """What this model costs on a shard, by unit."""
        return measure(self.model, shard, self.tokenizer, stride=stride, constrain=self.forbidden)

    @torch.inference_mode()
    def activations(self, text: str, patterns: Iterable[str]) -> dict[str, torch.Tensor]:
        """The named activations (`*.attention.weights`, `logits`) while the model reads a text."""
        tap = Tap(patterns)
        self.model.logits(torch.tensor([self.prompt_ids(text)]), tap=tap)
        return tap.found


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
            "score": self.score if abs(self.score) < float("inf") else None,
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
    found = predictor.generate(
        repeated, strategy, max_new=max_new, forbidden=forbidden, on_token=on_token
    )
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
        for prompt, several in zip(repeated, found, strict=True)
        for one in several
    ]


@dataclass(frozen=True)
class Compared:
    """What `compare` returns: the table, a text's surprise by model, and where all of it is."""

    comparison: Comparison
    strip: Strip | None
    folder: Path


def compare(
    source: Sequence[str | Path],
    *,
    models: Sequence[str] = (),
    minutes: float = 10.0,
    seeds: int = 1,
    scaling: bool = False,
    out: str | Path | None = None,
    assignments: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
) -> Compared:
    """Train every model on the same split, each in its own process, and put them in one table.

    Neural rows have as many parameters as the Transformer that suits the data, and share `minutes`.
    A folder that holds a part of it already is completed.
    """
    reporter = reporter or Reporter(quiet=True)
    unknown = [name for name in models if name not in FAMILIES]
    if unknown:
        family(unknown[0])  # says what is allowed
    folder = Path(out or Path("runs") / f"{Path(source[0]).stem}-compare")
    chosen, _ = plan(source, assignments=assignments, data=data or {})
    folder.mkdir(parents=True, exist_ok=True)
    corpus = prepare(chosen.data, chosen.tokens, folder, reporter.say)
    recipes = [
        plan(source, assignments=assignments, data=data or {}, model=told)[0]
        for told in as_large(chosen, models or list(FAMILIES), corpus.tokenizer.vocab_size)
    ]
    rungs = [rung(recipe, folder, seed) for seed in range(seeds) for recipe in recipes]
    if scaling:
        rungs += [rung(recipe, folder, 0, part) for part in FRACTIONS for recipe in recipes]
    with Board(reporter, rungs) as board:
        climb(rungs, minutes, folder, board)
    comparison = compared(rungs, folder)
    strip = surprise(comparison)
    page = comparison_page(comparison, title=f"{Path(source[0]).name} compared", strip=strip)
    page.write(folder / "compare.html")
    write_text(folder / "compare.md", comparison.to_markdown())
    write_json(folder / "compare.json", comparison.to_json())
    return Compared(comparison, strip, folder)


def as_large(chosen: Recipe, models: Sequence[str], vocab_size: int) -> list[dict[str, Any]]:
    """The model tables of a comparison: neural ones as large as the recipe's Transformer, to a
    tenth, and with its dropout.
    """
    config, found = chosen.model.config, []
    size = parameters("transformer", vocab_size, config)
    for name in models:
        told: dict[str, Any] = {"name": name}
        fields = family(name).Config.__dataclass_fields__
        if "d_model" in fields and name != "transformer":
            depth = {"n_layers": config.n_layers, "max_len": config.max_len}
            told |= dataclasses.asdict(sized(name, size, vocab_size, **depth))
            told |= {"dropout": config.dropout} if "dropout" in fields else {}
        found.append(told)
    return found


def surprise(comparison: Comparison, most: int = 60) -> Strip | None:
    """The bits that each model's first run gives the symbols of one held-out text."""
    found: list[tuple[str, list[float]]] = []
    tokens: list[str] = []
    first = load(comparison.rows[0].runs[0])
    _, shard = held_out(first.run, first)
    record = [int(i) for i in shard.record(0)]
    text = first.tokenizer.decode(record[1 : 1 + most] if first.text else record[1:-1])
    for row in comparison.rows:
        tokens, logs = load(row.runs[0]).score([text])[0]
        found.append((row.model, [-x / math.log(2) for x in logs[:most]]))
    return (tokens[:most], found) if len({len(bits) for _, bits in found}) == 1 else None


def held_out(run: str | Path, predictor: Predictor) -> tuple[str, Shard]:
    """The part of a run's data to report on and its name: test, or else valid."""
    return material.held_out(Path(run), predictor.tokenizer)
