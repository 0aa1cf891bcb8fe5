"""Greedy decoding on a CPU: ours against Hugging Face `generate` on the same weights.

    tiny     4 layers of 128, characters, prompt of 17, batch 1
    gpt2     the shape of GPT-2 124M, random weights, prompt of 128, batch 1 and 8; also in int8

Both run in this process, in turns, with the same number of threads; rates are medians of all tokens
made over the whole call, prompt included; what other processes disturbed is timed again. The peer
runs its fused attention with its dynamic and its static cache, and the faster of the two counts.
Tokens must be equal, but for ties: two logits closer than 1e-4, after which a row is not compared
further.

What int8 changes is measured with the right tokens given (teacher forcing), on ids drawn by Zipf's
law for the random GPT-2, and on held-out names for a 4 × 128 model trained on the bundled ones.

    python benchmarks/cpu_decode.py [--rows tiny,gpt2,accuracy] [--runs 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import Tensor

from regard.api import load, train_recipe
from regard.bundled import NAMES
from regard.decoding import DecodeSession, Greedy, generate
from regard.interop.hugging_face import export_hf
from regard.layers.int8 import to_int8
from regard.models.decoder import Decoder, gpt2, modern
from regard.planning import plan_recipe
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters
from regard.tokenizers.tokenizer import SPECIALS

TIE = 1e-4  # logits closer than this may differ by rounding alone
END = 2
NOT_TEXT = 0x10000  # code points from here stand for tokens that nobody reads
Ids = list[list[int]]


def make(name: str) -> Decoder:
    """The model of a row, with random weights from a fixed seed."""
    torch.manual_seed(0)
    if name == "tiny":
        return Decoder(69, replace(modern(4, 128), max_len=512)).eval()
    return Decoder(50_257, replace(gpt2(12, 768), max_len=1024)).eval()


def exported(model: Decoder) -> Any:
    """The same weights as a Hugging Face model."""
    from transformers import AutoModelForCausalLM

    characters = [chr(NOT_TEXT + i) for i in range(model.vocab_size - len(SPECIALS))]
    with tempfile.TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "hf"
        run.mkdir()
        write_config(run, "transformer", model)
        write_tensors(run / "model.safetensors", weights(model))
        Characters(characters).save(run / "tokenizer.json")
        export_hf(run, out)
        return AutoModelForCausalLM.from_pretrained(out, attn_implementation="sdpa").eval()


def ours(model: Decoder, prompts: Ids, new: int) -> Callable[[], Ids]:
    """A call that continues the prompts with regard."""

    work = DecodeSession(model)  # kept between calls, as `regard.load` keeps one

    def call() -> Ids:
        strategy, ends = Greedy(log_probs=False), {"end": END, "banned": [END]}
        found = generate(model, prompts, strategy, max_new=new, session=work, **ends)
        return [several[0].ids for several in found]

    return call


def theirs(peer: Any, prompts: Ids, new: int, **cache: Any) -> Callable[[], Ids]:
    """A call that continues the prompts with Hugging Face."""
    ids = torch.tensor(prompts)

    def call() -> Ids:
        with torch.inference_mode():
            found = peer.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new,
                do_sample=False,
                suppress_tokens=[END],
                pad_token_id=0,
                **cache,
            )
        return found[:, ids.size(1) :].tolist()

    return call


def others() -> float:
    """Processor seconds taken so far by all other processes; always 0 where nobody tells."""
    try:
        used = sum(map(int, Path("/proc/stat").read_text().split()[1:4])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0
    return used - time.process_time()


def rates(
    calls: dict[str, Callable[[], Ids]], tokens: int, runs: int
) -> tuple[dict[str, float], bool]:
    """Median tokens per second of each call, in turns, after one round of warming up.

    A time in which other processes took more than a twentieth of a processor is not kept. After ten
    times as many turns as requested, all times count; the second result is then True.
    """
    kept: dict[str, list[float]] = {name: [] for name in calls}
    spoilt: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(10 * runs):
        for name, call in calls.items():
            start, before = time.perf_counter(), others()
            call()
            took, theirs = time.perf_counter() - start, others() - before
            if turn:
                (kept if theirs < 0.05 * took else spoilt)[name].append(took)
        if min(map(len, kept.values())) >= runs:
            break
    disturbed = min(map(len, kept.values())) < runs
    times = {name: kept[name] + spoilt[name] if disturbed else kept[name] for name in calls}
    return {name: tokens / statistics.median(times[name]) for name in calls}, disturbed


@torch.inference_mode()
def compared(model: Decoder, prompts: Ids, one: Ids, other: Ids) -> dict[str, int]:
    """How many rows are equal, part at a tie, or differ."""
    found = {"equal": 0, "ties": 0, "different": 0}
    for prompt, a, b in zip(prompts, one, other, strict=True):
        if a == b:
            found["equal"] += 1
            continue
        at = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        logits = model.logits(torch.tensor([prompt + a[:at]]))[0, -1]
        gap = float((logits[a[at]] - logits[b[at]]).abs())
        found["ties" if gap < TIE else "different"] += 1
    return found


def row(name: str, batch: int, length: int, new: int, runs: int) -> dict[str, Any]:
    """One line of the table."""
    model = make(name)
    peer = exported(model)
    generator = torch.Generator().manual_seed(1)
    size = (batch, length)
    prompts = torch.randint(4, model.vocab_size, size, generator=generator).tolist()
    calls = {
        "ours": ours(model, prompts, new),
        "dynamic": theirs(peer, prompts, new),
        "static": theirs(peer, prompts, new, cache_implementation="static", disable_compile=True),
    }
    same = compared(model, prompts, calls["ours"](), calls["dynamic"]())
    if name != "tiny":
        small = make(name)
        to_int8(small)
        calls["int8"] = ours(small, prompts, new)
    found, disturbed = rates(calls, batch * new, runs)
    best = max(found["dynamic"], found["static"])
    return {
        "row": name,
        "batch": batch,
        "tokens_per_second": {key: round(value, 1) for key, value in found.items()},
        "ratio": round(found["ours"] / best, 2),
        "int8_ratio": round(found["int8"] / best, 2) if "int8" in found else None,
        "rows": same,
        "disturbed": disturbed,
    }


@torch.inference_mode()
def agreement(exact: Tensor, rough: Tensor, targets: Tensor) -> dict[str, float]:
    """Logits (N, V) of two models before the same targets (N,): equal choices, nats per token."""
    nats = [float(torch.nn.functional.cross_entropy(logits, targets)) for logits in (exact, rough)]
    return {
        "tokens": len(targets),
        "same_choice": float((exact.argmax(-1) == rough.argmax(-1)).float().mean()),
        "nats": nats[0],
        "nats_int8": nats[1],
    }


@torch.inference_mode()
def random_gpt2() -> dict[str, float]:
    """Agreement of a random GPT-2 with itself in int8, on ids drawn by Zipf's law."""
    model = make("gpt2")
    chances = 1 / torch.arange(1, model.vocab_size + 1).float()
    ids = chances.multinomial(
        4 * 129, replacement=True, generator=torch.Generator().manual_seed(2)
    ).view(4, 129)
    exact = model.logits(ids[:, :-1]).flatten(0, 1)
    to_int8(model)
    return agreement(exact, model.logits(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


@torch.inference_mode()
def trained_names(steps: int) -> dict[str, float]:
    """The same for a model trained on names, on names it has not seen."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        assignments = [f"train.steps={steps}", "model.n_layers=4", "model.d_model=128"]
        with torch.inference_mode(False):
            train_recipe(plan_recipe([NAMES], assignments=assignments)[0], run)
        exact, rough = load(run), load(run, int8=True)
        _, shard = exact.held_out()
        parts = []
        for number in range(min(1000, shard.records)):
            ids = torch.from_numpy(shard.record(number).astype("int64"))
            both = [side.model.logits(ids[None, :-1])[0] for side in (exact, rough)]
            parts.append((*both, ids[1:]))
    one, other, targets = (torch.cat(items) for items in zip(*parts, strict=True))
    return agreement(one, other, targets)


def line(item: dict[str, Any]) -> str:
    """A row as printed."""
    rate = item["tokens_per_second"]
    best = max(rate["dynamic"], rate["static"])
    small = f"{rate['int8']:8.1f} {item['int8_ratio']:6.2f}" if "int8" in rate else " " * 15
    counts = ", ".join(f"{count} {what}" for what, count in item["rows"].items() if count)
    if item["disturbed"]:
        counts += "; disturbed by other processes"
    name = f"{item['row']} × {item['batch']}"
    return f"{name:10} {rate['ours']:8.1f} {best:8.1f} {item['ratio']:6.2f} {small}  {counts}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="tiny,gpt2,accuracy")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="of training for the accuracy row")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = args.rows.split(",")
    result: dict[str, Any] = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    plans = [("tiny", 1, 17, 256), ("gpt2", 1, 128, 64), ("gpt2", 8, 128, 64)]
    result["speed"] = []
    print(f"{'tokens/s':10} {'ours':>8} {'peer':>8} {'ratio':>6} {'int8':>8} {'ratio':>6}  rows")
    for shape in plans:
        if shape[0] in rows:
            result["speed"].append(row(*shape, args.runs))
            print(line(result["speed"][-1]), flush=True)
    if "accuracy" in rows:
        result["int8"] = {"gpt2, random": random_gpt2(), "names": trained_names(args.steps)}
    for name, found in result.get("int8", {}).items():
        change = found["nats_int8"] - found["nats"]
        print(
            f"int8, {name}: {found['same_choice']:.2%} of {found['tokens']} choices the same, "
            f"{change:+.5f} nats per token on {found['nats']:.4f}"
        )
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
