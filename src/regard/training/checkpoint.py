"""Checkpoints: what resuming needs, written so that a kill at any moment costs nothing but time.

A checkpoint is a folder written under a temporary name, every file flushed, then renamed; its
manifest holds a checksum of every file and of itself. Loading takes the newest one that is whole;
damaged ones are named and passed over.
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
from regard.run import read_tensors, sync, write_json, write_tensors
from regard.schemas import Checkpoint
from regard.storage import read_json

FOLDER, MANIFEST = "checkpoints", "checkpoint.json"


def checksum(path: Path) -> str:
    """blake2b of a file, streamed."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def seal(manifest: dict[str, Any]) -> str:
    """The checksum of a manifest's own contents."""
    return hashlib.blake2b(
        json.dumps(manifest, sort_keys=True).encode(), digest_size=16
    ).hexdigest()


def save(
    run: Path,
    step: int,
    tensors: dict[str, dict[str, Tensor]],
    state: dict[str, Any],
    *,
    keep: int = 2,
) -> Path:
    """Write checkpoints/step-NNNNNN, a file per group and `state`; only the newest `keep` stay."""
    parent = run / FOLDER
    final = parent / f"step-{step:06d}"
    temporary = parent / f".{final.name}.{os.getpid()}.tmp"
    try:
        parent.mkdir(exist_ok=True)
        sweep(run)
        temporary.mkdir()
        sums = {}
        for name, group in tensors.items():
            write_tensors(temporary / f"{name}.safetensors", group)
            sums[f"{name}.safetensors"] = checksum(temporary / f"{name}.safetensors")
        manifest = {"step": step, "checksums": sums, "state": state}
        write_json(temporary / MANIFEST, manifest | {"seal": seal(manifest)})
        if final.exists():  # written before, by the run this one repeats
            discard(final)
        os.replace(temporary, final)
        sync(parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot write {final}: {error.strerror or error}") from error
        raise
    for old in steps(run)[:-keep]:
        discard(old)
    return final


def discard(path: Path) -> None:
    """Remove a checkpoint; it stops being one before its files go."""
    doomed = path.with_name(f".{path.name}.old.tmp")
    os.replace(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(run: Path) -> None:
    """Remove what a process killed inside a save has left."""
    for left in (run / FOLDER).glob(".*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


def steps(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [path for path in (run / FOLDER).glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def load(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Tensors by group and the state of one checkpoint; UserError if any of it is damaged."""
    manifest = read_json(path / MANIFEST, Checkpoint)
    try:
        written = manifest.pop("seal")
        sums, state = manifest["checksums"], manifest["state"]
        if written != seal(manifest):
            raise UserError(f"{path / MANIFEST} is damaged: its checksum differs")
        for name, expected in sums.items():
            if Path(name).name != name:
                raise UserError(f"{path / MANIFEST} names a file outside its folder: {name}")
            if checksum(path / name) != expected:
                raise UserError(f"{path / name} is damaged: its checksum differs")
    except OSError as error:
        raise UserError(f"{path} is damaged: {error.strerror}: {error.filename}") from None
    return {name.removesuffix(".safetensors"): read_tensors(path / name) for name in sums}, state


def newest(
    run: Path, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
    """The newest checkpoint that is whole, damaged ones being named; None if there is none at all.

    Where all are damaged that is an error: starting over must be asked for.
    """
    found = steps(run)
    for i, path in reversed(list(enumerate(found))):
        try:
            return load(path)
        except UserError as error:
            say(f"{error}; " + (f"trying {found[i - 1].name}" if i else "there is none before it"))
    if found:
        raise UserError(
            f"every checkpoint in {run / FOLDER} is damaged; delete that folder to start over"
        )
    return None
