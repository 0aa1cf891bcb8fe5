"""Checkpoints: what resuming needs, written so that a kill at any moment costs nothing but time.

A checkpoint is a folder written under a temporary name, every file flushed, then renamed; its manifest holds a checksum
of every file. Loading takes the newest one that is whole; damaged ones are named and passed over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import UserError
from regard.run import read_json, read_tensors, sync, write_json, write_tensors

FOLDER, MANIFEST = "checkpoints", "checkpoint.json"


def checksum(path: Path) -> str:
    """blake2b of a file, streamed."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def save(run: Path, step: int, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any], *, keep: int = 2) -> Path:
    """Write checkpoints/step-NNNNNN with one safetensors file per group and `state`; older ones beyond `keep` go."""
    parent = run / FOLDER
    final = parent / f"step-{step:06d}"
    temporary = parent / f".{final.name}.{os.getpid()}.tmp"
    try:
        parent.mkdir(exist_ok=True)
        for left in parent.glob(".*.tmp"):  # of a process that was killed inside a save
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()
        sums = {}
        for name, group in tensors.items():
            write_tensors(temporary / f"{name}.safetensors", group)
            sums[f"{name}.safetensors"] = checksum(temporary / f"{name}.safetensors")
        write_json(temporary / MANIFEST, {"step": step, "checksums": sums, "state": state})
        sync(temporary)
        if final.exists():  # written before, by the run this one repeats
            shutil.rmtree(final)
        os.replace(temporary, final)
        sync(parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(f"cannot write checkpoint {final}: {error.strerror or error}") from error
    for old in steps(run)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def steps(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run / FOLDER).glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))


def load(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Tensors by group and the state of one checkpoint; UserError if any byte is not what was written."""
    manifest = read_json(path / MANIFEST)
    try:
        sums, state = manifest["checksums"], manifest["state"]
        for name, expected in sums.items():
            if Path(name).name != name:
                raise UserError(f"{path / MANIFEST} names a file outside its folder: {name}")
            if checksum(path / name) != expected:
                raise UserError(f"{path / name} is damaged: its checksum differs")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / MANIFEST} is damaged: {error}") from None
    except OSError as error:
        raise UserError(f"{path} is damaged: {error.strerror}") from None
    return {name.removesuffix(".safetensors"): read_tensors(path / name) for name in sums}, state


def newest(
    run: Path, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
    """The newest checkpoint that is whole, saying which damaged ones were passed over; None if there is none."""
    for path in reversed(steps(run)):
        try:
            return load(path)
        except (UserError, json.JSONDecodeError) as error:
            say(f"{error}; using the checkpoint before it")
    return None
