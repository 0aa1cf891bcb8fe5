"""Language modelling: predict the next symbol of a text, a sequence or a molecule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import Roles
from regard.errors import UsageError, UserError
from regard.registry import MODELS
from regard.tasks import Card, GradientTask, LookRequest, Tables, loader_options

if TYPE_CHECKING:
    from torch import nn

    from regard.data.batching import TokenLoader
    from regard.data.corpus import Corpus
    from regard.data.shards import Shard
    from regard.data.text_files import FileSet
    from regard.evaluation import Metric
    from regard.evaluation.language_modeling import MeanLoss
    from regard.look.page import Page
    from regard.pipelines.generator import Generator
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.training.comparison_runs import RunResult
    from regard.training.trainer import Trainer, TrainingOutcome

SAMPLE_CHARACTERS = 4_000_000  # that are inspected
CHARACTERS_PER_TOKEN = 4  # of words and their pieces
N_STATES = 64  # of a hidden Markov model: more gain little on small files and cost their square
HELD_OUT_TOKENS = 128  # of held-out running text that a page shows


@dataclass(frozen=True, kw_only=True)
class LanguageModelingConfig:
    """Settings of language modelling."""

    name: str = "next"
    forbid: str = ""  # a file of forbidden transitions, or "unseen"


class LanguageModeling(GradientTask):
    """Predict the next token."""

    name = model_task = "next"
    purpose = "language modelling"
    Config: ClassVar[type] = LanguageModelingConfig
    roles = Roles(output=True)
    card = Card(
        verbs=(
            "generate {run}",
            "evaluate {run}",
            "look {run} TEXT",
            "score {run} FILE",
            "verify {run}",
        ),
        metrics=("bits_per_symbol",),
    )
    starts_from = ("next",)

    def defaults(self, tables: Tables) -> list[str]:
        from regard.data.column_kinds import recognize, text_sample
        from regard.data.report import suggest
        from regard.data.sources import open_texts
        from regard.recipe import DataRecipe, check, modality_name

        data: DataRecipe = check("data", DataRecipe, tables["data"])
        source = open_texts(data, modality_name(tables["output"]))
        lengths, characters = sample_characters(source)
        count = sum(lengths)
        total = estimate_characters(source, count, characters)
        tables["data"]["format"] = source.format
        table, why = tables["output"], "as asked"
        if table.get("tokenizer", "auto") == "auto":
            spaces = characters.get(" ", 0) / max(1, count)
            suggestion = suggest(total, len(characters), spaces)
            table["tokenizer"], why = suggestion.tokens, suggestion.why.partition(";")[0]
            kind = recognize(text_sample(source, data.input))
            if kind.decides(table.get("name")):
                table["tokenizer"], why = kind.tokenizer, kind.reason
        first = (
            f"data: {source.format} ({source.why}), about {total:,} characters of "
            f"{len(characters)} kinds → task next, {table['tokenizer']} ({why})"
        )
        longest = max(lengths, default=1) + 1
        return [first, size_model(tables, source.format == "text", total, longest)]

    def loader(self, model: Any, corpus: Corpus, recipe: Recipe, *, captured: bool) -> TokenLoader:
        from regard.data.batching import TokenLoader

        options = loader_options(model, corpus, recipe)
        return TokenLoader(corpus.train, corpus.tokenizer, **options)

    def objective(self, model: Any, corpus: Corpus, recipe: Recipe, constrain: Any) -> nn.Module:
        from regard.training.objectives import NextTokenObjective

        train = recipe.train
        return NextTokenObjective(
            model,
            label_smoothing=train.label_smoothing,
            r_drop=train.r_drop,
            constrain=constrain,
        )

    def validation_loss(
        self, trainer: Trainer, shard: Shard, stop: Callable[[], object]
    ) -> MeanLoss:
        return trainer.symbol_loss(shard, stop)

    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        from regard.evaluation.language_modeling import measure

        return measure(
            model,
            part,
            outcome.corpus.tokenizer,
            constrain=outcome.forbidden,
            progress=outcome.reporter.progress,
        ).metrics()

    def result(self, run: Run, facts: dict[str, Any], shared: Path) -> RunResult:
        from regard.evaluation.eval_data import held_out
        from regard.evaluation.language_modeling import measure
        from regard.tokenizers import load, load_sources
        from regard.training.comparison_runs import RunResult

        tokenizer = load(run / "tokenizer.json")
        split, shard = held_out(shared, tokenizer, load_sources(run.path, tokenizer))
        model = run.model()
        if facts.get("device", "cpu").startswith("cuda"):
            model = model.to(facts["device"])
        return RunResult(facts, split, measure(model, shard, tokenizer))

    def pipeline(self, run: Run, model: Any) -> Generator:
        from regard.pipelines import load_forbidden, load_run_tokenizer
        from regard.pipelines.generator import Generator

        tokenizer = load_run_tokenizer(run, "tokenizer.json", model.vocab_size)
        return Generator(model, tokenizer, run, load_forbidden(run, model.vocab_size))

    def page(self, run: Run, request: LookRequest) -> Page:
        from regard.look.corpus_views import add_corpus_views
        from regard.look.internals import log_unknown, quote, run_facts, truncate
        from regard.look.language_page import language_page
        from regard.look.vocabulary_view import add_vocabulary

        if request.target:
            raise UsageError(f"--target is for translators, and {run} predicts the next symbol")
        generator = self.pipeline(run, request.model(run))
        model, tokenizer = generator.model, generator.tokenizer
        ids, cut = truncate(choose_ids(generator, request), model.config.max_len)
        log_unknown(ids, tokenizer, request.log)
        facts = run_facts(run, model, tokenizer)
        if cut:
            request.log(cut)
        text = tokenizer.decode([i for i in ids if i != tokenizer.start])
        page = language_page(
            model,
            tokenizer,
            ids,
            title=f"How {run.name} reads {quote(text)}",
            facts=facts,
            warnings=[f"{cut[0].upper()}{cut[1:]}."] if cut else [],
            constrain=generator.forbidden,
            beams=request.beams or 4,
            continues=generator.text or bool(cut),
        )
        add_corpus_views(page, generator)
        add_vocabulary(tokenizer, page, text)
        return page


def choose_ids(generator: Generator, request: LookRequest) -> list[int]:
    """Return the ids of the given text or file, of a held-out record, or of a generated one."""
    from regard.look.internals import read_given

    text = read_given(
        request.text, running=generator.text, most=generator.model.config.max_len, log=request.log
    )
    if text:
        return generator.prompt_ids(text)
    try:
        split, shard = generator.held_out()
    except UserError:
        request.log(
            "no text given and no held-out data in the run: reading a text that the model generates"
        )
        ids = generator.generate(max_new=generator.model.config.max_len - 1)[0][0].ids
        return [generator.tokenizer.start, *(i for i in ids if i != generator.tokenizer.end)]
    record = [int(i) for i in shard.record(0)[:-1]]  # without <E>
    what = "the beginning" if generator.text else "the first record"
    request.log(f"no text given: reading {what} of the {split} split of the run")
    return record[1 : 1 + HELD_OUT_TOKENS] if generator.text else record


def sample_characters(source: FileSet) -> tuple[list[int], dict[str, int]]:
    """Return the lengths of the first records or stretches of text, and the count of each
    character.
    """
    lengths: list[int] = []
    counts: dict[str, int] = {}
    total = 0
    running = source.format == "text"
    for text in source.text() if running else (t for c in source.records() for t in c.texts):
        text = text[: SAMPLE_CHARACTERS - total]
        for character in set(text) if len(text) < 64 else sorted(set(text)):
            counts[character] = counts.get(character, 0) + text.count(character)
        lengths.append(len(text))
        total += len(text)
        if total >= SAMPLE_CHARACTERS:
            break
    return lengths, counts


def estimate_characters(source: FileSet, count: int, characters: dict[str, int]) -> int:
    """Return about how many characters there are: exact if all were counted, else by file size."""
    if count < SAMPLE_CHARACTERS:
        return count
    size = sum(len(c.encode("utf-8", "replace")) * n for c, n in characters.items())
    expansion = 3 if any(Path(f).suffix == ".gz" for f in source.files) else 1
    return max(count, int(source.size * expansion * count / size))


def size_model(tables: Tables, text: bool, total: int, longest: int) -> str:
    """Fill in depth, width, context and dropout; return the line that says so."""
    from regard.training.defaults import (
        LANGUAGE_MODELS,
        default_network,
        default_shape,
        fill_steps,
        hardware,
        has_gpu,
    )

    model, tokenizer = tables["model"], tables["output"]["tokenizer"]
    name = default_network(LANGUAGE_MODELS, tables)
    family = MODELS.get(name)
    fields = family.Config.__dataclass_fields__
    if "max_len" in fields and "max_len" not in model:
        most = 1024 if has_gpu() else 256
        longest = 4 * longest if tokenizer == "bytes" else longest  # at most four for a character
        model["max_len"] = most if text else max(16, min(most, -(-longest // 16) * 16))
    if "n_states" in fields:
        if "size" not in model:
            model.setdefault("n_states", N_STATES)
        size = f"of {model['n_states']} states" if "n_states" in model else "as asked"
        return f"model: {name} {size}, passes until nothing is gained"
    if "alpha" in fields:
        order = "as asked" if model.get("order") else "by held-out likelihood"
        alpha = "as asked" if model.get("alpha", -1) >= 0 else "by evidence"
        return f"model: {name}: counts, exactly; order {order}, strength of the priors {alpha}"
    if "d_model" not in fields:
        return f"model: {name}: counts, exactly; nothing to size"
    tokens = total / (CHARACTERS_PER_TOKEN if tokenizer in ("words", "bpe") else 1)
    shape = default_shape(LANGUAGE_MODELS, total, tokens, tables)
    shape = family.adapt_shape(shape, model["max_len"])
    given = any(key in model for key in ("size", "n_layers", "d_model"))
    if not given:
        model["n_layers"], model["d_model"] = shape.n_layers, shape.d_model
    model.setdefault("dropout", shape.dropout)
    fill_steps(tables)
    size = f"{shape.n_layers} × {shape.d_model}, sized for {total:,} characters and {hardware()}"
    size = "as asked" if given else size
    return f"model: {name} {size}, context {model['max_len']}, dropout {model['dropout']:g}"
