"""Contrastive pairs: which text belongs to which image, or to which other text (CLIP: Radford et
al. 2021, arXiv:2103.00020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import Roles
from regard.errors import UsageError
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

    from regard.data.corpus import Corpus
    from regard.data.matched_pairs import PairLoader
    from regard.data.shards import Shard
    from regard.evaluation import Metric
    from regard.evaluation.language_modeling import MeanLoss
    from regard.look.page import Page
    from regard.pipelines.matcher import Matcher
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.training.comparison_runs import RunResult
    from regard.training.trainer import Trainer, TrainingOutcome

MORE_PAIRS = 2  # times as many pairs in a step as captioners read, to be told apart
MICRO_TOKENS = 1 << 20  # in effect no limit: a step is one batch


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig:
    """Settings of contrastive pairs."""

    name: str = "contrastive"
    shared_vocab: bool = True  # one vocabulary for texts that are sources and for the others


class Contrastive(GradientTask):
    """Tell which text belongs to which source."""

    name = model_task = "contrastive"
    purpose = "matching sources and texts"
    Config: ClassVar[type] = ContrastiveConfig
    roles = Roles(input=True, output=True)
    card = Card(
        verbs=(
            "retrieve {run} TEXT",
            "evaluate {run}",
            "look {run}",
            "predict {run} FILE --classes A,B",
            "embed {run} FILE",
            "verify {run}",
        ),
    )
    measures_all = True  # recall among fewer candidates would be higher
    starts_from = ("contrastive",)
    # Recall goes on rising as the rate falls, while the loss of a small split is noise around a
    # minimum that comes early.
    stores_last = True

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
        train = tables["train"]
        given = set(train)
        if train.get("patience"):
            raise UsageError(
                f"train.patience must be 0 for contrastive pairs, got {train['patience']}: the "
                "weights at the end of training are stored, not those of the best validation"
            )
        train.setdefault("micro_tokens", MICRO_TOKENS)
        lines: list[str] = modality.pair_defaults(tables, source)
        if "batch_tokens" not in given and "batch_tokens" in train:
            train["batch_tokens"] *= MORE_PAIRS
        return lines

    def loader(self, model: Any, corpus: Corpus, recipe: Recipe, *, captured: bool) -> PairLoader:
        from regard.data.matched_pairs import PairLoader

        options = loader_options(model, corpus, recipe)
        options |= {"supports_packing": False, "micro_tokens": recipe.train.micro_tokens}
        return PairLoader(corpus.train, corpus.tokenizer, few=captured, **options)

    def objective(self, model: Any, corpus: Corpus, recipe: Recipe, constrain: Any) -> nn.Module:
        from regard.training.contrastive_objective import ContrastiveObjective

        return ContrastiveObjective(
            model,
            label_smoothing=recipe.train.label_smoothing,
            augment=augmentation_module(model, recipe),
        )

    def validation_loss(
        self, trainer: Trainer, shard: Shard, stop: Callable[[], object]
    ) -> MeanLoss:
        from regard.data.matched_pairs import PairExamples
        from regard.training.contrastive_objective import validation_loss

        examples = PairExamples(shard, trainer.corpus.tokenizer, trainer.model.config.max_len)
        return validation_loss(trainer.model, examples, trainer.device, stop)

    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        from regard.evaluation.retrieval import measure_retrieval, store_retrieval

        result = measure_retrieval(model, part, outcome.corpus.tokenizer)
        if split == outcome.corpus.reported_split:
            store_retrieval(run.path, result)
        return result.metrics()

    def result(self, run: Run, facts: dict[str, Any], shared: Path) -> RunResult:
        from regard.evaluation.retrieval import load_retrieval
        from regard.training.comparison_runs import RunResult

        split = "test" if facts["data"]["splits"]["test"]["records"] else "valid"
        answers: Any = load_retrieval(run.path)
        return RunResult(facts, split, answers=answers)

    def pipeline(self, run: Run, model: Any) -> Matcher:
        from regard.pipelines import load_run_tokenizer
        from regard.pipelines.matcher import Matcher
        from regard.tokenizers import TOKENIZER, load_sources

        tokenizer = load_run_tokenizer(run, TOKENIZER, model.vocab_size)
        return Matcher(model, tokenizer, load_sources(run.path, tokenizer), run)

    def page(self, run: Run, request: LookRequest) -> Page:
        from regard.look.retrieval_page import retrieval_page

        if request.target:
            raise UsageError("--target is for translators and labels; name a text or a file alone")
        return retrieval_page(self.pipeline(run, request.model(run)), request.text)
