"""How cost grows: every row doubles its work at least three times and fits the exponent.

training    seconds of n training steps of one fixed batch, against tokens            bar 1.05
decoding    seconds of greedy decoding with a cache, 1 and 8 rows, against length     bar 1.10
memory      bytes that a training step of one row takes, against its context          bar 1.10

The exponent is the slope of log cost over log size by least squares; its 95% interval is the
t-interval of that regression, so it tells noise and bending alike. Times are medians of repeats, in
each of which the sizes take turns. A bar holds where the slope is within it, and surely where the
whole interval is; `last` is the exponent of the last doubling alone.

A constant cost hides growth. So `of growth` fits what each doubling adds: of a cost a + b · n^p
that is b · (2^p - 1) · n^p, a slope of exactly p whatever a is. Less one, it says how the cost of
one more token grows with those before it. Memory is judged by it.

Full attention reads its whole cache at every step, so no decoder is linear in the long run. `reads`
is the exponent of the bytes that must be read, weights and cache: that of a decoder which waits for
nothing but memory. Where that alone is above 1.10, as with 8 rows, it is the bar.

Memory is the most that a step holds above what is held between steps (weights, optimizer state,
text): on CUDA by torch's peak counter, on a CPU from the profiler's record of every block that
torch's allocator gives and takes back. Both are exact, and no other process moves them. Gradients,
which do not grow with the context, are in it: the constant a.

    python benchmarks/scaling.py --repeats 3 --json scaling.json

One thread by default: growth is the same, and threads that wait for each other are noise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads are in the way of torch's

import torch
from torch.profiler import ProfilerActivity, profile

from regard.data.corpus import prepare
from regard.decoding import Greedy, generate
from regard.models.decoder import Decoder, modern
from regard.planning import plan_recipe
from regard.training.progress import Reporter
from regard.training.trainer import Session, Trainer

# the 97.5% point of Student's t by degrees of freedom
STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
END, PROMPT, VOCABULARY = 2, 16, 68
TRAINING_BAR, DECODING_BAR, MEMORY_BAR = 1.05, 1.1, 1.1


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is doubled, and the models (layers, width) it is done with."""

    steps: tuple[int, ...]  # of `batch` tokens in rows of `window`
    lengths: tuple[int, ...]
    contexts: tuple[int, ...]
    trained: tuple[int, int] = (2, 64)
    decoded: tuple[int, int] = (1, 768)  # as wide as GPT-2: narrower ones are all cache
    remembered: tuple[int, int] = (4, 128)  # whose memory is measured
    batch: int = 1024
    window: int = 64
    rows: tuple[int, ...] = (1, 8)


FULL = Sizes(
    steps=(16, 32, 64, 128, 256),
    lengths=(256, 512, 1024, 2048),
    contexts=(512, 1024, 2048, 4096, 8192),
)
QUICK = Sizes(
    steps=(1, 2, 4, 8),
    lengths=(32, 64, 128, 256),
    contexts=(64, 128, 256, 512),
    trained=(1, 32),
    decoded=(1, 32),
    remembered=(1, 32),
    batch=64,
    window=16,
    rows=(1, 2),
)


@dataclass(frozen=True)
class Exponent:
    """A fitted slope and its 95% interval."""

    value: float
    low: float
    high: float


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> Exponent:
    """The p of cost ~ size^p: the slope of a least-squares line through the logarithms."""
    if len(sizes) != len(costs) or len(sizes) < 3:
        raise ValueError(f"a fit needs three pairs or more, got {len(sizes)} and {len(costs)}")
    if min(sizes) <= 0 or min(costs) <= 0:
        raise ValueError(f"sizes and costs must be positive, got {list(sizes)} and {list(costs)}")
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    at, mean = statistics.fmean(x), statistics.fmean(y)
    spread = sum((a - at) ** 2 for a in x)
    slope = sum((a - at) * (b - mean) for a, b in zip(x, y, strict=True)) / spread
    free = len(x) - 2
    residual = sum((b - mean - slope * (a - at)) ** 2 for a, b in zip(x, y, strict=True))
    half = STUDENT[min(free, len(STUDENT) - 1)] * math.sqrt(residual / free / spread)
    return Exponent(slope, slope - half, slope + half)


def growth(sizes: Sequence[float], costs: Sequence[float]) -> Exponent | None:
    """The p of cost = a + b · size^p, from what each doubling adds; None where one adds nothing."""
    if any(after != 2 * before for before, after in pairwise(sizes)):
        raise ValueError(f"each size must be twice the one before, got {list(sizes)}")
    added = [after - before for before, after in pairwise(costs)]
    return exponent(sizes[:-1], added) if min(added) > 0 else None


@dataclass(frozen=True)
class Row:
    """One thing measured: sizes, costs, and the exponent that its bar is for."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    costs: tuple[float, ...]
    bar: float
    by_growth: bool = False  # judge what each doubling adds, where a constant is known to be
    reads: float | None = None  # the exponent of the bytes that decoding must read

    @property
    def judged(self) -> Exponent | None:
        """The exponent that must stay within the bar."""
        fit = growth if self.by_growth else exponent
        return fit(self.sizes, self.costs)

    @property
    def last(self) -> float:
        """The exponent of the last doubling alone."""
        return math.log2(self.costs[-1] / self.costs[-2])

    @property
    def holds(self) -> bool:
        """Is the fitted exponent within the bar?"""
        return self.judged is not None and self.judged.value <= self.bar

    @property
    def surely(self) -> bool:
        """Is the whole interval within the bar?"""
        return self.judged is not None and self.judged.high <= self.bar

    def to_json(self) -> dict[str, Any]:
        """All of it, and both fits."""
        added = growth(self.sizes, self.costs)
        return {
            "name": self.name,
            "unit": self.unit,
            "sizes": list(self.sizes),
            "costs": list(self.costs),
            "exponent": asdict(exponent(self.sizes, self.costs)),
            "exponent_of_growth": added and asdict(added),
            "exponent_of_one_more": added and added.value - 1,
            "last_doubling": self.last,
            "reads": self.reads,
            "judged_by": "growth" if self.by_growth else "exponent",
            "bar": self.bar,
            "holds": self.holds,
            "surely": self.surely,
        }


def medians(actions: dict[int, Callable[[], float]], repeats: int) -> tuple[float, ...]:
    """The median seconds of each action, all of them taking turns; one round goes unmeasured."""
    found: dict[int, list[float]] = {size: [] for size in actions}
    for turn in range(repeats + 1):
        for size, action in actions.items():
            seconds = action()
            if turn:
                found[size].append(seconds)
    return tuple(statistics.median(values) for values in found.values())


def wait(device: str) -> float:
    """Return the time, after a GPU has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def text_file(folder: Path, size: int) -> Path:
    """Write random letters and spaces: the content does not matter here."""
    path = folder / "text.txt"
    path.write_text("".join(random.Random(0).choices(LETTERS + "    ", k=size)))
    return path


def trainer_of(
    text: Path, device: str, model: tuple[int, int], *, window: int, batch: int
) -> Trainer:
    """A trainer before its first step, not compiled, its folder beside the text."""
    chosen = {
        "data.format": "text",
        "output.tokenizer": "characters",
        "model.preset": "modern",
        "model.n_layers": model[0],
        "model.d_model": model[1],
        "model.max_len": window,
        "model.dropout": 0.0,
        "train.optimizer": "adamw",
        "train.lr": 1e-3,
        "train.batch_tokens": batch,
        "train.steps": 1000,
        "train.device": device,
        "train.compile": "off",
    }
    recipe, _ = plan_recipe([text], assignments=[f"{key}={value}" for key, value in chosen.items()])
    run = text.parent / "run"
    run.mkdir(exist_ok=True)
    corpus = prepare(recipe, run, lambda line: None)
    trainer = Session(run, False, Reporter(quiet=True), 0.0).trainer(recipe, corpus, None)
    trainer.model.train()
    return trainer


def training(text: Path, device: str, shape: Sizes, repeats: int) -> Row:
    """Seconds of n steps, data loading included, of a trainer that took one before."""

    def timed(steps: int) -> float:
        trainer = trainer_of(text, device, shape.trained, window=shape.window, batch=shape.batch)
        trainer.take_step(0)
        start = wait(device)
        for n in range(1, steps + 1):
            trainer.take_step(n)
        return wait(device) - start

    seconds = medians({steps: partial(timed, steps) for steps in shape.steps}, repeats)
    sizes = tuple(steps * shape.batch for steps in shape.steps)
    return Row("training", "seconds by tokens", sizes, seconds, TRAINING_BAR)


def decoding(device: str, shape: Sizes, rows: int, repeats: int) -> Row:
    """Seconds of greedy decoding after a short prompt, no end allowed, every row its own prompt."""
    torch.manual_seed(0)
    config = replace(modern(*shape.decoded), max_len=shape.lengths[-1] + PROMPT)
    model = Decoder(VOCABULARY, config).to(device).eval()
    source = random.Random(0)
    prompts = [[source.randrange(4, VOCABULARY) for _ in range(PROMPT)] for _ in range(rows)]

    def timed(length: int) -> float:
        start = wait(device)
        found = generate(
            model, prompts, Greedy(log_probs=False), max_new=length, end=END, banned=[END]
        )
        seconds = wait(device) - start
        assert all(len(one.ids) == length for several in found for one in several)
        return seconds

    seconds = medians({length: partial(timed, length) for length in shape.lengths}, repeats)
    name = f"decoding, {rows} row{'s' * (rows > 1)}"
    reads = exponent(shape.lengths, [numbers_read(model, rows, n) for n in shape.lengths]).value
    unit = "seconds by new tokens"
    bar = max(DECODING_BAR, math.ceil(100 * reads) / 100)
    return Row(name, unit, shape.lengths, seconds, bar, reads=reads)


def numbers_read(model: Decoder, rows: int, length: int) -> int:
    """What decoding cannot do without reading: all weights at each step, and the cache so far."""
    c = model.config
    weights = sum(p.numel() for p in model.parameters()) - model.embedding.weight.numel()
    each = 2 * c.n_layers * c.n_kv_heads * c.d_head  # a position's keys and values
    return sum(weights + rows * each * (PROMPT + step) for step in range(length))


def peak_bytes(action: Callable[[], object], device: str) -> int:
    """The most that `action` holds at once above what is held when it begins."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        action()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        action()
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()  # negative where a block is given back
        most = max(most, held)
    return most


def memory(text: Path, device: str, shape: Sizes) -> Row:
    """Bytes of one training step of one row, its optimizer's state being there already."""

    def peak(context: int) -> int:
        trainer = trainer_of(text, device, shape.remembered, window=context, batch=context)
        trainer.take_step(0)
        (batch,) = trainer.loader.step(1)
        assert batch.ids.shape == (1, context), f"a batch is {tuple(batch.ids.shape)}"
        return peak_bytes(lambda: trainer.take_step(1), device)

    peaks = tuple(peak(context) for context in shape.contexts)
    return Row("memory", "bytes by context", shape.contexts, peaks, MEMORY_BAR, by_growth=True)


def shown(fit: Exponent | None) -> str:
    """A slope and its interval, in 23 columns."""
    words = "none" if fit is None else f"{fit.value:.3f} [{fit.low:.3f}, {fit.high:.3f}]"
    return f"{words:<23}"


def format_row(row: Row) -> str:
    """The table's line of one row, and its costs under it."""
    added = growth(row.sizes, row.costs)
    verdict = ("holds" if row.surely else "holds, not surely") if row.holds else "BROKEN"
    memory = row.unit.startswith("bytes")
    costs = [f"{cost / 2**20:.1f} MiB" if memory else f"{cost:.3f} s" for cost in row.costs]
    pairs = ", ".join(f"{size:,}: {cost}" for size, cost in zip(row.sizes, costs, strict=True))
    reads = "" if row.reads is None else f"{row.reads:.3f}"
    if added is not None and row.reads is not None:
        pairs += f"; one more token costs ~ length ^ {added.value - 1:.2f}"
    return (
        f"{row.name:<18}{shown(exponent(row.sizes, row.costs))}{shown(added)}{row.last:>7.3f}"
        f"{reads:>8}  {'growth' if row.by_growth else 'exponent'} ≤ {row.bar:g}: {verdict}\n"
        f"    {row.unit}: {pairs}"
    )


def arguments() -> argparse.Namespace:
    """Return the command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of every size")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="seconds; figures of no meaning, no bar is enforced"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    if min(args.repeats, args.threads) < 1:
        parser.error("--repeats and --threads must be at least 1")
    return args


def main() -> int:
    """Measure, fit, print; 1 where a bar is broken."""
    args = arguments()
    torch.set_num_threads(args.threads)
    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    shape, repeats = (QUICK, 1) if args.quick else (FULL, args.repeats)
    facts = {"device": device, "threads": args.threads, "torch": torch.__version__}
    print(f"{device}, {args.threads} thread(s), torch {facts['torch']}, {repeats} repeats")
    print(f"{'':<18}{'exponent [95%]':<23}{'of growth [95%]':<23}{'last':>7}{'reads':>8}  bar")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        text = text_file(Path(folder), 20_000 if args.quick else 300_000)
        measures = [partial(training, text, device, shape, repeats)]
        measures += [partial(decoding, device, shape, n, repeats) for n in shape.rows]
        measures += [partial(memory, text, device, shape)]
        for measure in measures:
            rows.append(measure())
            print(format_row(rows[-1]), flush=True)
    holds = all(row.holds for row in rows)
    if args.json:
        found = {**facts, "python": platform.python_version(), "repeats": repeats}
        found |= {"quick": args.quick, "holds": holds, "rows": [row.to_json() for row in rows]}
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if holds or args.quick else 1


if __name__ == "__main__":
    sys.exit(main())
