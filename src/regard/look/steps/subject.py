"""What is stepped through: a model, its input as tensors, and the position that is followed.

A family of models registers how it is traced, for its class and subclasses:

    @register_steps(LSTMModel)
    def lstm_steps(subject: StepSubject) -> None:
        t = subject.start(subject.token_names(subject.tensors["ids"]))
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.engine import evaluating
from regard.errors import UsageError, UserError
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look.steps.parts import POSITION_NAMES
from regard.look.steps.stages import Names, StepTrace, Tracer, Ways

FAMILIES = Ways()  # (subject) -> None
FAMILY_MODULES = (  # register theirs
    "stacks",
    "recurrent",
    "windows",
    "counting",
    "forecasters",
    "linear",
    "class_counts",
    "features",
    "coulomb",
    "convolutions",
    "ibm_model1",
    "nearest_caption",
    "classical_forecasters",
    "trees",
    "word_vectors",
    "contrastive",
)
MOST_POSITIONS = 1024  # the explicit attention of more takes much memory
READS_ALL = "The model reads the whole input at once: the stages are the same for every token."


def register_steps(*classes: type) -> Callable[[Any], Any]:
    """Register how the models of these classes, and of their subclasses, are traced."""
    return FAMILIES.register(*classes)


@dataclass(eq=False)
class StepSubject:
    """One input of a model; `position` counts from 1, 0 being the last one."""

    pipeline: Any
    tensors: dict[str, Tensor]
    activations: dict[str, Tensor]
    output: Tensor
    position: int = 0
    trace: StepTrace | None = None

    @property
    def model(self) -> Any:
        return self.pipeline.model

    def inputs(self) -> Inputs:
        """Return the input of a model that reads one sequence."""
        ids = self.tensors["ids"]
        return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64))

    def start(self, names: Names, notes: Sequence[str] = ()) -> Tracer:
        """Start the trace, now that the positions are known; notes stand above it."""
        count = len(names)
        if not 0 <= self.position <= count:
            raise UsageError(
                f"position must be from 1 to {count} ({count} tokens are read), got {self.position}"
            )
        at = (self.position or count) - 1
        self.trace = StepTrace(list(names), at, notes=list(notes))
        cuttable = "ids" in self.tensors and self.pipeline.source_tokenizer.cuttable
        if cuttable and count == int(self.model.config.max_len):
            self.trace.notes.append(f"At most {count:,} tokens are read: a longer input is cut.")
        if getattr(self.pipeline, "forbidden", None) is not None:
            self.trace.notes.append("Transitions that the data rule out are not forbidden here.")
        return Tracer(self.trace, self.activations)

    def token_names(self, ids: Tensor) -> Names:
        """Return how each of (1, T) ids is displayed."""
        return [self.pipeline.tokenizer.text(int(i)) for i in ids[0].tolist()]

    def encoded(self) -> Any:
        """Return what a recurrent decoder gets from the source."""
        ids = self.tensors["source"]
        return self.model.encode(Inputs(ids, torch.ones_like(ids)))

    def source_names(self, embedding: nn.Module, ids: Tensor) -> Names:
        """Return names of the positions that an encoder reads: tokens, patches or points."""
        way = POSITION_NAMES.find(embedding)
        assert way is not None
        names: Names = way(embedding, ids, self.pipeline.source_tokenizer)
        return names


def trace_steps(
    pipeline: Any, item: str = "", target: str = "", position: int = 0, record: int = 0
) -> StepTrace:
    """Return every stage of one position of an input, from 1; 0 is the last one. Without an item, a
    held-out record is read, numbered from 0, and with `target`, this translation.
    """
    for name in FAMILY_MODULES:
        import_module(f"regard.look.steps.{name}")
    model = pipeline.model
    way = FAMILIES.find(model)
    if way is None:
        raise UserError(
            f"a {type(model).__name__} cannot be stepped through: nothing says how its numbers "
            "follow from each other, as a package does with regard.look.steps.register_steps; "
            "regard look RUN shows what it has learned"
        )
    prepared = pipeline.prepare(item, target, record)
    length = max(x.size(1) for x in prepared.tensors.values())
    if length > MOST_POSITIONS and "past" not in prepared.tensors:
        raise UserError(
            f"{length:,} positions are too many to step through: at most 1,024 are read"
        )
    tap = Tap(["*"])
    with evaluating(model):
        output = prepared.run(tap)
        first = {name: value[0] for name, value in tap.activations.items()}
        subject = StepSubject(pipeline, prepared.tensors, first, output, position)
        way(subject)
    assert subject.trace is not None
    return subject.trace
