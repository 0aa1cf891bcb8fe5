"""The run folder: everything a trained model is, in files that any verb can take.

    RUN/
      recipe.toml     exactly what was asked, defaults filled in
      regard.json     versions, seed, hashes, device, cost, final metrics
      config.json  model.safetensors  tokenizer.json  README.md      the best model
      metrics.jsonl   one line per event
      checkpoints/    what resuming needs
      data/           the tokenised data; may be deleted, it is rebuilt from the sources

Files are written under a temporary name, flushed to disk and renamed, so that a reader sees the old file or the new
one and never half of either.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.errors import UserError
from regard.registry import family

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
RECIPE, FACTS, METRICS = "recipe.toml", "regard.json", "metrics.jsonl"


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success it is flushed and renamed to `path`, on failure removed.

    A full disk or a missing permission becomes a UserError that names the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and Infinity are refused, as JSON does not know them."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, *, most: int = 64 << 20) -> Any:
    """Read a JSON file of at most `most` bytes."""
    try:
        if path.stat().st_size > most:
            raise UserError(f"{path} is larger than {most >> 20} MB, which no {path.name} needs")
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path.parent} has no {path.name}: not a run folder, or a damaged one") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, atomically. The bytes depend on the tensors alone."""
    with replacing(path) as temporary:
        try:
            save_file({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, temporary, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def read_tensors(path: Path, expected: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Read safetensors; with `expected`, every name, shape and type must match before any data is read."""
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            if expected is not None:
                check_names(path, set(names), set(expected))
                for name in names:
                    part, want = file.get_slice(name), expected[name]
                    if list(part.get_shape()) != list(want.shape):
                        raise UserError(
                            f"{path}: {name} has shape {tuple(part.get_shape())}, expected {tuple(want.shape)}"
                        )
            return {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise UserError(f"{path.parent} has no {path.name}: not a run folder, or an unfinished one") from None
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
    """Write config.json: the family, its vocabulary size and its configuration."""
    write_json(
        folder / CONFIG,
        {"family": name, "vocab_size": model.vocab_size, "config": asdict(model.config)},
    )


def read_config(folder: Path) -> tuple[str, int, Any]:
    """Read config.json back: family name, vocabulary size, the family's validated configuration."""
    path = folder / CONFIG
    stored = read_json(path)
    try:
        name, vocab_size, options = stored["family"], stored["vocab_size"], stored["config"]
        if not (isinstance(vocab_size, int) and 0 < vocab_size < 1 << 24):
            raise ValueError(f"vocab_size is {vocab_size!r}")
        return name, vocab_size, family(name).Config(**options)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!s}") from None


def load_model(folder: Path) -> Any:
    """The best model of a run folder, in evaluation mode on the CPU.

    Sizes are checked against the file's header on the meta device before any memory is taken.
    """
    name, vocab_size, config = read_config(folder)
    cls = family(name)
    path = folder / WEIGHTS
    if not path.exists():
        raise UserError(f"{folder} has no {WEIGHTS}: training has not finished its first evaluation")
    if path.stat().st_size < 4 * vocab_size // 8:
        raise UserError(f"{path} is damaged: too small for a vocabulary of {vocab_size}")
    expected = None
    if cls.sized_by_config:
        with torch.device("meta"):
            expected = weights(cls(vocab_size, config))
    tensors = read_tensors(path, expected)
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{path}: {key} holds NaN or infinite values")
    model = cls(vocab_size, config)
    model.load_state_dict(tensors, strict=False)
    return model.eval()


def open_run(path: str | Path) -> Path:
    """The run folder at `path`, or a UserError saying what it is instead."""
    folder = Path(path)
    if not folder.exists():
        raise UserError(f"no run folder at {folder}")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; a run folder was expected")
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} has no {CONFIG}: not a run folder (regard import reads Hugging Face folders)")
    return folder


class Metrics:
    """metrics.jsonl: appended event by event, cut back to where a checkpoint stood when a run is resumed."""

    def __init__(self, folder: Path, *, keep: int = 0) -> None:
        self.path = folder / METRICS
        try:
            self.file = open(self.path, "ab")
            self.file.truncate(keep)
            self.file.seek(keep)
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None

    def log(self, event: str, **values: Any) -> None:
        """Append one line; values that are not finite are written as null."""
        line = {"event": event} | {
            key: None if isinstance(value, float) and not abs(value) < float("inf") else value
            for key, value in values.items()
        }
        try:
            self.file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self.file.flush()
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None

    def offset(self) -> int:
        """Bytes written so far, on disk: what a checkpoint remembers."""
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        """Close the file."""
        self.file.close()
