"""The stages of one position on its way through a model, and the check that recomputes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from regard.layers.tap import Tap
from regard.look.steps.operations import Array, Dot, GivenNumbers, Opaque, Operation

Names = Sequence[str]
WayT = TypeVar("WayT", bound=Callable[..., Any])
FINITE = 1e-30  # below it a number counts as 0 where errors are relative


@dataclass(frozen=True, eq=False)
class Stage:
    """One array and how it follows from others.

    `path` says where it stands, from the outermost level inwards; `formula` is in the words of this
    project, `lecture` names its symbols in `steps/notation.py`. `rows` and `columns` name the axes;
    without names they are numbered from 1. What `measured` holds is the model's own activation;
    what it does not was computed by `how`. Parameters and the vectors of other positions are not
    `shown` as steps, only as inputs of others.
    """

    title: str
    path: tuple[str, ...]
    how: Operation
    inputs: tuple[Stage, ...]
    values: Array
    formula: str = ""
    lecture: str = ""
    measured: bool = False
    shown: bool = True
    rows: Names = ()
    columns: Names = ()
    mark: int = -1  # the entry or row that belongs to the chosen position

    @property
    def opaque(self) -> bool:
        """Whether it has no formula that could be recomputed."""
        return not self.inputs

    @property
    def where(self) -> str:
        """Its full name."""
        return " › ".join((*self.path, self.title))


@dataclass(eq=False)
class StepTrace:
    """All stages of one position, in the order of computation."""

    tokens: Names
    position: int
    stages: list[Stage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, end: str) -> Stage:
        """Return the first stage whose full name ends so."""
        return next(stage for stage in self.stages if stage.where.endswith(end))


@dataclass(frozen=True, eq=False)
class Difference:
    """How far a recomputed stage is from the stored one: the largest difference, and the same
    relative to the largest value.
    """

    stage: Stage
    absolute: float
    relative: float


def check_stages(trace: StepTrace) -> list[Difference]:
    """Recompute every stage from its own inputs by its stated formula."""
    values = {id(stage): stage.values for stage in trace.stages}
    return [
        error_of(stage, stage.how.compute(*(values[id(x)] for x in stage.inputs)))
        for stage in trace.stages
        if not stage.opaque
    ]


def replay(trace: StepTrace) -> list[Difference]:
    """Recompute all stages in turn from what is given alone: the parameters, the input and the
    vectors of other positions. Errors are those of the stages that the model itself computed.
    """
    values: dict[int, Array] = {}
    errors = []
    for stage in trace.stages:
        if stage.opaque:
            values[id(stage)] = stage.values
            continue
        values[id(stage)] = stage.how.compute(*(values[id(x)] for x in stage.inputs))
        if stage.measured:
            errors.append(error_of(stage, values[id(stage)]))
    return errors


def error_of(stage: Stage, computed: Array) -> Difference:
    """Compare a recomputed array with a stage; infinities must be in the same places."""
    stored = stage.values
    if stored.shape != computed.shape:
        raise ValueError(f"{stage.where} has shape {stored.shape}, recomputed {computed.shape}")
    finite = np.isfinite(stored) | np.isfinite(computed)
    same = finite & ~(np.isfinite(stored) & np.isfinite(computed))
    if same.any() or not np.array_equal(np.isnan(stored), np.isnan(computed)):
        return Difference(stage, np.inf, np.inf)
    gap = np.abs(np.where(finite, stored - np.where(finite, computed, 0.0), 0.0))
    size = np.abs(np.where(finite, stored, 0.0)).max(initial=0.0)
    worst = float(gap.max(initial=0.0))
    return Difference(stage, worst, worst / max(float(size), FINITE))


class Tracer:
    """Adds stages to a trace, level by level.

    `activations` are the model's own, by name (`layers/tap.py`), without their batch axis.
    """

    def __init__(
        self,
        trace: StepTrace,
        activations: dict[str, Tensor],
        *,
        prefix: str = "",
        path: tuple[str, ...] = (),
    ) -> None:
        self.trace, self.activations, self.prefix, self.path = trace, activations, prefix, path

    @property
    def position(self) -> int:
        """The chosen position."""
        return self.trace.position

    @property
    def tokens(self) -> Names:
        """The tokens that the model reads, as displayed."""
        return self.trace.tokens

    @contextmanager
    def level(self, title: str, name: str = "") -> Iterator[Tracer]:
        """Open a level; `name` extends the names of activations within it."""
        prefix = f"{self.prefix}{name}." if name else self.prefix
        path = (*self.path, title) if title else self.path
        yield Tracer(self.trace, self.activations, prefix=prefix, path=path)

    def tapped(self, name: str, *where: Any) -> Array | None:
        """Return an activation at a place, None if the model has none of this name."""
        tensor = self.activations.get(self.prefix + name)
        return None if tensor is None else as_floats(tensor[where] if where else tensor)

    def has(self, name: str) -> bool:
        return self.prefix + name in self.activations

    def given(
        self, title: str, values: Tensor | ArrayLike, *, shown: bool = False, **words: Any
    ) -> Stage:
        """Add what is given: a parameter, or what another position holds."""
        return self._add(
            Stage(title, self.path, GivenNumbers(), (), as_stored(values), shown=shown, **words)
        )

    def opaque(self, title: str, values: Tensor | ArrayLike, formula: str, **words: Any) -> Stage:
        """Add what the model computed and nothing here takes apart."""
        stage = Stage(title, self.path, Opaque(), (), as_floats(values), formula=formula, **words)
        return self._add(stage)

    def step(
        self,
        title: str,
        how: Operation,
        *inputs: Stage,
        formula: str = "",
        measured: Tensor | ArrayLike | None = None,
        **words: Any,
    ) -> Stage:
        """Add a stage that follows from others; its values are the measured ones if the model has
        them.
        """
        values = how.compute(*(stage.values for stage in inputs)) if measured is None else measured
        known = measured is not None
        stage = Stage(
            title, self.path, how, inputs, as_floats(values), formula, measured=known, **words
        )
        return self._add(stage)

    def linear(self, title: str, layer: Any, x: Stage, formula: str, **words: Any) -> Stage:
        """Add a linear map of a vector: `layer` has a weight (out, in) and maybe a bias."""
        weight = self.given(f"matrix of “{title}”", layer.weight)
        bias = [] if layer.bias is None else [self.given(f"bias of “{title}”", layer.bias)]
        return self.step(title, Dot(), x, weight, *bias, formula=formula, **words)

    def _add(self, stage: Stage) -> Stage:
        self.trace.stages.append(stage)
        return stage


@dataclass(frozen=True, eq=False)
class Next:
    """A step of a chain: it reads what came before it, and these inputs."""

    title: str
    how: Operation
    inputs: tuple[Stage, ...] = ()
    formula: str = ""
    words: dict[str, Any] = field(default_factory=dict)


def chain(
    t: Tracer, x: Stage, parts: Sequence[Next], measured: Tensor | ArrayLike | None = None
) -> Stage:
    """Add the steps of a chain that starts at x; the last one has the measured values."""
    for i, part in enumerate(parts, start=1):
        known = measured if i == len(parts) else None
        x = t.step(
            part.title,
            part.how,
            x,
            *part.inputs,
            formula=part.formula,
            measured=known,
            **part.words,
        )
    return x


class Ways:
    """How objects are taken apart: functions by class, found along the bases of a class."""

    def __init__(self) -> None:
        self.functions: dict[type, Callable[..., Any]] = {}

    def register(self, *classes: type) -> Callable[[WayT], WayT]:
        """Register a function for classes and their subclasses."""

        def decorate(function: WayT) -> WayT:
            self.functions.update(dict.fromkeys(classes, function))
            return function

        return decorate

    def find(self, thing: object) -> Callable[..., Any] | None:
        """Return the function for the class of an object or its nearest base."""
        return next((self.functions[c] for c in type(thing).__mro__ if c in self.functions), None)


def as_stored(values: Tensor | ArrayLike) -> Array:
    """Return a view of a tensor in single precision, anything else in double precision: parameters
    are many.
    """
    if isinstance(values, torch.Tensor) and values.dtype == torch.float32:
        view: Any = values.detach().cpu().numpy()
        return cast(Array, view)
    return as_floats(values)


def as_floats(values: Tensor | ArrayLike) -> NDArray[np.float64]:
    """Return an array in double precision."""
    if isinstance(values, torch.Tensor):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def collect(run: Any) -> tuple[dict[str, Tensor], Tensor]:
    """Run a prepared input once; return its activations by name, row 0 of each, and the output."""
    tap = Tap(["*"])
    output: Tensor = run(tap)
    return {name: value[0] for name, value in tap.activations.items()}, output
