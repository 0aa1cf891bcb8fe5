"""Forecasting: predict the next steps of time series, with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from regard.data import Roles
from regard.errors import UsageError
from regard.registry import MODALITIES, MODELS
from regard.tasks import Card, GradientTask, LookRequest, Tables

if TYPE_CHECKING:
    from torch import nn

    from regard.data.shards import Shard
    from regard.data.windows import WindowLoader, Windows
    from regard.evaluation import Metric
    from regard.evaluation.comparison import Comparison
    from regard.evaluation.language_modeling import MeanLoss
    from regard.look.page import Page
    from regard.pipelines.forecaster import Forecaster
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.training.comparison_runs import RunResult
    from regard.training.trainer import Trainer, TrainingOutcome

FRACTIONS = {"valid_fraction": 0.1, "test_fraction": 0.2}  # of the steps of every series
HORIZON = 24  # where no season was found
SEASONS = 14  # that are read before a forecast, where the data allows it
SHORTEST, LONGEST = 16, 512  # steps of the default look-back
BATCH = 64  # windows of a step on a CPU; twice as many on a GPU
PATIENCE = 6  # validations without progress
SMALL = 100_000  # steps of a series that is soon overfitted
STRIDE = 8  # steps of a series for a token
HEAD_DROPOUT = 0.6  # of such a series: it and the sizes were chosen on validation months of ETTh1


@dataclass(frozen=True, kw_only=True)
class ForecastingConfig:
    """Settings of forecasting; horizon and look-back are those of the series, [input]."""

    name: str = "forecast"
    quantiles: str = ""  # such as 0.1,0.5,0.9: predict these; "" = the mean, with a conformal fan

    def __post_init__(self) -> None:
        levels(self.quantiles)


def levels(quantiles: str) -> tuple[float, ...]:
    """Return the numbers of a comma-separated list; ValueError if they are no rising quantiles."""
    try:
        numbers = tuple(float(word) for word in quantiles.split(",") if word.strip())
    except ValueError:
        raise ValueError(f"quantiles must be numbers like 0.1,0.5,0.9, got {quantiles!r}") from None
    rising = all(a < b for a, b in zip((0.0, *numbers), (*numbers, 1.0), strict=True))
    if numbers and not rising:
        raise ValueError(f"quantiles must rise from above 0 to below 1, got {quantiles!r}")
    return numbers


class Forecasting(GradientTask):
    """Predict the next steps of series."""

    name = model_task = "forecast"
    purpose = "forecasting"
    Config: ClassVar[type] = ForecastingConfig
    roles = Roles(input=True)
    card = Card(
        verbs=("predict {run} FILE", "evaluate {run}", "look {run}", "verify {run}"),
        metrics=(
            "mse_standardized",
            "mae_standardized",
            "skill",
            "mase",
            "crps",
            "coverage_80",
            "mae",
        ),
    )
    starts_from = ("forecast",)
    measures_all = True
    own_options = ("horizon", "lookback")

    def defaults(self, tables: Tables) -> list[str]:
        from regard.data.sources import DataSource
        from regard.recipe import DataRecipe, check, registered

        data, table = tables["data"], tables["input"]
        table.setdefault("name", "time-series")
        for key, share in FRACTIONS.items():
            data.setdefault(key, share)
        modality = MODALITIES[table["name"]](registered("input", MODALITIES, table, table["name"]))
        source = DataSource(check("data", DataRecipe, data), self.roles, modality)
        facts = SeriesFacts.of(source)
        horizon = table["horizon"] = table.get("horizon") or facts.default_horizon
        lookback = facts.default_lookback(horizon)
        lookback = table["lookback"] = (
            table.get("lookback") or tables["model"].get("max_len") or lookback
        )
        table["season"] = facts.season
        first = (
            f"data: {source.train.why}; {facts.description} → task forecast, the next {horizon} "
            f"steps from {lookback} before them"
        )
        return [first, self._size_model(tables, facts, lookback)]

    def _size_model(self, tables: Tables, facts: SeriesFacts, lookback: int) -> str:
        """Fill in model and training settings; return the line that says so."""
        from regard.recipe import TrainRecipe
        from regard.training.defaults import (
            FORECASTERS,
            default_network,
            default_shape,
            fill_shape,
            hardware,
            has_gpu,
        )

        model, train = tables["model"], tables["train"]
        name = default_network(FORECASTERS, tables)
        fields = MODELS.get(name, self.name, "series").Config.__dataclass_fields__
        model["max_len"] = lookback
        model["quantiles"] = list(levels(self.config.quantiles))
        windows = max(1, min(BATCH * (2 if has_gpu() else 1), facts.train_steps // 8))
        train.setdefault("batch_tokens", windows * (lookback + tables["input"]["horizon"]))
        train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))
        train.setdefault("optimizer", "adamw")
        train.setdefault("lr", 1e-3)
        train.setdefault("weight_decay", 0.0)
        train.setdefault("patience", PATIENCE)
        if facts.train_steps < SMALL:  # few epochs are enough: see each half
            train.setdefault("eval_every", max(10, facts.train_steps // windows // 2))
        if "d_model" not in fields:
            return f"model: {name}: nothing to size"
        amount = facts.train_steps * facts.channels
        shape = default_shape(FORECASTERS, amount, amount * lookback / STRIDE, tables)
        given = fill_shape(model, fields, shape)
        if facts.train_steps < SMALL and "head_dropout" in fields:
            model.setdefault("head_dropout", HEAD_DROPOUT)
        reason = (
            "as asked"
            if given
            else f"{shape.n_layers} × {shape.d_model}, for {facts.train_steps:,} steps of "
            f"{facts.channels} series and {hardware()}"
        )
        return f"model: {name} {reason}, {windows} windows a step"

    def loader(self, model: Any, corpus: Any, recipe: Recipe, *, captured: bool) -> WindowLoader:
        from regard.data.windows import WindowLoader

        train = recipe.train
        return WindowLoader(
            corpus.train,
            batch_tokens=train.batch_tokens,
            seed=train.seed,
            micro_tokens=train.micro_tokens,
        )

    def objective(self, model: Any, corpus: Any, recipe: Recipe, constrain: Any) -> nn.Module:
        from regard.training.forecast_objective import ForecastObjective

        return ForecastObjective(model, corpus.train)

    def validation_loss(self, trainer: Trainer, shard: Any, stop: Callable[[], object]) -> MeanLoss:
        from regard.training.forecast_objective import validation_loss

        objective: Any = trainer.stepper.objective
        return validation_loss(getattr(objective, "module", objective), shard, stop)

    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        from regard.evaluation.forecasting import measure_forecasts, store_forecasts

        corpus, windows = outcome.corpus, cast("Windows", part)
        train, valid = cast("Windows", corpus.train), cast("Windows | None", corpus.valid)
        before = valid if split == "test" else None
        result = measure_forecasts(
            model, windows, corpus.tokenizer, train, before, outcome.reporter.progress
        )
        if split == corpus.reported_split:
            store_forecasts(run.path, result)
        return result.metrics()

    def result(self, run: Run, facts: dict[str, Any], shared: Path) -> RunResult:
        from regard.evaluation.forecasting import load_forecasts
        from regard.tokenizers import load
        from regard.training.comparison_runs import RunResult

        encoder: Any = load(run / "tokenizer.json")
        split = "test" if facts["data"]["splits"]["test"]["records"] else "valid"
        answers: Any = load_forecasts(run.path, encoder.columns[: encoder.n_channels])
        return RunResult(facts, split, answers=answers)

    def add_to_comparison(self, page: Page, comparison: Comparison) -> None:
        from regard.look.forecast_comparison import add_forecasts

        add_forecasts(page, comparison)

    def pipeline(self, run: Run, model: Any) -> Forecaster:
        from regard.pipelines import load_run_tokenizer
        from regard.pipelines.forecaster import Forecaster

        return Forecaster(model, load_run_tokenizer(run, "tokenizer.json", model.vocab_size), run)

    def page(self, run: Run, request: LookRequest) -> Page:
        from regard.look.forecast_page import forecast_page

        if request.target and request.target not in run.data.get("reading", {}).get("targets", []):
            raise UsageError("--target names a series of the run")
        return forecast_page(self.pipeline(run, request.model(run)), request)


@dataclass(frozen=True)
class SeriesFacts:
    """What decides the sizes of windows and models."""

    train_steps: int  # of the longest series
    shortest: int  # training steps of the shortest series
    series: int
    channels: int
    season: int
    seasonal: str  # how the season was found

    @classmethod
    def of(cls, source: Any) -> SeriesFacts:
        """Return the facts of the training part of a source."""
        parts = [chunk.texts[0] for chunk in source.chunks() if chunk.split == 0]
        longest = max(parts, key=len)
        season, how = int(getattr(source.modality.config, "season", 0)), "as asked"
        if not season:
            season = longest.season
            how = "by autocorrelation"
        return cls(
            train_steps=len(longest),
            shortest=min(map(len, parts)),
            series=len(parts),
            channels=longest.values.shape[1],
            season=season,
            seasonal=how,
        )

    @property
    def description(self) -> str:
        """How many steps, and the season, in words."""
        count = f"{self.series:,} series of up to " if self.series > 1 else ""
        season = f"season of {self.season} steps ({self.seasonal})" if self.season else "no season"
        return f"{count}{self.train_steps:,} steps to train on, {season}"

    @property
    def default_horizon(self) -> int:
        return max(1, min(self.season or HORIZON, self.shortest // 4))

    def default_lookback(self, horizon: int) -> int:
        """Return the steps to read: many seasons, but at most a third of the training part."""
        wanted = min(LONGEST, max(SHORTEST, SEASONS * self.season, 2 * horizon))
        return max(1, min(wanted, (self.shortest - horizon) // 3))
