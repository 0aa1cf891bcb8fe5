"""The run folder: everything a trained model consists of, in files that any command can read.

RUN/
  recipe.toml     the settings, defaults filled in
  regard.json     versions, seed, hashes, device, cost, final metrics
  config.json  model.safetensors  tokenizer.json  README.md      the best model; for images and
                  point clouds, preprocessor_config.json in place of the tokenizer
  metrics.jsonl   one line per event
  checkpoints/    what resuming needs
  data/           the tokenized data; may be deleted, it is rebuilt from the sources
  source/         the sources, if they were given in memory
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.data.in_memory import SOURCE
from regard.errors import UsageError, UserError, did_you_mean, quoted
from regard.recipe import Recipe, build, check, read
from regard.registry import MODELS, TASKS
from regard.run_folders import CONFIG as CONFIG
from regard.run_folders import METADATA as METADATA
from regard.run_folders import METRICS as METRICS
from regard.run_folders import RECIPE as RECIPE
from regard.run_folders import WEIGHTS as WEIGHTS
from regard.run_folders import Measurement, measurements, winner
from regard.storage import (
    Config,
    RunMetadata,
    check_names,
    check_schema,
    count_tensors,
    file_size,
    read_json,
    read_tensors,
    write_json,
)

FORBIDDEN = "forbidden.safetensors"
HUGGING_FACE_KEYS = {"model_type", "architectures"}
MAX_TABLE_BYTES = 256 << 20  # of buffers that are computed from config.json and stored nowhere


class ModelDescription(NamedTuple):
    """What config.json says: the task, the family, its vocabulary size and configuration."""

    task: str
    family: str
    vocab_size: int
    config: Any
    reads: str = "tokens"  # the kind of input


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path

    @classmethod
    def open(cls, path: str | Path | Run) -> Run:
        """Return the run at `path`, of a comparison that of its best row; a UserError says what is
        there instead.
        """
        folder = path.path if isinstance(path, cls) else Path(path)  # type: ignore[arg-type]
        folder = winner(folder) or folder
        if not folder.exists():
            raise UserError(f"no run folder at {folder}")
        if not folder.is_dir():
            raise UserError(f"{folder} is a file; a run folder was expected")
        if not (folder / CONFIG).exists():
            raise UserError(
                f"{folder} has no {CONFIG}: not a run folder "
                "(regard import reads Hugging Face folders)"
            )
        return cls(folder)

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    @property
    def recipe(self) -> Recipe:
        """The settings that the run was trained with."""
        return build(read(self / RECIPE))

    @property
    def metadata(self) -> dict[str, Any]:
        """The contents of regard.json; empty if there is none."""
        path = self / METADATA
        metadata: dict[str, Any] = read_json(path, RunMetadata) if path.exists() else {}
        return metadata

    @property
    def data(self) -> dict[str, Any]:
        """What the run knows of the data it was trained on; empty if it was imported."""
        data: dict[str, Any] = self.metadata.get("data", {})
        return data

    @property
    def finished(self) -> bool:
        """Whether training was brought to its end."""
        return self.metadata.get("outcome") in ("done", "early")

    @property
    def description(self) -> ModelDescription:
        """The validated contents of config.json."""
        path = self / CONFIG
        stored = read_json(path, dict[str, Any])
        if "family" not in stored and HUGGING_FACE_KEYS & stored.keys():
            raise UserError(not_imported(self.path))
        check_schema(path, stored, Config)
        task, name, reads = (
            stored.get("task", "next"),
            stored["family"],
            stored.get("reads", "tokens"),
        )
        check_registered(self.path, task, name, stored.get("defined_in", {}))
        try:
            if task not in TASKS:
                raise UsageError(f"task: {did_you_mean(task, list(TASKS))}, got {quoted(task)}")
            config = check("config", MODELS.get(name, task, reads).Config, stored["config"])
        except UsageError as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return ModelDescription(task, name, stored["vocab_size"], config, reads)

    def model(self) -> Any:
        """Return the best model, in evaluation mode on the CPU.

        Sizes are checked against the file's header on the meta device before memory is taken.
        """
        task, name, vocab_size, config, reads = self.description
        cls, path = MODELS.get(name, task, reads), self / WEIGHTS
        if not path.exists():
            raise UserError(
                f"{self} has no {WEIGHTS}: training has not reached its first validation"
            )
        too_small = UserError(f"{path} is damaged: too small for what {CONFIG} says")
        size = file_size(path)
        if count_tensors(path) < getattr(config, "n_layers", 0):
            raise too_small
        expected = self._expected_tensors(cls, vocab_size, config)
        if size < max(tensor.numel() for tensor in expected.values()):
            raise too_small
        tensors = read_tensors(path, expected if cls.sized_by_config else None)
        check_names(path, set(tensors), set(expected))
        for key, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise UserError(f"{path}: {key} holds NaN or infinite values")
            form = (tensor.dim(), tensor.is_floating_point())
            if form != (expected[key].dim(), expected[key].is_floating_point()):
                raise UserError(
                    f"{path}: {key} is {tensor.dtype} {tuple(tensor.shape)}: it does not fit"
                )
        model = cls(vocab_size, config)
        try:
            model.load_state_dict(tensors, strict=False)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise UserError(f"{path} does not fit {CONFIG}: {reason}") from None
        return model.eval()

    def pipeline(self, model: Any = None) -> Any:
        """Return the pipeline of the task, with the best model unless another one is given."""
        task = TASKS[self.description.task]()
        return task.pipeline(self, self.model() if model is None else model)

    def _expected_tensors(self, cls: Any, vocab_size: int, config: Any) -> dict[str, Tensor]:
        try:
            with torch.device("meta"):
                model = cls(vocab_size, config)
        except (ValueError, RuntimeError) as error:
            raise UserError(f"{self / CONFIG} is damaged: {error}") from None
        tensors = weights(model)
        buffers = model.named_buffers()
        size = sum(b.numel() * b.element_size() for name, b in buffers if name not in tensors)
        if size > MAX_TABLE_BYTES:
            raise UserError(f"{self / CONFIG}: max_len would take {size >> 20:,} MB of tables")
        return tensors

    def validations(self) -> Iterator[Measurement]:
        """Yield the validations in metrics.jsonl; infinite losses are left out."""
        return measurements(self.path, "valid")


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model, a tied one once."""
    tensors: dict[str, Tensor] = {}
    ids: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in ids:
            ids.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def write_config(folder: Path, name: str, model: Any, task: str = "") -> None:
    """Write config.json: task and family, vocabulary size and configuration; the task is the
    model's own by default. Of objects that other packages define, it names the modules.
    """
    task = task or model.task
    modules = {"family": type(model).__module__, "task": TASKS[task].__module__}
    others = {key: module for key, module in modules.items() if not module.startswith("regard.")}
    write_json(
        folder / CONFIG,
        {
            "task": task,
            "family": name,
            "reads": model.reads,
            "vocab_size": model.vocab_size,
            "config": asdict(model.config),
            **({"defined_in": others} if others else {}),
        },
    )


def check_registered(folder: Path, task: str, family: str, defined_in: Mapping[str, str]) -> None:
    """Raise a UserError that names the missing package if a run has a task or a model that another
    package defines and that is not registered in this process.
    """
    for key, noun, name, registry, known in (
        ("task", "task", task, TASKS, list(TASKS)),
        ("family", "model", family, MODELS, MODELS.names()),
    ):
        if key in defined_in and name not in known:
            module = defined_in[key]
            raise UserError(
                f"{folder}: its {noun} {name!r} is defined in "
                f"{module!r}, which this process has not loaded: install its package, whose entry "
                f"point in the group {registry.group!r} registers it, or import the module first"
            )


def not_imported(folder: Path) -> str:
    """Return what to do with a Hugging Face folder that was given in place of a run."""
    run = f"runs/{folder.resolve().name}"
    command = f"regard import {shlex.quote(str(folder))} --out {shlex.quote(run)}"
    return f"{folder} is a Hugging Face folder, not a run: first `{command}`, then give {run}"


def used(folder: Path) -> bool:
    """Return whether a folder has more than data that were given in memory."""
    return folder.is_dir() and any(path.name != SOURCE for path in folder.iterdir())


def refuse_used(folder: Path) -> None:
    """Raise a UserError if a folder for a new run is not empty."""
    if used(folder):
        resume = "go on with it (--resume), or " if (folder / RECIPE).exists() else ""
        raise UserError(f"{folder} exists and is not empty: {resume}name another folder (--out)")


class MetricsLog:
    """metrics.jsonl: one line per event; on resuming, cut back to the checkpoint's length."""

    def __init__(self, folder: Path, *, keep: int = 0) -> None:
        self.path = folder / METRICS
        self.listeners: Sequence[Callable[[str, Mapping[str, Any]], None]] = ()
        try:
            # never through a link: a run folder must not reach files outside it
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            size = os.fstat(self.file).st_size
            if 0 < size < keep:
                raise UserError(
                    f"{self.path} is damaged: {size} bytes, the checkpoint expects {keep}; "
                    "delete it to continue without its history"
                )
            self.end = min(size, keep)
            os.ftruncate(self.file, self.end)  # bytes of whole lines
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None

    def log(self, event: str, **values: Any) -> None:
        """Append one line, whole or not at all; values that are not finite are written as null."""
        line = {"event": event} | {
            key: None if isinstance(value, float) and not abs(value) < float("inf") else value
            for key, value in values.items()
        }
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        try:
            written = os.pwrite(self.file, data, self.end)
            if written < len(data):  # the disk is full: writing the rest raises the reason
                os.pwrite(self.file, data[written:], self.end + written)
        except OSError as error:
            os.ftruncate(self.file, self.end)
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None
        self.end += len(data)
        for listen in self.listeners:
            listen(event, values)

    def offset(self) -> int:
        """Return the bytes written so far, flushed to disk: what a checkpoint stores."""
        os.fsync(self.file)
        return self.end

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)
