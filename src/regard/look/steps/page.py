"""The step-through as a component of a page, and a page of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.look.page import Component, Page, Text
from regard.look.page.document import encode_bytes, escape, visible
from regard.look.steps.notation import in_lectures
from regard.look.steps.operations import Array
from regard.look.steps.stages import Stage, StepTrace
from regard.look.steps.subject import trace_steps

MOST_NUMBERS = 400_000  # on one page: 2 MB
SAMPLED = "Sampling"  # the level whose stages the page recomputes


@dataclass(frozen=True, eq=False)
class StepThrough(Component):
    """Every stage of one position; large tables keep the rows that matter most to it. `movable`
    offers the tokens to choose from, for a page that can ask for another trace.
    """

    kind: ClassVar[str] = "steps"
    trace: StepTrace
    title: str = ""
    movable: bool = False

    def data(self) -> dict[str, Any]:
        """Return the stages in order; those of names that several share are stored once."""
        numbers = {id(stage): i for i, stage in enumerate(self.trace.stages)}
        labels: dict[tuple[str, ...], int] = {}
        rows = kept_rows(self.trace)
        stages = [
            {
                "title": stage.title,
                "path": list(stage.path),
                "how": stage.how.data(),
                "inputs": [numbers[id(x)] for x in stage.inputs],
                "shown": stage.shown,
                "measured": stage.measured,
                "formula": stage.formula,
                "lecture": list(in_lectures(stage.lecture)),
                "rows": number_of(labels, stage.rows),
                "columns": number_of(labels, stage.columns),
                "mark": stage.mark,
                "shape": list(stage.values.shape),
                "kept": rows[id(stage)],
                "values": single(stage.values, rows[id(stage)]),
            }
            for stage in self.trace.stages
        ]
        last = self.trace.stages[-1]
        return {
            "title": self.title,
            "tokens": list(self.trace.tokens),
            "position": self.trace.position,
            "movable": self.movable,
            "sampling": last.values.size if SAMPLED in last.path else 0,
            "labels": [list(names) for names in labels],
            "stages": stages,
        }

    def fallback(self) -> str:
        shown = [stage for stage in self.trace.stages if stage.shown]
        items = "".join(
            f"<li>{escape(stage.where)}: {escape(stage.formula)}</li>" for stage in shown
        )
        return f"<ol>{items}</ol>"


def number_of(labels: dict[tuple[str, ...], int], names: Sequence[str]) -> int:
    """Return the number of a list of names, added if it is new; −1 for none."""
    return labels.setdefault(tuple(names), len(labels)) if names else -1


def single(values: Array, rows: list[int] | None) -> dict[str, Any]:
    """Return an array, or some of its rows, in single precision."""
    part = values if rows is None else values[rows]
    return {"shape": list(part.shape), "f32": encode_bytes(part.astype("<f4"))}


def kept_rows(trace: StepTrace, most: int = MOST_NUMBERS) -> dict[int, list[int] | None]:
    """Return for each stage the rows that a page holds, None for all of them: tables share what
    room there is, and keep the rows that the stages after them depend on most.
    """
    needed = importance(trace)
    sizes = {id(stage): stage.values.size for stage in trace.stages}
    limit = max(sizes.values(), default=0)
    while sum(min(limit, size) for size in sizes.values()) > most and limit > 1:
        limit //= 2
    return {id(stage): rows_of(stage, needed.get(id(stage)), limit) for stage in trace.stages}


def rows_of(stage: Stage, needed: NDArray[np.float64] | None, limit: int) -> list[int] | None:
    """Return the rows of a table that fit into a limit of numbers."""
    values = stage.values
    if values.ndim < 2 or (values.size <= limit and (needed is None or needed.min() >= 0)):
        return None
    count = max(1, limit // values.shape[1])
    order = np.argsort(-(np.zeros(len(values)) if needed is None else needed), kind="stable")
    best = [int(i) for i in order[:count] if needed is None or needed[i] >= 0]
    return sorted(best)


def importance(trace: StepTrace) -> dict[int, NDArray[np.float64]]:
    """Return how much each row of a table matters to the stages after it; below 0: not at all."""
    needed: dict[int, NDArray[np.float64]] = {}
    for stage in trace.stages:
        inputs = [x.values for x in stage.inputs]
        for which, x in enumerate(stage.inputs):
            rows = stage.how.needed(which, inputs, stage.values)
            if rows is None or x.values.ndim < 2:
                continue
            before = needed.get(id(x))
            needed[id(x)] = rows if before is None else np.maximum(before, rows)
    return needed


def steps_page(pipeline: Any, item: str = "", target: str = "", position: int = 0) -> Page:
    """Return a page that steps through a model at one position of an input."""
    trace = trace_steps(pipeline, item, target, position)
    token, count = trace.tokens[trace.position], len(trace.tokens)
    shown = visible(token, spaces=token.strip() != token)  # a name keeps its inner spaces
    title = f"Step by step: “{shown}”, {trace.position + 1} of {count}"
    stages = sum(stage.shown for stage in trace.stages)
    page = Page(
        title, f"{type(pipeline.model).__name__} · {stages} stages, from the input to the output"
    )
    page.section("Step through", NOTE)
    if trace.notes:
        page.add(Text(" ".join(trace.notes)))
    page.add(StepThrough(trace))
    return page


NOTE = (
    "Every number is the model's own. Each stage follows from the ones before it by the formula "
    "beside it: choose a number to see its terms."
)
