"""Sequence to sequence: predict a text from another text (translation) or an image (captioning)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import Roles
from regard.errors import UsageError, UserError
from regard.registry import MODALITIES
from regard.tasks import (
    Card,
    GradientTask,
    LookRequest,
    Tables,
    augmentation_module,
    loader_options,
)

if TYPE_CHECKING:
    from torch import nn

    from regard.data.batching import TokenLoader
    from regard.data.corpus import Corpus
    from regard.data.shards import Shard
    from regard.data.targets import TargetColumn
    from regard.evaluation import Metric
    from regard.evaluation.language_modeling import MeanLoss
    from regard.look.language_page import SourceTarget
    from regard.look.page import Page
    from regard.pipelines.translator import Translator
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.training.comparison_runs import RunResult
    from regard.training.trainer import Trainer, TrainingOutcome

MAX_COMPARED = 200  # sentences that each of several models translates, to choose one of them
MAX_TRANSLATED = 500  # sentences of a held-out split that are translated when training ends


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """Settings of sequence-to-sequence models."""

    name: str = "target"
    shared_vocab: bool = True  # one vocabulary for sources and targets
    max_ratio: float = 0.0  # tokens of the longer side for one of the other; 0 = no limit
    forbid: str = ""  # a file of forbidden transitions, or "unseen"

    def __post_init__(self) -> None:
        if self.max_ratio and not (self.max_ratio >= 1 and math.isfinite(self.max_ratio)):
            raise ValueError(f"max_ratio must be 0 (none) or at least 1, got {self.max_ratio}")


class Seq2Seq(GradientTask):
    """Predict a text from a source."""

    name = model_task = "target"
    purpose = "translation"
    shows_records = True
    Config: ClassVar[type] = Seq2SeqConfig
    roles = Roles(input=True, output=True)
    card = Card(
        verbs=(
            "translate {run} < FILE",
            "evaluate {run}",
            "look {run}",
            "score {run} FILE",
            "verify {run}",
        ),
        metrics=("bleu", "chrf", "exact", "bits_per_symbol"),
    )
    starts_from = ("target",)

    @classmethod
    def suggest(
        cls, columns: Sequence[TargetColumn], names: Sequence[str], *, texts: bool
    ) -> str | None:
        if len(columns) > 1 or not texts:
            return None
        (column,) = columns
        return (
            f"texts under {names[0]!r}, {len(column.different):,} different ones of "
            f"{column.filled:,}"
        )

    def defaults(self, tables: Tables) -> list[str]:
        from regard.data.sources import DataSource, recognize_modality
        from regard.recipe import DataRecipe, check, registered

        data = check("data", DataRecipe, tables["data"])
        name = tables["input"].get("name") or recognize_modality(data, self.roles)
        modality = MODALITIES[name](registered("input", MODALITIES, tables["input"], name))
        source = DataSource(data, self.roles, modality).train
        tables["input"]["name"] = name
        if modality.reads_text:
            tables["data"]["format"] = source.format
        lines: list[str] = modality.pair_defaults(tables, source)
        if "dropout" in tables["model"]:  # it learns by gradients
            train = tables["train"]
            train.setdefault("label_smoothing", 0.1)
            train.setdefault("average_last", 5)
            if "label smoothing" not in lines[-1]:
                lines[-1] += f", label smoothing {train['label_smoothing']:g}"
        return lines

    def loader(self, model: Any, corpus: Corpus, recipe: Recipe, *, captured: bool) -> TokenLoader:
        from regard.data.batching import TokenLoader

        options = loader_options(model, corpus, recipe)
        options |= {"few": captured, "max_ratio": self.config.max_ratio}
        return TokenLoader(corpus.train, corpus.tokenizer, **options)

    def objective(self, model: Any, corpus: Corpus, recipe: Recipe, constrain: Any) -> nn.Module:
        from regard.training.objectives import NextTokenObjective

        train = recipe.train
        return NextTokenObjective(
            model,
            label_smoothing=train.label_smoothing,
            r_drop=train.r_drop,
            constrain=constrain,
            augment=augmentation_module(model, recipe),
        )

    def validation_loss(
        self, trainer: Trainer, shard: Shard, stop: Callable[[], object]
    ) -> MeanLoss:
        return trainer.symbol_loss(shard, stop)

    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        """Translations take longer than all else: only those of the reported split are made, and
        fewer where they decide which of several models is kept.
        """
        from regard.evaluation.language_modeling import measure
        from regard.evaluation.translation import measure_translation
        from regard.pipelines.translator import Translator

        corpus = outcome.corpus
        if split != outcome.reported_split:
            losses = measure(model, part, corpus.tokenizer, constrain=outcome.forbidden)
            return losses.metrics()
        translator = Translator(
            model,
            corpus.tokenizer,
            corpus.source_tokenizer,
            forbidden=outcome.forbidden,
            data=corpus.facts,
        )
        until = math.inf
        if outcome.clock is not None:
            until = time.monotonic() + outcome.clock.left
        shard = corpus.split(split)
        assert shard is not None
        report = measure_translation(
            translator,
            shard,
            part=part,
            max_sentences=MAX_COMPARED if outcome.reported else MAX_TRANSLATED,
            deadline=until,
            lenient=True,
            progress=outcome.reporter.progress,
        )
        report.store(run.path, split)
        return report.metrics()

    def metadata(self, model: Any, corpus: Corpus) -> dict[str, Any]:
        """Return which attention head aligns words, for sources that are texts."""
        from regard.evaluation.translation import measure_head_alignment

        source = corpus.train.source
        if source is None or not source.cuttable:
            return {}
        alignment = measure_head_alignment(model, corpus.train, corpus.valid)
        return {"alignment": alignment.to_json()} if alignment is not None else {}

    def result(self, run: Run, facts: dict[str, Any], shared: Path) -> RunResult:
        from dataclasses import replace

        from regard.evaluation.translation import load_translations
        from regard.tasks.language_modeling import LanguageModeling

        sentences, seconds = load_translations(run.path)
        result = LanguageModeling().result(run, facts, shared)
        return replace(result, made=sentences, seconds=seconds)

    def pipeline(self, run: Run, model: Any) -> Translator:
        from regard.pipelines import load_forbidden, load_run_tokenizer
        from regard.pipelines.translator import Translator
        from regard.tokenizers import SOURCE_TOKENIZER, TOKENIZER

        tokenizer = load_run_tokenizer(run, TOKENIZER, model.vocab_size)
        size = getattr(model.config, "source_vocab", 0)
        source = load_run_tokenizer(run, SOURCE_TOKENIZER, size) if size else tokenizer
        forbidden = load_forbidden(run, model.vocab_size)
        return Translator(model, tokenizer, source, run=run, forbidden=forbidden)

    def ensemble(
        self, pipeline: Translator, runs: Sequence[Run], models: Sequence[Any]
    ) -> Translator:
        """The probability of a token is the mean of what the models give it."""
        from regard.models.seq2seq import Ensemble
        from regard.pipelines.translator import Translator
        from regard.storage import read_json
        from regard.tokenizers import SOURCE_TOKENIZER, TOKENIZER

        assert pipeline.run is not None
        for other in runs:
            for name in (TOKENIZER, SOURCE_TOKENIZER):
                files = [run / name for run in (pipeline.run, other)]
                if len({str(read_json(f)) if f.exists() else "" for f in files}) > 1:
                    raise UserError(
                        f"{other} has another {name} than {pipeline.run}; an ensemble needs the "
                        "same tokens, as runs of one recipe with other values of train.seed have"
                    )
        return Translator(
            Ensemble([pipeline.model, *models]),
            pipeline.tokenizer,
            pipeline.source_tokenizer,
            run=pipeline.run,
            forbidden=pipeline.forbidden,
        )

    def page(self, run: Run, request: LookRequest) -> Page:
        translator = self.pipeline(run, request.model(run))
        if translator.source_tokenizer.reads_text:
            return translation_view(translator, run, request)
        return caption_view(translator, run, request)


def translation_view(translator: Translator, run: Run, request: LookRequest) -> Page:
    """Return the page about a translation."""
    from regard.look.internals import load_head_alignment, log_unknown, quote, run_facts, truncate
    from regard.look.translation_page import translation_page

    pair = choose_pair(translator, request)
    facts = run_facts(run, translator.model, translator.tokenizer)
    source, warnings = [int(i) for i in pair.source], []
    for what, ids in (("source", source), ("translation given", pair.target or ())):
        cut = truncate(ids, translator.max_source)[1]
        if cut:
            request.log(f"{what}: {cut}")
            warnings.append(f"{what.capitalize()}: {cut}.")
    log_unknown(source, translator.source_tokenizer, request.log)
    log_unknown(pair.target or (), translator.tokenizer, request.log)
    return translation_page(
        translator,
        pair,
        title=f"How {run.name} translates {quote(translator.source_tokenizer.decode(source))}",
        facts=facts,
        alignment=load_head_alignment(run, translator.model, request.log),
        beams=request.beams or 5,
        warnings=warnings,
    )


def choose_pair(translator: Translator, request: LookRequest) -> SourceTarget:
    """Return the given source and target, or a held-out pair."""
    from regard.look.internals import read_given, require_held_out
    from regard.look.language_page import SourceTarget

    target = request.target
    ids = translator.tokenizer.encode(target).tolist() if target else None
    text = read_given(request.text, running=False, most=translator.max_source, log=request.log)
    if text:
        return SourceTarget(translator.source_tokenizer.encode(text).tolist(), ids)
    if target:
        raise UsageError("--target needs the text that it translates: regard look RUN TEXT")
    split, shard = require_held_out(translator, "text")
    assert shard.source is not None
    request.log(f"no text given: reading the first pair of the {split} split of the run")
    source, reference = (part.record(0)[1:-1].tolist() for part in (shard.source, shard))
    return SourceTarget(source, reference=reference)


def known_caption(run: Run, name: str) -> str:
    """Return the caption that a file of arrays has for one of its images, `FILE[NUMBER]`, under the
    name of the run's targets; empty if there is none.
    """
    from regard.data.media import read_arrays

    file, bracket, number = name.rstrip("]").rpartition("[")
    path = Path(file)
    if not (bracket and number.isdigit() and path.suffix == ".npz" and path.is_file()):
        return ""
    captions = read_arrays(path).get(run.recipe.data.target)
    if captions is None or captions.dtype.kind != "U" or int(number) >= len(captions):
        return ""
    return str(captions[int(number)].ravel()[0])


def caption_view(translator: Translator, run: Run, request: LookRequest) -> Page:
    """Return the page about the named item, or about the first held-out one."""
    from regard.look.internals import log_unknown, require_held_out, run_facts
    from regard.look.language_page import SourceTarget
    from regard.look.translation_page import caption_page

    what, name, target = translator.source_tokenizer.words[0], request.text, request.target
    if target and not name:
        raise UsageError(f"--target needs the {what} it describes: regard look RUN {what.upper()}")
    if name:
        (item,) = translator.sources([name])
        features = translator.source_tokenizer.encode_batch([item])[0]
        caption = translator.tokenizer.encode(target).tolist() if target else None
        known = known_caption(run, name)
        reference = translator.tokenizer.encode(known).tolist() if known else None
        pair = SourceTarget(features, caption, reference)
    else:
        split, shard = require_held_out(translator, what)
        assert shard.source is not None
        name = f"the first {what} of the {split} split"
        request.log(f"no {what} given: looking at {name}")
        number = request.record or 0
        reference = shard.record(number)[1:-1].tolist()
        pair = SourceTarget(shard.source.record(number), reference=reference)
    log_unknown(pair.target or (), translator.tokenizer, request.log)
    return caption_page(
        translator,
        pair,
        title=f"How {run.name} describes {Path(name).name}",
        facts=run_facts(run, translator.model, translator.tokenizer),
        beams=request.beams or 5,
    )
