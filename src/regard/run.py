"""The run folder: everything a trained model is, in files that any verb can take.

    RUN/
      recipe.toml     exactly what was asked, defaults filled in
      regard.json     versions, seed, hashes, device, cost, final metrics
      config.json  model.safetensors  tokenizer.json  README.md      the best model; of images,
                      preprocessor_config.json in place of the tokenizer
      metrics.jsonl   one line per event
      checkpoints/    what resuming needs
      data/           the tokenised data; may be deleted, it is rebuilt from the sources

Files are written under a temporary name, flushed to disk and renamed, so that a reader sees the old
file or the new one and never half of either.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.errors import UsageError, UserError, did_you_mean, quoted
from regard.recipe import check
from regard.registry import TASKS, family
from regard.schemas import Config, Event, RunMetadata
from regard.storage import checked, read_json, read_lines, regular

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
RECIPE, FACTS, METRICS = "recipe.toml", "regard.json", "metrics.jsonl"
FORBIDDEN = "forbidden.safetensors"
PREPROCESSOR = "preprocessor_config.json"  # in place of a tokenizer: what images become
SOURCE_TOKENIZER = "source_tokenizer.json"  # of sources that have words of their own
DIGEST = "regard.blake2b"  # in a file's metadata: the digest of all its tensors
FOREIGN = {"model_type", "architectures"}  # keys of a Hugging Face config.json
TABLES = 256 << 20  # bytes of tables computed from a configuration that no file has to account for


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success flushed and renamed to `path`, else removed.

    A full disk or a missing permission becomes a UserError that names the file.
    """
    temporary = path.with_name(
        f".{path.name}.{os.getpid()}.tmp"
    )  # what a kill leaves, `sweep` finds
    try:
        temporary.touch()
        mode = stat.S_IMODE(temporary.stat().st_mode)  # as the umask has it; some writers do not
        yield temporary
        os.chmod(temporary, mode)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what processes killed inside a write have left in a folder."""
    for pattern in (".*.tmp", ".*.part"):
        for left in folder.glob(pattern):
            if not left.is_dir():
                left.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and Infinity are refused, as JSON does not know them."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_metadata(run: Path) -> dict[str, Any]:
    """What regard.json says; nothing where there is none."""
    path = run / FACTS
    found: dict[str, Any] = read_json(path, RunMetadata) if path.exists() else {}
    return found


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors as safetensors, atomically, with their digest; bytes depend on them alone.

    Metadata of the caller's replaces the digest, for readers that want their own.
    """
    held = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    if metadata is None:
        metadata = {DIGEST: digest(held)}
    with replacing(path) as temporary:
        try:
            save_file(held, temporary, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def digest(tensors: dict[str, Tensor]) -> str:
    """blake2b over names, types, shapes and bytes of CPU tensors."""
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def read_tensors(path: Path, expected: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Read safetensors; with `expected`, names, shapes and kinds must match before data is read.

    Where the file carries a digest, its tensors must have it.
    """
    try:
        regular(path)
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            if expected is not None:
                check_names(path, set(names), set(expected))
                for name in names:
                    check_shape(path, name, file.get_slice(name), expected[name])
            found = {name: file.get_tensor(name) for name in names}
            written = (file.metadata() or {}).get(DIGEST)
        if written is not None and written != digest(found):
            raise UserError(f"{path} is damaged: its checksum differs")
        return found
    except FileNotFoundError:
        raise UserError(
            f"{path.parent} has no {path.name}: not a run folder, or an unfinished one"
        ) from None
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged: {error}") from None


def check_names(path: Path, found: set[str], expected: set[str]) -> None:
    """Refuse a file with tensors missing or left over."""
    for names, what in ((expected - found, "lacks"), (found - expected, "has unknown")):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (" …" if len(names) > 3 else "")
            raise UserError(f"{path} {what} {shown} ({len(names)} in all)")


def check_shape(path: Path, name: str, part: Any, want: Tensor) -> None:
    """Refuse a tensor of another shape, or integers for numbers."""
    shape = tuple(part.get_shape())
    if shape != tuple(want.shape):
        raise UserError(f"{path}: {name} has shape {shape}, expected {tuple(want.shape)}")
    kind = str(part.get_dtype())
    if (kind in ("F16", "BF16", "F32", "F64")) != want.is_floating_point():
        raise UserError(f"{path}: {name} has type {kind}, expected {want.dtype}")


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that make up a model, a tied one once."""
    seen: set[int] = set()
    found = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def write_config(folder: Path, name: str, model: Any) -> None:
    """Write config.json: task and family, its vocabulary size and its configuration."""
    write_json(
        folder / CONFIG,
        {
            "task": model.task,
            "family": name,
            **({"tokens": model.tokens} if getattr(model, "tokens", "") else {}),
            "vocab_size": model.vocab_size,
            "config": asdict(model.config),
        },
    )


def read_config(folder: Path) -> tuple[str, int, Any]:
    """Read config.json back: family name, vocabulary size, the family's validated configuration."""
    return described(folder)[1:]


def described(folder: Path) -> tuple[str, str, int, Any]:
    """All of config.json: the task, then what `read_config` gives."""
    path = folder / CONFIG
    stored = read_json(path, dict[str, Any])
    if "family" not in stored and FOREIGN & stored.keys():
        raise UserError(not_imported(folder))
    checked(path, stored, Config)
    task, name = stored.get("task", "next"), stored["family"]
    try:
        if task not in TASKS:
            raise UsageError(f"task: {did_you_mean(task, list(TASKS))}, got {quoted(task)}")
        cls = family(name, task, stored.get("tokens", ""))
        return task, name, stored["vocab_size"], check("config", cls.Config, stored["config"])
    except UsageError as error:
        raise UserError(f"{path} is damaged: {error}") from None


def not_imported(folder: Path) -> str:
    """What to do with a Hugging Face folder that was given in place of a run."""
    run = f"runs/{folder.resolve().name}"
    command = f"regard import {shlex.quote(str(folder))} --out {shlex.quote(run)}"
    return f"{folder} is a Hugging Face folder, not a run: first `{command}`, then give {run}"


def load_model(folder: Path) -> Any:
    """The best model of a run folder, in evaluation mode on the CPU.

    Sizes are checked against the file's header on the meta device before any memory is taken.
    """
    task, name, vocab_size, config = described(folder)
    cls = family(name, task, read_json(folder / CONFIG, Config).get("tokens", ""))
    path = folder / WEIGHTS
    if not path.exists():
        raise UserError(f"{folder} has no {WEIGHTS}: training has not come to its first evaluation")
    small = UserError(f"{path} is damaged: too small for what {CONFIG} says")
    size = regular(path)
    if tensors_in(path) < getattr(config, "n_layers", 0):
        raise small
    expected = blank(folder, cls, vocab_size, config)
    if size < max(tensor.numel() for tensor in expected.values()):
        raise small
    tensors = read_tensors(path, expected if cls.sized_by_config else None)
    check_names(path, set(tensors), set(expected))
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{path}: {key} holds NaN or infinite values")
        kinds = (tensor.dim(), tensor.is_floating_point())
        if kinds != (expected[key].dim(), expected[key].is_floating_point()):
            raise UserError(
                f"{path}: {key} is {tensor.dtype} {tuple(tensor.shape)}: it does not fit"
            )
    model = cls(vocab_size, config)
    try:
        model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        said = str(error).splitlines()[-1].strip()
        raise UserError(f"{path} does not fit {CONFIG}: {said}") from None
    return model.eval()


def tensors_in(path: Path) -> int:
    """How many tensors a safetensors file says it holds."""
    try:
        with safe_open(path, framework="pt") as file:
            return len(file.keys())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def blank(folder: Path, cls: Any, vocab_size: int, config: Any) -> dict[str, Tensor]:
    """The tensors a model will have, on the meta device; tables beyond measure are refused."""
    try:
        with torch.device("meta"):
            model = cls(vocab_size, config)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{folder / CONFIG} is damaged: {error}") from None
    found = weights(model)
    size = sum(b.numel() * b.element_size() for n, b in model.named_buffers() if n not in found)
    if size > TABLES:
        raise UserError(f"{folder / CONFIG}: max_len would take {size >> 20:,} MB of tables")
    return found


def open_run(path: str | Path) -> Path:
    """The run folder at `path`, or a UserError saying what it is instead."""
    folder = Path(path)
    if not folder.exists():
        raise UserError(f"no run folder at {folder}")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; a run folder was expected")
    if not (folder / CONFIG).exists():
        raise UserError(
            f"{folder} has no {CONFIG}: not a run folder (regard import reads Hugging Face folders)"
        )
    return folder


def validations(run: Path) -> Iterator[tuple[float, float]]:
    """Seconds and loss of each validation in metrics.jsonl; infinite losses are left out."""
    for event in read_lines(run / METRICS, Event):
        seconds, nats = event.get("seconds"), event.get("nats_per_symbol")
        if event["event"] == "valid" and seconds is not None and nats is not None:
            yield float(seconds), float(nats)


class Metrics:
    """metrics.jsonl: appended event by event, cut back to where a checkpoint stood on resuming."""

    def __init__(self, folder: Path, *, keep: int = 0) -> None:
        self.path = folder / METRICS
        try:
            # never through a link: a run folder must not reach files outside it
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            size = os.fstat(self.file).st_size
            if 0 < size < keep:
                raise UserError(
                    f"{self.path} is damaged: {size} bytes, the checkpoint remembers {keep}; "
                    "delete it to go on without its history"
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
            if written < len(data):  # the disk is full: the rest says why
                os.pwrite(self.file, data[written:], self.end + written)
        except OSError as error:
            os.ftruncate(self.file, self.end)
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None
        self.end += len(data)

    def offset(self) -> int:
        """Bytes written so far, on disk: what a checkpoint remembers."""
        os.fsync(self.file)
        return self.end

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)
