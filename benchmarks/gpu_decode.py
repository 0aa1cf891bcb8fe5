"""Greedy decoding of GPT-2 124M on one GPU beside Hugging Face `generate` on the same weights.

Prompt 128, 256 new tokens, bf16, batches of 1 to 256; the peer with its static cache, which it
compiles, and with its default dynamic one. Ours is `regard.decoding.generate`, as all verbs use it.
Tokens are compared row by row up to the first difference: there the two candidates' logits, from
the same prefix in fp32, say whether it was a tie in bf16 (closer than 1% of the largest logit).

    python benchmarks/gpu_decode.py [--batches 1,8,64,256] [--peer static,dynamic] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from regard.decoding import DecodeSession, Greedy, generate
from regard.interop.hugging_face import export_hf
from regard.models.decoder import Decoder, gpt2, modern
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters

PROMPT, NEW, TIE = 128, 256, 0.01


def exported(model: Decoder, folder: Path) -> Any:
    """The same weights as a Hugging Face model."""
    from transformers import AutoModelForCausalLM

    run = folder / "run"
    run.mkdir()
    write_config(run, "transformer", model)
    write_tensors(run / "model.safetensors", weights(model))
    Characters([chr(i) for i in range(32, 28 + model.vocab_size)]).save(run / "tokenizer.json")
    export_hf(run, folder / "hf")
    return AutoModelForCausalLM.from_pretrained(folder / "hf").eval()


def ours(
    model: Decoder, prompts: torch.Tensor, session: DecodeSession | None = None, new: int = NEW
) -> list[list[int]]:
    """What our engine says; the end token is banned so that every row goes on."""
    found = generate(
        model,
        prompts.tolist(),
        Greedy(log_probs=False),
        max_new=new,
        end=2,
        banned=[2],
        batch_size=len(prompts),
        session=session,
    )
    return [one.ids for (one,) in found]


def theirs(peer: Any, prompts: torch.Tensor, cache: str, new: int = NEW) -> list[list[int]]:
    """What the peer says."""
    options: dict[str, Any] = {"cache_implementation": "static"} if cache == "static" else {}
    with torch.inference_mode():
        out = peer.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            suppress_tokens=[2],
            pad_token_id=0,
            eos_token_id=2,
            **options,
        )
    return out[:, prompts.size(1) :].tolist()


def rate(work: Callable[[], list[list[int]]], runs: int) -> tuple[float, list[list[int]], float]:
    """Tokens a second (median of runs), the generated ids, and the seconds of the first call."""
    start = time.perf_counter()
    ids = work()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        ids = work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sum(map(len, ids)) / sorted(times)[runs // 2], ids, first


def parted(
    exact: Decoder, prompts: torch.Tensor, a: list[list[int]], b: list[list[int]]
) -> dict[str, int]:
    """How many rows are equal, part at a tie, or differ."""
    count = {"equal": 0, "tie": 0, "different": 0}
    for prompt, one, other in zip(prompts.tolist(), a, b, strict=True):
        at = next((i for i, (x, y) in enumerate(zip(one, other, strict=True)) if x != y), None)
        if at is None:
            count["equal"] += 1
            continue
        ids = torch.tensor([prompt + one[:at]], device="cuda")
        with torch.inference_mode():
            logits = exact.logits(ids)[0, -1].double()
        gap = (logits[one[at]] - logits[other[at]]).abs() / logits.abs().max()
        count["tie" if float(gap) < TIE else "different"] += 1
    return count


def profile(model: Decoder, prompts: torch.Tensor) -> dict[str, Any]:
    """Microseconds of a step by kernel, and between kernels."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    session = DecodeSession(model)
    ours(model, prompts, session)
    with recorded(activities=[ProfilerActivity.CUDA]) as found:
        start = time.perf_counter()
        ours(model, prompts, session)
        torch.cuda.synchronize()
        whole = time.perf_counter() - start
    events = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
    busy = sum(e.self_device_time_total for e in events)
    top = {e.key[:60]: round(e.self_device_time_total / NEW, 1) for e in events[:12]}
    return {
        "us_per_token": round(1e6 * whole / NEW),
        "us_busy": round(busy / NEW),
        "us_by_kernel": top,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", default="1,8,64,256")
    parser.add_argument("--peer", default="static,dynamic")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--preset", choices=["gpt2", "modern"], default="gpt2")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")
    torch.manual_seed(0)
    shape = {"gpt2": gpt2, "modern": modern}[args.preset](12, 768)
    exact = Decoder(args.vocab, replace(shape, max_len=1024)).eval()
    with tempfile.TemporaryDirectory() as folder:
        peer = exported(exact, Path(folder)).cuda().bfloat16()
    exact.cuda()
    model = Decoder(args.vocab, exact.config).cuda().eval()
    model.load_state_dict(exact.state_dict())
    model.bfloat16()
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "rows": []}
    print("batch    ours tok/s   first s " + "".join(f"{p:>12}" for p in args.peer.split(",")))
    for batch in map(int, args.batches.split(",")):
        prompts = torch.randint(3, args.vocab, (batch, PROMPT), device="cuda")
        work = DecodeSession(model)  # kept between calls, as `regard.load` keeps one
        speed, ids, first = rate(lambda p=prompts, w=work: ours(model, p, w), args.runs)
        row: dict[str, Any] = {"batch": batch, "ours": round(speed), "first": round(first, 2)}
        for cache in filter(None, args.peer.split(",")):
            runs = args.runs if cache == "static" else 1
            row[cache], their_ids, _ = rate(lambda p=prompts, c=cache: theirs(peer, p, c), runs)
            row[cache] = round(row[cache])
            row[f"rows_{cache}"] = parted(exact, prompts, ids, their_ids)
        if args.profile:
            row["profile"] = profile(model, prompts)
        results["rows"].append(row)
        print(f"{batch:5} {json.dumps(row)}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
