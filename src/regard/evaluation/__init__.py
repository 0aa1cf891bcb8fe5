"""Metrics with 95% intervals by the bootstrap: their values, and the registry of what reports
compute.

A metric is registered for a kind of output ("label", "labels", "position-label", "value", "tokens",
"text"), and every report on that kind computes it. It is a function of the `Resamples` of its kind,
and returns an estimate from one value for all records and one for each bootstrap resample:

    @register_metric("label", "top2", title="top-2 accuracy")
    def top2(classes: ClassResamples) -> BootstrapEstimate:
        correct = (np.argsort(classes.scores)[:, -2:] == classes.truths[:, None]).any(1)
        return classes.estimate(classes.sum(correct) / classes.records)

Other packages name the module of theirs as an entry point of the group "regard.metrics".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from regard.errors import did_you_mean
from regard.notebook import html_table
from regard.registry import load_plugins

if TYPE_CHECKING:
    from regard.evaluation.bootstrap import BootstrapEstimate


@dataclass(frozen=True)
class Metric:
    """A value with its 95% interval: NaN where undefined, infinite if something was impossible."""

    value: float
    low: float
    high: float
    impossible: int = 0  # symbols or records to which the model gives probability 0
    digits: int = 4  # shown after the decimal point
    class_name: str = ""  # of a metric of one class
    target: str = ""  # of a metric of one of several targets
    undefined: str = ""  # why these data do not define it
    lower_is_better: bool = False
    most: float = 1.0  # that of a perfect model, if higher is better

    def to_json(self) -> dict[str, Any]:
        """Return a JSON document without NaN and Infinity."""
        named = {"class": self.class_name} if self.class_name else {}
        if self.undefined:
            return {"value": None, "undefined": self.undefined, **named}
        if not math.isfinite(self.value):
            return {"value": None, "infinite": True, "impossible": self.impossible, **named}
        return {"value": self.value, "low": self.low, "high": self.high, **named}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Metric:
        """Return the metric of a document that `to_json` made."""
        value = document["value"]
        if value is None:
            value = math.nan if "undefined" in document else math.inf
        return cls(
            value,
            document.get("low", value),
            document.get("high", value),
            impossible=document.get("impossible", 0),
            class_name=document.get("class", ""),
            undefined=document.get("undefined", ""),
        )

    def __str__(self) -> str:
        if self.undefined:
            return f"undefined ({self.undefined})"
        if not math.isfinite(self.value):
            return f"infinite ({self.impossible:,} impossible)"
        value, low, high = (f"{x:.{self.digits}f}" for x in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"

    __repr__ = __str__


class Metrics(dict[str, Metric]):
    """Metrics by name; a notebook shows them as a table."""

    def __missing__(self, name: str) -> Metric:
        raise KeyError(f"no metric {name!r}; {did_you_mean(name, list(self))}")

    def _repr_html_(self) -> str:
        return html_table(("", "value [95%]"), metric_rows({"": self}))


def metric_rows(
    splits: Mapping[str, Mapping[str, Metric]], names: Sequence[str] = ()
) -> list[list[str]]:
    """Return rows of a table, a row for each metric and a column for each split; `names` are the
    metrics that are shown, by default all.
    """
    rows = []
    for name in names or dict.fromkeys(name for metrics in splits.values() for name in metrics):
        metrics = [split.get(name) for split in splits.values()]
        title = next((metric_title(name, one) for one in metrics if one is not None), name)
        rows.append([title, *("–" if one is None else str(one) for one in metrics)])
    return rows


class Report:
    """Estimates of metrics by name, and the metric by which models are ranked."""

    ranking: ClassVar[tuple[str, ...]]  # the first of these that the report has ranks models
    target_metric: ClassVar[str] = ""  # shown of each of several targets

    if TYPE_CHECKING:  # a field of some reports

        @property
        def estimates(self) -> Mapping[str, BootstrapEstimate]: ...

    def metrics(self) -> Metrics:
        """Return the metrics with their intervals, by name; the first one ranks models."""
        names = dict.fromkeys([self.ranked_by, *self.estimates])
        return Metrics({name: self.estimates[name].metric() for name in names})

    @property
    def ranked_by(self) -> str:
        return next(name for name in self.ranking if name in self.estimates)


MetricFunction = Callable[[Any], "BootstrapEstimate | None"]


@dataclass(frozen=True)
class RegisteredMetric:
    """A metric function and how it is shown."""

    function: MetricFunction
    title: str
    lower_is_better: bool
    most: float
    in_table: bool


METRICS: dict[str, dict[str, RegisteredMetric]] = {}


def register_metric(
    kind: str | tuple[str, ...],
    name: str,
    *,
    title: str,
    lower_is_better: bool = False,
    most: float = 1.0,
    in_table: bool = True,
) -> Callable[[MetricFunction], MetricFunction]:
    """Register a metric for one kind of output, or several.

    The function takes the resamples of the kind and returns an estimate, or None where the metric
    does not apply. `title` heads its column in the table of `regard compare`, if it is `in_table`;
    `most` is the value of a perfect model, of metrics that are higher for better ones.
    """

    def register(function: MetricFunction) -> MetricFunction:
        for each in (kind,) if isinstance(kind, str) else kind:
            metric = RegisteredMetric(function, title, lower_is_better, most, in_table)
            METRICS.setdefault(each, {})[name] = metric
        return function

    return register


def estimate_metrics(kind: str, resamples: Any) -> dict[str, BootstrapEstimate]:
    """Return the estimates of all metrics of a kind that apply, in the order of registration."""
    load_plugins("regard.metrics")
    estimates = {}
    for name, metric in METRICS[kind].items():
        with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 is NaN: undefined
            estimate = metric.function(resamples)
        if estimate is not None:
            estimates[name] = replace(
                estimate,
                title=metric.title,
                lower_is_better=metric.lower_is_better,
                most=metric.most,
                in_table=metric.in_table,
            )
    return estimates


def from_document(document: Mapping[str, Any]) -> dict[str, Metric]:
    """Return the metrics of a document that `to_document` made."""
    metrics = {n: Metric.from_json(one) for n, one in document.items() if n != "targets"}
    for target, of_target in document.get("targets", {}).items():
        for name, one in of_target.items():
            metric = replace(Metric.from_json(one), target=target)
            metrics[target_name(name, target)] = metric
    return metrics


def target_name(name: str, target: str) -> str:
    """Return the name of a metric of one of several targets."""
    return f"{name} ({target})"


def group_by_target(
    metrics: Mapping[str, Metric],
) -> tuple[dict[str, Metric], dict[str, dict[str, Metric]]]:
    """Return the metrics over all targets by name, and those of each target by target and name."""
    overall = {name: metric for name, metric in metrics.items() if not metric.target}
    by_target: dict[str, dict[str, Metric]] = {}
    for name, metric in metrics.items():
        if metric.target:
            plain_name = name.removesuffix(f" ({metric.target})")
            by_target.setdefault(metric.target, {})[plain_name] = metric
    return overall, by_target


def metric_title(name: str, metric: Metric) -> str:
    """Return the name of a metric to print, with its class."""
    words = name if metric.target else name.replace("_", " ")
    return f"{words} ({metric.class_name})" if metric.class_name else words


def to_document(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Return metrics for JSON by name; those of several targets under `targets`, by target."""
    overall, by_target = group_by_target(metrics)
    document: dict[str, Any] = {name: metric.to_json() for name, metric in overall.items()}
    if by_target:
        document["targets"] = {
            target: {name: metric.to_json() for name, metric in of_target.items()}
            for target, of_target in by_target.items()
        }
    return document
