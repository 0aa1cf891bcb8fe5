"""The complexity table of deck 004, measured: what each kind of layer costs on this machine.

Table 1 of Vaswani et al. 2017 (arXiv:1706.03762) states what a layer costs for n positions of width
d, how many operations must follow one another, and through how many layers two positions meet. Does
this machine agree, and from which length on is which layer cheaper? Hyena (Poli et al. 2023) and
linear attention (Katharopoulos et al. 2020) join the four kinds of the table.

Layers are the package's, one sequence at a time, forward and backward, alone and with their
projections. Alone means: queries, keys and values, or Hyena's streams, are given; the matrix of a
recurrence or a convolution is the mixer, so that both forms are one. On a CPU time is the
processor's, on one thread, so that other programs hardly lengthen it. All sizes are measured in
several turns; of each turn the least of the repeats counts, and times are medians of turns. Powers
are medians of the slopes between all pairs of the largest sizes (Theil and Sen), so that a
disturbed measurement moves little. Memory is that of all tensors, counted as they come and go; what
a fused kernel needs internally is not included. Operations that follow one another are those of the
longest path through the graph of the gradient, a transform being one of them. Layers are stacked,
with short windows and growing dilations, until the gradient at the first position is not 0.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.lab.experiment import ABOVE, Claim, Interval, Options, Result, curves, quantile_interval
from regard.layers.attention import AttentionContext, MaskAndBias, SelfAttention, attend
from regard.layers.convolution import ConvolutionContext, PastWindow
from regard.layers.hyena import Hyena
from regard.layers.linear_attention import LinearAttention
from regard.layers.masks import Causal, Window
from regard.layers.sliding_window import WindowedAttention, make_band
from regard.layers.tap import Tap
from regard.look.page import Heatmap, Lines, Table
from regard.models.recurrent import RecurrentStack
from regard.training.loop import seed_of
from regard.training.step import choose_device
from regard.training.throughput import peak_of

HEAD = 32  # width of a head, whatever the width of the model
KERNEL = 3  # positions of the convolution
WINDOW, SHORT_WINDOW = 64, 16  # positions, while time is measured and while layers are counted
TURNS = 5  # in which all sizes are timed
COARSE = 1e-4  # seconds: a processor clock with longer ticks, as of Windows, measures nothing here
FITTED = 4  # of the sizes, the largest, are fitted: below, the constant cost of a call counts too
RESAMPLES = 400  # of the bootstrap
ALONE, WITH_PROJECTIONS = "alone", "with projections"
EXPLICIT = "attention, weights kept"
# Stated beforehand of exponents: of n in time, of memory, and of d.
SQUARE, LINEAR, NEARLY_LINEAR = (1.8, 2.2), (0.8, 1.15), (0.8, 1.3)
WIDTH = {1: (0.6, 1.3), 2: (1.4, 2.3)}  # by the power in the table

Bounds = tuple[float, float]


class Recurrent(nn.Module):
    """An LSTM of one layer."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.stack = RecurrentStack(nn.LSTM, d, 1, 0.0)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        return self.stack(x)  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """A causal convolution of full rank, D to D."""

    def __init__(self, d: int, dilation: int) -> None:
        super().__init__()
        self.past, self.out = PastWindow(KERNEL, dilation), nn.Linear(KERNEL * d, d, bias=False)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        return self.out(self.past(x, ConvolutionContext()))  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Size:
    """Length, width and window of a layer, and its index in a stack."""

    n: int
    d: int
    window: int = WINDOW
    index: int = 0

    @property
    def heads(self) -> int:
        return max(1, self.d // HEAD)


def make_hyena(size: Size) -> Hyena:
    mixer = Hyena(size.d, max_len=size.n)
    mixer.reset()
    return mixer


@dataclass(frozen=True)
class Kind:
    """A kind of layer and what the table says of it.

    These are the powers of n (from, to) and of d in its time, the same in words, the steps that
    follow one another, and the longest path between two positions. `layers` is the number of layers
    until a position sees one so far back; `projects`: does the layer project before it mixes, and
    to `streams` (B, T, D) instead of heads?
    """

    make: Callable[[Size], nn.Module]
    n: Bounds
    d: int
    cost: str
    serial: str = "1"
    path: str = "1"
    layers: Callable[[int], int] = lambda distance: 1
    projects: bool = True
    streams: bool = False


def dilated_layers(distance: int) -> int:
    """Return the layers of dilations 1, k, k², …: their sum times k - 1 is k^layers - 1."""
    return math.ceil(round(math.log(distance + 1, KERNEL), 9))


KINDS = {
    "attention": Kind(lambda s: SelfAttention(s.d, s.heads), SQUARE, 1, "n² d"),
    "recurrent": Kind(
        lambda s: Recurrent(s.d), LINEAR, 2, "n d²", "n", "n (in 1 layer)", projects=False
    ),
    "convolution": Kind(
        lambda s: Convolution(s.d, KERNEL**s.index),
        *(LINEAR, 2, "k n d²", "1", "log_k n", dilated_layers),
        projects=False,
    ),
    "window": Kind(
        lambda s: WindowedAttention(s.d, s.heads, width=s.window),
        *(LINEAR, 1, "r n d", "1", "n / r"),
        lambda distance: math.ceil(distance / (SHORT_WINDOW - 1)),
    ),
    "linear": Kind(lambda s: LinearAttention(s.d, s.heads), LINEAR, 1, "n d² / heads"),
    "hyena": Kind(
        make_hyena, NEARLY_LINEAR, 1, "n log n · d", "log n (in transforms)", streams=True
    ),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    lengths: Sequence[int]
    widths: Sequence[int]
    width: int  # while lengths vary
    length: int  # while widths vary
    seconds: float = 0.5  # of a turn, which has at least and at most so many repeats
    repeats: tuple[int, int] = (2, 12)
    short: tuple[int, int] = (64, 512)  # n far below d
    chains: Sequence[int] = (16, 32, 64, 128)
    distances: Sequence[int] = (8, 16, 32, 64, 128)


LARGE = Plan(
    lengths=(512, 1024, 2048, 4096, 8192, 16_384),
    widths=(64, 128, 256, 512, 1024),
    width=128,
    length=1024,
)
CUDA = Plan(
    lengths=(4096, 8192, 16_384, 32_768, 65_536, 131_072),
    widths=(128, 256, 512, 1024, 2048),
    width=256,
    length=8192,
)
SMALL = Plan(
    lengths=(512, 1024, 2048, 4096),
    widths=(128, 256, 512),
    width=64,
    length=512,
    seconds=0.02,
    repeats=(2, 5),
    chains=(8, 16, 32),
    distances=(8, 16, 32),
)

Times = dict[tuple[str, str], dict[int, list[float]]]  # seconds by kind and form, size, turn


@dataclass
class Measurements:
    """What was measured of each kind: times, bytes by length, operations in a row, layers."""

    device: str
    by_length: Times = field(default_factory=dict)
    by_width: Times = field(default_factory=dict)
    memory: dict[str, list[int]] = field(default_factory=dict)  # alone
    chains: dict[str, list[int]] = field(default_factory=dict)
    layers: dict[str, list[int | None]] = field(default_factory=dict)
    short: dict[str, list[float]] = field(default_factory=dict)

    def medians(self, kind: str, form: str) -> list[float]:
        return [statistics.median(row) for row in self.by_length[kind, form].values()]

    def crossing(self, kind: str, form: str) -> str:
        """Return in words the length from which a kind is faster than attention."""
        lengths = list(self.by_length[kind, form])
        n = crossing(lengths, self.medians(kind, form), self.medians("attention", form))
        if n is None:
            return f"not up to {lengths[-1]:,}"
        return f"at {lengths[0]:,} already" if n == lengths[0] else f"{n:,.0f}"


@dataclass(frozen=True)
class Exponent:
    """The p of cost ~ size^p with its 95% interval."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.2f} [{low:.2f}, {high:.2f}]"


@dataclass(frozen=True)
class Exponents:
    """Fitted powers of n and d by kind and form, and of memory in n by kind."""

    n: Mapping[tuple[str, str], Exponent]
    d: Mapping[tuple[str, str], Exponent]
    memory: Mapping[str, Exponent]


def claims(m: Measurements, plan: Plan, powers: Exponents, *, quick: bool = False) -> list[Claim]:
    few, many = plan.chains[0], plan.chains[-1]
    growth = {kind: row[-1] / row[0] for kind, row in m.chains.items()}
    others = max(ratio for kind, ratio in growth.items() if kind != "recurrent")
    recurrent = growth["recurrent"]
    medians = [1e3 * statistics.median(m.short[kind]) for kind in ("attention", "recurrent")]
    return [
        *(
            claim_power(f"time of {name}, in n", powers.n[name, ALONE], kind.n, quick=quick)
            for name, kind in KINDS.items()
        ),
        *(
            claim_power(f"time of {name}, in d", powers.d[name, ALONE], WIDTH[kind.d], quick=quick)
            for name, kind in KINDS.items()
        ),
        claim_power("memory of fused attention, in n", powers.memory["attention"], LINEAR),
        claim_power("memory of weights that are kept, in n", powers.memory[EXPLICIT], SQUARE),
        Claim(
            "only a recurrence takes more steps in a row, the longer it reads",
            f"from n = {few} to {many}: its longest path grows by {many / few:g} to a tenth, "
            "others' to at most twice",
            f"{recurrent:.2f}, others at most {others:.2f}",
            abs(recurrent / (many / few) - 1) <= 0.1 and others <= 2,
        ),
        *(claim_layers(m, plan, name) for name in KINDS),
        Claim.within(
            "attention is cheaper than recurrence where n is far below d",
            "less time at n = {}, d = {}".format(*plan.short),
            log_ratio(m.short["attention"], m.short["recurrent"]),
            "{:.2f} against {:.2f} ms".format(*medians),
            most=-ABOVE,
        ),
        *(claim_overtakes(m, plan, name, quick=quick) for name in ("window", "linear", "hyena")),
    ]


def claim_power(name: str, power: Exponent, bounds: Bounds, *, quick: bool = False) -> Claim:
    """At small sizes, where the constant cost of a call counts most, the power is a lower bound."""
    low, high = bounds
    stated = f"a power from {low:g} to {high:g}"
    return Claim.within(name, stated, power, least=low, most=high, may_rise=quick)


def claim_layers(m: Measurements, plan: Plan, kind: str) -> Claim:
    stated = [KINDS[kind].layers(n) for n in plan.distances]
    return Claim(
        f"layers until {kind} reaches {', '.join(map(str, plan.distances))} back",
        ", ".join(map(str, stated)),
        ", ".join("never" if n is None else str(n) for n in m.layers[kind]),
        m.layers[kind] == stated,
    )


def claim_overtakes(m: Measurements, plan: Plan, kind: str, *, quick: bool) -> Claim:
    longest = plan.lengths[-1]
    ours, others = (m.by_length[name, WITH_PROJECTIONS][longest] for name in (kind, "attention"))
    return Claim.within(
        f"{kind} overtakes attention",
        f"with projections, at some n up to {longest:,}",
        log_ratio(ours, others),
        m.crossing(kind, WITH_PROJECTIONS),
        most=-ABOVE,
        may_fall=quick,
    )


Work = Callable[..., Tensor]


def make_context(n: int, device: torch.device, window: int = WINDOW) -> AttentionContext:
    """Return the context of n positions: each attends to the past, or to the last of a window."""
    mask = Causal() & Window(window)
    band = make_band(
        mask, width=window, first=0, ahead=False, batch=1, length=n, device=device, flexible=True
    )
    windowed = band if band is not None else mask.rendered(1, n, n, device)
    return AttentionContext(mask=Causal(), windowed=MaskAndBias(windowed))


def with_projections(kind: str, size: Size, device: torch.device) -> tuple[Work, list[Tensor]]:
    """Return a layer with all that belongs to it, and an input (1, T, D)."""
    layer, context = KINDS[kind].make(size).to(device), make_context(size.n, device)
    return lambda x: layer(x, context), [random_input(device, 1, size.n, size.d)]


def alone(kind: str, size: Size, device: torch.device) -> tuple[Work, list[Tensor]]:
    """Return what mixes positions, without projections; and its inputs."""
    if not KINDS[kind].projects:
        return with_projections(kind, size, device)
    layer: Any = KINDS[kind].make(size).to(device)
    if KINDS[kind].streams:
        streams = [random_input(device, 1, size.n, size.d) for _ in range(layer.order + 1)]
        return lambda *streams: layer.mix(streams[-1], streams), streams
    context, shape = make_context(size.n, device), (1, size.heads, size.n, min(size.d, HEAD))
    qkv = [random_input(device, *shape) for _ in range(3)]
    return lambda q, k, v: layer.mix(q, k, v, context, None, None), qkv


FORMS = {ALONE: alone, WITH_PROJECTIONS: with_projections}


def random_input(device: torch.device, *shape: int) -> Tensor:
    """Return an input with a gradient, as large as the outputs of a norm; in bf16 on a GPU."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.randn(*shape, device=device, dtype=dtype).requires_grad_()


def measure_seconds(work: Work, inputs: Sequence[Tensor], plan: Plan) -> float:
    """Return the seconds of forward and backward, the least of repeats; the first, in which memory
    is allocated and kernels are chosen, does not count.
    """
    clock = find_clock(inputs[0].device)
    times: list[float] = []
    (least, most), end = plan.repeats, time.perf_counter() + plan.seconds
    while len(times) <= least or (time.perf_counter() < end and len(times) <= most):
        before = clock()
        run_once(work, inputs)
        times.append(clock() - before)
    return min(times[1:])


def find_clock(device: torch.device) -> Callable[[], float]:
    """Return the clock of a device: of a CPU the time that this process has used, in seconds."""
    if device.type == "cuda":
        return partial(synchronized, device)
    ticks = time.get_clock_info("process_time").resolution
    return time.process_time if ticks < COARSE else time.perf_counter


def synchronized(device: torch.device) -> float:
    """Return the time at which a GPU has done all of its work."""
    torch.cuda.synchronize(device)
    return time.perf_counter()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread: idle threads that wait would count as work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_once(work: Work, inputs: Sequence[Tensor]) -> None:
    for x in inputs:
        x.grad = None
    with torch.autocast("cuda", torch.bfloat16, enabled=inputs[0].is_cuda):
        y = work(*inputs)
    y.backward(torch.ones_like(y))


def measure_bytes(work: Work, inputs: list[Tensor]) -> int:
    """Return the peak memory of all tensors that forward and backward make."""
    return peak_of(lambda: run_once(work, inputs))


def explicit_bytes(n: int, d: int, dtype: torch.dtype) -> int:
    """Return the same of attention that keeps its weights, without computing them."""
    qkv = [torch.randn(1, 1, n, d, device="meta", dtype=dtype).requires_grad_() for _ in range(3)]
    return measure_bytes(lambda q, k, v: attend(q, k, v, Causal(), tap=Tap(["weights"])), qkv)


def count_layers(kind: str, distance: int, most: int) -> int | None:
    """Return how many layers are needed until the last position's output has a gradient at the
    input `distance` before it; None where more than `most` would be.
    """
    n = distance + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        context = make_context(n, torch.device("cpu"), SHORT_WINDOW)
        # in double precision: a recurrence's gradient vanishes, but is not 0
        x = torch.randn(1, n, HEAD, requires_grad=True, dtype=torch.float64)
        y: Tensor = x
        for count in range(1, most + 1):
            size = Size(n=n, d=HEAD, window=SHORT_WINDOW, index=count - 1)
            y = KINDS[kind].make(size).double()(y, context)  # (1, T, D)
            (gradient,) = torch.autograd.grad(y[:, -1].sum(), x, retain_graph=True)
            if bool(gradient[:, 0].abs().max() > 0):
                return count
    return None


def count_steps(kind: str, n: int) -> int:
    """Return how many operations follow one another in a layer over n positions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # in double precision, for which torch writes out the recurrence
        x = torch.randn(1, n, HEAD, requires_grad=True, dtype=torch.float64)
        layer = KINDS[kind].make(Size(n=n, d=HEAD)).double()
        return longest_path(layer(x, make_context(n, torch.device("cpu"))))


def longest_path(y: Tensor) -> int:
    """Return the operations on the longest path through the graph of the gradient of y."""
    depth: dict[Any, int] = {}
    stack: list[Any] = [y.grad_fn]
    while stack:
        node = stack[-1]
        inputs = [function for function, _ in node.next_functions if function is not None]
        missing = [function for function in inputs if function not in depth]
        if missing:
            stack += missing
            continue
        depth[node] = 1 + max((depth[function] for function in inputs), default=0)
        stack.pop()
    return depth[y.grad_fn] - 1  # the input itself is no operation


def fit_exponent(costs: Mapping[int, Sequence[float]], seed: int = 0) -> Exponent:
    """Return the slope of log cost over log size, over the largest sizes, each with its repeats.

    It is that of Theil and Sen: the median of the slopes of all pairs of sizes, each by the median
    of its repeats, which one disturbed size or a few disturbed repeats do not move. The interval
    holds 95% of what resampled repeats give, and no less than the middle half of the pairs' slopes:
    where a power is no law, that is what is uncertain.
    """
    x, rows = np.log(list(costs)[-FITTED:]), list(costs.values())[-FITTED:]
    random = np.random.default_rng(seed_of(seed))
    slopes = pair_slopes(x, np.log([statistics.median(row) for row in rows]))
    medians = np.stack([resampled_medians(row, random) for row in rows], axis=1)
    low, high = quantile_interval(np.median(pair_slopes(x, np.log(medians)), axis=1))
    inner = np.quantile(slopes, (0.25, 0.75))
    ends = Interval(min(low, float(inner[0])), max(high, float(inner[1])))
    return Exponent(float(np.median(slopes)), ends)


def pair_slopes(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slopes of the lines through all pairs of points: x (S,), y (..., S)."""
    a, b = np.triu_indices(len(x), 1)
    return np.asarray((y[..., b] - y[..., a]) / (x[b] - x[a]))


def resampled_medians(row: Sequence[float], random: np.random.Generator) -> NDArray[np.float64]:
    return np.asarray(np.median(random.choice(np.asarray(row), (RESAMPLES, len(row))), axis=1))


def log_ratio(one: Sequence[float], other: Sequence[float], seed: int = 0) -> Interval:
    """Return the 95% interval of the logarithm of the ratio of their medians."""
    random = np.random.default_rng(seed_of(seed))
    first, second = (resampled_medians(row, random) for row in (one, other))
    return quantile_interval(np.log(first / second))


def crossing(sizes: Sequence[float], one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the size from which `one` costs less than `other` at all larger ones, interpolated
    between logarithms; the first where it always does, None where it never does.
    """
    gaps = np.log(one) - np.log(other)
    higher = np.flatnonzero(gaps > 0)
    if not len(higher):
        return float(sizes[0])
    last = higher[-1]
    if last == len(sizes) - 1:
        return None
    pair = slice(last, last + 2)
    return float(np.exp(np.interp(0.0, -gaps[pair], np.log(sizes[pair]))))


def complexity(options: Options) -> Result:
    """Run the experiment, on a GPU where there is one."""
    device = choose_device("auto")
    plan = SMALL if options.quick else CUDA if device.type == "cuda" else LARGE
    return report(measure(plan, device, options), plan, options.seed, quick=options.quick)


def measure(plan: Plan, device: torch.device, options: Options) -> Measurements:
    """Measure all kinds in turns, so that a disturbance is not one kind's alone, and all sizes
    `TURNS` times, so that it is not one size's alone either.
    """
    m = Measurements(str(device) if device.type == "cuda" else "one thread of a CPU")
    sizes = [(m.by_length, n, Size(n=n, d=plan.width)) for n in plan.lengths]
    sizes += [(m.by_width, d, Size(n=plan.length, d=d)) for d in plan.widths]
    progress = options.progress(float(TURNS * sum(size.n * size.d for *_, size in sizes)))
    n, d = plan.short
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(options.seed)
        for _ in range(TURNS):
            for times, key, size in sizes:
                measure_kinds(times, key, size, plan, device)
                progress.add("complexity", size.n * size.d)
            for kind in ("attention", "recurrent"):
                job = with_projections(kind, Size(n=n, d=d), device)
                m.short.setdefault(kind, []).append(measure_seconds(*job, plan))
        for kind in KINDS:
            jobs = (alone(kind, Size(n=n, d=plan.width), device) for n in plan.lengths)
            m.memory[kind] = [measure_bytes(*job) for job in jobs]
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        m.memory[EXPLICIT] = [explicit_bytes(n, plan.width, dtype) for n in plan.lengths]
    for kind in KINDS:
        m.chains[kind] = [count_steps(kind, n) for n in plan.chains]
        m.layers[kind] = [
            count_layers(kind, n, 2 + n // (SHORT_WINDOW - 1)) for n in plan.distances
        ]
    return m


def measure_kinds(times: Times, key: int, size: Size, plan: Plan, device: torch.device) -> None:
    for name, kind in KINDS.items():
        for form, make in FORMS.items():
            row = times.setdefault((name, form), {})
            if form == ALONE or kind.projects:
                row.setdefault(key, []).append(measure_seconds(*make(name, size, device), plan))
            else:
                row[key] = times[name, ALONE][key]


def report(m: Measurements, plan: Plan, seed: int, *, quick: bool = False) -> Result:
    memory = {
        kind: dict(zip(plan.lengths, ([float(b)] for b in row), strict=True))
        for kind, row in m.memory.items()
    }
    powers = Exponents(
        {key: fit_exponent(row, seed) for key, row in m.by_length.items()},
        {key: fit_exponent(row, seed) for key, row in m.by_width.items()},
        {kind: fit_exponent(row) for kind, row in memory.items()},
    )
    last = plan.lengths[-1]
    seconds = {kind: m.medians(kind, WITH_PROJECTIONS)[-1] for kind in projected_kinds(m)}
    order = sorted(seconds, key=lambda kind: seconds[kind])
    listed = ", ".join(f"{kind} {1000 * seconds[kind]:.3g} ms" for kind in order)
    return Result(
        title="What each kind of layer costs",
        answer=f"Forward and backward of {last:,} positions, {plan.width} wide: {listed}.",
        question=__doc__ or "",
        reading=(
            f"Each line is a kind of layer with its projections, {plan.width} wide, on "
            f"{m.device}: a line twice as steep costs four times as much for twice the length "
            "where the other costs twice as much. Where two lines cross, the one that is less "
            "steep becomes the cheaper."
        ),
        readings=[
            "What mixes positions, alone.",
            "Memory of the same: fused attention keeps no weights, and is no steeper than others.",
        ],
        claims=claims(m, plan, powers, quick=quick),
        tables=tables(m, plan, powers),
        figures=[
            time_curves(m, WITH_PROJECTIONS),
            time_curves(m, ALONE),
            curves(
                plan.lengths,
                {kind: [b / 2**20 for b in row] for kind, row in m.memory.items()},
                "Memory of forward and backward, alone",
                ("n, positions", "MB of tensors"),
                log="xy",
                ticks=True,
            ),
        ],
        panels=[
            Heatmap(
                np.array([[float(x or np.nan) for x in m.layers[kind]] for kind in KINDS]),
                list(KINDS),
                list(map(str, plan.distances)),
                title="Layers until the gradient reaches, distances across",
                unit="layers",
            )
        ],
    )


def projected_kinds(m: Measurements) -> list[str]:
    """Return the kinds that were measured with their projections."""
    return [kind for kind, form in m.by_length if form == WITH_PROJECTIONS]


def time_curves(m: Measurements, form: str) -> Lines:
    """Return milliseconds against n, with what the middle 80% of turns took."""
    bands = {}
    for kind in KINDS:
        rows = [sorted(row) for row in m.by_length[kind, form].values()]
        low = [1e3 * row[len(row) // 10] for row in rows]
        bands[kind] = low, [1e3 * row[-1 - len(row) // 10] for row in rows]
    return curves(
        list(m.by_length["attention", form]),
        {kind: [1e3 * t for t in m.medians(kind, form)] for kind in KINDS},
        f"Time of forward and backward, {form}",
        ("n, positions", "milliseconds"),
        log="xy",
        ticks=True,
        bands=bands,
    )


def tables(m: Measurements, plan: Plan, powers: Exponents) -> list[Table]:
    """Return powers and paths compared with the textbook's, times, and crossings."""
    few, many, far = plan.chains[0], plan.chains[-1], plan.distances[-1]
    power_rows, path_rows, time_rows, crossing_rows = [], [], [], []
    for name, kind in KINDS.items():
        fits = [row[name, form] for row in (powers.n, powers.d) for form in FORMS]
        power_rows.append([name, kind.cost, *map(str, fits), str(powers.memory[name])])
        chain = [str(m.chains[name][0]), str(m.chains[name][-1])]
        path_rows.append([name, kind.serial, *chain, kind.path, str(m.layers[name][-1])])
        medians = m.medians(name, WITH_PROJECTIONS)
        time_rows.append([name, *(f"{1e3 * seconds:.3g}" for seconds in medians)])
        if name != "attention":
            crossing_rows.append([name, *(m.crossing(name, form) for form in FORMS)])
    columns = [f"{letter}, {form}" for letter in "nd" for form in FORMS]
    steps = ["in a row, textbook", f"at n = {few}", f"at n = {many}"]
    path = ["path, textbook", f"layers to reach {far} back"]
    lengths = [f"n = {n:,}" for n in plan.lengths]
    title = f"Milliseconds with projections, d = {plan.width}, {m.device}"
    return [
        Table(
            ["layer", "textbook", *columns, "memory in n"],
            power_rows,
            title="Powers, 95% intervals",
        ),
        Table(["layer", *steps, *path], path_rows, title="Steps and paths"),
        Table(["layer", *lengths], time_rows, title=title),
        Table(
            ["layer", *FORMS],
            crossing_rows,
            title="The n from which a layer is faster than attention",
        ),
    ]
