"""Training in many processes.

`torchrun` starts the processes and sets their ranks in environment variables; `joined` yields their
`ProcessGroup`, which is passed to all that needs it. Every process has all weights and computes its
part of each step; gradients are averaged (DistributedDataParallel, Li et al. 2020,
arXiv:2006.15704), so all make the same update. Only the first process writes files and messages.
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

from regard.data.batching import IGNORE, Batch
from regard.errors import UserError
from regard.run import MetricsLog
from regard.training.progress import Reporter

T = TypeVar("T")

PATIENCE = timedelta(days=7)  # the others wait while the first tokenizes or evaluates
GRACE = 2.0  # seconds that others stay after an error: a launcher ends all when one has ended


class PeerRefused(UserError):
    """An error of another process; the first process prints the message."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together, and the rank of this one.

    Collective methods must be called by all processes, in the same order. In a single process they
    return at once, without torch.distributed.
    """

    rank: int = 0
    size: int = 1
    local: int = 0  # the rank on this machine
    words: Any = None  # the group for objects on the CPU, wherever the model is

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place, and return it."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def total(self, number: int) -> int:
        """Return the sum of the numbers of all processes."""
        return self._reduce(number, "SUM")

    def agree(self, number: int) -> int:
        """Return the largest number of all processes."""
        return self._reduce(number, "MAX")

    def _reduce(self, number: int, operation: str) -> int:
        if self.size == 1:
            return number
        import torch.distributed as dist

        tensor = torch.tensor(number)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, operation), group=self.words)
        return int(tensor)

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all processes by rank; they are sent as JSON."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(mine)]), group=self.words)
        longest = int(torch.cat(sizes).max())
        parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(parts, F.pad(mine, (0, longest - len(mine))), group=self.words)
        return [
            json.loads(part[: int(size)].numpy().tobytes())
            for part, size in zip(parts, sizes, strict=True)
        ]

    def share(self, value: T) -> T:
        """Return the value of the first process."""
        return cast(T, self.exchange(value if self.first else None)[0])

    def together(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which must not communicate; if it raises in one process, all
        raise.
        """
        if self.size == 1:
            return work()
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as caught:
            error = caught
        try:
            errors = self.exchange(error and describe_error(error))
        except RuntimeError:
            if error is not None:  # more important than a lost process
                raise error from None
            raise
        if error is not None and (self.first or not isinstance(error, UserError)):
            raise error
        for rank, described in enumerate(errors):
            if described and self.first:
                raise UserError(f"process {rank} of {self.size}: {described[0]}")
            if described:
                raise PeerRefused(*described)
        return result

    def on_rank0(self, work: Callable[[], T]) -> T | None:
        """Do `work` in the first process; return its result there, and None in the others."""
        return self.together(lambda: work() if self.first else None)

    def broadcast_from_rank0(self, work: Callable[[], T]) -> T:
        """Do `work` in the first process; return its result, sent as JSON, in all of them."""
        return cast(T, self.share(self.on_rank0(work)))

    def build_then_open(self, make: Callable[[], T], find: Callable[[], T]) -> T:
        """Return the result of `make` in the first process, then that of `find` in the others."""
        made = self.on_rank0(make)
        return self.together(lambda: cast(T, made) if self.first else find())

    def spread(self, objective: nn.Module, device: torch.device) -> nn.Module:
        """Return the objective in DistributedDataParallel, which averages gradients.

        Torch changes the layout of gradients after the first one, and the rounding of a sum over
        more than two processes depends on it. So we compute a first gradient here, of an empty
        batch: then the first step after a resume has the same rounding as any other.
        """
        if self.size == 1:
            return objective
        from torch.nn.parallel import DistributedDataParallel

        known = inspect.signature(DistributedDataParallel).parameters  # renamed in torch 2.13
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {sync: False}  # buffers are tables, the same everywhere
        if device.type == "cuda":
            options["device_ids"] = [device.index]
        wrapped = DistributedDataParallel(objective, gradient_as_bucket_view=True, **options)
        batch = empty(0)
        loss, _ = wrapped(batch.ids.to(device), batch.targets.to(device), None)
        loss.backward()
        objective.zero_grad(set_to_none=True)
        return wrapped

    def reporter(self, reporter: Reporter) -> Reporter:
        """Return the reporter of this process, which is silent unless it is the first."""
        return reporter if self.first else SilentReporter()


ALONE = ProcessGroup()


def keeping(objective: nn.Module, more: bool) -> AbstractContextManager[object]:
    """Return a context in which gradients are not synchronized, if `more` batches follow."""
    if more and (no_sync := getattr(objective, "no_sync", None)):
        return cast(AbstractContextManager[object], no_sync())
    return contextlib.nullcontext()


def empty(start: int, features: tuple[int, ...] = ()) -> Batch:
    """Return a batch without targets, for a process that has no data in a step; `features` is the
    shape of a token, if it is not an id.
    """
    targets = torch.tensor([[IGNORE]])
    ids = torch.zeros(1, 2, *features, dtype=torch.uint8) if features else torch.tensor([[start]])
    return Batch(ids, targets, None, np.empty(0, dtype=np.int64), 0, 0)


def describe_error(error: BaseException) -> tuple[str, int]:
    """Return the message and the exit code of an error, for other processes."""
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    return f"{type(error).__name__}: {error}", 1


def place(environment: Mapping[str, str]) -> ProcessGroup:
    """Return the process group of the variables that torchrun sets; ALONE without them."""
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
    """Yield the group of the processes that torchrun started; ALONE without torchrun.

    A UserError inside becomes PeerRefused in all processes but the first. A lost process is a
    UserError in the others.
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
    """The reporter of other processes than the first."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def warn(self, text: str) -> None:
        pass


class NoMetrics(MetricsLog):
    """The metrics log of other processes than the first."""

    def __init__(self) -> None:
        self.end = 0

    def log(self, event: str, **values: Any) -> None:
        pass

    def offset(self) -> int:
        return 0

    def close(self) -> None:
        pass
