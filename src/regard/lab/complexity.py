"""What mixes positions, as subjects of measurement: each kind of layer of deck 004's table, and
those that came after it, alone and with its projections.

They are the library's own layers. Alone, a mixer is given what its projections would give it; of a
recurrence and a convolution the matrix is the mixer, so both forms are one.

The complexity table of deck 004, measured: what each kind of layer costs on this machine.

Table 1 of Vaswani et al. 2017 (arXiv:1706.03762) says what a layer costs in letters. Here layers
are timed against the length n and the width d, alone and with their projections, their memory is
counted, and powers are fitted and put beside the table; operations that follow one another are
counted in the graph of the gradient, and layers are put one upon another until the gradient of the
last position reaches the first. Hyena (Poli et al. 2023) and linear attention (Katharopoulos et al.
2020) join the four kinds of the table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.lab.curve_fit import Box, Exponent, crossing, exponent, once, quotient, timed
from regard.lab.result import ABOVE, Claim, Options, Result
from regard.layers.attention import AttentionContext, MaskAndBias, SelfAttention, Tap, attend
from regard.layers.convolution import ConvolutionContext, PastWindow
from regard.layers.hyena import Hyena
from regard.layers.linear_attention import LinearAttention
from regard.layers.masks import Causal, Window
from regard.layers.recurrent import RecurrentStack
from regard.layers.sliding_window import banded
from regard.layers.windowed_attention import WindowedAttention
from regard.look.page import Heatmap, Lines, Table, Text
from regard.training.precision import choose_device
from regard.training.throughput import peak_of

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


def place_of(n: int, device: torch.device, r: int = REACH) -> AttentionContext:
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
    return AttentionContext(mask=Causal(), near=MaskAndBias(near))


class Recurrent(nn.Module):
    """An LSTM of one layer."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.stack = RecurrentStack(nn.LSTM, d, 1, 0.0)

    def forward(self, x: Tensor, place: AttentionContext) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        return self.stack(x)  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """A causal convolution of full rank, D to D."""

    def __init__(self, d: int, dilation: int = 1) -> None:
        super().__init__()
        self.past, self.out = PastWindow(KERNEL, dilation), nn.Linear(KERNEL * d, d, bias=False)

    def forward(self, x: Tensor, place: AttentionContext) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        return self.out(self.past(x, ConvolutionContext()))  # type: ignore[no-any-return]


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


FORMS = {"alone": alone, "whole": whole}
# What is claimed of exponents beforehand: of n alone, of d, of memory.
SQUARE, LINEAR, NEARLY = (1.8, 2.2), (0.8, 1.15), (0.8, 1.3)
WIDTH = {1: (0.6, 1.3), 2: (1.4, 2.3)}  # powers of d, by what the table says
FITTED = 4  # of the sizes, the largest, are fitted: below, what it costs to begin counts too
EXPLICIT = "attention, weights kept"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    lengths: Sequence[int]
    widths: Sequence[int]
    width: int  # while lengths vary
    length: int  # while widths vary
    box: Box
    short: tuple[int, int] = (64, 512)  # n far below d
    chains: Sequence[int] = (16, 32, 64, 128)
    distances: Sequence[int] = (8, 16, 32, 64, 128)


TURNS = 2  # in which all sizes are timed
LARGE = Plan(
    lengths=(512, 1024, 2048, 4096, 8192, 16_384),
    widths=(64, 128, 256, 512, 1024),
    width=128,
    length=1024,
    box=Box(1.0),
)
CUDA = Plan(
    lengths=(4096, 8192, 16_384, 32_768, 65_536, 131_072),
    widths=(128, 256, 512, 1024, 2048),
    width=256,
    length=8192,
    box=Box(1.0),
)
SMALL = Plan(
    lengths=(256, 512, 1024, 2048),
    widths=(64, 128, 256),
    width=64,
    length=256,
    box=Box(0.05, 3, 10),
    chains=(8, 16, 32),
    distances=(8, 16, 32),
)


@dataclass
class Found:
    """What was measured: seconds by repeat and bytes, by (kind, form) and size."""

    device: str
    by_length: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)
    by_width: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)
    memory: dict[str, list[int]] = field(default_factory=dict)  # bytes, alone, by length
    chains: dict[str, list[int]] = field(default_factory=dict)
    layers: dict[str, list[int | None]] = field(default_factory=dict)
    short: dict[str, list[float]] = field(default_factory=dict)

    def medians(self, kind: str, form: str) -> list[float]:
        """Seconds by length."""
        return [statistics.median(row) for row in self.by_length[kind, form]]


def complexity(options: Options) -> Result:
    """The experiment, on a GPU where there is one."""
    device = choose_device("auto")
    plan = SMALL if options.quick else CUDA if device.type == "cuda" else LARGE
    return report(measure(plan, device, options), plan, options.seed, short=options.quick)


def measure(plan: Plan, device: torch.device, options: Options) -> Found:
    """All of it, kinds in turns, so that a disturbance is not one kind's alone, and all sizes
    `TURNS` times, so that it is not one size's alone either.
    """
    found = Found(
        str(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    )
    sizes = [(n, plan.width) for n in plan.lengths] + [(plan.length, d) for d in plan.widths]
    work = options.work(float(TURNS * sum(n * d for n, d in sizes)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        for _ in range(TURNS):
            for place, (n, d) in enumerate(sizes):
                if place < len(plan.lengths):
                    time_kinds(found.by_length, place, (n, d), plan.box, device)
                else:
                    time_kinds(found.by_width, place - len(plan.lengths), (n, d), plan.box, device)
                work.add("complexity", n * d)
            for kind in ("attention", "recurrent"):
                times = timed(*whole(kind, *plan.short, device), plan.box)
                found.short.setdefault(kind, []).extend(times)
        for n in plan.lengths:
            for kind in KINDS:
                held = bytes_of(*FORMS["alone"](kind, n, plan.width, device))
                found.memory.setdefault(kind, []).append(held)
            found.memory.setdefault(EXPLICIT, []).append(explicit_bytes(n, plan.width, device))
    for kind in KINDS:
        found.chains[kind] = [chain(kind, n) for n in plan.chains]
        found.layers[kind] = [layers_to(kind, n, 2 + n // (NEAR - 1)) for n in plan.distances]
    return found


def time_kinds(
    table: dict[tuple[str, str], list[list[float]]],
    place: int,
    size: tuple[int, int],
    box: Box,
    device: torch.device,
) -> None:
    """Add the seconds that every kind takes at a size (n, d) to row `place` of the table."""
    for kind in KINDS:
        for form, make in FORMS.items():
            rows = table.setdefault((kind, form), [])
            if len(rows) == place:
                rows.append([])
            if form == "whole" and kind in ONE:
                rows[place] = table[kind, "alone"][place]
                continue
            rows[place].extend(timed(*make(kind, *size, device), box))


def bytes_of(job: Work, inputs: list[Tensor]) -> int:
    """Of all tensors that forward and backward make, at most at once."""
    return peak_of(lambda: once(job, inputs))


def explicit_bytes(n: int, d: int, device: torch.device) -> int:
    """The same of attention that keeps its weights, without computing them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        heads = [random(device, 1, 1, n, d) for _ in range(3)]
        return bytes_of(
            lambda q, k, v: attend(q, k, v, Causal(), tap=Tap(["weights"])),
            heads,
        )


def fits(
    rows: Mapping[tuple[str, str], list[list[float]]], sizes: Sequence[int], seed: int
) -> dict[tuple[str, str], Exponent]:
    """The power of each curve, over its largest sizes."""
    return {key: exponent(sizes[-FITTED:], costs[-FITTED:], seed) for key, costs in rows.items()}


QUESTION = (
    "Deck 004 puts kinds of layers side by side: what a layer costs for n positions of width "
    "d, how many operations must follow one another, and through how many layers two "
    "positions meet. Does this machine agree, and from which length on is what cheaper?"
)
MADE = (
    "How it is made. Layers are the library's own, one sequence at a time, forward and "
    f"backward, heads {HEAD} wide, windows of {REACH}, convolutions of three positions. Alone "
    "means: queries, keys and values, or Hyena's streams, are given; of a recurrence and a "
    "convolution the matrix is the mixer. Times are medians of repeats; powers are medians of "
    f"the slopes between all pairs of the {FITTED} largest sizes (Theil and Sen), so that a "
    "disturbed measurement moves little. Memory is that of all tensors, counted as they come "
    "and go: what a fused kernel needs inside of itself is not among them. Operations that "
    "follow one another are those of the longest path through the graph of the gradient, a "
    f"transform being one of them. Layers are put one upon another, windows of {NEAR}, "
    "dilations 1, 3, 9, …, until the gradient at the first position is not 0."
)


def report(found: Found, plan: Plan, seed: int, *, short: bool = False) -> Result:
    """Tables, figures and claims."""
    in_n = fits(found.by_length, plan.lengths, seed)
    in_d = fits(found.by_width, plan.widths, seed)
    held = {
        kind: exponent(plan.lengths[-FITTED:], [[float(b)] for b in row[-FITTED:]])
        for kind, row in found.memory.items()
    }
    return Result(
        title="What each kind of layer costs",
        question=QUESTION,
        reading=(
            f"Each line is a kind of layer with its projections, {plan.width} wide, on "
            f"{found.device}: a line twice as steep costs four times as much for twice the length "
            "where the other costs twice as much. Where two lines cross, the one that is less "
            "steep becomes the cheaper."
        ),
        readings=[
            "What mixes positions, alone.",
            "Memory of the same: fused attention keeps no weights, and is no steeper than others.",
        ],
        claims=claims(found, plan, in_n, in_d, held, short=short),
        tables=tables(found, plan, in_n, in_d, held),
        figures=[
            times(found, plan, "whole", "with projections"),
            times(found, plan, "alone", "alone"),
            Lines(
                [
                    (kind, [float(n) for n in plan.lengths], [b / 2**20 for b in row])
                    for kind, row in found.memory.items()
                ],
                x_label="n, positions",
                y_label="MB of tensors",
                title="Memory of forward and backward, alone",
                log_x=True,
                log_y=True,
                x_ticks=[float(n) for n in plan.lengths],
            ),
        ],
        panels=[path_map(found, plan), Text(MADE)],
    )


def times(found: Found, plan: Plan, form: str, said: str) -> Lines:
    """Milliseconds against n, with what the middle 80% of repeats took."""
    xs = [float(n) for n in plan.lengths]
    bands = {}
    for kind in KINDS:
        rows = [sorted(row) for row in found.by_length[kind, form]]
        cut = [(row[len(row) // 10], row[-1 - len(row) // 10]) for row in rows]
        bands[kind] = ([1e3 * low for low, _ in cut], [1e3 * high for _, high in cut])
    return Lines(
        [(kind, xs, [1e3 * t for t in found.medians(kind, form)]) for kind in KINDS],
        x_label="n, positions",
        y_label="milliseconds",
        title=f"Time of forward and backward, {said}",
        log_x=True,
        log_y=True,
        bands=bands,
        x_ticks=xs,
    )


def tables(
    found: Found,
    plan: Plan,
    in_n: Mapping[tuple[str, str], Exponent],
    in_d: Mapping[tuple[str, str], Exponent],
    held: Mapping[str, Exponent],
) -> list[Table]:
    """Powers beside the table's, paths beside the table's, times, crossings."""
    powers = [
        [
            kind,
            said.cost,
            in_n[kind, "alone"],
            in_n[kind, "whole"],
            in_d[kind, "alone"],
            in_d[kind, "whole"],
            held[kind],
        ]
        for kind, said in KINDS.items()
    ]
    columns = ["layer", "textbook", "n, alone", "n, whole", "d, alone", "d, whole", "memory in n"]
    far = max(plan.distances)
    paths = [
        [
            kind,
            said.serial,
            found.chains[kind][0],
            found.chains[kind][-1],
            said.path,
            found.layers[kind][-1],
        ]
        for kind, said in KINDS.items()
    ]
    few, many = plan.chains[0], plan.chains[-1]
    steps = ["layer", "in a row, textbook", f"at n = {few}", f"at n = {many}"]
    steps += ["path, textbook", f"layers to reach {far} back"]
    rows = [[kind, *(f"{1e3 * t:.3g}" for t in found.medians(kind, "whole"))] for kind in KINDS]
    crossings = [[kind, *(crossed(found, plan, kind, form) for form in FORMS)] for kind in KINDS]
    return [
        Table(columns, [list(map(str, row)) for row in powers], title="Powers, 95% intervals"),
        Table(steps, [list(map(str, row)) for row in paths], title="Steps and paths"),
        Table(
            ["layer", *(f"n = {n:,}" for n in plan.lengths)],
            rows,
            title=f"Milliseconds with projections, d = {plan.width}, {found.device}",
        ),
        Table(
            ["layer", "alone", "with projections"],
            [row for row in crossings if row[0] != "attention"],
            title="The n from which a layer is faster than attention",
        ),
    ]


def crossed(found: Found, plan: Plan, kind: str, form: str) -> str:
    """From which n a kind is faster than attention, in words."""
    at = crossing(plan.lengths, found.medians(kind, form), found.medians("attention", form))
    if at is None:
        return f"not up to {plan.lengths[-1]:,}"
    return f"at {plan.lengths[0]:,} already" if at == plan.lengths[0] else f"{at:,.0f}"


def path_map(found: Found, plan: Plan) -> Heatmap:
    """Layers until the gradient reaches, by distance."""
    import numpy as np

    values = np.array([[float(x or np.nan) for x in found.layers[kind]] for kind in KINDS])
    columns = [str(n) for n in plan.distances]
    title = "Layers until the gradient reaches, distances across"
    return Heatmap(values, list(KINDS), columns, title=title, unit="layers")


def claims(
    found: Found,
    plan: Plan,
    in_n: Mapping[tuple[str, str], Exponent],
    in_d: Mapping[tuple[str, str], Exponent],
    held: Mapping[str, Exponent],
    *,
    short: bool = False,
) -> list[Claim]:
    """What the table says, each with its tolerance; `short`: of small sizes."""
    made = []
    for kind, said in KINDS.items():
        bounds = SQUARE if said.n == 2 else NEARLY if kind == "hyena" else LINEAR
        made.append(power(f"time of {kind}, in n", in_n[kind, "alone"], bounds, short=short))
    for kind, said in KINDS.items():
        bounds = WIDTH[int(said.d)]
        made.append(power(f"time of {kind}, in d", in_d[kind, "alone"], bounds, short=short))
    made.append(power("memory of fused attention, in n", held["attention"], LINEAR))
    made.append(power("memory of weights that are kept, in n", held[EXPLICIT], SQUARE))
    made.append(steps_claim(found, plan))
    made += [path_claim(found, plan, kind) for kind in KINDS]
    made.append(cheaper(found, plan))
    for kind in ("window", "linear", "hyena"):
        ours, theirs = (found.by_length[one, "whole"][-1] for one in (kind, "attention"))
        made.append(
            Claim.within(
                f"{kind} overtakes attention",
                f"with projections, at some n up to {plan.lengths[-1]:,}",
                crossed(found, plan, kind, "whole"),
                quotient(ours, theirs),
                most=-ABOVE,
                may_fall=short,
            )
        )
    return made


def cheaper(found: Found, plan: Plan) -> Claim:
    """Attention against recurrence where there are few positions of a great width."""
    n, d = plan.short
    pair = {kind: statistics.median(row) for kind, row in found.short.items()}
    return Claim.within(
        "attention is cheaper than recurrence where n is far below d",
        f"less time at n = {n}, d = {d}",
        f"{1e3 * pair['attention']:.2f} against {1e3 * pair['recurrent']:.2f} ms",
        quotient(found.short["attention"], found.short["recurrent"]),
        most=-ABOVE,
    )


def power(
    name: str, measured: Exponent, bounds: tuple[float, float], *, short: bool = False
) -> Claim:
    """An exponent within bounds; `short` sizes, in which what a call costs at least counts most,
    bound it from below.
    """
    low, high = bounds
    stated = f"a power from {low:g} to {high:g}"
    return Claim.within(
        name,
        stated,
        measured,
        (measured.low, measured.high),
        least=low,
        most=high,
        may_rise=short,
    )


def steps_claim(found: Found, plan: Plan) -> Claim:
    """Only a recurrence waits for itself."""
    few, many = plan.chains[0], plan.chains[-1]
    ratio = {kind: row[-1] / row[0] for kind, row in found.chains.items()}
    others = max(value for kind, value in ratio.items() if kind != "recurrent")
    return Claim(
        "only a recurrence takes more steps in a row, the longer it reads",
        f"from n = {few} to {many}: its longest path grows by {many / few:g} to a tenth, "
        "others' to at most twice",
        f"{ratio['recurrent']:.2f}, others at most {others:.2f}",
        abs(ratio["recurrent"] / (many / few) - 1) <= 0.1 and others <= 2,
    )


def path_claim(found: Found, plan: Plan, kind: str) -> Claim:
    """As many layers as the table says, exactly."""
    stated = [KINDS[kind].layers(n) for n in plan.distances]
    return Claim(
        f"layers until {kind} reaches {', '.join(map(str, plan.distances))} back",
        ", ".join(map(str, stated)),
        ", ".join("never" if x is None else str(x) for x in found.layers[kind]),
        found.layers[kind] == stated,
    )
