"""Checkpoints: the state that resuming needs, safe against a kill at any moment.

A checkpoint is a folder that is written under a temporary name, flushed, then renamed; its manifest
has a checksum of every file and of itself. The newest intact checkpoint is loaded; damaged ones are
reported and skipped.
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
from regard.schemas import Checkpoint
from regard.storage import read_json, read_tensors, sync, write_json, write_tensors

FOLDER, MANIFEST = "checkpoints", "checkpoint.json"


def checksum(path: Path) -> str:
    """Return the BLAKE2b checksum of a file."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def seal(manifest: dict[str, Any]) -> str:
    """Return the checksum of a manifest."""
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def save(
    run: Path,
    step: int,
    tensors: dict[str, dict[str, Tensor]],
    state: dict[str, Any],
    *,
    keep: int = 2,
) -> Path:
    """Write checkpoints/step-NNNNNN with a file for each group of tensors and the `state`; remove
    all but the newest `keep`.
    """
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
        if final.exists():  # left by an earlier session that went further
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
    """Remove a checkpoint; it is renamed first, so that it is never seen without some files."""
    doomed = path.with_name(f".{path.name}.old.tmp")
    os.replace(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(run: Path) -> None:
    """Remove temporary folders of a process that was killed while saving."""
    for left in (run / FOLDER).glob(".*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


def steps(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    paths = [path for path in (run / FOLDER).glob("step-*") if path.name[5:].isdigit()]
    return sorted(paths, key=lambda path: int(path.name[5:]))


def load(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return the tensors by group and the state of a checkpoint; damage is a UserError."""
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
    """Return the newest intact checkpoint; None if there is none.

    `say` is called with the damage of others. If all are damaged, that is a UserError.
    """
    paths = steps(run)
    for i, path in reversed(list(enumerate(paths))):
        try:
            return load(path)
        except UserError as error:
            say(f"{error}; " + (f"trying {paths[i - 1].name}" if i else "there is none before it"))
    if paths:
        raise UserError(
            f"every checkpoint in {run / FOLDER} is damaged; delete that folder to start over"
        )
    return None
