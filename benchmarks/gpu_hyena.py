"""Hyena and windowed attention on a GPU: time and memory against the length, beside full attention.

    layers     forward + backward of whole layers, 768 wide, projections and filters included, on
               131,072 tokens cut into sequences of n: Hyena by each way to convolve, full attention
               (12 heads of 64, fused), windowed attention; where Hyena overtakes attention
    operators  the same of what mixes alone, on one sequence of n: the exponent of its time, and of
               its memory, with 95% intervals
    window     full against windowed attention at the longest n, r = 1,024

In bf16 by autocast, compiled unless `--compile off`; transforms are in fp32. Medians of repeats of
ten calls each after warming up, on random inputs. The ways to convolve are in
benchmarks/convolutions.py; the library has `turned`, and `--convolutions` chooses others to put in
its place here.

    python benchmarks/gpu_hyena.py [--parts layers,operators,window] [--convolutions turned,padded]
        [--lengths 2048,131072] [--compile on|off] [--repeats 10] [--json FILE]
        [--device cpu --tiny]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from convolutions import VARIANTS
from scaling import exponent
from torch import Tensor, nn
from torch.nn import functional as F

import regard.layers.hyena
from regard.layers.attention import AttentionContext, MaskAndBias, SelfAttention
from regard.layers.hyena import Hyena
from regard.layers.masks import Causal, Mask, Window
from regard.layers.sliding_window import WindowedAttention, make_band

AGREE = 3e-2  # what a convolution in half precision may differ by, of the largest number


@dataclass(frozen=True)
class Scale:
    """What is measured."""

    width: int = 768
    heads: int = 12
    tokens: int = 131_072
    window: int = 1024
    lengths: tuple[int, ...] = (2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
    alone: tuple[int, ...] = (8192, 16_384, 32_768, 65_536, 131_072)


TINY = Scale(
    width=32, heads=2, tokens=1024, window=64, lengths=(256, 512, 1024), alone=(256, 512, 1024)
)


class Bench:
    """A device, and how things are timed on it."""

    def __init__(self, device: str, scale: Scale, repeats: int, compiled: bool) -> None:
        self.device, self.scale = torch.device(device), scale
        self.repeats, self.compiled = repeats, compiled
        self.gpu = self.device.type == "cuda"
        self.dtype = torch.bfloat16 if self.gpu else torch.float32

    def random(self, *shape: int) -> Tensor:
        """An input that wants a gradient, as large as the outputs of a norm."""
        return torch.randn(*shape, device=self.device, dtype=self.dtype).requires_grad_()

    def ready(self, work: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The work, compiled if requested."""
        if not self.compiled:
            return work
        torch.compiler.reset()
        return torch.compile(work, dynamic=False)

    def measure(self, work: Callable[..., Tensor], *inputs: Tensor) -> dict[str, float | None]:
        """Median milliseconds of forward and backward, of forward, and the peak of memory that is
        taken meanwhile.
        """
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.gpu):
            dy = torch.randn_like(work(*inputs))

            def both() -> None:
                for x in inputs:
                    x.grad = None
                work(*inputs).backward(dy)

            times, peak = {}, None
            for name, call in (("forward", lambda: work(*inputs)), ("milliseconds", both)):
                call()
                times[name] = statistics.median(self.timed(call) for _ in range(self.repeats))
            if self.gpu:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                held = torch.cuda.memory_allocated()
                both()
                peak = torch.cuda.max_memory_allocated() - held
        return {**times, "bytes": peak}

    def timed(self, call: Callable[[], object]) -> float:
        """Milliseconds of a call, of several that wait for each other on the device alone: what
        the host does between them is not waited for where the device has more to do.
        """
        several = 10 if self.gpu else 1
        begin = self.now()
        for _ in range(several):
            call()
        return self.between(begin, self.now()) / several

    def now(self) -> Any:
        """A moment."""
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Milliseconds."""
        if not self.gpu:
            return 1e3 * (end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end))


@contextmanager
def convolving(name: str) -> Iterator[None]:
    """Hyena with another way to convolve, inside."""
    module: Any = regard.layers.hyena
    kept, module.long_convolution = (
        module.long_convolution,
        lambda x, h, _=None: VARIANTS[name](x, h),
    )
    try:
        yield
    finally:
        module.long_convolution = kept


def band(bench: Bench, length: int) -> Mask:
    """The mask of a window, in the form that is fast here."""
    width = bench.scale.window
    mask = Causal() & Window(width)
    found = make_band(
        mask, width=width, first=0, ahead=False, batch=1, length=length, device=bench.device,
        flexible=True,
    )  # fmt: skip
    return found or mask


def layer(bench: Bench, kind: str, length: int) -> tuple[nn.Module, AttentionContext]:
    """A layer with random weights, and its inputs."""
    s = bench.scale
    torch.manual_seed(0)
    if kind == "hyena":
        mixer = Hyena(s.width, max_len=max(s.lengths))
        mixer.reset()
        return mixer.to(bench.device), AttentionContext()
    if kind == "window":
        near = MaskAndBias(band(bench, length))
        return WindowedAttention(s.width, s.heads, width=s.window).to(
            bench.device
        ), AttentionContext(windowed=near)
    return SelfAttention(s.width, s.heads).to(bench.device), AttentionContext(mask=Causal())


def layers(bench: Bench, names: list[str]) -> dict[str, Any]:
    """Whole layers on the same number of tokens, at every length."""
    s, found = bench.scale, {}
    rows = [*(f"hyena {name}" for name in names), "attention", "window"]
    for row in rows:
        kind, _, how = row.partition(" ")
        found[row] = []
        for n in s.lengths:
            mixer, place = layer(bench, kind, n)
            with convolving(how or "turned"):
                work = bench.ready(lambda x, m=mixer, p=place: m(x, p))
                measured = bench.measure(work, bench.random(s.tokens // n, n, s.width))
            found[row].append({"n": n, **measured})
            print(f"{row:16} n = {n:7,}  {format_point(measured)}", flush=True)
    crossings = {
        row: crossing(found[row], found["attention"]) for row in found if row.startswith("hyena")
    }
    for row, n in crossings.items():
        print(f"{row} overtakes attention at n = {'nowhere' if n is None else f'{n:,.0f}'}")
    return {"rows": found, "crossings": crossings}


def crossing(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> float | None:
    """The length from which `one` is faster, between those measured on a line of logarithms; None
    where it is never.
    """
    gaps = [
        (math.log(a["n"]), math.log(a["milliseconds"] / b["milliseconds"]))
        for a, b in zip(one, other, strict=True)
    ]
    if gaps[-1][1] > 0:
        return None
    at = len(gaps) - 1
    while at and gaps[at - 1][1] <= 0:
        at -= 1
    if not at:
        return math.exp(gaps[0][0])  # there already
    (x, a), (y, b) = gaps[at - 1], gaps[at]
    return math.exp(x + (y - x) * a / (a - b))


def alone(bench: Bench, kind: str, n: int) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """What mixes positions, without projections, and its inputs: one sequence."""
    s, each = bench.scale, bench.scale.width // bench.scale.heads
    if kind == "hyena":
        filters = torch.randn(s.width, n, device=bench.device) / n**0.5
        inputs = [bench.random(1, n, s.width) for _ in range(3)]

        def gated(q: Tensor, k: Tensor, v: Tensor, h: Tensor) -> Tensor:
            y = regard.layers.hyena.long_convolution((v * k).mT, h).mT
            return (y * q).to(q.dtype)

        return gated, [*inputs, filters.requires_grad_()]
    inputs = [bench.random(1, s.heads, n, each) for _ in range(3)]
    if kind == "attention":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), inputs
    seen: Any = band(bench, n)
    return lambda q, k, v: seen.attend(q, k, v, None), inputs


def operators(bench: Bench, names: list[str]) -> dict[str, Any]:
    """What mixes alone, against the length of one sequence."""
    found: dict[str, Any] = {}
    for row in [*(f"hyena {name}" for name in names), "attention", "window"]:
        kind, _, how = row.partition(" ")
        points = []
        for n in bench.scale.alone:
            with convolving(how or "turned"):
                work, inputs = alone(bench, kind, n)
                points.append({"n": n, **bench.measure(bench.ready(work), *inputs)})
            print(f"{row:16} n = {n:7,}  {format_point(points[-1])}", flush=True)
        sizes = [point["n"] for point in points]
        fits = {"time": asdict(exponent(sizes, [point["milliseconds"] for point in points]))}
        if points[0]["bytes"]:
            fits["memory"] = asdict(exponent(sizes, [point["bytes"] for point in points]))
        for what, fit in fits.items():
            print(f"{row}: {what} ~ n^{fit['value']:.3f} [{fit['low']:.3f}, {fit['high']:.3f}]")
        found[row] = {"points": points, "exponents": fits}
    return found


def window(bench: Bench) -> dict[str, Any]:
    """Full and windowed attention at the longest length."""
    n, found = bench.scale.alone[-1], {}
    for kind in ("attention", "window"):
        work, inputs = alone(bench, kind, n)
        found[kind] = bench.measure(bench.ready(work), *inputs)
    ratio = found["attention"]["milliseconds"] / found["window"]["milliseconds"]
    print(f"n = {n:,}, r = {bench.scale.window:,}: windowed attention is {ratio:.1f} × faster")
    return {"n": n, "r": bench.scale.window, **found, "ratio": ratio}


def agreement(bench: Bench, names: list[str]) -> dict[str, float]:
    """How far each way to convolve is from double precision on the CPU, of the largest number."""
    n, c = bench.scale.lengths[0], 8
    x, h = torch.randn(2, c, n), torch.randn(c, n) / n**0.5
    exact = VARIANTS["turned"](x.double(), h.double())
    found = {}
    for name in names:
        got = VARIANTS[name](x.to(bench.device), h.to(bench.device)).cpu().double()
        found[name] = float((got - exact).abs().max() / exact.abs().max())
        print(f"{name}: within {found[name]:.1e} of double precision")
        if not found[name] < AGREE:
            raise SystemExit(f"{name} does not convolve")
    return found


def format_point(measured: dict[str, Any]) -> str:
    """One measurement in words."""
    memory = "" if measured["bytes"] is None else f", {measured['bytes'] / 2**30:6.2f} GiB"
    return f"{measured['milliseconds']:8.2f} ms, forward {measured['forward']:8.2f} ms{memory}"


def main() -> None:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--parts", default="layers,operators,window")
    parser.add_argument("--convolutions", default="turned", help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--compile", choices=["on", "off"], default="on")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--lengths", default="", help="of layers, such as 2048,131072")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="short sequences, to see that it runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    compiled = options.compile == "on" and options.device != "cpu"
    repeats = 2 if options.tiny else options.repeats
    scale = TINY if options.tiny else Scale()
    if options.lengths:
        scale = replace(scale, lengths=tuple(map(int, options.lengths.split(","))))
    bench = Bench(options.device, scale, repeats, compiled)
    names, parts = options.convolutions.split(","), options.parts.split(",")
    unknown = set(names) - set(VARIANTS) | set(parts) - {"layers", "operators", "window"}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    name = torch.cuda.get_device_name() if bench.gpu else "cpu"
    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "compiled": compiled}
    found["scale"] = asdict(bench.scale)
    found["agreement"] = agreement(bench, names)
    if "layers" in parts:
        found["layers"] = layers(bench, names)
    if "operators" in parts:
        found["operators"] = operators(bench, names)
    if "window" in parts:
        found["window"] = window(bench)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
