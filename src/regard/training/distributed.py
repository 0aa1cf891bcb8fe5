"""Training in many processes: who this one is, and the few words they have for one another.

`torchrun` starts the processes and tells each its place in environment variables; `joined` makes
them a group and gives a `ProcessGroup`, which is passed to whatever needs it. Every process holds
all the weights and computes its part of each step; gradients are summed (DistributedDataParallel,
Li et al. 2020, arXiv:2006.15704), so all make the same update. The first process alone writes and
speaks.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batching import Batch
from regard.data.collate import IGNORE
from regard.errors import UserError
from regard.run import Metrics
from regard.training.progress import Reporter

T = TypeVar("T")

PATIENCE = timedelta(days=7)  # that the others wait while the first tokenises or measures
GRACE = 2.0  # seconds others stay after a refusal: a launcher that misses one ends all at once


class PeerRefused(UserError):
    """All processes refuse; the first says why."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together and this one's place among them.

    Methods that speak of all processes must be called by all of them, in the same order. Alone,
    they return at once and torch.distributed is not touched.
    """

    rank: int = 0
    size: int = 1
    local: int = 0  # its number on its machine
    words: Any = None  # the group for numbers and words, on the CPU wherever the model is

    @property
    def first(self) -> bool:
        """Is this the process that writes and speaks?"""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The tensor, summed in place over all processes."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def total(self, number: int) -> int:
        """The sum of every process's number."""
        return self._reduced(number, "SUM")

    def agree(self, number: int) -> int:
        """The largest of every process's number: 0 where nobody asks for anything."""
        return self._reduced(number, "MAX")

    def _reduced(self, number: int, how: str) -> int:
        if self.size == 1:
            return number
        import torch.distributed as dist

        held = torch.tensor(number)
        dist.all_reduce(held, getattr(dist.ReduceOp, how), group=self.words)
        return int(held)

    def exchange(self, value: Any) -> list[Any]:
        """What every process gave, in the order of their ranks, as JSON carries it."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(mine)]), group=self.words)
        longest = int(torch.cat(sizes).max())
        parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(parts, F.pad(mine, (0, longest - len(mine))), group=self.words)
        whole = zip(parts, sizes, strict=True)
        return [json.loads(part[: int(size)].numpy().tobytes()) for part, size in whole]

    def share(self, value: T) -> T:
        """The first process's value."""
        return cast(T, self.exchange(value if self.first else None)[0])

    def together(self, work: Callable[[], T]) -> T:
        """Do `work` in every process, without a word between them; what one refuses, all refuse."""
        if self.size == 1:
            return work()
        error: BaseException | None = None
        try:
            found = work()
        except BaseException as caught:
            error = caught
        try:
            refusals = self.exchange(error and refusal(error))
        except RuntimeError:
            if error is not None:  # which matters more than that others are gone
                raise error from None
            raise
        if error is not None and (self.first or not isinstance(error, UserError)):
            raise error
        for rank, refused in enumerate(refusals):
            if refused and self.first:
                raise UserError(f"process {rank} of {self.size}: {refused[0]}")
            if refused:
                raise PeerRefused(*refused)
        return found

    def on_rank0(self, work: Callable[[], T]) -> T | None:
        """The first process does `work`, the others wait: None. What it refuses, all refuse."""
        return self.together(lambda: work() if self.first else None)

    def broadcast_from_rank0(self, work: Callable[[], T]) -> T:
        """What `work` gives the first process, in all of them, as JSON carries it."""
        return cast(T, self.share(self.on_rank0(work)))

    def build_then_open(self, make: Callable[[], T], find: Callable[[], T]) -> T:
        """What the first process makes and then, when it is there, the others find."""
        made = self.on_rank0(make)
        return self.together(lambda: cast(T, made) if self.first else find())

    def spread(self, objective: nn.Module, device: torch.device) -> nn.Module:
        """The objective, its gradient being the mean over all processes and the same in each.

        Torch lays the gradients out anew after the first of them, and the rounding of a sum over
        more than two processes depends on the layout. So a first one is taken here, of nothing:
        then every step is alike, and the one after a resume no exception.
        """
        if self.size == 1:
            return objective
        from torch.nn.parallel import DistributedDataParallel

        known = inspect.signature(DistributedDataParallel).parameters  # a name of torch 2.13 on
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {sync: False}  # buffers are tables, the same everywhere
        if device.type == "cuda":
            options["device_ids"] = [device.index]
        found = DistributedDataParallel(objective, gradient_as_bucket_view=True, **options)
        nothing = empty(0)
        loss, _ = found(nothing.ids.to(device), nothing.targets.to(device), None)
        loss.backward()
        objective.zero_grad(set_to_none=True)
        return found

    def reporter(self, reporter: Reporter) -> Reporter:
        """Who is told in this process."""
        return reporter if self.first else SilentReporter()


ALONE = ProcessGroup()


def keeping(objective: nn.Module, more: bool) -> AbstractContextManager[object]:
    """While `more` of a step is to come, a gradient stays in its process."""
    if more and (no_sync := getattr(objective, "no_sync", None)):
        return cast(AbstractContextManager[object], no_sync())
    return contextlib.nullcontext()


def empty(start: int, features: tuple[int, ...] = ()) -> Batch:
    """Return a batch without targets, for a process that has no part in a step but in its
    gradient; `features` is the shape of a token that is no id.
    """
    targets = torch.tensor([[IGNORE]])
    ids = torch.zeros(1, 2, *features, dtype=torch.uint8) if features else torch.tensor([[start]])
    return Batch(ids, targets, None, np.empty(0, dtype=np.int64), 0, 0)


def refusal(error: BaseException) -> tuple[str, int]:
    """What the others are told, and the code they exit with."""
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    return f"{type(error).__name__}: {error}", 1


def place(environment: Mapping[str, str]) -> ProcessGroup:
    """This process's place, from the variables that torchrun sets; ALONE where there are none."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if environment.get("WORLD_SIZE", "1") == "1":
        return ALONE
    missing = [name for name in names if name not in environment]
    if missing:
        raise UserError(
            f"WORLD_SIZE is {environment['WORLD_SIZE']} but {', '.join(missing)} is not set: "
            "start many processes with torchrun, or unset WORLD_SIZE"
        )
    try:
        rank, size, local = (int(environment[name]) for name in names[:3])
    except ValueError:
        given = ", ".join(f"{name}={environment[name]}" for name in names[:3])
        raise UserError(f"RANK, WORLD_SIZE and LOCAL_RANK must be numbers, got {given}") from None
    if not 0 <= rank < size:
        raise UserError(f"RANK must be from 0 to WORLD_SIZE - 1, got {rank} of {size}")
    return ProcessGroup(rank, size, local)


@contextlib.contextmanager
def joined(environment: Mapping[str, str] = os.environ) -> Iterator[ProcessGroup]:
    """The processes that torchrun started as one group, for a while; ALONE where it started none.

    What is refused inside is for the first process to say: in the others it is Told. When one of
    them is gone, whoever notices leaves with a UserError.
    """
    world = place(environment)
    if world.size == 1:
        yield world
        return
    import torch.distributed as dist

    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        yield replace(world, words=dist.new_group(backend="gloo", timeout=PATIENCE))
    except UserError as error:
        if world.first:
            raise
        time.sleep(GRACE)
        raise PeerRefused(str(error), error.exit_code) from None
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        reason = str(error).strip().splitlines()[0].partition("] ")
        raise UserError(
            f"process {world.rank} of {world.size} has lost another, and stops "
            f"({(reason[2] or reason[0]).partition('. ')[0]}). The newest checkpoint stays: "
            "the same command with --resume goes on from it"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


class SilentReporter(Reporter):
    """What the other processes say: nothing."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def warn(self, text: str) -> None:
        """Nothing: the first process warns of the same."""


class NoMetrics(Metrics):
    """What the other processes log: nothing."""

    def __init__(self) -> None:
        self.end = 0

    def log(self, event: str, **values: Any) -> None:
        """Nothing: the first process logs it."""

    def offset(self) -> int:
        """Nothing is written."""
        return 0

    def close(self) -> None:
        """There is nothing to close."""
