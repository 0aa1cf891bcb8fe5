"""Masked language modelling: fill in hidden tokens, to pretrain an encoder on unlabelled data.

Devlin et al. 2019, arXiv:1810.04805.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import Roles
from regard.errors import UsageError, UserError
from regard.registry import MODALITIES
from regard.tasks import Card, LookRequest, Tables, loader_options
from regard.tasks.prediction import TASKS_WITH_HEADS, PredictionTask, choose_item

if TYPE_CHECKING:
    from torch import nn

    from regard.data.batching import MaskedLoader
    from regard.data.corpus import Corpus
    from regard.data.shards import Shard
    from regard.evaluation import Metric
    from regard.evaluation.language_modeling import MeanLoss
    from regard.look.page import Page
    from regard.pipelines.masked_predictor import MaskedPredictor
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.training.trainer import Trainer, TrainingOutcome


@dataclass(frozen=True, kw_only=True)
class MaskedConfig:
    """Settings of masked language modelling."""

    name: str = "masked"
    mask: float = 0.15  # the share of tokens to fill in

    def __post_init__(self) -> None:
        if not 0 < self.mask < 1:
            raise ValueError(f"mask must be above 0 and below 1, got {self.mask}")


class MaskedLanguageModeling(PredictionTask):
    """Predict hidden tokens from all others."""

    name = model_task = "masked"
    purpose = "masked language modelling"
    Config: ClassVar[type] = MaskedConfig
    roles = Roles(input=True, labels_optional=True)
    card = Card(
        verbs=(
            "train FILE --pretrain {run}",
            "fill {run} TEXT",
            "score {run} FILE --masked",
            "embed {run} FILE",
            "evaluate {run}",
            "look {run}",
            "verify {run}",
        ),
    )
    compares = False
    starts_from = TASKS_WITH_HEADS
    keeps_head = True
    pretrains_with = ""

    def defaults(self, tables: Tables) -> list[str]:
        from regard.data.sources import recognize_modality
        from regard.recipe import DataRecipe, check, modality_name, registered

        data: DataRecipe = check("data", DataRecipe, tables["data"])
        table = tables["input"]
        name = table.get("name") or recognize_modality(data, self.roles)
        if name == "text":
            name = modality_name(table)
        modality = MODALITIES[name](registered("input", MODALITIES, table, name))
        lines: list[str] = modality.masked_defaults(tables, data, self.roles)
        return lines

    def loader(self, model: Any, corpus: Corpus, recipe: Recipe, *, captured: bool) -> MaskedLoader:
        from regard.data.batching import MaskedLoader

        options = loader_options(model, corpus, recipe)
        options |= {"few": captured, "masking": model.masking}
        return MaskedLoader(corpus.train, corpus.tokenizer, share=self.config.mask, **options)

    def objective(self, model: Any, corpus: Corpus, recipe: Recipe, constrain: Any) -> nn.Module:
        from regard.training.objectives import SupervisedObjective

        train = recipe.train
        return SupervisedObjective(
            model,
            label_smoothing=train.label_smoothing,
            r_drop=train.r_drop,
            share=self.config.mask,
        )

    def validation_loss(
        self, trainer: Trainer, shard: Shard, stop: Callable[[], object]
    ) -> MeanLoss:
        tokenizer, model = trainer.corpus.tokenizer, trainer.model
        return trainer.target_loss(model.masking(shard, tokenizer, model.config.max_len), stop)

    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        from regard.evaluation.language_modeling import measure_masked

        return measure_masked(model, part, outcome.corpus.tokenizer).metrics()

    def pipeline(self, run: Run, model: Any) -> MaskedPredictor:
        from regard.data.targets import Targets
        from regard.pipelines import load_run_tokenizer
        from regard.pipelines.masked_predictor import MaskedPredictor

        tokenizer = load_run_tokenizer(run, "tokenizer.json", model.vocab_size)
        return MaskedPredictor(model, tokenizer, Targets(self.name, ()), run)

    def page(self, run: Run, request: LookRequest) -> Page:
        from regard.evaluation.masked_tokens import encode_masked
        from regard.look.internals import (
            log_unknown,
            quote,
            read_given,
            require_held_out,
            run_facts,
            truncate,
        )
        from regard.look.language_page import masked_page

        predictor = self.pipeline(run, request.model(run))
        model, tokenizer = predictor.model, predictor.tokenizer
        if request.target:
            raise UsageError(
                f"--target is for translators and labels, and {run} predicts masked tokens"
            )
        if not tokenizer.reads_text:
            return filled_page(predictor, request)
        max_len = int(model.config.max_len)
        text = read_given(request.text, running=False, most=max_len, log=request.log).strip()
        if text:
            ids = encode_masked(text, tokenizer)
        else:
            split, shard = require_held_out(predictor, "text")
            ids = [int(i) for i in shard.record(0)]
            request.log(f"no text given: reading the first record of the {split} split of the run")
        ids, cut = truncate(ids, max_len)
        if all(i in tokenizer.names and i != tokenizer.mask for i in ids):
            raise UserError("the text has no token of the model's vocabulary to predict")
        log_unknown(ids, tokenizer, request.log)
        facts = run_facts(run, model, tokenizer)
        if cut:
            request.log(cut)
        warnings = [f"{cut[0].upper()}{cut[1:]}."] if cut else []
        read = text or tokenizer.decode([i for i in ids if i not in tokenizer.names])
        title = f"How {run.name} predicts the tokens of {quote(read)}"
        return masked_page(model, tokenizer, ids, title=title, facts=facts, warnings=warnings)


def filled_page(predictor: MaskedPredictor, request: LookRequest) -> Page:
    """Return the page about an item, hidden parts of which the model fills in."""
    from regard.look.internals import require_held_out, run_facts
    from regard.look.series_page import filled_series_page

    run = predictor.run
    assert run is not None
    what = predictor.tokenizer.words[0]
    records = None if request.text else require_held_out(predictor, what)
    item, title = choose_item(predictor, request.text, records, request)
    facts = run_facts(run, predictor.model, predictor.tokenizer)
    return filled_series_page(predictor, item, title=f"{run.name} on {title}", facts=facts)
