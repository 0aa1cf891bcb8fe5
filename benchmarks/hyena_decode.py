"""Decoding with a Hyena on a CPU: inputs sent on in blocks, against the sum over all inputs.

Both decode the same random tokens with the same model, one token at a time from nothing. The sum
keeps every input of every long convolution and multiplies all of them with the filter at each step:
O(n) a token, as one batched product that reads both once. Ours (layers/convolution.py) sends
blocks on by Fourier transforms: O(log² n) a token, amortised. `recorded` is the same through
`regard.decoding.generate`, which records a step and replays it.

A token's time is given over the second half of n tokens, for n doubling up to the last; log² n is
what it may grow by. Logits of both must agree.

    python benchmarks/hyena_decode.py [--tokens 16384] [--width 256] [--layers 4] [--quick]
                                      [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.decoding import Greedy, generate
from regard.layers.cache import DecodeState
from regard.layers.hyena import HyenaState
from regard.models.hyena import HyenaModel, hyena

AGREE = 1e-4  # of logits
END, VOCABULARY = 2, 64


class Sum:
    """A causal convolution by the sum over all inputs so far, in the place of
    `OnlineConvolution`."""

    def __init__(self, batch: int, filters: Tensor) -> None:
        channels, self.capacity = filters.shape
        self.filters = filters
        self.backwards = filters.flip(-1).contiguous()  # (C, S): far to near
        self.inputs = filters.new_zeros(channels, batch, self.capacity)

    def flush(self, column: int) -> None:
        """Nothing is put off."""

    def step(self, x: Tensor, position: int, column: int) -> Tensor:
        """One more input (B, C); its output (B, C)."""
        self.inputs[:, :, column] = x.T
        known = self.inputs[:, :, : column + 1]  # (C, B, n)
        answer = self.backwards[:, self.capacity - column - 1 :, None]  # (C, n, 1)
        return torch.bmm(known, answer)[..., 0].T


def make(layers: int, width: int, tokens: int) -> HyenaModel:
    """A model with random weights from a fixed seed."""
    torch.manual_seed(0)
    return HyenaModel(VOCABULARY, replace(hyena(layers, width), max_len=tokens)).eval()


def started(model: HyenaModel, tokens: int, *, summed: bool) -> DecodeState:
    """An empty state; with `summed`, every long convolution sums."""
    state = model.init_state(1, tokens)
    if summed:
        for layer in state.layers:
            assert isinstance(layer, HyenaState)
            layer.long = [Sum(1, one.filters) for one in layer.long]  # type: ignore[misc]
    return state


@torch.inference_mode()
def decoded(model: HyenaModel, ids: Tensor, *, summed: bool) -> tuple[list[float], Tensor]:
    """The time after each token, and the logits after every hundredth."""
    state = started(model, ids.size(1), summed=summed)
    times, kept = [], []
    begin = time.perf_counter()
    for t in range(ids.size(1)):
        logits = model.step(ids[:, t : t + 1], None, state)
        times.append(time.perf_counter() - begin)
        if t % 100 == 99:
            kept.append(logits)
    return times, torch.cat(kept)


def recorded(model: HyenaModel, tokens: int) -> float:
    """Seconds that `generate` takes for so many tokens."""
    begin = time.perf_counter()
    generate(model, [[1]], Greedy(log_probs=False), max_new=tokens - 1, end=END, banned=[END])
    return time.perf_counter() - begin


def growth(times: list[float]) -> list[dict[str, float]]:
    """What a token costs in the second half of n, for n doubling, and log² n, both over the
    first's.
    """
    n, rows = len(times), []
    while n >= 1024 or (n >= 128 and len(rows) < 3):
        rows.append({"n": n, "microseconds": 1e6 * (times[n - 1] - times[n // 2 - 1]) / (n // 2)})
        n //= 2
    rows.reverse()
    for row in rows:
        row["growth"] = row["microseconds"] / rows[0]["microseconds"]
        row["log2_growth"] = (math.log(row["n"]) / math.log(rows[0]["n"])) ** 2
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="a small model, few tokens")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.width, options.layers = 512, 16, 2
    model = make(options.layers, options.width, options.tokens)
    ids = torch.randint(VOCABULARY, (1, options.tokens), generator=torch.Generator().manual_seed(1))
    decoded(model, ids[:, :200], summed=False)  # warm up
    ours, one = decoded(model, ids, summed=False)
    replayed = recorded(model, options.tokens)
    summed, other = decoded(model, ids, summed=True)
    gap = float((one - other).abs().max())
    found: dict[str, Any] = {
        "tokens": options.tokens,
        "width": options.width,
        "layers": options.layers,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seconds": {"ours": ours[-1], "recorded": replayed, "sum": summed[-1]},
        "ratio": summed[-1] / ours[-1],
        "ratio_recorded": summed[-1] / replayed,
        "difference": gap,
        "growth": {"ours": growth(ours), "sum": growth(summed)},
    }
    if not gap < AGREE:
        raise SystemExit(f"logits differ by {gap}")
    for name, seconds in found["seconds"].items():
        print(f"{name:9} {seconds:8.2f} s  {options.tokens / seconds:9.1f} tokens/s")
    print(
        f"ratio {found['ratio']:.2f}, recorded {found['ratio_recorded']:.2f}; logits to {gap:.1e}"
    )
    print(f"{'n':>7} {'ours':>9} {'growth':>7} {'log² n':>7} {'sum':>9} {'growth':>7}   µs a token")
    for a, b in zip(found["growth"]["ours"], found["growth"]["sum"], strict=True):
        print(
            f"{a['n']:7,} {a['microseconds']:9.1f} {a['growth']:7.2f} {a['log2_growth']:7.2f} "
            f"{b['microseconds']:9.1f} {b['growth']:7.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
