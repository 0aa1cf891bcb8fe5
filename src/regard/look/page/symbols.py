"""Components about tokens: surprise, contributions, tags, next-token distributions, beam search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.look.page.component import (
    Component,
    as_array,
    as_json,
    check_length,
    number,
    numbers,
    visible,
)
from regard.look.page.document import Facts

_NODE_KEYS = {"id", "parent", "token", "score", "kept", "finished", "step"}


@dataclass(frozen=True, eq=False)
class Surprise(Component):
    """A text whose tokens are coloured by their bits, −log₂ of the probability a model gave them.

    `rows` holds (model name, bits per token) pairs, which share one colour scale; a token of
    probability 0 has infinite bits, one that was not scored has NaN.
    """

    kind: ClassVar[str] = "surprise"
    unit: ClassVar[str] = "bits"
    least_limit: ClassVar[float] = 1.0  # of the colour scale
    tokens: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    title: str = ""

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("rows must hold at least one (name, bits) pair, got none")
        for name, bits in self.rows:
            check_length(f"bits of {name!r}", len(bits), "token", len(self.tokens))
            negative = [float(b) for b in bits if b < -1e-4]  # float32 rounding
            if negative:
                raise ValueError(f"bits of {name!r} must not be negative, got {negative[0]}")

    def data(self) -> dict[str, Any]:
        rows = [
            {"name": name, "bits": numbers(max(b, 0.0) if b == b else b for b in bits)}
            for name, bits in self.rows
        ]
        return self.fields("rows") | {"rows": rows}


@dataclass(frozen=True, eq=False)
class Contributions(Component):
    """A text whose tokens are coloured by what each adds to a score, negative where it lowers it.

    `rows` holds (name, number per token) pairs, in one `unit` and on one scale around zero.
    """

    kind: ClassVar[str] = "surprise"  # the same renderer, with negative colours
    least_limit: ClassVar[float] = 0.0
    tokens: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    title: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("rows must hold at least one (name, numbers) pair, got none")
        for name, values in self.rows:
            check_length(f"numbers of {name!r}", len(values), "token", len(self.tokens))
            if not np.isfinite(values).all():
                raise ValueError(f"numbers of {name!r} must be finite")

    def data(self) -> dict[str, Any]:
        rows = [{"name": name, "bits": numbers(values)} for name, values in self.rows]
        return self.fields("rows") | {"rows": rows, "signed": True}


@dataclass(frozen=True, eq=False)
class Logo(Component):
    """A sequence logo: (W, A) `bits` of each of A `letters` at each position, the tallest on top.

    `colours` are indices into the page's series colours by letter, `most` is the height of the
    axis, and positions are counted from `first`.
    """

    kind: ClassVar[str] = "logo"
    letters: Sequence[str]
    bits: ArrayLike
    colours: Sequence[int]
    most: float
    first: int = 1
    title: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        check_length("letters", len(self.letters), "column of bits", self.array().shape[1])
        check_length("colours", len(self.colours), "letter", len(self.letters))

    def array(self) -> NDArray[np.float64]:
        """Return the bits, (W, A)."""
        return as_array("bits", self.bits, 2)

    def stacks(self, least: float) -> list[list[tuple[str, float, int]]]:
        """Return (letter, bits, colour) of each position from the bottom up, if not smaller."""
        return [
            [
                (self.letters[i], float(row[i]), self.colours[i])
                for i in np.argsort(row, kind="stable")
                if row[i] >= least
            ]
            for row in self.array()
        ]

    def data(self) -> dict[str, Any]:
        stacks = [
            [[letter, number(bits), colour] for letter, bits, colour in stack]
            for stack in self.stacks(0.005 * self.most)
        ]
        return self.fields("letters", "bits", "colours") | {"stacks": stacks}


@dataclass(frozen=True, eq=False)
class Tagged(Component):
    """A text whose tokens have tags, such as the state that emitted each; None is no tag.

    `notes` describe a tag.
    """

    kind: ClassVar[str] = "tagged"
    tokens: Sequence[str]
    tags: Sequence[str | None]
    notes: Mapping[str, str] = field(default_factory=dict)
    title: str = ""

    def __post_init__(self) -> None:
        check_length("tags", len(self.tags), "token", len(self.tokens))

    def names(self) -> list[str]:
        """Return the different tags, the most frequent first."""
        return [tag for tag, _ in Counter(t for t in self.tags if t is not None).most_common()]

    def data(self) -> dict[str, Any]:
        names = self.names()
        numbered: dict[str | None, int] = {name: i for i, name in enumerate(names)} | {None: -1}
        return self.fields("tags", "notes") | {
            "tags": [numbered[tag] for tag in self.tags],
            "names": names,
            "notes": [self.notes.get(name, "") for name in names],
        }

    def fallback(self) -> str:
        pairs = [(visible(t), tag or "–") for t, tag in zip(self.tokens, self.tags, strict=True)]
        return Facts(pairs, title=self.title).fallback()


@dataclass(frozen=True, eq=False)
class Distribution(Component):
    """The next-symbol distribution with sliders for temperature, top-K and top-P.

    They apply in this order: divide the logits by the temperature and normalise; keep the K most
    probable symbols (ties go to the earlier one) and renormalise; of these keep the most probable
    until their sum reaches P, including the one that crosses P. Give either `logits` or
    `probabilities`. `top_k` 0 and `top_p` 1 cut nothing.
    """

    kind: ClassVar[str] = "distribution"
    tokens: Sequence[str]
    logits: ArrayLike | None = None
    probabilities: ArrayLike | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    title: str = ""

    def __post_init__(self) -> None:
        if (self.logits is None) == (self.probabilities is None):
            raise ValueError("give either logits or probabilities, got both or neither")
        check_length("tokens", len(self.tokens), "logit", len(self.scores()))
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        if not 0 <= self.top_k <= len(self.tokens):
            raise ValueError(f"top_k must be in 0..{len(self.tokens)}, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")

    def scores(self) -> NDArray[np.float64]:
        """Return the logits (V,), or the logs of the probabilities; −∞ is probability 0."""
        if self.probabilities is not None:
            probabilities = as_array("probabilities", self.probabilities, 1)
            if not (probabilities >= 0).all() or not 0 < probabilities.sum() < math.inf:
                raise ValueError("probabilities must be finite, at least 0 and not all 0")
            with np.errstate(divide="ignore"):
                return np.log(probabilities)
        assert self.logits is not None
        logits = as_array("logits", self.logits, 1)
        if np.isnan(logits).any() or not math.isfinite(logits.max()):
            raise ValueError("logits must be numbers, at least one of them finite and none +inf")
        return logits

    def cut(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probabilities (V,) after the temperature, and after both cuts."""
        scores = self.scores() / self.temperature
        tempered = np.exp(scores - scores.max())
        tempered /= tempered.sum()
        order = np.argsort(-scores, kind="stable")[: self.top_k or len(scores)]
        order = order[tempered[order] > 0]
        before = np.cumsum(tempered[order]) - tempered[order]
        if self.top_p < 1:
            order = order[before < self.top_p * tempered[order].sum()]
        final = np.zeros_like(tempered)
        final[order] = tempered[order] / tempered[order].sum()
        return tempered, final

    def data(self) -> dict[str, Any]:
        scores = self.scores()
        return self.fields("logits", "probabilities") | {
            "logits": numbers(scores - scores.max()),
            "top_k": int(self.top_k) or len(self.tokens),
        }


@dataclass(frozen=True, eq=False)
class BeamTree(Component):
    """The hypotheses of a beam search as a tree, one column per step.

    A node is a mapping with exactly the keys id, parent (None at the root), token, score
    (cumulative log-probability), kept, finished and step. `best` is the id of the winner; by
    default the kept node of greatest score among the finished ones or, if none finished, among
    those of the last step.
    """

    kind: ClassVar[str] = "beam-tree"
    nodes: Sequence[Mapping[str, Any]]
    best: int | str | None = None
    title: str = ""

    def __post_init__(self) -> None:
        steps: dict[Any, int] = {}
        for node in self.nodes:
            if set(node) != _NODE_KEYS:
                raise ValueError(
                    f"a node must have the keys {sorted(_NODE_KEYS)}, got {sorted(node)}"
                )
            if node["id"] in steps:
                raise ValueError(f"node ids must differ, got {node['id']!r} twice")
            steps[node["id"]] = node["step"]
        for node in self.nodes:
            parent = node["parent"]
            if parent is not None and steps.get(parent, node["step"]) >= node["step"]:
                raise ValueError(
                    f"node {node['id']!r}: parent must be a node of an earlier step, got {parent!r}"
                )
        if not self.nodes or (self.best is not None and self.best not in steps):
            raise ValueError(
                f"best must be the id of a node, got {self.best!r} of {len(steps)} nodes"
            )

    def best_path(self) -> list[Any]:
        """Return the ids from the root to the winner."""
        by_id = {node["id"]: node for node in self.nodes}
        at = self.best if self.best is not None else self._winner()
        path: list[Any] = []
        while at is not None:
            path.append(at)
            at = by_id[at]["parent"]
        return path[::-1]

    def _winner(self) -> Any:
        nodes = [n for n in self.nodes if n["kept"]] or list(self.nodes)
        last = max(n["step"] for n in nodes)
        finalists = [n for n in nodes if n["finished"]] or [n for n in nodes if n["step"] == last]
        return max(finalists, key=lambda n: float(n["score"]))["id"]

    def data(self) -> dict[str, Any]:
        nodes = [{key: as_json(value) for key, value in node.items()} for node in self.nodes]
        return {"title": self.title, "nodes": nodes, "path": as_json(self.best_path())}
