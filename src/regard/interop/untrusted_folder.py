"""A stranger's folder, opened as data: no file outside it, no pickle, headers before contents."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import UserError
from regard.run import WEIGHTS, check_names
from regard.tokenizers.tokenizer import read_json

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
DTYPES = ("F32", "F16", "BF16")  # as safetensors spells them; every value is exact in fp32


def inside(folder: Path, name: str) -> Path:
    """The plain file `name` in `folder`.

    One that is missing, or that a link or `..` puts elsewhere, is a UserError. The cache of Hugging
    Face's hub is known: its snapshots are links into the `blobs` beside them.
    """
    path = folder / name
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise UserError(
            f"{folder} names the file {name[:80]!r}; only files in the folder itself are read"
        )
    if not os.path.lexists(path):
        raise UserError(f"{folder} has no {name}: not a Hugging Face folder, or an incomplete one")
    try:
        home, target = folder.resolve(strict=True), path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a link to nowhere, or in a circle
        raise UserError(f"{path} cannot be read: {error}") from None
    allowed = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(target.is_relative_to(place) for place in allowed):
        raise UserError(f"{path} is a link to a file outside the folder, which is not followed")
    if not target.is_file():
        raise UserError(f"{path} is not a file")
    return path


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that still lies in its file."""

    path: Path
    file: Any  # the open safetensors file
    name: str

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse another shape or a type that fp32 cannot hold, from the header alone."""
        part = self.file.get_slice(self.name)
        if tuple(part.get_shape()) != shape:
            raise UserError(
                f"{self.path}: {self.name} has shape {tuple(part.get_shape())}, expected {shape}"
            )
        if part.get_dtype() not in DTYPES:
            raise UserError(
                f"{self.path}: {self.name} is of type {part.get_dtype()}; "
                f"one of {', '.join(DTYPES)} is read"
            )

    def read(self) -> Tensor:
        """The values, in fp32; NaN and infinity are refused."""
        try:
            tensor: Tensor = self.file.get_tensor(self.name).float()
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"{self.path} is damaged: {error}") from None
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{self.path}: {self.name} holds NaN or infinite values")
        return tensor


def open_tensors(folder: Path, stack: contextlib.ExitStack) -> dict[str, StoredTensor]:
    """Every tensor by its name, from one file or an index's shards; `stack` closes the files."""
    if os.path.lexists(folder / WEIGHTS):
        return open_file(inside(folder, WEIGHTS), stack)
    if not os.path.lexists(folder / INDEX):
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
        if pickles:
            raise UserError(
                f"{folder / pickles[0]} is an unsafe pickle, which could run code; re-save the "
                "model as safetensors: model.save_pretrained(FOLDER)"
            )
        raise UserError(f"{folder} has neither {WEIGHTS} nor {INDEX}: there are no weights to read")
    index = inside(folder, INDEX)
    shards: dict[str, set[str]] = {}
    places = read_json(index)[1].get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UserError(f"{index}: weight_map must map tensors to files")
    for tensor, shard in places.items():
        if not shard.endswith(".safetensors"):
            raise UserError(f"{index}: {shard[:80]!r} is not a .safetensors file")
        shards.setdefault(shard, set()).add(tensor)
    paths = {inside(folder, shard): names for shard, names in shards.items()}
    found: dict[str, StoredTensor] = {}
    for path, names in paths.items():
        held = open_file(path, stack)
        check_names(path, set(held), names)
        found |= held
    return found


def open_file(path: Path, stack: contextlib.ExitStack) -> dict[str, StoredTensor]:
    """The tensors of one safetensors file."""
    try:
        file = stack.enter_context(safe_open(path, framework="pt"))
        return {name: StoredTensor(path, file, name) for name in file.keys()}  # noqa: SIM118 - no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
