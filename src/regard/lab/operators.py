"""What mixes positions, as subjects of measurement: each kind of layer of deck 004's table, and
those that came after it, alone and with its projections.

They are the library's own layers. Alone, a mixer is given what its projections would give it; of a
recurrence and a convolution the matrix is the mixer, so both forms are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.attention import Place, SelfAttention, Sight
from regard.layers.bands import banded
from regard.layers.convolution import Past, Stretch
from regard.layers.hyena import Hyena
from regard.layers.linear_attention import LinearAttention
from regard.layers.masks import Causal, Window
from regard.layers.recurrent import RecurrentStack
from regard.layers.windowed import WindowedAttention

HEAD = 32  # width of a head, whatever the width of the model
KERNEL = 3  # positions of the convolution
REACH = 64  # r, positions of the window, while time is measured
ONE = ("recurrent", "convolution")  # whose matrix is the mixer: both forms are one
NEAR = 16  # the same, while layers are counted

Work = Callable[..., Tensor]
Forward = Callable[[Tensor], Tensor]  # (B, T, D) to (B, T, D)


@dataclass(frozen=True)
class Textbook:
    """What is said of a kind of layer: powers of n and d in its time, its cost in letters, steps
    that follow one another, and the longest path between two positions.
    """

    n: float
    d: float
    cost: str
    serial: str
    path: str
    layers: Callable[[int], int]  # until a position sees one so far back


def place_of(n: int, device: torch.device, r: int = REACH) -> Place:
    """Who sees whom: the past, or of it the last r."""
    mask = Causal() & Window(r)
    band = banded(
        mask,
        width=r,
        first=0,
        ahead=False,
        batch=1,
        length=n,
        device=device,
        flexible=True,
    )
    near = band if band is not None else mask.rendered(1, n, n, device)
    return Place(mask=Causal(), near=Sight(near))


class Recurrent(nn.Module):
    """An LSTM of one layer."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.stack = RecurrentStack(nn.LSTM, d, 1, 0.0)

    def forward(self, x: Tensor, place: Place) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        return self.stack(x)  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """A causal convolution of full rank, D to D."""

    def __init__(self, d: int, dilation: int = 1) -> None:
        super().__init__()
        self.past, self.out = Past(KERNEL, dilation), nn.Linear(KERNEL * d, d, bias=False)

    def forward(self, x: Tensor, place: Place) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        return self.out(self.past(x, Stretch()))  # type: ignore[no-any-return]


def layer(kind: str, d: int, n: int, number: int = 0, r: int = REACH) -> nn.Module:
    """A new layer of a kind, the `number`-th of a stack: dilations grow from layer to layer."""
    heads = max(1, d // HEAD)
    if kind == "recurrent":
        return Recurrent(d)
    if kind == "convolution":
        return Convolution(d, KERNEL**number)
    if kind == "hyena":
        mixer = Hyena(d, max_len=n)
        mixer.reset()
        return mixer
    if kind == "linear":
        return LinearAttention(d, heads)
    if kind == "window":
        return WindowedAttention(d, heads, width=r)
    return SelfAttention(d, heads)


def whole(kind: str, n: int, d: int, device: torch.device) -> tuple[Work, list[Tensor]]:
    """A layer with all that belongs to it, and an input (1, T, D)."""
    mixer, place = layer(kind, d, n).to(device), place_of(n, device)
    return lambda x: mixer(x, place), [random(device, 1, n, d)]


def alone(kind: str, n: int, d: int, device: torch.device) -> tuple[Work, list[Tensor]]:
    """What mixes positions, without projections; and its inputs."""
    mixer: Any = layer(kind, d, n).to(device)
    place = place_of(n, device)
    if kind in ONE:
        return whole(kind, n, d, device)
    if kind == "hyena":
        streams = [random(device, 1, n, d) for _ in range(mixer.order + 1)]
        return lambda *given: mixer.whole(given[-1], given), streams
    shape = (1, max(1, d // HEAD), n, min(d, HEAD))
    heads = [random(device, *shape) for _ in range(3)]
    return lambda q, k, v: mixer.mix(q, k, v, place, None, None), heads


def random(device: torch.device, *shape: int) -> Tensor:
    """An input that wants a gradient, as large as the outputs of a norm; in bf16 on a GPU."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.randn(*shape, device=device, dtype=dtype).requires_grad_()


def layers_to(kind: str, distance: int, most: int) -> int | None:
    """How many layers, one upon another, until the last position's output has a gradient at the
    input `distance` before it; None where more than `most` would be needed.
    """
    n, d, cpu = distance + 1, HEAD, torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        place = place_of(n, cpu, NEAR)
        # in double precision: a recurrence's gradient vanishes, but is not 0
        x = torch.randn(1, n, d, requires_grad=True, dtype=torch.float64)
        y: Tensor = x
        for count in range(1, most + 1):
            y = layer(kind, d, n, count - 1, NEAR).double()(y, place)  # (1, T, D)
            (slope,) = torch.autograd.grad(y[:, -1].sum(), x, retain_graph=True)
            if bool(slope[:, 0].abs().max() > 0):
                return count
    return None


def chain(kind: str, n: int) -> int:
    """How many operations follow one another in a layer over n positions: the longest path through
    the graph of its gradient, the recurrence being written out.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # in double precision: torch's fused recurrence is for single
        x = torch.randn(1, n, HEAD, requires_grad=True, dtype=torch.float64)
        y = layer(kind, HEAD, n).double()(x, place_of(n, torch.device("cpu")))
    return longest_path(y)


def longest_path(y: Tensor) -> int:
    """Operations on the longest way from a result back to what it was made of."""
    depth: dict[Any, int] = {}
    stack = [y.grad_fn]
    while stack:
        node = stack[-1]
        below = [one for one, _ in node.next_functions if one is not None]  # type: ignore[union-attr]
        missing = [one for one in below if one not in depth]
        if missing:
            stack += missing
            continue
        depth[node] = 1 + max((depth[one] for one in below), default=0)
        stack.pop()
    return depth[y.grad_fn] - 1  # the input itself is no operation


def logarithm(distance: int) -> int:
    """Layers of dilations 1, k, k², …: their sum times k - 1 is k^layers - 1."""
    return math.ceil(round(math.log(distance + 1, KERNEL), 9))


KINDS: dict[str, Textbook] = {
    "attention": Textbook(2, 1, "n² d", "1", "1", lambda n: 1),
    "recurrent": Textbook(1, 2, "n d²", "n", "n (in 1 layer)", lambda n: 1),
    "convolution": Textbook(1, 2, "k n d²", "1", "log_k n", logarithm),
    "window": Textbook(1, 1, "r n d", "1", "n / r", lambda n: math.ceil(n / (NEAR - 1))),
    "linear": Textbook(1, 1, "n d² / heads", "1", "1", lambda n: 1),
    "hyena": Textbook(1, 1, "n log n · d", "log n (in transforms)", "1", lambda n: 1),
}
