"""Memory that tensors hold: counted while work is done, and what a machine has of it.

Counting storages as they come and go is exact and the same every time, on any machine; what a
system reports of a process is neither. Work may also be done on fake tensors, which have shapes and
no numbers: then nothing is held, and the count is the same.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# oneDNN's recurrence on a CPU keeps, of every position and layer, so many numbers for each of its
# states for the way back, of which fake tensors know nothing
RECURRENT = 12


class Held(TorchDispatchMode):
    """Counts the bytes of all tensors made inside of it: `live` now, `peak` at most. What fake
    tensors hide is added, `inside` in all.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self.inside = 0
        self.known: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, Tensor):
                self.note(one)
        if func.name() == "aten::mkldnn_rnn_layer" and not made[-1].numel():
            self.note(made[-1], RECURRENT * made[0].numel() * made[0].element_size())
        return made

    def note(self, tensor: Tensor, more: int = 0) -> None:
        """A tensor exists, with so many bytes beside it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known and not more:
            return
        if key not in self.known:
            weakref.finalize(storage, self._gone, key)
        size = more or storage.nbytes()
        self.known[key] = self.known.get(key, 0) + size
        self.inside += more
        self.live += size
        self.peak = max(self.peak, self.live)

    def _gone(self, key: int) -> None:
        self.live -= self.known.pop(key)


def peak_of(work: Callable[[], object]) -> int:
    """Bytes of tensors that some work makes, at most at once."""
    held = Held()
    with held:
        work()
    return held.peak


def memory_of(device: torch.device) -> int:
    """Bytes that a device has in all; of a CPU, that this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limits = [_physical()]
    for name in LIMITS:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def _physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 62  # not known: nothing is refused
