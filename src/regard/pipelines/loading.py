"""Loading the best model of a run folder, with its tokenizers, as the pipeline of its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.decoding import ForbiddenTransitions
from regard.errors import UserError
from regard.layers.int8 import to_int8
from regard.registry import TASKS
from regard.run import CONFIG, FORBIDDEN, Run
from regard.tokenizers import Tokenizer
from regard.tokenizers import load as load_tokenizer
from regard.training.precision import choose_device


def load(
    run: str | Path | Run,
    *others: str | Path,
    verb: str = "",
    int8: bool = False,
    device: str = "cpu",
) -> Any:
    """Return the best model of a run folder as the pipeline of its task: a Generator, Translator,
    Predictor or WordVectors.

    With `others`, runs with the same tokenizers, the models form an ensemble. With `verb`, a run
    that this command does not apply to is a UserError. `int8` stores the weights of linear layers
    in int8, which is faster on a CPU and rounds them. `device` is cpu, cuda, cuda:1, or auto: a GPU
    if there is one.
    """
    opened, where = Run.open(run), choose_device("cpu" if int8 else device)
    task = TASKS[opened.description.task]()
    if verb and all(command.split()[0] != verb for command in task.card.verbs):
        first, *rest = task.card.verbs
        more = ", ".join(f"`regard {command.split()[0]}`" for command in rest)
        use = f"`regard {first.format(run=opened)}`, {more}"
        raise UserError(
            f"{opened} is of task {task.name} ({task.purpose}), and `regard {verb}` does not apply "
            f"to it: use {use}"
        )
    pipeline = task.pipeline(opened, model_on(opened, where, int8))
    if others:
        models = [model_on(Run.open(other), where, int8) for other in others]
        pipeline = task.ensemble(pipeline, [Run.open(other) for other in others], models)
    return pipeline


def model_on(run: Run, device: Any, int8: bool) -> Any:
    """Return the best model of a run on a device."""
    model = run.model().to(device)
    if int8:
        to_int8(model)
    return model


def load_forbidden(run: Run, vocab_size: int) -> ForbiddenTransitions | None:
    """Return the forbidden transitions of a run, if it has any."""
    path = run / FORBIDDEN
    forbidden = ForbiddenTransitions.load(path) if path.exists() else None
    if forbidden is not None and forbidden.vocab_size != vocab_size:
        raise UserError(f"{path} is for {forbidden.vocab_size} tokens, not {vocab_size}")
    return forbidden


def load_run_tokenizer(run: Run, name: str, size: int) -> Tokenizer:
    """Return a tokenizer of a run folder, which must have `size` tokens."""
    tokenizer = load_tokenizer(run / name)
    if not tokenizer.fits(size):
        raise UserError(f"{run}: {name} has {tokenizer.vocab_size} tokens, {CONFIG} says {size}")
    return tokenizer
