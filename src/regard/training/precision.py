"""Device, precision and determinism of training."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch

from regard.errors import UserError
from regard.recipe import TrainRecipe
from regard.training.distributed import ALONE, ProcessGroup


def choose_device(name: str, world: ProcessGroup = ALONE) -> torch.device:
    """Return the device of that name; `auto` is a GPU if there is one. A missing GPU is an error.
    Each process of a group has the GPU of its local rank.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(
            f"device: {name!r} is not a device; use auto, cpu, cuda or cuda:1"
        ) from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device: {name!r} is not supported; use auto, cpu, cuda or cuda:1")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if world.size > 1 and device.index is not None:
            raise UserError(
                f"device: {name} is one GPU, but {world.size} processes train; use cuda or "
                "auto, and each takes its own"
            )
        if world.size > 1:
            device = torch.device("cuda", world.local)
        if (device.index or 0) >= count:
            raise UserError(
                f"device: {device} asked for, but this machine has {count} CUDA devices"
            )
    return device


def idle(device: torch.device, world: ProcessGroup = ALONE) -> str:
    """Return how to use all GPUs, if only one of several is used; otherwise ""."""
    count = torch.cuda.device_count()
    if device.type != "cuda" or device.index is not None or count < 2 or world.size > 1:
        return ""
    return (
        f"one of this machine's {count} GPUs is used; for all of them: "
        f"torchrun --nproc-per-node {count} -m regard train, and the same arguments"
    )


def choose_precision(recipe: TrainRecipe, device: torch.device) -> str:
    """Return fp32, bf16 (autocast, GPU only) or fp64 (for exact checks)."""
    if recipe.precision != "auto":
        if recipe.precision == "bf16" and device.type != "cuda":
            raise UserError("train.precision: bf16 is for a GPU; this run is on the CPU, use fp32")
        return recipe.precision
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context manager for forward passes."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()


@contextlib.contextmanager
def settings(recipe: TrainRecipe, device: torch.device) -> Iterator[None]:
    """Set global options of torch for a run, and restore them afterwards."""
    before = torch.are_deterministic_algorithms_enabled()
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        if device.type == "cuda":
            exact = recipe.precision == "fp32"  # otherwise TF32 is allowed
            torch.set_float32_matmul_precision("highest" if exact else "high")
            torch.backends.cudnn.allow_tf32 = not exact  # convolutions and recurrences
            if recipe.deterministic:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                torch.use_deterministic_algorithms(True)
        # make it the current device, so that nothing is allocated on another GPU
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn
